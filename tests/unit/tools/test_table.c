/* test_table.c - tables at every width: lines that fit, numbers that stay whole, texts of which
 * nothing is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/terminal/table.h"
#include "tools/terminal/terminal.h"

static const char *const rows[][4] = {
    {"model.layers.0.self_attn.q_proj", "1048576", "[4096, 4096]", "4 bits, group 128, symmetric"},
    {"model.layers.47.mlp.experts.127.down_proj", "7", "[151936, 5120]", "left as it is"},
    {"lm_head", "123456789012", "[1, 1]", ""},
};

static bool row(const void *self, int64_t i, sw_cells out)
{
    (void)self;
    if (i >= 3) return false;
    for (int c = 0; c < 4; c++) (void)snprintf(out[c], SW_CELL_BYTES, "%s", rows[i][c]);
    return true;
}

static const sw_table table = {
    .headings = {"linear", "weights", "[out, in]", "becomes"},
    .kinds = {SW_CELL_NAME, SW_CELL_NUMBER, SW_CELL_FIXED, SW_CELL_TEXT},
    .n_columns = 4, .row = row};

/* The table at a width, as text. */
static const char *print(char *text, size_t text_bytes, const sw_table *t, int columns)
{
    FILE *out = tmpfile();
    size_t n;

    assert_non_null(out);
    sw_table_print(out, t, columns);
    rewind(out);
    n = fread(text, 1, text_bytes - 1, out);
    text[n] = '\0';
    (void)fclose(out);
    return text;
}

static int widest_line(const char *text)
{
    int widest = 0;

    while (*text) {
        const int n = (int)strcspn(text, "\n");
        if (n > widest) widest = n;
        text += n + (text[n] == '\n');
    }
    return widest;
}

static void test_whole_where_nothing_limits(void **state)
{
    char text[4096];

    (void)state;
    assert_string_equal(
        print(text, sizeof text, &table, 0),
        "linear                                          weights  [out, in]       becomes\n"
        "model.layers.0.self_attn.q_proj                 1048576  [4096, 4096]    4 bits, group "
        "128, symmetric\n"
        "model.layers.47.mlp.experts.127.down_proj             7  [151936, 5120]  left as it is\n"
        "lm_head                                    123456789012  [1, 1]\n");
    {
        char wide[4096];
        assert_string_equal(print(wide, sizeof wide, &table, 500), text);
    }
}

static void test_fits_every_width_that_it_can(void **state)
{
    static const char *const whole[] = {"1048576", "123456789012", "[4096, 4096]",
                                        "[151936, 5120]", "model.", "_proj", "lm_head"};
    char text[4096];

    (void)state;
    for (int columns = 20; columns <= 120; columns++) {
        (void)print(text, sizeof text, &table, columns);
        if (columns >= 54) assert_true(widest_line(text) <= columns);
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
            if (columns >= 60 || i < 4) assert_non_null(strstr(text, whole[i]));
        for (const char *w = "4 bits, group 128, symmetric"; w; w = strchr(w + 1, ' ')) {
            char word[32] = "";
            (void)sscanf(w, " %31s", word);
            assert_non_null(strstr(text, word)); /* on some line */
        }
    }
}

static void test_lines_end_without_blanks(void **state)
{
    char text[4096];

    (void)state;
    for (int columns = 40; columns <= 120; columns += 20)
        assert_null(strstr(print(text, sizeof text, &table, columns), " \n"));
}

static void test_no_heading(void **state)
{
    sw_table bare = table;
    char text[4096];

    (void)state;
    bare.has_no_heading = true;
    assert_null(strstr(print(text, sizeof text, &bare, 0), "becomes"));
    assert_int_equal(strncmp(text, "model.layers.0", 14), 0);
}

/* Behind its label; words, such as paths, stay whole. */
static void test_a_line_continues_below_its_text(void **state)
{
    static const char path[] = "a/long/path/to/some/checkpoint";
    char text[512];
    FILE *out = tmpfile();
    size_t n;

    (void)state;
    assert_non_null(out);
    sw_line_print(out, "loaders", 30, "refused: the order of its codes in %s is not known", path);
    sw_line_print(out, NULL, 30, "of no label, and wide enough");
    sw_line_print(out, "loaders", 0, "in a file: %s and %s", path, path);
    rewind(out);
    n = fread(text, 1, sizeof text - 1, out);
    text[n] = '\0';
    (void)fclose(out);
    assert_string_equal(text, "loaders     refused: the order\n"
                              "            of its codes in\n"
                              "            a/long/path/to/some/checkpoint\n"
                              "            is not known\n"
                              "of no label, and wide enough\n"
                              "loaders     in a file: a/long/path/to/some/checkpoint and "
                              "a/long/path/to/some/checkpoint\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_where_nothing_limits),
        cmocka_unit_test(test_fits_every_width_that_it_can),
        cmocka_unit_test(test_lines_end_without_blanks),
        cmocka_unit_test(test_no_heading),
        cmocka_unit_test(test_a_line_continues_below_its_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
