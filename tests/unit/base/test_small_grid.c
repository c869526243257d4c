/* test_small_grid.c - small floats through the solvers: rounding by the codec, scales that are
 * legal and never worse than the range, shared scales, and GPTQ against plain rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/pow2.h"
#include "quant/method/algo.h"
#include "quant/method/grid.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

enum { K = 256, OUT = 200, TOKENS = 700, ROWS = SW_SLAB_ROWS };

static void rounding_is_what_the_codec_does(void **state)
{
    double w[ROWS], codes[ROWS], scale[ROWS], zero[ROWS] = {0};
    test_rng rng = {3};

    (void)state;
    for (int f = 0; f < SW_NUM_COUNT; f++)
        for (int round = 0; round < (sw_nums[f].values ? 400 : 0); round++) {
            const sw_num *num = &sw_nums[f];
            for (int r = 0; r < ROWS; r++) { /* from deep in the subnormals to beyond the top */
                scale[r] = 1.0;
                w[r] = (double)(float)(test_gauss(&rng) * ldexp((double)num->top, r % 30 - 27));
                if (r % 7 == 0) { /* exactly between two values */
                    int code = (round + r) % (num->code_max / 2);
                    double low = (double)num->values[code], high = (double)num->values[code + 1];
                    if (isfinite(high)) w[r] = (low + high) / 2;
                }
            }
            sw_grid_codes(codes, w, scale, zero, num);
            for (int r = 0; r < ROWS; r++)
                assert_true(codes[r] == (double)num->values[num->encode((float)w[r])]);
        }
}

static double group_error(const double *w, int64_t n, double scale, int r, const sw_num *num)
{
    double sum = 0;

    for (int64_t j = 0; j < n; j++) {
        double d = w[j * ROWS + r] -
                   scale * (double)num->values[num->encode((float)(w[j * ROWS + r] / scale))];
        sum += d * d;
    }
    return sum;
}

static void fitted_scales_are_legal_and_no_worse_than_the_range(void **state)
{
    static double w[32 * ROWS], ones[32];
    double range[ROWS], fit[ROWS], zero[ROWS];
    test_rng rng = {5};
    int n_better = 0;

    (void)state;
    for (int j = 0; j < 32; j++) ones[j] = 1.0;
    for (int which = 0; which < SW_GEN_FLOATS; which++) {
        const sw_qspec *spec = sw_gen_float_spec(which);
        for (int i = 0; i < 32 * ROWS; i++) w[i] = 3.0 * pow(test_gauss(&rng), 3);
        for (int j = 0; j < 32; j++) w[j * ROWS + 9] = 0.0;
        sw_grid_range(range, zero, w, 32, spec);
        sw_grid_fit(fit, zero, w, ones, 32, spec);
        for (int r = 0; r < ROWS; r++) {
            sw_err err = {0};
            double have = group_error(w, 32, fit[r], r, spec->num);
            double plain = group_error(w, 32, range[r], r, spec->num);
            assert_true(zero[r] == 0.0);
            assert_int_equal(sw_scale_check((float)fit[r], spec, 0.01f, r, 0, &err), SW_OK);
            assert_true(have <= plain * (1 + 1e-6));
            n_better += have < 0.95 * plain;
        }
    }
    assert_true(n_better > 100);
}

static float *make_weight(uint64_t seed)
{
    float *w = malloc(OUT * K * sizeof *w);
    test_rng rng = {seed};

    assert_non_null(w);
    for (int i = 0; i < OUT * K; i++) w[i] = 0.02f * (float)test_gauss(&rng);
    for (int k = 0; k < K; k++) w[3 * K + k] = 0.0f;
    w[5 * K + 7] = 0.4f;
    return w;
}

static void make_factor(sw_factor *out, sw_order order, int64_t group_elems)
{
    sw_factor_options options = {order, group_elems, 0.01};
    float *x = malloc(TOKENS * K * sizeof *x);
    test_rng rng = {11};
    sw_hessian h;
    sw_err err = {0};

    for (int t = 0; t < TOKENS; t++) {
        float common = (float)test_gauss(&rng);
        for (int k = 0; k < K; k++)
            x[t * K + k] = (common + 0.7f * (float)test_gauss(&rng)) * (0.2f + (float)(k % 9));
    }
    assert_int_equal(sw_hessian_new(&h, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&h, x, NULL, NULL, TOKENS, &err), SW_OK);
    sw_hessian_finish(&h);
    assert_int_equal(sw_factor_new(out, &h, &options, &err), SW_OK);
    sw_hessian_free(&h);
    free(x);
}

static void solve(sw_qtensor *q, const char *method, const float *w, const sw_factor *factor,
                  const sw_qspec *spec, double fused_amax, sw_solve_report *report)
{
    sw_solve_problem p = {.w = w, .fused_amax = fused_amax, .n_out = OUT, .k_in = K,
                          .spec = *spec, .factor = factor, .refine_rounds = 2, .n_threads = 2};
    sw_err err = {0};

    p.spec.act = (sw_act){0};
    assert_int_equal(sw_qtensor_alloc(q, &p.spec, OUT, K, &err), SW_OK);
    if (sw_algo_find(method)->solve(q, &p, report, &err)) fail_msg("%s", err.text);
    if (sw_qtensor_check(q, &err)) fail_msg("%s: %s", method, err.text);
}

