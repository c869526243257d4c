/* test_speed.c - the bench measures what it says: every M, every row, checked, with its options
 * checked as well. Nothing here depends on how fast anything is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/blas.h"
#include "verify/speed/speed_data.h"

static const int64_t tokens[] = {1, 5, 20};

static sw_speed_options small_options(void)
{
    sw_speed_options o = {.n_out = 130, .k_in = 160, .group_elems = 32, .is_asymmetric = true,
                          .tokens = tokens, .n_tokens = 3, .n_threads = 2, .rounds = 3,
                          .cache_bytes = 1 << 20};
    return o;
}

static void one_selected_row_per_operation(void **state)
{
    sw_speed_options o = small_options();
    sw_speed_report r = {0};
    sw_err err = {0};
    int n_selected = 0, n_blas = 0;

    (void)state;
    o.is_all = true;
    assert_int_equal(sw_speed_run(&r, &o, &err), SW_OK);
    assert_true(r.n_rows > 3 * sw_n_speed_stores - 1);
    assert_true(r.read_gb_s > 0 && r.sgemm_gflop_s > 0 && r.cache_bytes > 0);
    for (int i = 0; i < r.n_rows; i++) {
        const sw_speed_row *row = &r.rows[i];
        double weights = 130.0 * 160.0;

        n_selected += row->is_selected;
        n_blas += strcmp(row->name, "openblas") == 0;
        assert_int_equal(row->time.n_rounds, 3);
        assert_true(row->time.min_us > 0 && row->time.min_us <= row->time.median_us);
        assert_true(row->time.median_us <= row->time.max_us);
        assert_true(row->error < 5e-6);
        assert_true(fabs(row->gflop_s * row->time.median_us * 1e3 - 2 * weights * (double)row->m) <
                    1e-6 * weights);
        if (strcmp(row->weights, "w4a16") == 0) /* 192 x 192 codes, 192 x 5 scales and zeros */
            assert_true(fabs(row->gb_s * row->time.median_us * 1e3 - (192 * 192 / 2 + 192 * 15)) <
                        1);
    }
    assert_int_equal(n_selected, 3 * (sw_n_speed_stores - 1));
    assert_int_equal(n_blas, 3);
    sw_speed_free(&r);
    sw_speed_free(&r);
}

static bool always(void *self)
{
    (void)self;
    return true;
}

static void bad_options_and_cancel(void **state)
{
    static const int64_t zero = 0;
    sw_progress stop = {.is_cancelled = always};
    sw_speed_options bad[7];
    sw_speed_report r = {0};

    (void)state;
    for (int i = 0; i < 7; i++) bad[i] = small_options();
    bad[0].n_out = 0;
    bad[1].k_in = -1;
    bad[2].group_elems = 48;
    bad[3].n_tokens = 0;
    bad[4].rounds = SW_SPEED_ROUNDS_MAX + 1;
    bad[5].tokens = &zero;
    bad[5].n_tokens = 1;
    bad[6].weights = "w4a16,w9";
    for (int i = 0; i < 7; i++) {
        sw_err err = {0};

        assert_int_equal(sw_speed_run(&r, &bad[i], &err), SW_E_USAGE);
        assert_true(err.text[0] != '\0');
        assert_null(r.rows);
    }
    bad[0] = small_options();
    bad[0].progress = &stop;
    assert_int_equal(sw_speed_run(&r, &bad[0], NULL), SW_E_CANCELLED);
    assert_null(r.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_selected_row_per_operation),
        cmocka_unit_test(bad_options_and_cancel),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
