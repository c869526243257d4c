/* test_backend.c - the table of a run's steps: complete rows, and one that lacks steps, whose
 * fallback does them, says why once, and gives the same bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cases/stats_case.h"

/* The pointers of a row from its first step on. */
static void assert_complete(const sw_backend *b)
{
    const size_t first = offsetof(sw_backend, take);
    const char *row = (const char *)b;

    for (size_t at = first; at < sizeof *b; at += sizeof(void (*)(void))) {
        void (*step)(void) = NULL;
        memcpy(&step, row + at, sizeof step);
        if (!step) fail_msg("%s lacks step %zu", b->name, (at - first) / sizeof step);
    }
}

static void test_rows_are_complete(void **state)
{
    (void)state;
    assert_complete(&sw_backend_cpu);
    assert_complete(&sw_backend_cuda);
    assert_null(sw_backend_cpu.fallback);
    assert_ptr_equal(sw_backend_cuda.fallback, &sw_backend_cpu);
}

/* The CPU's steps under a name of their own, less some. */
static sw_backend lacking;
static int n_solved;

static bool cannot_solve(const sw_qspec *spec)
{
    (void)spec;
    return false;
}

static sw_code cannot_stream(struct sw_streams *s, bool with_original, const char *spill_dir,
                             sw_err *err)
{
    (void)s, (void)with_original, (void)spill_dir;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "no such model");
}

static sw_code count_solve(sw_qtensor *q, const struct sw_solve_problem *p, sw_solve_kind kind,
                           struct sw_solve_report *report, sw_err *err)
{
    n_solved++;
    return sw_backend_cpu.solve(q, p, kind, report, err);
}

static void lack(bool solves, bool streams)
{
    lacking = sw_backend_cpu;
    lacking.name = "lacking";
    lacking.fallback = &sw_backend_cpu;
    lacking.solve = count_solve;
    if (!solves) lacking.can_solve = cannot_solve;
    if (!streams) lacking.streams_new = cannot_stream;
    n_solved = 0;
}

static void test_a_place_falls_back(void **state)
{
    const sw_place at = {.backend = &lacking, .n_threads = 3}, zeroed = {0};
    sw_qspec spec = {.num = sw_num_by_bits(4)};

    (void)state;
    lack(true, true);
    assert_ptr_equal(sw_place_for(&at, &spec).backend, &lacking);
    lack(false, true);
    assert_ptr_equal(sw_place_for(&at, &spec).backend, &sw_backend_cpu);
    assert_int_equal(sw_place_for(&at, &spec).n_threads, 3);
    assert_ptr_equal(sw_backend_of(&zeroed), &sw_backend_cpu);
}

typedef struct notes {
    int n;
    char last[200];
} notes;

static void note(void *self, const char *text)
{
    notes *k = self;

    k->n++;
    (void)snprintf(k->last, sizeof k->last, "%s", text);
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    (void)ref, (void)path, (void)err;
    taken_add(self, q, report);
    return SW_OK;
}

static taken run(stats_case *t, const sw_backend *backend, notes *said)
{
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 2);
    taken k = {0};
    sw_quant_sink sink = {.self = &k, .put = put, .is_selected = takes_all};
    sw_progress progress = {.self = said, .note = note};
    sw_err err = {0};

    o.backend = backend;
    if (sw_quant_run(&t->ckpt.model, t->ckpt.st, &t->calib, &o, &sink, &progress, &err) != SW_OK)
        fail_msg("%s", err.text);
    return k;
}

/* Without either, either, and both of the steps that may be lacking. */
static void check(const char *arch)
{
    notes none = {0};
    stats_case t;
    taken want;

    stats_case_open(&t, arch);
    want = run(&t, NULL, &none);
    assert_int_equal(none.n, 0);
    for (int i = 0; i < 4; i++) {
        bool solves = i & 1, streams = i & 2;
        notes said = {0};
        taken have;
        lack(solves, streams);
        have = run(&t, &lacking, &said);
        assert_same_taken(&have, &want);
        assert_int_equal(n_solved > 0, solves);
        assert_int_equal(said.n, solves && streams ? 0 : 1);
        if (said.n)
            assert_non_null(strstr(said.last, solves ? "no such model" : "keeps outliers"));
        free(have.bytes);
    }
    free(want.bytes);
    stats_case_close(&t);
}

static void test_what_is_lacking_is_done_all_the_same(void **state)
{
    (void)state;
    check("llama");
    check("mixtral");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_a_place_falls_back),
        cmocka_unit_test(test_what_is_lacking_is_done_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
