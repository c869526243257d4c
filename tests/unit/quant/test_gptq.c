/* test_gptq.c - grids, rounding, GPTQ and refinement against textbook versions written here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/algo.h"
#include "quant/method/grid.h"
#include "quant/method/refine.h"
#include "tests/support/toys/random.h"

/* K spans two lazy-update blocks, OUT ends in a part slab. */
enum { K = 256, OUT = 70, TOKENS = 1500, TEXTBOOK_ROWS = 8 };

typedef struct fixture {
    float w[OUT * K];
    sw_hessian h;
} fixture;

static fixture *make_fixture(void)
{
    fixture *f = malloc(sizeof *f);
    float *x = malloc(TOKENS * K * sizeof *x);
    test_rng rng = {11};
    sw_err err = {0};

    for (int t = 0; t < TOKENS; t++) {
        float shared[4];
        for (int i = 0; i < 4; i++) shared[i] = (float)test_gauss(&rng);
        for (int j = 0; j < K; j++)
            x[t * K + j] = (shared[j % 4] + 0.6f * (float)test_gauss(&rng)) *
                           (0.1f + 0.05f * (float)((j * 37) % K));
    }
    for (int i = 0; i < OUT * K; i++) f->w[i] = 0.02f * (float)test_gauss(&rng);
    assert_int_equal(sw_hessian_new(&f->h, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&f->h, x, NULL, NULL, TOKENS, &err), SW_OK);
    sw_hessian_finish(&f->h);
    free(x);
    return f;
}

static void free_fixture(fixture *f)
{
    sw_hessian_free(&f->h);
    free(f);
}

static sw_qspec spec_of(int bits, bool is_symmetric, int64_t group)
{
    sw_qspec spec = {.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric,
                     .group_elems = group, .scale_dtype = SW_DTYPE_F16};
    return spec;
}

typedef struct run {
    sw_qtensor q;
    sw_factor f;
    sw_solve_report report;
} run;

/* shift [OUT, K]: what the target adds to the weight, or NULL. */
static run solve_for(const fixture *fx, const double *shift, const char *method, sw_qspec spec,
                     sw_order order, int rounds, int n_threads)
{
    sw_factor_options o = {order, spec.group_elems, 0.01};
    sw_solve_problem p = {.w = fx->w, .n_out = OUT, .k_in = K, .spec = spec,
                          .target_shift = shift, .refine_rounds = rounds,
                          .n_threads = n_threads};
    sw_err err = {0};
    run r;

    memset(&r, 0, sizeof r);
    assert_int_equal(sw_factor_new(&r.f, &fx->h, &o, &err), SW_OK);
    p.factor = &r.f;
    assert_int_equal(sw_qtensor_alloc(&r.q, &spec, OUT, K, &err), SW_OK);
    assert_int_equal(sw_algo_find(method)->solve(&r.q, &p, &r.report, &err), SW_OK);
    assert_int_equal(sw_qtensor_check(&r.q, &err), SW_OK);
    return r;
}

static run solve(const fixture *fx, const char *method, sw_qspec spec, sw_order order, int rounds,
                 int n_threads)
{
    return solve_for(fx, NULL, method, spec, order, rounds, n_threads);
}

static void free_run(run *r)
{
    sw_qtensor_free(&r->q);
    sw_factor_free(&r->f);
}

/* tr(E H E^T) / tr(W H W^T) from the decoded weight, the slow way; E is its error against the
 * weight and what `shift` adds to that. */
static double error_against(const fixture *fx, const double *shift, const run *r)
{
    float *decoded = malloc(OUT * K * sizeof *decoded);
    double loss = 0, power = 0;

    sw_qtensor_decode(decoded, &r->q);
    for (int n = 0; n < OUT; n++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) {
                double h = r->f.h[i * K + j];
                double wi = (double)fx->w[n * K + i], wj = (double)fx->w[n * K + j];
                double ti = wi + (shift ? shift[n * K + i] : 0.0);
                double tj = wj + (shift ? shift[n * K + j] : 0.0);
                power += wi * wj * h;
                loss += ((double)decoded[n * K + i] - ti) * ((double)decoded[n * K + j] - tj) * h;
            }
    free(decoded);
    return loss / power;
}

static double output_error(const fixture *fx, const run *r) { return error_against(fx, NULL, r); }

