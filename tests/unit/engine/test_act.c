/* test_act.c - quantized activations: scales and codes worked out by hand and by comparing
 * distances, the rounded floats against the codes, and the product that uses them. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/act.h"
#include "formats/num/small.h"
#include "kernels/kernel.h"
#include "tests/support/toys/qtensor_gen.h"

#define TOKENS 5
#define K 80 /* ragged under 32 and 128 */
#define STRIDE 83

static const sw_act acts[] = {
    {&sw_nums[SW_NUM_INT8], SW_ACT_TENSOR, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_INT8], SW_ACT_TOKEN, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_TENSOR, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_TOKEN, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_GROUP, 128, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_GROUP, 128, SW_DTYPE_F8_E8M0},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0},
    {&sw_nums[SW_NUM_E2M1], SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0},
    {&sw_nums[SW_NUM_E2M1], SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3},
    {&sw_nums[SW_NUM_E5M2], SW_ACT_TOKEN, 0, SW_DTYPE_F32},
};
#define N_ACTS (sizeof acts / sizeof *acts)

static void fill(float *x, uint64_t seed)
{
    for (int i = 0; i < TOKENS * STRIDE; i++) {
        double u = (double)(sw_gen_next(&seed) >> 11) * 0x1p-53 - 0.5;
        x[i] = (float)(u * u * u * 40.0);
    }
    for (int k = 16; k < 48; k++) x[STRIDE + k] = 0.0f; /* whole groups of zeros */
    for (int k = 0; k < K; k++) x[2 * STRIDE + k] = 0.0f;
    for (int k = 0; k < K; k++) x[3 * STRIDE + k] *= 1e-42f; /* subnormal */
}

static double value_of(uint8_t code, const sw_num *num)
{
    return num->values ? (double)num->values[code] : (double)(int8_t)code;
}

/* No other code of the format lies nearer to v / divisor, the quotient rounded to float. */
static void expect_nearest(uint8_t code, float v, float divisor, const sw_num *num)
{
    double wish = (double)(v / divisor), have = fabs(value_of(code, num) - wish);

    assert_true(isfinite(value_of(code, num)) && fabs(value_of(code, num)) <= (double)num->top);
    for (int other = 0; other <= num->code_max; other++) {
        double value = value_of((uint8_t)other, num);
        if (!isfinite(value) || fabs(value) > (double)num->top) continue;
        if (fabs(value - wish) < have)
            fail_msg("%s: %g became %g, %g is nearer", num->name, wish,
                     value_of(code, num), value);
    }
}

static float want_scale(const float *x, int64_t n, const sw_act *act, float input_scale)
{
    double a = 0;

    for (int64_t i = 0; i < n; i++) a = fmax(a, fabs((double)x[i]));
    if (act->scope == SW_ACT_TENSOR) return input_scale;
    if (act->scale_dtype == SW_DTYPE_F8_E4M3) {
        float s = (float)a / act->num->top / input_scale;
        return sw_e4m3_values[sw_e4m3_encode(s)];
    }
    if (a == 0) return 1.0f;
    if (act->scale_dtype == SW_DTYPE_F8_E8M0) {
        double s = 0x1p-126, limit = act->num->bits == 4 ? 7.0 : 448.0;
        while (act->num->bits == 4 ? a / s >= limit : a / s > limit) s *= 2;
        return (float)s;
    }
    return fmaxf((float)a / act->num->top, FLT_MIN);
}

static void codes_are_nearest_and_scales_as_stated(void **state)
{
    static float x[TOKENS * STRIDE];

    (void)state;
    fill(x, 17);
    for (size_t i = 0; i < N_ACTS; i++) {
        const sw_act *act = &acts[i];
        int64_t n_groups = sw_act_groups(act, K), span = act->group_elems ? act->group_elems : K;
        float scales[TOKENS * 5], input_scale = act->num->bits == 4 ? 0.002f : 0.03f;
        uint8_t codes[TOKENS * K];
        bool is_two_level = act->scale_dtype == SW_DTYPE_F8_E4M3;

        assert_true(n_groups <= 5);
        sw_act_quantize(codes, scales, x, STRIDE, TOKENS, K, act, input_scale);
        for (int64_t m = 0; m < TOKENS; m++)
            for (int64_t k = 0; k < K; k++) {
                int64_t from = k / span * span, n = from + span > K ? K - from : span;
                float s = n_groups ? scales[m * n_groups + k / span] : input_scale;
                float d = is_two_level ? s * input_scale : s;
                assert_true(s == want_scale(x + m * STRIDE + from, n, act, input_scale));
                if (d > 0.0f) expect_nearest(codes[m * K + k], x[m * STRIDE + k], d, act->num);
                else assert_int_equal(codes[m * K + k], 0);
            }
    }
}

