/* w8a8_integer_rows.cuh - the persistent kernel for int8 with scales of channels and codes in
 * columns (sm_90a): tokens are the rows of its products.
 *
 * As w8a8_token_rows.cuh, with these differences:
 *
 *   sums:  stay in the tensor cores over all of k, those of a warpgroup's first 64 tokens and of
 *          its others. A stage goes back when all products of the next one have been asked for and
 *          its own are over
 *   store: of the first 64 tokens while the last products of the others are on their way
 *   after: what sums are to be multiplied by comes by copies that begin with the block
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_INTEGER_ROWS_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_INTEGER_ROWS_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_token_rows.cuh"

/* Byte offsets of a warpgroup's own part of shared memory: scales of its 128 tokens, and of both
 * tiles of channels in the order of slots. */
struct a8i_aside {
    static constexpr int x_at = 0;
    static constexpr int w_at = 512;
    static constexpr int bytes = 1024;
};

/* Ask for them, a token and a channel a thread. The part must have been read for the block before.
 * No branches, here and below: behind one that lanes may take apart the compiler has descriptors in
 * vector registers, and moves them between all products. */
static __device__ __forceinline__ void a8i_fetch(const w8a8_args &a, const w8a8_place &p,
                                                 uint32_t group, uint32_t part)
{
    int thread = a8r_thread(), token = p.token0 + (int)group * 128 + thread;
    int n_tile = min(p.n_tile0 + thread / 64, a.n_tiles - 1);
    int64_t at = ((int64_t)n_tile * 64 + thread % 64) * a.scale_bytes;

    sw_copy4(part + a8i_aside::x_at + (uint32_t)thread * 4, a.x_scales + min(token, a.m - 1));
    sw_copy4(part + a8i_aside::w_at + (uint32_t)thread * 4, a.scales + (at & ~3));
    sw_copy_commit();
}

/* What this thread has asked for is there, the scale of its channel in fp32. */
static __device__ __forceinline__ void a8i_take(const w8a8_args &a, uint32_t part)
{
    int thread = a8r_thread();
    uint32_t at = part + a8i_aside::w_at + (uint32_t)thread * 4, v, half;
    float of_half;

    sw_copy_wait<0>();
    v = sw_shared4(at);
    half = v >> (thread % 2 * 16) & 0xffff;
    /* Volatile: made where it is not needed too. */
    asm volatile("cvt.f32.f16 %0, %1;" : "=f"(of_half) : "h"((uint16_t)half));
    if (a.scales_are_bf16) of_half = __uint_as_float(half << 16);
    sw_shared_put4(at, a.scale_bytes == 4 ? __uint_as_float(v) : of_half);
}

/* 64 tokens x 64 channels of the lane's sums of 64 x 128, times their scales, as rows of 128 bytes
 * at `rows` in the order of the 128-byte swizzle. token: the first of these of the warpgroup's. */
template <bool BF16>
static __device__ __forceinline__ void a8i_lay_out(const int *sums, uint32_t aside, int token,
                                                   int tile, uint32_t rows)
{
    int thread = a8r_thread(), lane = thread % 32, row = lane % 8, matrix = lane / 8;
    int first = thread / 32 * 16;
    uint32_t line = rows + (uint32_t)((first + matrix % 2 * 8 + row) * 128);
    uint32_t x_at = aside + a8i_aside::x_at + (uint32_t)(token + first + lane / 4) * 4;
    /* Scales of channels 8 j + 2 (l % 4), 8 more, one more and 9 more. */
    uint32_t w_at = aside + a8i_aside::w_at + (uint32_t)(tile * 256 + lane % 4 * 16);
    const float x[2] = {__uint_as_float(sw_shared4(x_at)), __uint_as_float(sw_shared4(x_at + 32))};

#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint4 v = sw_shared16(w_at + (uint32_t)j * 32);
        const float w[4] = {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                            __uint_as_float(v.w)};
        uint32_t out[4];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int *of = sums + 4 * j + 2 * i;

            out[i] = sw_round16_pair((float)of[0] * w[i / 2] * x[i % 2],
                                     (float)of[1] * w[i / 2 + 2] * x[i % 2], BF16);
        }
        sw_store_matrices4(line + (uint32_t)(((j + matrix / 2) ^ row) * 16), out);
    }
}

