/* gpu_case.c - see gpu_case.h. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "tests/gpu/support/gpu_case.h"
#include "tests/gpu/support/gpu_ref.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

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

/* What a token's largest magnitude must be for a scale of one. */
static float top_of(const gpu_shape *s)
{
    return s->scope == SW_ACT_NONE ? 8.0f : s->x_num == SW_NUM_INT8 ? 127.0f : 448.0f;
}

static float small_integer(test_rng *rng) { return (float)(test_u64(rng) % 17) - 8.0f; }

static void make_x(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    int64_t pitch = s->k_in + s->x_gap;
    float *row = malloc(sizeof(float) * (size_t)pitch);
    test_rng rng = {s->seed + 17};
    sw_err err = {0};

    for (int64_t m = 0; m < s->m; m++) {
        for (int64_t k = 0; k < pitch; k++) {
            row[k] = s->is_exact ? small_integer(&rng) : (float)test_gauss(&rng);
            if (s->is_exact && k % 128 == m % 32) row[k] = top_of(s);
            if (k >= s->k_in) row[k] = NAN;
        }
        assert_int_equal(sw_float_encode_n(c->x + m * pitch, s->dtype, row, pitch, &err), SW_OK);
    }
    free(row);
}

static void pack(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    sw_err err = {0};

    c->codes_bytes = (size_t)sw_tiles_stored_bytes(c->q.spec.num, s->n_out, s->k_in);
    c->scales_bytes = (size_t)sw_tiles_scales_bytes(s->scale_dtype, s->n_out, c->q.n_groups);
    c->zeros_bytes = s->is_asymmetric ? (size_t)sw_tiles_zeros_bytes(s->n_out, c->q.n_groups) : 0;
    c->codes = malloc(c->codes_bytes);
    c->scales = malloc(c->scales_bytes);
    c->zeros = malloc(c->zeros_bytes + 1);
    if (sw_tiles_pack_stored(c->codes, c->scales, s->is_asymmetric ? c->zeros : NULL, &c->q, &err))
        fail_msg("%s", err.text);
}

static sw_act act_of(const gpu_shape *s)
{
    sw_act act = {&sw_nums[s->x_num], s->scope, s->scope == SW_ACT_GROUP ? 128 : 0, SW_DTYPE_F32};

    return s->scope == SW_ACT_NONE ? (sw_act){0} : act;
}

static float input_scale_of(const gpu_shape *s)
{
    return s->scope != SW_ACT_TENSOR ? 0.0f : s->is_exact ? 1.0f : 0.03f;
}

static void describe(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    sw_cuda_gemm *p = &c->problem;

    *p = (sw_cuda_gemm){.m = s->m, .dtype = s->dtype, .may_overlap = s->seed % 2};
    p->x_stride = s->k_in + s->x_gap;
    p->y_stride = s->n_out + s->y_gap;
    p->d_x = device_copy(c->x, c->x_bytes);
    p->act = act_of(s);
    p->tiles = (sw_tiles){.spec = c->q.spec, .n_out = s->n_out, .k_in = s->k_in,
                          .n_groups = c->q.n_groups, .input_scale = input_scale_of(s),
                          .container_bits = sw_tiles_stored_bits(c->q.spec.num)};
    p->tiles.scales = c->scales;
    p->tiles.has_usual_scales = sw_tiles_has_usual_scales(&p->tiles);
    p->tiles.codes = device_copy(c->codes, c->codes_bytes);
    p->tiles.scales = device_copy(c->scales, c->scales_bytes);
    if (s->is_asymmetric) p->tiles.zeros = device_copy(c->zeros, c->zeros_bytes);
    c->y_bytes = (size_t)(s->m * p->y_stride) * 2;
    MUST(cudaMalloc((void **)&c->d_y_guarded, c->y_bytes + 2 * GUARD_BYTES + (size_t)s->y_at));
    c->d_y_guarded += s->y_at;
    p->d_y = c->d_y_guarded + GUARD_BYTES;
    c->y = malloc(c->y_bytes + 1);
    c->want = malloc(sizeof(double) * (size_t)(s->m * s->n_out) + 1);
}

