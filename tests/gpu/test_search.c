/* test_search.c - small floats, clipping and what searches for scales ask of the device,
 * against the CPU's on the same numbers. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "quant/backend/cuda/cuda_watch.h"
#include "quant/method/grid.h"
#include "quant/stats/channels.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/solver_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

static sw_device *gpu;
static sw_solver *solver;
static const sw_backend *const cpu = &sw_backend_cpu, *const cuda = &sw_backend_cuda;
static sw_place there, here = {.backend = &sw_backend_cpu, .n_threads = 2};

static int open_all(void **state)
{
    (void)state;
    (void)solver_pair_open(&gpu, &solver);
    there = (sw_place){.backend = cuda, .device = solver, .n_threads = 2};
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    return solver_pair_close(gpu, solver);
}

/* Weights with a few large ones, a row of zeros, a group of zeros and denormals. */
static float *make_weight(int64_t n, int64_t k, uint64_t seed)
{
    float *w = malloc(sizeof *w * (size_t)(n * k));
    test_rng rng = {seed};

    for (int64_t i = 0; i < n * k; i++)
        w[i] = (float)(0.02 * test_gauss(&rng) * (i % 97 ? 1 : 6));
    for (int64_t j = 0; j < k; j++) w[2 * k + j] = 0;
    for (int64_t j = 0; j < 32 && j < k; j++) w[5 * k + j] = j % 2 ? 0 : 1e-42f;
    return w;
}

static void fill(float *x, int64_t n, double size, uint64_t seed)
{
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) x[i] = (float)(size * test_gauss(&rng));
}

/* The same H on both sides, factorized on each. */
typedef struct two_factors {
    sw_hessian hess[2];
    sw_factor factor[2]; /* host, device */
} two_factors;

static void two_new(two_factors *t, int64_t k, sw_order order, int64_t group)
{
    sw_factor_options options = {order, group, 0.01};
    float *x = malloc(sizeof *x * (size_t)(3 * k * k));

    memset(t, 0, sizeof *t);
    fill(x, 3 * k * k, 1, 11);
    for (int64_t i = 0; i < 3 * k; i++)
        for (int64_t j = 0; j < k; j++) {
            float shared = x[i * k + (j + 1) % k];
            x[i * k + j] = j == 3 ? 0 : (x[i * k + j] + 0.6f * shared) * (float)(1 + j % 9);
        }
    for (int side = 0; side < 2; side++) {
        MUST(sw_hessian_new(&t->hess[side], k, false, 0, 2, &err));
        MUST(sw_hessian_add(&t->hess[side], x, NULL, NULL, 3 * k, &err));
        MUST(sw_hessian_settle(&t->hess[side], &err));
        if (side) MUST(sw_hessian_move(&t->hess[1], &there, &err));
        MUST(sw_factor_new(&t->factor[side], &t->hess[side], &options, &err));
    }
    free(x);
}

static void two_free(two_factors *t)
{
    for (int side = 0; side < 2; side++) {
        sw_factor_free(&t->factor[side]);
        sw_hessian_free(&t->hess[side]);
    }
}

static int64_t n_different(const sw_qtensor *a, const sw_qtensor *b, int64_t *n_scales)
{
    int64_t n = 0;

    for (int64_t i = 0; i < a->n_out * a->k_in; i++) n += a->codes[i] != b->codes[i];
    *n_scales = 0;
    for (int64_t i = 0; i < a->n_out * a->n_groups; i++)
        *n_scales += a->scales[i] != b->scales[i] || (a->zeros && a->zeros[i] != b->zeros[i]);
    return n;
}

typedef sw_code (*solve_fn)(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                            sw_err *err);

