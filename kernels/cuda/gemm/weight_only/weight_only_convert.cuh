/* weight_only_convert.cuh - phase 2 of the weight-only kernels: a lane's codes of a batch to the A
 * operand.
 *
 * All of it is volatile, or held where it ends: else the compiler moves it behind the wait for
 * products that it is to hide.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_CONVERT_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_CONVERT_CUH

#include "kernels/cuda/gemm/weight_only/weight_only_e2m1.cuh"
#include "kernels/cuda/gemm/weight_only/weight_only_narrow.cuh"

template <bool BF16> __device__ __forceinline__ uint32_t nw_times(uint32_t a, uint32_t b)
{
    uint32_t d;

    if constexpr (BF16) asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    else asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* a * b + c of pairs of BF16. */
__device__ __forceinline__ uint32_t nw_times_less(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;

    asm volatile("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

__device__ __forceinline__ uint32_t nw_shared16(uint32_t addr)
{
    uint16_t v;

    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(addr));
    return v;
}

/* Pair of channels of this lane in a record. */
__device__ __forceinline__ uint32_t nw_slot(void)
{
    return threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4;
}

/* Words of this lane for the k-steps of batch `in_row` of tile `tile`. */
template <class P>
__device__ __forceinline__ void nw_words(uint32_t *w, uint32_t stage, int tile, int in_row)
{
    uint32_t of_tile = stage + P::w_at +
                       (tile * NW_STAGE_TILES + in_row / P::per_tile) * P::tile_blocks *
                           P::block_bytes;
    uint32_t from = of_tile + threadIdx.x % 128 * 16;

    if constexpr (nw_is_narrow(P::KIND)) {
        nw_narrow_words<P>(w, of_tile, in_row % P::per_tile * 2);
    } else if constexpr (P::KIND != NW_INT4 && P::KIND != NW_E2M1) {
#pragma unroll
        for (int i = 0; i < P::steps / 2; i++) {
            uint4 v = sw_shared16(from + (in_row % P::per_tile + i) * NW_BLOCK_BYTES);

            w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
        }
    } else if constexpr (P::steps == 4) {
        uint4 v = sw_shared16(from);

        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
        uint2 v = sw_shared8(from + in_row % P::per_tile * 8);

        w[0] = v.x, w[1] = v.y;
    }
}

/* Groups of inputs in a batch, that have scales of their own. */
template <class P> constexpr int nw_batch_groups(void)
{
    if constexpr (P::KIND == NW_E2M1) return P::steps * 16 / P::SCALE_K;
    else return 1;
}

/* A batch as a lane finds it in a stage: codes, zero points and scales of its two channels. */
template <class P> struct nw_raw {
    uint32_t words[P::steps * (P::KIND == NW_INT3 ? 2 : P::tile_blocks)], zeros;
    uint32_t scales[nw_batch_groups<P>()];
};

/* Batch b of the stage at `stage`, of the warpgroup whose first tile is tile0. It needs no product
 * to have ended, so it comes before the wait for one. */
template <class P>
__device__ __forceinline__ nw_raw<P> nw_fetch(int b, uint32_t stage, int tile0)
{
    int tile = tile0 + b / P::per_row, in_row = b % P::per_row;
    int record = tile * P::GPS + in_row / P::per_group;
    nw_raw<P> raw = {};

    nw_words<P>(raw.words, stage, tile, in_row);
    if constexpr (P::ZEROS) raw.zeros = nw_shared16(stage + P::z_at + record * 64 + 2 * nw_slot());
    if constexpr (P::KIND == NW_E2M1)
        nw_e2m1_scales<P::SCALE_K>(raw.scales, stage + P::s_at + tile * P::record_room, in_row,
                                   2 * nw_slot());
    else if constexpr (P::MODE == NW_SCALED)
        raw.scales[0] = sw_shared4(stage + P::s_at + record * 128 + 4 * nw_slot());
    return raw;
}

/* What is taken off in a lane's two channels: of 4 bits magic | zero, of 8 bits zero - 128. */
template <class P> __device__ __forceinline__ void nw_zeros(uint32_t *zero, uint32_t codes)
{
    constexpr uint32_t magic = mma_const<P::BF16>::magic;

    zero[0] = zero[1] = P::KIND == NW_INT4 ? magic + 0x00080008u : 0;
    if constexpr (P::ZEROS) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t code = codes >> 8 * h & 0xff;

            zero[h] = P::KIND == NW_INT4 ? magic | code * 0x10001u
                                         : mma_byte_pair<P::BF16>(code * 0x10001u);
        }
    }
}