/* Of BF16: 0, the least and the largest of the bounds, and all exponents between, of both signs. */
static float usual_scale(test_rng *rng)
{
    const float sign = test_u64(rng) % 2 ? 1 : -1, mantissa = (float)(test_u64(rng) % 128);

    switch (test_u64(rng) % 8) {
    case 0: return 0;
    case 1: return sign * SW_USUAL_SCALE_MIN;
    case 2: return sign * SW_USUAL_SCALE_END * (1 - 0x1p-8f);
    default: return sign * ldexpf(1 + mantissa / 128, -78 + (int)(test_u64(rng) % 121));
    }
}

/* 0.002 to 0.03: no sum of such weights leaves F16. Exact: 2^-10 to 2^-7. */
static void tame_scales(gpu_case *c)
{
    test_rng rng = {c->shape.seed + 29};
    int64_t rows = sw_qspec_rows(&c->q.spec, c->q.n_out);

    for (int64_t i = 0; i < c->q.n_out * c->q.n_groups; i++) {
        c->q.scales[i] = sw_num_round_to((float)(0.002 + 0.028 * test_uniform(&rng)),
                                         c->shape.scale_dtype);
        if (c->shape.is_exact) c->q.scales[i] = ldexpf(1.0f, -10 + (int)(test_u64(&rng) % 4));
        if (c->shape.has_usual_scales) c->q.scales[i] = usual_scale(&rng);
    }
    for (int64_t i = 0; i < c->q.n_out * c->q.n_groups; i++) {
        int64_t n = i / c->q.n_groups, g = i % c->q.n_groups;

        c->q.scales[i] = c->q.scales[n / rows * rows * c->q.n_groups + g];
    }
}

/* Codes of E4M3: any that is a number, or for exact sums 0, 1/4, 1/2, ... 8 of both signs. */
static void make_e4m3(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    test_rng rng = {s->seed + 31};
    sw_err err = {0};
    sw_qspec spec = {.num = &sw_nums[SW_NUM_E4M3], .is_symmetric = true,
                     .group_elems = s->group_elems, .scale_dtype = s->scale_dtype,
                     .scale_rows = s->scale_rows};

    assert_int_equal(sw_qtensor_alloc(&c->q, &spec, s->n_out, s->k_in, &err), SW_OK);
    for (int64_t i = 0; i < s->n_out * s->k_in; i++) {
        uint8_t code = (uint8_t)test_u64(&rng);

        if ((code & 0x7f) == 0x7f) code ^= 1;
        if (s->is_exact) code = (uint8_t)((code & 0x80) | (code % 6 ? 0x28 + code % 5 * 8 : 0));
        c->q.codes[i] = code;
    }
}

bool gpu_case_order(gpu_case *c)
{
    sw_cuda_device device;
    sw_err err = {0};

    assert_int_equal(sw_cuda_device_query(&device, 0, &err), SW_OK);
    assert_int_equal(sw_column_tiles_order(&c->problem.tiles, &c->problem.act, &device, NULL, &err),
                     SW_OK);
    return c->problem.tiles.in_columns;
}

void gpu_case_new(gpu_case *c, const gpu_shape *shape)
{
    *c = (gpu_case){.shape = *shape};
    if (shape->num == SW_NUM_E4M3) make_e4m3(c);
    else
        sw_gen_qtensor(&c->q, sw_nums[shape->num].bits, !shape->is_asymmetric, shape->group_elems,
                       shape->scale_dtype, shape->n_out, shape->k_in, SW_GEN_RANDOM, 0,
                       shape->seed);
    if (!shape->has_any_scale || shape->num == SW_NUM_E4M3) tame_scales(c);
    c->x_bytes = (size_t)(shape->m * (shape->k_in + shape->x_gap)) * 2;
    c->x = malloc(c->x_bytes + 1);
    make_x(c);
    pack(c);
    describe(c);
    if (shape->has_columns) gpu_case_order(c);
}