/* One weight by one method on both sides; how many codes differ. */
static int64_t solve_both(const char *name, solve_fn solve, const sw_qspec *spec, two_factors *t,
                          const float *w, int64_t n_out, int64_t k)
{
    sw_solve_report report[2] = {{0}};
    sw_qtensor q[3];
    int64_t n_scales, n_codes;

    memset(q, 0, sizeof q);
    for (int i = 0; i < 3; i++) {
        int side = i > 0;
        sw_solve_problem p = {.w = w, .n_out = n_out, .k_in = k, .spec = *spec, .n_threads = 2,
                              .factor = t ? &t->factor[side] : NULL, .refine_rounds = 2,
                              .place = side ? there : here};
        MUST(sw_qtensor_alloc(&q[i], spec, n_out, k, &err));
        MUST(solve(&q[i], &p, &report[side], &err));
        q[i].input_scale = sw_act_needs_input_scale(&spec->act) ? 1.0f : 0.0f;
        if (side) MUST(sw_qtensor_check(&q[i], &err));
    }
    sw_gen_assert_same(&q[2], &q[1]); /* twice the same bytes */
    assert_true(q[0].global_scale == q[1].global_scale);
    n_codes = n_different(&q[1], &q[0], &n_scales);
    printf("%s: %s group %lld: %lld of %lld codes, %lld scales differ; error %.6e, CPU %.6e, plain "
           "%.6e, CPU %.6e\n", name, spec->num->name, (long long)spec->group_elems,
           (long long)n_codes, (long long)(n_out * k), (long long)n_scales, report[1].error,
           report[0].error, report[1].error_rtn, report[0].error_rtn);
    if (t) {
        assert_true(fabs(report[1].error / report[0].error - 1) < 1e-3);
        assert_true(fabs(report[1].error_rtn / report[0].error_rtn - 1) < 1e-9);
        assert_true(fabs(report[1].power / report[0].power - 1) < 1e-9);
    }
    for (int i = 0; i < 3; i++) sw_qtensor_free(&q[i]);
    return n_codes + n_scales;
}

enum { K = 328, N = 150 };

static const sw_order orders[] = {SW_ORDER_STATIC, SW_ORDER_NONE, SW_ORDER_GAR};

/* Searches and plain rounding give the CPU's bytes; GPTQ sums in another order, so that now and
 * then a code is another. */
static void small_floats_are_the_cpus(void **state)
{
    float *w = make_weight(N, K, 5);

    (void)state;
    for (int i = 0; i < SW_GEN_FLOATS; i++) {
        for (int rule = 0; rule <= (sw_gen_float_spec(i)->is_pow2_scale ? 2 : 0); rule += 2) {
            sw_qspec spec = *sw_gen_float_spec(i);
            two_factors t;
            spec.pow2_rule = rule;
            assert_true(sw_solver_can(&spec));
            assert_int_equal(solve_both("rtn", sw_rtn_solve, &spec, NULL, w, N, K), 0);
            two_new(&t, K, orders[i % 3], spec.group_elems);
            assert_int_equal(solve_both("rtn, H", sw_rtn_solve, &spec, &t, w, N, K), 0);
            assert_true(solve_both("clip", sw_clip_solve, &spec, &t, w, N, K) <= 20);
            assert_true(solve_both("gptq", sw_gptq_solve, &spec, &t, w, N, K) <= N * K / 500);
            two_free(&t);
        }
    }
    free(w);
}

static void clipped_integers_are_the_cpus(void **state)
{
    static const struct { int bits; bool is_symmetric; int64_t group; } cases[] = {
        {4, true, 128}, {4, false, 64}, {8, true, 0}, {3, false, 32}, {2, true, 96}};
    float *w = make_weight(N, K, 6);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_qspec spec = {.num = sw_num_by_bits(cases[i].bits), .group_elems = cases[i].group,
                         .is_symmetric = cases[i].is_symmetric, .scale_dtype = SW_DTYPE_F16};
        two_factors t;
        two_new(&t, K, SW_ORDER_STATIC, spec.group_elems);
        assert_true(solve_both("clip", sw_clip_solve, &spec, &t, w, N, K) <= 20);
        two_free(&t);
    }
    free(w);
}

