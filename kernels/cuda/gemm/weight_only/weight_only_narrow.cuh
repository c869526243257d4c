/* weight_only_narrow.cuh - codes of 2 and 3 bits, as narrow.h folds them, to the A operand.
 *
 * A code at bits `at` to `at` + 2 of a half, below a power of two whose last bit of mantissa stands
 * there, is that power + code: so a code need not be moved to the low end, and one shift serves
 * several registers. What is subtracted is the zero point at the same place below the same power.
 * Of BF16 a code must end within 7 bits, of F16 within 10.
 *
 * Instructions for the 8 codes of a word of 4 bits: 3 shifts, 4 lop3, 4 subtractions. Here 2 bits
 * take 2 and 8, 3 bits 4 and 9; of a pair of rows (weight_only_pairs.cuh) 1.5 and 8, 2.5 and 9.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_NARROW_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_NARROW_CUH

#include "kernels/cuda/gemm/any_device/mma_decode.cuh"
#include "kernels/cuda/gemm/weight_only/weight_only_copy.cuh"

template <bool BF16> __device__ __forceinline__ uint32_t nw_subtract(uint32_t a, uint32_t b)
{
    uint32_t d;

    if constexpr (BF16) asm volatile("sub.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    else asm volatile("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* In both halves the power of two whose mantissa ends at bit `at`. */
template <bool BF16> __host__ __device__ constexpr uint32_t nw_power(int at)
{
    return mma_const<BF16>::magic - (uint32_t)at * (BF16 ? 0x00800080u : 0x04000400u);
}

/* The codes of both halves at bit `at` of `word`, less those of `zero`, which has the power. */
template <int KIND, bool BF16>
__device__ __forceinline__ uint32_t nw_codes_at(uint32_t word, int at, uint32_t zero)
{
    const uint32_t mask = KIND == NW_INT4 ? 0x000f000fu : KIND == NW_INT3 ? 0x00070007u
                                                                          : 0x00030003u;

    return nw_subtract<BF16>(sw_and_or(word, mask << at, nw_power<BF16>(at)), zero);
}

/* A zero point for codes at bit `at`: byte `half` of `pair`, or the middle of the format. */
template <int KIND, bool BF16, bool ZEROS>
__device__ __forceinline__ uint32_t nw_zero_at(uint32_t pair, int half, int at)
{
    const uint32_t middle = KIND == NW_INT4 ? 8 : KIND == NW_INT3 ? 4 : 2;

    if constexpr (!ZEROS) return nw_power<BF16>(at) | (middle << at) * 0x10001u;
    return __byte_perm(pair << at, nw_power<BF16>(at), half ? 0x5151 : 0x5050);
}

/* Where `mask` has a bit the bit of a, elsewhere that of b. */
__device__ __forceinline__ uint32_t nw_select(uint32_t a, uint32_t b, uint32_t mask)
{
    uint32_t v;

    asm volatile("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(v) : "r"(a), "r"(b), "r"(mask));
    return v;
}

/* `low` and `third` bits of this warp's codes to where a tile of 4 bits has them; what stands
 * between the codes is not cleared. */
template <int KIND>
__device__ __forceinline__ uint32_t nw_unfold(uint32_t low, uint32_t third, uint32_t warp)
{
    low >>= warp / 2 * 2;
    if constexpr (KIND == NW_INT2) return low;
    return nw_select(low, __funnelshift_l(third, third, 2 - warp), 0x33333333u);
}

/* The four registers of a k-step out of such a word. */
template <int KIND, bool BF16>
__device__ __forceinline__ void nw_narrow_step(uint32_t *frag, uint32_t word, const uint32_t *zero)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        frag[j] = nw_codes_at<KIND, BF16>(j < 2 ? word : word >> 8, 4 * (j & 1), zero[j & 1]);
}

/* Words of this lane for the k-steps of a batch: low bits, then of 3 bits the third ones. `from`:
 * the tile in the stage, `first` its first word of the lane's four. */
template <class P>
__device__ __forceinline__ void nw_narrow_words(uint32_t *w, uint32_t from, int first)
{
    uint32_t warp = threadIdx.x % 128 / 32, lane_at = threadIdx.x % 32 * 16 + (uint32_t)first * 4;

#pragma unroll
    for (int plane = 0; plane < (P::KIND == NW_INT3 ? 2 : 1); plane++) {
        uint32_t at = from + (plane ? 2 : warp % 2) * NW_PLANE_BYTES + lane_at;

        if constexpr (P::steps == 4) {
            uint4 v = sw_shared16(at);

            w[4 * plane] = v.x, w[4 * plane + 1] = v.y, w[4 * plane + 2] = v.z;
            w[4 * plane + 3] = v.w;
        } else {
            uint2 v = sw_shared8(at);

            w[2 * plane] = v.x, w[2 * plane + 1] = v.y;
        }
    }
}

/* A batch of them to the A operand, before scales. */
template <class P>
__device__ __forceinline__ void nw_narrow_batch(uint32_t *frag, const uint32_t *words,
                                                uint32_t zeros)
{
    uint32_t zero[2] = {nw_zero_at<P::KIND, P::BF16, P::ZEROS>(zeros, 0, 0),
                        nw_zero_at<P::KIND, P::BF16, P::ZEROS>(zeros, 1, 4)};

#pragma unroll
    for (int s = 0; s < P::steps; s++) {
        uint32_t third = P::KIND == NW_INT3 ? words[P::steps + s] : 0;

        nw_narrow_step<P::KIND, P::BF16>(
            frag + 4 * s, nw_unfold<P::KIND>(words[s], third, threadIdx.x % 128 / 32), zero);
    }
}

#endif
