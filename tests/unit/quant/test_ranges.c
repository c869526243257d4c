/* test_ranges.c - scales that are stored for inputs, from made-up ranges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/stats/ranges.h"
#include "tests/support/toys/random.h"

enum { N = 20000 };

static const sw_act int_tensors[] = {{&sw_nums[SW_NUM_INT8], SW_ACT_TENSOR, 0, SW_DTYPE_F32},
                                     {&sw_nums[SW_NUM_INT4], SW_ACT_TENSOR, 0, SW_DTYPE_F32}};
static const sw_act fp8_tensor = {&sw_nums[SW_NUM_E4M3], SW_ACT_TENSOR, 0, SW_DTYPE_F32};
static const sw_act nvfp4 = {&sw_nums[SW_NUM_E2M1], SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3};

static float *draw(double outlier)
{
    float *x = malloc(N * sizeof *x);
    test_rng rng = {7};

    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = (float)test_gauss(&rng);
    x[N / 2] = (float)outlier;
    return x;
}

static sw_range *range_of(const float *x)
{
    sw_range *range = calloc(1, sizeof *range);

    assert_non_null(range);
    sw_range_add(range, x, N / 3); /* in two pieces */
    sw_range_add(range, x + N / 3, N - N / 3);
    return range;
}

/* Squared error of integer rounding under a scale, element by element. */
static double error_under(const float *x, double scale, double top)
{
    double sum = 0;

    for (int i = 0; i < N; i++) {
        double code = rint((double)x[i] / scale), d;
        code = fmin(fmax(code, -top), top);
        d = (double)x[i] - scale * code;
        sum += d * d;
    }
    return sum;
}

/* Every magnitude in the bin that its logarithm says: over all octaves, and just about the edges of
 * bins. */
static void values_fall_into_the_bin_of_their_logarithm(void **state)
{
    sw_range *range = calloc(1, sizeof *range);
    test_rng rng = {3};

    (void)state;
    assert_non_null(range);
    for (int i = 0; i < 40000; i++) {
        double at = 64 * test_uniform(&rng) - 40, edge = rint(at * 32) / 32;
        float x = i % 2 ? (float)exp2(at) : nextafterf((float)exp2(edge), i % 4 ? 0 : INFINITY);
        int bin = (int)floor((log2((double)x) + 40) * 32);
        bin = bin < 0 ? 0 : bin >= SW_RANGE_BINS ? SW_RANGE_BINS - 1 : bin;
        memset(range, 0, sizeof *range);
        sw_range_add(range, &x, 1);
        assert_int_equal(range->counts[bin], 1);
        assert_true(range->amax == (double)x);
    }
    memset(range, 0, sizeof *range);
    sw_range_add(range, (const float[]){0.0f, -0.0f, 0x1p-140f, -0x1p-41f, 0x1p30f, -3.0e38f}, 6);
    assert_int_equal(range->counts[0], 2);
    assert_int_equal(range->counts[SW_RANGE_BINS - 1], 2);
    free(range);
}

static void floats_take_the_whole_range(void **state)
{
    float *x = draw(-56.0);
    sw_range *range = range_of(x);
    float global = sw_range_scale(range, &nvfp4);

    (void)state;
    assert_true(range->amax == 56.0);
    assert_true(sw_range_scale(range, &fp8_tensor) == 0.125f);
    assert_true(fabs((double)global * 448 * 6 / 56 - 1) < 1e-6);
    assert_true(1.0f / (1.0f / global) == global); /* survives being stored as a reciprocal */
    free(range);
    free(x);
}

/* Few steps: the rare large values are worth less than finer steps for the rest. */
static void integers_are_clipped_where_that_pays(void **state)
{
    static const double outliers[] = {0.0, 6.0, 12.0};

    (void)state;
    for (int i = 0; i < 6; i++) {
        const sw_act *act = &int_tensors[i / 3];
        float *x = draw(outliers[i % 3]);
        sw_range *range = range_of(x);
        double top = (double)act->num->top, plain = range->amax / top;
        double have = (double)sw_range_scale(range, act), best = (double)INFINITY;

        for (double shrink = 1; shrink >= 0.4; shrink -= 0.005)
            best = fmin(best, error_under(x, plain * shrink, top));
        assert_true(error_under(x, have, top) <= 1.05 * best);
        assert_true(have <= plain * (1 + 1e-6));
        if (act->num->bits == 4)
            assert_true(error_under(x, have, top) < 0.8 * error_under(x, plain, top));
        free(range);
        free(x);
    }
}

static void nothing_seen_gives_one(void **state)
{
    static sw_range empty;
    float zeros[5] = {0};

    (void)state;
    sw_range_add(&empty, zeros, 5);
    assert_true(sw_range_scale(&empty, &int_tensors[0]) == 1.0f);
    assert_true(sw_range_scale(&empty, &nvfp4) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_fall_into_the_bin_of_their_logarithm),
        cmocka_unit_test(floats_take_the_whole_range),
        cmocka_unit_test(integers_are_clipped_where_that_pays),
        cmocka_unit_test(nothing_seen_gives_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
