/* decode_tile.cuh - operands of products out of tiles of keys and values in shared memory, by
 * elements of a cache. */
#ifndef SW_KERNELS_CUDA_ATTENTION_DECODE_TILE_CUH
#define SW_KERNELS_CUDA_ATTENTION_DECODE_TILE_CUH

#include "kernels/cuda/ops/engine_decode_elements.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

#define TILE_KEYS 16
#define COLUMN_BYTES 128 /* of a row in a block of the copy engine, swizzled */
#define BLOCK_BYTES (TILE_KEYS * COLUMN_BYTES)

/* Where sixteen bytes `chunk` of a key of a tile lie, in bytes from its start. */
static __device__ __forceinline__ int chunk_at(int key, int chunk)
{
    return chunk / 8 * BLOCK_BYTES + key * COLUMN_BYTES + ((chunk % 8 ^ key % 8) << 4);
}

/* Of codes: 16 to sixteen bytes, a step of a product. Four matrices of keys are four steps; four
 * of values are two chunks of all keys, whose even dims are rows 0 to 7 of an operand and odd ones
 * rows 8 to 15. */
template <typename T> struct in_tile {
    typedef elements<T> E;
    static constexpr int chunk_dims = 16, row_dims = 2, next_dim = 1; /* of operands of values */

    static __device__ __forceinline__ int dim_of(int step, int column, int j)
    {
        return step * 16 + column * 4 + j;
    }
    /* What a step of keys is of four matrices. */
    static __device__ __forceinline__ void keys(uint32_t (&b)[2], const uint32_t (&m)[4], int step)
    {
        b[0] = E::wide(m[step] & 0xffff);
        b[1] = E::wide(m[step] >> 16);
    }
    /* Key and chunk of the row of matrix `i` that begins at a lane's address. */
    static __device__ __forceinline__ int value_key(int i) { return i % 2 * 8; }
    static __device__ __forceinline__ int value_chunk(int i) { return i / 2; }
    static constexpr int value_operands = 2; /* of four matrices */
    static __device__ __forceinline__ void values(uint32_t (&a)[4], const uint32_t (&m)[4], int i)
    {
        const uint32_t low = __byte_perm(m[2 * i], 0, 0x3120);
        const uint32_t high = __byte_perm(m[2 * i + 1], 0, 0x3120);

        a[0] = E::wide(low & 0xffff);
        a[1] = E::wide(low >> 16);
        a[2] = E::wide(high & 0xffff);
        a[3] = E::wide(high >> 16);
    }
};

/* Of BF16: two chunks to a step, as they lie. */
template <> struct in_tile<sw_bf16> {
    static constexpr int chunk_dims = 8, row_dims = 1, next_dim = 8;

    static __device__ __forceinline__ int dim_of(int step, int column, int j)
    {
        return step * 16 + column * 2 + j % 2 + j / 2 * 8;
    }
    static __device__ __forceinline__ void keys(uint32_t (&b)[2], const uint32_t (&m)[4], int step)
    {
        b[0] = m[2 * step];
        b[1] = m[2 * step + 1];
    }
    static __device__ __forceinline__ int value_key(int i) { return i / 2 * 8; }
    static __device__ __forceinline__ int value_chunk(int i) { return i % 2; }
    static constexpr int value_operands = 1;
    static __device__ __forceinline__ void values(uint32_t (&a)[4], const uint32_t (&m)[4], int)
    {
        a[0] = m[0];
        a[1] = m[1];
        a[2] = m[2];
        a[3] = m[3];
    }
};

#endif
