/* w8a8_two_ctas_rows.cuh - products of E4M3 with scales of blocks for some hundred tokens, by pairs
 * of CTAs, whose rows are tokens (sm_90a): a CTA has 128 of them and as many channels as leave no
 * multiprocessor without work, in multiples of 16.
 *
 * As w8a8_two_ctas.cuh, with these differences:
 *
 *   CTA:    two consumer warpgroups of 64 tokens x C channels each, which add up in turn: while one
 *           does, the other one multiplies. C of 224 go through in two parts, for registers
 *   codes:  in columns (column_tiles.h), 32 inputs of C channels in a row. Tiles of 64 channels are
 *           not where CTAs begin, so that what a CTA has of a tile comes for itself, by two warps
 *           of which one lane asks
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

#define SW_A8C_T 128 /* tokens of a CTA */
#define SW_A8C_CONSUMERS 256
#define SW_A8C_THREADS 384
#define SW_A8C_SHARED_MAX (231424 - 512) /* of a CTA, less barriers and what aligns the ring */
#define SW_A8C_COPIERS 2 /* warps that copy; another lays out scales */
#define SW_A8C_AHEAD 4    /* stages whose scales of X are on their way */

/* Byte offsets inside a stage of 128 inputs, of C channels. */
template <int C>
struct a8c_stage {
    static constexpr int unit = C % 64 == 0 ? 64 : C % 32 == 0 ? 32 : 16;
    static constexpr int units = C / unit;
    static constexpr int blocks = (128 - unit + C + 127) / 128; /* of scales, at most */
    static constexpr int tiles = (64 - unit + C + 63) / 64; /* of codes, at most */
    static constexpr int step_bytes = C * 32;
    static constexpr int w_at = SW_A8C_T * 128;
    static constexpr int xs_at = w_at + 4 * step_bytes;
    static constexpr int ws_at = xs_at + SW_A8C_T * 4;
    static constexpr int bytes = xs_at + 1024;
    static constexpr int n_stages = SW_A8C_SHARED_MAX / bytes;
    static constexpr int row_bytes = C * 2 + 16; /* of Y on its way, apart for their banks */
    static_assert(units <= 8, "two loads for all scales of W");
    static_assert(C % 16 == 0 && bytes % 1024 == 0, "a stage begins where the swizzle does");
};

/* What a CTA works on. */
struct a8c_place {
    int channel0, token0, n_stages;
    uint32_t rank;
};

template <int C, int SHARED>
static __device__ __forceinline__ a8c_place a8c_place_of(const w8a8_args &a)
{
    int blocks = (a.n_out + C - 1) / C, cluster = (int)sw_cluster_id(), row, first;
    a8c_place p;

    p.rank = sw_cluster_rank();
    if (SHARED == SW_A8P_X) blocks = (blocks + 1) / 2;
    row = cluster / blocks;
    first = cluster - row * blocks;
    p.channel0 = (SHARED == SW_A8P_X ? first * 2 + (int)p.rank : first) * C;
    if (SHARED == SW_A8P_W) row = row * 2 + (int)p.rank;
    p.token0 = sw_whole_block(row * SW_A8C_T, a.m, SW_A8C_T);
    p.n_stages = a.k_tiles / 2;
    return p;
}

/* Weights are read by one cluster alone, or by others soon. */
template <int SHARED>
static __device__ __forceinline__ uint64_t a8c_weights_policy(const w8a8_args &a)
{
    return a.m > (SHARED == SW_A8P_W ? 2 : 1) * SW_A8C_T ? sw_policy_evict_last()
                                                         : sw_policy_evict_first();
}

/* Of the weights of stage `it` the part of warp `copier`, two of the stage's four times 32 inputs,
 * or one of the two that this CTA brings to both. A piece for what each tile has of them. */
