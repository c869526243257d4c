/* test_shell.c - texts made of tables that hold what shells and roff take for their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/shell/commands.h"
#include "tools/shell/completion.h"
#include "tools/shell/man_page.h"

/* The text so far, ended; owned by t. */
static const char *text_of(sw_made_text *t)
{
    assert_int_equal(t->rc, SW_OK);
    assert_int_equal(sw_print_add(&t->buf, "", 1, t->err), SW_OK);
    return t->buf.at;
}

static void test_words_are_quoted(void **state)
{
    sw_err err = {0};
    sw_made_text t = {.err = &err};

    (void)state;
    sw_made_word(&t, "it's $HOME `x` \\ \"y\"");
    assert_string_equal(text_of(&t), "'it'\\''s $HOME `x` \\ \"y\"'");
    sw_mem_put(t.buf.at);
}

static void test_a_piece_that_is_too_long_is_an_error(void **state)
{
    char text[600];
    sw_err err = {0};
    sw_made_text t = {.err = &err};

    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    sw_made_add(&t, text);
    assert_int_equal(t.rc, SW_OK);
    sw_made_fmt(&t, "%s", text);
    sw_made_add(&t, "behind");
    assert_int_equal(t.rc, SW_E_BUG);
    assert_int_equal(t.buf.n_bytes, sizeof text - 1);
    sw_mem_put(t.buf.at);
}

static const sw_opt rows[] = {
    {.name = "odd", .letter = 'd', .group = SW_OPT_COMMON, .kind = SW_OPT_LIST, .arg = "FILE",
     .help = ".begins with a dot, has 'quotes', \\backslashes, ~ and --dashes"},
    {.name = "rare", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, .help = "'quoted' at first"},
    {0},
};
static const char *const examples[] = {"swage odd '.x' \\", ".TH is no request", NULL};
static const sw_cmd odd = {
    .name = "odd", .args = "[.IN] 'x'", .summary = "a -summary", .more = ".one\n\n'two\n",
    .options = rows, .examples = examples};

static void test_roff_is_escaped(void **state)
{
    static const char *const want[] = {
        ".SH NAME\nswage\\-odd \\- a \\-summary\n",
        ".SH DESCRIPTION\n\\&.one\n.PP\n\\&\\(aqtwo\n",
        ".TP\n.B \\-d\\fR, \\fB\\-\\-odd\\fR \\fIFILE\\fR...\n",
        "\\&.begins with a dot, has \\(aqquotes\\(aq, \\ebackslashes, \\(ti and \\-\\-dashes\n",
        ".SS Options for special cases\n.TP\n.B \\-\\-rare\n\\&\\(aqquoted\\(aq at first\n",
        ".EX\nswage odd \\(aq.x\\(aq \\e\n\\&.TH is no request\n.EE\n"};
    sw_err err = {0};
    sw_made_text t = {.err = &err};
    const char *text;

    (void)state;
    sw_man_command(&t, &odd);
    text = text_of(&t);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(text, want[i])) fail_msg("no %s in\n%s", want[i], text);
    sw_mem_put(t.buf.at);
}

static void test_paths_are_known_by_their_row(void **state)
{
    const sw_opt text = {.kind = SW_OPT_TEXT, .arg = "TEXT"};
    const sw_opt either = {.kind = SW_OPT_TEXT, .arg = "NAME|FILE", .offers = sw_command_name};
    const sw_opt model = {.kind = SW_OPT_TEXT, .arg = "MODEL", .is_model = true};
    const sw_opt choice = {.kind = SW_OPT_CHOICE, .arg = "FILE", .choices = sw_command_name};

    (void)state;
    assert_true(sw_row_takes_path(&rows[0]));
    assert_false(sw_row_takes_path(&text));
    assert_true(sw_row_takes_path(&either) && sw_row_names(&either) == sw_command_name);
    assert_true(sw_row_takes_path(&model));
    assert_false(sw_row_takes_path(&choice));
}

/* Every name that a script holds is one word for every shell, and every code of the program has its
 * sentence. */
static void test_tables_are_fit_for_shells(void **state)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._+-";

    (void)state;
    for (int i = 0; sw_commands[i]; i++) {
        const sw_cmd *cmd = sw_commands[i];
        const char *name;
        for (int k = 0; cmd->words && (name = cmd->words(k)) != NULL; k++)
            assert_int_equal(strspn(name, plain), strlen(name));
        for (const sw_opt *row = cmd->options; row->name; row++)
            for (int k = 0; sw_row_names(row) && (name = sw_row_names(row)(k)) != NULL; k++)
                assert_int_equal(strspn(name, plain), strlen(name));
    }
    for (int code = 0; code < 256; code++) {
        bool is_told = false;
        for (int i = 0; i < sw_n_exit_codes; i++)
            is_told = is_told || (int)sw_exit_codes[i].code == code;
        assert_int_equal(is_told, strcmp(sw_code_name((sw_code)code), "unknown") != 0);
    }
    for (int i = 0; i < sw_n_exit_codes; i++) {
        assert_string_not_equal(sw_code_name(sw_exit_codes[i].code), "");
        assert_true(i == 0 || sw_exit_codes[i].code > sw_exit_codes[i - 1].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_quoted),
        cmocka_unit_test(test_a_piece_that_is_too_long_is_an_error),
        cmocka_unit_test(test_roff_is_escaped),
        cmocka_unit_test(test_paths_are_known_by_their_row),
        cmocka_unit_test(test_tables_are_fit_for_shells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