void gpu_case_free(gpu_case *c)
{
    void *device[] = {(void *)(uintptr_t)c->problem.d_x, (void *)(uintptr_t)c->problem.tiles.codes,
                      (void *)(uintptr_t)c->problem.tiles.scales,
                      (void *)(uintptr_t)c->problem.tiles.zeros,
                      c->d_y_guarded - c->shape.y_at};

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

bool gpu_case_can_run(gpu_case *c, int kernel, int tile)
{
    if (sw_cuda_kernels[kernel].can_run(&c->problem, tile)) return true;
    if (c->problem.tiles.is_sign_magnitude) {
        c->problem.tiles.is_sign_magnitude = false;
        gpu_case_upload(c);
    } else if (c->shape.num == SW_NUM_INT4) {
        gpu_case_order(c);
    }
    return sw_cuda_kernels[kernel].can_run(&c->problem, tile);
}

void gpu_case_upload(gpu_case *c)
{
    put(c->problem.d_x, c->x, c->x_bytes);
    put(c->problem.tiles.codes, c->codes, c->codes_bytes);
    put(c->problem.tiles.scales, c->scales, c->scales_bytes);
    put(c->problem.tiles.zeros, c->zeros, c->zeros_bytes);
    if (!c->problem.tiles.in_columns && !c->problem.tiles.is_sign_magnitude) return;
    c->problem.tiles.in_columns = c->problem.tiles.is_sign_magnitude = false;
    gpu_case_order(c);
}

/* X as the products see it: floats, or codes as floats and their scales [groups, m]. */
typedef struct seen_x {
    float *x, *scales;
    uint8_t *codes;
    int64_t n_groups, group_elems;
} seen_x;

static seen_x see_x(const gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    sw_act act = act_of(s);
    size_t n = (size_t)(s->m * s->k_in);
    seen_x v = {.x = malloc(sizeof(float) * n + 1), .codes = malloc(n + 1)};
    int64_t groups = s->scope == SW_ACT_NONE ? 0 : sw_act_groups(&act, s->k_in);
    float *by_token = malloc(sizeof(float) * (size_t)(s->m * (groups + 1)));
    sw_err err = {0};

    for (int64_t m = 0; m < s->m; m++)
        assert_int_equal(sw_float_decode_n(v.x + m * s->k_in, c->x + m * (s->k_in + s->x_gap),
                                           s->dtype, s->k_in, &err), SW_OK);
    v.group_elems = s->scope == SW_ACT_GROUP ? 128 : s->k_in;
    v.n_groups = groups ? groups : 1;
    v.scales = malloc(sizeof(float) * (size_t)(s->m * v.n_groups));
    for (int64_t i = 0; i < s->m * v.n_groups; i++)
        v.scales[i] = s->scope == SW_ACT_NONE ? 1.0f : input_scale_of(s);
    if (s->scope == SW_ACT_NONE) {
        free(by_token);
        return v;
    }
    sw_act_quantize(v.codes, by_token, v.x, s->k_in, s->m, s->k_in, &act, input_scale_of(s));
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t g = 0; g < groups; g++) v.scales[g * s->m + m] = by_token[m * groups + g];
    for (size_t i = 0; i < n; i++)
        v.x[i] = act.num->values ? act.num->values[v.codes[i]] : (float)(int8_t)v.codes[i];
    free(by_token);
    return v;
}

static void seen_x_free(seen_x *v)
{
    free(v->x);
    free(v->scales);
    free(v->codes);
}

static void *zeros_of(const gpu_case *c, size_t n_groups)
{
    uint8_t *zeros = malloc(n_groups);
    void *d;

    memset(zeros, c->q.spec.num->sym_zero, n_groups);
    if (c->shape.is_asymmetric) memcpy(zeros, c->q.zeros, n_groups);
    d = device_copy(zeros, n_groups);
    free(zeros);
    return d;
}

