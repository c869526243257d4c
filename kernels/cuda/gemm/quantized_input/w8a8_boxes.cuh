/* w8a8_boxes.cuh - phase 1 of the kernels of 8-bit inputs for few tokens: what a CTA works on, and
 * the thread that brings it.
 *
 * One thread asks for whole boxes. A warp whose lanes asked for a tile each took some 250
 * instructions a stage, and longer than the products of 16 to 64 tokens.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_BOXES_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_BOXES_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_copy.cuh"
#include "kernels/cuda/ptx/arrive.cuh"

/* This cluster's block of channels and tokens; tokens that are not there: a place holder. */
template <int T, int NT>
static __device__ __forceinline__ w8a8_place w8a8_place_of(const w8a8_args &a)
{
    w8a8_place p;
    uint32_t all = (uint32_t)(a.k_tiles + 1) / 2, split = (uint32_t)a.split;
    int block = (int)sw_cluster_id(), n_blocks = (a.n_tiles + NT - 1) / NT, row = 0;

    if (block >= n_blocks) row = block / n_blocks, block -= row * n_blocks;
    p.rank = sw_cluster_rank();
    p.n_tile0 = block * NT;
    p.token0 = sw_whole_block(row * T, a.m, T);
    p.stage0 = (int)(all * p.rank / split); /* below 2^24 times 8 */
    p.n_stages = (int)(all * (p.rank + 1) / split) - p.stage0;
    return p;
}

/* The CTA's i-th tile: neighbours, or a tile of gates and that of their ups. */
static __device__ __forceinline__ int w8a8_tile(const w8a8_args &a, const w8a8_place &p, int i)
{
    return a.gate_tiles ? p.n_tile0 / 2 + i * a.gate_tiles : p.n_tile0 + i;
}

/* Stages one after the other, and the group of scales that each is in. */
struct w8a8_walk {
    int stage, group, left; /* left: of stages in the group */

    __device__ __forceinline__ w8a8_walk(const w8a8_args &a, int first) : stage(first)
    {
        group = a.group_stages ? first / a.group_stages : 0;
        left = a.group_stages ? (group + 1) * a.group_stages - first : 0;
    }
    __device__ __forceinline__ void next(const w8a8_args &a)
    {
        stage++;
        if (a.group_stages && --left == 0) group++, left = a.group_stages;
    }
};

/* Scales and zero points of a stage, after the barrier has been told of all its bytes. */
template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void
w8a8_box_scales(const w8a8_maps &maps, const w8a8_args &a, const w8a8_place &p,
                const w8a8_walk &at_k, uint32_t stage, uint32_t bar, uint64_t policy)
{
    using at = w8a8_stage<KIND, T, NT, GROUPED>;
    uint32_t n_bytes = (uint32_t)a.x_rows * 128 + NT * at::tile_bytes;
    bool has_zeros = GROUPED && KIND == W8A8_INT4 && a.zeros;

    if (GROUPED) n_bytes += (uint32_t)(NT * a.record_bytes);
    if (has_zeros) n_bytes += NT * 64;
    sw_mbar_expect(bar, n_bytes);
    if (GROUPED)
        sw_tensor_load_3d(stage + at::s_at, &maps.scales, 0, at_k.group, p.n_tile0, bar, policy);
    if (has_zeros)
        sw_tensor_load_3d(stage + at::z_at, &maps.zeros, 0, at_k.group, p.n_tile0, bar, policy);
}

/* These and the weights. Boxes of codes, zeros where there are no tiles, only at the edges:
 * straight pieces need no description, which is to be fetched first. */
