/* column_tiles.cu - see column_tiles.h. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/column_tiles.cuh"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda/gemm/gemm_rows.h"

#define THREADS 256
#define PIECE 32   /* lanes, whose 16 bytes each change places among themselves */
#define PIECES 8   /* of a tile */
#define PER_WARP 8 /* pieces, what a warp has in flight */

/* grid: pieces / (warps * PER_WARP), rounded up. A warp's stores need all of its loads. */
static __global__ void __launch_bounds__(THREADS) swk_order_columns(uint4 *codes, int64_t n_pieces)
{
    int64_t first = ((int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * PER_WARP;
    int lane = (int)threadIdx.x % 32;
    uint4 v[PER_WARP];

#pragma unroll
    for (int i = 0; i < PER_WARP; i++)
        if (first + i < n_pieces) v[i] = codes[(first + i) * PIECE + lane];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PER_WARP; i++) {
        if (first + i >= n_pieces) break;
        v[i] = sw_exchange4(v[i]);
        codes[(first + i) * PIECE + sw_column_at(lane % 4, lane / 4) / 16] = v[i];
    }
}

static bool suits(const sw_tiles *tiles, const sw_act *act, const sw_cuda_device *device)
{
    return device->sm == 90 && !tiles->is_marlin && sw_cuda_has_blocks(tiles) &&
           sw_cuda_weights_of(tiles) == SW_CUDA_W_E4M3 &&
           sw_cuda_inputs_of(act) == SW_CUDA_X_E4M3_GROUPS;
}

extern "C" sw_code sw_column_tiles_order(sw_tiles *d_tiles, const sw_act *act,
                                         const sw_cuda_device *device, void *stream, sw_err *err)
{
    int64_t n_pieces = sw_tiles_n(d_tiles->n_out) * sw_tiles_k(d_tiles->k_in) * PIECES;
    int64_t n_ctas = sw_cuda_up(n_pieces, THREADS / 32 * PER_WARP);

    if (!d_tiles->codes || n_pieces == 0 || d_tiles->in_columns || !suits(d_tiles, act, device))
        return SW_OK;
    d_tiles->in_columns = true;
    swk_order_columns<<<(unsigned)n_ctas, THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)(uintptr_t)d_tiles->codes, n_pieces);
    return sw_cuda_check(cudaGetLastError(), "swk_order_columns", err);
}
