/* w8a8_persistent.cuh - products of 8-bit inputs for many tokens (sm_90a).
 *
 * As w8a8_split_k_wgmma.cuh, with these differences:
 *
 *   grid:  one CTA a multiprocessor, which goes through blocks of Y of 256 tokens x 128 channels;
 *          the warp that copies runs ahead into the next block while the sums of one are stored
 *   CTA:   two consumer warpgroups of one tile of channels each, so that what is fetched or
 *          converted once meets 256 tokens
 *   sums:  int8 and int4 by channel in the tensor cores, 128 a lane. Where sums leave the tensor
 *          cores with every stage, the 256 tokens go through in quarters of 64: while one is added
 *          up in fp32 the next is multiplied
 *   pairs: of 8-bit weights where no scales of channels change along k, and of 4-bit weights with X
 *          in E4M3, two CTAs of a cluster take blocks of the same tokens side by side. Each brings
 *          half of the inputs of a stage to both, and a stage is replaced when both have done with
 *          it
 *   store: from the stage that a block ends with, while the next one is multiplied
 *          (w8a8_block_store.cuh). Sums in fp32 of a CTA alone: through shared memory, a quarter at
 *          a time, so that rows of Y are written 128 bytes at a time
 *
 * Scales of X and W in blocks: w8a8_token_rows.cuh, and most of int8 with scales of channels:
 * w8a8_integer_rows.cuh, which have walk, ring and room for Y from here.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_block_store.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_boxes.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_flow.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"

#define SW_A8L_T 256          /* tokens of a block */
#define SW_A8L_NT 2           /* tiles of channels of a block, one a consumer warpgroup */
#define SW_A8L_THREADS 384
#define SW_A8L_BAND 8         /* blocks of tokens that are walked side by side */

template <int KIND, int MODE>
using a8l_stage = w8a8_stage<KIND, SW_A8L_T, SW_A8L_NT, w8a8_has_records(MODE)>;

template <int KIND, int MODE> __host__ __device__ constexpr int a8l_stage_bytes(void)
{
    return w8a8_stage_bytes<KIND, SW_A8L_T, SW_A8L_NT, MODE>();
}

/* Of shared memory, what a warpgroup stores its sums with beside its rows of Y. */
template <int KIND, int MODE> __host__ __device__ constexpr int a8l_aside_bytes(void)
{
    return a8l_keeps(KIND, MODE) ? a8l_aside<SW_A8L_T>::bytes : 0;
}

template <int KIND, int MODE, int STAGES> constexpr int a8l_shared_bytes(void)
{
    return STAGES * a8l_stage_bytes<KIND, MODE>() +
           SW_A8L_NT * (SW_W8A8_PARK_BYTES + a8l_aside_bytes<KIND, MODE>()) + 1024;
}

/* What a block's sums end up in. */
template <int KIND, int MODE>
struct a8l_total {
    typedef float type;
};
template <>
struct a8l_total<W8A8_INT8, W8A8_PLAIN> {
    typedef int type;
};
template <>
struct a8l_total<W8A8_INT4, W8A8_PLAIN> {
    typedef int type;
};
template <>
struct a8l_total<W8A8_INT4_SYM, W8A8_PLAIN> {
    typedef int type;
};

/* The blocks of Y that a cluster goes through: whole ones, and at last perhaps its half of a block
 * that two clusters part by channels, the CTAs of each of which share k. */
template <int NC>
struct a8l_walk {
    int at; /* below grid.n_whole a whole block */

    __device__ __forceinline__ a8l_walk(void) : at((int)blockIdx.x / NC) {}
    __device__ __forceinline__ void next(void) { at += (int)gridDim.x / NC; }
    __device__ __forceinline__ bool is_there(const w8a8_grid &g) const { return at < g.n_all; }
    __device__ __forceinline__ bool is_shared(const w8a8_grid &g) const
    {
        return NC > 1 && at >= g.n_whole;
    }
};

/* Does this cluster end with such a half? Its CTAs then meet once more. */
template <int NC> static __device__ __forceinline__ bool a8l_ends_shared(const w8a8_grid &g)
{
    return NC > 1 && g.n_whole + (int)blockIdx.x / NC < g.n_all;
}

/* Where the walk is, in an order that keeps what CTAs work on side by side close: bands of a few
 * blocks of tokens, and inside a band all its blocks of tokens for one block of channels. */