static void test_rtn_is_plain_rounding(void **state)
{
    fixture *fx = make_fixture();
    run r = solve(fx, "rtn", spec_of(4, true, 32), SW_ORDER_NONE, 0, 2);

    (void)state;
    for (int n = 0; n < OUT; n++)
        for (int g = 0; g < K / 32; g++) {
            float amax = 0, s;
            for (int j = 0; j < 32; j++) amax = fmaxf(amax, fabsf(fx->w[n * K + g * 32 + j]));
            s = sw_num_round_to((float)((double)amax / 7.5), SW_DTYPE_F16);
            assert_true(r.q.scales[n * (K / 32) + g] == s);
            for (int j = 0; j < 32; j++) {
                double c = rint((double)fx->w[n * K + g * 32 + j] / (double)s) + 8;
                assert_int_equal(r.q.codes[n * K + g * 32 + j], c > 15 ? 15 : (int)c);
            }
        }
    assert_true(fabs(r.report.error - output_error(fx, &r)) < 1e-9);
    free_run(&r);
    free_fixture(fx);
}

static void test_zero_group_is_harmless(void **state)
{
    fixture *fx = make_fixture();
    run r;

    (void)state;
    memset(fx->w + 3 * K + 32, 0, 32 * sizeof(float));
    for (int method = 0; method < 4; method++) {
        r = solve(fx, method % 2 ? "gptq" : "rtn", spec_of(4, method < 2, 32), SW_ORDER_NONE,
                  method == 1, 1);
        assert_true(r.q.scales[3 * (K / 32) + 1] > 0);
        free_run(&r);
    }
    free_fixture(fx);
}

/* What a report says ran is found again by its letters, as another process tells them. */
static void test_solvers_have_names(void **state)
{
    static const char *const methods[] = {"rtn", "gptq"};
    fixture *fx = make_fixture();

    (void)state;
    for (int i = 0; i < 2; i++) {
        run r = solve(fx, methods[i], spec_of(4, true, 32), SW_ORDER_NONE, 0, 1);
        char told[16] = {0};
        (void)memcpy(told, r.report.method, strlen(r.report.method));
        assert_string_equal(r.report.method, methods[i]);
        assert_ptr_equal(sw_solver_name(told), r.report.method);
        free_run(&r);
    }
    assert_non_null(sw_solver_name("clip"));
    assert_null(sw_solver_name(""));
    assert_null(sw_solver_name("gptqq"));
    free_fixture(fx);
}

/* Algorithm by elimination of the explicit inverse (Frantar et al., eq. 2 and 3), no blocks. */
static void textbook(uint8_t *codes, const fixture *fx, const run *r)
{
    double *inv = malloc(K * K * sizeof *inv), *start = malloc(K * K * sizeof *start);
    int n_groups = (int)r->q.n_groups, gs = K / n_groups;

    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0;
            for (int s = 0; s < K; s++)
                sum += r->f.u[s * K + i] * r->f.u[s * K + j] / r->f.pivot[s];
            start[r->f.perm[i] * K + r->f.perm[j]] = sum;
        }
    for (int n = 0; n < TEXTBOOK_ROWS; n++) {
        double w[K];
        memcpy(inv, start, K * K * sizeof *inv);
        for (int j = 0; j < K; j++) w[j] = (double)fx->w[n * K + j];
        for (int i = 0; i < K; i++) {
            int c = r->f.perm[i];
            double s = (double)r->q.scales[n * n_groups + c / gs];
            double z = r->q.zeros ? r->q.zeros[n * n_groups + c / gs] : r->q.spec.num->sym_zero;
            double top = r->q.spec.num->code_max, code = rint(w[c] / s) + z, e;
            code = code < 0 ? 0 : code > top ? top : code;
            codes[n * K + c] = (uint8_t)code;
            e = (w[c] - s * (code - z)) / inv[c * K + c];
            for (int j = 0; j < K; j++) w[j] -= e * inv[c * K + j];
            for (int a = 0; a < K; a++) {
                double f = a == c ? 0 : inv[a * K + c] / inv[c * K + c];
                for (int b = 0; b < K && a != c; b++) inv[a * K + b] -= f * inv[c * K + b];
            }
        }
    }
    free(inv);
    free(start);
}

