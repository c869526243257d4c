/* w8a8_stream.cuh - the main loop of a consumer warpgroup for many tokens in E4M3, across blocks of
 * Y: as w8a8_flow.cuh, but the tensor cores do not run empty between two blocks either. In the last
 * stage of a block the tokens of each piece are stored as soon as they are added up, while pieces
 * behind it, of the next block too, are multiplied.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_STREAM_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_STREAM_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_block_store.cuh"

/* What a warpgroup is at. */
struct a8l_task {
    w8a8_place p;
    int at, left;  /* block; stages of it that are left, this one with them */
    uint32_t part; /* its part of shared memory */
};

/* Piece `i` of the sums of a block, all added up: to Y, and zeros for the next block. */
template <int KIND, int T, int PIECE, int N>
static __device__ __forceinline__ void a8l_store_piece(float (&total)[N], int i,
                                                       const w8a8_args &a, const a8l_task &task)
{
    constexpr int n_sums = PIECE / 2;
    int n_tile = task.p.n_tile0 + (int)threadIdx.x / 128;

    if (i == 0) a8l_wait_aside();
    a8l_store_quarter<KIND, W8A8_PLAIN, T>(total + i * n_sums, a, task.p, n_tile, task.part,
                                           i * PIECE);
#pragma unroll
    for (int e = 0; e < n_sums; e++) total[i * n_sums + e] = 0;
}

/* The stage that `ring` stands at, as w8a8_flow_stage; NEXT: not the last of all. */
template <int KIND, int T, int PIECE, int NOW, bool NEXT, typename ring_type>
static __device__ __forceinline__ void
a8l_stream_stage(float (&total)[T / 2], float (&sum)[2][PIECE / 2], uint32_t (&frag)[2][16],
                 ring_type &ring, const w8a8_args &a, const a8l_task &task)
{
    constexpr int n_pieces = T / PIECE, n_sums = PIECE / 2, box = PIECE * 128;
    uint32_t stage = ring.stage(), bar = ring.bar();
    const float one[2] = {1.0f, 1.0f};
    const w8a8_place none = {}; /* E4M3 as it lies depends on no place */

    ring.turn();
#pragma unroll
    for (int i = 0; i < n_pieces; i++) {
        /* What the other fragment met has ended with the first piece of this stage. */
        if (NEXT && i + 3 == n_pieces) {
            ring.wait();
            w8a8_load<KIND, T, 2, false>(frag[1 - NOW], a, none, ring.stage(),
                                         (int)threadIdx.x / 128);
        }
        if (NEXT || i + 1 < n_pieces) sw_wgmma_wait<1>();
        else sw_wgmma_wait<0>();
        w8a8_add_group<n_sums, false>(total + i * n_sums, sum[i % 2], one, a, 0);
        if (i + 2 < n_pieces)
            w8a8_issue(sum[i % 2], frag[NOW], stage + (i + 2) * box, 0);
        else if (NEXT)
            w8a8_issue(sum[i % 2], frag[1 - NOW], ring.stage() + (i + 2 - n_pieces) * box, 0);
        if (task.left == 1) a8l_store_piece<KIND, T, PIECE>(total, i, a, task);
    }
    __syncwarp();
    ring.release(bar);
}

#endif
