/* a8_wgmma.cuh - products of byte inputs on Swage tiles with warpgroup matrix products (sm_90a).
 *
 * Computes the transposed product: 64 channels of a tile are the rows of A, which the lanes take
 * from the tile as they lie there (E4M3), less 128 (int8) or widened (int4); T tokens of X codes
 * are the columns of B in shared memory. X's codes stand in the order of tiles, so both agree.
 *
 *   grid:    clusters of `split` CTAs that share k; channel blocks run fastest, then token blocks
 *   CTA:     NWG consumer warpgroups, MT tiles of 64 channels each, and one that copies
 *   stage:   128 inputs: X [T][128] bytes, 128 B swizzle; W [C/64] pairs of tiles; with GROUPED
 *            records of scales (and of zero points of int4)
 *   batch:   a tile's 128 inputs: four products of 32
 *
 * Sums: int8 and int4 with one group a channel stay int32 to the end. GROUPED, and all of E4M3,
 * whose tensor cores add with some 14 bits, leave the tensor cores with every stage and are added
 * in fp32, scaled by group where there are groups.
 */
#ifndef SW_KERNELS_CUDA_A8_WGMMA_CUH
#define SW_KERNELS_CUDA_A8_WGMMA_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/a8_copy.cuh"

template <int KIND> struct a8_sum { typedef int type; };
template <> struct a8_sum<A8_E4M3> { typedef float type; };

/* ---- phase 2: codes to the A operand ---- */

/* Volatile, so that the compiler does not move it behind the wait that it is to hide. */
static __device__ __forceinline__ uint32_t a8_flip(uint32_t v)
{
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(v) : "r"(0x80808080u));
    return v;
}

/* Four codes 0..15 less the zero point that `zero` holds four times, as bytes. */
static __device__ __forceinline__ uint32_t a8_nibbles(uint32_t word, uint32_t zero)
{
    return a8_flip(sw_and_or(word, 0x0f0f0f0fu, 0x80808080u) - zero);
}

/* What sums of codes taken times 16 are to be multiplied by. */
#define A8_SYM_SCALE 0.0625f

/* Four of the codes whose zero point is 8, less that, times 16: the upper nibbles, as they lie. */
static __device__ __forceinline__ uint32_t a8_upper(uint32_t word)
{
    uint32_t v;

    asm volatile("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(v)
                 : "r"(word), "r"(0xf0f0f0f0u), "r"(0x80808080u));
    return v;
}

/* The zero points of the lane's two channels of a tile. */
template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void a8_zeros(uint32_t *zero, const a8_args &a, const a8_place &p,
                                                uint32_t stage, int tile)
{
    uint32_t slot = (threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4) * 2, z = 0x0808;

    if (a.zeros && GROUPED)
        asm volatile("{.reg .u16 h;\nld.shared.u16 h, [%1];\ncvt.u32.u16 %0, h;}"
                     : "=r"(z)
                     : "r"(stage + a8_stage<KIND, T, NT, GROUPED>::z_at + tile * 64 + slot));
    else if (a.zeros)
        z = *(const uint16_t *)(a.zeros + min(p.n_tile0 + tile, a.n_tiles - 1) * 64 + slot);
    zero[0] = (z & 0xff) * 0x01010101u;
    zero[1] = (z >> 8) * 0x01010101u;
}

template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void a8_load(uint32_t *frag, const a8_args &a, const a8_place &p,
                                               uint32_t stage, int tile)
{
    using at = a8_stage<KIND, T, NT, GROUPED>;
    uint32_t from = stage + at::w_at + tile * at::tile_bytes + threadIdx.x % 128 * 16;

    if constexpr (KIND == A8_INT4_SYM) {
#pragma unroll
        for (int kt = 0; kt < 2; kt++) {
            uint4 v = sw_shared16(from + kt * 2048);
            uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
            for (int i = 0; i < 8; i++)
                frag[8 * kt + i] = a8_upper(i % 2 ? w[i / 2] : w[i / 2] << 4);
        }
    } else if constexpr (KIND == A8_INT4) {
        uint32_t zero[2];

        a8_zeros<KIND, T, NT, GROUPED>(zero, a, p, stage, tile);
#pragma unroll
        for (int kt = 0; kt < 2; kt++) {
            uint4 v = sw_shared16(from + kt * 2048);
            uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
            for (int i = 0; i < 8; i++)
                frag[8 * kt + i] = a8_nibbles(w[i / 2] >> (i % 2 * 4), zero[i % 2]);
        }
    } else {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            uint4 v = sw_shared16(from + s * 2048);
            bool flips = KIND == A8_INT8;

            frag[4 * s] = flips ? a8_flip(v.x) : v.x;
            frag[4 * s + 1] = flips ? a8_flip(v.y) : v.y;
            frag[4 * s + 2] = flips ? a8_flip(v.z) : v.z;
            frag[4 * s + 3] = flips ? a8_flip(v.w) : v.w;
        }
    }
}

