/* mma_decode.cuh - codes of a tile to the A operand of mma.sync: registers of 16-bit floats or of
 * four bytes each. Every value is exact; see tiles.h for who owns which code. sm_80 and later.
 */
#ifndef SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_DECODE_CUH
#define SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_DECODE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/gemm/any_device/mma_args.h"
#include "kernels/cuda/ptx/ptx.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

/* a * b + c on pairs. */
template <bool BF16>
__device__ __forceinline__ uint32_t mma_fma2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;

    if constexpr (BF16) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    else asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

template <bool BF16> struct mma_const {
    static constexpr uint32_t one = BF16 ? 0x3f803f80u : 0x3c003c00u;
    static constexpr uint32_t magic = BF16 ? 0x43004300u : 0x64006400u; /* 128 and 1024 */
};

/* 4 bits: j = 0, 1, 2, 3 are channels g, g+8, g, g+8; the value is 128 (f16: 1024) + code, which
 * the sum of X times that and the zero point takes off again: one instruction a pair less. */
template <bool BF16> __device__ __forceinline__ void mma_int4(uint32_t *a, uint32_t word)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        a[j] = sw_and_or(word >> (4 * j), 0x000f000fu, mma_const<BF16>::magic);
}

/* Bytes 0 and 2 of `word` to a pair code - 128, for any code: in bf16 the low seven bits above 128
 * less 256 or 128 as the top bit says; f16 has the bits to take the code whole. */
template <bool BF16> __device__ __forceinline__ uint32_t mma_byte_pair(uint32_t word)
{
    if constexpr (BF16) {
        uint32_t low = sw_and_or(word, 0x007f007fu, mma_const<BF16>::magic);
        uint32_t less = (word & 0x00800080u) ^ 0xc380c380u; /* -256, or -128 with the top bit */

        return mma_fma2<BF16>(low, mma_const<BF16>::one, less);
    }
    /* 1024 + code - 1152 */
    return mma_fma2<BF16>(sw_and_or(word, 0x00ff00ffu, mma_const<BF16>::magic),
                          mma_const<BF16>::one, 0xe480e480u);
}

/* 8 bits, words of channels g and g+8: the value is code - 128. */
template <bool BF16> __device__ __forceinline__ void mma_int8(uint32_t *a, const uint32_t *words)
{
#pragma unroll
    for (int j = 0; j < 4; j++) a[j] = mma_byte_pair<BF16>(words[j & 1] >> (j / 2 * 8));
}

/* E4M3 as a 16-bit float: its bits stand where the wider exponent's low ones are; bf16 is scaled
 * up by 2^120, f16 stays 2^-8 of the value, which mma_finish makes good. */
template <bool BF16>
__device__ __forceinline__ void mma_e4m3(uint32_t *a, const uint32_t *words)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t high = j / 2 ? words[j & 1] : words[j & 1] << 8, sign = high & 0x80008000u;

        if constexpr (BF16)
            a[j] = mma_fma2<BF16>(sw_and_or(high >> 4, 0x07f007f0u, sign), 0x7b807b80u,
                                  0x80008000u);
        else a[j] = sw_and_or(high >> 1, 0x3f803f80u, sign);
    }
}

/* Two words of 4-bit codes to bytes 16 * (code - 8). */
__device__ __forceinline__ void mma_int4_bytes(uint32_t *a, const uint32_t *words)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        a[j] = ((j % 2 ? words[j / 2] : words[j / 2] << 4) & 0xf0f0f0f0u) ^ 0x80808080u;
}

/* Words of a lane that one product step takes, and the steps of a unit of 8 words. */
template <int KIND> struct mma_step {
    static constexpr bool is_integer = KIND == MMA_INT4_INT8 || KIND == MMA_INT8_INT8;
    static constexpr int words = KIND == MMA_INT4_FLOAT ? 1 : KIND == MMA_INT8_INT8 ? 4 : 2;
    static constexpr int per_unit = 8 / words;
    static constexpr int unit_k = KIND == MMA_INT4_FLOAT || KIND == MMA_INT4_INT8 ? 128 : 64;
    /* what is multiplied is factor * (code - zero_here) */
    static constexpr int factor = KIND == MMA_INT4_INT8 ? 16 : 1;
    static constexpr int zero_bf16 =
        KIND == MMA_INT4_FLOAT ? -128 : KIND == MMA_INT4_INT8 ? 8 : 128;
    static constexpr int zero_f16 = KIND == MMA_INT4_FLOAT ? -1024 : zero_bf16;
};

template <int KIND, bool BF16>
__device__ __forceinline__ void mma_decode(uint32_t *a, const uint32_t *words)
{
    if constexpr (KIND == MMA_INT4_FLOAT) mma_int4<BF16>(a, words[0]);
    else if constexpr (KIND == MMA_INT8_FLOAT) mma_int8<BF16>(a, words);
    else if constexpr (KIND == MMA_E4M3_FLOAT) mma_e4m3<BF16>(a, words);
    else if constexpr (KIND == MMA_INT4_INT8) mma_int4_bytes(a, words);
    else
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] = words[j] ^ 0x80808080u;
}

/* Ones as the A operand, whose products are sums of X. */
template <int KIND, bool BF16> __device__ __forceinline__ void mma_ones(uint32_t *a)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        a[j] = mma_step<KIND>::is_integer ? 0x01010101u : mma_const<BF16>::one;
}

__device__ __forceinline__ void mma_product(float *d, const uint32_t *a, uint32_t b0, uint32_t b1,
                                            bool is_bf16)
{
    if (is_bf16)
        sw_mma_bf16(d, a, b0, b1);
    else
        sw_mma_f16(d, a, b0, b1);
}

__device__ __forceinline__ void mma_product(int *d, const uint32_t *a, uint32_t b0, uint32_t b1,
                                            bool)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