static void test_gptq_equals_the_textbook(void **state)
{
    fixture *fx = make_fixture();
    uint8_t *want = malloc(OUT * K);

    (void)state;
    for (int order = 0; order < SW_ORDER_COUNT; order++)
        for (int sym = 0; sym < 2; sym++) {
            run r = solve(fx, "gptq", spec_of(3, sym, 64), (sw_order)order, 0, 1);
            int n_different = 0;
            textbook(want, fx, &r);
            for (int i = 0; i < TEXTBOOK_ROWS * K; i++) n_different += want[i] != r.q.codes[i];
            /* a value within rounding of a tie may fall either way and drag its row along */
            if (n_different > TEXTBOOK_ROWS * K / 200)
                fail_msg("order %d: %d codes differ", order, n_different);
            free_run(&r);
        }
    free(want);
    free_fixture(fx);
}

static void test_each_step_lowers_the_error(void **state)
{
    static const int bits[] = {2, 3, 4, 8}, groups[] = {32, 64, 128, 0};
    fixture *fx = make_fixture();

    (void)state;
    for (int b = 0; b < 4; b++)
        for (int g = 0; g < 4; g++)
            for (int sym = 0; sym < 2; sym++) {
                sw_qspec spec = spec_of(bits[b], sym, groups[g]);
                run rtn = solve(fx, "rtn", spec, SW_ORDER_NONE, 0, 2);
                run plain = solve(fx, "gptq", spec, SW_ORDER_STATIC, 0, 2);
                run fine = solve(fx, "gptq", spec, SW_ORDER_STATIC, 3, 2);
                assert_true(plain.report.error < 0.7 * rtn.report.error);
                assert_true(fine.report.error <= plain.report.error * (1 + 1e-9));
                assert_true(fabs(plain.report.error_rtn / rtn.report.error - 1) < 1e-9);
                assert_true(fabs(fine.report.error / output_error(fx, &fine) - 1) < 1e-6);
                free_run(&rtn);
                free_run(&plain);
                free_run(&fine);
            }
    free_fixture(fx);
}

/* A target that moves the weight further than rounding does: the figures say what is missed of it,
 * and not that the move was an error. */
static void test_figures_are_against_the_target(void **state)
{
    fixture *fx = make_fixture();
    double *shift = malloc(OUT * K * sizeof *shift);
    test_rng rng = {23};

    (void)state;
    for (int i = 0; i < OUT * K; i++) shift[i] = 0.004 * test_gauss(&rng);
    for (int rounds = 0; rounds < 3; rounds += 2) {
        sw_qspec spec = spec_of(4, true, 64);
        run plain = solve(fx, "rtn", spec, SW_ORDER_STATIC, 0, 1);
        run r = solve_for(fx, shift, "gptq", spec, SW_ORDER_STATIC, rounds, 2);
        assert_true(fabs(r.report.error / error_against(fx, shift, &r) - 1) < 1e-6);
        assert_true(fabs(r.report.error_rtn / error_against(fx, shift, &plain) - 1) < 1e-6);
        assert_true(fabs(r.report.power / plain.report.power - 1) < 1e-12);
        assert_true(r.report.error < 0.5 * r.report.error_rtn);
        assert_true(output_error(fx, &r) > output_error(fx, &plain)); /* or it tests nothing */
        free_run(&plain);
        free_run(&r);
    }
    free(shift);
    free_fixture(fx);
}

static void test_threads_give_the_same_bytes(void **state)
{
    fixture *fx = make_fixture();
    run a = solve(fx, "gptq", spec_of(4, false, 64), SW_ORDER_GAR, 2, 1);
    run b = solve(fx, "gptq", spec_of(4, false, 64), SW_ORDER_GAR, 2, 3);

    (void)state;
    assert_memory_equal(a.q.codes, b.q.codes, OUT * K);
    assert_memory_equal(a.q.scales, b.q.scales, OUT * (K / 64) * sizeof(float));
    assert_memory_equal(a.q.zeros, b.q.zeros, OUT * (K / 64));
    free_run(&a);
    free_run(&b);
    free_fixture(fx);
}

static void test_dead_inputs_are_rounded_not_lost(void **state)
{
    fixture *fx = make_fixture();
    run r;

    (void)state;
    for (int j = 0; j < K; j++) fx->h.h[9 * K + j] = fx->h.h[j * K + 9] = 0;
    r = solve(fx, "gptq", spec_of(4, true, 32), SW_ORDER_STATIC, 2, 1);
    assert_int_equal(r.report.n_dead, 1);
    for (int n = 0; n < OUT; n++) {
        double s = (double)r.q.scales[n * (K / 32)];
        double c = rint((double)fx->w[n * K + 9] / s) + 8;
        assert_int_equal(r.q.codes[n * K + 9], c > 15 ? 15 : c < 0 ? 0 : (int)c);
    }
    free_run(&r);
    free_fixture(fx);
}

