/* quantize_case.c - see quantize_case.h. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "tests/gpu/support/quantize_case.h"

#define POISON 0xa5

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) fail_msg("%s: %s", what, cudaGetErrorString(e));
}

#define MUST(call) must(call, #call)

sw_act quantize_case_act(const quantize_format *f)
{
    return (sw_act){&sw_nums[f->num], f->scope, f->scope == SW_ACT_GROUP ? QUANTIZE_GROUP : 0,
                    SW_DTYPE_F32};
}

static int64_t groups_of(const quantize_case *p)
{
    return p->f->scope == SW_ACT_GROUP ? (p->k + QUANTIZE_GROUP - 1) / QUANTIZE_GROUP : 1;
}

/* ---- 16-bit floats ---- */

float half_value(uint16_t bits, sw_dtype dtype)
{
    sw_err err = {0};
    float v;

    if (sw_float_decode_n(&v, &bits, dtype, 1, &err)) fail_msg("%s", err.text);
    return v;
}

uint16_t half_bits(float v, sw_dtype dtype)
{
    sw_err err = {0};
    uint16_t bits;

    if (sw_float_encode_n(&bits, dtype, &v, 1, &err)) fail_msg("%s", err.text);
    return bits;
}

/* ---- what is expected ---- */

/* The order of a row of codes: see cuda_gemm.h. */
static int64_t input_at(int64_t byte)
{
    static const int of[4] = {0, 8, 1, 9};

    return byte / 16 * 16 + byte % 16 / 4 * 2 + of[byte % 4];
}

/* Where a NaN, or an infinity that decides the scale, leaves none. */
static bool has_scale(const float *x, int64_t n, const quantize_format *f)
{
    bool has = true;

    for (int64_t i = 0; i < n; i++)
        has &= !isnan(x[i]) && (isfinite(x[i]) || f->scope == SW_ACT_TENSOR);
    return has;
}

/* Codes and scales of a token as the definition has them, [k] and [groups]. */
static void expect_token(const quantize_case *p, const float *x, uint8_t *codes, float *scales)
{
    sw_act act = quantize_case_act(p->f);
    int64_t span = p->f->scope == SW_ACT_GROUP ? QUANTIZE_GROUP : p->k;

    scales[0] = p->f->input_scale; /* of the tensor, which the definition leaves alone */
    for (int64_t k = 0, g = 0; k < p->k; k += span, g++) {
        int64_t n = p->k - k < span ? p->k - k : span;

        if (has_scale(x + k, n, p->f))
            sw_act_quantize(codes + k, scales + g, x + k, n, 1, n, &act, p->f->input_scale);
        else {
            memset(codes + k, 0, (size_t)n);
            scales[g] = NAN;
        }
    }
}

static void expect(quantize_case *p)
{
    int64_t stride = sw_cuda_codes_stride(p->k), groups = groups_of(p);
    float *x = malloc(sizeof *x * (size_t)p->k), *scales = malloc(sizeof *scales * (size_t)groups);
    uint8_t *codes = malloc((size_t)p->k);

    for (int64_t m = 0; m < p->m; m++) {
        for (int64_t k = 0; k < p->k; k++)
            x[k] = half_value(p->x[m * (p->k + p->gap) + k], p->dtype);
        expect_token(p, x, codes, scales);
        p->sums[m] = 0;
        for (int64_t i = 0; i < stride; i++) {
            uint8_t code = input_at(i) < p->k ? codes[input_at(i)] : 0;

            p->codes[m * stride + i] = code;
            p->sums[m] += (int8_t)code;
        }
        for (int64_t g = 0; g < groups; g++) p->scales[g * p->m + m] = scales[g];
    }
    free(x);
    free(scales);
    free(codes);
}

/* ---- a case on the device ---- */

static size_t x_elems(const quantize_case *p) { return (size_t)(p->m * (p->k + p->gap)); }

