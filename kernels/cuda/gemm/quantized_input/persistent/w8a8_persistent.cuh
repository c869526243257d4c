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
 *   pairs: of 8-bit weights where nothing changes along k, two CTAs of a cluster take blocks of the
 *          same tokens side by side. Each brings half of the inputs of a stage to both, and a stage
 *          is replaced when both are done with it
 *   store: through shared memory, a quarter at a time, so that rows of Y are written 128 bytes at
 *          a time; for the pairs w8a8_block_store.cuh
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_block_store.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_flow.cuh"

#define SW_A8L_T 256          /* tokens of a block */
#define SW_A8L_NT 2           /* tiles of channels of a block, one a consumer warpgroup */
#define SW_A8L_THREADS 384
#define SW_A8L_BAND 8         /* blocks of tokens that are walked side by side */

template <int KIND, int MODE>
using a8l_stage = w8a8_stage<KIND, SW_A8L_T, SW_A8L_NT, MODE != W8A8_PLAIN>;

/* Of shared memory, what a warpgroup stores its sums with. */
template <int KIND, int MODE> __host__ __device__ constexpr int a8l_part_bytes(void)
{
    return SW_A8L_CTAS(KIND, MODE) > 1 ? a8l_aside<SW_A8L_T>::bytes : SW_W8A8_PARK_BYTES;
}

template <int KIND, int MODE, int STAGES> constexpr int a8l_shared_bytes(void)
{
    return STAGES * a8l_stage<KIND, MODE>::bytes + SW_A8L_NT * a8l_part_bytes<KIND, MODE>() + 1024;
}

/* Blocks of Y side by side that the CTAs of a cluster go through together. */
template <int NC>
static __device__ __forceinline__ int a8l_by_channel(const w8a8_args &a)
{
    return (a.n_tiles + SW_A8L_NT * NC - 1) / (SW_A8L_NT * NC);
}

template <int NC>
static __device__ __forceinline__ int a8l_n_blocks(const w8a8_args &a)
{
    return a8l_by_channel<NC>(a) * ((a.m + SW_A8L_T - 1) / SW_A8L_T);
}

/* Block `at` in an order that keeps what CTAs work on side by side close: bands of a few blocks of
 * tokens, and inside a band all its blocks of tokens for one block of channels. */
template <int NC>
static __device__ __forceinline__ w8a8_place a8l_place(const w8a8_args &a, int at)
{
    w8a8_place p;
    int by_channel = a8l_by_channel<NC>(a);
    int by_token = (a.m + SW_A8L_T - 1) / SW_A8L_T;
    int band = at / (SW_A8L_BAND * by_channel), in_band = at % (SW_A8L_BAND * by_channel);
    int width = min(SW_A8L_BAND, by_token - band * SW_A8L_BAND);

    p.rank = NC > 1 ? sw_cluster_rank() : 0;
    p.n_tile0 = (in_band / width * NC + (int)p.rank) * SW_A8L_NT;
    p.token0 = sw_whole_block((band * SW_A8L_BAND + in_band % width) * SW_A8L_T, a.m, SW_A8L_T);
    p.stage0 = 0;
    p.n_stages = (a.k_tiles + 1) / 2;
    return p;
}

/* X of a stage: our half of it to both CTAs of a pair. */
template <int KIND, int MODE, int NC>
static __device__ __forceinline__ void a8l_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                  const w8a8_place &p, int it, uint32_t stage,
                                                  uint32_t bar, uint64_t policy)
{
    constexpr int half = SW_A8L_T / 2;

    if constexpr (NC == 1)
        w8a8_copy_x<KIND, SW_A8L_T, SW_A8L_NT, MODE != W8A8_PLAIN>(map, a, p, it, stage, bar,
                                                                   policy);
    else if (threadIdx.x % 32 == 0)
        sw_tensor_load_both(stage + p.rank * half * 128, map, it * 128,
                            p.token0 + (int)p.rank * half, bar, policy);
}

