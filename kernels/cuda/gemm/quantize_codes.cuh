/* quantize_codes.cuh - inputs of X to scales and codes, a slice of 16 at a time: a tile's k-step.
 *
 * Every value is that of formats/num/act.h to the bit, whose quotients are rounded once. What a
 * product with the rounded inverse of the scale makes of that is at times its neighbour, but one
 * step of Newton's iteration on what is left of x, which a fused multiply-add has exactly, sets it
 * right (P. Markstein, IBM J. Res. Dev. 34, 1990): of all mantissas that scales have with all that
 * BF16 and F16 have, 2^30 and 2^33 pairs, none differs, and tests/gpu/test_quantizers.c holds it to
 * division. Three instructions instead of a dozen and a branch.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZE_CODES_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZE_CODES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <float.h>

#define SLICE 16
#define GROUP_LANES 8 /* lanes that share a group of 128 inputs */

struct quantize_args {
    const uint16_t *x;
    int64_t x_stride, m;
    uint32_t k_in, stride; /* stride: bytes of a row of codes */
    uint8_t *codes;
    float *scales;
    int32_t *sums;
    float input_scale, top;
    int tokens, warps; /* of a CTA, of a token */
    bool is_aligned, is_tensor, starts_next;
};

/* The higher or the lower half of a word, widened. */
template <bool BF16, bool HIGH>
static __device__ __forceinline__ float widen(uint32_t word)
{
    if constexpr (BF16) return __uint_as_float(HIGH ? word & 0xffff0000u : word << 16);
    else return __half2float(__ushort_as_half((uint16_t)(HIGH ? word >> 16 : word)));
}

/* 16 inputs from k on, as they are; zeros past the end. Rows are aligned and halves of a slice are
 * there or not. */
static __device__ __forceinline__ void load_halves(uint4 *raw, const quantize_args &a,
                                                   const uint16_t *row, uint32_t k)
{
    raw[0] = raw[1] = make_uint4(0, 0, 0, 0);
    if (k < a.k_in) raw[0] = *(const uint4 *)(row + k);
    if (k + 8 < a.k_in) raw[1] = *(const uint4 *)(row + k + 8);
}

/* The same of any row. */
static __device__ __forceinline__ void load_any(uint4 *raw, const quantize_args &a,
                                                const uint16_t *row, uint32_t k)
{
    if (a.is_aligned && k + SLICE <= a.k_in) {
        raw[0] = *(const uint4 *)(row + k);
        raw[1] = *(const uint4 *)(row + k + 8);
    } else {
        uint32_t *words = (uint32_t *)raw;

#pragma unroll
        for (uint32_t i = 0; i < SLICE / 2; i++) {
            uint32_t low = k + 2 * i < a.k_in ? row[k + 2 * i] : 0;
            uint32_t high = k + 2 * i + 1 < a.k_in ? row[k + 2 * i + 1] : 0;

            words[i] = low | high << 16;
        }
    }
}

/* Input i (0..15) of a slice, where i is a constant. */
template <bool BF16>
static __device__ __forceinline__ float input_of(const uint4 *raw, int i)
{
    uint32_t word = ((const uint32_t *)raw)[i / 2];

    return i % 2 ? widen<BF16, true>(word) : widen<BF16, false>(word);
}

/* Magnitudes compare like their bits, 16 of them and as floats, and a NaN beats them all. The
 * largest of `most` and of a slice, of even and of odd inputs. */
static __device__ __forceinline__ uint32_t larger(uint32_t most, const uint4 *raw)
{
    const uint32_t *words = (const uint32_t *)raw;

#pragma unroll
    for (int i = 0; i < SLICE / 2; i++) most = __vmaxu2(most, words[i] & 0x7fff7fffu);
    return most;
}

