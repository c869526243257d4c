/* a8_large.cuh - products of byte inputs for many tokens (sm_90a).
 *
 * As a8_wgmma.cuh, with these differences:
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
#ifndef SW_KERNELS_CUDA_A8_LARGE_CUH
#define SW_KERNELS_CUDA_A8_LARGE_CUH

#include "kernels/cuda/a8_flow.cuh"

#define SW_A8L_T 256          /* tokens of a block */
#define SW_A8L_NT 2           /* tiles of channels of a block, one a consumer warpgroup */
#define SW_A8L_THREADS 384
#define SW_A8L_BAND 8         /* blocks of tokens that are walked side by side */
#define SW_A8L_PARK_BYTES 8192 /* 64 tokens x 64 channels, a warpgroup */

template <int KIND, int MODE>
using a8l_stage = a8_stage<KIND, SW_A8L_T, SW_A8L_NT, MODE != A8_PLAIN>;

template <int KIND, int MODE, int STAGES> constexpr int a8l_shared_bytes(void)
{
    return STAGES * a8l_stage<KIND, MODE>::bytes + 2 * SW_A8L_PARK_BYTES + 1024;
}

/* Blocks of Y side by side that the CTAs of a cluster go through together. */
template <int NC> static __device__ __forceinline__ int a8l_by_channel(const a8_args &a)
{
    return (a.n_tiles + SW_A8L_NT * NC - 1) / (SW_A8L_NT * NC);
}

template <int NC> static __device__ __forceinline__ int a8l_n_blocks(const a8_args &a)
{
    return a8l_by_channel<NC>(a) * ((a.m + SW_A8L_T - 1) / SW_A8L_T);
}

/* Block `at` in an order that keeps what CTAs work on side by side close: bands of a few blocks of
 * tokens, and inside a band all its blocks of tokens for one block of channels. */
template <int NC>
static __device__ __forceinline__ a8_place a8l_place(const a8_args &a, int at)
{
    a8_place p;
    int by_channel = a8l_by_channel<NC>(a);
    int by_token = (a.m + SW_A8L_T - 1) / SW_A8L_T;
    int band = at / (SW_A8L_BAND * by_channel), in_band = at % (SW_A8L_BAND * by_channel);
    int width = min(SW_A8L_BAND, by_token - band * SW_A8L_BAND);

    p.rank = NC > 1 ? sw_cluster_rank() : 0;
    p.n_tile0 = (in_band / width * NC + (int)p.rank) * SW_A8L_NT;
    p.token0 = (band * SW_A8L_BAND + in_band % width) * SW_A8L_T;
    p.stage0 = 0;
    p.n_stages = (a.k_tiles + 1) / 2;
    return p;
}

/* The ring as consumers go through it, whose stages all CTAs of the cluster fill. */
template <int NC, int STAGES> struct a8l_ring : a8_ring<STAGES> {
    __device__ __forceinline__ void release(uint32_t stage_bar) const
    {
        if constexpr (NC == 1) a8_ring<STAGES>::release(stage_bar);
        else
            for (uint32_t r = 0; r < NC; r++)
                if (SW_ARRIVES(r)) sw_cluster_arrive(sw_cluster_map(stage_bar, r));
    }
};

/* X of a stage: our half of it to both CTAs of a pair. */
template <int KIND, int MODE, int NC>
static __device__ __forceinline__ void a8l_copy_x(const CUtensorMap *map, const a8_args &a,
                                                  const a8_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy)
{
    constexpr int half = SW_A8L_T / 2;

    if constexpr (NC == 1)
        a8_copy_x<KIND, SW_A8L_T, SW_A8L_NT, MODE != A8_PLAIN>(map, a, p, it, stage, bar, policy);
    else if (threadIdx.x % 32 == 0)
        sw_tensor_load_both(stage + p.rank * half * 128, map, it * 128,
                            p.token0 + (int)p.rank * half, bar, policy);
}

