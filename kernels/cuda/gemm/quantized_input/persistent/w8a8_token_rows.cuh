/* w8a8_token_rows.cuh - the persistent kernel for scales of X and W in blocks (sm_90a): tokens are
 * the rows of its products (w8a8_tokens_as_rows.cuh).
 *
 * As w8a8_persistent.cuh, pairs of CTAs and the walk through Y included, with these differences:
 *
 *   CTA:   two consumer warpgroups of 128 tokens x 128 channels each
 *   store: rows of Y as the lanes have them
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_TOKEN_ROWS_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_TOKEN_ROWS_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_persistent.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_tokens_as_rows.cuh"
#include "kernels/cuda/ptx/ptx_shared.cuh"

#define SW_A8R_SCALERS 2 /* warps that make scales, of half of the tokens each */
#define SW_A8R_NC SW_A8L_CTAS(W8A8_E4M3, W8A8_X_BLOCKS)

typedef a8l_stage<W8A8_E4M3, W8A8_X_BLOCKS> a8r_at;

/* The warp that copies: all stages of all blocks of this CTA, of such a KIND and MODE. */
template <int KIND, int MODE, int STAGES>
static __device__ __forceinline__ void a8r_copy_all(const a8l_maps &maps, const w8a8_args &a,
                                                    uint32_t ring, uint32_t full, uint32_t empty)
{
    constexpr uint32_t bytes = a8l_stage_bytes<KIND, MODE>();
    uint64_t w_policy = a.m > SW_A8L_T ? sw_policy_evict_last() : sw_policy_evict_first();
    uint64_t x_policy = sw_policy_evict_last();
    a8l_walk<SW_A8R_NC> walk;
    w8a8_place p = a8l_place<SW_A8R_NC>(a, walk);
    int ahead = walk.is_there(a.grid) ? min(STAGES, p.n_stages) : 0;
    w8a8_turns<STAGES> at;

    /* Weights depend on no earlier kernel: they are on their way before we wait for one. */
    for (int it = 0; it < ahead; it++)
        w8a8_copy_columns(&maps.w, a, p, it, ring + it * bytes + a8r_at::w_at, full + 8 * it,
                          w_policy);
    sw_grid_wait_previous();
    for (; walk.is_there(a.grid); walk.next(), ahead = 0) {
        p = a8l_place<SW_A8R_NC>(a, walk);
        for (int it = 0; it < p.n_stages; it++, at.next()) {
            uint32_t stage = ring + at.s * bytes;

            sw_mbar_wait(empty + 8 * at.s, at.turn);
            if (it >= ahead)
                w8a8_copy_columns(&maps.w, a, p, it, stage + a8r_at::w_at, full + 8 * at.s,
                                  w_policy);
            a8l_copy_x<KIND, MODE, SW_A8R_NC>(&maps.x, a, p, it, stage, full + 8 * at.s, x_policy,
                                              walk.is_shared(a.grid));
        }
    }
    __syncwarp();
    if (a8l_ends_shared<SW_A8R_NC>(a.grid)) sw_cluster_sync();
    /* What the other CTA says of our stages must find us: see a8l_copy_all. */
#pragma unroll 1
    for (int it = 0; it < STAGES; it++, at.next()) sw_mbar_wait(empty + 8 * at.s, at.turn);
}

/* Warp i of two that make scales, of 128 tokens of all stages. */
template <int STAGES>
static __device__ __forceinline__ void a8r_scale_all(const w8a8_args &a, uint32_t ring,
                                                     uint32_t full, uint32_t empty, int i)
{
    constexpr uint32_t bytes = a8l_stage_bytes<W8A8_E4M3, W8A8_X_BLOCKS>();
    uint32_t to = ring + a8r_at::xs_at + (uint32_t)i * 512;
    w8a8_turns<STAGES> at;

    sw_grid_wait_previous();
#pragma unroll 1
    for (a8l_walk<SW_A8R_NC> walk; walk.is_there(a.grid); walk.next()) {
        w8a8_place p = a8l_place<SW_A8R_NC>(a, walk);
        w8a8_scale_walk<128> scales(a, p, i * 128);
        float x[4];

        scales.fetch_x(x, a);
#pragma unroll 1
        for (int it = 0; it < p.n_stages; it++, at.next()) {
            if (it % 32 == 0) scales.fetch_w(a);
            sw_mbar_wait(empty + 8 * at.s, at.turn);
            w8a8_put_row_scales(to + at.s * bytes, scales, x, it);
            __syncwarp();
            sw_release_stage(full + 8 * at.s);
            if (it + 1 < p.n_stages) scales.fetch_x(x, a);
        }
    }
    __syncwarp();
    if (a8l_ends_shared<SW_A8R_NC>(a.grid)) sw_cluster_sync();
}

/* The thread of its warpgroup, as something new: what can be computed of it the compiler would keep
 * in registers through all products. */
static __device__ __forceinline__ int a8r_thread(void)
{
    int thread = (int)threadIdx.x % 128;

    asm volatile("" : "+r"(thread));
    return thread;
}

/* 64 tokens x 64 channels of the lane's sums of 64 x 128 as rows of 128 bytes at `rows` in the
 * order of the 128-byte swizzle. */
template <bool BF16>
static __device__ __forceinline__ void a8r_lay_out(const float *sums, uint32_t rows)
{
    int thread = a8r_thread();

    w8a8_lay_out_rows<BF16>(sums, rows, thread / 32 * 16, thread % 32);
}

/* The sums of a lane to Y, 64 tokens at a time, or of those of half of k that the other CTA has
 * added to the first 64 of them. */
