/* w8a8_two_ctas.cuh - products of 8-bit inputs for some hundred tokens, by pairs of CTAs (sm_90a).
 *
 * As w8a8_split_k_wgmma.cuh, with these differences:
 *
 *   pairs: the two CTAs of a cluster read the same inputs (two blocks of channels side by side) or
 *          the same weights (two blocks of tokens). Each brings half of what both read to both, and
 *          a stage is replaced when both are done with it. The first stages are the CTA's own, so
 *          that they need not wait for the other one
 *   k:     is not shared, so that nothing is added up over the cluster; but where there are few
 *          blocks of Y, the two CTAs of a pair have nothing to read in common and take half of k
 *          each: then a warpgroup adds to its sums those of the same one of the other CTA
 *   CTA:   a warpgroup for each tile of channels, or two that share its tokens, and a warp that
 *          copies
 *   scales of X and W in blocks: a warp beside the one that copies multiplies them and lays them
 *          out in a stage (w8a8_block_scales.cuh)
 *   sums:  integers by channel stay in the tensor cores to the last stage; see w8a8_whole.cuh for
 *          those that leave them with every stage
 *   store: as for many tokens, through shared memory
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_CUH

#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_boxes.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_store.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_whole.cuh"

template <int KIND, int T, int NT, int RING, int MODE>
__host__ __device__ constexpr int a8p_n_stages(void)
{
    return RING * 1024 / w8a8_stage_bytes<KIND, T, NT, MODE>();
}

template <int KIND, int T, int NT, int RING, int MODE> constexpr int a8p_shared_bytes(void)
{
    return a8p_n_stages<KIND, T, NT, RING, MODE>() * w8a8_stage_bytes<KIND, T, NT, MODE>() + 1024;
}

/* Threads of the warp that copies, with one that makes scales of blocks, or of a warpgroup that
 * gives most of its registers away: where totals and sums that leave the tensor cores want more
 * than a launch can give to all. */
template <int KIND, int NT, int MODE> __host__ __device__ constexpr int a8p_copiers(void)
{
    return NT > 1 && (w8a8_is_float(KIND) || MODE != W8A8_PLAIN) ? 128
           : MODE == W8A8_X_BLOCKS                               ? 64
                                                                 : 32;
}

/* This CTA's block of channels and tokens, of which the second of a pair may have none. */
template <int T, int NT, int SHARED>
static __device__ __forceinline__ w8a8_place a8p_place_of(const w8a8_args &a)
{
    w8a8_place p;
    int blocks = (a.n_tiles + NT - 1) / NT, cluster = (int)sw_cluster_id(), row, first;

    p.rank = sw_cluster_rank();
    if (SHARED == SW_A8P_X) blocks = (blocks + 1) / 2;
    row = cluster / blocks;
    first = cluster - row * blocks;
    p.stage0 = 0;
    p.n_stages = (a.k_tiles + 1) / 2;
    if (SHARED == SW_A8P_K) {
        int half = p.n_stages / 2;

        if (p.rank) p.stage0 = half, p.n_stages -= half;
        else p.n_stages = half;
    }
    p.n_tile0 = (SHARED == SW_A8P_X ? first * 2 + (int)p.rank : first) * NT;
    if (SHARED == SW_A8P_W) row *= 2;
    p.token0 = sw_whole_block((SHARED == SW_A8P_W ? row + (int)p.rank : row) * T, a.m, T);
    return p;
}

/* Are the weights of a stage all there, so that a tile of it is one straight piece? */
template <int NT>
static __device__ __forceinline__ bool a8p_is_whole(const w8a8_args &a, const w8a8_place &p,
                                                    int stage)
{
    return p.n_tile0 + NT <= a.n_tiles && 2 * stage + 2 <= a.k_tiles;
}

/* Weights of a stage that both CTAs read: one of its two tiles to both. At the edges, where a box
 * fills up with zeros, each brings its own. */
