/* routed_unit.cuh - what a CTA of routed experts works on.
 *
 * A unit is 256 channels of one block of rows: with GLU 128 gates and their ups, so that a thread
 * has the sums of a gate and of its up. In a stage the tiles of a unit lie in the order
 *
 *   GLU    gate 2j, up 2j, gate 2j + 1, up 2j + 1        (warpgroup 0: the first two)
 *   else   4j, 4j + 1, 4j + 2, 4j + 3
 *
 * Tiles beyond the last are the last again, multiplied in vain and not stored.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_UNIT_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_UNIT_CUH

#include "kernels/cuda/experts/routed_args.h"

#define RT_TILES 4 /* of a unit */

struct rt_unit {
    const uint8_t *codes, *scales;
    const float *bias;
    int x_row, row0, n_rows; /* of the inputs, of the sorted rows */
    int j;                   /* which of its block */
    bool is_shared;          /* other blocks of this expert read the same weights soon */
};

static __device__ __forceinline__ rt_block rt_block_at(const rt_block *blocks, int i)
{
    const int4 *from = (const int4 *)(blocks + i);
    const int4 a = __ldg(from), b = __ldg(from + 1);

    return {a.x, a.y, a.z, a.w, b.x, {}};
}

/* Unit u: the blocks of a band take turns for each j. */
template <bool GLU> static __device__ __forceinline__ rt_unit rt_unit_of(const rt_args &a, int u)
{
    int of = u / a.n_units, expert;
    rt_unit v = {};

    if (a.lists.blocks) {
        rt_block b = rt_block_at(a.lists.blocks, of);
        int at = u - b.band0 * a.n_units;

        v.j = at / b.band_n;
        if (b.band_n > 1) b = rt_block_at(a.lists.blocks, b.band0 + at % b.band_n);
        v.row0 = v.x_row = b.row0, v.n_rows = b.n_rows, v.is_shared = b.band_n > 1;
        expert = b.expert;
    } else {
        v.j = u % a.n_units, v.row0 = of, v.n_rows = 1;
        v.x_row = GLU ? 0 : of;
        expert = a.chosen[of];
    }
    const sw_expert *e = a.experts + expert;

    v.codes = (const uint8_t *)e->codes, v.scales = (const uint8_t *)e->scales, v.bias = e->bias;
    return v;
}

/* The i-th tile of a unit among those of the weight. */
template <bool GLU> static __device__ __forceinline__ int rt_tile(const rt_args &a, int j, int i)
{
    if (GLU) return min(2 * j + i / 2, a.n_tiles - 1) + i % 2 * a.n_tiles;
    return min(RT_TILES * j + i, a.n_tiles - 1);
}

static __device__ __forceinline__ int rt_n_blocks(const rt_args &a)
{
    return a.lists.blocks ? *a.lists.n_blocks : a.n_pairs;
}

#endif
