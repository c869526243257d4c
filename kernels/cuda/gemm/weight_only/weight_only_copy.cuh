/* weight_only_copy.cuh - phase 1 of the weight-only kernels: what a CTA works on, the warp that
 * brings it.
 *
 * Stages, clusters and the order of blocks are drawn in weight_only_wgmma.cuh. The warp asks for
 * whole boxes, in some 45 instructions a stage: with 100 to 300, as the first versions had, it was
 * what the others waited for.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_COPY_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_COPY_CUH

#include "kernels/cuda/gemm/weight_only/weight_only_args.h"
#include "kernels/cuda/ptx/ptx_cluster.cuh"
#include "kernels/cuda/ptx/ptx_shared.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"
#include "kernels/cuda/ptx/whole_block.cuh"

/* One warp copies; where a CTA of two warpgroups has an SM for itself, a whole warpgroup, so that
 * it can give away registers. */
__host__ __device__ constexpr int nw_copy_threads(int per_sm, int kw)
{
    return per_sm == 1 && kw == 1 ? 128 : 32;
}

#define NW_BLOCK_BYTES 2048 /* of codes: a tile of 4 bits, half a tile of 8 */
#define NW_PLANE_BYTES 512  /* of a tile of 2 or 3 bits there are two or three: narrow.h */
#define NW_STAGE_TILES 2    /* k-tiles in a stage */

__host__ __device__ constexpr bool nw_is_narrow(int kind)
{
    return kind == NW_INT2 || kind == NW_INT3;
}

__host__ __device__ constexpr int nw_block_bytes(int kind)
{
    return kind == NW_INT2   ? 2 * NW_PLANE_BYTES
           : kind == NW_INT3 ? 3 * NW_PLANE_BYTES
                             : NW_BLOCK_BYTES;
}

/* How a kernel is cut, all known when it is compiled: a row of w4a16_tiles.def (T to MODE), what
 * the weights are, and from it the byte offsets inside a stage. */
template <int KIND_, int T_, int MT_, int NWG_, int KW_, int GPS_, int STAGES_, int PER_SM_,
          int MODE_, bool BF16_, bool ZEROS_>
struct nw_cut {
    static constexpr int KIND = KIND_, T = T_, MT = MT_, NWG = NWG_, KW = KW_, GPS = GPS_,
                         STAGES = STAGES_, PER_SM = PER_SM_, MODE = MODE_;
    static constexpr bool BF16 = BF16_, ZEROS = ZEROS_, GROUPED = MODE_ != NW_CHANNEL;
    static constexpr int CTAS = 1; /* that fill each other's stages */
    static constexpr bool FUSED = false; /* see nw_fused_batch */
    static constexpr int NT = MT * NWG, C = 64 * NT;
    static constexpr int consumers = NWG * KW * 128;
    /* Whether a tile of gates and that of their ups can be those of a CTA. */
    static constexpr bool takes_gates = NT == 2 && T <= 64 && BF16 && GROUPED;
    static constexpr int threads = consumers + nw_copy_threads(PER_SM, KW);
    static constexpr int at_entry = 65536 / PER_SM / threads; /* registers of a thread */
    /* Whether products drain at the end of a stage: without, the compiler serializes those of two
     * tiles. Whether a batch is fetched before the wait for one: there must be registers. */
    static constexpr bool drains = MT > 1, early = T < 128 && at_entry >= 80;
    static_assert(STAGES % KW == 0, "each of KW goes round the ring by itself");
    static_assert(MODE != NW_PAIRS || MT == 2, "a warp has two rows");
    static constexpr int row_channels = MODE == NW_PAIRS ? 32 : 64; /* from one row to the next */

    /* batches: k-steps of 16 in one, and how many there are */
    static constexpr int steps = T * 2 / MT >= 128 || GPS == 4 || at_entry < 80 ? 2 : 4;
    static constexpr int per_tile = 4 / steps;
    static constexpr int per_row = NW_STAGE_TILES * per_tile; /* of one m-tile */
    static constexpr int n_batches = MT * per_row;
    static constexpr int per_group = per_row / GPS;