template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void
a8p_both_weights(const w8a8_maps &maps, const w8a8_args &a, const w8a8_place &p,
                 const w8a8_walk &at_k, uint32_t stage, uint32_t bar, uint64_t policy)
{
    using at = w8a8_stage<KIND, T, NT, GROUPED>;
    int tile = p.n_tile0 + (int)p.rank;

    static_assert(NT == 2, "a tile for each CTA");
    if (!a8p_is_whole<NT>(a, p, at_k.stage)) {
        w8a8_box_weights<KIND, T, NT, GROUPED>(maps, a, p, at_k, stage, bar, policy);
        return;
    }
    w8a8_box_scales<KIND, T, NT, GROUPED>(maps, a, p, at_k, stage, bar, policy);
    sw_bulk_load_both(stage + at::w_at + p.rank * at::tile_bytes,
                      a.codes + ((int64_t)tile * a.k_tiles + 2 * at_k.stage) * (at::tile_bytes / 2),
                      at::tile_bytes, bar, policy);
}

/* X of a stage: all of it, or half of it to both CTAs. */
template <int SHARED>
static __device__ __forceinline__ void a8p_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                  const w8a8_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy)
{
    int half = a.x_rows / 2;

    if constexpr (SHARED == SW_A8P_X)
        sw_tensor_load_both(stage + p.rank * half * 128, map, it * 128,
                            p.token0 + (int)p.rank * half, bar, policy);
    else sw_tensor_load_2d(stage, map, (p.stage0 + it) * 128, p.token0, bar, policy);
}

/* One thread: barriers, and the weights of the whole ring, which depend on no earlier kernel. They
 * are the CTA's own, as the other one may not have its barriers yet. */
template <int KIND, int T, int NT, int MODE, int STAGES, int ARRIVALS>
static __device__ __forceinline__ void a8p_open(const w8a8_maps &maps, const w8a8_args &a,
                                                const w8a8_place &p, uint32_t ring, uint32_t full,
                                                uint32_t empty, uint64_t policy)
{
    constexpr uint32_t bytes = w8a8_stage_bytes<KIND, T, NT, MODE>();
    constexpr bool GROUPED = w8a8_has_records(MODE);
    w8a8_walk walk(a, p.stage0);

    if (GROUPED) sw_tensor_prefetch(&maps.scales);
    sw_tensor_prefetch(&maps.x);
    for (int i = 0; i < STAGES; i++) {
        sw_mbar_init(full + 8 * i, MODE == W8A8_X_BLOCKS ? 1 + SW_ARRIVALS : 1);
        sw_mbar_init(empty + 8 * i, ARRIVALS);
    }
    sw_mbar_init_fence();
    for (int it = 0; it < min(STAGES, p.n_stages); it++, walk.next(a))
        w8a8_box_weights<KIND, T, NT, GROUPED>(maps, a, p, walk, ring + it * bytes, full + 8 * it,
                                               policy);
}

