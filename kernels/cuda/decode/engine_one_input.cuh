/* engine_one_input.cuh - the token of a product of one token: normed, quantized, and laid out as
 * lanes read it. See engine_one.cu. */
#ifndef SW_KERNELS_CUDA_DECODE_ENGINE_ONE_INPUT_CUH
#define SW_KERNELS_CUDA_DECODE_ENGINE_ONE_INPUT_CUH

#include <cuda_fp8.h>
#include <float.h>
#include <math.h>

#include "kernels/cuda/decode/engine_one_mma.cuh"

/* ---- the input ---- */

/* s_part is free again when threads meet next. */
static __device__ float block_max(float x, float *s_part)
{
    float top = 0;

    x = sw_warp_max(x);
    sw_meet<N_THREADS>();
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = x;
    sw_meet<N_THREADS>();
#pragma unroll
    for (int w = 0; w < N_WARPS; w++) top = fmaxf(top, s_part[w]);
    return top;
}

static __device__ float block_sum(float x, float *s_part)
{
    float sum = 0;

    x = sw_warp_sum(x);
    sw_meet<N_THREADS>();
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = x;
    sw_meet<N_THREADS>();
#pragma unroll
    for (int w = 0; w < N_WARPS; w++) sum += s_part[w];
    return sum;
}

static __device__ float code_scale(float most, float top)
{
    return most > 0 ? fmaxf(__fdiv_rn(most, top), FLT_MIN) : 1.0f;
}

static __device__ __noinline__ float quotient(float v, float scale) { return __fdiv_rn(v, scale); }

