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
 *   pairs: where E4M3 has no groups, two CTAs of a cluster take blocks of the same tokens side by
 *          side. Each brings half of the inputs of a stage to both, and a stage is replaced when
 *          both are done with it
 *   store: through shared memory, a quarter at a time, so that rows of Y are written 128 bytes at
 *          a time
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_block_store.cuh"
#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_stream.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_flow.cuh"

#define SW_A8L_T 256          /* tokens of a block */
#define SW_A8L_NT 2           /* tiles of channels of a block, one a consumer warpgroup */
#define SW_A8L_THREADS 384
#define SW_A8L_BOX 128        /* tokens that the CTAs of a cluster ask for at a time */
#define SW_A8L_BAND 8         /* blocks of tokens that are walked side by side */

template <int KIND, int MODE>
using a8l_stage = w8a8_stage<KIND, SW_A8L_T, SW_A8L_NT, MODE != W8A8_PLAIN>;

template <int KIND, int MODE, int STAGES> constexpr int a8l_shared_bytes(void)
{
    return STAGES * a8l_stage<KIND, MODE>::bytes +
           SW_A8L_NT * a8l_aside<KIND, MODE, SW_A8L_T>::bytes + 1024;
}

/* Blocks of Y, as the clusters of the grid go through them: of 256 tokens, but for what is left for
 * a last round that would be at most half full, which goes through in halves of 128. */
template <int NC>
struct a8l_walk {
    int by_channel, n_whole, n_all; /* blocks of channels; of 256 tokens; those and halves */

    __device__ __forceinline__ a8l_walk(const w8a8_args &a)
    {
        int clusters = (int)gridDim.x / NC, n_blocks, rest;

        by_channel = (a.n_tiles + SW_A8L_NT * NC - 1) / (SW_A8L_NT * NC);
        n_blocks = by_channel * ((a.m + SW_A8L_T - 1) / SW_A8L_T);
        rest = n_blocks % clusters;
        if (2 * rest > clusters) rest = 0;
        n_whole = n_blocks - rest;
        n_all = n_whole + 2 * rest;
    }
};

/* Block `at` in an order that keeps what CTAs work on side by side close: bands of a few blocks of
 * tokens, and inside a band all its blocks of tokens for one block of channels. */
template <int NC>
static __device__ __forceinline__ w8a8_place a8l_place(const w8a8_args &a, const a8l_walk<NC> &walk,
                                                       int at)
{
    w8a8_place p;
    int by_token = (a.m + SW_A8L_T - 1) / SW_A8L_T, past = at - walk.n_whole, size = SW_A8L_T;
    int band, in_band, width, token = 0;

    if (past >= 0) {
        size = SW_A8L_T / 2;
        token = past % 2 * size;
        at = walk.n_whole + past / 2;
    }
    band = at / (SW_A8L_BAND * walk.by_channel), in_band = at % (SW_A8L_BAND * walk.by_channel);
    width = min(SW_A8L_BAND, by_token - band * SW_A8L_BAND);
    token += (band * SW_A8L_BAND + in_band % width) * SW_A8L_T;
    p.rank = NC > 1 ? sw_cluster_rank() : 0;
    p.n_tile0 = (in_band / width * NC + (int)p.rank) * SW_A8L_NT;
    p.token0 = sw_whole_block(token, a.m, size);
    p.stage0 = 0;
    p.n_stages = (a.k_tiles + 1) / 2;
    return p;
}

/* X of a stage: our part of the tokens to both CTAs of a pair, in boxes of 128 for a pair or for us
 * alone. With groups the lanes bring scales, and tell the barrier when they are there. */
template <int KIND, int MODE, int NC, int T>
static __device__ __forceinline__ void a8l_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                  const w8a8_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy)
{
    constexpr int box = SW_A8L_BOX / NC;
    int first = (int)p.rank * (T / NC), lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int i = first; i < first + T / NC && lane == 0; i += box) {
        if (NC > 1)
            sw_tensor_load_both(stage + i * 128, map, it * 128, p.token0 + i, bar, policy);
        else sw_tensor_load_2d(stage + i * 128, map, it * 128, p.token0 + i, bar, policy);
    }
    if constexpr (MODE == W8A8_X_GROUPS) {
        if (!a.has_x_groups) return;
        for (int i = lane; i < T; i += 32)
            sw_copy4(stage + w8a8_stage<KIND, T, SW_A8L_NT, true>::xs_at + i * 4,
                     a.x_scales + (int64_t)it * a.m + min(p.token0 + i, a.m - 1));
        sw_copy_arrive(bar);
    }
}

/* The ring as the warp that copies goes through it. */
template <int KIND, int MODE, int STAGES>
struct a8l_filled {
    uint32_t ring, full, empty;
    uint64_t w_policy, x_policy;
    uint32_t turn; /* nothing is in the way in the first turn, 1 */
    int s, ahead;  /* ahead: stages whose weights have been asked for */

