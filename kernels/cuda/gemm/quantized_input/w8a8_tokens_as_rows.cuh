/* w8a8_tokens_as_rows.cuh - products of bytes whose rows are tokens and whose columns are channels,
 * both from shared memory; of E4M3 with scales of blocks: those of 128 inputs of a token times
 * those of 128 channels x 128 inputs.
 *
 * Where channels are rows a lane has 16 tokens of 64, and each of its sums meets another scale. Of
 * 64 rows it has two: a block of 128 tokens x 128 channels costs it four scales a stage, one load.
 *
 * Codes of weights lie in columns (column_tiles.h), those of two tiles of 32 inputs side by side.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_TOKENS_AS_ROWS_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_TOKENS_AS_ROWS_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_block_scales.cuh"
#include "kernels/cuda/ptx/ptx_columns.cuh"

#define SW_AS_ROWS_STEP_BYTES 4096 /* of weights: 128 channels x 32 inputs */

/* Weights of a stage, 128 channels x 128 inputs, by one box, for which one thread of a warp asks:
 * 32 inputs of both tiles side by side. Eight lanes that asked for 2 KB each were served one after
 * the other, for 6 % more cycles. Tiles that are not there come as zeros. */
static __device__ __forceinline__ void w8a8_copy_columns(const CUtensorMap *map, const w8a8_args &a,
                                                         const w8a8_place &p, int it, uint32_t to,
                                                         uint32_t bar, uint64_t policy)
{
    if (threadIdx.x % 32 > 0) return;
    sw_mbar_expect(bar, (uint32_t)(4 * SW_AS_ROWS_STEP_BYTES + a.x_rows * 128));
    sw_tensor_load_3d(to, map, 0, p.n_tile0, (p.stage0 + it) * 4, bar, policy);
}

/* Where scales of a warp's 32 tokens of 128 begin, of the first 32 of which the lane has one: those
 * of the tokens that a lane has sums of lie side by side. */
static __device__ __forceinline__ uint32_t w8a8_row_slot(void)
{
    uint32_t lane = threadIdx.x % 32;

    return lane / 16 * 32 + lane % 8 * 4 + lane / 8 % 2;
}

/* Scales of a stage of 128 tokens, by a warp, each times that of W: token 32 i + lane from x[i]. */
static __device__ __forceinline__ void
w8a8_put_row_scales(uint32_t to, const w8a8_scale_walk<128> &walk, const float (&x)[4], int stage)
{
    float of_all = __shfl_sync(~0u, walk.w, stage % 32);

    to += w8a8_row_slot() * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sw_shared_put4(to + (uint32_t)(i % 2 * 256 + i / 2 * 8), of_all * x[i]);
}

/* The lane's scales of a warpgroup's 128 tokens: rows l / 4 and 8 more of the warp's 16, of the
 * first 64 tokens and then of the others. */
static __device__ __forceinline__ uint4 w8a8_row_scales(uint32_t scales)
{
    return sw_shared16(scales + threadIdx.x % 128 / 32 * 128 + threadIdx.x % 32 / 4 * 16);
}

/* sum = 64 tokens x 128 channels x 128 inputs, on top of what is there where `accumulates`, of
 * floats E4M3, of integers int8; x: of 64 rows of 128 bytes. */
template <typename type>
static __device__ __forceinline__ void w8a8_issue_rows(type (&sum)[64], uint32_t x, uint32_t w,
                                                       bool accumulates = false)
{
    uint64_t rows = sw_wgmma_desc(x), columns = sw_wgmma_desc_32(w);

    sw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++)
        sw_wgmma8_shared(sum, rows + 2 * (uint64_t)s,
                         columns + (uint64_t)(s * (SW_AS_ROWS_STEP_BYTES >> 4)),
                         accumulates || s > 0);
    sw_wgmma_commit();
}

/* total += scale * sum, one scale for each of the lane's two rows. */
static __device__ __forceinline__ void w8a8_add_rows(float *total, float (&sum)[64], uint32_t first,
                                                     uint32_t second)
{
    const float scale[2] = {__uint_as_float(first), __uint_as_float(second)};

    sw_hold(sum);
#pragma unroll
    for (int i = 0; i < 64; i++) total[i] = fmaf(scale[i / 2 % 2], sum[i], total[i]);
}

/* 16 tokens x 64 channels of a warp's sums as rows of 128 bytes, the first of them row `first` of
 * those at `rows`, in the order of the 128-byte swizzle. */
template <bool BF16>
static __device__ __forceinline__ void w8a8_lay_out_rows(const float *sums, uint32_t rows,
                                                         int first, int lane)
{
    int row = lane % 8, matrix = lane / 8;
    uint32_t line = rows + (uint32_t)((first + matrix % 2 * 8 + row) * 128);

#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint32_t out[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = sw_round16_pair(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1], BF16);
        sw_store_matrices4(line + (uint32_t)(((j + matrix / 2) ^ row) * 16), out);
    }
}

/* Where what 128 tokens and 128 channels meet lies in a stage. */
struct w8a8_rows_at {
    uint32_t x, w, scales;
};

/* The stage that `ring` stands at, whose first 64 tokens are on their way in `sum`, and with NEXT
 * those of the one after. `ends`: the last of a block. While this warpgroup adds up, another one
 * multiplies. */
template <bool NEXT, typename ring_type>
static __device__ __forceinline__ void w8a8_rows_stage(float (&total)[128], float (&sum)[64],
                                                       ring_type &ring, const w8a8_rows_at &at,
                                                       bool ends)
{
    uint32_t stage = ring.stage(), bar = ring.bar();
    uint4 scale = w8a8_row_scales(stage + at.scales);

    ring.turn();
    sw_wgmma_wait<0>();
    w8a8_add_rows(total, sum, scale.x, scale.y);
    w8a8_issue_rows(sum, stage + at.x + 8192, stage + at.w);
    if (NEXT) ring.wait();
    sw_wgmma_wait<0>();
    w8a8_add_rows(total + 64, sum, scale.z, scale.w);
    if (NEXT) w8a8_issue_rows(sum, ring.stage() + at.x, ring.stage() + at.w);
    /* Not before the additions: the next products would wait for that too. */
    __syncwarp();
    if (ends) w8a8_release_last(ring, bar);
    else ring.release(bar);
}

#endif
