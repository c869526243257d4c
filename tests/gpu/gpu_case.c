/* gpu_case.c - see gpu_case.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/num/num.h"
#include "tests/gpu/gpu_case.h"
#include "tests/gpu/gpu_ref.h"
#include "tests/support/qtensor_gen.h"
#include "tests/support/random.h"

#define GUARD_BYTES 4096
#define POISON 0xff /* NaN in every 16-bit format and in fp32 */

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) fail_msg("%s: %s", what, cudaGetErrorString(e));
}

#define MUST(call) must(call, #call)

bool gpu_is_there(void)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e == cudaSuccess && n > 0) return true;
    printf("skipped: no GPU (%s)\n", cudaGetErrorString(e));
    return false;
}

static void *device_copy(const void *host, size_t n_bytes)
{
    void *d = NULL;

    MUST(cudaMalloc(&d, n_bytes ? n_bytes : 16));
    if (n_bytes) MUST(cudaMemcpy(d, host, n_bytes, cudaMemcpyHostToDevice));
    return d;
}

static void make_x(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    int64_t pitch = s->k_in + s->x_gap;
    float *row = malloc(sizeof(float) * (size_t)pitch);
    test_rng rng = {s->seed + 17};
    sw_err err = {0};

    for (int64_t m = 0; m < s->m; m++) {
        for (int64_t k = 0; k < pitch; k++) row[k] = k < s->k_in ? (float)test_gauss(&rng) : NAN;
        assert_int_equal(sw_float_encode_n(c->x + m * pitch, s->dtype, row, pitch, &err), SW_OK);
    }
    free(row);
}

static void pack(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    sw_err err = {0};

    c->codes_bytes = (size_t)sw_tiles_codes_bytes(c->q.spec.num, s->n_out, s->k_in);
    c->scales_bytes = (size_t)sw_tiles_scales_bytes(s->scale_dtype, s->n_out, c->q.n_groups);
    c->zeros_bytes = s->is_asymmetric ? (size_t)sw_tiles_zeros_bytes(s->n_out, c->q.n_groups) : 0;
    c->codes = malloc(c->codes_bytes);
    c->scales = malloc(c->scales_bytes);
    c->zeros = malloc(c->zeros_bytes + 1);
    if (sw_tiles_pack(c->codes, c->scales, s->is_asymmetric ? c->zeros : NULL, &c->q, &err))
        fail_msg("%s", err.text);
}

static void describe(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    sw_cuda_gemm *p = &c->problem;

    *p = (sw_cuda_gemm){.m = s->m, .dtype = s->dtype, .may_overlap = s->seed % 2};
    p->x_stride = s->k_in + s->x_gap;
    p->y_stride = s->n_out + s->y_gap;
    p->d_x = device_copy(c->x, c->x_bytes);
    p->tiles = (sw_tiles){.spec = c->q.spec, .n_out = s->n_out, .k_in = s->k_in,
                          .n_groups = c->q.n_groups, .container_bits = 4};
    p->tiles.codes = device_copy(c->codes, c->codes_bytes);
    p->tiles.scales = device_copy(c->scales, c->scales_bytes);
    if (s->is_asymmetric) p->tiles.zeros = device_copy(c->zeros, c->zeros_bytes);
    c->y_bytes = (size_t)(s->m * p->y_stride) * 2;
    c->work_bytes = sw_cuda_gemm_workspace_bytes(p, &(sw_cuda_plan){0});
    MUST(cudaMalloc((void **)&c->d_y_guarded, c->y_bytes + 2 * GUARD_BYTES));
    MUST(cudaMalloc((void **)&c->d_work_guarded, c->work_bytes + 2 * GUARD_BYTES));
    p->d_y = c->d_y_guarded + GUARD_BYTES;
    c->y = malloc(c->y_bytes + 1);
    c->want = malloc(sizeof(double) * (size_t)(s->m * s->n_out) + 1);
}

/* 0.002 to 0.03: no sum of such weights leaves F16. */
static void tame_scales(gpu_case *c)
{
    test_rng rng = {c->shape.seed + 29};

    for (int64_t i = 0; i < c->q.n_out * c->q.n_groups; i++)
        c->q.scales[i] = sw_num_round_to((float)(0.002 + 0.028 * test_uniform(&rng)),
                                         c->shape.scale_dtype);
}

void gpu_case_new(gpu_case *c, const gpu_shape *shape)
{
    *c = (gpu_case){.shape = *shape};
    sw_gen_qtensor(&c->q, 4, !shape->is_asymmetric, shape->group_elems, shape->scale_dtype,
                   shape->n_out, shape->k_in, SW_GEN_RANDOM, 0, shape->seed);
    if (!shape->has_any_scale) tame_scales(c);
    c->x_bytes = (size_t)(shape->m * (shape->k_in + shape->x_gap)) * 2;
    c->x = malloc(c->x_bytes + 1);
    make_x(c);
    pack(c);
    describe(c);
}

