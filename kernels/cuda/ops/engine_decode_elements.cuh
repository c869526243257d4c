/* engine_decode_elements.cuh - elements of a cache as products of engine_decode.cu take them. */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_DECODE_ELEMENTS_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_DECODE_ELEMENTS_CUH

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

/* Of a cache of BF16 or of codes: eight neighbours as they lie, pairs as products take them. */
template <typename T> struct elements;

template <> struct elements<sw_bf16> {
    typedef uint4 eight;
    static constexpr bool scales_queries = false;

    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
    {
        sw_mma_bf16(d, a, b[0], b[1]);
    }
    /* Elements 4 * half + {0, 1} and {2, 3}. */
    static __device__ __forceinline__ void fours(uint32_t (&b)[2], const eight &e, int half)
    {
        b[0] = half ? e.z : e.x;
        b[1] = half ? e.w : e.y;
    }
    /* Elements 2i of two rows, and 2i + 1. */
    static __device__ __forceinline__ void across(uint32_t &even, uint32_t &odd, const eight &e,
                                                  const eight &f, int i)
    {
        const uint32_t p[4] = {e.x, e.y, e.z, e.w}, r[4] = {f.x, f.y, f.z, f.w};

        even = __byte_perm(p[i], r[i], 0x5410);
        odd = __byte_perm(p[i], r[i], 0x7632);
    }
    /* Two floats rounded, and what that left of them. */
    static __device__ __forceinline__ uint32_t round(float &x, float &y)
    {
        const uint32_t two = sw_pack2(x, y);

        x -= __uint_as_float(two << 16);
        y -= __uint_as_float(two & 0xffff0000u);
        return two;
    }
};

/* Two codes as F16, which holds every one. */
static __device__ __forceinline__ uint32_t f16_of_codes(uint32_t two, const uint8_t *)
{
    const __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two, __NV_E4M3);

    return (uint32_t)h.x | (uint32_t)h.y << 16;
}

/* A code + 128 as the last bits of 1024, and 1152 taken from it. */
static __device__ __forceinline__ uint32_t f16_of_codes(uint32_t two, const int8_t *)
{
    const uint32_t beside = __byte_perm(two ^ 0x8080, 0x6464, 0x5140), base = 0x64806480;
    const __half2 h = __hsub2(*(const __half2 *)&beside, *(const __half2 *)&base);

    return *(const uint32_t *)&h;
}

/* Of codes in T. */
template <typename T> struct elements_of_codes {
    typedef uint2 eight;
    static constexpr bool scales_queries = true; /* F16 ends at 65504 */

    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
    {
        sw_mma_f16(d, a, b[0], b[1]);
    }
    static __device__ __forceinline__ uint32_t wide(uint32_t two)
    {
        return f16_of_codes(two, (const T *)NULL);
    }
    static __device__ __forceinline__ void fours(uint32_t (&b)[2], const eight &e, int half)
    {
        const uint32_t word = half ? e.y : e.x;

        b[0] = wide(word & 0xffff);
        b[1] = wide(word >> 16);
    }
    static __device__ __forceinline__ void across(uint32_t &even, uint32_t &odd, const eight &e,
                                                  const eight &f, int i)
    {
        const uint32_t p = i < 2 ? e.x : e.y, r = i < 2 ? f.x : f.y;
        const uint32_t both = __byte_perm(p, r, i % 2 ? 0x7362 : 0x5140);

        even = wide(both & 0xffff);
        odd = wide(both >> 16);
    }
    static __device__ __forceinline__ uint32_t round(float &x, float &y)
    {
        const __half2 h = __floats2half2_rn(x, y);
        const float2 two = __half22float2(h);

        x -= two.x;
        y -= two.y;
        return *(const uint32_t *)&h;
    }
};

template <> struct elements<uint8_t> : elements_of_codes<uint8_t> {};
template <> struct elements<int8_t> : elements_of_codes<int8_t> {};

#endif
