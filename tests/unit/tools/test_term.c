/* test_term.c - progress as a bar, as lines, as JSON; colours, widths, names cut in the middle,
 * units. A clock of the test's own and a file stand for time and for stderr. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "tools/cli/term.h"
#include "tools/terminal/terminal.h"

static double now_s;
static double test_clock(void) { return now_s; }

/* What a terminal of this form has printed so far, with the escape sequences in it. */
typedef struct screen {
    sw_term term;
    char text[65536];
} screen;

static void open_screen(screen *s, sw_progress_form form)
{
    now_s = 1000;
    sw_term_init(&s->term, false);
    s->term.out = tmpfile();
    assert_non_null(s->term.out);
    s->term.now_s = test_clock;
    s->term.start_s = now_s;
    s->term.form = form;
    s->term.has_colors = false;
}

static const char *read_screen(screen *s)
{
    size_t n;

    (void)fflush(s->term.out);
    rewind(s->term.out);
    n = fread(s->text, 1, sizeof s->text - 1, s->term.out);
    s->text[n] = '\0';
    (void)fseek(s->term.out, 0, SEEK_END);
    return s->text;
}

static void close_screen(screen *s) { (void)fclose(s->term.out); }

static int count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) n++;
    return n;
}

/* Twelve blocks of `block_s` seconds, from block `first` on, with three linears each. */
static void work(screen *s, int first, double block_s)
{
    const sw_progress *p = &s->term.progress;

    for (int b = first; b < 12; b++) {
        sw_progress_step(p, "quantize", b, 12);
        for (int l = 0; l < 3; l++) {
            char name[64];
            (void)snprintf(name, sizeof name, "model.layers.%d.linear_%d", b, l);
            now_s += block_s / 3;
            sw_progress_item(p, name);
        }
    }
    sw_progress_step(p, "quantize", 12, 12);
}

static void test_bar_is_drawn_again_and_wiped(void **state)
{
    screen s;
    const char *text;

    (void)state;
    assert_int_equal(setenv("COLUMNS", "120", 1), 0);
    open_screen(&s, SW_PROGRESS_BAR);
    work(&s, 0, 60);
    text = read_screen(&s);
    assert_int_equal(count(text, "\n"), 0);
    assert_true(count(text, "\r\033[K") > 12);
    assert_non_null(strstr(text, " 3/12 blocks, 9 min left  model.layers.3.linear_"));
    assert_true(strlen(text) > 4 && !strcmp(text + strlen(text) - 4, "\r\033[K")); /* wiped */
    close_screen(&s);
    open_screen(&s, SW_PROGRESS_BAR);
    work(&s, 0, 0.01); /* far more often than six times a second */
    assert_true(count(read_screen(&s), "blocks") <= 3);
    assert_int_equal(unsetenv("COLUMNS"), 0);
    close_screen(&s);
}

static void test_lines_come_at_intervals(void **state)
{
    screen s;
    const char *text;

    (void)state;
    open_screen(&s, SW_PROGRESS_LINES);
    work(&s, 0, 6);
    text = read_screen(&s);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\033'));
    assert_int_equal(count(text, "\n"), 8); /* of 72 s, with the last word */
    assert_non_null(strstr(text, "quantize: 1 of 12 blocks, 62 s left\n"));
    assert_non_null(strstr(text, "quantize: 12 blocks in 72 s\n"));
    close_screen(&s);
    open_screen(&s, SW_PROGRESS_LINES);
    work(&s, 0, 600); /* two hours: ten minutes of tens, then one a minute at most */
    assert_true(count(read_screen(&s), "\n") <= 3 + 36 + 1);
    close_screen(&s);
    open_screen(&s, SW_PROGRESS_LINES);
    work(&s, 0, 0.5);
    assert_string_equal(read_screen(&s), ""); /* over before the first line was due */
    close_screen(&s);
}

static void test_a_continued_run_counts_its_own_blocks(void **state)
{
    const sw_step step = {.name = "quantize", .first_done = 8, .done = 10, .total = 12,
                          .elapsed_s = 120, .done_s = 120};
    sw_step start = step;
    sw_step later = step;

    (void)state;
    assert_true(sw_step_eta_s(&step) == 120); /* two blocks in 120 s, two are left */
    later.elapsed_s = 150;
    assert_true(sw_step_eta_s(&later) == 90);
    later.elapsed_s = 900; /* this block takes longer: no more than what the next ones need */
    assert_true(sw_step_eta_s(&later) == 60);
    start.done = 8;
    assert_true(sw_step_eta_s(&start) < 0);
}

