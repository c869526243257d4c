/* w4a16_persistent.cuh - int4 weights times 16-bit inputs for many tokens (sm_90a).
 *
 * As weight_only_wgmma.cuh in the mode NW_SCALED, with these differences:
 *
 *   grid:  one CTA a multiprocessor, which goes through blocks of Y of C channels x T tokens; the
 *          warp that copies runs ahead into the next block while the sums of one are stored.
 *          Blocks of the last round, where they are few, are halves in tokens, a CTA each
 *   loop:  products stay in the tensor cores from the first stage of a block to the last
 *   pairs: two CTAs of a cluster take blocks of the same tokens side by side. Each brings half of
 *          the inputs of a stage to both, and a stage is replaced when both are done with it
 *   store: through shared memory by the copy engine, which also cuts off what lies outside of Y
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_CUH

#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_args.h"
#include "kernels/cuda/gemm/weight_only/weight_only_wgmma.cuh"
#include "kernels/cuda/ptx/ptx8.cuh"
#include "kernels/cuda/ptx/ptx_store.cuh"

/* How a kernel is cut: a row of w4a16_persistent_tiles.def (T to STAGES) and what the weights are.
 * ROOM is what T is in whole blocks: a stage has room for so many tokens. */
template <int KIND_, int T_, int ROOM_, int MT_, int NWG_, int STAGES_, int GPS_, bool BF16_,
          bool ZEROS_, int CTAS_ = 1>
struct nwl_cut {
    static constexpr bool takes_gates = false; /* see nw_load_tiles */
    static constexpr int KIND = KIND_, MODE = NW_SCALED, KW = 1, T = T_, ROOM = ROOM_, MT = MT_,
                         NWG = NWG_, STAGES = STAGES_, GPS = GPS_;
    static constexpr bool BF16 = BF16_, ZEROS = ZEROS_, GROUPED = true, FUSED = false;
    static constexpr int NT = MT * NWG, C = 64 * NT, CTAS = CTAS_;
    static constexpr int consumers = NWG * 128, threads = consumers + 128;
    using half =
        nwl_cut<KIND_, T_ / 2, ROOM_, MT_, NWG_, STAGES_, GPS_, BF16_, ZEROS_, CTAS_>;

    /* batches: k-steps of 16 in one, and how many there are */
    static constexpr int steps = GPS == 4 ? 2 : 4;
    static constexpr int per_tile = 4 / steps;
    static constexpr int per_row = NW_STAGE_TILES * per_tile; /* of one m-tile */
    static constexpr int n_batches = MT * per_row;
    static constexpr int per_group = per_row / GPS;
    static_assert(n_batches % 2 == 0, "the first batch of every stage is converted into frag[0]");

    /* a stage */
    static constexpr int x_bytes = NW_STAGE_TILES * T * 128;
    static constexpr int tile_blocks = 1, blocks = NW_STAGE_TILES;
    static constexpr int block_bytes = nw_block_bytes(KIND);
    static constexpr int w_at = NW_STAGE_TILES * ROOM * 128, w_bytes = NT * blocks * block_bytes;
    static constexpr int s_at = w_at + w_bytes;
    static constexpr int z_at = s_at + NT * GPS * 128;
    static constexpr int stage_bytes = (z_at + (ZEROS ? NT * GPS * 64 : 0) + 1023) / 1024 * 1024;

    /* places from which Y is stored, two a warpgroup */
    static constexpr int park_tokens = NWG > 2 ? 16 : 32;
    static constexpr int park_bytes = park_tokens * 128;
    static constexpr int shared_bytes = STAGES * stage_bytes + 2 * NWG * park_bytes + 1024;
    static_assert(shared_bytes <= 226 << 10, "a CTA has 227 KB, of which barriers take a little");

    /* registers, as in nw_registers */
    static constexpr int PER_SM = 1;
    static constexpr bool drains = false, early = false; /* see nw_cut */
    static constexpr int copier = 32;
    static constexpr int at_entry = 65536 / threads / 8 * 8;
    static constexpr int most = (at_entry * threads - copier * 128) / consumers / 8 * 8;
    static constexpr int consumer = most > 240 ? 240 : most;
};

/* What a CTA works on: unit `at` of its cluster, of which the last are halves of blocks. Bands of a
 * few blocks of tokens, and inside a band all its blocks of tokens for one block of channels, keep
 * what CTAs work on side by side close. */
