/* test_weight_rows.c - weights into floats and back on several threads: the bytes of one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/num/half.h"
#include "quant/method/weight_rows.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

enum { N = 201, K = 72, WIDE = 2048 };

static void test_values_are_those_stored(void **state)
{
    static uint16_t stored[N * K];
    sw_weight dense = {.n_out = N, .k_in = K, .dense = stored, .dense_dtype = SW_DTYPE_BF16};
    test_rng rng = {1};

    (void)state;
    for (int i = 0; i < N * K; i++) stored[i] = sw_bf16_encode((float)test_gauss(&rng));
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        static float w[N * K];
        sw_err err = {0};
        assert_int_equal(sw_weight_load(w, &dense, N, K, n_threads, &err), SW_OK);
        for (int i = 0; i < N * K; i++) assert_true(w[i] == sw_bf16_decode(stored[i]));
    }
}

/* Two elements that are not finite, in two chunks: the first is named whatever the threads. */
static void test_first_bad_element_is_named(void **state)
{
    static float stored[N * K];
    sw_weight dense = {.n_out = N, .k_in = K, .dense = stored, .dense_dtype = SW_DTYPE_F32};

    (void)state;
    stored[9001] = NAN;
    stored[9003] = INFINITY;
    stored[14000] = -INFINITY;
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        static float w[N * K];
        sw_err err = {0};
        assert_int_equal(sw_weight_load(w, &dense, N, K, n_threads, &err), SW_E_FORMAT);
        assert_non_null(strstr(err.text, "element 9001 "));
    }
}

/* What is not finite is 0, whatever the threads, and all else as it is stored. */
static void test_bad_elements_can_be_zeros(void **state)
{
    static float stored[N * K];
    sw_weight dense = {.n_out = N, .k_in = K, .dense = stored, .dense_dtype = SW_DTYPE_F32};
    test_rng rng = {2};

    (void)state;
    for (int i = 0; i < N * K; i++) stored[i] = (float)test_gauss(&rng);
    stored[9001] = NAN;
    stored[9003] = INFINITY;
    stored[N * K - 1] = -INFINITY;
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        static float w[N * K];
        sw_err err = {0};
        assert_int_equal(sw_weight_load_finite(w, &dense, n_threads, &err), SW_OK);
        for (int i = 0; i < N * K; i++)
            assert_true(w[i] == (isfinite(stored[i]) ? stored[i] : 0.0f));
    }
}

/* Factors of rows and of columns, each alone, as doubles and rounded once. */
static void test_scaled_rows_are_the_plain_ones(void **state)
{
    static uint16_t stored[N * K];
    static double rows[N], cols[K];
    sw_weight dense = {.n_out = N, .k_in = K, .dense = stored, .dense_dtype = SW_DTYPE_BF16};
    test_rng rng = {3};

    (void)state;
    for (int i = 0; i < N * K; i++) stored[i] = sw_bf16_encode((float)test_gauss(&rng));
    for (int i = 0; i < N; i++) rows[i] = exp(test_gauss(&rng));
    for (int j = 0; j < K; j++) cols[j] = exp(test_gauss(&rng));
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        static float divided[N * K], times[N * K];
        sw_err err = {0};
        assert_int_equal(sw_weight_load_scaled(divided, &dense, rows, NULL, n_threads, &err),
                         SW_OK);
        assert_int_equal(sw_weight_load_scaled(times, &dense, NULL, cols, n_threads, &err), SW_OK);
        for (int i = 0; i < N * K; i++) {
            const double v = (double)sw_bf16_decode(stored[i]);
            assert_true(divided[i] == (float)(v / rows[i / K]));
            assert_true(times[i] == (float)(v * cols[i % K]));
        }
    }
}

static void test_other_dtypes_are_refused(void **state)
{
    static float stored[N * K];
    sw_weight dense = {.n_out = N, .k_in = K, .dense = stored, .dense_dtype = SW_DTYPE_I32};
    static float w[N * K];
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_weight_load(w, &dense, N, K, 2, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_weight_load_finite(w, &dense, 2, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_weight_load_scaled(w, &dense, NULL, NULL, 2, &err), SW_E_UNSUPPORTED);
}

static void check_decoded(const sw_qtensor *q)
{
    static float want[N * K], have[N * K];
    const int n = (int)(q->n_out * q->k_in);
    uint16_t v;

    sw_qtensor_decode(want, q);
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        memset(have, 0xff, sizeof have);
        sw_weight_decode(have, q, n_threads);
        assert_memory_equal(have, want, (size_t)n * sizeof *have);
        memset(have, 0xff, sizeof have);
        sw_weight_decode_bf16(have, q, n_threads);
        for (int i = 0; i < n; i++) {
            memcpy(&v, (const char *)have + 2 * i, sizeof v);
            assert_int_equal(v, sw_bf16_encode(want[i]));
        }
    }
}

/* Of so few rows, too, that their floats have hardly room behind what is made. */
static void test_decoding_is_the_plain_one(void **state)
{
    static const int rows[] = {1, 2, 3, N}, groups[] = {16, 64, 0};

    (void)state;
    for (int i = 0; i < 2 * 4 * 3; i++) {
        sw_qtensor q = {0};
        sw_gen_qtensor(&q, 4, i % 2, groups[i / 2 % 3], SW_DTYPE_F16, rows[i / 6], K,
                       SW_GEN_RANDOM, 0, 5);
        check_decoded(&q);
        sw_qtensor_free(&q);
    }
}

/* Also of rows that have far more columns than there are codes. */
static void test_decoding_floats_is_the_plain_one(void **state)
{
    (void)state;
    for (int which = 0; which < SW_GEN_FLOATS; which++)
        for (int is_wide = 0; is_wide < 2; is_wide++) {
            sw_qtensor q = {0};
            sw_gen_float_qtensor(&q, which, is_wide ? N * K / WIDE : N, is_wide ? WIDE : K, 5);
            check_decoded(&q);
            sw_qtensor_free(&q);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_those_stored),
        cmocka_unit_test(test_first_bad_element_is_named),
        cmocka_unit_test(test_bad_elements_can_be_zeros),
        cmocka_unit_test(test_scaled_rows_are_the_plain_ones),
        cmocka_unit_test(test_other_dtypes_are_refused),
        cmocka_unit_test(test_decoding_is_the_plain_one),
        cmocka_unit_test(test_decoding_floats_is_the_plain_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
