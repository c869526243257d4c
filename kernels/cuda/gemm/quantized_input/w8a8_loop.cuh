/* w8a8_loop.cuh - what a consumer warpgroup of the kernels of 8-bit inputs does with a stage: codes
 * to the A operand, products, sums. The parts and their order are drawn in w8a8_split_k_wgmma.cuh.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_LOOP_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_LOOP_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/gemm/column_tiles.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_copy.cuh"
#include "kernels/cuda/ptx/arrive.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

template <int KIND>
struct w8a8_sum {
    typedef int type;
};
template <>
struct w8a8_sum<W8A8_E4M3> {
    typedef float type;
};
template <>
struct w8a8_sum<W8A8_INT4_E4M3> {
    typedef float type;
};

/* ---- phase 2: codes to the A operand ---- */

/* Volatile, so that the compiler does not move it behind the wait that it is to hide. */
static __device__ __forceinline__ uint32_t w8a8_flip(uint32_t v)
{
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(v) : "r"(0x80808080u));
    return v;
}

/* Four codes 0..15 less the zero point that `zero` holds four times, as bytes. */
static __device__ __forceinline__ uint32_t w8a8_nibbles(uint32_t word, uint32_t zero)
{
    return w8a8_flip(sw_and_or(word, 0x0f0f0f0fu, 0x80808080u) - zero);
}

/* Eight codes as signs and magnitudes (sign_tiles.h) to E4M3 of a 512th: its numbers below 2^-5
 * have even steps, so that a byte 0 to 8 is that many of them. */
static __device__ __forceinline__ void w8a8_small_floats(uint32_t *two, uint32_t word)
{
    uint32_t negative = word & 0x88888888u, size, high;

    size = word - negative + __funnelshift_l(negative, negative, 25); /* one more, if negative */
    asm volatile("lop3.b32 %0, %1, %2, %3, 0xe2;" /* (a & b) | (c & ~b) */
                 : "=r"(two[0])
                 : "r"(size), "r"(0x0f0f0f0fu), "r"(negative));
    asm volatile("lop3.b32 %0, %1, %2, %3, 0xe2;"
                 : "=r"(high)
                 : "r"(negative), "r"(0x0f0f0f0fu), "r"(size));
    two[1] = __funnelshift_l(high, high, 28);
}

/* The zero points of the lane's two channels of a tile. */
template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void w8a8_zeros(uint32_t *zero, const w8a8_args &a,
                                                  const w8a8_place &p, uint32_t stage, int tile)
{
    uint32_t slot = (threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4) * 2, z = 0x0808;

    if (a.zeros && GROUPED)
        asm volatile("{.reg .u16 h;\nld.shared.u16 h, [%1];\ncvt.u32.u16 %0, h;}"
                     : "=r"(z)
                     : "r"(stage + w8a8_stage<KIND, T, NT, GROUPED>::z_at + tile * 64 + slot));
    else if (a.zeros)
        z = *(const uint16_t *)(a.zeros + min(p.n_tile0 + tile, a.n_tiles - 1) * 64 + slot);
    zero[0] = (z & 0xff) * 0x01010101u;
    zero[1] = (z >> 8) * 0x01010101u;
}

/* Of codes in the order of columns (column_tiles.h); `tile`: where they lie. */
static __device__ __forceinline__ void w8a8_load_columns(uint32_t *frag, uint32_t tile)
{
    uint32_t row = tile + threadIdx.x % 128 / 32 * 512 + sw_column_of_lane();

#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint4 v = sw_load_matrices(row + s * 2048);

        frag[4 * s] = v.x, frag[4 * s + 1] = v.y;
        frag[4 * s + 2] = v.z, frag[4 * s + 3] = v.w;
    }
}

/* A lane's codes of 4 bits, of two k-tiles, the first of them at `from`. */
static __device__ __forceinline__ void w8a8_fetch(uint32_t (&words)[8], uint32_t from)
{
#pragma unroll
    for (int kt = 0; kt < 2; kt++) {
        uint4 v = sw_shared16(from + kt * 2048);

        words[4 * kt] = v.x, words[4 * kt + 1] = v.y;
        words[4 * kt + 2] = v.z, words[4 * kt + 3] = v.w;
    }
}