/* What a consumer warpgroup has. */
struct a8i_own {
    const CUtensorMap *y_map;
    uint32_t group, aside, x_at; /* x_at: of its tokens in a stage */
};

/* 64 tokens of the lane's sums, and what has been laid out to Y, by way of 8 KB at `one` and
 * `two`. */
template <bool BF16>
static __device__ __forceinline__ void a8i_lay_out_half(const int (&sums)[64], const a8i_own &own,
                                                        int token, uint32_t one, uint32_t two)
{
    a8i_lay_out<BF16>(sums, own.aside, token, 0, one);
    a8i_lay_out<BF16>(sums + 32, own.aside, token, 1, two);
}

static __device__ __forceinline__ void a8i_send_half(const w8a8_args &a, const w8a8_place &p,
                                                     const a8i_own &own, int token, uint32_t one,
                                                     uint32_t two)
{
    int at = p.token0 + (int)own.group * 128 + token;
    bool sends = threadIdx.x % 128 == 0;

    a8l_laid_out();
    a8l_send(own.y_map, p.n_tile0, at, one, sends && p.n_tile0 < a.n_tiles);
    a8l_send(own.y_map, p.n_tile0 + 1, at, two, sends && p.n_tile0 + 1 < a.n_tiles);
}

/* All products of a block but the first, which is on its way; the last stage's barrier. */
template <typename ring_type>
static __device__ __forceinline__ uint32_t a8i_multiply(int (&low)[64], int (&high)[64],
                                                        ring_type &ring, const a8i_own &own,
                                                        int n_stages)
{
    uint32_t stage = ring.stage(), before = ring.bar();

    w8a8_issue_rows(high, stage + own.x_at + 8192, stage + a8r_at::w_at, false);
    ring.turn();
#pragma unroll 1
    for (; n_stages > 1; n_stages--) {
        stage = ring.stage();
        ring.wait();
        w8a8_issue_rows(low, stage + own.x_at, stage + a8r_at::w_at, true);
        w8a8_issue_rows(high, stage + own.x_at + 8192, stage + a8r_at::w_at, true);
        sw_wgmma_wait<2>();
        __syncwarp();
        ring.release(before);
        before = ring.bar();
        ring.turn();
    }
    return before;
}

/* The sums of a block that two clusters share, of half of k. */
template <int STAGES, bool BF16, typename ring_type>
static __device__ __forceinline__ void a8i_store_shared(int (&low)[64], int (&high)[64],
                                                        const w8a8_args &a, const w8a8_place &p,
                                                        const ring_type &ring, const a8i_own &own,
                                                        const a8l_rows &rows)
{
    int all[128];

#pragma unroll
    for (int i = 0; i < 64; i++) all[i] = low[i], all[64 + i] = high[i];
    a8l_add_other<STAGES>(all, ring, p.rank);
#pragma unroll
    for (int i = 0; i < 64; i++) low[i] = all[i];
    sw_named_sync(2 + own.group, 128);
    a8i_lay_out_half<BF16>(low, own, (int)p.rank * 64, rows.own, rows.inputs);
    a8i_send_half(a, p, own, (int)p.rank * 64, rows.own, rows.inputs);
}

