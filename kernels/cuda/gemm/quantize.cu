/* quantize.cu - activations into codes, scales and sums, in the order that the kernels read.
 *
 * One CTA a token; a thread takes 16 inputs at a time, a slice of a tile's k-step, and keeps its
 * first slices in registers between finding the scale and dividing by it. Every value is that of
 * formats/num/act.h to the bit: what a reciprocal could get wrong is divided.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <float.h>

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/ptx/ptx.cuh"

#define SLICE 16
#define MANY_TOKENS 512
#define GROUP_LANES 8    /* lanes that share a group of 128 inputs */

struct quantize_args {
    const uint16_t *x;
    int64_t x_stride, k_in, stride, m; /* stride: bytes of a row of codes */
    uint8_t *codes;
    float *scales;
    int32_t *sums;
    float input_scale, top;
    bool is_bf16, is_aligned, is_tensor, is_group, starts_next;
};

static __device__ __forceinline__ float widen(uint16_t bits, bool is_bf16)
{
    return is_bf16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}

/* 16 inputs from k on, as they are; zeros past the end. */
static __device__ __forceinline__ void load_slice(uint4 *raw, const quantize_args &a,
                                                  const uint16_t *row, int64_t k)
{
    if (a.is_aligned && k + SLICE <= a.k_in) {
        raw[0] = *(const uint4 *)(row + k);
        raw[1] = *(const uint4 *)(row + k + 8);
    } else {
        uint32_t *words = (uint32_t *)raw;

#pragma unroll
        for (int i = 0; i < SLICE / 2; i++) {
            uint32_t low = k + 2 * i < a.k_in ? row[k + 2 * i] : 0;
            uint32_t high = k + 2 * i + 1 < a.k_in ? row[k + 2 * i + 1] : 0;

            words[i] = low | high << 16;
        }
    }
}

/* Input i (0..15) of a slice. */
static __device__ __forceinline__ float input_of(const uint4 *raw, int i, bool is_bf16)
{
    const uint32_t *words = (const uint32_t *)raw;

    return widen((uint16_t)(words[i / 2] >> (i % 2 * 16)), is_bf16);
}

/* Magnitudes compare like their bits, as floats too, and a NaN beats them all. */
static __device__ __forceinline__ uint32_t largest(const uint4 *raw, bool is_bf16)
{
    const uint32_t *words = (const uint32_t *)raw;
    uint32_t most = 0;

#pragma unroll
    for (int i = 0; i < SLICE / 2; i++) most = __vmaxu2(most, words[i] & 0x7fff7fffu);
    return __float_as_uint(widen((uint16_t)max(most & 0xffff, most >> 16), is_bf16));
}

/* The scale of what has this largest magnitude; NaN when it can have none. */
static __device__ __forceinline__ float scale_of(uint32_t most, const quantize_args &a)
{
    float size = __uint_as_float(most), s;

    if (a.is_tensor) return most > 0x7f800000u ? __uint_as_float(0x7fc00000u) : a.input_scale;
    if (most >= 0x7f800000u) return __uint_as_float(0x7fc00000u);
    if (most == 0) return 1.0f;
    s = __fdiv_rn(size, a.top);
    return s < FLT_MIN ? FLT_MIN : s;
}

/* The code of x / scale. */
template <bool INT>
static __device__ __forceinline__ uint32_t encode(float x, float scale, float top)
{
    float v = __fdiv_rn(x, scale);

    if constexpr (INT) return (uint32_t)(int)fminf(fmaxf(rintf(v), -top), top) & 0xff;
    else return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
}

/* A slice divided, in tile order: byte 4c + i is input 2c + {0, 8, 1, 9}[i]. */
template <bool INT>
static __device__ __noinline__ uint4 divide_slice(uint4 low, uint4 high, float scale, float top,
                                                  bool is_bf16)
{
    uint4 raw[2] = {low, high};
    uint32_t words[4];

#pragma unroll
    for (int c = 0; c < 4; c++) {
        words[c] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = input_of(raw, 2 * c + i / 2 + i % 2 * 8, is_bf16);

            words[c] |= encode<INT>(x, scale, top) << 8 * i;
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Four int8 codes of v = x / scale within 4 units in the last place, |v| < 2^21; `off` becomes how
 * far the furthest is from its integer, which is right unless that is a tie, or nearly. */
static __device__ __forceinline__ uint32_t round_int8(const float *v, float *off)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded to an integer */
    uint32_t code[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = __fadd_rn(v[i], magic);

        *off = fmaxf(*off, fabsf(v[i] - (sum - magic)));
        code[i] = __float_as_uint(sum);
    }
    return __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040),
                       0x5410);
}

