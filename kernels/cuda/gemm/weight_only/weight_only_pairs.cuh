/* weight_only_pairs.cuh - phase 3 for few tokens: products of a warp instead of a warpgroup's.
 *
 * With 8 or 16 tokens it is instructions that limit, and what a product of a warpgroup costs beside
 * the conversion of its codes: a descriptor in uniform registers, an arrival and a wait. Those of a
 * warp take X from registers, where one ldmatrix brings two k-steps of 8 tokens, and wait for their
 * operands alone.
 *
 * A warp has two rows of 16 channels, 16 v and 16 v + 32 of a tile: in codes of 2 and 3 bits these
 * lie in the same bytes (narrow.h), so that one load serves both, and both are multiplied by the
 * same registers of X. Warps 2i and 2i + 1 of a warpgroup have tile i of its two.
 *
 * Sums are those of NW_GROUPS: integers in fp32, scaled in fp32 at the end of a group.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_PAIRS_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_PAIRS_CUH

#include "kernels/cuda/gemm/weight_only/weight_only_convert.cuh"
#include "kernels/cuda/ptx/arrive.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

/* Where a lane reads in a stage. */
struct nw_pair_at {
    uint32_t codes, third;  /* its 16 bytes of a tile, and those of the third bits */
    uint32_t scales, zeros; /* of its first row's two channels, in the tile's first record */
    uint32_t x[2];          /* its row of the matrices of k-steps 0 and 1, 2 and 3 of 8 tokens */
    uint32_t v;
};

/* A value that is kept: what the compiler can compute again it computes again for every stage. */
__device__ __forceinline__ uint32_t nw_kept(uint32_t v)
{
    return __shfl_sync(~0u, v, (int)threadIdx.x % 32);
}

/* Chunks of 16 bytes of X stand at their number ^ the token's: the swizzle of the copy engine. */
template <class P> __device__ __forceinline__ nw_pair_at nw_pair_at_of(int tile0)
{
    uint32_t warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    uint32_t tile = (uint32_t)tile0 + warp / 2, v = warp % 2;
    uint32_t of_tile = P::w_at + tile * NW_STAGE_TILES * P::block_bytes + lane * 16;
    nw_pair_at at = {};

    at.v = nw_kept(v);
    at.codes = nw_kept(of_tile + v * NW_PLANE_BYTES);
    at.third = nw_kept(of_tile + 2 * NW_PLANE_BYTES);
    at.scales = nw_kept(P::s_at + tile * P::GPS * 128 + (v * 8 + lane / 4) * 4);
    at.zeros = nw_kept(P::z_at + tile * P::GPS * 64 + (v * 8 + lane / 4) * 2);
    at.x[0] = nw_kept(lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16);
    at.x[1] = nw_kept(at.x[0] ^ 64);
    return at;
}

/* The bit at which rows' codes stand when they are masked, of channels g and g + 8. */
template <int KIND> __host__ __device__ constexpr int nw_pair_bit(int row, int half)
{
    if (KIND == NW_INT4) return 0;
    if (KIND == NW_INT3) return 4 * half;
    return row ? 2 * (1 - half) : 4 * half;
}

/* Both rows of a k-step. words: of 4 bits that of each row, else low bits and third ones. */
template <class P>
__device__ __forceinline__ void nw_pair_step(uint32_t (&frag)[2][4], const uint32_t (&words)[2],
                                             const uint32_t (&zero)[2][2], uint32_t v)
{
    constexpr int KIND = P::KIND;
    constexpr bool BF16 = P::BF16;

    if constexpr (KIND == NW_INT4) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            frag[i / 4][i % 4] =
                nw_codes_at<KIND, BF16>(words[i / 4] >> i % 4 * 4, 0, zero[i / 4][i & 1]);
    } else if constexpr (KIND == NW_INT3) {
        uint32_t third = words[1] >> v;

        nw_narrow_step<KIND, BF16>(frag[0], nw_select(words[0], third << 2, 0x33333333u), zero[0]);
        nw_narrow_step<KIND, BF16>(frag[1], nw_select(words[0] >> 2, third, 0x33333333u), zero[1]);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t word = j < 2 ? words[0] : words[0] >> 8;
            int half = j & 1;

            frag[0][j] = nw_codes_at<KIND, BF16>(word, 4 * half, zero[0][half]);
            frag[1][j] = nw_codes_at<KIND, BF16>(half ? words[0] >> (j < 2 ? 6 : 14) : word,
                                                 2 * (1 - half), zero[1][half]);
        }
    }
}

/* d = a * b, or added to d. */
template <bool BF16>
__device__ __forceinline__ void nw_pair_product(float *d, const uint32_t *a, uint32_t b0,
                                                uint32_t b1, bool adds)
{
    if (!adds) d[0] = d[1] = d[2] = d[3] = 0;
    if constexpr (BF16) sw_mma_bf16(d, a, b0, b1);
    else sw_mma_f16(d, a, b0, b1);
}