/* The warp that copies: all stages of all blocks of this CTA. */
template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8l_copy_all(const CUtensorMap *map, const a8_args &a,
                                                    uint32_t ring, uint32_t full, uint32_t empty)
{
    constexpr uint32_t bytes = a8l_stage<KIND, MODE>::bytes;
    constexpr bool grouped = MODE != A8_PLAIN;
    constexpr int NC = SW_A8L_CTAS(KIND, MODE);
    uint64_t w_policy = a.m > SW_A8L_T ? sw_policy_evict_last() : sw_policy_evict_first();
    uint64_t x_policy = sw_policy_evict_last();
    int first = (int)blockIdx.x / NC, n_blocks = a8l_n_blocks<NC>(a), s = 0;
    a8_place p = a8l_place<NC>(a, first);
    int ahead = min(STAGES, p.n_stages);
    uint32_t turn = 1; /* nothing is in the way in the first turn */

    /* Weights depend on no earlier kernel: they are on their way before we wait for one. */
    for (int it = 0; it < ahead; it++)
        a8_copy_weights<KIND, SW_A8L_T, SW_A8L_NT, grouped>(a, p, it, ring + it * bytes,
                                                            full + 8 * it, w_policy);
    sw_grid_wait_previous();
    for (int block = first; block < n_blocks; block += (int)gridDim.x / NC) {
        p = a8l_place<NC>(a, block);
        for (int it = 0; it < p.n_stages; it++) {
            sw_mbar_wait(empty + 8 * s, turn);
            if (block != first || it >= ahead)
                a8_copy_weights<KIND, SW_A8L_T, SW_A8L_NT, grouped>(
                    a, p, it, ring + s * bytes, full + 8 * s, w_policy);
            a8l_copy_x<KIND, MODE, NC>(map, a, p, it, ring + s * bytes, full + 8 * s, x_policy);
            if (++s == STAGES) s = 0, turn ^= 1;
        }
    }
    /* What the other CTA says of our stages must find us: an arrival is not ordered by the last
     * meeting, which is relaxed. */
#pragma unroll 1
    for (int it = 0; NC > 1 && it < STAGES; it++) {
        sw_mbar_wait(empty + 8 * s, turn);
        if (++s == STAGES) s = 0, turn ^= 1;
    }
}

/* Scales and, of codes with a zero point of their own, what it is beyond that of the others, of
 * the lane's two channels: only where there is one group a channel. */
static __device__ __forceinline__ void a8l_channels(float *scale, int *zero, const a8_args &a,
                                                    int n_tile)
{
    int slot = ((int)threadIdx.x % 128 / 32 * 8 + (int)threadIdx.x % 32 / 4) * 2;
    int64_t at = (int64_t)n_tile * 64 + slot;

    for (int h = 0; h < 2; h++) {
        scale[h] = 0.0f;
        zero[h] = 0;
        if (n_tile >= a.n_tiles) continue;
        if (a.scale_bytes == 4) scale[h] = ((const float *)a.scales)[at + h];
        else if (a.scales_are_bf16)
            scale[h] = __uint_as_float((uint32_t)((const uint16_t *)a.scales)[at + h] << 16);
        else scale[h] = __half2float(((const __half *)a.scales)[at + h]);
        if (a.zeros) zero[h] = a.zeros[at + h] - a.zero_none;
    }
}

/* Eight channels of a token. */
static __device__ __forceinline__ void a8l_put8(const a8_args &a, int token, int channel, uint4 v)
{
    uint16_t *to = a.y + (int64_t)token * a.y_stride + channel;
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};

    if (token >= a.m) return;
    if (a.y_is_aligned && channel + 8 <= a.n_out) {
        *(uint4 *)to = v;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (channel + i < a.n_out) to[i] = (uint16_t)(words[i / 2] >> (i % 2 * 16));
}

/* Y of one channel and two tokens. */
template <int KIND, int MODE, typename type>
static __device__ __forceinline__ uint32_t a8l_pair(const type *sum, const a8_args &a, int token,
                                                    float scale, int zero)
{
    constexpr bool shifts = KIND == A8_INT8 && MODE == A8_PLAIN;
    float v[2];

#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = min(token + i, a.m - 1);
        type s = sum[i];

        if (shifts && a.zeros) s -= (type)(zero * a.x_sums[at]);
        v[i] = (float)s * scale * (MODE == A8_X_GROUPS ? 1.0f : a.x_scales[at]);
    }
    return sw_round16_pair(v[0], v[1], a.y_is_bf16);
}