    /* a stage */
    static constexpr int x_bytes = NW_STAGE_TILES * T * 128;
    static constexpr bool is_bytes = KIND != NW_INT4 && !nw_is_narrow(KIND);
    static constexpr int tile_blocks = is_bytes ? 2 : 1;
    static constexpr int blocks = NW_STAGE_TILES * tile_blocks; /* of 64 channels */
    static constexpr int block_bytes = nw_block_bytes(KIND);
    static constexpr int w_at = x_bytes, w_bytes = NT * blocks * block_bytes;
    static constexpr int record_bytes = is_bytes ? 256 : 128; /* room for scales */
    static constexpr int s_at = w_at + w_bytes;
    static constexpr int z_at = s_at + (GROUPED ? NT * GPS * record_bytes : 0);
    static constexpr int stage_bytes = (z_at + (ZEROS ? NT * GPS * 128 : 0) + 1023) / 1024 * 1024;

    /* sums of the KW for each other: two tokens apart must be 8 banks apart */
    static constexpr int pitch = C + 4, partial_bytes = T * pitch * 4;
    static constexpr int ring_bytes = STAGES * stage_bytes;
    static constexpr int shared_bytes =
        (ring_bytes > KW * partial_bytes ? ring_bytes : KW * partial_bytes) + 1024;
};

/* The ring as one of KW consumers goes through it. */
template <class P> struct nw_ring {
    uint32_t stages, full, empty;
    int s, parity;

    __device__ __forceinline__ uint32_t stage(void) const { return stages + s * P::stage_bytes; }
    __device__ __forceinline__ uint32_t bar(void) const { return empty + 8 * s; }
    __device__ __forceinline__ void wait(void) const { sw_mbar_sleep(full + 8 * s, parity); }
    __device__ __forceinline__ void turn(void)
    {
        if ((s += P::KW) >= P::STAGES) s -= P::STAGES, parity ^= 1;
    }
};

/* What a CTA works on. */
struct nw_place {
    int n_tile0, token0;    /* first tile of channels, first token */
    int stage0, n_stages;   /* its run of k-stages */
    uint32_t rank, split;   /* in the cluster */
};

template <class P> __device__ __forceinline__ nw_place nw_place_of(const nw_args &args)
{
    nw_place p;
    uint32_t all = (uint32_t)(args.k_tiles + NW_STAGE_TILES - 1) / NW_STAGE_TILES;
    int tile, n_blocks;

    /* Not from the special registers, which the compiler takes to differ inside a warp. */
    p.split = (uint32_t)args.split;
    p.rank = blockIdx.x % p.split;
    tile = (int)(blockIdx.x / p.split);
    n_blocks = (args.n_tiles + P::NT - 1) / P::NT;
    p.n_tile0 = tile % n_blocks * P::NT;
    p.token0 = sw_whole_block(tile / n_blocks * P::T, args.n_tokens, P::T);
    p.stage0 = (int)(all * p.rank / p.split); /* below 2^24 times 8 */
    p.n_stages = (int)(all * (p.rank + 1) / p.split) - p.stage0;
    return p;
}

/* The stages of k as the copying warp goes through them. Groups of many stages are counted, as a
 * division for each would cost more than all else here. */
struct nw_walk {
    int ks;              /* k-stage */
    int group, in_group; /* the group it lies in, and how far */
};

__device__ __forceinline__ nw_walk nw_walk_from(const nw_args &args, int ks)
{
    nw_walk w = {ks, 0, 0};

    if (args.group_stages) w.group = ks / args.group_stages, w.in_group = ks % args.group_stages;
    return w;
}

__device__ __forceinline__ void nw_step(nw_walk *w, const nw_args &args)
{
    w->ks++;
    if (++w->in_group == args.group_stages) w->in_group = 0, w->group++;
}

/* A CTA's tiles: neighbours, or gates and their ups. */
template <class P>
__device__ __forceinline__ void nw_load_tiles(uint32_t to, const CUtensorMap *map, int row,
                                              const nw_args &args, const nw_place &p,
                                              uint32_t bar, uint64_t policy)
{
    if constexpr (P::takes_gates)
        if (args.has_gates) {
            sw_warp_load_4d(to, map, {0, row, p.n_tile0 / 2, 0}, bar, policy);
            return;
        }
    sw_warp_load_3d(to, map, 0, row, p.n_tile0, bar, policy);
}