/* Four of these words, those of k-tile kt, to the A operand as E4M3. */
static __device__ __forceinline__ void w8a8_convert(uint32_t *frag, const uint32_t (&words)[8],
                                                    int kt)
{
#pragma unroll
    for (int i = 4 * kt; i < 4 * kt + 4; i++) w8a8_small_floats(frag + 2 * i, words[i]);
}

/* The A operand of a stage. BLOCKS: W8A8_X_BLOCKS, which has codes in columns, as int8 with scales
 * of channels has them; those with scales of X by groups may have them. */
template <int KIND, int T, int NT, bool GROUPED, bool BLOCKS = false>
static __device__ __forceinline__ void w8a8_load(uint32_t *frag, const w8a8_args &a,
                                                 const w8a8_place &p, uint32_t stage, int tile)
{
    using at = w8a8_stage<KIND, T, NT, GROUPED>;
    uint32_t from = stage + at::w_at + tile * at::tile_bytes + threadIdx.x % 128 * 16;

    if constexpr (KIND == W8A8_INT4_SYM) {
#pragma unroll
        for (int kt = 0; kt < 2; kt++) {
            uint4 v = sw_shared16(from + kt * 2048);
            uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
            for (int i = 0; i < 8; i++)
                frag[8 * kt + i] = sw_upper_codes(i % 2 ? w[i / 2] : w[i / 2] << 4);
        }
    } else if constexpr (KIND == W8A8_INT4_E4M3) {
        uint32_t words[8];

        w8a8_fetch(words, from);
        w8a8_convert(frag, words, 0);
        w8a8_convert(frag, words, 1);
    } else if constexpr (KIND == W8A8_INT4) {
        uint32_t zero[2];

        w8a8_zeros<KIND, T, NT, GROUPED>(zero, a, p, stage, tile);
#pragma unroll
        for (int kt = 0; kt < 2; kt++) {
            uint4 v = sw_shared16(from + kt * 2048);
            uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
            for (int i = 0; i < 8; i++)
                frag[8 * kt + i] = w8a8_nibbles(w[i / 2] >> (i % 2 * 4), zero[i % 2]);
        }
    } else if ((KIND == W8A8_INT8 && !GROUPED) ||
               (KIND == W8A8_E4M3 && (BLOCKS || (GROUPED && a.in_columns)))) {
        w8a8_load_columns(frag, stage + at::w_at + tile * at::tile_bytes);
    } else {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            uint4 v = sw_shared16(from + s * 2048);
            bool flips = KIND == W8A8_INT8;

            frag[4 * s] = flips ? w8a8_flip(v.x) : v.x;
            frag[4 * s + 1] = flips ? w8a8_flip(v.y) : v.y;
            frag[4 * s + 2] = flips ? w8a8_flip(v.z) : v.z;
            frag[4 * s + 3] = flips ? w8a8_flip(v.w) : v.w;
        }
    }
}

/* ---- phase 3: the main loop of a consumer warpgroup ---- */

template <int N, typename type>
static __device__ __forceinline__ void w8a8_issue(type (&sum)[N], const uint32_t *frag,
                                                  uint32_t stage, int accumulate)
{
    uint64_t desc = sw_wgmma_desc(stage);

    sw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++)
        sw_wgmma8(sum, frag + 4 * s, desc + 2 * (uint64_t)s, accumulate || s);
    sw_wgmma_commit();
}

/* The ring as a consumer goes through it. */
template <int STAGES>
struct w8a8_ring {
    static constexpr bool keeps_last = false;
    uint32_t stages, full, empty, bytes;
    uint32_t parity;
    int s;

    __device__ __forceinline__ uint32_t stage(void) const { return stages + s * bytes; }
    __device__ __forceinline__ uint32_t bar(void) const { return empty + 8 * s; }
    __device__ __forceinline__ void turn(void)
    {
        if (++s == STAGES) s = 0, parity ^= 1;
    }
    __device__ __forceinline__ void wait(void) const { sw_mbar_wait(full + 8 * s, parity); }
    /* This warp is done with a stage. */
    __device__ __forceinline__ void release(uint32_t stage_bar) const
    {
        sw_release_stage(stage_bar);
    }
};