    __device__ __forceinline__ uint32_t stage(void) const
    {
        return ring + s * a8l_stage<KIND, MODE>::bytes;
    }
    __device__ __forceinline__ void next(void)
    {
        if (++s == STAGES) s = 0, turn ^= 1;
    }
};

/* All stages of a block. */
template <int KIND, int MODE, int STAGES, int NC, int T>
static __device__ __forceinline__ void a8l_copy_block(const CUtensorMap *map, const w8a8_args &a,
                                                      const w8a8_place &p,
                                                      a8l_filled<KIND, MODE, STAGES> &to)
{
    for (int it = 0; it < p.n_stages; it++) {
        uint32_t bar = to.full + 8 * to.s;

        sw_mbar_wait(to.empty + 8 * to.s, to.turn);
        if (to.ahead > 0) to.ahead--;
        else
            w8a8_copy_weights<KIND, T, SW_A8L_NT, MODE != W8A8_PLAIN>(a, p, it, to.stage(), bar,
                                                                      to.w_policy);
        a8l_copy_x<KIND, MODE, NC, T>(map, a, p, it, to.stage(), bar, to.x_policy);
        to.next();
    }
}

/* The warp that copies: all stages of all blocks of this CTA. */
template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8l_copy_all(const CUtensorMap *map, const w8a8_args &a,
                                                    uint32_t ring, uint32_t full, uint32_t empty)
{
    constexpr uint32_t bytes = a8l_stage<KIND, MODE>::bytes;
    constexpr bool grouped = MODE != W8A8_PLAIN;
    constexpr int NC = SW_A8L_CTAS(KIND, MODE), T = SW_A8L_T;
    a8l_walk<NC> walk(a);
    int first = (int)blockIdx.x / NC;
    w8a8_place p = a8l_place<NC>(a, walk, first);
    a8l_filled<KIND, MODE, STAGES> to = {ring, full, empty,
                                         a.m > T ? sw_policy_evict_last() : sw_policy_evict_first(),
                                         sw_policy_evict_last(), 1, 0, 0};

    /* Weights depend on no earlier kernel: they are on their way before we wait for one. */
    for (; to.ahead < min(STAGES, p.n_stages) && first < walk.n_whole; to.ahead++)
        w8a8_copy_weights<KIND, T, SW_A8L_NT, grouped>(
            a, p, to.ahead, ring + to.ahead * bytes, full + 8 * to.ahead, to.w_policy);
    sw_grid_wait_previous();
    for (int at = first; at < walk.n_all; at += (int)gridDim.x / NC) {
        p = a8l_place<NC>(a, walk, at);
        if (at < walk.n_whole) a8l_copy_block<KIND, MODE, STAGES, NC, T>(map, a, p, to);
        else a8l_copy_block<KIND, MODE, STAGES, NC, T / 2>(map, a, p, to);
    }
    /* What the other CTA says of our stages must find us: an arrival is not ordered by the last
     * meeting, which is relaxed. */
#pragma unroll 1
    for (int it = 0; NC > 1 && it < STAGES; it++) {
        sw_mbar_wait(empty + 8 * to.s, to.turn);
        to.next();
    }
}

/* A block of T tokens. */
template <int KIND, int MODE, int T, typename ring_type>
static __device__ __forceinline__ void a8l_block(ring_type &ring, const w8a8_args &a,
                                                 const w8a8_place &p, uint32_t part,
                                                 uint32_t zero_addr)
{
    int n_tile = p.n_tile0 + (int)threadIdx.x / 128;

    a8l_fetch_aside<KIND, MODE, T>(a, p, n_tile, part);
    if constexpr (!w8a8_is_float(KIND) && MODE == W8A8_PLAIN) {
        int total[1][T / 2];

        w8a8_clear(total, zero_addr);
        w8a8_multiply<KIND, T, 1, SW_A8L_NT>(total, ring, a, p);
        a8l_store_block<KIND, MODE, T>(&total[0][0], a, p, n_tile, part);
    } else if constexpr (SW_A8L_CTAS(KIND, MODE) > 1) {
        float total[T / 2] = {};

        w8a8_flow<KIND, T, T / 4, MODE>(total, ring, a, p);
        a8l_store_block<KIND, MODE, T>(total, a, p, n_tile, part);
    } else {
        float total[1][T / 2];

        w8a8_clear(total, zero_addr);
        w8a8_multiply_pieces<KIND, T, 64, MODE>(total[0], ring, a, p);
        a8l_store_block<KIND, MODE, T>(&total[0][0], a, p, n_tile, part);
    }
}

/* The stage before is done: the next one, or the next block. */
template <int KIND, int NC>
static __device__ __forceinline__ void a8l_go_on(a8l_task &task, const w8a8_args &a,
                                                 const a8l_walk<NC> &walk)
{
    if (--task.left > 0) return;
    task.at += (int)gridDim.x / NC;
    if (task.at >= walk.n_whole) return;
    task.p = a8l_place<NC>(a, walk, task.at);
    task.left = task.p.n_stages;
    a8l_fetch_aside<KIND, W8A8_PLAIN, SW_A8L_T>(a, task.p,
                                                task.p.n_tile0 + (int)threadIdx.x / 128, task.part);
}