/* ---- phase 3: the main loop of a consumer warpgroup ---- */

template <int N, typename type>
static __device__ __forceinline__ void a8_issue(type (&sum)[N], const uint32_t *frag,
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
template <int STAGES> struct a8_ring {
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
        if (threadIdx.x % 32 == 0) sw_mbar_arrive(stage_bar);
    }
};

/* All products of the stage that `ring` stands at, straight into the totals, and the first batch
 * of the stage after, to which it moves. The last batch is left in the tensor cores. FIRST: how
 * many batches went before in this turn of the loop. `before`: the barrier of the stage before,
 * whose products have ended once the first batch here is the only one on its way; 0: none. */
template <int KIND, int T, int MT, int NT, int STAGES, int FIRST>
static __device__ __forceinline__ void a8_one_stage(int (&total)[MT][T / 2],
                                                    uint32_t (&frag)[2][16],
                                                    a8_ring<STAGES> &ring, const a8_args &a,
                                                    const a8_place &p, int tile0, bool is_last,
                                                    uint32_t before)
{
    uint32_t stage = ring.stage();

    ring.turn();
#pragma unroll
    for (int b = 0; b < MT; b++) {
        a8_issue(total[b], frag[(FIRST + b) & 1], stage, 1);
        if (b + 1 == MT && !is_last) ring.wait();
        sw_wgmma_wait<1>();
        if (b == 0 && before) ring.release(before);
        if (b + 1 < MT)
            a8_load<KIND, T, NT, false>(frag[(FIRST + b + 1) & 1], a, p, stage, tile0 + b + 1);
        else if (!is_last)
            a8_load<KIND, T, NT, false>(frag[(FIRST + b + 1) & 1], a, p, ring.stage(), tile0);
    }
}

/* Nothing may be in flight where a loop turns: the compiler would move accumulators that are being
 * written, and serialize all products to be safe. */
template <int MT, int N, typename type>
static __device__ __forceinline__ void a8_drain(type (&total)[MT][N])
{
    sw_wgmma_wait<0>();
#pragma unroll
    for (int row = 0; row < MT; row++) sw_hold(total[row]);
}

/* Integers of one group a channel. At most two batches are in the tensor cores. */
template <int KIND, int T, int MT, int NWG, int STAGES>
static __device__ __forceinline__ void a8_multiply(int (&total)[MT][T / 2],
                                                   a8_ring<STAGES> &ring, const a8_args &a,
                                                   const a8_place &p)
{
    constexpr int NT = MT * NWG;
    int tile0 = (int)threadIdx.x / 128 * MT, left = p.n_stages;
    uint32_t frag[2][16];

    if (left == 0) return;
    ring.wait();
    a8_load<KIND, T, NT, false>(frag[0], a, p, ring.stage(), tile0);
#pragma unroll 1
    for (; left >= 2; left -= 2) {
        uint32_t first = ring.bar(), second;

        a8_one_stage<KIND, T, MT, NT, STAGES, 0>(total, frag, ring, a, p, tile0, false, 0);
        second = ring.bar();
        a8_one_stage<KIND, T, MT, NT, STAGES, MT>(total, frag, ring, a, p, tile0, left == 2,
                                                        first);
        a8_drain(total);
        ring.release(second);
    }
    if (left) {
        uint32_t last = ring.bar();

        a8_one_stage<KIND, T, MT, NT, STAGES, 0>(total, frag, ring, a, p, tile0, true, 0);
        a8_drain(total);
        ring.release(last);
    }
}

/* The lane's pair of scales in a record of the stage. */
static __device__ __forceinline__ void a8_scales(float *s, uint32_t record, const a8_args &a)
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

