/* test_solver.c - calibration on the device against the CPU's, on the same numbers.
 * Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/pack/tiles.h"
#include "quant/method/frame.h"
#include "quant/method/target.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/solver_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

static sw_device *gpu;
static sw_solver *solver;

typedef struct variant {
    int bits;
    bool is_symmetric;
    int64_t group_elems;
    sw_dtype scale_dtype;
    int zero_min;
    bool is_sign_free;
    bool is_float; /* of E2M1, with a global scale */
} variant;

static const variant variants[] = {
    {4, true, 128, SW_DTYPE_F16, 0, false, false},  {4, false, 128, SW_DTYPE_BF16, 0, false, false},
    {4, true, 32, SW_DTYPE_BF16, 0, false, false},  {4, false, 64, SW_DTYPE_F16, 1, false, false},
    {4, true, 0, SW_DTYPE_F16, 0, false, false},    {8, true, 0, SW_DTYPE_F32, 0, false, false},
    {8, false, 128, SW_DTYPE_F16, 0, false, false}, {3, true, 64, SW_DTYPE_F16, 0, false, false},
    {2, false, 32, SW_DTYPE_F32, 0, false, false},  {4, true, 128, SW_DTYPE_F16, 0, true, false},
    {2, true, 64, SW_DTYPE_BF16, 0, true, false},
    {4, true, 16, SW_DTYPE_F8_E4M3, 0, false, true}, /* not packed, nor plain */
};
#define N_VARIANTS (int)(sizeof variants / sizeof *variants)
#define WIDE 5                   /* one group, which a team of threads fits */
#define STEPPED (N_VARIANTS - 1) /* scales that move when their codes do */

static sw_qspec spec_of(const variant *v)
{
    return (sw_qspec){.num = v->is_float ? &sw_nums[SW_NUM_E2M1] : sw_num_by_bits(v->bits),
                      .has_global = v->is_float, .is_symmetric = v->is_symmetric,
                      .group_elems = v->group_elems, .scale_dtype = v->scale_dtype,
                      .zero_min = v->zero_min, .is_sign_free = v->is_sign_free};
}