/* The four registers of k-step s. */
template <class P>
__device__ __forceinline__ void nw_convert(uint32_t *frag, const uint32_t *words, int s,
                                           const uint32_t *zero)
{
    if constexpr (P::KIND == NW_INT4) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            frag[j] = nw_subtract<P::BF16>(
                sw_and_or(words[s] >> (4 * j), 0x000f000fu, mma_const<P::BF16>::magic),
                zero[j & 1]);
        return;
    }
    if constexpr (P::KIND == NW_INT8) mma_int8<P::BF16>(frag, words + 2 * s);
    else mma_e4m3<P::BF16>(frag, words + 2 * s);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (P::ZEROS) frag[j] = nw_subtract<P::BF16>(frag[j], zero[j & 1]);
        else asm volatile("" : "+r"(frag[j]));
}

/* Multiply a batch by the scales of its group, each channel's in both halves. */
template <class P> __device__ __forceinline__ void nw_scale_batch(uint32_t *frag, uint32_t pair)
{
    uint32_t scale[2] = {__byte_perm(pair, 0, 0x1010), __byte_perm(pair, 0, 0x3232)};

#pragma unroll
    for (int i = 0; i < 4 * P::steps; i++) frag[i] = nw_times<P::BF16>(frag[i], scale[i & 1]);
}

/* P::FUSED, of symmetric int4 in BF16 with its scales: a code is where it lies the bits of a BF16,
 * 2^-133 times it in bits 0 to 3 of a half and 2^-129 times in 4 to 7, whose upper one continues
 * the subnormals. So one product and sum makes (code - 8) * scale * NW_FUSED_UNIT of it, rounded
 * once, as 8 scales are exact: 9 instructions for 8 weights, not 15 as with a subtraction and a
 * product. Not for every scale: those from 2^43 on overflow, and weights below 2^-78 become
 * multiples of 2^-85. Of SW_USUAL_SCALE_MIN to SW_USUAL_SCALE_END weights are the same as without;
 * so are sums from 2^-78 on. */
#define NW_FUSED_UNIT 0x1p-48f
#define NW_FUSED_LOW 0x6a006a00u  /* 2^(133 - 48), twice */
#define NW_FUSED_HIGH 0x68006800u /* 2^(129 - 48) */
#define NW_FUSED_LESS 0xa900a900u /* -8 * 2^-48 */

template <class P>
__device__ __forceinline__ void nw_fused_batch(uint32_t *frag, const uint32_t *words, uint32_t pair)
{
    static_assert(P::KIND == NW_INT4 && P::MODE == NW_SCALED && P::BF16 && !P::ZEROS, "see above");
    const uint32_t scale[2] = {__byte_perm(pair, 0, 0x1010), __byte_perm(pair, 0, 0x3232)};
    const uint32_t by[2] = {nw_times<true>(scale[0], NW_FUSED_LOW),
                            nw_times<true>(scale[1], NW_FUSED_HIGH)};
    const uint32_t less[2] = {nw_times<true>(scale[0], NW_FUSED_LESS),
                              nw_times<true>(scale[1], NW_FUSED_LESS)};

#pragma unroll
    for (int i = 0; i < 4 * P::steps; i++)
        frag[i] = nw_times_less(words[i / 4] >> (i & 2 ? 8 : 0) &
                                    (i & 1 ? 0x00f000f0u : 0x000f000fu),
                                by[i & 1], less[i & 1]);
}