static __device__ __forceinline__ uint32_t e4m3_pair(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/* Likewise of E4M3. Three bits of mantissa stay; a tie has a one and zeros below them, and small
 * numbers, of which fewer stay, are left to the division. `off` becomes how far the nearest is from
 * such a number, in units in the last place less eight. */
static __device__ __forceinline__ uint32_t round_e4m3(const float *v, uint32_t *off)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t bits = __float_as_uint(v[i]);
        bool is_small = (bits << 1) - 1 < (121u << 24) - 1; /* 0 < |v| < 2^-6 */

        *off = min(*off, is_small ? 0 : ((bits + 8) & 0xfffff) - 0x80000);
    }
    return e4m3_pair(v[0], v[1]) | e4m3_pair(v[2], v[3]) << 16;
}

/* Codes of a slice in tile order. The product with 1 / scale is within 4 units in the last place
 * of the quotient, so it tells all codes that are not that close to a tie. A slice with one that is
 * gets divided, and all do where the inverse has too few bits or codes may have to be cut off. */
template <bool INT>
static __device__ __forceinline__ uint4 encode_slice(const uint4 *raw, const quantize_args &a,
                                                     float scale, float inverse)
{
    uint32_t words[4], near = ~0u;
    float far = 0;

    if (scale != scale) return make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int c = 0; c < 4; c++) {
        float v[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = input_of(raw, 2 * c + i / 2 + i % 2 * 8, a.is_bf16) * inverse;
        if constexpr (INT) words[c] = round_int8(v, &far);
        else words[c] = round_e4m3(v, &near);
    }
    if (a.is_tensor || !(scale < 0x1p125f) || (INT ? !(far < 0.49996f) : near <= 16))
        return divide_slice<INT>(raw[0], raw[1], scale, a.top, a.is_bf16);
    return make_uint4(words[0], words[1], words[2], words[3]);
}

static __device__ __forceinline__ int sum_of(uint4 codes)
{
    int sum = __dp4a((int)codes.x, 0x01010101, 0);

    sum = __dp4a((int)codes.y, 0x01010101, sum);
    sum = __dp4a((int)codes.z, 0x01010101, sum);
    return __dp4a((int)codes.w, 0x01010101, sum);
}

