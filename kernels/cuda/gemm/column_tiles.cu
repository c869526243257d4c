/* column_tiles.cu - see column_tiles.h. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/column_tiles.cuh"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda/gemm/e2m1_tiles.h"
#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/sign_tiles.h"

#define THREADS 256
#define PIECE 32   /* lanes, whose 16 bytes each change places among themselves */
#define PIECES 8   /* of a tile */
#define PER_WARP 8 /* pieces, what a warp has in flight */
/* Of kernels for int8 (quantized_input/w8a8_rows.h). */
#define STAGE_K 128
#define INTEGER_K_MAX 131072

/* Of this warp. */
static __device__ int64_t first_piece(void)
{
    return ((int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * PER_WARP;
}

/* grid: pieces / (warps * PER_WARP), rounded up. A warp's stores need all of its loads. less: what
 * codes lose, four of them a word. */
static __global__ void __launch_bounds__(THREADS)
    swk_order_columns(uint4 *codes, int64_t n_pieces, uint32_t less)
{
    int64_t first = first_piece();
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
        v[i].x ^= less, v[i].y ^= less, v[i].z ^= less, v[i].w ^= less;
        codes[(first + i) * PIECE + sw_column_at(lane % 4, lane / 4) / 16] = v[i];
    }
}

/* The same grid; `from` in columns. */
static __global__ void __launch_bounds__(THREADS)
    swk_undo_columns(uint4 *to, const uint4 *from, int64_t n_pieces)
{
    int64_t first = first_piece();
    int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < PER_WARP; i++) {
        if (first + i >= n_pieces) break;
        uint4 v = from[(first + i) * PIECE + sw_column_at(lane % 4, lane / 4) / 16];

        to[(first + i) * PIECE + lane] = sw_exchange4(v);
    }
}

static int64_t pieces_of(const sw_tiles *tiles)
{
    return sw_tiles_n(tiles->n_out) * sw_tiles_k(tiles->k_in) * PIECES;
}

static unsigned n_ctas_of(int64_t n_pieces)
{
    return (unsigned)sw_cuda_up(n_pieces, THREADS / 32 * PER_WARP);
}

/* Tiles without codes may have no kind either. */
static bool are_here(const sw_tiles *tiles, sw_cuda_weights weights, const sw_cuda_device *device)
{
    return tiles->codes && device->sm == 90 && !tiles->is_marlin &&
           sw_cuda_weights_of(tiles) == weights;
}

static bool has_blocks(const sw_tiles *tiles, const sw_act *act)
{
    return sw_cuda_has_blocks(tiles) && sw_cuda_inputs_of(act) == SW_CUDA_X_E4M3_GROUPS;
}

static bool has_channels(const sw_tiles *tiles, const sw_act *act)
{
    return tiles->spec.group_elems == 0 && act->scope == SW_ACT_TOKEN &&
           sw_cuda_inputs_of(act) == SW_CUDA_X_E4M3;
}

static bool has_integers(const sw_tiles *tiles, const sw_act *act)
{
    return tiles->n_groups == 1 && tiles->spec.group_elems % STAGE_K == 0 &&
           tiles->k_in <= INTEGER_K_MAX && sw_cuda_inputs_of(act) == SW_CUDA_X_INT8;
}

static sw_code order(sw_tiles *d_tiles, bool suits, uint32_t less, void *stream, sw_err *err)
{
    int64_t n_pieces = pieces_of(d_tiles);

    if (!suits || n_pieces == 0 || d_tiles->in_columns) return SW_OK;
    d_tiles->in_columns = true;
    swk_order_columns<<<n_ctas_of(n_pieces), THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)(uintptr_t)d_tiles->codes, n_pieces, less);
    return sw_cuda_check(cudaGetLastError(), "swk_order_columns", err);
}

extern "C" sw_code sw_column_tiles_order(sw_tiles *d_tiles, const sw_act *act,
                                         const sw_cuda_device *device, void *stream, sw_err *err)
{
    if (d_tiles->codes && d_tiles->spec.num == &sw_nums[SW_NUM_E2M1])
        return sw_e2m1_tiles_order(d_tiles, act, device, stream, err);
    if (are_here(d_tiles, SW_CUDA_W_INT4, device))
        return sw_sign_tiles_order(d_tiles, act, device, stream, err);
    if (are_here(d_tiles, SW_CUDA_W_INT8, device))
        return order(d_tiles, has_integers(d_tiles, act), 0x80808080u, stream, err);
    return order(d_tiles, are_here(d_tiles, SW_CUDA_W_E4M3, device) && has_blocks(d_tiles, act), 0,
                 stream, err);
}

extern "C" sw_code sw_column_tiles_order_expert(sw_tiles *d_tiles, const sw_act *act,
                                                const sw_cuda_device *device, void *stream,
                                                sw_err *err)
{
    if (!are_here(d_tiles, SW_CUDA_W_E4M3, device))
        return sw_column_tiles_order(d_tiles, act, device, stream, err);
    return order(d_tiles, has_blocks(d_tiles, act) || has_channels(d_tiles, act), 0, stream, err);
}

extern "C" bool sw_column_tiles_are_experts(const sw_tiles *tiles)
{
    return tiles->in_columns && tiles->spec.group_elems == 0 &&
           sw_cuda_weights_of(tiles) == SW_CUDA_W_E4M3;
}

extern "C" sw_code sw_column_tiles_undo(uint8_t *d_codes, const sw_tiles *d_tiles, void *stream,
                                        sw_err *err)
{
    int64_t n_pieces = pieces_of(d_tiles);

    swk_undo_columns<<<n_ctas_of(n_pieces), THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)d_codes, (const uint4 *)d_tiles->codes, n_pieces);
    return sw_cuda_check(cudaGetLastError(), "swk_undo_columns", err);
}