void gpu_case_free(gpu_case *c)
{
    void *device[] = {(void *)(uintptr_t)c->problem.d_x, (void *)(uintptr_t)c->problem.tiles.codes,
                      (void *)(uintptr_t)c->problem.tiles.scales,
                      (void *)(uintptr_t)c->problem.tiles.zeros, c->d_y_guarded, c->d_work_guarded};

    for (size_t i = 0; i < sizeof device / sizeof *device; i++) MUST(cudaFree(device[i]));
    free(c->codes);
    free(c->scales);
    free(c->zeros);
    free(c->x);
    free(c->y);
    free(c->want);
    sw_qtensor_free(&c->q);
    *c = (gpu_case){0};
}

static void put(const void *d, const void *host, size_t n_bytes)
{
    if (n_bytes)
        MUST(cudaMemcpy((void *)(uintptr_t)d, host, n_bytes, cudaMemcpyHostToDevice));
}

void gpu_case_upload(gpu_case *c)
{
    put(c->problem.d_x, c->x, c->x_bytes);
    put(c->problem.tiles.codes, c->codes, c->codes_bytes);
    put(c->problem.tiles.scales, c->scales, c->scales_bytes);
    put(c->problem.tiles.zeros, c->zeros, c->zeros_bytes);
}

void gpu_case_expect(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    size_t n_weights = (size_t)(s->n_out * s->k_in);
    size_t n_groups = (size_t)(s->n_out * c->q.n_groups);
    size_t y_bytes = sizeof(double) * (size_t)(s->m * s->n_out);
    uint8_t *zeros = malloc(n_groups);
    double *d_y;
    gpu_ref_args a = {.x = c->problem.d_x, .x_stride = c->problem.x_stride,
                      .is_bf16 = s->dtype == SW_DTYPE_BF16, .m = s->m, .n_out = s->n_out,
                      .k_in = s->k_in, .n_groups = c->q.n_groups, .n_step = 1,
                      .group_elems = s->group_elems ? s->group_elems : s->k_in};

    memset(zeros, 8, n_groups);
    if (s->is_asymmetric) memcpy(zeros, c->q.zeros, n_groups);
    a.codes = device_copy(c->q.codes, n_weights);
    a.scales = device_copy(c->q.scales, n_groups * sizeof(float));
    a.zeros = device_copy(zeros, n_groups);
    MUST(cudaMalloc((void **)&d_y, y_bytes));
    assert_int_equal(gpu_ref_gemm(d_y, &a), 0);
    MUST(cudaMemcpy(c->want, d_y, y_bytes, cudaMemcpyDeviceToHost));
    MUST(cudaFree(d_y));
    MUST(cudaFree((void *)(uintptr_t)a.codes));
    MUST(cudaFree((void *)(uintptr_t)a.scales));
    MUST(cudaFree((void *)(uintptr_t)a.zeros));
    free(zeros);
}

static bool guards_hold(const uint8_t *d_guarded, size_t n_bytes)
{
    uint8_t guard[GUARD_BYTES];

    for (int side = 0; side < 2; side++) {
        MUST(cudaMemcpy(guard, d_guarded + (side ? GUARD_BYTES + n_bytes : 0), GUARD_BYTES,
                        cudaMemcpyDeviceToHost));
        for (int i = 0; i < GUARD_BYTES; i++)
            if (guard[i] != POISON) return false;
    }
    return true;
}

bool gpu_case_run(gpu_case *c, const sw_cuda_plan *plan)
{
    const gpu_shape *s = &c->shape;
    sw_err err = {0};
    bool is_good;

    MUST(cudaMemset(c->d_y_guarded, POISON, c->y_bytes + 2 * GUARD_BYTES));
    MUST(cudaMemset(c->d_work_guarded, POISON, c->work_bytes + 2 * GUARD_BYTES));
    MUST(cudaDeviceSynchronize());
    if (sw_cuda_gemm_run(&c->problem, plan, c->d_work_guarded + GUARD_BYTES, NULL, &err))
        fail_msg("%s", err.text);
    MUST(cudaDeviceSynchronize());
    is_good = guards_hold(c->d_y_guarded, c->y_bytes) &&
              guards_hold(c->d_work_guarded, c->work_bytes);
    MUST(cudaMemcpy(c->y, c->problem.d_y, c->y_bytes, cudaMemcpyDeviceToHost));
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < c->problem.y_stride; n++)
            if ((c->y[m * c->problem.y_stride + n] == 0xffff) != (n >= s->n_out)) is_good = false;
    return is_good;
}

double gpu_case_error(const gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    float *row = malloc(sizeof(float) * (size_t)s->n_out);
    double wrong = 0, size = 0;
    sw_err err = {0};

    for (int64_t m = 0; m < s->m; m++) {
        assert_int_equal(sw_float_decode_n(row, c->y + m * c->problem.y_stride, s->dtype, s->n_out,
                                           &err), SW_OK);
        for (int64_t n = 0; n < s->n_out; n++) {
            double d = (double)row[n] - c->want[m * s->n_out + n];

            wrong += d * d;
            size += c->want[m * s->n_out + n] * c->want[m * s->n_out + n];
        }
    }
    free(row);
    return isfinite(wrong) ? sqrt(wrong / size) : (double)INFINITY;
}

double gpu_case_bound(const gpu_case *c)
{
    return c->shape.dtype == SW_DTYPE_BF16 ? 4e-3 : 5e-4;
}