/* Four codes in one word. Integers are read off a sum that is too large for a fraction. */
template <int KIND> static __device__ uint32_t round_four(const float (&q)[4], float top)
{
    if constexpr (KIND != ONE_INT8) {
        return __nv_cvt_float2_to_fp8x2(make_float2(q[0], q[1]), __NV_SATFINITE, __NV_E4M3) |
               (uint32_t)__nv_cvt_float2_to_fp8x2(make_float2(q[2], q[3]), __NV_SATFINITE,
                                                  __NV_E4M3) << 16;
    } else {
        uint32_t word[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            word[i] = __float_as_uint(fminf(fmaxf(q[i], -top), top) + 0x1.8p23f);
        return __byte_perm(__byte_perm(word[0], word[1], 0x0040),
                           __byte_perm(word[2], word[3], 0x0040), 0x5410);
    }
}

/* 1 / scale, a little less, and a little more: what lies between the products with these has all
 * quotients. Of scales that are too small or too large all values lie between. */
struct inverse_range {
    float low, high, middle; /* the last is 0 for such a scale */
};

static __device__ inverse_range inverses_of(float scale)
{
    const float inverse = __frcp_rn(scale);

    if (!(scale >= 0x1p-60f && scale < 0x1p60f)) return {0, INFINITY, 0};
    return {inverse * (1 - 0x1p-21f), inverse * (1 + 0x1p-21f), inverse};
}

/* As a division rounds: the product with the inverse is off by less than two units of its last
 * place, and each step takes off what it is off by. Quotients that are far smaller than any code
 * may differ. */
static __device__ float quotient_of(float v, float scale, float inverse)
{
    float q = v * inverse;

    q = fmaf(fmaf(-q, scale, v), inverse, q);
    return fmaf(fmaf(-q, scale, v), inverse, q);
}

/* Four codes of v / scale: where both ends of the range have the same, it is theirs; else there is
 * a value near a tie. Prologues run once a kernel or step: they should be short rather than
 * unrolled. */
template <int KIND>
static __device__ uint32_t four_codes(const float *v, float scale, const inverse_range &inverse,
                                      float top)
{
    float q[4], more[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        q[i] = v[i] * inverse.low;
        more[i] = v[i] * inverse.high;
    }
    const uint32_t codes = round_four<KIND>(q, top);

    if (codes == round_four<KIND>(more, top)) return codes;
#pragma unroll
    for (int i = 0; i < 4; i++)
        q[i] = inverse.middle > 0 ? quotient_of(v[i], scale, inverse.middle)
                                  : quotient(v[i], scale);
    return round_four<KIND>(q, top);
}

/* Eight inputs of a thread, a half of a step of 16, as lane c of four will read them: bytes 2c,
 * 2c + 8, 2c + 1, 2c + 9. Of bytes the eight are neighbours; a thread and the next, which has the
 * other half of the step, exchange four codes, and the first writes the words of lanes 0 and 1. */
template <int KIND>
static __device__ void put_codes(uint32_t *s_x, int eight, const sw_eight &e, float scale,
                                 float top, bool is_there)
{
    const inverse_range inverse = inverses_of(scale);
    const uint32_t first = four_codes<KIND>(e.v, scale, inverse, top);
    const uint32_t second = four_codes<KIND>(e.v + 4, scale, inverse, top);
    const bool is_high = eight % 2;
    const uint32_t theirs = __shfl_xor_sync(~0u, is_high ? first : second, 1);
    const uint32_t low = is_high ? theirs : first, high = is_high ? second : theirs;
    uint32_t *to = s_x + eight / 16 * 32 + (is_high ? 16 : 0) + eight % 16 / 2;

    if (!is_there) return;
    to[0] = __byte_perm(low, high, 0x5140);
    to[8] = __byte_perm(low, high, 0x7362);
}

/* Of a fixed-point token the eight are four from 4 h on and those 8 further on, h = eight % 2: all
 * that lanes 2 h and 2 h + 1 read. */
template <int KIND, typename T>
static __device__ void load_halves(T (&to)[2], const void *from, int eight)
{
    constexpr int apart = kind_of<KIND>::is_w4 ? 2 : 1;
    const T *at = (const T *)from + (apart == 2 ? eight / 2 * 4 + eight % 2 : 2 * eight);

    to[0] = at[0];
    to[1] = at[apart];
}

/* The largest exponent of BF16s, over the 16 threads that hold a unit: of a value that is not
 * finite 255. */
static __device__ int unit_exponent(const uint4 &raw)
{
    const uint32_t signs = 0x7fff7fffu;
    uint32_t most = __vmaxu2(__vmaxu2(raw.x & signs, raw.y & signs),
                             __vmaxu2(raw.z & signs, raw.w & signs));

#pragma unroll
    for (int d = 8; d; d /= 2) most = __vmaxu2(most, __shfl_xor_sync(~0u, most, d));
    return (int)(max(most & 0xffff, most >> 16) >> 7);
}

/* The token in fixed point, a scale for each unit: integers below 2^21, so that a BF16 keeps all of
 * its bits where it is not less than 2^-14 of the unit's largest. Their three bytes, each signed,
 * are columns of their own (planes), twice the highest first. Chunks of four steps: [2][plane][lane
 * c], so that lane 4 plane + c finds its own in a row. Returns what a sixteenth of an integer is
 * worth. */
static __device__ float put_planes(uint32_t *s_x, int eight, const sw_eight &e, int exponent,
                                   bool is_there)
{
    const int most = max(exponent, 25); /* less than 2^-102 may be lost */
    const float scale = __int_as_float((274 - most) << 23);
    uint32_t *to = s_x + eight / 16 * 96 + eight % 16 / 8 * 48 + eight % 2 * 8 + eight / 2 % 4;
    uint32_t q[8];

    /* 2^22 and a half of each lower byte more than the integer: bytes are those of a signed digit
     * but for their top bits, of the highest the top two */
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = __float_as_uint(fmaf(e.v[i], scale, (float)(MAGIC + 0x8080)));
    if (is_there)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t *const mine = q + 2 * c;
            const uint32_t low0 = __byte_perm(mine[0], mine[4], 0x5140);
            const uint32_t low1 = __byte_perm(mine[1], mine[5], 0x5140);
            const uint32_t top0 = __byte_perm(mine[0], mine[4], 0x7362);
            const uint32_t top1 = __byte_perm(mine[1], mine[5], 0x7362);

            to[4 * c] = (__byte_perm(top0, top1, 0x5410) ^ 0x40404040u) << 1;
            to[4 * c + 16] = __byte_perm(low0, low1, 0x7632) ^ 0x80808080u;
            to[4 * c + 32] = __byte_perm(low0, low1, 0x5410) ^ 0x80808080u;
        }
    return __int_as_float(exponent == 255 ? 0x7fc00000 : (most - 24) << 23);
}