static double number(const cJSON *o, const char *key)
{
    const cJSON *v = sw_json_member(o, key);

    assert_true(cJSON_IsNumber(v));
    return v->valuedouble;
}

static void test_json_is_one_object_a_line(void **state)
{
    static const char want_hostile[] = "a\"b\\c???\?\xc3\xa9";
    static const char hostile[] = "a\"b\\c\n\x01\x7f\xff\xc3\xa9";
    screen s;
    int n = 0, n_items = 0;
    char *line, *rest;
    sw_err err = {.code = SW_E_IO, .text = "x.bin: it \"broke\""};

    (void)state;
    open_screen(&s, SW_PROGRESS_JSON);
    sw_term_begin(&s.term, "json", NULL, "quantize");
    work(&s, 4, 3);
    sw_progress_step(&s.term.progress, "hashes", 1, 0);
    sw_progress_item(&s.term.progress, hostile);
    now_s += 1;
    sw_progress_item(&s.term.progress, hostile);
    sw_progress_note(&s.term.progress, "%s", hostile);
    sw_term_error(&s.term, "quantize", &err);
    sw_term_end(&s.term, 5);
    (void)read_screen(&s);
    for (line = strtok_r(s.text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        cJSON *o = cJSON_Parse(line);
        const cJSON *event = sw_json_member(o, "event");
        assert_non_null(event);
        if (n++ == 0) {
            assert_string_equal(sw_json_member(o, "schema")->valuestring, "swage.progress/1");
        } else if (!strcmp(event->valuestring, "step")) {
            const cJSON *item = cJSON_GetObjectItem(o, "tensor");
            assert_non_null(item);
            n_items += cJSON_IsString(item);
            assert_true(number(o, "done") >= 0 && number(o, "elapsed_s") >= 0);
            assert_true(cJSON_HasObjectItem(o, "eta_s"));
            if (!strcmp(sw_json_member(o, "step")->valuestring, "quantize")) {
                assert_true(number(o, "total") == 12);
                assert_string_equal(sw_json_member(o, "unit")->valuestring, "blocks");
                if (number(o, "done") == 10)
                    assert_true(number(o, "eta_s") <= 6 && number(o, "eta_s") >= 3);
            } else {
                assert_true(cJSON_IsNull(cJSON_GetObjectItem(o, "total")));
                if (cJSON_IsString(item))
                    assert_string_equal(item->valuestring, want_hostile);
            }
        } else if (!strcmp(event->valuestring, "error")) {
            assert_string_equal(sw_json_member(o, "message")->valuestring, err.text);
            assert_true(number(o, "exit") == 5);
        } else if (!strcmp(event->valuestring, "end")) {
            assert_true(number(o, "exit") == 5 && number(o, "elapsed_s") >= 0);
        } else {
            assert_string_equal(event->valuestring, "note");
        }
        cJSON_Delete(o);
    }
    assert_true(n > 24);
    assert_true(n_items > 20);
    close_screen(&s);
}

static void test_quiet_and_none_say_nothing(void **state)
{
    screen s;

    (void)state;
    open_screen(&s, SW_PROGRESS_BAR);
    sw_term_begin(&s.term, "none", "never", "quantize");
    work(&s, 0, 60);
    assert_string_equal(read_screen(&s), "");
    sw_progress_note(&s.term.progress, "still said");
    assert_string_equal(read_screen(&s), "still said\n");
    close_screen(&s);
    open_screen(&s, SW_PROGRESS_JSON);
    s.term.is_quiet = true;
    sw_term_begin(&s.term, "json", "never", "quantize");
    work(&s, 0, 60);
    sw_progress_note(&s.term.progress, "not said");
    sw_term_end(&s.term, 0);
    assert_string_equal(read_screen(&s), "");
    close_screen(&s);
}

static void test_bar_fits_every_width(void **state)
{
    sw_step step = {.name = "quantize", .done = 1234567, .total = 7654321, .elapsed_s = 4000,
                    .done_s = 4000,
                    .item = "model.language_model.layers.47.mlp.experts.127.down_proj"};
    char line[SW_STEP_LINE_BYTES];

    (void)state;
    for (int columns = 50; columns <= 200; columns++) {
        sw_step_bar(line, &step, columns, false);
        assert_true(sw_text_columns(line) < columns);
        assert_non_null(strstr(line, " 1234567/7654321 blocks, 5 h 47 min left"));
    }
    sw_step_bar(line, &step, 0, false); /* unknown: 80 */
    assert_true(sw_text_columns(line) < 80);
    sw_step_bar(line, &step, 20, false); /* too narrow for anything else, but no digit is lost */
    assert_non_null(strstr(line, "1234567/7654321 blocks, "));
    assert_null(strchr(line, '['));
    sw_step_bar(line, &step, 200, true);
    assert_non_null(strstr(line, "\033[32m"));
}

static void test_names_are_cut_in_the_middle(void **state)
{
    static const struct {
        const char *name;
        int columns;
        const char *want;
    } cases[] = {
        {"model.layers.10.mlp.up_proj", 40, "model.layers.10.mlp.up_proj"},
        {"model.layers.10.mlp.up_proj", 27, "model.layers.10.mlp.up_proj"},
        {"model.layers.10.mlp.up_proj", 17, "model.l...up_proj"},
        {"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 5, "\xc3\xa9...\xc3\xa9"},
        {"abcdef", 4, "abcdef"}, /* no room for two ends */
        {"abcdef", 0, "abcdef"},
    };
    char out[64];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(sw_name_fit(out, sizeof out, cases[i].name, cases[i].columns),
                            cases[i].want);
    for (int columns = 5; columns < 27; columns++)
        assert_int_equal(sw_text_columns(sw_name_fit(out, sizeof out, cases[0].name, columns)),
                         columns);
}

static void test_colors_obey_environment(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("NO_COLOR") | unsetenv("CLICOLOR_FORCE"), 0);
    assert_false(sw_terminal_has_colors("auto", -1)); /* no terminal */
    assert_true(sw_terminal_has_colors("always", -1));
    assert_int_equal(setenv("CLICOLOR_FORCE", "1", 1), 0);
    assert_true(sw_terminal_has_colors(NULL, -1));
    assert_false(sw_terminal_has_colors("never", -1));
    assert_int_equal(setenv("NO_COLOR", "1", 1), 0);
    assert_false(sw_terminal_has_colors("auto", -1));
    assert_true(sw_terminal_has_colors("always", -1));
    assert_int_equal(setenv("NO_COLOR", "", 1) | setenv("CLICOLOR_FORCE", "0", 1), 0);
    assert_false(sw_terminal_has_colors("auto", -1));
    assert_int_equal(unsetenv("NO_COLOR") | unsetenv("CLICOLOR_FORCE"), 0);
}

static void test_columns_come_from_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("COLUMNS", "72", 1), 0);
    assert_int_equal(sw_terminal_columns(-1), 72);
    assert_int_equal(setenv("COLUMNS", "5", 1), 0);
    assert_int_equal(sw_terminal_columns(-1), 0);
    assert_int_equal(setenv("COLUMNS", "wide", 1), 0);
    assert_int_equal(sw_terminal_columns(-1), 0);
    assert_int_equal(unsetenv("COLUMNS"), 0);
}