/* Over the CTA; `shared` holds a word a warp. */
static __device__ __forceinline__ uint32_t max_of_all(uint32_t v, uint32_t *shared)
{
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;

    v = __reduce_max_sync(~0u, v);
    if (lane == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    return __reduce_max_sync(~0u, lane < warps ? shared[lane] : 0);
}

static __device__ __forceinline__ int sum_of_all(int v, uint32_t *shared)
{
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;

    v = __reduce_add_sync(~0u, v);
    __syncthreads(); /* the maxima have been read */
    if (lane == 0) shared[threadIdx.x / 32] = (uint32_t)v;
    __syncthreads();
    return __reduce_add_sync(~0u, lane < warps ? (int)shared[lane] : 0);
}

/* Groups of 128: eight lanes find the scale of theirs. */
template <bool INT>
static __device__ __forceinline__ void by_groups(const quantize_args &a, const uint16_t *row,
                                                 uint8_t *codes)
{
    int64_t k_end = (a.stride + 511) / 512 * 512; /* whole warps */

    for (int64_t k = threadIdx.x * SLICE; k < k_end; k += (int64_t)blockDim.x * SLICE) {
        uint4 raw[2];
        uint32_t most;
        float scale;

        load_slice(raw, a, row, k);
        most = largest(raw, a.is_bf16);
        for (int d = 1; d < GROUP_LANES; d *= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
        scale = scale_of(most, a);
        if (k < a.stride)
            *(uint4 *)(codes + k) = encode_slice<INT>(raw, a, scale, __frcp_rn(scale));
        if (threadIdx.x % GROUP_LANES == 0 && k < a.k_in)
            a.scales[k / 128 * a.m + blockIdx.x] = scale;
    }
}

/* grid (tokens), a multiple of 32 threads up to 1024. HELD: slices that a thread keeps. For
 * one, of few tokens, the compiler is told that one CTA a multiprocessor will do, and takes more
 * registers; for many tokens as many CTAs as fit keep more loads in flight. */
template <bool INT, int HELD>
static __global__ void __launch_bounds__(1024, HELD == 1) swk_quantize_x(const quantize_args a)
{
    __shared__ uint32_t s_words[32];
    const uint16_t *row = a.x + blockIdx.x * a.x_stride;
    uint8_t *codes = a.codes + blockIdx.x * a.stride;
    int64_t k0 = threadIdx.x * SLICE, step = (int64_t)blockDim.x * SLICE;
    uint4 held[HELD][2], raw[2];
    uint32_t most = 0;
    float scale, inverse;
    int sum = 0;

    if (a.starts_next) sw_grid_launch_next();
    sw_grid_wait_previous();
    /* Else not before: CTAs of the next kernel that came while the one before us was running would
     * find places on some multiprocessors only, and share them. */
    sw_grid_launch_next();
    if (a.is_group) {
        by_groups<INT>(a, row, codes);
        return;
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) load_slice(held[i], a, row, k0 + i * step);
#pragma unroll
    for (int i = 0; i < HELD; i++) most = max(most, largest(held[i], a.is_bf16));
    for (int64_t k = k0 + HELD * step; k < a.k_in; k += step) {
        load_slice(raw, a, row, k);
        most = max(most, largest(raw, a.is_bf16));
    }
    most = max_of_all(most, s_words);
    scale = scale_of(most, a);
    inverse = __frcp_rn(scale);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (k0 + i * step < a.stride) {
            uint4 v = encode_slice<INT>(held[i], a, scale, inverse);

            *(uint4 *)(codes + k0 + i * step) = v;
            if (INT) sum += sum_of(v);
        }
    for (int64_t k = k0 + HELD * step; k < a.stride; k += step) {
        uint4 v;

        load_slice(raw, a, row, k);
        v = encode_slice<INT>(raw, a, scale, inverse);
        *(uint4 *)(codes + k) = v;
        if (INT) sum += sum_of(v);
    }
    if constexpr (INT) sum = sum_of_all(sum, s_words);
    if (threadIdx.x > 0) return;
    a.scales[blockIdx.x] = scale;
    if constexpr (INT) a.sums[blockIdx.x] = sum;
}

static void (*const kernels[2][2])(quantize_args) = {
    {swk_quantize_x<false, 1>, swk_quantize_x<false, 2>},
    {swk_quantize_x<true, 1>, swk_quantize_x<true, 2>},
};

static int64_t scales_of(int64_t m, int64_t k_in, const sw_act *act)
{
    return act->scope == SW_ACT_GROUP ? m * sw_cuda_up(k_in, act->group_elems) : m;
}

extern "C" size_t sw_cuda_codes_bytes(int64_t m, int64_t k_in, const sw_act *act)
{
    return sw_cuda_line_up(m * sw_cuda_codes_stride(k_in)) +
           sw_cuda_line_up(scales_of(m, k_in, act) * (int64_t)sizeof(float)) +
           sw_cuda_line_up(m * (int64_t)sizeof(int32_t));
}

extern "C" sw_cuda_codes sw_cuda_codes_at(void *d_block, int64_t m, int64_t k_in, const sw_act *act)
{
    sw_cuda_codes c;

    c.d_codes = (uint8_t *)d_block;
    c.d_scales = (float *)(c.d_codes + sw_cuda_line_up(m * sw_cuda_codes_stride(k_in)));
    c.d_sums = (int32_t *)((uint8_t *)c.d_scales +
                           sw_cuda_line_up(scales_of(m, k_in, act) * (int64_t)sizeof(float)));
    return c;
}

extern "C" sw_code sw_cuda_quantize(const sw_cuda_codes *out, const void *d_x, int64_t x_stride,
                                    sw_dtype dtype, int64_t m, int64_t k_in, const sw_act *act,
                                    float input_scale, bool may_overlap, bool starts_next,
                                    void *stream, sw_err *err)
{
    sw_cuda_inputs kind = sw_cuda_inputs_of(act);
    /* Of few tokens a slice a thread is soonest done; of many, two keep more loads in flight. */
    int held = m > MANY_TOKENS || k_in > 1024 * SLICE ? 2 : 1;
    int64_t threads = sw_cuda_up(sw_cuda_codes_stride(k_in) / SLICE, held);
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    quantize_args a = {(const uint16_t *)d_x, x_stride, k_in, sw_cuda_codes_stride(k_in), m,
                       out->d_codes, out->d_scales, out->d_sums, input_scale};

    if (kind == SW_CUDA_X_FLOAT || kind == SW_CUDA_X_NONE)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no device kernel quantizes such activations");
    if (m == 0) return SW_OK;
    a.top = act->num->top;
    a.is_bf16 = dtype == SW_DTYPE_BF16;
    a.is_aligned = (uintptr_t)d_x % 16 == 0 && x_stride % 8 == 0;
    a.is_tensor = act->scope == SW_ACT_TENSOR;
    a.is_group = act->scope == SW_ACT_GROUP;
    a.starts_next = starts_next;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)m);
    config.blockDim = dim3((unsigned)(threads < 1024 ? sw_cuda_up(threads, 32) * 32 : 1024));
    config.stream = (cudaStream_t)stream;
    config.attrs = &early;
    config.numAttrs = may_overlap;
    return sw_cuda_check(cudaLaunchKernelEx(&config, kernels[kind == SW_CUDA_X_INT8][held - 1], a),
                         "swk_quantize_x", err);
}