template <int NC>
static __device__ __forceinline__ w8a8_place a8l_place(const w8a8_args &a, const a8l_walk<NC> &walk)
{
    w8a8_place p;
    bool is_shared = walk.is_shared(a.grid);
    int beyond = walk.at - a.grid.n_whole, at = is_shared ? a.grid.n_whole + beyond / NC : walk.at;
    int in_all = SW_A8L_BAND * a.grid.by_channel, band = at / in_all, in_band = at % in_all;
    int width = min(SW_A8L_BAND, a.grid.by_token - band * SW_A8L_BAND);
    int n_stages = (a.k_tiles + 1) / 2;

    p.rank = NC > 1 ? sw_cluster_rank() : 0;
    p.n_tile0 = (in_band / width * NC + (is_shared ? beyond % NC : (int)p.rank)) * SW_A8L_NT;
    p.token0 = sw_whole_block((band * SW_A8L_BAND + in_band % width) * SW_A8L_T, a.m, SW_A8L_T);
    p.n_stages = is_shared ? n_stages / NC : n_stages;
    p.stage0 = is_shared ? (int)p.rank * p.n_stages : 0;
    return p;
}

/* Weights, scales and zero points of the stage that `at_k` is at, a box each. */
template <int KIND, int MODE>
static __device__ __forceinline__ void
a8l_copy_weights(const a8l_maps &maps, const w8a8_args &a, const w8a8_place &p,
                 const w8a8_walk &at_k, uint32_t stage, uint32_t bar, uint64_t policy)
{
    using at = a8l_stage<KIND, MODE>;
    constexpr bool grouped = w8a8_has_records(MODE);
    bool has_zeros = grouped && KIND == W8A8_INT4 && a.zeros;
    uint32_t n_bytes = (uint32_t)a.x_rows * 128 + SW_A8L_NT * at::tile_bytes;

    if (grouped) n_bytes += (uint32_t)(SW_A8L_NT * a.record_bytes);
    if (has_zeros) n_bytes += SW_A8L_NT * 64;
    sw_warp_expect(bar, n_bytes);
    sw_warp_load_3d(stage + at::w_at, &maps.w, 0,
                    at_k.stage * (at::tile_bytes / SW_W8A8_BLOCK_BYTES), p.n_tile0, bar, policy);
    if (grouped)
        sw_warp_load_3d(stage + at::s_at, &maps.scales, 0, at_k.group, p.n_tile0, bar, policy);
    if (has_zeros)
        sw_warp_load_3d(stage + at::z_at, &maps.zeros, 0, at_k.group, p.n_tile0, bar, policy);
}

/* X of stage `at_k`: our half of it to both CTAs of a pair, or of our own share of k all of it. */
template <int KIND, int MODE, int NC>
static __device__ __forceinline__ void a8l_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                  const w8a8_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy, bool is_shared)
{
    int half = a.x_rows / 2, k = (p.stage0 + it) * 128;

    if constexpr (MODE == W8A8_X_GROUPS)
        w8a8_copy_x<KIND, SW_A8L_T, SW_A8L_NT, true>(map, a, p, it, stage, bar, policy);
    else if constexpr (NC == 1)
        sw_warp_load_2d(stage, map, k, p.token0, bar, policy);
    else if (is_shared) {
        sw_warp_load_2d(stage, map, k, p.token0, bar, policy);
        sw_warp_load_2d(stage + half * 128, map, k, p.token0 + half, bar, policy);
    } else
        sw_warp_load_both(stage + p.rank * half * 128, map, k, p.token0 + (int)p.rank * half, bar,
                          policy);
}