/* After refinement no single code of any row can be moved to lower the loss. */
static void test_refined_codes_are_a_local_minimum(void **state)
{
    fixture *fx = make_fixture();
    run r = solve(fx, "gptq", spec_of(2, true, 64), SW_ORDER_STATIC, 12, 1);
    float *v = malloc(OUT * K * sizeof *v);
    int n_better = 0;

    (void)state;
    sw_qtensor_decode(v, &r.q);
    for (int n = 0; n < OUT; n++)
        for (int j = 0; j < K; j++) {
            double slope = 0, s = (double)r.q.scales[n * (K / 64) + j / 64];
            for (int i = 0; i < K; i++)
                slope += ((double)v[n * K + i] - (double)fx->w[n * K + i]) * r.f.h[i * K + j];
            for (int step = -1; step <= 1; step += 2) {
                int c = r.q.codes[n * K + j] + step;
                double gain = 2 * s * step * slope + s * s * r.f.h[j * K + j];
                if (c >= 0 && c <= 3 && gain < 0) n_better++;
            }
        }
    /* the last sweep of a round may leave a few moves that the next round would take */
    if (n_better > OUT * K / 400) fail_msg("%d single moves would still help", n_better);
    free(v);
    free_run(&r);
    free_fixture(fx);
}

/* Scales of e4m3 in groups of 16 go along: no neighbour of one would lower its row's loss. */
static void test_stepped_scales_are_a_local_minimum(void **state)
{
    const sw_qspec spec = {.num = &sw_nums[SW_NUM_E2M1], .is_symmetric = true, .group_elems = 16,
                           .scale_dtype = SW_DTYPE_F8_E4M3, .has_global = true};
    fixture *fx = make_fixture();
    run plain = solve(fx, "gptq", spec, SW_ORDER_STATIC, 0, 1);
    run r = solve(fx, "gptq", spec, SW_ORDER_STATIC, 12, 1);
    float *v = malloc(OUT * K * sizeof *v);
    int n_better = 0, n_moved = 0;

    (void)state;
    assert_true(sw_qspec_steps_scales(&spec, K));
    sw_qtensor_decode(v, &r.q);
    for (int i = 0; i < OUT * K / 16; i++) {
        const float *row = v + i / (K / 16) * K, *w = fx->w + i / (K / 16) * K;
        const int from = i % (K / 16) * 16;
        double slope = 0, bend = 0;

        n_moved += r.q.scales[i] != plain.q.scales[i];
        for (int a = from; a < from + 16; a++)
            for (int b = 0; b < K; b++) {
                const double h = r.f.h[a * K + b] * (double)row[a];
                slope += h * ((double)row[b] - (double)w[b]);
                if (b >= from && b < from + 16) bend += h * (double)row[b];
            }
        for (int way = -1; way <= 1; way += 2) { /* eight steps a binade: no nearer ones */
            const double by = way / 15.0;
            const double at = (double)sw_num_round_to(r.q.scales[i] * (float)(1 + 1.5 * by),
                                                      SW_DTYPE_F8_E4M3);
            const double part = at / (double)r.q.scales[i] - 1;
            if (fabs(part) < 0.3 && 2 * part * slope + part * part * bend < -1e-12) n_better++;
        }
    }
    /* half a step is a sixteenth, or up to half of that: few are that far off */
    assert_true(n_moved > 0);
    assert_true(r.report.error < plain.report.error);
    /* the last sweep of a round may leave a few moves that the next round would take */
    if (n_better > OUT * K / 16 / 40) fail_msg("%d single moves would still help", n_better);
    free(v);
    free_run(&plain);
    free_run(&r);
    free_fixture(fx);
}