template <bool BF16>
static __device__ __forceinline__ void a8r_store_block(const float (&total)[128],
                                                       const CUtensorMap *y_map, const w8a8_args &a,
                                                       const w8a8_place &p, bool is_half,
                                                       const a8l_rows &rows)
{
    int group = (int)threadIdx.x / 128;
    int token = p.token0 + group * 128 + (is_half ? (int)p.rank * 64 : 0);
    bool sends[2];

    for (int i = 0; i < 2; i++)
        sends[i] = threadIdx.x % 128 == 0 && p.n_tile0 + i < a.n_tiles;
    sw_named_sync(2 + group, 128); /* this warpgroup has its inputs of the stage */
    a8r_lay_out<BF16>(total, rows.own);
    a8r_lay_out<BF16>(total + 32, rows.inputs);
    if (!is_half) a8r_lay_out<BF16>(total + 64, rows.inputs + 8192);
    a8l_laid_out();
    a8l_send(y_map, p.n_tile0, token, rows.own, sends[0]);
    a8l_send(y_map, p.n_tile0 + 1, token, rows.inputs, sends[1]);
    if (is_half) return;
    a8l_send(y_map, p.n_tile0, token + 64, rows.inputs + 8192, sends[0]);
    sw_named_sync(1, 256); /* the weights of the stage have been multiplied by all */
    a8r_lay_out<BF16>(total + 96, rows.weights);
    a8l_laid_out();
    a8l_send(y_map, p.n_tile0 + 1, token + 64, rows.weights, sends[1]);
}

/* A consumer warpgroup: all blocks of this CTA, one row of stages, so that the first products of a
 * block are on their way while the sums of the one before are stored. */
template <int STAGES, bool BF16, typename ring_type>
static __device__ __forceinline__ void a8r_consume_all(const CUtensorMap *y_map, const w8a8_args &a,
                                                       ring_type &ring, const a8l_part &part)
{
    /* From lane 0, so that descriptors stay in uniform registers. */
    uint32_t group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const w8a8_rows_at at = {group * 16384, a8r_at::w_at, a8r_at::xs_at + group * 512};
    a8l_walk<SW_A8R_NC> walk, after;
    w8a8_place p = a8l_place<SW_A8R_NC>(a, walk);
    float total[128] = {}, sum[64];

    ring.wait();
    w8a8_issue_rows(sum, ring.stage() + at.x, ring.stage() + at.w);
    after.next();
#pragma unroll 1
    for (; after.is_there(a.grid); after.next()) {
#pragma unroll 1
        for (int left = p.n_stages; left > 0; left--)
            w8a8_rows_stage<true>(total, sum, ring, at, left == 1);
        a8r_store_block<BF16>(total, y_map, a, p, false,
                              a8l_rows_of<W8A8_E4M3, W8A8_X_BLOCKS>(ring, part));
        walk = after;
        p = a8l_place<SW_A8R_NC>(a, walk);
#pragma unroll
        for (int i = 0; i < 128; i++) total[i] = 0;
    }
#pragma unroll 1
    for (int left = p.n_stages; left > 1; left--)
        w8a8_rows_stage<true>(total, sum, ring, at, false);
    w8a8_rows_stage<false>(total, sum, ring, at, true);
    if (walk.is_shared(a.grid)) a8l_add_other<STAGES>(total, ring, p.rank);
    a8r_store_block<BF16>(total, y_map, a, p, walk.is_shared(a.grid),
                          a8l_rows_of<W8A8_E4M3, W8A8_X_BLOCKS>(ring, part));
}

/* The kernel's problems have whole stages alone, and Y in lines of 16 bytes. BF16: Y, else F16. */
template <int STAGES, bool BF16>
static __global__ void __launch_bounds__(SW_A8L_THREADS, 1)
    swk_w8a8_token_rows_sm90(const __grid_constant__ a8l_maps maps, const w8a8_args a)
{
    constexpr int bytes = a8l_stage_bytes<W8A8_E4M3, W8A8_X_BLOCKS>(), NC = SW_A8R_NC;
    using registers = w8a8_registers<2>;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    uint32_t stages = (sw_smem_addr(s_bytes) + 1023) & ~1023u, parks = stages + STAGES * bytes;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    w8a8_begin<NC * 2, STAGES, bytes>(
        a, (uint32_t *)(s_bytes + (stages - sw_smem_addr(s_bytes))), full, empty,
        1 + SW_A8R_SCALERS * SW_ARRIVALS);
    sw_cluster_sync(); /* before the other CTA fills our stages */
    if (warp >= 8) {
        sw_fewer_registers<registers::copier>();
        if (warp == 8) a8r_copy_all<W8A8_E4M3, W8A8_X_BLOCKS, STAGES>(maps, a, stages, full, empty);
        else if (warp <= 8 + SW_A8R_SCALERS)
            a8r_scale_all<STAGES>(a, stages, full, empty, warp - 9);
        else if (a8l_ends_shared<NC>(a.grid))
            sw_cluster_sync();
    } else {
        a8l_part part = {parks + threadIdx.x / 128 * SW_W8A8_PARK_BYTES, 0};
        a8l_ring<NC, STAGES, true> ring = {{{stages, full, empty, bytes, 0, 0}}, 0};

        sw_more_registers<registers::consumer>();
        sw_grid_wait_previous(); /* Y, which it may still read */
        a8r_consume_all<STAGES, BF16>(&maps.y, a, ring, part);
        ring.give_back();
        if (threadIdx.x % 128 == 0) sw_bulk_wait();
    }
    sw_cluster_part();
}

#endif
