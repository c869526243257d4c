/* routed_copy.cuh - phase 1 of the kernels of routed experts: bringing a stage.
 *
 * The weights of an expert are anywhere, so tiles and scales come as straight pieces, 4 KB and 128
 * bytes each; the inputs as boxes of the sorted rows.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_COPY_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_COPY_CUH

#include "kernels/cuda/experts/routed_unit.cuh"
#include "kernels/cuda/narrow_copy.cuh"

/* What a warp has of an address, from lane 0: so the compiler knows that all have the same. */
static __device__ __forceinline__ const uint8_t *rt_uniform(const uint8_t *p)
{
    uint64_t v = (uint64_t)p;

    return (const uint8_t *)((uint64_t)__shfl_sync(~0u, (uint32_t)(v >> 32), 0) << 32 |
                             __shfl_sync(~0u, (uint32_t)v, 0));
}

/* Where the tiles of a unit begin. */
struct rt_source {
    const uint8_t *codes[RT_TILES], *scales[RT_TILES];
    uint64_t policy;
    int x_row;
};

template <bool GLU>
static __device__ __forceinline__ rt_source rt_source_of(const rt_args &a, int u, int k0)
{
    rt_unit unit = rt_unit_of<GLU>(a, u);
    rt_source s;

#pragma unroll
    for (int i = 0; i < RT_TILES; i++) {
        int64_t tile = rt_tile<GLU>(a, unit.j, i);

        s.codes[i] = rt_uniform(unit.codes + (tile * a.k_tiles + k0 * NW_STAGE_TILES) *
                                                 NW_BLOCK_BYTES);
        s.scales[i] = rt_uniform(unit.scales + tile * a.n_groups * 128);
    }
    s.policy = unit.is_shared ? sw_policy_evict_last() : sw_policy_evict_first();
    s.x_row = __shfl_sync(~0u, unit.x_row, 0);
    return s;
}

/* Codes and scales of stage ks, and what else the barrier is to wait for. The second half of a
 * last stage without one is the first again: a number, and its inputs are zeros. */
template <class P>
static __device__ __forceinline__ void rt_copy_weights(const rt_args &a, rt_source &s, int ks,
                                                       uint32_t stage, uint32_t bar)
{
    int group = a.group_stages == 1 ? ks : a.group_stages ? ks / a.group_stages : 0;
    bool is_whole = (ks + 1) * NW_STAGE_TILES <= a.k_tiles;

    sw_warp_expect(bar, P::x_bytes + P::w_bytes + RT_TILES * 128);
#pragma unroll
    for (int i = 0; i < RT_TILES; i++) {
        uint32_t to = stage + P::w_at + i * NW_STAGE_TILES * NW_BLOCK_BYTES;

        if (is_whole) {
            sw_warp_load(to, s.codes[i], NW_STAGE_TILES * NW_BLOCK_BYTES, bar, s.policy);
        } else {
            sw_warp_load(to, s.codes[i], NW_BLOCK_BYTES, bar, s.policy);
            sw_warp_load(to + NW_BLOCK_BYTES, s.codes[i], NW_BLOCK_BYTES, bar, s.policy);
        }
        sw_warp_load(stage + P::s_at + i * 128, s.scales[i] + group * 128, 128, bar, s.policy);
        s.codes[i] += NW_STAGE_TILES * NW_BLOCK_BYTES;
    }
}

template <class P, int BOX>
static __device__ __forceinline__ void rt_copy_x(const CUtensorMap &x, int row, int ks,
                                                 uint32_t stage, uint32_t bar, uint64_t policy)
{
#pragma unroll
    for (int kt = 0; kt < NW_STAGE_TILES; kt++)
#pragma unroll
        for (int t = 0; t < P::T; t += BOX)
            sw_warp_load_2d(stage + (kt * P::T + t) * 128, &x, (ks * NW_STAGE_TILES + kt) * 64,
                            row + t, bar, policy);
}

#endif
