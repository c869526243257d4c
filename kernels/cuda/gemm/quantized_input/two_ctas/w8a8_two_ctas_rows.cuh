/* w8a8_two_ctas_rows.cuh - products of E4M3 with scales of blocks for some hundred tokens, by pairs
 * of CTAs, whose rows are tokens (sm_90a): a CTA has T of them and as many channels as leave no
 * multiprocessor without work, in multiples of 16.
 *
 * As w8a8_two_ctas.cuh, with these differences:
 *
 *   CTA:    two consumer warpgroups of 64 tokens each, or of half of the channels where T is 64,
 *           which add up in turn: while one does, the other one multiplies. 224 channels of a
 *           warpgroup go through in two parts, for registers
 *   codes:  in columns (column_tiles.h). Boxes of four dimensions bring 256 bytes, 8 channels x 32
 *           inputs, of each step of 32 inputs one behind the other, then those of the next 8
 *           channels. So 8 channels are as far from the next 8 whatever tiles they are of, and a
 *           CTA that begins inside of a tile of 64 has one box of whole tiles and one of the rest
 *   scales: C channels meet two or three blocks of them. A warp lays out those of X, one a token,
 *           and those of W, one for each `unit` channels that are in one block whatever CTA it is;
 *           a lane multiplies its own
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_ROWS_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_ROWS_CUH

#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_block_scales.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_store.cuh"
#include "kernels/cuda/ptx/ptx_columns.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"

#define SW_A8C_CONSUMERS 256
#define SW_A8C_THREADS 384
#define SW_A8C_SHARED_MAX (231424 - 512) /* of a CTA, less barriers and what aligns the ring */
#define SW_A8C_COPIERS 2 /* warps that copy, X and weights; another lays out scales */
#define SW_A8C_AHEAD 4   /* stages whose scales of X are on their way */

/* A tile of the table, and byte offsets inside a stage of 128 inputs. */
template <int TOKENS, int CHANNELS, int N_PARTS, int SHARES>
struct a8c_tile {
    static constexpr int T = TOKENS, C = CHANNELS, PARTS = N_PARTS, SHARED = SHARES;
    static constexpr int own = T == 128 ? C : C / 2; /* channels of a warpgroup */
    static constexpr int part = own / PARTS;
    /* Where CTAs begin, and channels of a warpgroup that are in one block whatever CTA it is. */
    static constexpr int begin = C % 64 == 0 ? 64 : C % 32 == 0 ? 32 : 16;
    static constexpr int unit = own % 64 == 0 ? 64 : own % 32 == 0 ? 32 : 16;
    static constexpr int units = own / unit;
    static constexpr int all_units = C / unit;
    static constexpr int blocks = (128 - begin + C + 127) / 128; /* of scales, at most */
    /* Boxes: of whole tiles, or of halves where there are quarters, and a smaller one of the rest
     * if there is any. Of a pair that shares W each brings half of the steps to both. */
    static constexpr int box = begin >= 32 ? C / 64 * 64 : 32;
    static constexpr int rest = C % box, n_boxes = C / box;
    static constexpr int steps = SHARED == SW_A8P_W ? 2 : 4;
    static constexpr int run_bytes = C * 32 * steps; /* of so many steps of all channels */
    static constexpr int w_at = T * 128;
    static constexpr int xs_at = w_at + C * 128;
    static constexpr int ws_at = xs_at + T * 4;
    static constexpr int bytes = xs_at + 1024;
    static constexpr int n_stages = SW_A8C_SHARED_MAX / bytes;
    static constexpr int shared_bytes = n_stages * bytes + 1024;
    static constexpr int row_bytes = own * 2 + 16; /* of Y on its way, apart for their banks */
    static_assert(units <= 8, "two loads for all scales of W");
    static_assert(begin >= 32 || C % 64 == 16, "two boxes of 32 for each tile, and one of 16");
    static_assert(C % 16 == 0 && bytes % 1024 == 0, "a stage begins where the swizzle does");
};

/* What a CTA works on. */
struct a8c_place {
    int channel0, token0, n_stages;
    uint32_t rank;
};