/* The same thread, once both CTAs have their barriers: X for these, then stage after stage. */
template <int KIND, int T, int NT, int MODE, int STAGES, int SHARED>
static __device__ __forceinline__ void a8p_fill(const w8a8_maps &maps, const w8a8_args &a,
                                                const w8a8_place &p, uint32_t ring, uint32_t full,
                                                uint32_t empty, uint64_t w_policy)
{
    constexpr uint32_t bytes = w8a8_stage_bytes<KIND, T, NT, MODE>();
    constexpr bool GROUPED = w8a8_has_records(MODE);
    uint64_t x_policy = sw_policy_evict_last();
    int first = min(STAGES, p.n_stages), s = 0, turn = 0;
    w8a8_walk walk(a, p.stage0 + first);

    sw_grid_wait_previous();
    for (int it = 0; it < first; it++)
        a8p_copy_x<SHARED>(&maps.x, a, p, it, ring + it * bytes, full + 8 * it, x_policy);
    for (int it = first; it < p.n_stages; it++, walk.next(a)) {
        uint32_t stage = ring + s * bytes, bar = full + 8 * s;

        sw_mbar_wait(empty + 8 * s, turn);
        if constexpr (SHARED == SW_A8P_W)
            a8p_both_weights<KIND, T, NT, GROUPED>(maps, a, p, walk, stage, bar, w_policy);
        else
            w8a8_box_weights<KIND, T, NT, GROUPED>(maps, a, p, walk, stage, bar, w_policy);
        a8p_copy_x<SHARED>(&maps.x, a, p, it, stage, bar, x_policy);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
    /* What the other CTA says of our stages must find us: an arrival is not ordered by the last
     * meeting, which is relaxed. */
    for (int it = 0; it < first; it++) {
        sw_mbar_wait(empty + 8 * s, turn);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
}

/* The stage that `ring` stands at, its operand in frag[NOW]; with NEXT the operand of the one
 * after, to which the ring moves. Its products are left in the tensor cores; those of the stage
 * before, whose barrier is `before`, have ended. */
template <int KIND, int T, int NT, int NOW, bool NEXT, int N, typename ring_type>
static __device__ __forceinline__ uint32_t a8p_stage(int (&total)[N], uint32_t (&frag)[2][16],
                                                     ring_type &ring, const w8a8_args &a,
                                                     const w8a8_place &p, const w8a8_share &own,
                                                     uint32_t before)
{
    uint32_t stage = ring.stage(), bar = ring.bar();

    ring.turn();
    w8a8_issue(total, frag[NOW], stage + own.x_at, 1);
    if (NEXT) ring.wait();
    sw_wgmma_wait<1>();
    if (before) ring.release(before);
    if (NEXT) w8a8_load<KIND, T, NT, false>(frag[1 - NOW], a, p, ring.stage(), own.tile);
    return bar;
}

/* Integers of one group a channel. */
template <int KIND, int T, int NT, int N, typename ring_type>
static __device__ __forceinline__ void a8p_multiply(int (&total)[N], ring_type &ring,
                                                    const w8a8_args &a, const w8a8_place &p,
                                                    const w8a8_share &own)
{
    int left = p.n_stages;
    uint32_t frag[2][16], before = 0;

    ring.wait();
    w8a8_load<KIND, T, NT, false>(frag[0], a, p, ring.stage(), own.tile);
#pragma unroll 1
    for (; left > 2; left -= 2) {
        before = a8p_stage<KIND, T, NT, 0, true>(total, frag, ring, a, p, own, before);
        before = a8p_stage<KIND, T, NT, 1, true>(total, frag, ring, a, p, own, before);
    }
    if (left == 2) {
        before = a8p_stage<KIND, T, NT, 0, true>(total, frag, ring, a, p, own, before);
        before = a8p_stage<KIND, T, NT, 1, false>(total, frag, ring, a, p, own, before);
    } else {
        before = a8p_stage<KIND, T, NT, 0, false>(total, frag, ring, a, p, own, before);
    }
    sw_wgmma_wait<0>();
    sw_hold(total);
    ring.release(before);
}

/* Sums of two CTAs that share k, of one warpgroup of each: the first CTA stores those of the first
 * warpgroup, the second those of the second. False: the other CTA stores ours. at: 16 bytes a
 * thread, four sums, and the next 128 threads' behind it. */
template <int N, typename type>
static __device__ __forceinline__ bool a8p_meet(type (&total)[N], uint32_t rank, uint32_t at)
{
    uint32_t there = sw_cluster_map(at, 1 - rank);
    bool stores = threadIdx.x / 128 % 2 == rank;

#pragma unroll
    for (int i = 0; i < N && !stores; i += 4) sw_shared_put16(at + (uint32_t)i * 512, total + i);
    sw_cluster_sync();
#pragma unroll
    for (int i = 0; i < N && stores; i += 4) {
        type other[4];

        sw_cluster_get16(other, there + (uint32_t)i * 512);
#pragma unroll
        for (int e = 0; e < 4; e++) total[i + e] += other[e];
    }
    return stores;
}

/* The sums of a warpgroup to Y. */
template <int KIND, int TW, int SHARED, int MODE, typename type>
static __device__ __forceinline__ void
a8p_store(type (&total)[TW / 2], const w8a8_args &a, const w8a8_place &p, int token0, int n_tile,
          const w8a8_channels &channels, const float *x_scales, uint32_t ring)
{
    uint32_t wg = threadIdx.x / 128;

    if constexpr (SHARED == SW_A8P_K)
        if (!a8p_meet(total, p.rank, ring + 4 * SW_W8A8_PARK_BYTES + wg * (TW / 2 * 512) +
                                         threadIdx.x % 128 * 16))
            return;
    if (token0 < a.m)
        w8a8_store_own<KIND, TW, MODE>(total, a, token0, n_tile, channels, x_scales,
                                       ring + wg * SW_W8A8_PARK_BYTES);
}

template <int KIND, int T, int NT, int BY_T, int STAGES, int SHARED, int MODE>
static __device__ __forceinline__ void a8p_consume(const w8a8_args &a, const w8a8_place &p,
                                                   uint32_t ring_at, uint32_t full, uint32_t empty,
                                                   float *s_x_scales)
{
    constexpr int threads = NT * BY_T * 128, TW = T / BY_T; /* tokens of a warpgroup */
    int wg = (int)threadIdx.x / 128, n_tile = p.n_tile0 + wg / BY_T;
    int token0 = p.token0 + wg % BY_T * TW;
    w8a8_share own = {wg / BY_T, (uint32_t)(wg % BY_T * TW * 128)};
    w8a8_cluster_ring<SHARED == SW_A8P_K ? 1 : 2, STAGES> ring = {
        {ring_at, full, empty, w8a8_stage_bytes<KIND, T, NT, MODE>(), 0, 0}};
    /* While the first stage is on its way. */
    w8a8_channels channels = w8a8_channels_of<KIND, MODE>(a, n_tile);
    const float *x_scales = s_x_scales - p.token0;

    sw_grid_wait_previous();
    for (int i = (int)threadIdx.x; i < T && MODE != W8A8_X_BLOCKS; i += threads)
        s_x_scales[i] = a.x_scales[min(p.token0 + i, a.m - 1)];
    if constexpr (!w8a8_is_float(KIND) && MODE == W8A8_PLAIN) {
        int total[TW / 2] = {};

        if (p.n_stages > 0) a8p_multiply<KIND, T, NT>(total, ring, a, p, own);
        sw_named_sync(1, threads); /* nobody reads the ring any more: Y goes through it */
        a8p_store<KIND, TW, SHARED, MODE>(total, a, p, token0, n_tile, channels, x_scales, ring_at);
    } else {
        float total[TW / 2];

#pragma unroll
        for (int i = 0; i < TW / 2; i++) asm volatile("mov.b32 %0, 0;" : "=f"(total[i]));
        if (p.n_stages > 0) w8a8_whole<KIND, T, NT, MODE>(total, ring, a, p, own);
        sw_named_sync(1, threads);
        a8p_store<KIND, TW, SHARED, MODE>(total, a, p, token0, n_tile, channels, x_scales, ring_at);
    }
}

template <int KIND, int T, int NT, int BY_T, int RING, int SHARED, int MODE>
static __global__ void __launch_bounds__(NT *BY_T * 128 + a8p_copiers<KIND, NT, MODE>(), 1)
    swk_w8a8_two_ctas_sm90(const __grid_constant__ w8a8_maps maps, const w8a8_args a)
{
    constexpr int consumers = NT * BY_T * 128, copiers = a8p_copiers<KIND, NT, MODE>();
    using registers = w8a8_registers<NT * BY_T, 40>;
    constexpr int STAGES = a8p_n_stages<KIND, T, NT, RING, MODE>();
    /* At the barrier of a stage, of both CTAs where both fill it. */
    constexpr int releases = (SHARED == SW_A8P_K ? 1 : 2) * 4 * NT * BY_T * SW_ARRIVALS;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ float s_x_scales[T];
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    w8a8_place p = a8p_place_of<T, NT, SHARED>(a);
    /* Read by one cluster alone, or by others soon. */
    uint64_t policy = a.m > (SHARED == SW_A8P_W ? 2 * T : T) ? sw_policy_evict_last()
                                                             : sw_policy_evict_first();
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    static_assert(STAGES >= 3, "a stage is held until the next has begun");
    sw_grid_launch_next();
    if (threadIdx.x == consumers)
        a8p_open<KIND, T, NT, MODE, STAGES, releases>(maps, a, p, ring, full, empty, policy);
    if constexpr (SHARED == SW_A8P_K) {
        __syncthreads();
    } else {
        __syncwarp();
        sw_cluster_meet();
    }
    if (warp >= consumers / 32) {
        if constexpr (copiers == 128) sw_fewer_registers<registers::copier>();
        if (threadIdx.x == consumers)
            a8p_fill<KIND, T, NT, MODE, STAGES, SHARED>(maps, a, p, ring, full, empty, policy);
        if (MODE == W8A8_X_BLOCKS && warp == consumers / 32 + 1)
            w8a8_scale_all<KIND, T, NT, MODE, STAGES>(a, p, ring, full, empty);
        __syncwarp();
        if (SHARED == SW_A8P_K) sw_cluster_sync();
    } else {
        if constexpr (copiers == 128) sw_more_registers<registers::consumer>();
        a8p_consume<KIND, T, NT, BY_T, STAGES, SHARED, MODE>(a, p, ring, full, empty, s_x_scales);
        __syncwarp();
    }
    sw_cluster_part();
}

#endif