/* The sums of a lane, scaled and rounded, to Y. */
template <int KIND, int MODE, typename type>
static __device__ __forceinline__ void a8l_store(const type *total, const a8_args &a,
                                                 const a8_place &p, uint32_t park)
{
    int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128, lane = thread % 32;
    int n_tile = p.n_tile0 + group, row = lane % 8, matrix = lane / 8;
    uint32_t to = park + (uint32_t)((matrix / 2 * 8 + row) * 128 +
                                    ((thread / 32 * 2 + matrix % 2) ^ row) * 16);
    float scale[2] = {1.0f, 1.0f};
    int zero[2] = {0, 0};

    if (MODE == A8_PLAIN) a8l_channels(scale, zero, a, n_tile);
    if (MODE == A8_PLAIN) scale[0] *= a8_code_scale(KIND), scale[1] *= a8_code_scale(KIND);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        int token0 = p.token0 + q * 64;

#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t out[4];

#pragma unroll
            for (int e = 0; e < 4; e++) {
                int token = token0 + (j + e / 2) * 8 + lane % 4 * 2;
                const type *sum = total + q * 32 + (j + e / 2) * 4 + e % 2 * 2;

                out[e] = a8l_pair<KIND, MODE>(sum, a, token, scale[e % 2], zero[e % 2]);
            }
            sw_store_transposed4(to + (uint32_t)j * 8 * 128, out);
        }
        sw_named_sync(2 + group, 128);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = i * 16 + thread / 8, chunk = thread % 8;

            if (n_tile < a.n_tiles)
                a8l_put8(a, token0 + token, n_tile * 64 + chunk * 8,
                         sw_shared16(park + (uint32_t)(token * 128 + (chunk ^ token % 8) * 16)));
        }
        sw_named_sync(2 + group, 128);
    }
}

template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8l_consume(const a8_args &a, uint32_t ring_at,
                                                   uint32_t full, uint32_t empty, uint32_t park,
                                                   uint32_t zero_addr)
{
    constexpr int NC = SW_A8L_CTAS(KIND, MODE);
    a8l_ring<NC, STAGES> ring = {{ring_at, full, empty, a8l_stage<KIND, MODE>::bytes, 0, 0}};
    int n_blocks = a8l_n_blocks<NC>(a);

    sw_grid_wait_previous(); /* scales and sums of X, and Y, which it may still read */
    for (int block = (int)blockIdx.x / NC; block < n_blocks; block += (int)gridDim.x / NC) {
        a8_place p = a8l_place<NC>(a, block);

        if constexpr (!a8_is_float(KIND) && MODE == A8_PLAIN) {
            int total[1][128];

            a8_clear(total, zero_addr);
            a8_multiply<KIND, SW_A8L_T, 1, SW_A8L_NT>(total, ring, a, p);
            a8l_store<KIND, MODE>(&total[0][0], a, p, park);
        } else if constexpr (NC > 1) {
            float total[128] = {};

            a8_flow<KIND, SW_A8L_T, 64, MODE>(total, ring, a, p);
            a8l_store<KIND, MODE>(total, a, p, park);
        } else {
            float total[1][128];

            a8_clear(total, zero_addr);
            a8_multiply_pieces<KIND, SW_A8L_T, 64, MODE>(total[0], ring, a, p);
            a8l_store<KIND, MODE>(&total[0][0], a, p, park);
        }
    }
}

template <int KIND, int MODE, int STAGES>
static __global__ void __launch_bounds__(SW_A8L_THREADS, 1)
    swk_a8_large_sm90(const __grid_constant__ CUtensorMap x_map, const a8_args a)
{
    constexpr int bytes = a8l_stage<KIND, MODE>::bytes, NC = SW_A8L_CTAS(KIND, MODE);
    using registers = a8_registers<SW_A8L_NT, NC == 1 ? 40 : 24>;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ uint32_t s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u, park = ring + STAGES * bytes;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (threadIdx.x == 0) s_zero = 0;
    a8_begin<NC * SW_A8L_NT, STAGES, bytes>(
        a, (uint32_t *)(s_bytes + (ring - sw_smem_addr(s_bytes))), full, empty);
    if (NC > 1) sw_cluster_sync(); /* before the other CTA fills our stages */
    if (warp >= 4 * SW_A8L_NT) {
        sw_fewer_registers<registers::copier>();
        if (warp == 4 * SW_A8L_NT)
            a8l_copy_all<KIND, MODE, STAGES>(&x_map, a, ring, full, empty);
    } else {
        sw_more_registers<registers::consumer>();
        a8l_consume<KIND, MODE, STAGES>(a, ring, full, empty,
                                        park + threadIdx.x / 128 * SW_A8L_PARK_BYTES,
                                        sw_smem_addr(&s_zero));
    }
    if (NC > 1) sw_cluster_part();
}

#endif
