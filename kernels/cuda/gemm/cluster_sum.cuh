/* cluster_sum.cuh - sums that the CTAs of a cluster have parked in shared memory, added up.
 *
 * Another CTA's shared memory is far away and the way to it narrow: reads of 16 bytes that lie side
 * by side, a row of 128 channels to a warp, take a fraction of what scattered ones do, all CTAs
 * share the rows, and a lane asks for what several hold before it adds one up.
 */
#ifndef SW_KERNELS_CUDA_GEMM_CLUSTER_SUM_CUH
#define SW_KERNELS_CUDA_GEMM_CLUSTER_SUM_CUH

#include "kernels/cuda/ptx/ptx_cluster.cuh"

#define SW_CLUSTER_ASKED 4 /* CTAs whose sums are on their way at once */

/* Pieces of four channels as the threads of a cluster go through them, N at a time: 32 side by side
 * to a warp, and the next 32 to another CTA. */
template <int N>
struct sw_cluster_pieces {
    int first, step; /* of this thread, and to its next one */
    int n_pieces;

    __device__ __forceinline__ sw_cluster_pieces(uint32_t rank, uint32_t split, int n_threads,
                                                 int n)
        : first(((int)rank + (int)split * ((int)threadIdx.x / 32)) * 32 + (int)threadIdx.x % 32),
          step((int)split * n_threads), n_pieces(n)
    {
    }
    __device__ __forceinline__ bool more(void) const { return first < n_pieces; }
    __device__ __forceinline__ void turn(void) { first += N * step; }
    /* Piece i of those of this turn, which may be none: then the last is read once more. */
    __device__ __forceinline__ int piece(int i) const
    {
        return min(first + i * step, n_pieces - 1);
    }
    __device__ __forceinline__ bool is_piece(int i) const { return first + i * step < n_pieces; }
};

/* v = the sum of what lies at `at` in each of the `split` CTAs of the cluster, of which this one is
 * number `rank`, in the order of their numbers, and in each in PARTS places PART_BYTES apart. */
template <int PARTS, int PART_BYTES, int N, typename type>
static __device__ __forceinline__ void sw_cluster_sum(type (&v)[N][4], const uint32_t (&at)[N],
                                                      uint32_t rank, uint32_t split)
{
#pragma unroll
    for (int i = 0; i < N; i++) v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0;
    for (uint32_t first = 0; first < split; first += SW_CLUSTER_ASKED) {
        type got[SW_CLUSTER_ASKED][N][PARTS][4];

#pragma unroll
        for (uint32_t r = 0; r < SW_CLUSTER_ASKED; r++)
            if (first + r < split)
#pragma unroll
                for (int i = 0; i < N * PARTS; i++) {
                    uint32_t own = at[i / PARTS] + (uint32_t)(i % PARTS * PART_BYTES);

                    sw_cluster_get16(got[r][i / PARTS][i % PARTS],
                                     first + r == rank ? own : sw_cluster_map(own, first + r));
                }
#pragma unroll
        for (uint32_t r = 0; r < SW_CLUSTER_ASKED; r++)
            if (first + r < split)
#pragma unroll
                for (int i = 0; i < N * PARTS * 4; i++)
                    v[i / 4 / PARTS][i % 4] += got[r][i / 4 / PARTS][i / 4 % PARTS][i % 4];
    }
}

#endif