void gpu_case_expect(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    size_t n_groups = (size_t)(s->n_out * c->q.n_groups);
    size_t y_bytes = sizeof(double) * (size_t)(s->m * s->n_out);
    seen_x x = see_x(c);
    float values[256];
    double *d_y;
    void *device[6];
    gpu_ref_args a = {.m = s->m, .n_out = s->n_out, .k_in = s->k_in, .n_groups = c->q.n_groups,
                      .n_step = 1, .group_elems = s->group_elems ? s->group_elems : s->k_in,
                      .x_group_elems = x.group_elems};

    for (int i = 0; i < 256; i++)
        values[i] = c->q.spec.num->values ? c->q.spec.num->values[i] : (float)i;
    a.x = device[0] = device_copy(x.x, sizeof(float) * (size_t)(s->m * s->k_in));
    a.x_scales = device[1] = device_copy(x.scales, sizeof(float) * (size_t)(s->m * x.n_groups));
    a.codes = device[2] = device_copy(c->q.codes, (size_t)(s->n_out * s->k_in));
    a.scales = device[3] = device_copy(c->q.scales, n_groups * sizeof(float));
    a.values = device[4] = device_copy(values, sizeof values);
    device[5] = zeros_of(c, n_groups);
    if (s->num != SW_NUM_E4M3) a.zeros = device[5];
    MUST(cudaMalloc((void **)&d_y, y_bytes));
    assert_int_equal(gpu_ref_gemm(d_y, &a), 0);
    MUST(cudaMemcpy(c->want, d_y, y_bytes, cudaMemcpyDeviceToHost));
    MUST(cudaFree(d_y));
    for (int i = 0; i < 6; i++) MUST(cudaFree(device[i]));
    seen_x_free(&x);
}

/* The order of a row of codes: see cuda_gemm.h. */
static int64_t input_at(int64_t byte)
{
    static const int of[4] = {0, 8, 1, 9};

    return byte / 16 * 16 + byte % 16 / 4 * 2 + of[byte % 4];
}

static bool codes_alike(const gpu_case *c, const seen_x *x, const uint8_t *codes,
                        const int32_t *sums)
{
    const gpu_shape *s = &c->shape;
    int64_t stride = sw_cuda_codes_stride(s->k_in);

    for (int64_t m = 0; m < s->m; m++) {
        int32_t sum = 0;

        for (int64_t i = 0; i < stride; i++) {
            int64_t k = input_at(i);
            uint8_t want = k < s->k_in ? x->codes[m * s->k_in + k] : 0;

            sum += (int8_t)want;
            if (codes[m * stride + i] != want) return false;
        }
        if (s->x_num == SW_NUM_INT8 && s->scope != SW_ACT_GROUP && sums[m] != sum) return false;
    }
    return true;
}