/* The last stage of a block of Y is done with, which some rings keep for something else. */
template <typename ring_type>
static __device__ __forceinline__ void w8a8_release_last(ring_type &ring, uint32_t stage_bar)
{
    if constexpr (ring_type::keeps_last) ring.keep(stage_bar);
    else ring.release(stage_bar);
}

/* The ring as consumers go through it, whose stages all CTAs of the cluster fill. */
template <int NC, int STAGES>
struct w8a8_cluster_ring : w8a8_ring<STAGES> {
    __device__ __forceinline__ void release(uint32_t stage_bar) const
    {
        if constexpr (NC == 1)
            w8a8_ring<STAGES>::release(stage_bar);
        else
            for (uint32_t r = 0; r < NC; r++)
                if (SW_ARRIVES(r)) sw_cluster_arrive(sw_cluster_map(stage_bar, r));
    }
};

/* All products of the stage that `ring` stands at, straight into the totals, and the first batch
 * of the stage after, to which it moves. The last batch is left in the tensor cores. FIRST: how
 * many batches went before in this turn of the loop. `before`: the barrier of the stage before,
 * whose products have ended once the first batch here is the only one on its way; 0: none. */
template <int KIND, int T, int MT, int NT, int FIRST, typename ring_type>
static __device__ __forceinline__ void
w8a8_one_stage(int (&total)[MT][T / 2], uint32_t (&frag)[2][16], ring_type &ring,
               const w8a8_args &a, const w8a8_place &p, int tile0, bool is_last, uint32_t before)
{
    uint32_t stage = ring.stage();

    ring.turn();
#pragma unroll
    for (int b = 0; b < MT; b++) {
        w8a8_issue(total[b], frag[(FIRST + b) & 1], stage, 1);
        if (b + 1 == MT && !is_last) ring.wait();
        sw_wgmma_wait<1>();
        if (b == 0 && before) ring.release(before);
        if (b + 1 < MT)
            w8a8_load<KIND, T, NT, false>(frag[(FIRST + b + 1) & 1], a, p, stage, tile0 + b + 1);
        else if (!is_last)
            w8a8_load<KIND, T, NT, false>(frag[(FIRST + b + 1) & 1], a, p, ring.stage(), tile0);
    }
}

/* Nothing may be in flight where a loop turns: the compiler would move accumulators that are being
 * written, and serialize all products to be safe. */
template <int MT, int N, typename type>
static __device__ __forceinline__ void w8a8_drain(type (&total)[MT][N])
{
    sw_wgmma_wait<0>();
    sw_hold(total);
}

/* Integers of one group a channel. At most two batches are in the tensor cores. */
template <int KIND, int T, int MT, int NWG, typename ring_type>
static __device__ __forceinline__ void w8a8_multiply(int (&total)[MT][T / 2], ring_type &ring,
                                                     const w8a8_args &a, const w8a8_place &p)
{
    constexpr int NT = MT * NWG;
    int tile0 = (int)threadIdx.x / 128 * MT, left = p.n_stages;
    uint32_t frag[2][16];

    if (left == 0) return;
    ring.wait();
    w8a8_load<KIND, T, NT, false>(frag[0], a, p, ring.stage(), tile0);
#pragma unroll 1
    for (; left >= 2; left -= 2) {
        uint32_t first = ring.bar(), second;

        SW_IS_THERE(first);
        w8a8_one_stage<KIND, T, MT, NT, 0>(total, frag, ring, a, p, tile0, false, 0);
        second = ring.bar();
        w8a8_one_stage<KIND, T, MT, NT, MT>(total, frag, ring, a, p, tile0, left == 2, first);
        w8a8_drain(total);
        if (left == 2) w8a8_release_last(ring, second);
        else ring.release(second);
    }
    if (left) {
        uint32_t last = ring.bar();

        w8a8_one_stage<KIND, T, MT, NT, 0>(total, frag, ring, a, p, tile0, true, 0);
        w8a8_drain(total);
        w8a8_release_last(ring, last);
    }
}