/* total += scale * sum, times the scales of X's group `group` where it has some. */
template <int T, bool X_GROUPS, typename type>
static __device__ __forceinline__ void a8_add_group(float (&total)[T / 2], type (&sum)[T / 2],
                                                    const float *scale, const a8_args &a,
                                                    const a8_place &p, int group)
{
    sw_hold(sum);
    if (X_GROUPS && a.has_x_groups) {
        const float *x_scales = a.x_scales + (int64_t)group * a.m;

#pragma unroll
        for (int j = 0; j < T / 4; j++) {
            int token = p.token0 + j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2;
            float x = x_scales[min(token, a.m - 1)];

#pragma unroll
            for (int h = 0; h < 2; h++) {
                int i = j / 2 * 4 + h * 2 + j % 2;

                total[i] = fmaf(scale[h] * x, (float)sum[i], total[i]);
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < T / 2; i++) total[i] = fmaf(scale[i / 2 % 2], (float)sum[i], total[i]);
}

/* Stages that are added up in fp32. Where there are no registers for two batches (AHEAD is 0) the
 * other warpgroup keeps the tensor cores busy while one is fetched. */
template <int KIND, int T, int MT, int NWG, int STAGES, int AHEAD, bool GROUPED>
static __device__ __forceinline__ void a8_multiply_stages(float (&total)[MT][T / 2],
                                                          a8_ring<STAGES> &ring,
                                                          const a8_args &a, const a8_place &p)
{
    constexpr int NT = MT * NWG;
    using at = a8_stage<KIND, T, NT, GROUPED>;
    int tile0 = (int)threadIdx.x / 128 * MT;
    uint32_t frag[1 + AHEAD][16];
    typename a8_sum<KIND>::type sum[T / 2];

    if (p.n_stages == 0) return;
    ring.wait();
    if (AHEAD) a8_load<KIND, T, NT, GROUPED>(frag[0], a, p, ring.stage(), tile0);
#pragma unroll(1 + AHEAD)
    for (int it = 0; it < p.n_stages; it++) {
        uint32_t stage = ring.stage(), bar = ring.bar();
        int now = AHEAD ? it & 1 : 0;

        if (!AHEAD && it > 0) ring.wait();
        ring.turn();
#pragma unroll
        for (int b = 0; b < MT; b++) {
            float scale[2] = {1.0f, 1.0f};

            if (!AHEAD) a8_load<KIND, T, NT, GROUPED>(frag[0], a, p, stage, tile0 + b);
            a8_issue(sum, frag[now], stage, 0);
            if (AHEAD && it + 1 < p.n_stages) {
                ring.wait();
                a8_load<KIND, T, NT, GROUPED>(frag[AHEAD - now], a, p, ring.stage(), tile0);
            }
            if constexpr (GROUPED)
                a8_scales(scale, stage + at::s_at + (tile0 + b) * SW_A8_RECORD_BYTES, a);
            sw_wgmma_wait<0>();
            a8_add_group<T, GROUPED && KIND == A8_E4M3>(total[b], sum, scale, a, p, p.stage0 + it);
        }
        /* An arrival does not wait for loads in flight: the scales must be there before. */
        __threadfence_block();
        __syncwarp();
        ring.release(bar);
    }
}

/* ---- phase 4: sum over the cluster, round, store ---- */

/* Pitch of the [T][C] partial sums: two tokens apart must be 8 banks apart. */
template <int C> struct a8_pitch { static constexpr int elems = C + 4; };

static __device__ __forceinline__ uint32_t a8_bits(float v) { return __float_as_uint(v); }
static __device__ __forceinline__ uint32_t a8_bits(int v) { return (uint32_t)v; }

template <int T, int MT, int C, typename type>
static __device__ __forceinline__ void a8_park(const type (&total)[MT][T / 2], uint32_t *partial)
{
    int thread = (int)threadIdx.x % 128, lane = thread % 32;
    int channel0 = (int)threadIdx.x / 128 * MT * 64 + thread / 32 * 16 + lane / 4;

#pragma unroll
    for (int row = 0; row < MT; row++)
#pragma unroll
        for (int i = 0; i < T / 2; i++) {
            int token = i / 4 * 8 + lane % 4 * 2 + i % 2;

            partial[token * a8_pitch<C>::elems + channel0 + row * 64 + i / 2 % 2 * 8] =
                a8_bits(total[row][i]);
        }
}

/* Scales (and what zero points are beyond the codes' own) of the CTA's channels, in their order:
 * only where there is one group a channel. */
template <int C, int THREADS>
static __device__ __forceinline__ void a8_channel_scales(const a8_args &a, const a8_place &p,
                                                         float *scales, int *zeros)
{
    for (int i = (int)threadIdx.x; i < C; i += THREADS) {
        int n_tile = p.n_tile0 + i / 64, slot = 2 * (i % 64 / 16 * 8 + i % 8) + i % 16 / 8;
        int64_t at = (int64_t)n_tile * 64 + slot;

        scales[i] = 1;
        zeros[i] = 0;
        if (n_tile >= a.n_tiles || a.n_groups > 1) continue;
        if (a.scale_bytes == 4) scales[i] = ((const float *)a.scales)[at];
        else if (a.scales_are_bf16)
            scales[i] = __uint_as_float((uint32_t)((const uint16_t *)a.scales)[at] << 16);
        else scales[i] = __half2float(((const __half *)a.scales)[at]);
        if (a.zeros) zeros[i] = a.zeros[at] - a.zero_none;
    }
}

/* Eight channels of one token, from all that share k in the order of their rank. */
template <bool INTEGER, bool SHIFTS>
static __device__ __forceinline__ void a8_store8(const a8_args &a, const a8_place &p, uint32_t addr,
                                                 int token, int channel, const float *scales,
                                                 const int *zeros, bool has_one_group)
{
    uint32_t v[8] = {}, out[4];
    int64_t at = (int64_t)token * a.y_stride + channel;
    float x_scale = a.has_x_groups ? 1.0f : a.x_scales[token];
    int x_sum = SHIFTS && a.zeros ? a.x_sums[token] : 0;

    for (int r = 0; r < a.split; r++) {
        uint32_t there = sw_cluster_map(addr, (uint32_t)r);

#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint2 two = sw_cluster_load2(there + 8 * i);

            if (INTEGER) v[2 * i] += two.x, v[2 * i + 1] += two.y;
            else {
                v[2 * i] = a8_bits(__uint_as_float(v[2 * i]) + __uint_as_float(two.x));
                v[2 * i + 1] = a8_bits(__uint_as_float(v[2 * i + 1]) + __uint_as_float(two.y));
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float f = INTEGER ? (float)((int)v[i] - zeros[i] * x_sum) : __uint_as_float(v[i]);
        uint32_t bits;

        if (has_one_group) f *= scales[i];
        bits = sw_round16(f * x_scale, a.y_is_bf16);
        out[i / 2] = i % 2 ? out[i / 2] | bits << 16 : bits;
    }
    if (a.y_is_aligned && channel + 8 <= a.n_out) {
        *(uint4 *)(a.y + at) = make_uint4(out[0], out[1], out[2], out[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (channel + i < a.n_out) a.y[at + i] = (uint16_t)(out[i / 2] >> (i % 2 * 16));
    }
}

template <int KIND, int T, int C, int THREADS, bool GROUPED>
static __device__ __forceinline__ void a8_store(const a8_args &a, const a8_place &p,
                                                uint32_t partial, const float *scales,
                                                const int *zeros)
{
    constexpr bool integer = KIND != A8_E4M3 && !GROUPED;
    int n_tokens = min(T, a.m - p.token0), n_parts = a.split * THREADS;

    for (int i = (int)p.rank * THREADS + (int)threadIdx.x; i < n_tokens * (C / 8); i += n_parts) {
        int token = i / (C / 8), channel = i % (C / 8) * 8;

        if (p.n_tile0 * 64 + channel < a.n_out)
            a8_store8<integer, KIND == A8_INT8>(
                a, p, partial + (token * a8_pitch<C>::elems + channel) * 4, p.token0 + token,
                p.n_tile0 * 64 + channel, scales + channel, zeros + channel, !GROUPED);
    }
}

template <int KIND, int T, int MT, int NWG, int STAGES, bool GROUPED>
constexpr int a8_shared_bytes(void)
{
    using at = a8_stage<KIND, T, MT * NWG, GROUPED>;
    int ring = STAGES * at::bytes, partial = T * a8_pitch<64 * MT * NWG>::elems * 4;

    return (ring > partial ? ring : partial) + 1024;
}

/* Registers that a consumer thread can have when the CTA is alone on its SM: what the launch gives
 * each thread, rounded down to 8, pooled, less what the copying warpgroup keeps. */
template <int NWG> struct a8_registers {
    static constexpr int copier = 40;
    static constexpr int at_entry = 65536 / (NWG * 128 + 128) / 8 * 8;
    static constexpr int free = at_entry * (NWG * 128 + 128) - copier * 128;
    static constexpr int consumer = free / (NWG * 128) / 8 * 8 > 240 ? 240
                                                                     : free / (NWG * 128) / 8 * 8;
};

/* Barriers, and zeros where the copies may leave gaps in what is multiplied. */
template <int NWG, int STAGES, int BYTES>
static __device__ __forceinline__ void a8_begin(const a8_args &a, uint32_t *ring, uint32_t full,
                                                uint32_t empty)
{
    if (a.k_tiles % 2) {
        for (int i = (int)threadIdx.x; i < STAGES * BYTES / 4; i += (int)blockDim.x) ring[i] = 0;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            sw_mbar_init(full + 8 * i, 1);
            sw_mbar_init(empty + 8 * i, 4 * NWG);
        }
        sw_mbar_init_fence();
    }
    __syncthreads();
}

/* The zeros come from shared memory, so that the compiler cannot hoist them above the point where
 * the warpgroup gets the registers to hold them. */
template <int MT, int N, typename type>
static __device__ __forceinline__ void a8_clear(type (&total)[MT][N], uint32_t zero_addr)
{
    uint32_t zero = sw_shared4(zero_addr);

#pragma unroll
    for (int row = 0; row < MT; row++)
#pragma unroll
        for (int i = 0; i < N; i++) total[row][i] = (type)zero;
}

template <int KIND, int T, int MT, int NWG, int STAGES, int PER_SM, bool GROUPED>
static __device__ __forceinline__ void a8_consume(const a8_args &a, const a8_place &p,
                                                  uint32_t ring_at, uint32_t full, uint32_t empty,
                                                  uint32_t *partial, uint32_t zero_addr)
{
    a8_ring<STAGES> ring = {ring_at, full, empty,
                                  a8_stage<KIND, T, MT * NWG, GROUPED>::bytes, 0, 0};

    if constexpr (KIND != A8_E4M3 && !GROUPED) {
        int total[MT][T / 2];

        a8_clear(total, zero_addr);
        a8_multiply<KIND, T, MT, NWG, STAGES>(total, ring, a, p);
        sw_named_sync(1, NWG * 128);
        a8_park<T, MT, 64 * MT * NWG>(total, partial);
    } else {
        float total[MT][T / 2];

        a8_clear(total, zero_addr);
        a8_multiply_stages<KIND, T, MT, NWG, STAGES, MT == 1 && (PER_SM == 1 || T < 64), GROUPED>(
            total, ring, a, p);
        sw_named_sync(1, NWG * 128);
        a8_park<T, MT, 64 * MT * NWG>(total, partial);
    }
}

template <int KIND, int T, int MT, int NWG, int STAGES, int PER_SM, bool GROUPED>
static __global__ void __launch_bounds__(NWG * 128 + a8_copy_threads(PER_SM), PER_SM)
    swk_a8_wgmma_sm90(const __grid_constant__ CUtensorMap x_map, const a8_args a)
{
    constexpr int NT = MT * NWG, C = 64 * NT;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ float s_scales[C];
    __shared__ int s_zeros[C];
    __shared__ uint32_t s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    uint32_t *partial = (uint32_t *)(s_bytes + (ring - sw_smem_addr(s_bytes)));
    a8_place p = a8_place_of<T, NT>(a);
    bool is_cluster = a.split > 1;
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (threadIdx.x == 0) s_zero = 0;
    a8_begin<NWG, STAGES, a8_stage<KIND, T, NT, GROUPED>::bytes>(a, partial, full, empty);
    if (warp >= NWG * 4) {
        if constexpr (PER_SM == 1) sw_fewer_registers<a8_registers<NWG>::copier>();
        if (warp == NWG * 4)
            a8_copy_all<KIND, T, NT, GROUPED, STAGES>(&x_map, a, p, ring, full, empty);
        __syncwarp();
        if (is_cluster) sw_cluster_sync();
        if (is_cluster) sw_cluster_sync();
    } else {
        if constexpr (PER_SM == 1) sw_more_registers<a8_registers<NWG>::consumer>();
        /* While the first stage is on its way; the barrier before the sums are parked orders it. */
        a8_channel_scales<C, NWG * 128>(a, p, s_scales, s_zeros);
        a8_consume<KIND, T, MT, NWG, STAGES, PER_SM, GROUPED>(a, p, ring, full, empty,
                                                                    partial, sw_smem_addr(&s_zero));
        if (is_cluster) sw_cluster_sync();
        else sw_named_sync(1, NWG * 128);
        sw_grid_wait_previous(); /* scales and sums of X */
        a8_store<KIND, T, C, NWG * 128, GROUPED>(a, p, ring, s_scales, s_zeros);
        __syncwarp();
        if (is_cluster) sw_cluster_sync();
    }
}

#endif
