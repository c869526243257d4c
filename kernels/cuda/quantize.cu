/* quantize.cu - activations into codes, scales and sums, in the order that the kernels read.
 *
 * One CTA a token; a thread takes 16 inputs at a time, a slice of a tile's k-step, and keeps its
 * first two slices in registers between finding the scale and dividing by it. Every value is that
 * of formats/num/act.h to the bit: what a reciprocal could get wrong is divided.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <float.h>

#include "kernels/cuda/gemm_rows.h"
#include "kernels/cuda/ptx.cuh"

#define SLICE 16
#define HELD 2           /* slices that a thread keeps */
#define GROUP_LANES 8    /* lanes that share a group of 128 inputs */

struct quantize_args {
    const uint16_t *x;
    int64_t x_stride, k_in, stride, m; /* stride: bytes of a row of codes */
    uint8_t *codes;
    float *scales;
    int32_t *sums;
    float input_scale, top;
    bool is_bf16, is_aligned, is_tensor, is_group;
};

static __device__ __forceinline__ float widen(uint16_t bits, bool is_bf16)
{
    return is_bf16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}

/* 16 inputs from k on; zeros past the end. */
static __device__ __forceinline__ void load_slice(float *v, const quantize_args &a,
                                                  const uint16_t *row, int64_t k)
{
    if (a.is_aligned && k + SLICE <= a.k_in) {
        uint4 raw[2] = {*(const uint4 *)(row + k), *(const uint4 *)(row + k + 8)};
        const uint16_t *bits = (const uint16_t *)raw;

#pragma unroll
        for (int i = 0; i < SLICE; i++) v[i] = widen(bits[i], a.is_bf16);
    } else {
#pragma unroll
        for (int i = 0; i < SLICE; i++) v[i] = k + i < a.k_in ? widen(row[k + i], a.is_bf16) : 0;
    }
}