template <typename P>
static __device__ __forceinline__ a8c_place a8c_place_of(const w8a8_args &a)
{
    constexpr int T = P::T, C = P::C, SHARED = P::SHARED;
    int blocks = (a.n_out + C - 1) / C, cluster = (int)sw_cluster_id(), row, first;
    a8c_place p;

    p.rank = sw_cluster_rank();
    if (SHARED == SW_A8P_X) blocks = (blocks + 1) / 2;
    row = cluster / blocks;
    first = cluster - row * blocks;
    p.channel0 = (SHARED == SW_A8P_X ? first * 2 + (int)p.rank : first) * C;
    if (SHARED == SW_A8P_W) row = row * 2 + (int)p.rank;
    p.token0 = sw_whole_block(row * T, a.m, T);
    p.n_stages = a.k_tiles / 2;
    return p;
}

/* Weights are read by one cluster alone, or by others soon. */
template <typename P>
static __device__ __forceinline__ uint64_t a8c_weights_policy(const w8a8_args &a)
{
    return a.m > (P::SHARED == SW_A8P_W ? 2 : 1) * P::T ? sw_policy_evict_last()
                                                        : sw_policy_evict_first();
}

/* How many channels of a CTA come before the box of the rest, which keeps the others from meeting
 * two tiles. */
template <typename P>
static __device__ __forceinline__ int a8c_before_rest(const a8c_place &p)
{
    const int at = p.channel0 % 64;

    if (P::begin == 32) return at ? 0 : P::box;
    return at == 48 ? 0 : at == 16 ? 32 : P::n_boxes * 32;
}

/* Channels from `first` of the CTA on, by a box of so many steps, to this CTA or to both. */
template <typename P>
static __device__ __forceinline__ void a8c_copy_box(const CUtensorMap *map, const a8c_place &p,
                                                    int first, int step, uint32_t run,
                                                    uint32_t bar, uint64_t policy)
{
    const int channel = p.channel0 + first;
    const int at[4] = {0, step, channel % 64 / 8, channel / 64};
    const uint32_t to = run + (uint32_t)(first * 32 * P::steps);

    if constexpr (P::SHARED == SW_A8P_W) sw_warp_load_4d_both(to, map, at, bar, policy);
    else sw_warp_load_4d(to, map, at, bar, policy);
}

/* The weights of stage `it`, or of what a pair shares this CTA's half. */
template <typename P>
static __device__ __forceinline__ void a8c_copy_weights(const a8c_maps &maps, const a8c_place &p,
                                                        int it, uint32_t stage, uint32_t bar,
                                                        uint64_t policy)
{
    const int before = a8c_before_rest<P>(p);
    const int half = P::SHARED == SW_A8P_W ? (int)p.rank : 0, step = it * 4 + half * P::steps;
    const uint32_t run = stage + P::w_at + (uint32_t)(half * P::run_bytes);

#pragma unroll
    for (int i = 0; i < P::n_boxes; i++)
        a8c_copy_box<P>(&maps.tiles, p, i * P::box + (i * P::box >= before ? P::rest : 0), step,
                        run, bar, policy);
    if (P::rest) a8c_copy_box<P>(&maps.rest, p, before, step, run, bar, policy);
}

/* X of a stage: all of it, or half of it to both CTAs. */
template <typename P>
static __device__ __forceinline__ void a8c_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                  const a8c_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy)
{
    int half = a.x_rows / 2;

    if constexpr (P::SHARED == SW_A8P_X)
        sw_warp_load_both(stage + p.rank * half * 128, map, it * 128,
                          p.token0 + (int)p.rank * half, bar, policy);
    else sw_warp_load_2d(stage, map, it * 128, p.token0, bar, policy);
}

/* What a stage brings, whatever of it there is: the rest comes as zeros. */
template <typename P>
static __device__ __forceinline__ void a8c_expect(const w8a8_args &a, uint32_t bar)
{
    sw_warp_expect(bar, (uint32_t)(P::C * 128 + a.x_rows * 128));
}

/* The weights of the whole ring, which depend on no earlier kernel, by the second warp that copies;
 * the first one says how much is to come. */
template <typename P>
static __device__ __forceinline__ void a8c_open(const a8c_maps &maps, const w8a8_args &a,
                                                const a8c_place &p, int copier, uint32_t ring,
                                                uint32_t full)
{
    uint64_t policy = a8c_weights_policy<P>(a);

    for (int it = 0; it < min(P::n_stages, p.n_stages); it++)
        if (copier == 0) a8c_expect<P>(a, full + 8 * it);
        else a8c_copy_weights<P>(maps, p, it, ring + it * P::bytes, full + 8 * it, policy);
}

