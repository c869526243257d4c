/* test_status.c - error text: the first failure wins, is one line, and always ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/progress.h"
#include "formats/base/status.h"

static void test_first_failure_wins(void **state)
{
    sw_err err = {0};

    (void)state;
    assert_int_equal(SW_FAIL(&err, SW_E_FORMAT, "first %d", 1), SW_E_FORMAT);
    assert_int_equal(SW_FAIL(&err, SW_E_IO, "second"), SW_E_IO);
    assert_int_equal(err.code, SW_E_FORMAT);
    assert_string_equal(err.text, "first 1");
    assert_non_null(strstr(err.src_file, "test_status.c"));
    assert_true(err.src_line > 0);
    assert_int_equal(SW_FAIL(NULL, SW_E_BUG, "nobody listens"), SW_E_BUG);
}

static void test_prefix(void **state)
{
    sw_err err = {0};

    (void)state;
    sw_err_prefix(&err, "no failure yet");
    assert_string_equal(err.text, "");
    sw_err_prefix(NULL, "nobody");
    (void)SW_FAIL(&err, SW_E_IO, "inner");
    sw_err_prefix(&err, "file %s", "x");
    sw_err_prefix(&err, "outer");
    assert_string_equal(err.text, "outer: file x: inner");
    assert_int_equal(err.code, SW_E_IO);
}

static void test_long_texts_are_cut(void **state)
{
    char vast[2 * SW_ERR_TEXT_BYTES];
    sw_err err = {0};

    (void)state;
    memset(vast, 'v', sizeof vast - 1);
    vast[sizeof vast - 1] = '\0';
    (void)SW_FAIL(&err, SW_E_IO, "%s", vast);
    assert_int_equal(strlen(err.text), SW_ERR_TEXT_BYTES - 1);
    sw_err_prefix(&err, "short");
    assert_int_equal(strlen(err.text), SW_ERR_TEXT_BYTES - 1);
    assert_memory_equal(err.text, "short: vvv", 10);
    sw_err_prefix(&err, "%s", vast);
    assert_int_equal(strlen(err.text), SW_ERR_TEXT_BYTES - 1);
}

/* A tensor may be called "\e[2Jgone\n"; a terminal or a log must not obey it. */
static void test_one_line(void **state)
{
    sw_err err = {0};

    (void)state;
    (void)SW_FAIL(&err, SW_E_IO, "a\nb\x1b[2J\x7f \xc3\xa9");
    assert_string_equal(err.text, "a?b?[2J? \xc3\xa9");
    sw_err_prefix(&err, "p\rq");
    assert_string_equal(err.text, "p?q: a?b?[2J? \xc3\xa9");
}

static void test_code_names(void **state)
{
    static const struct {
        int code;
        const char *name;
    } want[] = {{0, "ok"}, {1, "gate"}, {2, "usage"}, {3, "format"}, {4, "unsupported"},
                {5, "io"}, {6, "memory"}, {7, "cuda"}, {70, "bug"}, {130, "cancelled"},
                {99, "unknown"}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_string_equal(sw_code_name((sw_code)want[i].code), want[i].name);
}

typedef struct listener {
    int n_steps, n_notes;
    char item[32];
    char note[64];
    bool is_cancelled;
} listener;

static void on_step(void *self, const char *stage, int64_t done, int64_t total)
{
    listener *l = self;

    assert_string_equal(stage, "stage");
    assert_int_equal(done, 3);
    assert_int_equal(total, 4);
    l->n_steps++;
}

static void on_note(void *self, const char *text)
{
    listener *l = self;

    (void)strncpy(l->note, text, sizeof l->note - 1);
    l->n_notes++;
}

static void on_item(void *self, const char *name)
{
    (void)snprintf(((listener *)self)->item, sizeof ((listener *)self)->item, "%s", name);
}

static bool on_cancel(void *self) { return ((listener *)self)->is_cancelled; }

static void test_progress(void **state)
{
    listener l = {0};
    const sw_progress table = {.self = &l, .step = on_step, .note = on_note,
                               .is_cancelled = on_cancel, .item = on_item}, empty = {0};
    sw_err err = {0};

    (void)state;
    sw_progress_step(NULL, "stage", 1, 2);
    sw_progress_step(&empty, "stage", 1, 2);
    sw_progress_note(NULL, "x");
    sw_progress_note(&empty, "x");
    assert_int_equal(sw_progress_check(NULL, &err), SW_OK);
    assert_int_equal(sw_progress_check(&empty, &err), SW_OK);
    sw_progress_step(&table, "stage", 3, 4);
    sw_progress_item(NULL, "x");
    sw_progress_item(&empty, "x");
    sw_progress_item(&table, "a.weight");
    assert_string_equal(l.item, "a.weight");
    sw_progress_note(&table, "damping %g", 0.5);
    assert_int_equal(sw_progress_check(&table, &err), SW_OK);
    l.is_cancelled = true;
    assert_int_equal(sw_progress_check(&table, &err), SW_E_CANCELLED);
    assert_int_equal(err.code, SW_E_CANCELLED);
    assert_int_equal(l.n_steps, 1);
    assert_int_equal(l.n_notes, 1);
    assert_string_equal(l.note, "damping 0.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_failure_wins), cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_long_texts_are_cut), cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_code_names),         cmocka_unit_test(test_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