/* Scale number i of W, from global memory. */
static __device__ __forceinline__ float w8a8_scale_at(const w8a8_args &a, int64_t i)
{
    if (a.scale_bytes == 4) return ((const float *)a.scales)[i];
    if (a.scales_are_bf16)
        return __uint_as_float((uint32_t)((const uint16_t *)a.scales)[i] << 16);
    return __half2float(((const __half *)a.scales)[i]);
}

/* The lane's pair of scales in a record of the stage. */
static __device__ __forceinline__ void w8a8_scales(float *s, uint32_t record, const w8a8_args &a)
{
    uint32_t slot = threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4;

    if (a.scale_bytes == 4) {
        uint2 v = sw_shared8(record + slot * 8);

        s[0] = __uint_as_float(v.x), s[1] = __uint_as_float(v.y);
    } else {
        uint32_t v = sw_shared4(record + slot * 4);

        if (a.scales_are_bf16) {
            s[0] = __uint_as_float(v << 16), s[1] = __uint_as_float(v & 0xffff0000u);
        } else {
            float2 f = __half22float2(*(const __half2 *)&v);
            s[0] = f.x, s[1] = f.y;
        }
    }
}

/* Those of tile `tile` of the stage whose records lie at `records`, for sums of KIND. */
template <int KIND>
static __device__ __forceinline__ void w8a8_group_scales(float *scale, uint32_t records, int tile,
                                                         const w8a8_args &a)
{
    w8a8_scales(scale, records + (uint32_t)(tile * a.record_bytes), a);
    scale[0] *= w8a8_code_scale(KIND), scale[1] *= w8a8_code_scale(KIND);
}