static void rounded_floats_are_the_codes_times_the_scales(void **state)
{
    static float x[TOKENS * STRIDE], rounded[TOKENS * K];

    (void)state;
    fill(x, 23);
    for (size_t i = 0; i < N_ACTS; i++) {
        const sw_act *act = &acts[i];
        int64_t n_groups = sw_act_groups(act, K), span = act->group_elems ? act->group_elems : K;
        uint8_t codes[TOKENS * K];
        float scales[TOKENS * 5], input_scale = 0.004f;

        sw_act_quantize(codes, scales, x, STRIDE, TOKENS, K, act, input_scale);
        sw_act_round(rounded, K, x, STRIDE, TOKENS, K, act, input_scale);
        for (int64_t j = 0; j < TOKENS * K; j++) {
            float s = n_groups ? scales[j / K * n_groups + j % K / span] : input_scale;
            if (act->scale_dtype == SW_DTYPE_F8_E4M3) s *= input_scale;
            assert_true(rounded[j] == s * (float)value_of(codes[j], act->num));
        }
        sw_act_round(rounded, K, rounded, K, TOKENS, K, act, input_scale); /* in place */
    }
}

static void no_activation_format_copies(void **state)
{
    static float x[TOKENS * STRIDE], out[TOKENS * K];
    sw_act none = {0};

    (void)state;
    fill(x, 3);
    sw_act_round(out, K, x, STRIDE, TOKENS, K, &none, 0.0f);
    for (int m = 0; m < TOKENS; m++)
        assert_memory_equal(out + m * K, x + m * STRIDE, K * sizeof *x);
    assert_int_equal(sw_act_groups(&none, K), 0);
}

/* Worked by hand: amax 2.54 gives scale 0.02; 2.54 is 127, -1.27 is -63.5 -> -64 (ties to even). */
static void a_row_worked_by_hand(void **state)
{
    static const float x[4] = {2.54f, -1.27f, 0.0f, 0.03f};
    uint8_t codes[4];
    float scale;

    (void)state;
    sw_act_quantize(codes, &scale, x, 4, 1, 4, &acts[1], 0.0f);
    assert_true(scale == 2.54f / 127.0f);
    assert_int_equal((int8_t)codes[0], 127);
    assert_int_equal((int8_t)codes[1], -64);
    assert_int_equal(codes[2], 0);
    assert_true(codes[3] == 1 || codes[3] == 2);
    sw_act_quantize(codes, NULL, x, 4, 1, 4, &acts[0], 0.01f); /* static: the rest is cut off */
    assert_int_equal((int8_t)codes[0], 127);
    assert_int_equal((int8_t)codes[1], -127);
}

/* Halves of a step, where a reciprocal instead of the division would tip the tie. */
static void division_decides_ties(void **state)
{
    int n_tipped = 0;

    (void)state;
    for (int row = 0; row < 50; row++) {
        float x[127], scale, d = (3.7f + (float)row) / 127.0f;
        uint8_t codes[127];
        x[0] = 3.7f + (float)row;
        for (int j = 1; j < 127; j++) x[j] = ((float)j - 0.5f) * d;
        sw_act_quantize(codes, &scale, x, 127, 1, 127, &acts[1], 0.0f);
        assert_true(scale == d);
        for (int j = 0; j < 127; j++) {
            assert_int_equal(codes[j], (int)rintf(x[j] / d));
            n_tipped += rintf(x[j] / d) != rintf(x[j] * (1.0f / d));
        }
    }
    assert_true(n_tipped > 0);
}

/* A product with quantized activations is the product of the rounded activations. */
static void products_round_their_input(void **state)
{
    static float x[TOKENS * STRIDE], rounded[TOKENS * K], w[7 * K], have[TOKENS * 7],
        want[TOKENS * 7], bias[7];
    sw_scratch scratch = {0};
    sw_err err = {0};

    (void)state;
    fill(x, 5);
    for (int i = 0; i < 7 * K; i++) w[i] = (float)(i % 13 - 6);
    for (int i = 0; i < 7; i++) bias[i] = (float)i;
    for (size_t i = 0; i < N_ACTS; i++) {
        sw_weight weight = {.n_out = 7, .k_in = K, .dense = w, .dense_dtype = SW_DTYPE_F32,
                            .bias = bias, .act = acts[i], .input_scale = 0.01f};
        sw_gemm p = {.m = TOKENS, .x = x, .x_stride = STRIDE, .y = have, .y_stride = 7,
                     .w = &weight, .n_threads = 2};
        assert_int_equal(sw_gemm_run(&p, &scratch, &err), SW_OK);
        sw_act_round(rounded, K, x, STRIDE, TOKENS, K, &acts[i], 0.01f);
        weight.act = (sw_act){0};
        p.x = rounded;
        p.x_stride = K;
        p.y = want;
        assert_int_equal(sw_gemm_run(&p, &scratch, &err), SW_OK);
        assert_memory_equal(have, want, sizeof have);
    }
    sw_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_nearest_and_scales_as_stated),
        cmocka_unit_test(rounded_floats_are_the_codes_times_the_scales),
        cmocka_unit_test(no_activation_format_copies),
        cmocka_unit_test(a_row_worked_by_hand),
        cmocka_unit_test(division_decides_ties),
        cmocka_unit_test(products_round_their_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
