/* attention_units.cuh - what the CTAs of attention_wgmma.cuh work on.
 *
 * A unit is a block of queries of one head. The queries that see most come first, so that short
 * units fill what is left at the end; CTA i takes the i-th unit of every even round of the grid and
 * the i-th from behind of every odd one. Heads that share keys stand side by side. Where the keys
 * and values of all sequences do not fit the L2, those of a section do, and its units come before
 * any of the next.
 */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_UNITS_CUH
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_UNITS_CUH

#include <stdint.h>

#include "kernels/cuda/ops/engine_heads.cuh"

struct aw_args {
    const float *sinks;     /* [n_heads] or NULL */
    const int32_t *first;   /* [n_seqs] or NULL: 0 */
    int seq_len, n_kv_heads, heads_per_kv;
    int window, chunk;      /* 0: none */
    float factor;           /* of scores, so that powers of two are meant, */
    float out_factor;       /* and of results */
    int n_blocks, n_groups; /* of queries; of keys: sequences times their heads */
    int section;            /* groups */
};

/* A block of queries as a CTA goes through its keys, tile by tile from the last to the first. */
struct aw_unit {
    int seq, head, kv_head;
    int row0, position;     /* its first query: in its sequence, and where that stands */
    int there;              /* keys of the sequence */
    int last_tile, n_tiles;
};

/* The unit of this CTA in a round, n_units or more: none. */
__device__ __forceinline__ int aw_unit_at(int round)
{
    const int size = (int)gridDim.x, i = (int)blockIdx.x;

    return round * size + (round % 2 ? size - 1 - i : i);
}

__device__ __forceinline__ int aw_n_units(const aw_args &a)
{
    return a.n_groups * a.heads_per_kv * a.n_blocks;
}

template <int ROWS, int KEYS>
__device__ __forceinline__ aw_unit aw_unit_of(const aw_args &a, int at)
{
    const int of_section = a.section * a.heads_per_kv * a.n_blocks;
    const int group0 = at / of_section * a.section;
    const int width = min(a.section, a.n_groups - group0) * a.heads_per_kv;
    const int in_section = at % of_section, in_width = in_section % width;
    const int group = group0 + in_width / a.heads_per_kv;
    aw_unit u;

    u.seq = group / a.n_kv_heads;
    u.kv_head = group % a.n_kv_heads;
    u.head = u.kv_head * a.heads_per_kv + in_width % a.heads_per_kv;
    u.row0 = (a.n_blocks - 1 - in_section / width) * ROWS;
    /* From lane 0, so that the compiler knows that a warp does not diverge by it. */
    const int first = a.first ? __shfl_sync(~0u, a.first[u.seq], 0) : 0;
    u.position = first + u.row0;
    u.there = first + a.seq_len;
    const int oldest = max(0, u.position + 1 - sw_keys_seen(a, u.position));

    u.last_tile = (min(u.there, u.position + ROWS) - 1) / KEYS;
    u.n_tiles = u.last_tile - oldest / KEYS + 1;
    return u;
}

#endif