/* total += scale * sum, times the scales of X, which lie at `x_scales`, where it has some. */
template <int N, bool X_GROUPS, typename type>
static __device__ __forceinline__ void w8a8_add_group(float *total, type (&sum)[N],
                                                      const float *scale, const w8a8_args &a,
                                                      uint32_t x_scales)
{
    sw_hold(sum);
    if (X_GROUPS && a.has_x_groups) {
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            uint2 x = sw_shared8(x_scales + (uint32_t)(j * 8 + threadIdx.x % 4 * 2) * 4);

#pragma unroll
            for (int i = 0; i < 4; i++)
                total[4 * j + i] = fmaf(scale[i / 2] * __uint_as_float(i % 2 ? x.y : x.x),
                                        (float)sum[4 * j + i], total[4 * j + i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) total[i] = fmaf(scale[i / 2 % 2], (float)sum[i], total[i]);
}

/* An arrival does not wait for loads in flight, so scales of a stage must be there before. That
 * every sum that they went into has come before in the program is not enough: ptxas puts the
 * arrival ahead of additions. */
template <typename sums>
static __device__ __forceinline__ void w8a8_scales_are_used(sums &total)
{
    sw_hold(total);
    __threadfence_block();
}

/* One stage that is added up in fp32, its first batch in frag[NOW], and the first of the next into
 * the other. Where there are no registers for two batches (AHEAD is 0) the other warpgroup keeps
 * the tensor cores busy while one is fetched. */
template <int KIND, int T, int MT, int NT, int AHEAD, bool GROUPED, int NOW, typename ring_type>
static __device__ __forceinline__ void
w8a8_add_stage(float (&total)[MT][T / 2], uint32_t (&frag)[1 + AHEAD][16], ring_type &ring,
               const w8a8_args &a, const w8a8_place &p, int it)
{
    using at = w8a8_stage<KIND, T, NT, GROUPED>;
    int tile0 = (int)threadIdx.x / 128 * MT;
    uint32_t stage = ring.stage(), bar = ring.bar();
    typename w8a8_sum<KIND>::type sum[T / 2];

    if (!AHEAD && it > 0) ring.wait();
    ring.turn();
#pragma unroll
    for (int b = 0; b < MT; b++) {
        float scale[2] = {1.0f, 1.0f};

        if (!AHEAD) w8a8_load<KIND, T, NT, GROUPED>(frag[0], a, p, stage, tile0 + b);
        w8a8_issue(sum, frag[NOW], stage, 0);
        if (AHEAD && it + 1 < p.n_stages) {
            ring.wait();
            w8a8_load<KIND, T, NT, GROUPED>(frag[AHEAD - NOW], a, p, ring.stage(), tile0);
        }
        if constexpr (GROUPED) w8a8_group_scales<KIND>(scale, stage + at::s_at, tile0 + b, a);
        sw_wgmma_wait<0>();
        w8a8_add_group<T / 2, GROUPED && KIND == W8A8_E4M3>(total[b], sum, scale, a,
                                                            stage + at::xs_at);
    }
    if constexpr (GROUPED) w8a8_scales_are_used(total);
    else sw_hold(total);
    __syncwarp();
    ring.release(bar);
}

/* With two fragments two stages a turn, so that every index of one is a constant. */
template <int KIND, int T, int MT, int NWG, int AHEAD, bool GROUPED, typename ring_type>
static __device__ __forceinline__ void w8a8_multiply_stages(float (&total)[MT][T / 2],
                                                            ring_type &ring, const w8a8_args &a,
                                                            const w8a8_place &p)
{
    constexpr int NT = MT * NWG;
    uint32_t frag[1 + AHEAD][16];
    int it = 0;

    if (p.n_stages == 0) return;
    ring.wait();
    if (AHEAD)
        w8a8_load<KIND, T, NT, GROUPED>(frag[0], a, p, ring.stage(), (int)threadIdx.x / 128 * MT);
#pragma unroll 1
    for (; it + AHEAD < p.n_stages; it += 1 + AHEAD) {
        w8a8_add_stage<KIND, T, MT, NT, AHEAD, GROUPED, 0>(total, frag, ring, a, p, it);
        if constexpr (AHEAD)
            w8a8_add_stage<KIND, T, MT, NT, AHEAD, GROUPED, 1>(total, frag, ring, a, p, it + 1);
    }
    if (AHEAD && it < p.n_stages)
        w8a8_add_stage<KIND, T, MT, NT, AHEAD, GROUPED, 0>(total, frag, ring, a, p, it);
}

/* ---- start ---- */

/* Registers that a consumer thread can have when the CTA is alone on its SM: what the launch gives
 * each thread, rounded down to 8, pooled, less what the copying warpgroup keeps. */
template <int NWG, int KEPT = 40>
struct w8a8_registers {
    static constexpr int copier = KEPT;
    static constexpr int at_entry = 65536 / (NWG * 128 + 128) / 8 * 8;
    static constexpr int free = at_entry * (NWG * 128 + 128) - copier * 128;
    static constexpr int consumer = free / (NWG * 128) / 8 * 8 > 240 ? 240
                                                                     : free / (NWG * 128) / 8 * 8;
};

/* Barriers, and zeros where the copies may leave gaps in what is multiplied. fills: arrivals of
 * those who fill a stage. */
template <int NWG, int STAGES, int BYTES>
static __device__ __forceinline__ void w8a8_begin(const w8a8_args &a, uint32_t *ring, uint32_t full,
                                                  uint32_t empty, uint32_t fills)
{
    if (a.k_tiles % 2) {
        for (int i = (int)threadIdx.x; i < STAGES * BYTES / 4; i += (int)blockDim.x) ring[i] = 0;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            sw_mbar_init(full + 8 * i, fills);
            sw_mbar_init(empty + 8 * i, 4 * NWG * SW_ARRIVALS);
        }
        sw_mbar_init_fence();
    }
    __syncthreads();
}

/* The zeros come from shared memory, so that the compiler cannot hoist them above the point where
 * the warpgroup gets the registers to hold them. */
template <int MT, int N, typename type>
static __device__ __forceinline__ void w8a8_clear(type (&total)[MT][N], uint32_t zero_addr)
{
    uint32_t zero = sw_shared4(zero_addr);

#pragma unroll
    for (int row = 0; row < MT; row++)
#pragma unroll
        for (int i = 0; i < N; i++) total[row][i] = (type)zero;
}

#endif