/* The same in the mode NW_GROUPS: code - 8 times NW_WHOLE_UNIT, which is exact, in 9 instructions
 * for 8 weights and not 11. */
#define NW_WHOLE_UNIT 0x1p-6f
#define NW_WHOLE_LOW 0x7f007f00u  /* 2^(133 - 6), twice */
#define NW_WHOLE_HIGH 0x7d007d00u /* 2^(129 - 6) */
#define NW_WHOLE_LESS 0xbe00be00u /* -8 * 2^-6 */

template <class P>
__device__ __forceinline__ void nw_whole_batch(uint32_t *frag, const uint32_t *words)
{
    static_assert(P::KIND == NW_INT4 && P::MODE == NW_GROUPS && P::BF16 && !P::ZEROS, "see above");
#pragma unroll
    for (int i = 0; i < 4 * P::steps; i++)
        frag[i] = nw_times_less(words[i / 4] >> (i & 2 ? 8 : 0) &
                                    (i & 1 ? 0x00f000f0u : 0x000f000fu),
                                i & 1 ? NW_WHOLE_HIGH : NW_WHOLE_LOW, NW_WHOLE_LESS);
}

template <class P>
__device__ __forceinline__ void nw_prepare(uint32_t *frag, const nw_raw<P> &raw)
{
    uint32_t zero[2];

    if constexpr (P::KIND == NW_E2M1) {
        nw_e2m1_batch<P::SCALE_K, P::steps>(frag, raw.words, raw.scales);
        return;
    }
    if constexpr (P::FUSED) {
        if constexpr (P::MODE == NW_GROUPS) nw_whole_batch<P>(frag, raw.words);
        else nw_fused_batch<P>(frag, raw.words, raw.scales[0]);
        return;
    }
    if constexpr (nw_is_narrow(P::KIND)) {
        nw_narrow_batch<P>(frag, raw.words, raw.zeros);
    } else {
        nw_zeros<P>(zero, raw.zeros);
#pragma unroll
        for (int s = 0; s < P::steps; s++) nw_convert<P>(frag + 4 * s, raw.words, s, zero);
    }
    if constexpr (P::MODE == NW_SCALED) nw_scale_batch<P>(frag, raw.scales[0]);
}

/* The two scales of 16 bits in `pair`. */
template <bool BF16> __device__ __forceinline__ void nw_two_scales(float *s, uint32_t pair)
{
    if constexpr (BF16) {
        s[0] = __uint_as_float(pair << 16), s[1] = __uint_as_float(pair & 0xffff0000u);
    } else {
        float2 f = __half22float2(*(__half2 *)&pair);

        s[0] = f.x, s[1] = f.y;
    }
}

/* Two scales of a pair; E4M3 comes 2^-8 of its value into products of f16. */
template <class P>
__device__ __forceinline__ void nw_scale_pair(float *s, uint2 raw, const nw_args &args)
{
    if (P::KIND != NW_INT4 && !nw_is_narrow(P::KIND) && args.scale_bytes == 4) {
        s[0] = __uint_as_float(raw.x), s[1] = __uint_as_float(raw.y);
    } else if (args.scales_are_bf16) {
        nw_two_scales<true>(s, raw.x);
    } else {
        nw_two_scales<false>(s, raw.x);
    }
    if (P::KIND == NW_E4M3 && !P::BF16) s[0] *= 256.0f, s[1] *= 256.0f;
}

template <class P>
__device__ __forceinline__ void nw_scales(float *s, uint32_t stage, int record,
                                          const nw_args &args)
{
    uint32_t at = stage + P::s_at;

    if constexpr (P::KIND == NW_INT4 || nw_is_narrow(P::KIND))
        nw_scale_pair<P>(s, make_uint2(sw_shared4(at + record * 128 + 4 * nw_slot()), 0), args);
    else if (args.scale_bytes == 4)
        nw_scale_pair<P>(s, sw_shared8(at + record * 256 + 8 * nw_slot()), args);
    else
        nw_scale_pair<P>(s, make_uint2(sw_shared4(at + record * 128 + 4 * nw_slot()), 0), args);
}

#endif