/* Magnitudes compare like their bits, and a NaN beats them all. */
static __device__ __forceinline__ uint32_t largest(const float *v)
{
    uint32_t most = 0;

#pragma unroll
    for (int i = 0; i < SLICE; i++) most = max(most, __float_as_uint(v[i]) & 0x7fffffffu);
    return most;
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

/* The code of x / scale. The product with 1 / scale is within 4 units in the last place of it, so
 * it tells the code of all that is not that close to a tie; the rest is divided. */
template <bool INT>
static __device__ __forceinline__ uint32_t encode(float x, float scale, float inverse, float top)
{
    float v = x * inverse;

    if constexpr (INT) {
        float n = rintf(v);

        if (!(fabsf(v - n) < 0.4999f)) n = rintf(__fdiv_rn(x, scale));
        return (uint32_t)(int)fminf(fmaxf(n, -top), top) & 0xff;
    }
    /* three bits of mantissa stay; a tie has a one and zeros below them. Subnormals: divide */
    if (((__float_as_uint(v) + 8) & 0xfffff) - 0x80000 <= 16 || !(fabsf(v) >= 0x1p-6f))
        v = __fdiv_rn(x, scale);
    return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
}

/* Codes of a slice in tile order; the sum of those of int8. */
template <bool INT>
static __device__ __forceinline__ int put_slice(uint8_t *to, const float *v, float scale, float top)
{
    bool is_number = scale == scale;
    /* beyond 2^125 the inverse has too few bits: NaN, which divides everything */
    float inverse = scale < 0x1p125f ? __frcp_rn(scale) : __uint_as_float(0x7fc00000u);
    int sum = 0;
    uint32_t words[4];

#pragma unroll
    for (int c = 0; c < 4; c++) {
        words[c] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t code = encode<INT>(v[2 * c + i / 2 + i % 2 * 8], scale, inverse, top);

            words[c] |= (is_number ? code : 0) << 8 * i;
            if constexpr (INT) sum += is_number ? (int)(int8_t)code : 0;
        }
    }
    *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
    return sum;
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
    float v[SLICE];

    for (int64_t k = threadIdx.x * SLICE; k < k_end; k += (int64_t)blockDim.x * SLICE) {
        uint32_t most;
        float scale;

        load_slice(v, a, row, k);
        most = largest(v);
        for (int d = 1; d < GROUP_LANES; d *= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
        scale = scale_of(most, a);
        if (k < a.stride) put_slice<INT>(codes + k, v, scale, a.top);
        if (threadIdx.x % GROUP_LANES == 0 && k < a.k_in)
            a.scales[k / 128 * a.m + blockIdx.x] = scale;
    }
}

/* grid (tokens), a multiple of 32 threads up to 1024. */
template <bool INT>
static __global__ void __launch_bounds__(1024) swk_quantize_x(const quantize_args a)
{
    __shared__ uint32_t s_words[32];
    const uint16_t *row = a.x + blockIdx.x * a.x_stride;
    uint8_t *codes = a.codes + blockIdx.x * a.stride;
    int64_t k0 = threadIdx.x * SLICE, step = (int64_t)blockDim.x * SLICE;
    float held[HELD][SLICE], v[SLICE], scale;
    uint32_t most = 0;
    int sum = 0;

    sw_grid_launch_next();
    sw_grid_wait_previous();
    if (a.is_group) {
        by_groups<INT>(a, row, codes);
        return;
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        load_slice(held[i], a, row, k0 + i * step);
        most = max(most, largest(held[i]));
    }
    for (int64_t k = k0 + HELD * step; k < a.k_in; k += step) {
        load_slice(v, a, row, k);
        most = max(most, largest(v));
    }
    most = max_of_all(most, s_words);
    scale = scale_of(most, a);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (k0 + i * step < a.stride)
            sum += put_slice<INT>(codes + k0 + i * step, held[i], scale, a.top);
    for (int64_t k = k0 + HELD * step; k < a.stride; k += step) {
        load_slice(v, a, row, k);
        sum += put_slice<INT>(codes + k, v, scale, a.top);
    }
    if constexpr (INT) sum = sum_of_all(sum, s_words);
    if (threadIdx.x > 0) return;
    a.scales[blockIdx.x] = scale;
    if constexpr (INT) a.sums[blockIdx.x] = sum;
}

static size_t line_up(size_t n_bytes) { return (n_bytes + 255) & ~(size_t)255; }

static int64_t scales_of(int64_t m, int64_t k_in, const sw_act *act)
{
    return act->scope == SW_ACT_GROUP ? m * sw_cuda_up(k_in, act->group_elems) : m;
}

extern "C" size_t sw_cuda_codes_bytes(int64_t m, int64_t k_in, const sw_act *act)
{
    return line_up((size_t)(m * sw_cuda_codes_stride(k_in))) +
           line_up((size_t)scales_of(m, k_in, act) * sizeof(float)) +
           line_up((size_t)m * sizeof(int32_t));
}

extern "C" sw_cuda_codes sw_cuda_codes_at(void *d_block, int64_t m, int64_t k_in, const sw_act *act)
{
    sw_cuda_codes c;

    c.d_codes = (uint8_t *)d_block;
    c.d_scales = (float *)(c.d_codes + line_up((size_t)(m * sw_cuda_codes_stride(k_in))));
    c.d_sums = (int32_t *)((uint8_t *)c.d_scales +
                           line_up((size_t)scales_of(m, k_in, act) * sizeof(float)));
    return c;
}

extern "C" sw_code sw_cuda_quantize(const sw_cuda_codes *out, const void *d_x, int64_t x_stride,
                                    sw_dtype dtype, int64_t m, int64_t k_in, const sw_act *act,
                                    float input_scale, bool may_overlap, void *stream, sw_err *err)
{
    sw_cuda_inputs kind = sw_cuda_inputs_of(act);
    int64_t slices = sw_cuda_codes_stride(k_in) / SLICE;
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
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)m);
    config.blockDim = dim3((unsigned)(slices < 1024 ? sw_cuda_up(slices, 32) * 32 : 1024));
    config.stream = (cudaStream_t)stream;
    config.attrs = &early;
    config.numAttrs = may_overlap;
    return sw_cuda_check(kind == SW_CUDA_X_INT8
                             ? cudaLaunchKernelEx(&config, swk_quantize_x<true>, a)
                             : cudaLaunchKernelEx(&config, swk_quantize_x<false>, a),
                         "swk_quantize_x", err);
}