template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void
w8a8_box_weights(const w8a8_maps &maps, const w8a8_args &a, const w8a8_place &p,
                 const w8a8_walk &at_k, uint32_t stage, uint32_t bar, uint64_t policy)
{
    using at = w8a8_stage<KIND, T, NT, GROUPED>;

    w8a8_box_scales<KIND, T, NT, GROUPED>(maps, a, p, at_k, stage, bar, policy);
    if (p.n_tile0 + NT <= a.n_tiles && 2 * at_k.stage + 2 <= a.k_tiles) {
        const int step = w8a8_tile(a, p, 1) - w8a8_tile(a, p, 0);
        const uint8_t *from = a.codes + ((int64_t)w8a8_tile(a, p, 0) * a.k_tiles +
                                         2 * at_k.stage) * (at::tile_bytes / 2);

#pragma unroll
        for (int i = 0; i < NT; i++)
            sw_bulk_load(stage + at::w_at + i * at::tile_bytes,
                         from + (int64_t)(i * step) * a.k_tiles * (at::tile_bytes / 2),
                         at::tile_bytes, bar, policy);
    } else {
        sw_tensor_load_3d(stage + at::w_at, &maps.codes, 0,
                          at_k.stage * (at::tile_bytes / SW_W8A8_BLOCK_BYTES), p.n_tile0, bar,
                          policy);
    }
}

/* Other blocks of tokens read the same weights soon. */
template <int T>
static __device__ __forceinline__ uint64_t w8a8_weights_policy(const w8a8_args &a)
{
    return a.m > T ? sw_policy_evict_last() : sw_policy_evict_first();
}

/* Barriers, by the thread that copies, which then asks for the weights of the whole ring: they
 * depend on no earlier kernel. ARRIVALS: of consumers at the barrier of a stage. */
template <int KIND, int T, int NT, int MODE, int STAGES, int ARRIVALS>
static __device__ __forceinline__ void w8a8_open(const w8a8_maps &maps, const w8a8_args &a,
                                                 const w8a8_place &p, uint32_t ring, uint32_t full,
                                                 uint32_t empty)
{
    constexpr uint32_t bytes = w8a8_stage_bytes<KIND, T, NT, MODE>();
    constexpr bool GROUPED = w8a8_has_records(MODE);
    uint64_t policy = w8a8_weights_policy<T>(a);
    w8a8_walk walk(a, p.stage0);

    sw_tensor_prefetch(&maps.codes);
    if (GROUPED) sw_tensor_prefetch(&maps.scales);
    sw_tensor_prefetch(&maps.x);
    for (int i = 0; i < STAGES; i++) {
        sw_mbar_init(full + 8 * i, MODE == W8A8_X_BLOCKS ? 1 + SW_ARRIVALS
                                   : a.has_x_groups      ? 33 /* see w8a8_copy_x */
                                                         : 1);
        sw_mbar_init(empty + 8 * i, ARRIVALS);
    }
    sw_mbar_init_fence();
    for (int it = 0; it < min(STAGES, p.n_stages); it++, walk.next(a))
        w8a8_box_weights<KIND, T, NT, GROUPED>(maps, a, p, walk, ring + it * bytes, full + 8 * it,
                                               policy);
}

/* Of the same thread, and of its warp where lanes copy scales of X: X for these, then stage after
 * stage. */
template <int KIND, int T, int NT, int MODE, int STAGES>
static __device__ __forceinline__ void w8a8_fill(const w8a8_maps &maps, const w8a8_args &a,
                                                 const w8a8_place &p, uint32_t ring, uint32_t full,
                                                 uint32_t empty)
{
    constexpr uint32_t bytes = w8a8_stage_bytes<KIND, T, NT, MODE>();
    constexpr bool GROUPED = w8a8_has_records(MODE);
    uint64_t w_policy = w8a8_weights_policy<T>(a), x_policy = sw_policy_evict_last();
    int first = min(STAGES, p.n_stages), lane = (int)threadIdx.x % 32;
    w8a8_walk walk(a, p.stage0 + first);

    if (!(KIND == W8A8_E4M3 && GROUPED) && lane > 0) return;
    sw_grid_wait_previous();
    for (int it = 0; it < first; it++)
        w8a8_copy_x<KIND, T, NT, GROUPED>(&maps.x, a, p, it, ring + it * bytes, full + 8 * it,
                                          x_policy);
    for (int it = first, s = 0, turn = 0; it < p.n_stages; it++, walk.next(a)) {
        sw_mbar_wait(empty + 8 * s, turn);
        if (lane == 0)
            w8a8_box_weights<KIND, T, NT, GROUPED>(maps, a, p, walk, ring + s * bytes, full + 8 * s,
                                                   w_policy);
        w8a8_copy_x<KIND, T, NT, GROUPED>(&maps.x, a, p, it, ring + s * bytes, full + 8 * s,
                                          x_policy);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
}

#endif
