/* w8a8_pieces.cuh - the main loop of a consumer warpgroup for many tokens whose sums leave the
 * tensor cores with every stage: the tokens go through in pieces of 32 or 64, and while one is
 * added up in fp32 the next is multiplied.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_PIECES_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_PIECES_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_block_scales.cuh"

/* total += sum by what changes along k; x_scales: of the tokens that these are sums of. */
template <int MODE, int N, typename type>
static __device__ __forceinline__ void w8a8_add_piece(float *total, type (&sum)[N],
                                                      const float *scale, const w8a8_args &a,
                                                      uint32_t x_scales)
{
    if constexpr (MODE == W8A8_X_BLOCKS) w8a8_add_blocks(total, sum, x_scales);
    else w8a8_add_group<N, MODE == W8A8_X_GROUPS>(total, sum, scale, a, x_scales);
}

template <int KIND, int T, int PIECE, int MODE, typename ring_type>
static __device__ __forceinline__ void w8a8_multiply_pieces(float (&total)[T / 2], ring_type &ring,
                                                            const w8a8_args &a, const w8a8_place &p)
{
    constexpr bool grouped = w8a8_has_records(MODE), blocks = MODE == W8A8_X_BLOCKS;
    constexpr int n_pieces = T / PIECE, n_sums = PIECE / 2;
    using at = w8a8_stage<KIND, T, 2, grouped>;
    int tile = (int)threadIdx.x / 128;
    typename w8a8_sum<KIND>::type sum[2][n_sums];
    uint32_t frag[16];

    if (p.n_stages == 0) return;
    ring.wait();
    w8a8_load<KIND, T, 2, grouped, blocks>(frag, a, p, ring.stage(), tile);
#pragma unroll 1
    for (int it = 0; it < p.n_stages; it++) {
        uint32_t stage = ring.stage(), bar = ring.bar(), x_scales = stage + at::xs_at;
        float scale[2] = {1.0f, 1.0f};

        ring.turn();
        w8a8_issue(sum[0], frag, stage, 0);
        w8a8_issue(sum[1], frag, stage + PIECE * 128, 0);
        if constexpr (grouped) w8a8_group_scales<KIND>(scale, stage + at::s_at, tile, a);
#pragma unroll
        for (int i = 0; i < n_pieces; i++) {
            if (i + 1 < n_pieces) sw_wgmma_wait<1>();
            else sw_wgmma_wait<0>();
            if (i + 1 == n_pieces && it + 1 < p.n_stages) {
                ring.wait();
                w8a8_load<KIND, T, 2, grouped, blocks>(frag, a, p, ring.stage(), tile);
            }
            w8a8_add_piece<MODE>(total + i * n_sums, sum[i % 2], scale, a,
                                 x_scales + i * PIECE * 4);
            if (i + 2 < n_pieces) w8a8_issue(sum[i % 2], frag, stage + (i + 2) * PIECE * 128, 0);
        }
        if (MODE != W8A8_PLAIN) w8a8_scales_are_used(total);
        __syncwarp();
        if (it + 1 == p.n_stages) w8a8_release_last(ring, bar);
        else ring.release(bar);
    }
}

#endif