/* A consumer warpgroup: all blocks of this CTA. */
template <int STAGES, bool BF16, typename ring_type>
static __device__ __forceinline__ void a8i_consume_all(const w8a8_args &a, ring_type &ring,
                                                       const a8l_part &part, const a8i_own &own)
{
    a8l_walk<SW_A8R_NC> walk;
    w8a8_place p = a8l_place<SW_A8R_NC>(a, walk);
    int low[64], high[64];

    a8i_fetch(a, p, own.group, own.aside);
    ring.wait();
    w8a8_issue_rows(low, ring.stage() + own.x_at, ring.stage() + a8r_at::w_at, false);
#pragma unroll 1
    while (true) {
        bool is_shared = walk.is_shared(a.grid);

        ring.keep(a8i_multiply(low, high, ring, own, p.n_stages));
        const a8l_rows rows = a8l_rows_of<W8A8_INT8, W8A8_PLAIN>(ring, part);

        a8i_take(a, own.aside);
        if (is_shared) {
            sw_wgmma_wait<0>();
            sw_hold(low);
            sw_hold(high);
            a8i_store_shared<STAGES, BF16>(low, high, a, p, ring, own, rows);
            break;
        }
        sw_wgmma_wait<1>();
        sw_hold(low);
        sw_named_sync(2 + own.group, 128); /* this warpgroup has the inputs of these */
        a8i_lay_out_half<BF16>(low, own, 0, rows.own, rows.inputs);
        a8i_send_half(a, p, own, 0, rows.own, rows.inputs);
        sw_wgmma_wait<0>();
        sw_hold(high);
        sw_named_sync(1, 256); /* the weights of the stage have been multiplied by all */
        a8i_lay_out_half<BF16>(high, own, 64, rows.inputs + 8192, rows.weights);
        a8i_send_half(a, p, own, 64, rows.inputs + 8192, rows.weights);
        walk.next();
        if (!walk.is_there(a.grid)) break;
        ring.wait();
        w8a8_issue_rows(low, ring.stage() + own.x_at, ring.stage() + a8r_at::w_at, false);
        p = a8l_place<SW_A8R_NC>(a, walk);
        a8i_fetch(a, p, own.group, own.aside);
    }
}

/* The kernel's problems have whole stages alone, and Y in lines of 16 bytes. BF16: Y, else F16. */
template <int STAGES, bool BF16>
static __global__ void __launch_bounds__(SW_A8L_THREADS, 1)
    swk_w8a8_integer_rows_sm90(const __grid_constant__ a8l_maps maps, const w8a8_args a)
{
    constexpr int bytes = a8l_stage_bytes<W8A8_INT8, W8A8_PLAIN>(), NC = SW_A8R_NC;
    using registers = w8a8_registers<2>;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    uint32_t stages = (sw_smem_addr(s_bytes) + 1023) & ~1023u, parks = stages + STAGES * bytes;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    static_assert(a8i_aside::bytes <= a8l_aside_bytes<W8A8_INT8, W8A8_PLAIN>(), "what is reserved");
    sw_grid_launch_next();
    w8a8_begin<NC * 2, STAGES, bytes>(
        a, (uint32_t *)(s_bytes + (stages - sw_smem_addr(s_bytes))), full, empty, 1);
    sw_cluster_sync(); /* before the other CTA fills our stages */
    if (warp >= 8) {
        sw_fewer_registers<registers::copier>();
        if (warp == 8)
            a8r_copy_all<W8A8_INT8, W8A8_PLAIN, STAGES>(maps, a, stages, full, empty);
        else if (a8l_ends_shared<NC>(a.grid))
            sw_cluster_sync();
    } else {
        /* From lane 0, so that descriptors stay in uniform registers. */
        uint32_t group = __shfl_sync(~0u, threadIdx.x / 128, 0);
        a8l_part part = {parks + group * SW_W8A8_PARK_BYTES, 0};
        const a8i_own own = {&maps.y, group,
                             parks + 2 * SW_W8A8_PARK_BYTES + group * a8i_aside::bytes,
                             group * 16384};
        a8l_ring<NC, STAGES, true> ring = {{{stages, full, empty, bytes, 0, 0}}, 0};

        sw_more_registers<registers::consumer>();
        sw_grid_wait_previous(); /* scales and sums of X, and Y, which it may still read */
        a8i_consume_all<STAGES, BF16>(a, ring, part, own);
        ring.give_back();
        if (threadIdx.x % 128 == 0) sw_bulk_wait();
    }
    sw_cluster_part();
}

#endif
