/* w4a16_copy.cuh - phase 1 of the W4A16 kernels: what a CTA works on, and the warp that brings it.
 *
 * Stages, clusters and the order of blocks are drawn in w4a16_wgmma.cuh.
 */
#ifndef SW_KERNELS_CUDA_W4A16_COPY_CUH
#define SW_KERNELS_CUDA_W4A16_COPY_CUH

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/w4a16_args.h"

/* One warp copies; where a CTA has an SM for itself, a whole warpgroup, so that it can give away
 * registers. */
__host__ __device__ constexpr int w4_copy_threads(int per_sm) { return per_sm == 1 ? 128 : 32; }
#define SW_TILE4_BYTES 2048
#define SW_STAGE_TILES 2 /* k-tiles in a stage */

/* Byte offsets inside a stage and the size of the whole. */
template <int T, int NT, int GPS> struct w4_stage {
    static constexpr int x_tile_bytes = T * 128;
    static constexpr int x_bytes = SW_STAGE_TILES * x_tile_bytes;
    static constexpr int w_at = x_bytes;
    static constexpr int w_bytes = NT * SW_STAGE_TILES * SW_TILE4_BYTES;
    static constexpr int s_at = w_at + w_bytes;
    static constexpr int z_at = s_at + NT * GPS * 128;
    static constexpr int bytes = (z_at + NT * GPS * 64 + 1023) / 1024 * 1024;
};

/* What a CTA works on. */
struct w4_place {
    int n_tile0, token0;    /* first tile of channels, first token */
    int stage0, n_stages;   /* its run of k-stages */
    uint32_t rank, split;   /* in the cluster */
};

template <int T, int NT>
__device__ __forceinline__ w4_place w4_place_of(const w4_args &args)
{
    w4_place p;
    int all = (args.k_tiles + SW_STAGE_TILES - 1) / SW_STAGE_TILES, tile, n_blocks;

    p.split = sw_cluster_size();
    p.rank = sw_cluster_rank();
    tile = (int)(blockIdx.x / p.split);
    n_blocks = (args.n_tiles + NT - 1) / NT;
    p.n_tile0 = tile % n_blocks * NT;
    p.token0 = tile / n_blocks * T;
    p.stage0 = (int)((int64_t)all * p.rank / p.split);
    p.n_stages = (int)((int64_t)all * (p.rank + 1) / p.split) - p.stage0;
    return p;
}

/* ---- phase 1: one warp brings stage after stage ---- */

template <int T, int NT, int GPS>
__device__ __forceinline__ void w4_copy_weights(const w4_args &args, const w4_place &p, int it,
                                                uint32_t stage, uint32_t bar, uint64_t policy)
{
    using at = w4_stage<T, NT, GPS>;
    int lane = (int)threadIdx.x % 32, n_tile = p.n_tile0 + lane;
    int ks = p.stage0 + it, k_tile = ks * SW_STAGE_TILES, left = args.k_tiles - k_tile;
    int n_tiles = min(NT, args.n_tiles - p.n_tile0), k_tiles = min(SW_STAGE_TILES, left);
    int group = GPS > 1 ? ks * GPS : args.group_stages ? ks / args.group_stages : 0;
    int groups = min(GPS, args.n_groups - group);

    if (lane == 0) {
        uint32_t per_tile = (uint32_t)(k_tiles * SW_TILE4_BYTES + groups * 128);

        if (args.zeros) per_tile += (uint32_t)groups * 64;
        sw_mbar_expect(bar, (uint32_t)(n_tiles * per_tile + at::x_bytes));
    }
    __syncwarp();
    if (lane < n_tiles) {
        int64_t tile = (int64_t)n_tile * args.k_tiles + k_tile;
        int64_t record = ((int64_t)n_tile * args.n_groups + group) * 64;

        sw_bulk_load(stage + at::w_at + lane * SW_STAGE_TILES * SW_TILE4_BYTES,
                     args.codes + tile * SW_TILE4_BYTES, (uint32_t)k_tiles * SW_TILE4_BYTES, bar,
                     policy);
        sw_bulk_load(stage + at::s_at + lane * GPS * 128, args.scales + record,
                     (uint32_t)groups * 128, bar, policy);
        if (args.zeros)
            sw_bulk_load(stage + at::z_at + lane * GPS * 64, args.zeros + record,
                         (uint32_t)groups * 64, bar, policy);
    }
}

template <int T>
__device__ __forceinline__ void w4_copy_x(const CUtensorMap *map, const w4_place &p, int it,
                                          uint32_t stage, uint32_t bar, uint64_t policy)
{
    int kt = (int)threadIdx.x % 32 - 16, k_tile = (p.stage0 + it) * SW_STAGE_TILES + kt;

    /* A k-tile past the end comes as zeros, which whatever codes lie there cannot hurt. */
    if (kt >= 0 && kt < SW_STAGE_TILES)
        sw_tensor_load_2d(stage + (uint32_t)(kt * T * 128), map, k_tile * 64, p.token0, bar,
                          policy);
}

template <int T, int NT, int GPS, int STAGES>
__device__ __forceinline__ void w4_copy_all(const CUtensorMap *map, const w4_args &args,
                                            const w4_place &p, uint32_t ring, uint32_t full,
                                            uint32_t empty)
{
    constexpr uint32_t bytes = w4_stage<T, NT, GPS>::bytes;
    uint64_t w_policy = args.n_tokens > T ? sw_policy_evict_last() : sw_policy_evict_first();
    uint64_t x_policy = sw_policy_evict_last();
    int first = min(STAGES, p.n_stages);

    /* Weights depend on no earlier kernel: they are on their way before we wait for one. */
    for (int it = 0; it < first; it++)
        w4_copy_weights<T, NT, GPS>(args, p, it, ring + it * bytes, full + 8 * it, w_policy);
    sw_grid_wait_previous();
    for (int it = 0; it < first; it++)
        w4_copy_x<T>(map, p, it, ring + it * bytes, full + 8 * it, x_policy);
    for (int it = first, s = 0, turn = 0; it < p.n_stages; it++) {
        sw_mbar_wait(empty + 8 * s, turn);
        w4_copy_weights<T, NT, GPS>(args, p, it, ring + s * bytes, full + 8 * s, w_policy);
        w4_copy_x<T>(map, p, it, ring + s * bytes, full + 8 * s, x_policy);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
}

#endif