/* All whole blocks of this CTA, as one row of stages. Two a turn, so that every index of a fragment
 * is a constant. */
template <int KIND, int NC, typename ring_type>
static __device__ __forceinline__ void a8l_stream(ring_type &ring, const w8a8_args &a,
                                                  const a8l_walk<NC> &walk, uint32_t part)
{
    constexpr int T = SW_A8L_T, PIECE = T / 4;
    int clusters = (int)gridDim.x / NC, first = (int)blockIdx.x / NC;
    int n_blocks = (walk.n_whole - first + clusters - 1) / clusters, left;
    float total[T / 2] = {}, sum[2][PIECE / 2];
    uint32_t frag[2][16];
    a8l_task task = {{}, first - clusters, 1, part};
    const w8a8_place none = {};

    if (first >= walk.n_whole) return;
    a8l_go_on<KIND, NC>(task, a, walk);
    left = n_blocks * task.left;
    ring.wait();
    w8a8_load<KIND, T, 2, false>(frag[0], a, none, ring.stage(), (int)threadIdx.x / 128);
    w8a8_issue(sum[0], frag[0], ring.stage(), 0);
    w8a8_issue(sum[1], frag[0], ring.stage() + PIECE * 128, 0);
#pragma unroll 1
    for (; left > 2; left -= 2) {
        a8l_stream_stage<KIND, T, PIECE, 0, true>(total, sum, frag, ring, a, task);
        a8l_go_on<KIND, NC>(task, a, walk);
        a8l_stream_stage<KIND, T, PIECE, 1, true>(total, sum, frag, ring, a, task);
        a8l_go_on<KIND, NC>(task, a, walk);
    }
    if (left == 2) {
        a8l_stream_stage<KIND, T, PIECE, 0, true>(total, sum, frag, ring, a, task);
        a8l_go_on<KIND, NC>(task, a, walk);
        a8l_stream_stage<KIND, T, PIECE, 1, false>(total, sum, frag, ring, a, task);
    } else {
        a8l_stream_stage<KIND, T, PIECE, 0, false>(total, sum, frag, ring, a, task);
    }
}

template <int KIND, int MODE, int STAGES, int VAR>
static __device__ __forceinline__ void a8l_consume(const w8a8_args &a, uint32_t ring_at,
                                                   uint32_t full, uint32_t empty, uint32_t part,
                                                   uint32_t zero_addr)
{
    constexpr int NC = SW_A8L_CTAS(KIND, MODE);
    w8a8_cluster_ring<NC, STAGES> ring = {
        {ring_at, full, empty, a8l_stage<KIND, MODE>::bytes, 0, 0}};
    a8l_walk<NC> walk(a);

    sw_grid_wait_previous(); /* scales and sums of X, and Y, which it may still read */
    if (VAR) a8l_stream<KIND, NC>(ring, a, walk, part);
    for (int at = (int)blockIdx.x / NC; at < walk.n_all; at += (int)gridDim.x / NC) {
        w8a8_place p = a8l_place<NC>(a, walk, at);

        if (VAR && at < walk.n_whole) continue;
        if (!VAR && at < walk.n_whole) a8l_block<KIND, MODE, SW_A8L_T>(ring, a, p, part, zero_addr);
        else a8l_block<KIND, MODE, SW_A8L_T / 2>(ring, a, p, part, zero_addr);
    }
}

template <int KIND, int MODE, int STAGES, int VAR>
static __global__ void __launch_bounds__(SW_A8L_THREADS, 1)
    swk_w8a8_persistent_sm90(const __grid_constant__ CUtensorMap x_map, const w8a8_args a)
{
    constexpr int bytes = a8l_stage<KIND, MODE>::bytes, NC = SW_A8L_CTAS(KIND, MODE);
    using registers = w8a8_registers<SW_A8L_NT, w8a8_is_float(KIND) && (NC > 1) ? 24 : 40>;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ uint32_t s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u, parts = ring + STAGES * bytes;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (threadIdx.x == 0) s_zero = 0;
    w8a8_begin<NC * SW_A8L_NT, STAGES, bytes>(
        a, (uint32_t *)(s_bytes + (ring - sw_smem_addr(s_bytes))), full, empty);
    if (NC > 1) sw_cluster_sync(); /* before the other CTA fills our stages */
    if (warp >= 4 * SW_A8L_NT) {
        sw_fewer_registers<registers::copier>();
        if (warp == 4 * SW_A8L_NT)
            a8l_copy_all<KIND, MODE, STAGES>(&x_map, a, ring, full, empty);
    } else {
        sw_more_registers<registers::consumer>();
        a8l_consume<KIND, MODE, STAGES, VAR && MODE == W8A8_PLAIN && KIND == W8A8_E4M3>(
            a, ring, full, empty,
            parts + threadIdx.x / 128 * a8l_aside<KIND, MODE, SW_A8L_T>::bytes,
            sw_smem_addr(&s_zero));
    }
    if (NC > 1) sw_cluster_part();
}

#endif