/* The larger of both, as a float's bits. */
template <bool BF16> static __device__ __forceinline__ uint32_t largest_of(uint32_t pair)
{
    return __float_as_uint(widen<BF16, false>(max(pair & 0xffff, pair >> 16)));
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

/* How the codes of inputs up to `most` are had: by quotients that need no division, since what
 * products leave of x is not rounded; by these, of which the largest int8 are cut off (E4M3 are by
 * their conversion); by division. */
typedef enum quantize_how { BY_QUOTIENTS, BY_QUOTIENTS_CUT, BY_DIVISION } quantize_how;

template <bool INT>
static __device__ __forceinline__ quantize_how how_of(float scale, float inverse, uint32_t most)
{
    float size = __fmul_rn(__uint_as_float(most), inverse);

    if (!(scale >= 0x1p-80f && scale < 0x1p125f && size <= 0x1p20f)) return BY_DIVISION;
    return INT && size > 127.25f ? BY_QUOTIENTS_CUT : BY_QUOTIENTS;
}

/* x / scale rounded once, unless by division. Signs of zeros stay. */
static __device__ __forceinline__ float quotient(float x, float scale, float inverse)
{
    float q = __fmul_rn(x, inverse);

    return __fmaf_rn(__fmaf_rn(q, scale, -x), -inverse, q);
}

/* Four codes of v, |v| < 2^21. */
static __device__ __forceinline__ uint32_t round_int8(const float *v)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded to an integer */
    uint32_t code[4];

#pragma unroll
    for (int i = 0; i < 4; i++) code[i] = __float_as_uint(__fadd_rn(v[i], magic));
    return __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040),
                       0x5410);
}

static __device__ __forceinline__ uint32_t round_e4m3(const float *v)
{
    uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, __NV_E4M3);
    uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(v[2], v[3]), __NV_SATFINITE, __NV_E4M3);

    return low | high << 16;
}

/* Which input of a slice stands at its byte i: sw_cuda_codes_stride has the order. */
static __device__ __forceinline__ constexpr int input_at(int i)
{
    return i / 4 * 2 + i / 2 % 2 + i % 2 * 8;
}

/* Codes of a slice in tile order by quotients. */
template <bool INT, bool BF16, bool CUT>
static __device__ __forceinline__ uint4 encode_slice(const uint4 *raw, float scale, float inverse)
{
    uint32_t words[4];

#pragma unroll
    for (int c = 0; c < 4; c++) {
        float v[4];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = quotient(input_of<BF16>(raw, input_at(4 * c + i)), scale, inverse);
            if (CUT) v[i] = fminf(fmaxf(v[i], -127.0f), 127.0f);
        }
        if constexpr (INT) words[c] = round_int8(v);
        else words[c] = round_e4m3(v);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The code of x / scale, with any scale: 0 where it is NaN or not above 0. */
template <bool INT>
static __device__ __forceinline__ uint32_t divide(float x, float scale, float top)
{
    float v = __fdiv_rn(x, scale);

    if (!(scale > 0)) return 0;
    if constexpr (INT) return (uint32_t)(int)fminf(fmaxf(rintf(v), -top), top) & 0xff;
    else return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
}

/* A slice with any scale, an input at a time: rare, so that it is to take few registers. The sum
 * of its codes, as signed bytes. */
template <bool INT, bool BF16>
static __device__ __forceinline__ int divide_slice(uint8_t *codes, const quantize_args &a,
                                                   const uint16_t *row, uint32_t k, float scale)
{
    int sum = 0;

#pragma unroll 1
    for (int i = 0; i < SLICE; i++) {
        uint32_t at = k + (uint32_t)input_at(i);
        float x = at < a.k_in ? widen<BF16, false>(row[at]) : 0.0f;
        uint32_t code = divide<INT>(x, scale, a.top);

        codes[k + (uint32_t)i] = (uint8_t)code;
        sum += (int8_t)code;
    }
    return sum;
}

static __device__ __forceinline__ int sum_of(uint4 codes)
{
    int sum = __dp4a((int)codes.x, 0x01010101, 0);

    sum = __dp4a((int)codes.y, 0x01010101, sum);
    sum = __dp4a((int)codes.z, 0x01010101, sum);
    return __dp4a((int)codes.w, 0x01010101, sum);
}

/* ---- over warps that share a token ---- */

/* Of a value in each lane of a warp, in all of them: the largest, the sum. */
struct warp_largest {
    static __device__ __forceinline__ uint32_t of(uint32_t v) { return __reduce_max_sync(~0u, v); }
};

struct warp_sum {
    static __device__ __forceinline__ int of(int v) { return __reduce_add_sync(~0u, v); }
};

/* A word a warp of the CTA: this warp's, then, when all have met, what OF makes of those of its
 * team, one of several of n_warps each, in all lanes. Counts are of one type, their caller's. */
template <typename T, typename COUNT>
static __device__ __forceinline__ void put_of_warp(T *shared, COUNT lane, T v)
{
    if (lane == 0) shared[threadIdx.x / 32] = v;
}

template <typename OF, typename T, typename COUNT>
static __device__ __forceinline__ T over_warps(const T *shared, const COUNT &lane, COUNT team,
                                               const COUNT &n_warps)
{
    return OF::of(lane < n_warps ? shared[team * n_warps + lane] : 0);
}

#endif