/* As another kernel would read it. */
static __device__ uint4 rounded(const sw_eight &e)
{
    return make_uint4(sw_pack2(e.v[0], e.v[1]), sw_pack2(e.v[2], e.v[3]),
                      sw_pack2(e.v[4], e.v[5]), sw_pack2(e.v[6], e.v[7]));
}

static __device__ sw_eight widen(const uint4 &raw)
{
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    sw_eight e;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        e.v[2 * i] = __uint_as_float(words[i] << 16);
        e.v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return e;
}

static __device__ float largest(const sw_eight &e)
{
    float most = 0;

#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(e.v[i]));
    return most;
}

/* Over the 16 threads that hold a unit. */
static __device__ float unit_sum(float x)
{
#pragma unroll
    for (int d = 8; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

static __device__ float unit_max(float x)
{
#pragma unroll
    for (int d = 8; d; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

/* Lay out one eight: `scale` of the row, or with groups that of its unit. s_units: what units are
 * worth, and with zero points n_units behind it their sums. Whole halves of a warp take part, as
 * rows are whole units. */
template <int KIND>
static __device__ void lay_out(uint32_t *s_x, float *s_units, const one_args &p, int eight,
                               const uint4 &raw, float scale, bool is_there)
{
    const sw_eight e = widen(raw);
    const int exponent = kind_of<KIND>::is_w4 ? unit_exponent(raw) : 0;
    float sum = 0;

    if (kind_of<KIND>::has_zeros) {
#pragma unroll
        for (int i = 0; i < 8; i++) sum += e.v[i];
        sum = unit_sum(sum);
    }
    if (KIND == ONE_E4M3_GROUPS) scale = code_scale(unit_max(largest(e)), p.top);
    if (kind_of<KIND>::is_w4) scale = put_planes(s_x, eight, e, exponent, is_there);
    else put_codes<KIND>(s_x, eight, e, scale, p.top, is_there);
    if (!kind_of<KIND>::has_groups || !is_there || threadIdx.x % 16) return;
    s_units[eight / 16] = scale;
    if (kind_of<KIND>::has_zeros) s_units[p.n_units + eight / 16] = sum;
}

/* The scale of the whole row; 1 where there is none. */
template <int KIND>
static __device__ float row_scale(const one_args &p, const one_job &j, float most, float *s_part)
{
    if (kind_of<KIND>::has_groups) return 1.0f;
    if (p.a.act_of_x.scope == SW_ACT_TENSOR) return j.input_scale;
    return code_scale(block_max(most, s_part), p.top);
}

/* Lay out the eights that threads hold, N_THREADS apart; returns the scale of their codes. */
template <int KIND, int N>
static __device__ float lay_out_all(uint32_t *s_x, float *s_units, const one_args &p,
                                    const one_job &job, uint4 (&raw)[N], float *s_part)
{
    const int n_eights = p.n_units * (UNIT_K / 8);
    float most = 0;

    if (!kind_of<KIND>::has_groups)
#pragma unroll
        for (int j = 0; j < N; j++) most = fmaxf(most, largest(widen(raw[j])));
    const float of_row = row_scale<KIND>(p, job, most, s_part);

#pragma unroll 1
    for (int at = (int)threadIdx.x; at - (int)threadIdx.x % 32 < n_eights; at += N_THREADS) {
        lay_out<KIND>(s_x, s_units, p, at, raw[0], of_row, at < n_eights);
#pragma unroll
        for (int j = 1; j < N; j++) raw[j - 1] = raw[j];
    }
    return of_row;
}

template <int KIND> static __device__ sw_eight load_floats(const float *from, int eight)
{
    float4 half[2];

    load_halves<KIND>(half, from, eight);
    return {{half[0].x, half[0].y, half[0].z, half[0].w, half[1].x, half[1].y, half[1].z,
             half[1].w}};
}

/* The norm's weights for what this thread will hold: asked for before there is a row. */
struct held_norm {
    sw_eight e[EIGHTS_MAX];
};

template <int KIND> static __device__ void hold_norm(held_norm &to, const one_args &p)
{
#pragma unroll
    for (int j = 0; j < EIGHTS_MAX; j++) {
        const int at = (int)threadIdx.x + j * N_THREADS;

        if (at < p.n_units * (UNIT_K / 8)) to.e[j] = load_floats<KIND>(p.a.norm, at);
    }
}

/* The residual stream's row: eights as lay_out_all takes them. */
template <int KIND>
static __device__ void load_stream(sw_eight (&e)[EIGHTS_MAX], const one_args &p)
{
#pragma unroll
    for (int j = 0; j < EIGHTS_MAX; j++) {
        const int at = (int)threadIdx.x + j * N_THREADS;

        if (at < p.n_units * (UNIT_K / 8)) e[j] = load_floats<KIND>(p.a.x, at);
    }
}

/* norm(x) of the row that load_stream has brought, whose eights become normed ones. */
template <int KIND, int N>
static __device__ void norm_row(uint4 (&raw)[N], const one_args &p, const held_norm &norm,
                                float *s_part, sw_eight (&e)[EIGHTS_MAX])
{
    const int n_eights = p.n_units * (UNIT_K / 8);
    float sum = 0;

#pragma unroll
    for (int j = 0; j < EIGHTS_MAX; j++) {
        const int at = (int)threadIdx.x + j * N_THREADS;

        if (at >= n_eights) break;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += e[j].v[i] * e[j].v[i];
    }
    const float scale =
        1.0f / sqrtf(block_sum(sum, s_part) / (float)(p.n_units * UNIT_K) + p.a.eps);

#pragma unroll
    for (int j = 0; j < EIGHTS_MAX; j++) {
        if ((int)threadIdx.x + j * N_THREADS >= n_eights) break;
#pragma unroll
        for (int i = 0; i < 8; i++) e[j].v[i] *= scale * norm.e[j].v[i];
        raw[j] = rounded(e[j]);
    }
}

template <int KIND>
static __device__ void load_row(uint4 &raw, const sw_bf16 *row, int eight)
{
    if constexpr (kind_of<KIND>::is_w4) {
        uint2 half[2];

        load_halves<KIND>(half, row, eight);
        raw = make_uint4(half[0].x, half[0].y, half[1].x, half[1].y);
    } else {
        raw = ((const uint4 *)row)[eight];
    }
}

template <int KIND, int N>
static __device__ void plain_row(uint4 (&raw)[N], const one_args &p, const one_job &job)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int at = (int)threadIdx.x + j * N_THREADS;

        if (at < p.n_units * (UNIT_K / 8)) load_row<KIND>(raw[j], job.rows, at);
    }
}

/* norm of `e` into the lanes' order; returns the scale of its codes. */
template <int KIND>
static __device__ float load_norm(uint32_t *s_x, float *s_units, const one_args &p,
                                  const one_job &job, const held_norm &norm, float *s_part,
                                  sw_eight (&e)[EIGHTS_MAX])
{
    uint4 raw[EIGHTS_MAX] = {};

    norm_row<KIND>(raw, p, norm, s_part, e);
    return lay_out_all<KIND>(s_x, s_units, p, job, raw, s_part);
}

#endif