void quantize_case_new(quantize_case *p)
{
    sw_act act = quantize_case_act(p->f);

    p->x = malloc(x_elems(p) * 2 + 2);
    for (size_t i = 0; i < x_elems(p); i++) p->x[i] = 0x7fff;
    p->codes = malloc((size_t)(p->m * sw_cuda_codes_stride(p->k)));
    p->scales = malloc(sizeof *p->scales * (size_t)(p->m * groups_of(p)));
    p->sums = malloc(sizeof *p->sums * (size_t)p->m);
    p->out_bytes = sw_cuda_codes_bytes(p->m, p->k, &act);
    p->out = malloc(p->out_bytes + 2 * QUANTIZE_GUARD);
    MUST(cudaMalloc((void **)&p->d_x, (x_elems(p) + (size_t)p->shift) * 2));
    MUST(cudaMalloc((void **)&p->d_out, p->out_bytes + 2 * QUANTIZE_GUARD));
}

void quantize_case_free(quantize_case *p)
{
    MUST(cudaFree(p->d_x));
    MUST(cudaFree(p->d_out));
    free(p->x);
    free(p->codes);
    free(p->scales);
    free(p->sums);
    free(p->out);
}

void quantize_case_upload(quantize_case *p)
{
    MUST(cudaMemcpy(p->d_x + 2 * p->shift, p->x, x_elems(p) * 2, cudaMemcpyHostToDevice));
    expect(p);
}

bool quantize_case_is_aligned(const quantize_case *p)
{
    return (p->shift | p->k | (p->k + p->gap)) % 8 == 0;
}

void quantize_case_run(quantize_case *p, const sw_quantize_cut *cut, bool may_overlap,
                       bool starts_next)
{
    sw_act act = quantize_case_act(p->f);
    sw_cuda_codes to = sw_cuda_codes_at(p->d_out + QUANTIZE_GUARD, p->m, p->k, &act);
    const uint8_t *d_x = p->d_x + 2 * p->shift;
    float s = p->f->input_scale;
    sw_err err = {0};
    sw_code rc;

    MUST(cudaMemset(p->d_out, POISON, p->out_bytes + 2 * QUANTIZE_GUARD));
    MUST(cudaDeviceSynchronize());
    rc = cut ? sw_cuda_quantize_by(cut, &to, d_x, p->k + p->gap, p->dtype, p->m, p->k, &act, s,
                                   may_overlap, starts_next, NULL, &err)
             : sw_cuda_quantize(&to, d_x, p->k + p->gap, p->dtype, p->m, p->k, &act, s, may_overlap,
                                starts_next, NULL, &err);
    if (rc) fail_msg("%s", err.text);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(p->out, p->d_out, p->out_bytes + 2 * QUANTIZE_GUARD, cudaMemcpyDeviceToHost));
}

/* Bytes behind an array, up to the next one: as they were. */
static bool is_untouched(const uint8_t *from, const uint8_t *to)
{
    for (; from < to; from++)
        if (*from != POISON) return false;
    return true;
}

static bool scales_alike(const float *have, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(want[i]) ? !isnan(have[i]) : memcmp(have + i, want + i, sizeof *have) != 0)
            return false;
    return true;
}

const char *quantize_case_difference(const quantize_case *p)
{
    sw_act act = quantize_case_act(p->f);
    sw_cuda_codes have = sw_cuda_codes_at(p->out + QUANTIZE_GUARD, p->m, p->k, &act);
    size_t codes_bytes = (size_t)(p->m * sw_cuda_codes_stride(p->k));
    int64_t n_scales = p->m * groups_of(p);
    bool has_sums = p->f->num == SW_NUM_INT8;
    uint8_t *end = p->out + QUANTIZE_GUARD + p->out_bytes;

    if (memcmp(have.d_codes, p->codes, codes_bytes) != 0) return "codes";
    if (!scales_alike(have.d_scales, p->scales, n_scales)) return "scales";
    if (has_sums && memcmp(have.d_sums, p->sums, sizeof *p->sums * (size_t)p->m) != 0)
        return "sums";
    if (!is_untouched(p->out, p->out + QUANTIZE_GUARD) ||
        !is_untouched(have.d_codes + codes_bytes, (uint8_t *)have.d_scales) ||
        !is_untouched((uint8_t *)(have.d_scales + n_scales), (uint8_t *)have.d_sums) ||
        !is_untouched((uint8_t *)(have.d_sums + (has_sums ? p->m : 0)), end + QUANTIZE_GUARD))
        return "what is around them";
    return NULL;
}