bool gpu_case_quantizes_alike(gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    sw_act act = act_of(s);
    size_t n_bytes = sw_cuda_codes_bytes(s->m, s->k_in, &act);
    uint8_t *d_block, *host = malloc(n_bytes);
    seen_x x = see_x(c);
    sw_cuda_codes at, on_host;
    sw_err err = {0};
    bool is_good;

    MUST(cudaMalloc((void **)&d_block, n_bytes));
    MUST(cudaMemset(d_block, POISON, n_bytes));
    at = sw_cuda_codes_at(d_block, s->m, s->k_in, &act);
    on_host = sw_cuda_codes_at(host, s->m, s->k_in, &act);
    if (sw_cuda_quantize(&at, c->problem.d_x, c->problem.x_stride, s->dtype, s->m, s->k_in, &act,
                         input_scale_of(s), s->seed % 2, s->seed % 4 > 1, NULL, &err))
        fail_msg("%s", err.text);
    MUST(cudaMemcpy(host, d_block, n_bytes, cudaMemcpyDeviceToHost));
    is_good = codes_alike(c, &x, on_host.d_codes, on_host.d_sums) &&
              memcmp(on_host.d_scales, x.scales, sizeof(float) * (size_t)(s->m * x.n_groups)) == 0;
    MUST(cudaFree(d_block));
    free(host);
    seen_x_free(&x);
    return is_good;
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
    const int64_t n_out = s->n_out / (c->problem.glu.is_wanted ? 2 : 1);
    size_t work_bytes = sw_cuda_gemm_workspace_bytes(&c->problem, plan);
    uint8_t *d_work;
    sw_err err = {0};
    bool is_good;

    MUST(cudaMalloc((void **)&d_work, work_bytes + 2 * GUARD_BYTES));
    MUST(cudaMemset(c->d_y_guarded, POISON, c->y_bytes + 2 * GUARD_BYTES));
    MUST(cudaMemset(d_work, POISON, work_bytes + 2 * GUARD_BYTES));
    MUST(cudaDeviceSynchronize());
    if (sw_cuda_gemm_run(&c->problem, plan, d_work + GUARD_BYTES, NULL, &err))
        fail_msg("%s", err.text);
    must(cudaDeviceSynchronize(), sw_cuda_kernels[plan->kernel].tiles[plan->tile].name);
    is_good = guards_hold(c->d_y_guarded, c->y_bytes) && guards_hold(d_work, work_bytes);
    MUST(cudaFree(d_work));
    MUST(cudaMemcpy(c->y, c->problem.d_y, c->y_bytes, cudaMemcpyDeviceToHost));
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < c->problem.y_stride; n++)
            if ((c->y[m * c->problem.y_stride + n] == 0xffff) != (n >= n_out)) is_good = false;
    return is_good;
}

bool gpu_case_same_unknown(gpu_case *c, const sw_cuda_plan *plan)
{
    uint16_t *known;
    bool is_same;

    if (!c->problem.tiles.has_usual_scales) return true;
    known = malloc(c->y_bytes);
    memcpy(known, c->y, c->y_bytes);
    c->problem.tiles.has_usual_scales = false;
    is_same = gpu_case_run(c, plan) && memcmp(known, c->y, c->y_bytes) == 0;
    c->problem.tiles.has_usual_scales = true;
    free(known);
    return is_same;
}

void gpu_case_run_both(gpu_case c[2], const sw_cuda_plan plans[2], int n_times)
{
    cudaStream_t streams[2];
    void *d_work[2];
    sw_err err = {0};

    for (int s = 0; s < 2; s++) {
        MUST(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        MUST(cudaMalloc(&d_work[s], sw_cuda_gemm_workspace_bytes(&c[s].problem, &plans[s]) + 16));
        MUST(cudaMemset(c[s].d_y_guarded, POISON, c[s].y_bytes + 2 * GUARD_BYTES));
    }
    MUST(cudaDeviceSynchronize());
    for (int i = 0; i < 2 * n_times; i++)
        if (sw_cuda_gemm_run(&c[i % 2].problem, &plans[i % 2], d_work[i % 2], streams[i % 2], &err))
            fail_msg("%s", err.text);
    MUST(cudaDeviceSynchronize());
    for (int s = 0; s < 2; s++) {
        MUST(cudaMemcpy(c[s].y, c[s].problem.d_y, c[s].y_bytes, cudaMemcpyDeviceToHost));
        MUST(cudaFree(d_work[s]));
        MUST(cudaStreamDestroy(streams[s]));
    }
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

int64_t gpu_case_differing(const gpu_case *c)
{
    const gpu_shape *s = &c->shape;
    int64_t n_wrong = 0;
    sw_err err = {0};

    for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < s->n_out; n++) {
            float want = (float)c->want[m * s->n_out + n];
            uint16_t bits, have = c->y[m * c->problem.y_stride + n];

            assert_int_equal(sw_float_encode_n(&bits, s->dtype, &want, 1, &err), SW_OK);
            n_wrong += have != bits && (have | bits) != 0x8000;
        }
    return n_wrong;
}