/* The warp that copies: all stages of all blocks of this CTA. */
template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8l_copy_all(const a8l_maps &maps, const w8a8_args &a,
                                                    uint32_t ring, uint32_t full, uint32_t empty)
{
    constexpr uint32_t bytes = a8l_stage_bytes<KIND, MODE>();
    constexpr int NC = SW_A8L_CTAS(KIND, MODE);
    uint64_t w_policy = a.m > SW_A8L_T ? sw_policy_evict_last() : sw_policy_evict_first();
    uint64_t x_policy = sw_policy_evict_last();
    a8l_walk<NC> walk;
    w8a8_place p = a8l_place<NC>(a, walk);
    int ahead = walk.is_there(a.grid) ? min(STAGES, p.n_stages) : 0, s = 0;
    uint32_t turn = 1; /* nothing is in the way in the first turn */
    w8a8_walk first(a, p.stage0);

    /* Weights depend on no earlier kernel: they are on their way before we wait for one. */
    for (int it = 0; it < ahead; it++, first.next(a))
        a8l_copy_weights<KIND, MODE>(maps, a, p, first, ring + it * bytes, full + 8 * it, w_policy);
    sw_grid_wait_previous();
    for (; walk.is_there(a.grid); walk.next(), ahead = 0) {
        bool is_shared = walk.is_shared(a.grid);

        p = a8l_place<NC>(a, walk);
        w8a8_walk at_k(a, p.stage0);
        for (int it = 0; it < p.n_stages; it++, at_k.next(a)) {
            uint32_t stage = ring + s * bytes;

            sw_mbar_sleep(empty + 8 * s, turn);
            if (it >= ahead)
                a8l_copy_weights<KIND, MODE>(maps, a, p, at_k, stage, full + 8 * s, w_policy);
            a8l_copy_x<KIND, MODE, NC>(&maps.x, a, p, it, stage, full + 8 * s, x_policy,
                                       is_shared);
            if (++s == STAGES) s = 0, turn ^= 1;
        }
    }
    if (a8l_flows(KIND, MODE) && p.n_stages % 2 == 0) { /* see a8l_consume_flow */
        sw_mbar_sleep(empty + 8 * s, turn);
        a8l_copy_weights<KIND, MODE>(maps, a, p, w8a8_walk(a, p.stage0), ring + s * bytes,
                                     full + 8 * s, w_policy);
        a8l_copy_x<KIND, MODE, NC>(&maps.x, a, p, 0, ring + s * bytes, full + 8 * s, x_policy,
                                   true);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
    __syncwarp();
    if (a8l_ends_shared<NC>(a.grid)) sw_cluster_sync();
    /* What the other CTA says of our stages must find us: an arrival is not ordered by the last
     * meeting, which is relaxed. */
#pragma unroll 1
    for (int it = 0; NC > 1 && it < STAGES; it++) {
        sw_mbar_wait(empty + 8 * s, turn);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
}

/* The ring, whose consumers may keep the last stage of a block for its rows of Y. */
template <int NC, int STAGES, bool KEEPS>
struct a8l_ring : w8a8_cluster_ring<NC, STAGES> {
    static constexpr bool keeps_last = KEEPS;
    uint32_t kept; /* the barrier of the stage that is kept; 0: none */

    /* The stage that is kept, back to the ring. */
    __device__ __forceinline__ void give_back(void)
    {
        if (kept == 0) return;
        sw_bulk_read_wait<0>();
        __syncwarp();
        w8a8_cluster_ring<NC, STAGES>::release(kept);
        kept = 0;
    }
    __device__ __forceinline__ void release(uint32_t stage_bar)
    {
        if (keeps_last) give_back();
        w8a8_cluster_ring<NC, STAGES>::release(stage_bar);
    }
    __device__ __forceinline__ void keep(uint32_t stage_bar)
    {
        give_back();
        kept = stage_bar;
    }
    __device__ __forceinline__ int kept_at(void) const { return (int)(kept - this->empty) / 8; }
};

/* Of shared memory, what this warpgroup stores its sums with. */
struct a8l_part {
    uint32_t park, aside;
};

template <int KIND, int MODE, typename ring_type>
static __device__ __forceinline__ a8l_rows a8l_rows_of(const ring_type &ring, const a8l_part &part)
{
    uint32_t stage = ring.stages + (uint32_t)ring.kept_at() * ring.bytes;
    uint32_t group = threadIdx.x / 128;

    return {part.park, stage + a8l_stage<KIND, MODE>::w_at + group * 8192, stage + group * 16384};
}

/* Of the sums that both CTAs of a pair have of the same block, each CTA's half of the tokens, to
 * the first half of its own: what it has of the other half goes through its ring, of which the
 * stage that is kept and the one behind it may be in use. */
template <int STAGES, typename ring_type, typename type>
static __device__ __forceinline__ void a8l_add_other(type (&total)[128], const ring_type &ring,
                                                     uint32_t rank)
{
    static_assert(STAGES >= 4, "two stages beside those that are in use");
    uint32_t group = threadIdx.x / 128, slot = ((uint32_t)ring.kept_at() + 2 + group) % STAGES;
    uint32_t at = ring.stages + slot * ring.bytes + threadIdx.x % 128 * 16, there;

    sw_named_sync(1, 256);
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        type other[4];

#pragma unroll
        for (int e = 0; e < 4; e++) {
            other[e] = rank ? total[i + e] : total[64 + i + e];
            total[i + e] = rank ? total[64 + i + e] : total[i + e];
        }
        sw_shared_put16(at + (uint32_t)i * 512, other);
    }
    sw_cluster_sync();
    there = sw_cluster_map(at, 1 - rank);
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        type other[4];

        sw_cluster_get16(other, there + (uint32_t)i * 512);
#pragma unroll
        for (int e = 0; e < 4; e++) total[i + e] += other[e];
    }
}

