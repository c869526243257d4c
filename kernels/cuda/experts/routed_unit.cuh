/* routed_unit.cuh - what a CTA of routed experts works on.
 *
 * A unit is 256 channels of one block of rows: with GLU 128 gates and their ups, so that a thread
 * has the sums of a gate and of its up, or gets them. In a stage the tiles of a unit lie in the
 * order
 *
 *   GLU    gate 2j, up 2j, gate 2j + 1, up 2j + 1        (warpgroup 0: the first two; of one
 *                                                        tile a warpgroup: see rt_give_ups)
 *   else   4j, 4j + 1, 4j + 2, 4j + 3
 *
 * Tiles beyond the last are the last again, multiplied in vain and not stored.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_UNIT_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_UNIT_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/experts/routed_args.h"

#define RT_TILES 4 /* of a unit, where a cut has no other number */

/* What the products of a unit are and where they go. */
struct rt_unit {
    const uint8_t *codes, *scales;
    const float *bias;
    float factor;            /* of all weights of the expert */
    int x_row, row0, n_rows; /* of the inputs, of the sorted rows */
    int j;                   /* which of its block */
    int is_shared;           /* other blocks of this expert read the same weights soon */
};

/* Where a table says nothing (0) it is one. */
static __device__ __forceinline__ float rt_factor(const rt_args &a, float global_scale)
{
    return a.factor * (global_scale != 0 ? global_scale : 1);
}

template <bool GLU> static __device__ __forceinline__ rt_unit rt_unit_of_pair(const rt_args &a,
                                                                              int pair, int j)
{
    const sw_expert *e = a.experts + a.chosen[pair];

    return {(const uint8_t *)e->codes, (const uint8_t *)e->scales, e->bias,
            rt_factor(a, e->global_scale), GLU ? 0 : pair, pair, 1, j, 0};
}

/* Which block of a band is the at-th, where units are dealt to n_runs CTAs in rounds: to each the
 * one after that of the round before. Otherwise, where n_runs is a multiple of band_n, a CTA has
 * the same one in all rounds, and if that has few rows waits for the others at the end. All units
 * of a j have the same shift, so that each block comes once. */
static __device__ __forceinline__ int rt_rotated(int at, int first, int band_n, int n_runs)
{
    const int round = (first + at / band_n * band_n) / n_runs;

    return (at + round * (band_n - (n_runs - 1) % band_n)) % band_n;
}

/* Unit u: the blocks of a band take turns for each j. n_runs: see rt_rotated; 0: as they lie. */
template <bool GLU>
static __device__ __forceinline__ rt_unit rt_unit_of(const rt_args &a, int u, int n_runs = 0)
{
    const int of = u / a.n_units;

    if (!a.lists.blocks) return rt_unit_of_pair<GLU>(a, of, u % a.n_units);
    const rt_block *b = a.lists.blocks + of;
    const int band0 = b->band0, band_n = b->band_n, at = u - band0 * a.n_units;

    b = a.lists.blocks + band0 +
        (n_runs ? rt_rotated(at, band0 * a.n_units, band_n, n_runs) : at % band_n);
    return {(const uint8_t *)b->codes[!GLU], (const uint8_t *)b->scales[!GLU], b->bias[!GLU],
            rt_factor(a, b->global_scale[!GLU]), b->row0, b->row0, b->n_rows, at / band_n,
            band_n > 1};
}

/* The i-th tile of a unit of so many among those of the weight. */
template <bool GLU, int TILES = RT_TILES>
static __device__ __forceinline__ int rt_tile(const rt_args &a, int j, int i)
{
    if (GLU) return min(TILES / 2 * j + i / 2, a.n_tiles - 1) + i % 2 * a.n_tiles;
    return min(TILES * j + i, a.n_tiles - 1);
}

/* What lane 0 has: so the compiler knows that all lanes have the same. What follows from it, as the
 * descriptors of products do, it keeps in uniform registers. */
static __device__ __forceinline__ int rt_uniform(int v) { return __shfl_sync(~0u, v, 0); }

/* The warpgroup of a thread. */
static __device__ __forceinline__ int rt_group(void) { return rt_uniform((int)threadIdx.x / 128); }

/* A scale as it is stored, from its number `bits`, of which the lower 16 may be all of it. */
static __device__ __forceinline__ float rt_scale_value(uint32_t bits, const rt_args &a)
{
    if (a.nw.scale_bytes == 4) return __uint_as_float(bits);
    if (a.nw.scales_are_bf16) return __uint_as_float(bits << 16);
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Scale number i of those at `scales`, as it is stored. */
static __device__ __forceinline__ uint32_t rt_scale_bits(const uint8_t *scales, const rt_args &a,
                                                         int64_t i)
{
    if (a.nw.scale_bytes == 4) return ((const uint32_t *)scales)[i];
    return ((const uint16_t *)scales)[i];
}

static __device__ __forceinline__ int rt_n_blocks(const rt_args &a)
{
    return rt_uniform(a.lists.blocks ? *a.lists.n_blocks : a.n_pairs);
}

#endif