/* A weight that lies on the device, solved in place, is what its codes mean on the host. */
static void values_are_solved_in_place(void **state)
{
    float *w = make_weight(N, K, 7), *want = malloc(4 * N * K), *have = malloc(4 * N * K);

    (void)state;
    for (int i = 0; i <= SW_GEN_FLOATS; i++) {
        sw_qspec four = {.num = sw_num_by_bits(4), .group_elems = 64, .scale_dtype = SW_DTYPE_BF16};
        sw_qspec spec = i < SW_GEN_FLOATS ? *sw_gen_float_spec(i) : four;
        sw_solve_problem p = {.w = w, .n_out = N, .k_in = K, .spec = spec, .n_threads = 2};
        sw_solve_report report = {0};
        sw_qtensor q = {0};
        float *d = NULL;
        MUST(sw_qtensor_alloc(&q, &spec, N, K, &err));
        MUST(sw_rtn_solve(&q, &p, &report, &err));
        sw_qtensor_decode(want, &q);
        MUST(cuda->lend(&d, &there, w, N * K, "weight", &err));
        p.values = d;
        p.place = there;
        MUST(sw_rtn_solve(NULL, &p, &report, &err));
        MUST(sw_device_download(gpu, have, d, 4 * N * K, &err));
        for (int64_t j = 0; j < N * K; j++)
            if (have[j] != want[j])
                fail_msg("spec %d: element %lld is %g, not %g", i, (long long)j, (double)have[j],
                         (double)want[j]);
        cuda->put(&there, d);
        sw_qtensor_free(&q);
    }
    free(w), free(want), free(have);
}

/* What rounding a slab costs, as the search for AWQ's scales counts it. */
static double slab_score(const float *rows, const double *weight, const sw_qspec *spec)
{
    sw_frame frame = {0};
    sw_slab slab = {0};
    double loss = 0;

    MUST(sw_frame_new(&frame, rows, SW_SLAB_ROWS, K, 0, spec, &err));
    MUST(sw_slab_new(&slab, spec, K, &err));
    slab.frame = &frame;
    sw_slab_load(&slab, rows, NULL, 0, SW_SLAB_ROWS);
    sw_slab_fit(&slab, weight, spec);
    sw_slab_round(&slab, spec->num);
    for (int64_t j = 0; j < K; j++)
        for (int r = 0; r < SW_SLAB_ROWS; r++) {
            int64_t at = j * SW_SLAB_ROWS + r, g = j / slab.group_elems * SW_SLAB_ROWS + r;
            double e = slab.scales[g] * (slab.codes[at] - slab.zeros[g]) - slab.target[at];
            loss += weight[j] * e * e;
        }
    loss *= (double)frame.global * (double)frame.global;
    sw_slab_free(&slab);
    sw_frame_free(&frame);
    return loss;
}

static void scores_are_the_cpus(void **state)
{
    float *w = make_weight(SW_SLAB_ROWS, K, 8), *d = NULL;
    double weight[K], *d_weight = NULL;

    (void)state;
    for (int j = 0; j < K; j++) weight[j] = 1 + j % 13;
    MUST(cuda->lend(&d, &there, w, SW_SLAB_ROWS * K, "rows", &err));
    MUST(sw_device_take((void **)&d_weight, gpu, K, 8, "weight", &err));
    MUST(sw_device_upload(gpu, d_weight, weight, sizeof weight, &err));
    for (int i = 0; i <= SW_GEN_FLOATS; i++) {
        sw_qspec four = {.num = sw_num_by_bits(4), .group_elems = 64, .scale_dtype = SW_DTYPE_F16};
        sw_qspec spec = i < SW_GEN_FLOATS ? *sw_gen_float_spec(i) : four;
        sw_solve_problem p = {.values = d, .n_out = SW_SLAB_ROWS, .k_in = K, .spec = spec,
                              .place = there};
        double have = 1, want = slab_score(w, weight, &spec);
        MUST(sw_cuda_score_rows(&have, &p, d_weight, &err));
        if (!(fabs(have - 1 - want) < 1e-12 + 1e-10 * want))
            fail_msg("spec %d: %.15g, not %.15g", i, have - 1, want);
    }
    sw_device_put(gpu, d_weight);
    cuda->put(&there, d);
    free(w);
}