static void gptq_beats_rounding_in_every_small_format(void **state)
{
    float *w = make_weight(21);

    (void)state;
    for (int which = 0; which < SW_GEN_FLOATS; which++) {
        int order = which % SW_ORDER_COUNT;
        const sw_qspec *spec = sw_gen_float_spec(which);
        sw_solve_report rtn = {0}, gptq = {0};
        sw_factor factor;
        sw_qtensor q;

        make_factor(&factor, (sw_order)order, spec->group_elems);
        solve(&q, "rtn", w, &factor, spec, 0, &rtn);
        sw_qtensor_free(&q);
        solve(&q, "gptq", w, &factor, spec, 0, &gptq);
        sw_qtensor_free(&q);
        if (!(gptq.error < 0.8 * rtn.error))
            fail_msg("spec %d, order %d: %g, rounding has %g", which, order, gptq.error,
                         rtn.error);
        sw_factor_free(&factor);
    }
    free(w);
}

/* 128 x 128 weights share amax / 448, or the power of two above it; slabs are of 64 rows. */
static void blocks_take_the_scale_of_their_own_range(void **state)
{
    float *w = make_weight(8);

    (void)state;
    for (int i = 0; i < OUT * K; i++) w[i] *= (float)(1 + i / K / 128 + 3 * (i % K / 128));
    for (int which = 3; which < 5; which++) {
        const sw_qspec *spec = sw_gen_float_spec(which);
        sw_solve_report report = {0};
        sw_qtensor q;

        solve(&q, "rtn", w, NULL, spec, 0, &report);
        for (int n = 0; n < OUT; n++)
            for (int g = 0; g < 2; g++) {
                double amax = 0, s = (double)q.scales[2 * n + g];
                for (int r = n / 128 * 128; r < OUT && r < n / 128 * 128 + 128; r++)
                    for (int k = 128 * g; k < 128 * g + 128; k++)
                        amax = fmax(amax, fabs((double)w[r * K + k]));
                assert_true(spec->is_pow2_scale ? amax / s <= 448 && amax / s > 224
                                                : fabs(amax / s - 448) < 1e-4);
            }
        sw_qtensor_free(&q);
    }
    free(w);
}

/* Weights that are loaded as one agree on what they share, and nothing overflows by it. */
static void fused_weights_agree_on_global_and_tensor_scales(void **state)
{
    static const int shared[] = {0, 7};
    float *a = make_weight(1), *b = make_weight(2), values[OUT * K];

    (void)state;
    for (int i = 0; i < OUT * K; i++) b[i] *= 0.25f;
    for (int s = 0; s < 2; s++) {
        const sw_qspec *spec = sw_gen_float_spec(shared[s]);
        double amax = (double)0.4f, sum = 0, power = 0;
        sw_solve_report report = {0};
        sw_qtensor qa, qb;

        solve(&qa, "rtn", a, NULL, spec, amax, &report);
        solve(&qb, "rtn", b, NULL, spec, amax, &report);
        assert_true(qa.global_scale == qb.global_scale);
        if (spec->has_global) assert_true(fabs((double)qa.global_scale * 2688 / amax - 1) < 1e-6);
        else assert_true(qa.scales[0] == qb.scales[0] && qa.scales[0] == 0.4f / 448.0f);
        sw_qtensor_decode(values, &qb);
        for (int i = 0; i < OUT * K; i++) {
            sum += pow((double)(values[i] - b[i]), 2);
            power += pow((double)b[i], 2);
        }
        assert_true(sum < 0.02 * power);
        sw_qtensor_free(&qa);
        sw_qtensor_free(&qb);
    }
    free(a);
    free(b);
}

/* A rule that is asked for decides alone, in every solver; the search is no worse than any. */
static void a_rule_for_exponents_is_kept(void **state)
{
    double w[32 * ROWS], weight[32], scale[ROWS], zero[ROWS], error[SW_POW2_COUNT + 1] = {0};
    test_rng rng = {12};

    (void)state;
    for (int j = 0; j < 32; j++) weight[j] = 0.5 + test_uniform(&rng);
    for (int i = 0; i < 32 * ROWS; i++) w[i] = (double)(float)test_gauss(&rng);
    for (int f = 0; f < 2; f++)
        for (int rule = SW_POW2_COUNT; rule >= 0; rule--) {
            sw_qspec spec = {.num = &sw_nums[f ? SW_NUM_E2M1 : SW_NUM_E4M3], .is_symmetric = true,
                             .group_elems = 32, .scale_dtype = SW_DTYPE_F8_E8M0,
                             .is_pow2_scale = true, .pow2_rule = rule};
            sw_grid_fit(scale, zero, w, weight, 32, &spec);
            error[rule] = 0;
            for (int r = 0; r < ROWS; r++) {
                double amax = 0;
                for (int j = 0; j < 32; j++) {
                    float v = (float)(w[j * ROWS + r] / scale[r]);
                    double q = scale[r] * (double)spec.num->values[spec.num->encode(v)];
                    amax = fmax(amax, fabs(w[j * ROWS + r]));
                    error[rule] += weight[j] * (q - w[j * ROWS + r]) * (q - w[j * ROWS + r]);
                }
                if (rule)
                    assert_true(scale[r] == (double)sw_pow2_scale_by((float)amax, spec.num,
                                                                     (sw_pow2_rule)(rule - 1)));
            }
            assert_true(error[rule] > 0 && (rule || error[0] <= 1.0000001 * error[1]));
            assert_true(rule || (error[0] <= 1.0000001 * error[2] &&
                                 error[0] <= 1.0000001 * error[3]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_what_the_codec_does),
        cmocka_unit_test(a_rule_for_exponents_is_kept),
        cmocka_unit_test(fitted_scales_are_legal_and_no_worse_than_the_range),
        cmocka_unit_test(gptq_beats_rounding_in_every_small_format),
        cmocka_unit_test(blocks_take_the_scale_of_their_own_range),
        cmocka_unit_test(fused_weights_agree_on_global_and_tensor_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