/* The same warps, once both CTAs have their barriers: X for these, then stage after stage. */
template <typename P>
static __device__ __forceinline__ void a8c_fill(const a8c_maps &maps, const w8a8_args &a,
                                                const a8c_place &p, int copier, uint32_t ring,
                                                uint32_t full, uint32_t empty)
{
    uint64_t w_policy = a8c_weights_policy<P>(a), x_policy = sw_policy_evict_last();
    int first = min(P::n_stages, p.n_stages);
    w8a8_turns<P::n_stages> at;

    if (copier == 0) sw_grid_wait_previous();
    for (int it = 0; it < p.n_stages; it++, at.next()) {
        uint32_t stage = ring + at.s * P::bytes, bar = full + 8 * at.s;

        sw_mbar_wait(empty + 8 * at.s, at.turn);
        if (copier == 0) {
            if (it >= first) a8c_expect<P>(a, bar);
            a8c_copy_x<P>(&maps.x, a, p, it, stage, bar, x_policy);
        } else if (it >= first) {
            a8c_copy_weights<P>(maps, p, it, stage, bar, w_policy);
        }
    }
    /* What the other CTA says of our stages must find us: an arrival is not ordered by the last
     * meeting, which is relaxed. */
    for (int it = 0; it < first; it++, at.next()) sw_mbar_wait(empty + 8 * at.s, at.turn);
}

/* The scales of a CTA's stages as a warp fetches them: those of X of tokens 32 i + lane, those of W
 * of 32 stages at a time, one a lane, as in w8a8_block_scales.cuh. */
template <typename P>
struct a8c_scales {
    static constexpr int blocks = P::blocks, per_lane = P::T / 32;
    const float *x_at;
    int64_t w_at[blocks];
    float w[blocks], next_w[blocks];
    int n_tokens, n_stages, own_block; /* that of the lane's unit of channels */

    __device__ __forceinline__ a8c_scales(const w8a8_args &a, const a8c_place &p)
    {
        int lane = (int)threadIdx.x % 32, block = p.channel0 / 128;

        x_at = a.x_scales + p.token0 + lane;
        n_tokens = a.m - p.token0 - lane;
        n_stages = p.n_stages - lane;
        own_block = (p.channel0 + lane * P::unit) / 128 - block;
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            int n_tile = min((block + b) * 2, a.n_tiles - 1);

            w_at[b] = ((int64_t)n_tile * a.n_groups + lane) * 64;
            next_w[b] = 0;
        }
        fetch_w(a);
    }
    /* Of the next 32 stages; the first ones are not there before the second call. */
    __device__ __forceinline__ void fetch_w(const w8a8_args &a)
    {
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            w[b] = next_w[b];
            next_w[b] = n_stages > 0 ? w8a8_scale_at(a, w_at[b]) : 0;
            w_at[b] += 32 * 64;
        }
        n_stages -= 32;
    }
    /* Those of X of the next stage. */
    __device__ __forceinline__ void fetch_x(float (&x)[per_lane], const w8a8_args &a)
    {
#pragma unroll
        for (int i = 0; i < per_lane; i++) x[i] = 32 * i < n_tokens ? x_at[32 * i] : 0;
        x_at += a.m;
    }
    /* stage: of the block. to: scales of X in the ring's stage; side by side those of two tokens
     * that a lane has sums of. */
    __device__ __forceinline__ void put(uint32_t to, const float (&x)[per_lane], int stage) const
    {
        uint32_t lane = threadIdx.x % 32;
        float own = __shfl_sync(~0u, w[0], stage % 32);

#pragma unroll
        for (int b = 1; b < blocks; b++) {
            float other = __shfl_sync(~0u, w[b], stage % 32);

            if (own_block == b) own = other;
        }
        if (lane < P::all_units)
            sw_shared_put4(to + P::T * 4 + (lane / P::units * 8 + lane % P::units) * 4, own);
        to += (lane / 16 * 16 + lane % 8 * 2 + lane / 8 % 2) * 4;
#pragma unroll
        for (int i = 0; i < per_lane; i++) sw_shared_put4(to + (uint32_t)i * 128, x[i]);
    }
};

/* The warp that lays out scales. */
template <typename P>
static __device__ __forceinline__ void a8c_scale_all(const w8a8_args &a, const a8c_place &p,
                                                     uint32_t ring, uint32_t full, uint32_t empty)
{
    a8c_scales<P> scales(a, p);
    w8a8_turns<P::n_stages> at;

    sw_grid_wait_previous();
    w8a8_make_scales<SW_A8C_AHEAD>(a, scales, p.n_stages, ring + P::xs_at, P::bytes, full, empty,
                                   at);
}