template <int C, int SHARED>
static __device__ __forceinline__ void a8c_copy_weights(const w8a8_args &a, const a8c_place &p,
                                                        int copier, int it, uint32_t stage,
                                                        uint32_t bar, uint64_t policy)
{
    using at = a8c_stage<C>;
    const int tile0 = p.channel0 / 64, offset = p.channel0 % 64;
    const int step0 = SHARED == SW_A8P_W ? (int)p.rank * 2 + copier : copier * 2;

    if (copier == 0)
        sw_warp_expect(bar, (uint32_t)max(0, min(C, a.n_tiles * 64 - p.channel0)) * 128 +
                                (uint32_t)a.x_rows * 128);
#pragma unroll
    for (int i = 0; i < at::tiles; i++) {
        int first = max(0, i * 64 - offset), end = min(C, i * 64 + 64 - offset);
        const uint8_t *from = a.codes + ((int64_t)(tile0 + i) * a.k_tiles + 2 * it) * 4096 +
                              (offset + first) % 64 * 32;
        uint32_t to = stage + at::w_at + (uint32_t)first * 32;

        if (first >= end || tile0 + i >= a.n_tiles) break;
#pragma unroll
        for (int s = step0; s < step0 + (SHARED == SW_A8P_W ? 1 : 2); s++) {
            if constexpr (SHARED == SW_A8P_W)
                sw_warp_piece_both(to + (uint32_t)(s * at::step_bytes), from + s * 2048,
                                   (uint32_t)(end - first) * 32, bar, policy);
            else
                sw_warp_load(to + (uint32_t)(s * at::step_bytes), from + s * 2048,
                             (uint32_t)(end - first) * 32, bar, policy);
        }
    }
}

/* X of a stage: all of it, or half of it to both CTAs. */
template <int SHARED>
static __device__ __forceinline__ void a8c_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                  const a8c_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy)
{
    int half = a.x_rows / 2;

    if constexpr (SHARED == SW_A8P_X)
        sw_warp_load_both(stage + p.rank * half * 128, map, it * 128,
                          p.token0 + (int)p.rank * half, bar, policy);
    else sw_warp_load_2d(stage, map, it * 128, p.token0, bar, policy);
}

/* A warp that copies: its part of the weights of the whole ring, which depend on no earlier
 * kernel. */
template <int C, int SHARED>
static __device__ __forceinline__ void a8c_open(const w8a8_args &a, const a8c_place &p, int copier,
                                                uint32_t ring, uint32_t full)
{
    uint64_t policy = a8c_weights_policy<SHARED>(a);

    for (int it = 0; it < min(a8c_stage<C>::n_stages, p.n_stages); it++)
        a8c_copy_weights<C, SHARED>(a, p, copier, it, ring + it * a8c_stage<C>::bytes,
                                    full + 8 * it, policy);
}

/* The same warp, once both CTAs have their barriers: X for these, by the first one, then stage
 * after stage. */
template <int C, int SHARED>
static __device__ __forceinline__ void a8c_fill(const CUtensorMap *x_map, const w8a8_args &a,
                                                const a8c_place &p, int copier, uint32_t ring,
                                                uint32_t full, uint32_t empty)
{
    uint64_t w_policy = a8c_weights_policy<SHARED>(a), x_policy = sw_policy_evict_last();
    int first = min(a8c_stage<C>::n_stages, p.n_stages);
    w8a8_turns<a8c_stage<C>::n_stages> at;

    if (copier == 0) sw_grid_wait_previous();
    for (int it = 0; it < p.n_stages; it++, at.next()) {
        uint32_t stage = ring + at.s * a8c_stage<C>::bytes, bar = full + 8 * at.s;

        sw_mbar_wait(empty + 8 * at.s, at.turn);
        if (it >= first) a8c_copy_weights<C, SHARED>(a, p, copier, it, stage, bar, w_policy);
        if (copier == 0) a8c_copy_x<SHARED>(x_map, a, p, it, stage, bar, x_policy);
    }
    /* What the other CTA says of our stages must find us: an arrival is not ordered by the last
     * meeting, which is relaxed. */
    for (int it = 0; it < first; it++, at.next()) sw_mbar_wait(empty + 8 * at.s, at.turn);
}

