/* weight_only_e2m1.cuh - phase 2 of the weight-only kernels for E2M1 weights with scales of 32
 * (E8M0) or 16 inputs (E4M3): a lane's codes of a batch of two k-steps to the A operand in BF16.
 *
 * The bits of a code stand where the low ones of the exponent and the high one of the mantissa of a
 * BF16 are, which is its value times 2^-126, also below one. One product with the scale, in which
 * the rest of the power is, gives value * scale * nw_e2m1_unit: exactly, as neither has more than
 * four bits, for scales of 2^-61 to 2^65 (E8M0) and all of E4M3.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_E2M1_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_E2M1_CUH

#include "kernels/cuda/ptx/ptx.cuh"

/* What the operand is to be divided by: 2^-64 and 2^-8. */
template <int SCALE_K>
constexpr float nw_e2m1_unit = SCALE_K == 32 ? 0x1p-64f : 0x1p-8f;

/* The bytes of a lane's two channels for batch `in_row` of the stage, at `slot` of records of 64
 * bytes: of one group, or of two, the second in the high half. */
template <int SCALE_K>
__device__ __forceinline__ uint32_t nw_e2m1_scales(uint32_t records, int in_row, uint32_t slot)
{
    const uint32_t at = records + (uint32_t)in_row * (32 / SCALE_K) * 64 + slot;
    uint16_t low, high = 0;

    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(low) : "r"(at));
    if (SCALE_K == 16) asm volatile("ld.shared.u16 %0, [%1];" : "=h"(high) : "r"(at + 64));
    return low | (uint32_t)high << 16;
}

__device__ __forceinline__ uint32_t nw_e2m1_times(uint32_t a, uint32_t b)
{
    uint32_t d;

    asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Two bytes, of two channels, to BF16 pairs of each: what its codes are multiplied by. */
template <int SCALE_K>
__device__ __forceinline__ void nw_e2m1_factors(uint32_t *factor, uint32_t bytes)
{
    const uint32_t apart = (bytes & 0xff) | (bytes & 0xff00) << 8;
    uint32_t both;

    if constexpr (SCALE_K == 32) {
        both = (apart << 7) + 62 * 0x00800080u; /* 2^(e - 127 + 126 - 64) */
    } else {
        /* the bits of E4M3 in BF16 are 2^-120 of it, which must become 2^(126 - 8) */
        both = (apart & 0x007f007f) << 4 | (apart & 0x00800080) << 8;
        both = nw_e2m1_times(nw_e2m1_times(both, 0x7b807b80u), 0x7a807a80u);
    }
    factor[0] = __byte_perm(both, 0, 0x1010);
    factor[1] = __byte_perm(both, 0, 0x3232);
}

/* Register j of a k-step: the nibbles j and j + 4 of the word, times the scale of its channel. */
template <int J>
__device__ __forceinline__ uint32_t nw_e2m1_pair(uint32_t word, uint32_t factor)
{
    constexpr int up = 6 - 4 * J;
    const uint32_t size = up > 0 ? word << (up & 31) : word >> (-up & 31);
    const uint32_t sign = word << (12 - 4 * J);

    return nw_e2m1_times(sw_and_or(size, 0x01c001c0u, sign & 0x80008000u), factor);
}

template <int SCALE_K, int STEPS>
__device__ __forceinline__ void nw_e2m1_batch(uint32_t *frag, const uint32_t *words,
                                              uint32_t scales)
{
    uint32_t factor[2];

    static_assert(STEPS == 2, "a batch has the inputs of one group of 32");
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        if (s == 0 || SCALE_K == 16) nw_e2m1_factors<SCALE_K>(factor, scales >> 16 * s);
        frag[4 * s] = nw_e2m1_pair<0>(words[s], factor[0]);
        frag[4 * s + 1] = nw_e2m1_pair<1>(words[s], factor[1]);
        frag[4 * s + 2] = nw_e2m1_pair<2>(words[s], factor[0]);
        frag[4 * s + 3] = nw_e2m1_pair<3>(words[s], factor[1]);
    }
}

#endif