/* sum = 64 tokens x P::part channels x 128 inputs. */
template <typename P>
static __device__ __forceinline__ void a8c_issue(float (&sum)[P::part / 2], uint32_t x, uint32_t w)
{
    uint64_t rows = sw_wgmma_desc(x), columns = sw_wgmma_desc_steps(w, P::steps);

    sw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++)
        sw_wgmma8_columns(sum, rows + 2 * (uint64_t)s,
                          columns + (uint64_t)((s / P::steps * P::run_bytes +
                                               s % P::steps * 256) >> 4), s > 0);
    sw_wgmma_commit();
}

/* The lane's scales of a stage: of two tokens, and of units of channels. */
struct a8c_lane_scales {
    uint2 x;
    uint4 w[2];

    template <int UNITS>
    __device__ __forceinline__ void load(uint32_t xs_at, uint32_t ws_at)
    {
        x = sw_shared8(xs_at);
        w[0] = sw_shared16(ws_at);
        if (UNITS > 4) w[1] = sw_shared16(ws_at + 16);
    }
    __device__ __forceinline__ float of(int unit, int row) const
    {
        const uint4 &four = w[unit / 4];
        uint32_t of_w = unit % 4 == 0 ? four.x : unit % 4 == 1 ? four.y
                        : unit % 4 == 2                        ? four.z
                                                               : four.w;

        return __uint_as_float(of_w) * __uint_as_float(row ? x.y : x.x);
    }
};

/* total += scale * sum, of channels from `first` of the CTA on. */
template <int UNIT, int N>
static __device__ __forceinline__ void a8c_add(float *total, float (&sum)[N], int first,
                                               const a8c_lane_scales &scales)
{
    sw_hold(sum);
#pragma unroll
    for (int j = 0; j < N; j += 4) {
        const int unit = (first + 2 * j) / UNIT;

#pragma unroll
        for (int i = 0; i < 4; i++)
            total[j + i] = fmaf(scales.of(unit, i / 2), sum[j + i], total[j + i]);
    }
}

/* Where a warpgroup's operands lie in a stage, and its lane's scales. */
struct a8c_operands {
    uint32_t x, w, xs, ws;
};

/* The stage that `ring` stands at, whose first part is on its way in `sum`; with NEXT that of the
 * one after is when this ends. The stage goes back behind those products: before them the warps
 * that arrive keep the tensor cores waiting. */
template <typename P, bool NEXT, typename ring_type>
static __device__ __forceinline__ void
a8c_one_stage(float (&total)[P::own / 2], float (&sum)[P::part / 2], ring_type &ring,
              const a8c_operands &at)
{
    uint32_t stage = ring.stage(), bar = ring.bar();
    a8c_lane_scales scales;

    scales.load<P::units>(stage + at.xs, stage + at.ws);
    ring.turn();
#pragma unroll
    for (int i = 0; i < P::PARTS; i++) {
        sw_wgmma_wait<0>();
        a8c_add<P::unit>(total + i * (P::part / 2), sum, i * P::part, scales);
        if (i + 1 < P::PARTS)
            a8c_issue<P>(sum, stage + at.x,
                         stage + at.w + (uint32_t)((i + 1) * P::part * 32 * P::steps));
    }
    if (NEXT) {
        ring.wait();
        a8c_issue<P>(sum, ring.stage() + at.x, ring.stage() + at.w);
    }
    __syncwarp();
    ring.release(bar);
}

template <typename P, typename ring_type>
static __device__ __forceinline__ void a8c_multiply(float (&total)[P::own / 2], ring_type &ring,
                                                    int n_stages)
{
    /* From lane 0, so that addresses of operands stay in uniform registers. */
    const uint32_t group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    const uint32_t rows = P::T == 128 ? group * 64 : 0, lane = thread % 32;
    const uint32_t half = P::T == 128 ? 0 : group;
    const a8c_operands at = {rows * 128,
                             P::w_at + half * (uint32_t)(P::own * 32 * P::steps),
                             P::xs_at + (rows + thread / 32 * 16 + lane / 4 * 2) * 4,
                             P::ws_at + half * 32};
    float sum[P::part / 2];

    ring.wait();
    a8c_issue<P>(sum, ring.stage() + at.x, ring.stage() + at.w);
#pragma unroll 1
    for (int left = n_stages; left > 1; left--) a8c_one_stage<P, true>(total, sum, ring, at);
    a8c_one_stage<P, false>(total, sum, ring, at);
}