template <class P> __device__ __forceinline__ nw_place nwl_place(const nwl_args &args, int at)
{
    nw_place p = {};
    int by_channel = (args.a.n_tiles + P::NT * P::CTAS - 1) / (P::NT * P::CTAS);
    int by_token = (args.a.n_tokens + P::ROOM - 1) / P::ROOM;
    int halves = at - args.n_whole, block = halves < 0 ? at : args.n_whole + halves / 2;
    int band = block / (NWL_BAND * by_channel), in_band = block % (NWL_BAND * by_channel);
    int width = min(NWL_BAND, by_token - band * NWL_BAND);

    p.rank = blockIdx.x % P::CTAS;
    p.n_tile0 = (in_band / width * P::CTAS + (int)p.rank) * P::NT;
    p.token0 = (band * NWL_BAND + in_band % width) * P::ROOM;
    if (halves > 0) p.token0 += halves % 2 * (P::ROOM / 2);
    p.n_stages = (args.a.k_tiles + NW_STAGE_TILES - 1) / NW_STAGE_TILES;
    if (p.token0 >= args.a.n_tokens) p.n_stages = 0; /* the half beyond the last token */
    p.token0 = sw_whole_block(p.token0, args.a.n_tokens, halves >= 0 ? P::ROOM / 2 : P::ROOM);
    return p;
}

/* ---- phase 1: the warp that copies ---- */

/* X of a stage: our half of it to both CTAs of a pair, a box or two of NWL_BOX_TOKENS. */
template <class P>
__device__ __forceinline__ void nwl_copy_half_x(const nwl_maps &maps, const nw_place &p, int ks,
                                                uint32_t stage, uint32_t bar, uint64_t policy)
{
    constexpr int boxes = P::T / NWL_BOX_TOKENS * NW_STAGE_TILES, ours = boxes / 2;

    static_assert(P::CTAS == 2 && boxes % 2 == 0, "a pair brings boxes by halves");
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int i = 0; i < ours; i++) {
            int box = (int)p.rank * ours + i, kt = box % NW_STAGE_TILES;
            int token = box / NW_STAGE_TILES * NWL_BOX_TOKENS;

            sw_tensor_load_both(stage + (kt * P::T + token) * 128, &maps.in.x,
                                (ks * NW_STAGE_TILES + kt) * 64, p.token0 + token, bar, policy);
        }
    __syncwarp();
}

template <class P>
__device__ __forceinline__ void nwl_copy_x(const nwl_maps &maps, const nw_place &p, int ks,
                                           uint32_t stage, uint32_t bar, uint64_t policy)
{
#pragma unroll
    for (int kt = 0; kt < NW_STAGE_TILES; kt++)
#pragma unroll
        for (int t = 0; t < P::T; t += NWL_BOX_TOKENS)
            sw_warp_load_2d(stage + (kt * P::T + t) * 128, &maps.in.x,
                            (ks * NW_STAGE_TILES + kt) * 64, p.token0 + t, bar, policy);
}

/* The ring as the copying warp goes through it. */
struct nwl_ahead {
    int s;
    uint32_t turn; /* 1 at first: nothing is in the way then */
};

/* All stages of a block, the first `there` of which have their weights already. */
template <class P>
__device__ __forceinline__ void nwl_copy_block(const nwl_maps &maps, const nwl_args &args,
                                               const nw_place &p, nwl_ahead *at, uint32_t ring,
                                               uint32_t full, uint32_t empty, int there)
{
    uint64_t policy = sw_policy_evict_last();
    nw_walk w = nw_walk_from(args.a, 0);

#pragma unroll 1
    for (int it = 0; it < p.n_stages; it++, nw_step(&w, args.a)) {
        uint32_t stage = ring + at->s * P::stage_bytes, bar = full + 8 * at->s;

        sw_mbar_sleep(empty + 8 * at->s, at->turn);
        if (it >= there)
            nw_copy_weights<P>(maps.in, args.a, p, w, stage, bar, policy, P::x_bytes);
        if constexpr (P::CTAS == 2) nwl_copy_half_x<P>(maps, p, it, stage, bar, policy);
        else nwl_copy_x<P>(maps, p, it, stage, bar, policy);
        if (++at->s == P::STAGES) at->s = 0, at->turn ^= 1;
    }
}

/* Weights depend on no earlier kernel: those of the first stages are on their way before we wait
 * for one. */
template <class P>
__device__ __forceinline__ int nwl_copy_first(const nwl_maps &maps, const nwl_args &args,
                                              const nw_place &p, uint32_t ring, uint32_t full)
{
    int there = min(P::STAGES, p.n_stages);
    nw_walk w = nw_walk_from(args.a, 0);

#pragma unroll 1
    for (int it = 0; it < there; it++, nw_step(&w, args.a))
        nw_copy_weights<P>(maps.in, args.a, p, w, ring + it * P::stage_bytes, full + 8 * it,
                           sw_policy_evict_last(), P::x_bytes);
    return there;
}