/* Scaling, errors, maxima and products. */
static void the_device_is_a_place(void **state)
{
    enum { T = 77, OUT = 131 };
    float *x = malloc(4 * T * K), *w = malloc(4 * OUT * K), *have = malloc(4 * T * K);
    float *want = malloc(4 * T * K), *d_x = NULL, *d_w = NULL, *d_y = NULL, *d_s = NULL;
    float y[2][T * OUT], amax[((OUT - 1) / 64 + 1) * ((K - 1) / 128 + 1)];
    double scale[K], rows[2][T] = {{0}}, far = 0, size = 0;
    sw_weight weight = {.n_out = OUT, .k_in = K, .dense = w, .dense_dtype = SW_DTYPE_F32};
    sw_scratch scratch = {0};

    (void)state;
    fill(x, T * K, 3, 21);
    fill(w, OUT * K, 1, 22);
    for (int j = 0; j < K; j++) scale[j] = exp(0.01 * j);
    MUST(cuda->lend(&d_x, &there, x, T * K, "x", &err));
    MUST(cuda->lend(&d_w, &there, w, OUT * K, "w", &err));
    MUST(SW_PLACE_TAKE(&d_s, &there, T * K, "scaled", &err));
    MUST(SW_PLACE_TAKE(&d_y, &there, T * OUT, "y", &err));
    for (int divides = 0; divides < 2; divides++) {
        MUST(cuda->scale(&there, d_s, d_x, scale, T, K, divides, &err));
        MUST(cpu->scale(&here, want, x, scale, T, K, divides, &err));
        MUST(sw_device_download(gpu, have, d_s, 4 * T * K, &err));
        assert_memory_equal(have, want, 4 * T * K);
    }
    for (int with_want = 0; with_want < 2; with_want++) {
        memset(rows, 0, sizeof rows);
        MUST(cuda->errors(&there, rows[1], d_s, with_want ? d_x : NULL, T, K, &err));
        MUST(cpu->errors(&here, rows[0], want, with_want ? x : NULL, T, K, &err));
        for (int t = 0; t < T; t++) assert_true(fabs(rows[1][t] / rows[0][t] - 1) < 1e-13);
    }
    MUST(sw_solver_amax(amax, solver, d_w, OUT, K, 64, 128, &err));
    for (int r = 0; r < OUT; r++)
        for (int j = 0; j < K; j++)
            assert_true(fabsf(w[r * K + j]) <= amax[r / 64 * 3 + j / 128]);
    for (int i = 0; i < SW_GEN_FLOATS; i++) { /* with every kind of inputs */
        weight.act = sw_gen_float_spec(i)->act;
        weight.input_scale = 0.03f;
        weight.dense = w;
        MUST(cpu->multiply(&here, y[0], x, T, &weight, &scratch, &err));
        weight.dense = d_w;
        MUST(cuda->multiply(&there, d_y, d_x, T, &weight, NULL, &err));
        MUST(sw_device_download(gpu, y[1], d_y, 4 * T * OUT, &err));
        far = size = 0;
        for (int j = 0; j < T * OUT; j++) {
            far += ((double)y[1][j] - (double)y[0][j]) * ((double)y[1][j] - (double)y[0][j]);
            size += (double)y[0][j] * (double)y[0][j];
        }
        printf("products under inputs %d: %.1e apart\n", i, sqrt(far / size));
        assert_true(sqrt(far / size) < 2e-6);
    }
    cuda->put(&there, d_x), cuda->put(&there, d_w), cuda->put(&there, d_y);
    cuda->put(&there, d_s);
    sw_scratch_free(&scratch);
    free(x), free(w), free(have), free(want);
}