/* The scales of a CTA's stages as a warp fetches them: those of X of tokens 32 i + lane, those of W
 * of 32 stages at a time, one a lane, as in w8a8_block_scales.cuh. */
template <int C>
struct a8c_scales {
    static constexpr int blocks = a8c_stage<C>::blocks, per_lane = SW_A8C_T / 32;
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
        own_block = (p.channel0 + lane * a8c_stage<C>::unit) / 128 - block;
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
        if (lane < a8c_stage<C>::units) sw_shared_put4(to + SW_A8C_T * 4 + lane * 4, own);
        to += (lane / 16 * 16 + lane % 8 * 2 + lane / 8 % 2) * 4;
#pragma unroll
        for (int i = 0; i < per_lane; i++) sw_shared_put4(to + (uint32_t)i * 128, x[i]);
    }
};

/* The warp that lays out scales. */
template <int C>
static __device__ __forceinline__ void a8c_scale_all(const w8a8_args &a, const a8c_place &p,
                                                     uint32_t ring, uint32_t full, uint32_t empty)
{
    a8c_scales<C> scales(a, p);
    w8a8_turns<a8c_stage<C>::n_stages> at;

    sw_grid_wait_previous();
    w8a8_make_scales<SW_A8C_AHEAD>(a, scales, p.n_stages, ring + a8c_stage<C>::xs_at,
                                   a8c_stage<C>::bytes, full, empty, at);
}

/* sum = 64 tokens x 2 N channels x 128 inputs. */
template <int STEP_BYTES, int N>
static __device__ __forceinline__ void a8c_issue(float (&sum)[N], uint32_t x, uint32_t w)
{
    uint64_t rows = sw_wgmma_desc(x), columns = sw_wgmma_desc_32(w);

    sw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++)
        sw_wgmma8_columns(sum, rows + 2 * (uint64_t)s,
                          columns + (uint64_t)(s * (STEP_BYTES >> 4)), s > 0);
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

/* The stage that `ring` stands at, whose first part is on its way in `sum`; with NEXT that of the
 * one after is when this ends. The stage goes back behind those products: before them the warps
 * that arrive keep the tensor cores waiting. x: the warpgroup's tokens in a stage, xs: its lane's
 * scales. */
template <int C, int PARTS, bool NEXT, typename ring_type>
static __device__ __forceinline__ void
a8c_one_stage(float (&total)[C / 2], float (&sum)[C / PARTS / 2], ring_type &ring, uint32_t x,
              uint32_t xs)
{
    using at = a8c_stage<C>;
    constexpr int N = C / PARTS;
    uint32_t stage = ring.stage(), bar = ring.bar();
    a8c_lane_scales scales;

    scales.load<at::units>(stage + xs, stage + at::ws_at);
    ring.turn();
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        sw_wgmma_wait<0>();
        a8c_add<at::unit>(total + i * (N / 2), sum, i * N, scales);
        if (i + 1 < PARTS)
            a8c_issue<at::step_bytes>(sum, stage + x, stage + at::w_at + (i + 1) * N * 32);
    }
    if (NEXT) {
        ring.wait();
        a8c_issue<at::step_bytes>(sum, ring.stage() + x, ring.stage() + at::w_at);
    }
    __syncwarp();
    ring.release(bar);
}

template <int C, int PARTS, typename ring_type>
static __device__ __forceinline__ void a8c_multiply(float (&total)[C / 2], ring_type &ring,
                                                    int n_stages)
{
    /* From lane 0, so that addresses of operands stay in uniform registers. */
    const uint32_t group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    const uint32_t x = group * 64 * 128, lane = thread % 32;
    const uint32_t xs =
        a8c_stage<C>::xs_at + (group * 64 + thread / 32 * 16 + lane / 4 * 2) * 4;
    float sum[C / PARTS / 2];

    ring.wait();
    a8c_issue<a8c_stage<C>::step_bytes>(sum, ring.stage() + x, ring.stage() + a8c_stage<C>::w_at);
#pragma unroll 1
    for (int left = n_stages; left > 1; left--)
        a8c_one_stage<C, PARTS, true>(total, sum, ring, x, xs);
    a8c_one_stage<C, PARTS, false>(total, sum, ring, x, xs);
}