template <class P>
__device__ __forceinline__ void nwl_copy_all(const nwl_maps &maps, const nwl_args &args,
                                             uint32_t ring, uint32_t full, uint32_t empty)
{
    using half = typename P::half;
    nwl_ahead at = {0, 1};
    int unit = (int)blockIdx.x / P::CTAS, there;
    nw_place p = nwl_place<P>(args, unit);

    if (unit < args.n_whole) there = nwl_copy_first<P>(maps, args, p, ring, full);
    else there = nwl_copy_first<half>(maps, args, p, ring, full);
    sw_grid_wait_previous();
    for (; unit < args.n_units; unit += (int)gridDim.x / P::CTAS, there = 0) {
        p = nwl_place<P>(args, unit);
        if (unit < args.n_whole)
            nwl_copy_block<P>(maps, args, p, &at, ring, full, empty, there);
        else nwl_copy_block<half>(maps, args, p, &at, ring, full, empty, there);
    }
    /* What the other CTA says of our stages must find us. */
#pragma unroll 1
    for (int it = 0; P::CTAS > 1 && it < P::STAGES; it++) {
        sw_mbar_sleep(empty + 8 * at.s, at.turn);
        if (++at.s == P::STAGES) at.s = 0, at.turn ^= 1;
    }
}

/* ---- phase 4: round, store ---- */

/* A park is [tokens][64 channels] with the 128-byte swizzle, which is how the copy engine takes
 * it; two of them take turns. */
template <class P>
__device__ __forceinline__ void nwl_store(const float (&total)[P::MT][P::T / 2],
                                          const nwl_maps &maps, const nw_place &p, int tile0,
                                          uint32_t park)
{
    int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128, lane = thread % 32;
    int row = lane % 8, matrix = lane / 8;
    uint32_t to = park + (uint32_t)((matrix / 2 * 8 + row) * 128 +
                                    ((thread / 32 * 2 + matrix % 2) ^ row) * 16);

#pragma unroll
    for (int m = 0; m < P::MT; m++)
#pragma unroll
        for (int t = 0; t < P::T; t += P::park_tokens) {
            uint32_t at =
                (uint32_t)((m * (P::T / P::park_tokens) + t / P::park_tokens) % 2 * P::park_bytes);

            if (thread == 0) sw_bulk_read_wait<1>();
            sw_named_sync(2 + group, 128);
#pragma unroll
            for (int j = 0; j < P::park_tokens / 8; j += 2) {
                uint32_t out[4];

#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float *sum = total[m] + (t / 8 + j + e / 2) * 4 + e % 2 * 2;

                    out[e] = sw_round16_pair(sum[0], sum[1], P::BF16);
                }
                sw_store_transposed4(to + at + (uint32_t)j * 8 * 128, out);
            }
            sw_proxy_fence();
            sw_named_sync(2 + group, 128);
            if (thread == 0)
                sw_tensor_store_2d(&maps.y, (p.n_tile0 + tile0 + m) * 64, p.token0 + t, park + at);
        }
}

/* ---- the whole ---- */

template <class P>
__device__ __forceinline__ void nwl_block(const nwl_maps &maps, const nw_place &p,
                                          nw_ring<P> &ring, uint32_t park, uint32_t nobody)
{
    float total[P::MT][P::T / 2];
    int tile0 = (int)threadIdx.x / 128 * P::MT;

    nw_clear<P>(total, 0);
    nw_multiply_through<P>(total, ring, tile0, p.n_stages, nobody);
    nwl_store<P>(total, maps, p, tile0, park);
}

template <class P>
__device__ __forceinline__ void nwl_consume(const nwl_maps &maps, const nwl_args &args,
                                            uint32_t stages, uint32_t full, uint32_t empty,
                                            uint32_t park, uint32_t nobody)
{
    using half = typename P::half;
    nw_ring<P> ring = {stages, full, empty, 0, 0};
    int unit = (int)blockIdx.x / P::CTAS, step = (int)gridDim.x / P::CTAS;

    for (; unit < args.n_whole; unit += step)
        nwl_block<P>(maps, nwl_place<P>(args, unit), ring, park, nobody);
    nw_ring<half> rest = {stages, full, empty, ring.s, ring.parity};
    for (; unit < args.n_units; unit += step) {
        nw_place p = nwl_place<P>(args, unit);

        if (p.n_stages) nwl_block<half>(maps, p, rest, park, nobody);
    }
    if (threadIdx.x % 128 == 0) sw_bulk_wait();
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1)
    swk_w4a16_persistent_sm90(const __grid_constant__ nwl_maps maps, const nwl_args args)
{
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[P::STAGES], s_empty[P::STAGES], s_nobody;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    uint32_t park = ring + P::STAGES * P::stage_bytes + threadIdx.x / 128 * 2 * P::park_bytes;
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STAGES; i++) {
            sw_mbar_init(full + 8 * i, 1);
            sw_mbar_init(empty + 8 * i, 4 * P::NWG * SW_ARRIVALS * P::CTAS);
        }
        sw_mbar_init(sw_smem_addr(&s_nobody), SW_ARRIVALS_MAX);
        sw_mbar_init_fence();
    }
    if constexpr (P::CTAS > 1) sw_cluster_sync();
    else __syncthreads();
    if (warp >= P::consumers / 32) {
        sw_fewer_registers<P::copier>();
        if (warp == P::consumers / 32) nwl_copy_all<P>(maps, args, ring, full, empty);
    } else {
        sw_more_registers<P::consumer>();
        nwl_consume<P>(maps, args, ring, full, empty, park, sw_smem_addr(&s_nobody));
    }
}

#endif