/* A block's sums to Y, by way of the stage that is kept. */
template <int KIND, int MODE, int STAGES, bool BF16, int NC, typename ring_type, typename type>
static __device__ __forceinline__ void
a8l_store_kept(type (&total)[128], const CUtensorMap *y_map, const w8a8_args &a,
               const w8a8_place &p, const ring_type &ring, const a8l_part &part, bool is_shared)
{
    constexpr int T = SW_A8L_T;
    int n_tile = p.n_tile0 + (int)threadIdx.x / 128;
    a8l_rows rows = a8l_rows_of<KIND, MODE>(ring, part);

    if constexpr (NC > 1)
        if (is_shared) a8l_add_other<STAGES>(total, ring, p.rank);
    a8l_store_block<KIND, MODE, BF16, T>(total, y_map, a, p, n_tile, is_shared, part.aside, rows);
}

/* The same by all threads, a quarter of the tokens after the other. */
template <int KIND, int MODE, typename type>
static __device__ __forceinline__ void a8l_store_own(const type *total, const w8a8_args &a,
                                                     const w8a8_place &p, const a8l_part &part)
{
    int n_tile = p.n_tile0 + (int)threadIdx.x / 128;
    w8a8_channels c = w8a8_channels_of<KIND, MODE>(a, n_tile);

    w8a8_store_own<KIND, SW_A8L_T, MODE>(total, a, p.token0, n_tile, c, a.x_scales, part.park);
}

/* All blocks of a pair in E4M3, whose products never end in between: one row of stages, two a turn,
 * so that every index of a fragment is a constant. Only the last block may have an odd number of
 * them; where it has an even one the row goes on to a stage behind it, which is thrown away. The
 * totals must begin as zeros that the compiler sees: from memory it would copy them where products
 * have begun, and serialize those. */
template <int KIND, int MODE, int STAGES, bool BF16, int NC, typename ring_type>
static __device__ __forceinline__ void a8l_consume_flow(const CUtensorMap *y_map,
                                                        const w8a8_args &a, ring_type &ring,
                                                        const a8l_part &part, a8l_walk<NC> &walk)
{
    constexpr int T = SW_A8L_T, PIECE = 64;
    w8a8_place p = a8l_place<NC>(a, walk);
    w8a8_on_its_way<KIND, PIECE> way;
    float total[T / 2] = {};
    int left = p.n_stages;

    a8l_fetch_aside<KIND, MODE, T>(a, p, p.n_tile0 + (int)threadIdx.x / 128, part.aside);
    w8a8_flow_begin<KIND, T, PIECE, MODE>(way, ring, a, p);
#pragma unroll 1
    while (left > 1) {
        w8a8_flow_stage<KIND, T, PIECE, MODE, 0, true>(total, way, ring, a, p, false);
        left -= 2;
        w8a8_flow_stage<KIND, T, PIECE, MODE, 1, true>(total, way, ring, a, p, left == 0);
        if (left > 0) continue;
        a8l_store_kept<KIND, MODE, STAGES, BF16, NC>(total, y_map, a, p, ring, part,
                                                     walk.is_shared(a.grid));
        walk.next();
        if (!walk.is_there(a.grid)) break;
#pragma unroll
        for (int i = 0; i < T / 2; i++) total[i] = 0;
        p = a8l_place<NC>(a, walk);
        left = p.n_stages;
        a8l_fetch_aside<KIND, MODE, T>(a, p, p.n_tile0 + (int)threadIdx.x / 128, part.aside);
    }
    if (left == 1) {
        w8a8_flow_stage<KIND, T, PIECE, MODE, 0, false>(total, way, ring, a, p, true);
        a8l_store_kept<KIND, MODE, STAGES, BF16, NC>(total, y_map, a, p, ring, part,
                                                     walk.is_shared(a.grid));
    } else {
        sw_wgmma_wait<0>();
        ring.release(ring.bar());
    }
}