/* Inputs as products will round them: to the bit in floats, and once more in BF16. */
static void inputs_are_rounded_alike(void **state)
{
    enum { T = 40 };
    static const sw_num_id numbers[] = {SW_NUM_INT8, SW_NUM_E4M3, SW_NUM_E2M1};
    static const struct { sw_act_scope scope; int64_t group; sw_dtype scale; } scopes[] = {
        {SW_ACT_TENSOR, 0, SW_DTYPE_F32}, {SW_ACT_TOKEN, 0, SW_DTYPE_F32},
        {SW_ACT_GROUP, 128, SW_DTYPE_F32}, {SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0},
        {SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3}};
    float *x = malloc(4 * T * K), *want = malloc(4 * T * K), *have = malloc(4 * T * K);
    uint16_t *bf16 = malloc(2 * T * K), *bf16_have = malloc(2 * T * K), *d_b = NULL, *d_r = NULL;
    float *d_x = NULL;

    (void)state;
    fill(x, T * K, 2, 31);
    for (int j = 0; j < K; j++) x[3 * K + j] = 0;
    x[K] = 500;
    MUST(sw_float_encode_n(bf16, SW_DTYPE_BF16, x, T * K, &err));
    MUST(sw_float_decode_n(x, bf16, SW_DTYPE_BF16, T * K, &err));
    MUST(sw_device_take((void **)&d_b, gpu, T * K, 2, "x", &err));
    MUST(sw_device_take((void **)&d_r, gpu, T * K, 2, "x", &err));
    MUST(sw_device_upload(gpu, d_b, bf16, 2 * T * K, &err));
    MUST(SW_PLACE_TAKE(&d_x, &there, T * K, "x", &err));
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        for (size_t s = 0; s < sizeof scopes / sizeof *scopes; s++) {
            sw_act act = {&sw_nums[numbers[n]], scopes[s].scope, scopes[s].group, scopes[s].scale};
            sw_act_round(want, K, x, K, T, K, &act, 0.0117f);
            MUST(sw_device_upload(gpu, d_x, x, 4 * T * K, &err));
            MUST(sw_solver_act_round(solver, d_x, d_x, T, K, &act, 0.0117f, &err));
            MUST(sw_device_download(gpu, have, d_x, 4 * T * K, &err));
            for (int i = 0; i < T * K; i++)
                if (have[i] != want[i])
                    fail_msg("%s scope %d: %g, not %g", act.num->name, (int)act.scope,
                             (double)have[i], (double)want[i]);
            MUST(sw_solver_act_round_bf16(solver, d_r, d_b, K, T, K, &act, 0.0117f, &err));
            MUST(sw_device_download(gpu, bf16_have, d_r, 2 * T * K, &err));
            MUST(sw_float_encode_n(bf16, SW_DTYPE_BF16, want, T * K, &err));
            MUST(sw_float_decode_n(have, bf16_have, SW_DTYPE_BF16, T * K, &err));
            MUST(sw_float_decode_n(want, bf16, SW_DTYPE_BF16, T * K, &err));
            for (int i = 0; i < T * K; i++) assert_true(have[i] == want[i]); /* -0 is 0 */
        }
    sw_device_put(gpu, d_b), sw_device_put(gpu, d_r), cuda->put(&there, d_x);
    free(x), free(want), free(have), free(bf16), free(bf16_have);
}

/* Floats of the host as BF16 on the device: what the host would round them to, over the piece that
 * they pass through and beyond it. */
static void floats_are_rounded_on_the_way(void **state)
{
    static const float special[] = {0.0f, -0.0f, 1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f,
                                    1e-40f, -2e-39f, INFINITY, -INFINITY};
    const int64_t n = DEVICE_IS_EMULATED ? 20011 : ((int64_t)4 << 20) * 2 + 7;
    float *x = malloc(4 * (size_t)n);
    uint16_t *want = malloc(2 * (size_t)n), *have = malloc(2 * (size_t)n), *d = NULL;

    (void)state;
    fill(x, n, 5, 77);
    memcpy(x + n - 10, special, sizeof special);
    memcpy(x + 3, special, sizeof special);
    MUST(sw_float_encode_n(want, SW_DTYPE_BF16, x, n, &err));
    MUST(sw_device_take((void **)&d, gpu, n, 2, "x", &err));
    MUST(sw_device_copy_as_bf16(gpu, d, x, SW_DTYPE_F32, n, &err));
    MUST(sw_device_download(gpu, have, d, 2 * n, &err));
    for (int64_t i = 0; i < n; i++)
        if (have[i] != want[i])
            fail_msg("element %lld: %g is %04x, not %04x", (long long)i, (double)x[i], have[i],
                     want[i]);
    sw_device_put(gpu, d);
    free(x), free(want), free(have);
}