/* k-steps of which a lane loads codes at once. */
template <class P> __host__ __device__ constexpr int nw_pair_steps(void)
{
    return P::GPS == 4 ? 2 : 4;
}

/* Codes of k-steps `first` and on of k-tile kt. */
template <class P>
__device__ __forceinline__ void nw_pair_words(uint32_t (&words)[4][2], const nw_pair_at &at,
                                              uint32_t stage, int kt, int first)
{
    const uint32_t from = stage + (uint32_t)(kt * P::block_bytes + first * 4);

#pragma unroll
    for (int i = 0; i < (P::KIND == NW_INT2 ? 1 : 2); i++) {
        uint32_t there = from + (i && P::KIND == NW_INT3 ? at.third : at.codes + i * 1024);

        if constexpr (nw_pair_steps<P>() == 4) {
            uint4 w = sw_shared16(there);

            words[0][i] = w.x, words[1][i] = w.y, words[2][i] = w.z, words[3][i] = w.w;
        } else {
            uint2 w = sw_shared8(there);

            words[0][i] = w.x, words[1][i] = w.y;
        }
    }
}

/* Products of a lane's codes of k-tile kt, from k-step `first` on; `adds`: to what is there. */
template <class P>
__device__ __forceinline__ void nw_pair_part(float (&sum)[2][P::T / 2], const nw_pair_at &at,
                                             const uint32_t (&zero)[2][2], uint32_t stage, int kt,
                                             int first, bool adds)
{
    uint32_t words[4][2] = {}, frag[2][4];

    nw_pair_words<P>(words, at, stage, kt, first);
#pragma unroll
    for (int s = 0; s < nw_pair_steps<P>(); s += 2) {
        uint4 x[P::T / 8];

#pragma unroll
        for (int b = 0; b < P::T / 8; b++)
            x[b] = sw_load_matrices(stage + (uint32_t)(kt * P::T * 128 + b * 1024) +
                                    at.x[(first + s) / 2]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            nw_pair_step<P>(frag, words[s + half], zero, at.v);
#pragma unroll
            for (int b = 0; b < P::T / 8; b++)
#pragma unroll
                for (int row = 0; row < 2; row++)
                    nw_pair_product<P::BF16>(sum[row] + 4 * b, frag[row], half ? x[b].z : x[b].x,
                                             half ? x[b].w : x[b].y, adds || s || half);
        }
    }
}

/* Group `group` of those in a stage: its products, scaled. */
template <class P, bool BF16_SCALES>
__device__ __forceinline__ void nw_pair_group(float (&total)[2][P::T / 2], const nw_pair_at &at,
                                              uint32_t stage, int group)
{
    constexpr int steps = nw_pair_steps<P>(), parts = 8 / P::GPS / steps;
    float sum[2][P::T / 2], scale[2][2];
    uint32_t zero[2][2];

#pragma unroll
    for (int row = 0; row < 2; row++) {
        uint32_t record = stage + at.scales + (uint32_t)(group * 128 + row * 64), pair = 0;

        nw_two_scales<BF16_SCALES>(scale[row], sw_shared4(record));
        if constexpr (P::ZEROS)
            pair = nw_shared16(stage + at.zeros + (uint32_t)(group * 64 + row * 32));
#pragma unroll
        for (int half = 0; half < 2; half++)
            zero[row][half] = nw_zero_at<P::KIND, P::BF16, P::ZEROS>(
                pair, half, nw_pair_bit<P::KIND>(row, half));
    }
#pragma unroll
    for (int part = 0; part < parts; part++) {
        int step = (group * parts + part) * steps;

        nw_pair_part<P>(sum, at, zero, stage, step / 4, step % 4, part > 0);
    }
#pragma unroll
    for (int row = 0; row < 2; row++)
#pragma unroll
        for (int i = 0; i < P::T / 2; i++)
            total[row][i] = fmaf(scale[row][i / 2 % 2], sum[row][i], total[row][i]);
}

/* All stages of this warpgroup. */
template <class P, bool BF16_SCALES>
__device__ __forceinline__ void nw_multiply_pairs(float (&total)[2][P::T / 2], int tile0, int left,
                                                  nw_ring<P> ring)
{
    const nw_pair_at at = nw_pair_at_of<P>(tile0);

    ring.stages = nw_kept(ring.stages), ring.full = nw_kept(ring.full);
    ring.empty = nw_kept(ring.empty);
#pragma unroll 1
    for (; left > 0; left--) {
        uint32_t stage = ring.stage(), bar = ring.bar();

        ring.wait();
        ring.turn();
#pragma unroll
        for (int group = 0; group < P::GPS; group++)
            nw_pair_group<P, BF16_SCALES>(total, at, stage, group);
        /* as in nw_multiply_groups */
        __threadfence_block();
        __syncwarp();
        sw_release_stage(bar);
    }
}

#endif