/* The warp that copies: all stages of all blocks of this CTA. */
template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8l_copy_all(const CUtensorMap *map, const w8a8_args &a,
                                                    uint32_t ring, uint32_t full, uint32_t empty)
{
    constexpr uint32_t bytes = a8l_stage<KIND, MODE>::bytes;
    constexpr bool grouped = MODE != W8A8_PLAIN;
    constexpr int NC = SW_A8L_CTAS(KIND, MODE);
    uint64_t w_policy = a.m > SW_A8L_T ? sw_policy_evict_last() : sw_policy_evict_first();
    uint64_t x_policy = sw_policy_evict_last();
    int first = (int)blockIdx.x / NC, n_blocks = a8l_n_blocks<NC>(a), s = 0;
    w8a8_place p = a8l_place<NC>(a, first);
    int ahead = min(STAGES, p.n_stages);
    uint32_t turn = 1; /* nothing is in the way in the first turn */

    /* Weights depend on no earlier kernel: they are on their way before we wait for one. */
    for (int it = 0; it < ahead; it++)
        w8a8_copy_weights<KIND, SW_A8L_T, SW_A8L_NT, grouped>(a, p, it, ring + it * bytes,
                                                              full + 8 * it, w_policy);
    sw_grid_wait_previous();
    for (int block = first; block < n_blocks; block += (int)gridDim.x / NC) {
        p = a8l_place<NC>(a, block);
        for (int it = 0; it < p.n_stages; it++) {
            sw_mbar_wait(empty + 8 * s, turn);
            if (block != first || it >= ahead)
                w8a8_copy_weights<KIND, SW_A8L_T, SW_A8L_NT, grouped>(a, p, it, ring + s * bytes,
                                                                      full + 8 * s, w_policy);
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

template <int KIND, int MODE, typename type>
static __device__ __forceinline__ void a8l_store(const type *total, const w8a8_args &a,
                                                 const w8a8_place &p, uint32_t part)
{
    int n_tile = p.n_tile0 + (int)threadIdx.x / 128;

    if constexpr (SW_A8L_CTAS(KIND, MODE) > 1) {
        a8l_store_block<KIND, SW_A8L_T>(total, a, p, n_tile, part);
    } else {
        w8a8_channels c = w8a8_channels_of<KIND, MODE>(a, n_tile);

        w8a8_store_own<KIND, SW_A8L_T, MODE>(total, a, p.token0, n_tile, c, a.x_scales, part);
    }
}

template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8l_consume(const w8a8_args &a, uint32_t ring_at,
                                                   uint32_t full, uint32_t empty, uint32_t part,
                                                   uint32_t zero_addr)
{
    constexpr int NC = SW_A8L_CTAS(KIND, MODE);
    w8a8_cluster_ring<NC, STAGES> ring = {
        {ring_at, full, empty, a8l_stage<KIND, MODE>::bytes, 0, 0}};
    int n_blocks = a8l_n_blocks<NC>(a);

    sw_grid_wait_previous(); /* scales and sums of X, and Y, which it may still read */
    for (int block = (int)blockIdx.x / NC; block < n_blocks; block += (int)gridDim.x / NC) {
        w8a8_place p = a8l_place<NC>(a, block);

        if constexpr (NC > 1)
            a8l_fetch_aside<KIND, SW_A8L_T>(a, p, p.n_tile0 + (int)threadIdx.x / 128, part);
        if constexpr (!w8a8_is_float(KIND) && MODE == W8A8_PLAIN) {
            int total[1][128];

            w8a8_clear(total, zero_addr);
            w8a8_multiply<KIND, SW_A8L_T, 1, SW_A8L_NT>(total, ring, a, p);
            a8l_store<KIND, MODE>(&total[0][0], a, p, part);
        } else if constexpr (NC > 1) {
            float total[128] = {};

            w8a8_flow<KIND, SW_A8L_T, 64, MODE>(total, ring, a, p);
            a8l_store<KIND, MODE>(total, a, p, part);
        } else {
            float total[1][128];

            w8a8_clear(total, zero_addr);
            w8a8_multiply_pieces<KIND, SW_A8L_T, 64, MODE>(total[0], ring, a, p);
            a8l_store<KIND, MODE>(&total[0][0], a, p, part);
        }
    }
}

template <int KIND, int MODE, int STAGES>
static __global__ void __launch_bounds__(SW_A8L_THREADS, 1)
    swk_w8a8_persistent_sm90(const __grid_constant__ CUtensorMap x_map, const w8a8_args a)
{
    constexpr int bytes = a8l_stage<KIND, MODE>::bytes, NC = SW_A8L_CTAS(KIND, MODE);
    /* Sums in fp32 beside those of the tensor cores take all that there are. */
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
        a8l_consume<KIND, MODE, STAGES>(
            a, ring, full, empty, parts + threadIdx.x / 128 * a8l_part_bytes<KIND, MODE>(),
            sw_smem_addr(&s_zero));
    }
    if (NC > 1) sw_cluster_part();
}

#endif