/* Maxima, means, counts of magnitudes and rows, with a stride; what is not finite is told. */
static void sizes_are_the_cpus(void **state)
{
    enum { T = 500, WIDE = K + 24 };
    float *x = malloc(4 * T * WIDE), *dense = malloc(4 * T * K), *rows = malloc(4 * 60 * K);
    uint16_t *bf16 = malloc(2 * T * WIDE), *d_x = NULL;
    sw_channels want = {0}, have = {0};
    sw_range *range = calloc(2, sizeof *range);
    sw_cuda_range counts = {0};
    sw_cuda_sizes sizes = {0};
    float *d_rows = NULL;

    (void)state;
    fill(x, T * WIDE, 1, 41);
    for (int i = 0; i < T * WIDE; i++) x[i] = ldexpf(x[i], i % 61 - 50); /* from 2^-52 on */
    x[5] = 0, x[7] = 3e9f, x[WIDE + 9] = -3.1e9f;
    MUST(sw_float_encode_n(bf16, SW_DTYPE_BF16, x, T * WIDE, &err));
    MUST(sw_float_decode_n(x, bf16, SW_DTYPE_BF16, T * WIDE, &err));
    for (int t = 0; t < T; t++) memcpy(dense + t * K, x + t * WIDE, 4 * K);
    MUST(sw_device_take((void **)&d_x, gpu, T * WIDE, 2, "x", &err));
    MUST(sw_device_upload(gpu, d_x, bf16, 2 * T * WIDE, &err));
    MUST(sw_channels_new(&want, K, &err));
    MUST(sw_channels_new(&have, K, &err));
    sw_channels_add(&want, dense, T);
    sw_range_add(&range[0], dense, T * K);
    MUST(sw_cuda_sizes_new(&sizes, solver, K, &err));
    MUST(sw_cuda_range_new(&counts, solver, &err));
    for (int half = 0; half < 2; half++) {
        const uint16_t *d_at = d_x + half * 200 * WIDE;
        int64_t n = half ? T - 200 : 200;
        MUST(sw_solver_watch_sizes(solver, sizes.d_max, sizes.d_sum, d_at, WIDE, n, K, &err));
        MUST(sw_cuda_range_add(&counts, solver, d_at, WIDE, n, K, &err));
    }
    MUST(sw_cuda_sizes_fetch(&have, &sizes, solver, T, &err));
    MUST(sw_cuda_range_fetch(&range[1], &counts, solver, &err));
    assert_memory_equal(have.abs_max, want.abs_max, 4 * K);
    assert_memory_equal(have.abs_sum, want.abs_sum, 8 * K);
    assert_int_equal(have.n_tokens, want.n_tokens);
    assert_true(range[0].amax == range[1].amax);
    assert_memory_equal(range[0].counts, range[1].counts, sizeof range->counts);
    MUST(SW_PLACE_TAKE(&d_rows, &there, 60 * K, "rows", &err));
    MUST(sw_solver_watch_take(solver, d_rows, d_x, WIDE, 3, 8, 60, K, &err));
    MUST(sw_device_download(gpu, rows, d_rows, 4 * 60 * K, &err));
    for (int i = 0; i < 60; i++)
        assert_memory_equal(rows + i * K, x + (3 + 8 * i) * WIDE, 4 * K);
    bf16[3 * WIDE + 4] = 0x7fc0; /* a NaN */
    MUST(sw_device_upload(gpu, d_x, bf16, 2 * T * WIDE, &err));
    MUST(sw_solver_watch_sizes(solver, sizes.d_max, NULL, d_x, WIDE, T, K, &err));
    MUST(sw_device_download(gpu, have.abs_max, sizes.d_max, 4 * K, &err));
    assert_true(isinf(have.abs_max[4]) && isfinite(have.abs_max[5]));
    sw_cuda_sizes_free(&sizes, solver), sw_cuda_range_free(&counts, solver);
    sw_device_put(gpu, d_x), cuda->put(&there, d_rows);
    sw_channels_free(&want), sw_channels_free(&have);
    free(x), free(dense), free(rows), free(bf16), free(range);
}

