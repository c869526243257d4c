/* chunk_operand.cuh - operands of a warp's products between shared memory and registers. A tile in
 * shared memory is [rows, stride] of BF16, rows 16 bytes beyond a multiple of 128 apart. See
 * chunk_form.cuh.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_OPERAND_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_OPERAND_CUH

#include "kernels/cuda/ops/mixers/chunk_form.cuh"

/* A tile with rows of so many elements. */
static inline __host__ __device__ int sw_tile_stride(int n) { return n + 8; }

/* The second operand, rows 8 n and so on, of the sum's 32 elements from 32 k on: two products'. */
static __device__ __forceinline__ uint4 sw_tile_second(const sw_bf16 *tile, int stride, int n,
                                                       int k)
{
    const int lane = (int)threadIdx.x % 32;

    return sw_load_matrices(
        sw_smem_addr(tile + (8 * n + lane % 8) * stride + 32 * k + lane / 8 * 8));
}

/* The same where the tile is [k, n]. */
static __device__ __forceinline__ uint4 sw_tile_second_turned(const sw_bf16 *tile, int stride,
                                                              int n, int k)
{
    const int lane = (int)threadIdx.x % 32;

    return sw_load_transposed(sw_smem_addr(tile + (32 * k + lane) * stride + 8 * n));
}

/* The first operand, rows 16 m and so on, of 16 elements from 16 k on. */
static __device__ __forceinline__ uint4 sw_tile_first(const sw_bf16 *tile, int stride, int m,
                                                      int k)
{
    const int lane = (int)threadIdx.x % 32;

    return sw_load_matrices(
        sw_smem_addr(tile + (16 * m + lane % 16) * stride + 16 * k + lane / 16 * 8));
}

/* The same where the tile is [k, m]. */
static __device__ __forceinline__ uint4 sw_tile_first_turned(const sw_bf16 *tile, int stride,
                                                             int m, int k)
{
    const int lane = (int)threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;

    return sw_load_transposed(
        sw_smem_addr(tile + (16 * k + row) * stride + 16 * m + lane / 8 % 2 * 8));
}

static __device__ __forceinline__ void sw_mma_add(float (&sum)[4], const uint4 &a, uint32_t b0,
                                                  uint32_t b1)
{
    const uint32_t first[4] = {a.x, a.y, a.z, a.w};

    sw_mma_bf16(sum, first, b0, b1);
}

/* Sums of two tiles of 8 columns, side by side, as the first operand of a product over them. */
static __device__ __forceinline__ uint4 sw_sums_as_first(const float (&left)[4],
                                                         const float (&right)[4])
{
    return make_uint4(sw_pack2(left[0], left[1]), sw_pack2(left[2], left[3]),
                      sw_pack2(right[0], right[1]), sw_pack2(right[2], right[3]));
}

/* Sums [16, 32] of four tiles as a second operand [n, k] in memory whose k has `width` elements:
 * its rows 16 m and so on, elements from 32 k on. */
static __device__ __forceinline__ void sw_sums_to_operand(char *operand, int width, int m, int k,
                                                          const float (&sum)[4][4])
{
    uint4 *to = (uint4 *)operand + (int)threadIdx.x % 32;

    to[(2 * m * (width / 32) + k) * 32] =
        make_uint4(sw_pack2(sum[0][0], sum[0][1]), sw_pack2(sum[1][0], sum[1][1]),
                   sw_pack2(sum[2][0], sum[2][1]), sw_pack2(sum[3][0], sum[3][1]));
    to[((2 * m + 1) * (width / 32) + k) * 32] =
        make_uint4(sw_pack2(sum[0][2], sum[0][3]), sw_pack2(sum[1][2], sum[1][3]),
                   sw_pack2(sum[2][2], sum[2][3]), sw_pack2(sum[3][2], sum[3][3]));
}

#endif
