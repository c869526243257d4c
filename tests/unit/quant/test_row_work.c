/* test_row_work.c - rows in pieces: sums in row order whatever the threads, the first failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/row_work.h"

enum { N_OUT = 5 * SW_SLAB_ROWS + 7 };

typedef struct ledger {
    double seen[N_OUT]; /* how often each row was worked on */
    int64_t fail_from;  /* pieces from this row on fail; -1: none */
} ledger;

static sw_code work(sw_row_figures *out, sw_row_space *space, const void *ctx, int64_t row0,
                    int64_t n_rows, sw_err *err)
{
    ledger *l = (ledger *)(uintptr_t)ctx;

    /* the space is the thread's alone, and nobody clears it between pieces */
    if (!space->more) assert_int_equal(SW_MEM_GET(&space->more, 1, "pieces", err), SW_OK);
    space->more[0] += 1;
    assert_true(space->more[0] < 8);
    assert_true(n_rows > 0 && n_rows <= SW_SLAB_ROWS);
    for (int64_t r = row0; r < row0 + n_rows; r++) l->seen[r]++;
    if (l->fail_from >= 0 && row0 >= l->fail_from)
        return SW_FAIL(err, SW_E_FORMAT, "row %lld is broken", (long long)row0);
    out->loss = 1.0 / (double)(3 + row0); /* sums of these depend on their order */
    out->loss_rtn = 1.0 / (double)(7 + row0);
    out->power = (double)n_rows;
    return SW_OK;
}

static void test_sums_in_row_order(void **state)
{
    sw_row_figures one, many;
    double loss = 0;
    sw_err err = {0};

    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        ledger l = {.fail_from = -1};
        assert_int_equal(sw_rows_solve(threads == 1 ? &one : &many, NULL, work, &l, N_OUT, threads,
                                       &err),
                         SW_OK);
        for (int r = 0; r < N_OUT; r++) assert_true(l.seen[r] > 0.5 && l.seen[r] < 1.5);
    }
    for (int64_t r = 0; r < N_OUT; r += SW_SLAB_ROWS) loss += 1.0 / (double)(3 + r);
    assert_memory_equal(&one, &many, sizeof one);
    assert_memory_equal(&one.loss, &loss, sizeof loss);
    assert_true(one.power > N_OUT - 0.5 && one.power < N_OUT + 0.5);
}

static void test_the_first_failure_is_told(void **state)
{
    sw_row_figures sum = {-1, -1, -1}, before = sum;
    ledger l = {.fail_from = 2 * SW_SLAB_ROWS};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_rows_solve(&sum, NULL, work, &l, N_OUT, 3, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "row 128 is broken"));
    assert_memory_equal(&sum, &before, sizeof sum);
}

static void test_report(void **state)
{
    static const sw_row_figures some = {3, 6, 12}, none = {0, 0, 0};
    sw_solve_report r = {0};

    (void)state;
    sw_rows_report(&r, &some);
    assert_true(r.error > 0.2499 && r.error < 0.2501 && r.error_rtn > 0.499 && r.error_rtn < 0.501);
    sw_rows_report(&r, &none);
    assert_true(!(r.error > 0) && !(r.error_rtn > 0) && !(r.power > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_in_row_order),
        cmocka_unit_test(test_the_first_failure_is_told),
        cmocka_unit_test(test_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