/* The scale of the whole weight, which the device is told. */
static double global_of(const float *w, int64_t n, int64_t k, const sw_qspec *spec)
{
    sw_frame frame = {0};
    double global;

    MUST(sw_frame_new(&frame, w, n, k, 0, spec, &err));
    global = (double)frame.global;
    sw_frame_free(&frame);
    return global;
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

static int64_t n_different(const sw_qtensor *a, const sw_qtensor *b, int64_t *n_scales)
{
    int64_t n = 0, n_g = a->n_out * a->n_groups;

    for (int64_t i = 0; i < a->n_out * a->k_in; i++) n += a->codes[i] != b->codes[i];
    *n_scales = 0;
    for (int64_t i = 0; i < n_g; i++)
        *n_scales += a->scales[i] != b->scales[i] || (a->zeros && a->zeros[i] != b->zeros[i]);
    return n;
}

static void plain_rounding_is_the_cpus(void **state)
{
    (void)state;
    for (int v = 0; v < STEPPED; v++) {
        enum { N = 67, K = 328 };
        sw_qspec spec = spec_of(&variants[v]);
        float *w = make_weight(N, K, 40 + (uint64_t)v);
        sw_qtensor have = {0}, want = {0};
        sw_solve_problem p = {.w = w, .n_out = N, .k_in = K, .spec = spec, .n_threads = 2};
        sw_device_problem d = {.w = w, .n_out = N, .k_in = K, .spec = spec};
        sw_solve_report report = {0};
        sw_device_sums sums;
        MUST(sw_qtensor_alloc(&have, &spec, N, K, &err));
        MUST(sw_qtensor_alloc(&want, &spec, N, K, &err));
        MUST(sw_rtn_solve(&want, &p, &report, &err));
        MUST(sw_solver_solve(&have, &sums, solver, &d, NULL, &err));
        sw_gen_assert_same(&have, &want);
        sw_qtensor_free(&have);
        sw_qtensor_free(&want);
        free(w);
    }
}

typedef struct gptq_run {
    int variant;
    sw_order order;
    int rounds;
    bool with_shift;
} gptq_run;

static bool refits(const gptq_run *run, int64_t k)
{
    int64_t group = variants[run->variant].group_elems;

    return run->order != SW_ORDER_STATIC && (group ? group : k) <= 128;
}

/* Codes of the CPU, save where a value lay within rounding of a tie; the loss says so too. */
static void check_gptq(solver_case *c, const gptq_run *run, int64_t n_out)
{
    int64_t k = c->k_in, n = n_out * k, n_scales, n_codes;
    sw_qspec spec = spec_of(&variants[run->variant]);
    float *w = make_weight(n_out, k, 90 + (uint64_t)run->variant);
    double *shift = calloc((size_t)n, sizeof *shift), *d_shift = NULL;
    test_rng rng = {3};
    sw_qtensor have = {0}, again = {0}, want = {0};
    sw_solve_problem p = {.w = w, .n_out = n_out, .k_in = k, .spec = spec, .factor = &c->factor,
                          .refine_rounds = run->rounds, .n_threads = 2};
    sw_device_problem d = {.method = SW_DEVICE_GPTQ, .w = w, .n_out = n_out, .k_in = k,
                           .spec = spec, .factor = &c->device, .refit = refits(run, k),
                           .refine_rounds = run->rounds, .global = global_of(w, n_out, k, &spec)};
    sw_solve_report report = {0};
    sw_device_sums sums, sums2;

    if (run->with_shift) {
        for (int64_t i = 0; i < n; i++) shift[i] = 0.002 * test_gauss(&rng);
        MUST(sw_device_take((void **)&d_shift, gpu, n, 8, "shift", &err));
        MUST(sw_device_upload(gpu, d_shift, shift, n * 8, &err));
        p.target_shift = shift;
        d.d_shift = d_shift;
    }
    MUST(sw_qtensor_alloc(&have, &spec, n_out, k, &err));
    MUST(sw_qtensor_alloc(&again, &spec, n_out, k, &err));
    MUST(sw_qtensor_alloc(&want, &spec, n_out, k, &err));
    MUST(sw_gptq_solve(&want, &p, &report, &err));
    MUST(sw_solver_solve(&have, &sums, solver, &d, NULL, &err));
    MUST(sw_solver_solve(&again, &sums2, solver, &d, NULL, &err));
    sw_gen_assert_same(&have, &again);
    assert_memory_equal(&sums, &sums2, sizeof sums);
    n_codes = n_different(&have, &want, &n_scales);
    printf("gptq: k %lld %d bits %s group %lld order %d rounds %d%s: %lld codes, %lld scales differ"
           " of %lld; error %.6e, CPU %.6e, plain %.6e\n", (long long)k,
           spec.num->bits, spec.is_symmetric ? "sym" : "asym", (long long)spec.group_elems,
           (int)run->order, run->rounds, run->with_shift ? " shift" : "", (long long)n_codes,
           (long long)n_scales, (long long)n, sums.loss / sums.power, report.error,
           report.error_rtn);
    assert_true(fabs(sums.power / report.power - 1) < 1e-10);
    assert_true(fabs(sums.loss_rtn / sums.power / report.error_rtn - 1) < 1e-10);
    assert_true(fabs(sums.loss / sums.power / report.error - 1) < 1e-3);
    assert_true(n_codes <= n / 1000 && n_scales <= have.n_out * have.n_groups / 50);
    sw_device_put(gpu, d_shift);
    sw_qtensor_free(&have);
    sw_qtensor_free(&again);
    sw_qtensor_free(&want);
    free(shift);
    free(w);
}

/* Of k inputs, whole groups and a part of a block. */
static void check_at(int which, int64_t k)
{
    enum { N = DEVICE_IS_EMULATED ? 30 : 150 };
    solver_case c;

    solver_case_new(&c, gpu, solver, k, 3 * k, 23);
    for (int order = 0; order < SW_ORDER_COUNT; order++) {
        const gptq_run run = {which, (sw_order)order, 2, order == 1};

        if (DEVICE_IS_EMULATED && order != SW_ORDER_STATIC) continue;
        solver_case_factor(&c, run.order, variants[which].group_elems);
        check_gptq(&c, &run, N);
    }
    solver_case_free(&c);
}

static void stepped_scales_and_teams_are_the_cpus(void **state)
{
    (void)state;
    check_at(STEPPED, 272);
    check_at(WIDE, DEVICE_IS_EMULATED ? 520 : 1144);
}

static void gptq_is_the_cpus(void **state)
{
    enum { K = DEVICE_IS_EMULATED ? 264 : 456, N = DEVICE_IS_EMULATED ? 70 : 150 };
    solver_case c;

    (void)state;
    solver_case_new(&c, gpu, solver, K, 3 * K, 21);
    for (int order = 0; order < SW_ORDER_COUNT; order++)
        for (int v = 0; v < N_VARIANTS; v++) {
            gptq_run run = {v, (sw_order)order, v % 3, v % 2};
            if (DEVICE_IS_EMULATED && (v + order) % 6) continue;
            solver_case_factor(&c, run.order, variants[v].group_elems);
            check_gptq(&c, &run, N);
        }
    solver_case_free(&c);
}

/* Rows in chunks: memory for one piece at a time. test_solver_rows.c holds chunks to each other. */
static void chunks_change_nothing(void **state)
{
    enum { K = 320, N = SW_SOLVER_PRODUCT_ROWS + 100 };
    gptq_run run = {0, SW_ORDER_STATIC, 2, true};
    sw_solver *all = solver, *small = NULL;
    solver_case c;

    (void)state;
    if (DEVICE_IS_EMULATED) skip();
    MUST(sw_solver_open(&small, gpu, 1, &err));
    solver_case_new(&c, gpu, small, K, 3 * K, 22);
    solver_case_factor(&c, run.order, 128);
    solver = small;
    check_gptq(&c, &run, N);
    solver = all;
    solver_case_free(&c);
    sw_solver_close(small);
}

enum { SAMPLED = 2 * SW_SAMPLE_BLOCK_ROWS };

/* A device's sums with W D [n, k] in the place of D. */
static sw_hessian weighed_of(const sw_hessian *device, const sw_hessian *host, const float *w,
                             int64_t n)
{
    const int64_t k = host->k_in;
    double *wd = calloc((size_t)(n * k), sizeof *wd);
    sw_hessian h = *device;

    for (int64_t i = 0; i < n * k; i++)
        for (int64_t j = 0; j < k; j++)
            wd[i] += (double)w[i / k * k + j] * host->d[j * k + i % k];
    h.is_weighed = true;
    MUST(sw_device_take((void **)&h.d, gpu, n * k, 8, "W D", &err));
    MUST(sw_device_upload(gpu, h.d, wd, n * k * 8, &err));
    free(wd);
    return h;
}

/* What some rows of a weight add to the held-out error, the device's D given as it is and as W D;
 * and those of the CPU, when it is its turn. */
typedef struct sampled_forms {
    double cpu[SAMPLED][5], device[SAMPLED][5], weighed[SAMPLED][5];
} sampled_forms;

static void find_sampled(double (*forms)[5], const sw_factor *factor, const sw_hessian *seen,
                         const sw_hessian *held, const float *w, int64_t n)
{
    const sw_row_sample rows = sw_row_sample_of(n, SAMPLED);
    const sw_strengths cap = {1, 1};

    assert_int_equal(sw_row_sample_count(&rows), SAMPLED);
    MUST(sw_target_forms(forms, factor, seen, held, w, &rows, cap, &err));
}

/* The device has a form of each row, the CPU of each block of them. */
static void check_sampled(const sampled_forms *f)
{
    for (int64_t block = 0; block < SAMPLED; block += SW_SAMPLE_BLOCK_ROWS)
        for (int i = 0; i < 5; i++) {
            double have[2] = {0}, size = 0;

            for (int64_t row = block; row < block + SW_SAMPLE_BLOCK_ROWS; row++) {
                have[0] += f->device[row][i];
                have[1] += f->weighed[row][i];
                size += fabs(f->device[row][i]);
            }
            assert_true(size > 0 && fabs(f->cpu[block][i]) > 0);
            assert_true(fabs(have[0] - f->cpu[block][i]) < 1e-9 * size);
            assert_true(fabs(have[1] - f->cpu[block][i]) < 1e-9 * size);
        }
}

/* lint: long, one story told on both sides */
/* Sums of inputs, cross terms and residuals on both sides; then, from the same sums, the factor,
 * the strengths and the shift of the target, and what GPTQ makes of them. */
static void statistics_and_targets(void **state)
{
    enum { K = 200, N = 136, T = 900 };
    float *x = malloc(4 * T * K), *dx = malloc(4 * T * K), *dr = malloc(4 * T * N);
    float *w = make_weight(N, K, 77);
    const sw_place there = {.backend = &sw_backend_cuda, .device = solver, .n_threads = 1};
    sw_factor_options options = {SW_ORDER_STATIC, 64, 0.01};
    sw_strengths cap = {1, 1}, s[2];
    sw_hessian seen[2] = {{0}}, held[2] = {{0}};
    sw_hessian weighed[2];
    sw_factor factor[2] = {{0}};
    double *shift[2] = {0}, *have;
    sampled_forms *sampled = calloc(1, sizeof *sampled);
    test_rng rng = {31};

    (void)state;
    for (int i = 0; i < T * K; i++) {
        x[i] = sw_num_round_to((float)(test_gauss(&rng) * (1 + i % K % 7)), SW_DTYPE_BF16);
        dx[i] = sw_num_round_to(0.1f * x[i] + (float)(0.05 * test_gauss(&rng)), SW_DTYPE_BF16);
    }
    for (int i = 0; i < T * N; i++)
        dr[i] = sw_num_round_to((float)(0.1 * test_gauss(&rng)) + 0.02f * x[i / N * K + i % N],
                                SW_DTYPE_BF16);
    for (int side = 0; side < 2; side++) {
        sw_hessian *part[] = {&seen[side], &held[side]};
        for (int i = 0; i < 2; i++) {
            int at = i ? 700 : 0, n = i ? T - 700 : 700;
            if (side) MUST(sw_hessian_new_at(part[i], &there, K, true, N, &err));
            else MUST(sw_hessian_new(part[i], K, true, N, 2, &err));
            MUST(sw_hessian_add(part[i], x + at * K, dx + at * K, dr + at * N, n, &err));
            MUST(sw_hessian_settle(part[i], &err));
        }
    }
    for (int i = 0; i < 2; i++) { /* each sum by itself, then the host's on both sides */
        sw_hessian *host = i ? &held[0] : &seen[0], *device = i ? &held[1] : &seen[1];
        double *sums[] = {host->h, host->d, host->r}, *d_sums[] = {device->h, device->d, device->r};
        for (int j = 0; j < 3; j++) {
            int64_t n = (j == 2 ? N : K) * K;
            have = solver_fetch(gpu, d_sums[j], n);
            assert_true(solver_distance(have, sums[j], n) < 3e-6);
            MUST(sw_device_upload(gpu, d_sums[j], sums[j], n * 8, &err));
            free(have);
        }
    }
    weighed[0] = weighed_of(&seen[1], &seen[0], w, N);
    weighed[1] = weighed_of(&held[1], &held[0], w, N);
    for (int side = 0; side < 2; side++) {
        sw_hessian before = seen[side];
        MUST(sw_hessian_merge_inputs(&seen[side], &held[side], &err));
        MUST(sw_factor_new(&factor[side], &seen[side], &options, &err));
        find_sampled(side ? sampled->device : sampled->cpu, &factor[side], &before, &held[side], w,
                     N);
        if (side)
            find_sampled(sampled->weighed, &factor[1], &weighed[0], &weighed[1], w, N);
        MUST(sw_target_strengths(&s[side], &factor[side], &before, &held[side], w, N, cap, &err));
        MUST(sw_hessian_merge_cross(&seen[side], &held[side], &err));
        MUST(sw_target_shift_new(&shift[side], &factor[side], N, &err));
        MUST(sw_target_shift(shift[side], &factor[side], &seen[side], w, N, s[side], &err));
    }
    check_sampled(sampled);
    have = solver_fetch(gpu, shift[1], N * K);
    printf("target: strengths %.12g %.12g, CPU %.12g %.12g; shift differs by %.1e\n", s[1].input,
           s[1].residual, s[0].input, s[0].residual, solver_distance(have, shift[0], N * K));
    assert_true(s[0].input > 0.05 && s[0].residual > 0.05);
    assert_true(fabs(s[1].input - s[0].input) < 1e-10);
    assert_true(fabs(s[1].residual - s[0].residual) < 1e-10);
    assert_true(solver_distance(have, shift[0], N * K) < 1e-10);
    assert_memory_equal(factor[0].perm, factor[1].perm, 4 * K);
    for (int v = 0; v < STEPPED; v++) {
        sw_qspec spec = spec_of(&variants[v]);
        sw_qtensor q[2];
        sw_solve_report report[2] = {{0}};
        int64_t n_scales;
        memset(q, 0, sizeof q);
        for (int side = 0; side < 2; side++) {
            sw_solve_problem p = {.w = w, .n_out = N, .k_in = K, .spec = spec, .n_threads = 2,
                                  .factor = &factor[side], .target_shift = shift[side],
                                  .refine_rounds = 1};
            MUST(sw_qtensor_alloc(&q[side], &spec, N, K, &err));
            MUST(sw_gptq_solve(&q[side], &p, &report[side], &err));
        }
        assert_true(n_different(&q[0], &q[1], &n_scales) <= N * K / 1000);
        assert_true(fabs(report[1].error / report[0].error - 1) < 1e-3);
        assert_true(report[1].damp == report[0].damp && report[1].n_tokens == T);
        sw_qtensor_free(&q[0]);
        sw_qtensor_free(&q[1]);
    }
    for (int side = 0; side < 2; side++) {
        sw_target_shift_free(shift[side], &factor[side]);
        sw_factor_free(&factor[side]);
        sw_hessian_free(&seen[side]);
        sw_hessian_free(&held[side]);
        sw_device_put(gpu, weighed[side].d);
    }
    free(have), free(x), free(dx), free(dr), free(w), free(sampled);
}


static void packs_the_cpus_bytes(void **state)
{
    (void)state;
    for (int v = 0; v < STEPPED; v++) {
        enum { N = 130, K = 416 };
        const variant *a = &variants[v];
        sw_qtensor q = {0};
        int64_t n_g, n_codes, n_scales, n_zeros;
        uint8_t *want[3], *have[3], *d[3], *d_codes;
        float *zeros, *d_scales, *d_zeros;
        sw_gen_qtensor(&q, a->bits, a->is_symmetric, a->group_elems, a->scale_dtype, N, K,
                       SW_GEN_RANDOM, a->zero_min, 60 + (uint64_t)v);
        n_g = N * q.n_groups;
        n_codes = sw_tiles_codes_bytes(q.spec.num, N, K);
        n_scales = sw_tiles_scales_bytes(a->scale_dtype, N, q.n_groups);
        n_zeros = sw_tiles_zeros_bytes(N, q.n_groups);
        int64_t sizes[3] = {n_codes, n_scales, a->is_symmetric ? 0 : n_zeros};
        zeros = calloc((size_t)n_g, sizeof *zeros);
        for (int64_t i = 0; i < n_g && q.zeros; i++) zeros[i] = q.zeros[i];
        for (int i = 0; i < 3; i++) {
            want[i] = malloc((size_t)sizes[i] + 1);
            have[i] = malloc((size_t)sizes[i] + 1);
            MUST(sw_device_take((void **)&d[i], gpu, sizes[i], 1, "packed", &err));
            MUST(sw_device_fill(gpu, d[i], 0xff, sizes[i], &err));
        }
        MUST(sw_device_take((void **)&d_codes, gpu, N * K, 1, "codes", &err));
        MUST(sw_device_take((void **)&d_scales, gpu, n_g, 4, "scales", &err));
        MUST(sw_device_take((void **)&d_zeros, gpu, n_g, 4, "zeros", &err));
        MUST(sw_device_upload(gpu, d_codes, q.codes, N * K, &err));
        MUST(sw_device_upload(gpu, d_scales, q.scales, n_g * 4, &err));
        MUST(sw_device_upload(gpu, d_zeros, zeros, n_g * 4, &err));
        MUST(sw_tiles_pack(want[0], want[1], q.zeros ? want[2] : NULL, &q, &err));
        MUST(sw_solver_pack(d[0], d[1], d[2], solver, &q.spec, N, K, d_codes, d_scales, d_zeros,
                            &err));
        for (int i = 0; i < 3; i++) {
            if (sizes[i]) MUST(sw_device_download(gpu, have[i], d[i], sizes[i], &err));
            assert_memory_equal(have[i], want[i], (size_t)sizes[i]);
            sw_device_put(gpu, d[i]);
            free(have[i]), free(want[i]);
        }
        sw_device_put(gpu, d_codes);
        sw_device_put(gpu, d_scales);
        sw_device_put(gpu, d_zeros);
        free(zeros);
        sw_qtensor_free(&q);
    }
}

static void refuses_what_it_cannot(void **state)
{
    sw_qspec spec = spec_of(&variants[0]);
    sw_qtensor q = {0};
    sw_device_sums sums;
    float w[64] = {0};
    sw_device_problem d = {.w = w, .n_out = 1, .k_in = 64};
    sw_err err = {0};

    (void)state;
    assert_true(sw_solver_can(&spec));
    spec.n_outliers = 4;
    assert_false(sw_solver_can(&spec));
    d.spec = spec;
    assert_int_equal(sw_solver_solve(&q, &sums, solver, &d, NULL, &err), SW_E_UNSUPPORTED);
}

/* test_solver [PATTERN]: only tests whose names match. */
int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rounding_is_the_cpus),
        cmocka_unit_test(gptq_is_the_cpus),
        cmocka_unit_test(stepped_scales_and_teams_are_the_cpus),
        cmocka_unit_test(chunks_change_nothing),
        cmocka_unit_test(statistics_and_targets), cmocka_unit_test(packs_the_cpus_bytes),
        cmocka_unit_test(refuses_what_it_cannot),
    };

    return solver_tests_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL, &gpu,
                            &solver);
}
