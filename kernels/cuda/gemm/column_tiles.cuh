/* column_tiles.cuh - where codes lie in the order of columns (column_tiles.h), for lanes. */
#ifndef SW_KERNELS_CUDA_GEMM_COLUMN_TILES_CUH
#define SW_KERNELS_CUDA_GEMM_COLUMN_TILES_CUH

#include <stdint.h>

/* Of the 512 bytes of 16 channels x 32 inputs four matrices of 8 rows of 16 bytes, in the order of
 * the words that a lane owns: channels 0..7 and 8..15 at inputs 0..15, then the same at 16..31. */
static __device__ __forceinline__ uint32_t sw_column_at(uint32_t matrix, uint32_t row)
{
    return matrix % 2 * 256 + row * 32 + (matrix / 2 ^ row / 4) * 16;
}

/* Of the row whose address ldmatrix wants from this lane. */
static __device__ __forceinline__ uint32_t sw_column_of_lane(void)
{
    return sw_column_at(threadIdx.x % 32 / 8, threadIdx.x % 8);
}

/* Of the four words of this lane, one for each lane of its four; back come the words that those
 * have for it. */
static __device__ __forceinline__ uint4 sw_exchange4(uint4 v)
{
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    uint32_t a = __shfl_xor_sync(~0u, odd ? v.x : v.y, 1);
    uint32_t b = __shfl_xor_sync(~0u, odd ? v.z : v.w, 1);
    uint4 w = odd ? make_uint4(a, v.y, b, v.w) : make_uint4(v.x, a, v.z, b);
    uint32_t c = __shfl_xor_sync(~0u, high ? w.x : w.z, 2);
    uint32_t d = __shfl_xor_sync(~0u, high ? w.y : w.w, 2);

    return high ? make_uint4(c, d, w.z, w.w) : make_uint4(w.x, w.y, c, d);
}

#endif