/* A warpgroup's 64 tokens to Y, through shared memory, so that lines are written. */
template <int C>
static __device__ __forceinline__ void a8c_store(const float (&total)[C / 2], const w8a8_args &a,
                                                 const a8c_place &p, uint32_t rows)
{
    constexpr int pitch = a8c_stage<C>::row_bytes, chunks = C / 8;
    int thread = (int)threadIdx.x % 128, group = (int)threadIdx.x / 128, lane = thread % 32;
    int matrix = lane / 8;
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

        w8a8_put8(a, p.token0 + group * 64 + token, p.channel0 + chunk * 8,
                  sw_shared16(rows + (uint32_t)(token * pitch + chunk * 16)));
    }
}

/* By one thread: what copies wait for. */
template <int STAGES>
static __device__ __forceinline__ void a8c_make_barriers(const CUtensorMap *x_map, uint32_t full,
                                                         uint32_t empty)
{
    sw_tensor_prefetch(x_map);
    for (int i = 0; i < STAGES; i++) {
        sw_mbar_init(full + 8 * i, 1 + SW_ARRIVALS);
        sw_mbar_init(empty + 8 * i, 2 * SW_A8C_CONSUMERS / 32 * SW_ARRIVALS);
    }
    sw_mbar_init_fence();
}

/* Whole stages alone: k_tiles is even. */
template <int C, int PARTS, int SHARED>
static __global__ void __launch_bounds__(SW_A8C_THREADS, 1)
    swk_w8a8_two_ctas_rows_sm90(const __grid_constant__ w8a8_maps maps, const w8a8_args a)
{
    using registers = w8a8_registers<2, 40>;
    constexpr int STAGES = a8c_stage<C>::n_stages;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    const a8c_place p = a8c_place_of<C, SHARED>(a);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0) - SW_A8C_CONSUMERS / 32;
    const bool copies = warp >= 0 && warp < SW_A8C_COPIERS;

    sw_grid_launch_next();
    if (threadIdx.x == SW_A8C_CONSUMERS) a8c_make_barriers<STAGES>(&maps.x, full, empty);
    __syncthreads();
    if (SHARED == SW_A8P_X && copies) a8c_open<C, SHARED>(a, p, warp, ring, full);
    sw_cluster_meet();
    if (SHARED == SW_A8P_W && copies) a8c_open<C, SHARED>(a, p, warp, ring, full);
    if (warp >= 0) {
        sw_fewer_registers<registers::copier>();
        if (copies) a8c_fill<C, SHARED>(&maps.x, a, p, warp, ring, full, empty);
        else if (warp == SW_A8C_COPIERS) a8c_scale_all<C>(a, p, ring, full, empty);
    } else {
        w8a8_cluster_ring<2, STAGES> at = {{ring, full, empty, a8c_stage<C>::bytes, 0, 0}};
        float total[C / 2];

        sw_more_registers<registers::consumer>();
#pragma unroll
        for (int i = 0; i < C / 2; i++) asm volatile("mov.b32 %0, 0;" : "=f"(total[i]));
        sw_grid_wait_previous(); /* Y, which it may still read */
        a8c_multiply<C, PARTS>(total, at, p.n_stages);
        sw_named_sync(1, SW_A8C_CONSUMERS); /* nobody reads the ring any more */
        a8c_store<C>(total, a, p, ring + threadIdx.x / 128 * 64 * a8c_stage<C>::row_bytes);
    }
    __syncwarp();
    sw_cluster_part();
}

#endif
