/* weight_only_e2m1.cuh - phase 2 of the weight-only kernels for E2M1 weights with scales of 32
 * (E8M0) or 16 inputs (E4M3): a lane's codes of a batch of four k-steps to the A operand in BF16.
 *
 * The bits of a code stand where the low ones of the exponent and the high one of the mantissa of a
 * BF16 are, which is its value times 2^-126, also below one. One product with the scale, in which
 * the rest of the power is, gives value * scale * nw_e2m1_unit: exactly, as neither has more than
 * four bits, for scales of 2^-61 to 2^65 (E8M0) and all of E4M3 that have no sign.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_E2M1_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_E2M1_CUH

#include "kernels/cuda/ptx/ptx.cuh"

/* What the operand is to be divided by: 2^-64 and 2^-8. */
template <int SCALE_K>
constexpr float nw_e2m1_unit = SCALE_K == 32 ? 0x1p-64f : 0x1p-8f;

/* The bytes of a lane's two channels for the groups of k-tile `in_row` of the stage, at `slot` of
 * records of 64 bytes. */
template <int SCALE_K>
__device__ __forceinline__ void nw_e2m1_scales(uint32_t *bytes, uint32_t records, int in_row,
                                               uint32_t slot)
{
#pragma unroll
    for (int g = 0; g < 64 / SCALE_K; g++) {
        uint16_t two;

        asm volatile("ld.shared.u16 %0, [%1];"
                     : "=h"(two)
                     : "r"(records + (uint32_t)(in_row * (64 / SCALE_K) + g) * 64 + slot));
        bytes[g] = two;
    }
}

__device__ __forceinline__ uint32_t nw_e2m1_times(uint32_t a, uint32_t b)
{
    uint32_t d;

    asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* What the codes of two channels are multiplied by, as BF16 pairs alike in both halves: from the
 * bytes of an E8M0 group, 2^(e - 127 + 126 - 64); */
__device__ __forceinline__ void nw_e2m1_powers(uint32_t factor[2], uint32_t bytes)
{
    const uint32_t both = __byte_perm(bytes, 0, 0x3130) * 128 + 62 * 0x00800080u;

    factor[0] = __byte_perm(both, 0, 0x1010);
    factor[1] = __byte_perm(both, 0, 0x3232);
}

/* from those of two E4M3 groups, whose bits in BF16 are 2^-120 of them and must become
 * 2^(126 - 8). */
__device__ __forceinline__ void nw_e2m1_two_scales(uint32_t factor[2][2], uint32_t first,
                                                   uint32_t second)
{
#pragma unroll
    for (int channel = 0; channel < 2; channel++) {
        uint32_t both = __byte_perm(first, second, channel ? 0x3531 : 0x3430) * 16;

        both = nw_e2m1_times(nw_e2m1_times(both, 0x7b807b80u), 0x7a807a80u);
        factor[0][channel] = __byte_perm(both, 0, 0x1010);
        factor[1][channel] = __byte_perm(both, 0, 0x3232);
    }
}

/* The bits of two codes where they are those of BF16, others beside them, times the scale of their
 * channel. */
__device__ __forceinline__ uint32_t nw_e2m1_pair(uint32_t bits, uint32_t factor)
{
    return nw_e2m1_times(bits & 0x81c081c0u, factor);
}

/* The four registers of a k-step: codes j and j + 4 of its word, whose bits lie as e2m1_tiles.h
 * says. Those of the last are apart enough for a product with three powers to bring each to its
 * place: no sum of what it makes has a carry there. */
__device__ __forceinline__ void nw_e2m1_step(uint32_t *frag, uint32_t word,
                                             const uint32_t factor[2])
{
    const uint32_t by6 = __funnelshift_l(word, word, 6);

    frag[0] = nw_e2m1_pair(word, factor[0]);
    frag[1] = nw_e2m1_pair(__funnelshift_l(word, word, 3), factor[1]);
    frag[2] = nw_e2m1_pair(by6, factor[0]);
    frag[3] = nw_e2m1_pair((by6 & 0x001b001bu) * 0x4108u, factor[1]);
}

template <int SCALE_K, int STEPS>
__device__ __forceinline__ void nw_e2m1_batch(uint32_t *frag, const uint32_t *words,
                                              const uint32_t *bytes)
{
    static_assert(STEPS == 4, "a batch has the inputs of a tile");
#pragma unroll
    for (int s = 0; s < STEPS; s += 2) {
        uint32_t factor[2][2];

        if constexpr (SCALE_K == 32) {
            nw_e2m1_powers(factor[0], bytes[s / 2]);
            factor[1][0] = factor[0][0], factor[1][1] = factor[0][1];
        } else {
            nw_e2m1_two_scales(factor, bytes[s], bytes[s + 1]);
        }
        nw_e2m1_step(frag + 4 * s, words[s], factor[0]);
        nw_e2m1_step(frag + 4 * s + 4, words[s + 1], factor[1]);
    }
}

#endif