/* Codes, scales and zero points of the stage that `w` stands at, to which x_bytes of X come. */
template <class P>
__device__ __forceinline__ void nw_copy_weights(const nw_maps &maps, const nw_args &args,
                                                const nw_place &p, const nw_walk &w,
                                                uint32_t stage, uint32_t bar, uint64_t policy,
                                                uint32_t x_bytes)
{
    uint32_t n_bytes = x_bytes + P::w_bytes;
    int group = P::GPS > 1 ? w.ks * P::GPS : w.group;

    if (P::GROUPED) n_bytes += P::NT * P::GPS * 64 * (uint32_t)args.scale_bytes;
    if (P::ZEROS) n_bytes += P::NT * P::GPS * 64;
    sw_warp_expect(bar, n_bytes);
    nw_load_tiles<P>(stage + P::w_at, &maps.codes, w.ks * P::blocks, args, p, bar, policy);
    if (P::GROUPED) nw_load_tiles<P>(stage + P::s_at, &maps.scales, group, args, p, bar, policy);
    if (P::ZEROS) nw_load_tiles<P>(stage + P::z_at, &maps.zeros, group, args, p, bar, policy);
}

__device__ __forceinline__ uint32_t nw_x_bytes(const nw_args &args)
{
    return (uint32_t)(NW_STAGE_TILES * 128 * args.x_rows);
}

template <class P>
__device__ __forceinline__ void nw_copy_x(const nw_maps &maps, const nw_place &p, const nw_walk &w,
                                          uint32_t stage, uint32_t bar, uint64_t policy)
{
#pragma unroll
    for (int kt = 0; kt < NW_STAGE_TILES; kt++)
        sw_warp_load_2d(stage + kt * P::T * 128, &maps.x,
                       (w.ks * NW_STAGE_TILES + kt) * 64, p.token0, bar, policy);
}

/* Other blocks of tokens read the same weights soon. */
template <class P> __device__ __forceinline__ uint64_t nw_weights_policy(const nw_args &args)
{
    return args.n_tokens > P::T ? sw_policy_evict_last() : sw_policy_evict_first();
}

/* Of one warp: weights for the whole ring. */
template <class P>
__device__ __forceinline__ void nw_copy_first(const nw_maps &maps, const nw_args &args,
                                              const nw_place &p, uint32_t ring, uint32_t full)
{
    uint64_t policy = nw_weights_policy<P>(args);
    int first = min(P::STAGES, p.n_stages);
    nw_walk w = nw_walk_from(args, p.stage0);

#pragma unroll 1
    for (int it = 0; it < first; it++, nw_step(&w, args))
        nw_copy_weights<P>(maps, args, p, w, ring + it * P::stage_bytes, full + 8 * it, policy,
                           nw_x_bytes(args));
}

/* Of the same warp: X for these, then stage after stage. */
template <class P>
__device__ __forceinline__ void nw_copy_rest(const nw_maps &maps, const nw_args &args,
                                             const nw_place &p, uint32_t ring, uint32_t full,
                                             uint32_t empty)
{
    uint64_t w_policy = nw_weights_policy<P>(args), x_policy = sw_policy_evict_last();
    int first = min(P::STAGES, p.n_stages);
    nw_walk w = nw_walk_from(args, p.stage0);

    sw_grid_wait_previous();
#pragma unroll 1
    for (int it = 0; it < first; it++, nw_step(&w, args))
        nw_copy_x<P>(maps, p, w, ring + it * P::stage_bytes, full + 8 * it, x_policy);
#pragma unroll 1
    for (int it = first, s = 0, turn = 0; it < p.n_stages; it++, nw_step(&w, args)) {
        uint32_t stage = ring + s * P::stage_bytes;

        sw_mbar_sleep(empty + 8 * s, turn);
        nw_copy_weights<P>(maps, args, p, w, stage, full + 8 * s, w_policy, nw_x_bytes(args));
        nw_copy_x<P>(maps, p, w, stage, full + 8 * s, x_policy);
        if (++s == P::STAGES) s = 0, turn ^= 1;
    }
}

#endif