static void test_units(void **state)
{
    static const struct {
        double v;
        const char *bytes, *seconds;
    } cases[] = {{0, "0 B", "0 s"},        {999, "999 B", "17 min"}, {1000, "1.0 kB", "17 min"},
                 {1024, "1.0 kB", "18 min"}, {89.2, "89 B", "90 s"},  {7199, "7.2 kB", "2 h 0 min"},
                 {9e9, "9.0 GB", NULL},    {13.6e6, "13.6 MB", NULL}, {123e6, "123 MB", NULL}};
    char text[24];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_term_bytes(text, cases[i].v);
        assert_string_equal(text, cases[i].bytes);
        sw_term_seconds(text, cases[i].v);
        if (cases[i].seconds) assert_string_equal(text, cases[i].seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bar_is_drawn_again_and_wiped),
        cmocka_unit_test(test_lines_come_at_intervals),
        cmocka_unit_test(test_a_continued_run_counts_its_own_blocks),
        cmocka_unit_test(test_json_is_one_object_a_line),
        cmocka_unit_test(test_quiet_and_none_say_nothing),
        cmocka_unit_test(test_bar_fits_every_width),
        cmocka_unit_test(test_names_are_cut_in_the_middle),
        cmocka_unit_test(test_colors_obey_environment),
        cmocka_unit_test(test_columns_come_from_environment),
        cmocka_unit_test(test_units),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