/* A warpgroup's 64 tokens to Y, through shared memory, so that lines are written. */
template <typename P>
static __device__ __forceinline__ void a8c_store(const float (&total)[P::own / 2],
                                                 const w8a8_args &a, const a8c_place &p,
                                                 uint32_t rows)
{
    constexpr int pitch = P::row_bytes, chunks = P::own / 8;
    int thread = (int)threadIdx.x % 128, group = (int)threadIdx.x / 128, lane = thread % 32;
    int matrix = lane / 8, token0 = p.token0 + (P::T == 128 ? group * 64 : 0);
    int channel0 = p.channel0 + (P::T == 128 ? 0 : group * P::own);
    uint32_t to = rows + (uint32_t)((thread / 32 * 16 + matrix % 2 * 8 + lane % 8) * pitch +
                                    matrix / 2 * 16);

#pragma unroll
    for (int j = 0; j < chunks; j += 2) {
        uint32_t out[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = sw_round16_pair(total[4 * j + 2 * i], total[4 * j + 2 * i + 1], a.y_is_bf16);
        sw_store_matrices4(to + (uint32_t)j * 16, out);
    }
    sw_named_sync(2 + group, 128);
#pragma unroll
    for (int i = thread; i < 64 * chunks; i += 128) {
        int token = i / chunks, chunk = i % chunks;

        w8a8_put8(a, token0 + token, channel0 + chunk * 8,
                  sw_shared16(rows + (uint32_t)(token * pitch + chunk * 16)));
    }
}

/* By one thread: what copies wait for. */
template <typename P>
static __device__ __forceinline__ void a8c_make_barriers(const a8c_maps &maps, uint32_t full,
                                                         uint32_t empty)
{
    sw_tensor_prefetch(&maps.tiles);
    if (P::rest) sw_tensor_prefetch(&maps.rest);
    sw_tensor_prefetch(&maps.x);
    for (int i = 0; i < P::n_stages; i++) {
        sw_mbar_init(full + 8 * i, 1 + SW_ARRIVALS);
        sw_mbar_init(empty + 8 * i, 2 * SW_A8C_CONSUMERS / 32 * SW_ARRIVALS);
    }
    sw_mbar_init_fence();
}

/* Whole stages alone: k_tiles is even. */
template <int T, int C, int PARTS, int SHARED>
static __global__ void __launch_bounds__(SW_A8C_THREADS, 1)
    swk_w8a8_two_ctas_rows_sm90(const __grid_constant__ a8c_maps maps, const w8a8_args a)
{
    using registers = w8a8_registers<2, 40>;
    using P = a8c_tile<T, C, PARTS, SHARED>;
    constexpr int STAGES = P::n_stages;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    const a8c_place p = a8c_place_of<P>(a);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0) - SW_A8C_CONSUMERS / 32;
    const bool copies = warp >= 0 && warp < SW_A8C_COPIERS;

    sw_grid_launch_next();
    if (threadIdx.x == SW_A8C_CONSUMERS) a8c_make_barriers<P>(maps, full, empty);
    __syncthreads();
    if (SHARED == SW_A8P_X && copies) a8c_open<P>(maps, a, p, warp, ring, full);
    sw_cluster_meet();
    if (SHARED == SW_A8P_W && copies) a8c_open<P>(maps, a, p, warp, ring, full);
    if (warp >= 0) {
        sw_fewer_registers<registers::copier>();
        if (copies) a8c_fill<P>(maps, a, p, warp, ring, full, empty);
        else if (warp == SW_A8C_COPIERS) a8c_scale_all<P>(a, p, ring, full, empty);
    } else {
        w8a8_cluster_ring<2, STAGES> at = {{ring, full, empty, P::bytes, 0, 0}};
        float total[P::own / 2];

        sw_more_registers<registers::consumer>();
#pragma unroll
        for (int i = 0; i < P::own / 2; i++) asm volatile("mov.b32 %0, 0;" : "=f"(total[i]));
        sw_grid_wait_previous(); /* Y, which it may still read */
        a8c_multiply<P>(total, at, p.n_stages);
        sw_named_sync(1, SW_A8C_CONSUMERS); /* nobody reads the ring any more */
        a8c_store<P>(total, a, p, ring + threadIdx.x / 128 * 64 * P::row_bytes);
    }
    __syncwarp();
    sw_cluster_part();
}

#endif