/* The block that the walk is at. */
template <int KIND, int MODE, int STAGES, bool BF16, int NC, typename ring_type>
static __device__ __forceinline__ void a8l_consume_block(const CUtensorMap *y_map,
                                                         const w8a8_args &a, ring_type &ring,
                                                         const a8l_part &part,
                                                         const a8l_walk<NC> &walk,
                                                         uint32_t zero_addr)
{
    w8a8_place p = a8l_place<NC>(a, walk);
    typename a8l_total<KIND, MODE>::type total[1][128];

    if constexpr (a8l_keeps(KIND, MODE))
        a8l_fetch_aside<KIND, MODE, SW_A8L_T>(a, p, p.n_tile0 + (int)threadIdx.x / 128, part.aside);
    w8a8_clear(total, zero_addr);
    if constexpr (!w8a8_is_float(KIND) && MODE == W8A8_PLAIN)
        w8a8_multiply<KIND, SW_A8L_T, 1, SW_A8L_NT>(total, ring, a, p);
    else if constexpr (w8a8_is_float(KIND) && NC > 1)
        w8a8_multiply_flow<KIND, SW_A8L_T, 64, MODE>(total[0], ring, a, p);
    else w8a8_multiply_pieces<KIND, SW_A8L_T, 64, MODE>(total[0], ring, a, p);
    if constexpr (a8l_keeps(KIND, MODE))
        a8l_store_kept<KIND, MODE, STAGES, BF16, NC>(total[0], y_map, a, p, ring, part,
                                                     walk.is_shared(a.grid));
    else a8l_store_own<KIND, MODE>(total[0], a, p, part);
}

/* BF16: Y, else F16; where no stage is kept w8a8_args says it. */
template <int KIND, int MODE, int STAGES, bool BF16>
static __global__ void __launch_bounds__(SW_A8L_THREADS, 1)
    swk_w8a8_persistent_sm90(const __grid_constant__ a8l_maps maps, const w8a8_args a)
{
    constexpr int bytes = a8l_stage_bytes<KIND, MODE>(), NC = SW_A8L_CTAS(KIND, MODE);
    constexpr bool flows = a8l_flows(KIND, MODE), keeps = a8l_keeps(KIND, MODE);
    /* Sums in fp32 beside two fragments take all that there are. */
    using registers = w8a8_registers<SW_A8L_NT, (w8a8_is_float(KIND) && NC > 1) ? 24 : 40>;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ uint32_t s_zero;
    uint32_t stages = (sw_smem_addr(s_bytes) + 1023) & ~1023u, parks = stages + STAGES * bytes;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (threadIdx.x == 0) s_zero = 0;
    w8a8_begin<NC * SW_A8L_NT, STAGES, bytes>(
        a, (uint32_t *)(s_bytes + (stages - sw_smem_addr(s_bytes))), full, empty,
        a.has_x_groups ? 33 : 1); /* see w8a8_copy_x */
    if (NC > 1) sw_cluster_sync(); /* before the other CTA fills our stages */
    if (warp >= 4 * SW_A8L_NT) {
        sw_fewer_registers<registers::copier>();
        if (warp == 4 * SW_A8L_NT)
            a8l_copy_all<KIND, MODE, STAGES>(maps, a, stages, full, empty);
        else if (a8l_ends_shared<NC>(a.grid))
            sw_cluster_sync();
    } else {
        uint32_t group = threadIdx.x / 128, aside = a8l_aside_bytes<KIND, MODE>();
        a8l_part part = {parks + group * SW_W8A8_PARK_BYTES,
                         parks + SW_A8L_NT * SW_W8A8_PARK_BYTES + group * aside};
        a8l_ring<NC, STAGES, keeps> ring = {{{stages, full, empty, bytes, 0, 0}}, 0};
        a8l_walk<NC> walk;

        sw_more_registers<registers::consumer>();
        sw_grid_wait_previous(); /* scales and sums of X, and Y, which it may still read */
        if constexpr (flows)
            a8l_consume_flow<KIND, MODE, STAGES, BF16>(&maps.y, a, ring, part, walk);
        else
            for (; walk.is_there(a.grid); walk.next())
                a8l_consume_block<KIND, MODE, STAGES, BF16>(&maps.y, a, ring, part, walk,
                                                            sw_smem_addr(&s_zero));
        if (keeps) ring.give_back();
        if (keeps && threadIdx.x % 128 == 0) sw_bulk_wait();
    }
    if (NC > 1) sw_cluster_part();
}

#endif