/* H of divided inputs, and H on its way to the device and back. */
static void hessians_move_and_scale(void **state)
{
    double scale[K], *diagonal = malloc(8 * K), *pivot[2], *costs[2];
    sw_hessian scaled[2] = {{0}};
    two_factors t;

    (void)state;
    for (int j = 0; j < K; j++) scale[j] = exp(0.02 * (j % 17));
    two_new(&t, K, SW_ORDER_STATIC, 0);
    for (int side = 0; side < 2; side++) {
        pivot[side] = malloc(8 * K);
        costs[side] = malloc(8 * K);
        MUST(sw_factor_costs(costs[side], pivot[side], &t.factor[side], &err));
        MUST(sw_hessian_scaled(&scaled[side], &t.hess[side], scale, &err));
    }
    assert_memory_equal(costs[0], costs[1], 8 * K);
    for (int j = 0; j < K; j++) assert_true(fabs(pivot[1][j] / pivot[0][j] - 1) < 1e-9);
    MUST(sw_hessian_diagonal(diagonal, &scaled[1], &err));
    for (int j = 0; j < K; j++) assert_true(diagonal[j] == scaled[0].h[j * K + j]);
    MUST(sw_hessian_move(&scaled[1], &here, &err));
    assert_memory_equal(scaled[1].h, scaled[0].h, 8 * K * K);
    assert_int_equal(scaled[1].n_tokens, scaled[0].n_tokens);
    sw_hessian_free(&scaled[0]), sw_hessian_free(&scaled[1]);
    two_free(&t);
    free(diagonal);
    for (int side = 0; side < 2; side++) free(pivot[side]), free(costs[side]);
}

/* Negative control: these comparisons see one weight, or one sum, that is not the same. */
static void a_difference_is_seen(void **state)
{
    sw_qspec spec = *sw_gen_float_spec(7);
    float *w = make_weight(N, K, 9);
    double *h = malloc(8 * K * K);
    two_factors t;

    (void)state;
    two_new(&t, K, SW_ORDER_STATIC, 16);
    MUST(sw_device_download(gpu, h, sw_cuda_factor(&t.factor[1])->d_h, 8 * K * K, &err));
    for (int j = 0; j < K; j++) h[7 * K + j] = h[j * K + 7] = -h[j * K + 7] * (j != 7);
    h[7 * K + 7] = t.factor[0].h[7 * K + 7];
    MUST(sw_device_upload(gpu, sw_cuda_factor(&t.factor[1])->d_h, h, 8 * K * K, &err));
    {
        sw_solve_report report[2] = {{0}};
        sw_qtensor q[2];
        int64_t n_scales, n;
        memset(q, 0, sizeof q);
        for (int side = 0; side < 2; side++) {
            sw_solve_problem p = {.w = w, .n_out = N, .k_in = K, .spec = spec, .n_threads = 2,
                                  .factor = &t.factor[side], .refine_rounds = 2};
            MUST(sw_qtensor_alloc(&q[side], &spec, N, K, &err));
            MUST(sw_gptq_solve(&q[side], &p, &report[side], &err));
        }
        n = n_different(&q[0], &q[1], &n_scales);
        printf("with one channel of H turned: %lld codes differ\n", (long long)n);
        assert_true(n > N * K / 500);
        assert_true(fabs(report[1].error / report[0].error - 1) > 1e-3);
        sw_qtensor_free(&q[0]), sw_qtensor_free(&q[1]);
    }
    two_free(&t);
    free(w), free(h);
}

/* test_search [PATTERN]: only tests whose names match. */
int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_floats_are_the_cpus),
        cmocka_unit_test(clipped_integers_are_the_cpus),
        cmocka_unit_test(values_are_solved_in_place), cmocka_unit_test(scores_are_the_cpus),
        cmocka_unit_test(the_device_is_a_place), cmocka_unit_test(inputs_are_rounded_alike),
        cmocka_unit_test(floats_are_rounded_on_the_way),
        cmocka_unit_test(sizes_are_the_cpus), cmocka_unit_test(hessians_move_and_scale),
        cmocka_unit_test(a_difference_is_seen),
    };

    if (sw_device_count() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