static void test_fit_beats_the_range(void **state)
{
    double w[32 * SW_SLAB_ROWS], weight[32], s[SW_SLAB_ROWS], z[SW_SLAB_ROWS];
    double range_s[SW_SLAB_ROWS], range_z[SW_SLAB_ROWS];
    test_rng rng = {3};

    (void)state;
    for (int i = 0; i < 32 * SW_SLAB_ROWS; i++) w[i] = test_gauss(&rng) * test_gauss(&rng);
    for (int j = 0; j < 32; j++) weight[j] = 0.1 + test_uniform(&rng);
    for (int sym = 0; sym < 2; sym++) {
        sw_qspec spec = spec_of(3, sym, 32);
        sw_grid_range(range_s, range_z, w, 32, &spec);
        sw_grid_fit(s, z, w, weight, 32, &spec);
        for (int r = 0; r < SW_SLAB_ROWS; r++) {
            double fit = 0, range = 0;
            for (int j = 0; j < 32; j++) {
                double v = w[j * SW_SLAB_ROWS + r];
                double a = fmin(7, fmax(0, rint(v / s[r]) + z[r])) - z[r];
                double b = fmin(7, fmax(0, rint(v / range_s[r]) + range_z[r])) - range_z[r];
                fit += weight[j] * (v - s[r] * a) * (v - s[r] * a);
                range += weight[j] * (v - range_s[r] * b) * (v - range_s[r] * b);
            }
            assert_true(fit <= range * (1 + 1e-9));
            assert_true((double)sw_num_round_to((float)s[r], SW_DTYPE_F16) == s[r]);
        }
    }
}

/* Groups of one sign want zero point 0, which some formats cannot store. */
static void test_zero_points_keep_to_the_smallest_allowed(void **state)
{
    double w[32 * SW_SLAB_ROWS], weight[32], s[SW_SLAB_ROWS], z[SW_SLAB_ROWS];
    test_rng rng = {4};

    (void)state;
    for (int i = 0; i < 32 * SW_SLAB_ROWS; i++) w[i] = 0.1 + test_uniform(&rng);
    for (int j = 0; j < 32; j++) weight[j] = 1;
    for (int zero_min = 0; zero_min < 2; zero_min++) {
        sw_qspec spec = spec_of(4, false, 32);
        double lowest = 15;
        spec.zero_min = zero_min;
        sw_grid_fit(s, z, w, weight, 32, &spec);
        for (int r = 0; r < SW_SLAB_ROWS; r++) lowest = fmin(lowest, z[r]);
        assert_true(lowest == zero_min);
    }
}

/* What lies on -8..7 of a scale to the last value, and turned about on -7..8, is found again when
 * the sign is free; with a scale above zero, 8 cannot be reached. */
static void test_the_sign_gives_the_value_more_to_its_side(void **state)
{
    double w[32 * SW_SLAB_ROWS], weight[32], s[SW_SLAB_ROWS], z[SW_SLAB_ROWS];

    (void)state;
    for (int j = 0; j < 32; j++) weight[j] = 1;
    for (int bits = 2; bits <= 4; bits++)
        for (int turned = 0; turned < 2; turned++) {
            sw_qspec spec = spec_of(bits, true, 32);
            int half = 1 << (bits - 1);

            for (int i = 0; i < 32 * SW_SLAB_ROWS; i++)
                w[i] = (turned ? -0.25 : 0.25) * (i / SW_SLAB_ROWS % (2 * half) - half);
            for (int is_free = 0; is_free < 2; is_free++) {
                spec.is_sign_free = is_free;
                sw_grid_fit(s, z, w, weight, 32, &spec);
                for (int r = 0; r < SW_SLAB_ROWS; r++)
                    if (is_free) assert_true(s[r] == (turned ? -0.25 : 0.25));
                    else assert_true(s[r] > 0 && (s[r] == 0.25) == !turned);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rtn_is_plain_rounding),
        cmocka_unit_test(test_zero_group_is_harmless),
        cmocka_unit_test(test_gptq_equals_the_textbook),
        cmocka_unit_test(test_each_step_lowers_the_error),
        cmocka_unit_test(test_figures_are_against_the_target),
        cmocka_unit_test(test_threads_give_the_same_bytes),
        cmocka_unit_test(test_dead_inputs_are_rounded_not_lost),
        cmocka_unit_test(test_refined_codes_are_a_local_minimum),
        cmocka_unit_test(test_stepped_scales_are_a_local_minimum),
        cmocka_unit_test(test_fit_beats_the_range),
        cmocka_unit_test(test_zero_points_keep_to_the_smallest_allowed),
        cmocka_unit_test(test_the_sign_gives_the_value_more_to_its_side),
        cmocka_unit_test(test_solvers_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
