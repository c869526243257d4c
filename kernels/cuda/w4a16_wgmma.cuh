/* w4a16_wgmma.cuh - W4A16 on Swage tiles with warpgroup matrix products (sm_90a).
 *
 * Computes the transposed product: 64 channels of a tile are the rows of A, which each lane
 * converts from its 16 bytes into registers; T tokens of X are the columns of B in shared memory.
 *
 *   grid:    clusters of `split` CTAs; a cluster owns C = 64 * MT * NWG channels x T tokens, each
 *            of its CTAs a run of k-stages (128 inputs); n-blocks run fastest, then token blocks
 *   CTA:     NWG consumer warpgroups, MT tiles of 64 channels each, and one that copies
 *   stage:   W  [C/64][2 k-tiles] tiles of 2 KB        (bulk copy, contiguous along k)
 *            X  [2 k-tiles][T][64] 16-bit, 128 B swizzle   (tensor copy, zeros outside [m, k_in])
 *            scales [C/64][GPS] records of 128 B, zeros [C/64][GPS] records of 64 B
 *   batch:   the inputs converted and issued at once: a k-tile, or half of one
 *
 * A holds the integers code - zero, which bf16 and fp16 represent exactly; a group's sum is kept
 * apart in fp32, multiplied by the scale in fp32 and added to the total. So no weight is rounded,
 * a one-hot X returns scale * (code - zero) rounded once, and the order of every sum is fixed.
 * While a batch is in the tensor cores the next one is converted; while a group is scaled, the
 * other warpgroups keep the tensor cores busy.
 *
 * SCALED versions, for many tokens: A holds scale * (code - zero), rounded once to the type of X,
 * which must be that of the scales; products go straight into the total, and the tensor cores
 * seldom drain.
 */
#ifndef SW_KERNELS_CUDA_W4A16_WGMMA_CUH
#define SW_KERNELS_CUDA_W4A16_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/arrive.cuh"
#include "kernels/cuda/w4a16_copy.cuh"

/* ---- phase 2: codes to the A operand ---- */

/* 0x4300 is 128 in bf16 and 0x6400 is 1024 in fp16; both have code bits to spare below. */
template <bool BF16> __device__ __forceinline__ uint32_t w4_magic(void)
{
    return BF16 ? 0x43004300u : 0x64006400u;
}

/* Volatile, as all of the conversion is: else the compiler moves it behind the wait that it is to
 * hide. */
template <bool BF16> __device__ __forceinline__ uint32_t w4_subtract(uint32_t a, uint32_t b)
{
    uint32_t d;

    if constexpr (BF16) asm volatile("sub.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    else asm volatile("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* One word of codes to the four registers of a k-step; zero[h] is magic | zero of channel g+8h. */
template <bool BF16>
__device__ __forceinline__ void w4_convert(uint32_t *frag, uint32_t word, const uint32_t *zero)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        frag[j] = w4_subtract<BF16>(sw_and_or(word >> (4 * j), 0x000f000fu, w4_magic<BF16>()),
                                    zero[j & 1]);
}

/* 4 bytes of a record: the pair of this lane's channels. */
__device__ __forceinline__ uint32_t w4_shared32(uint32_t addr)
{
    uint32_t v;

    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(addr));
    return v;
}

__device__ __forceinline__ uint32_t w4_shared16(uint32_t addr)
{
    uint16_t v;

    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(addr));
    return v;
}

/* Words of this lane for k-steps s0 .. s0 + STEPS - 1 of one tile. */
template <int STEPS>
__device__ __forceinline__ void w4_words(uint32_t *w, uint32_t addr)
{
    if constexpr (STEPS == 4)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(addr));
    else
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(addr));
}

__device__ __forceinline__ void w4_scale_pair(float *s, uint32_t bits, bool is_bf16)
{
    if (is_bf16) {
        s[0] = __uint_as_float(bits << 16);
        s[1] = __uint_as_float(bits & 0xffff0000u);
    } else {
        float2 f = __half22float2(*(__half2 *)&bits);
        s[0] = f.x;
        s[1] = f.y;
    }
}

/* ---- phase 3: the main loop of a consumer warpgroup ---- */

/* How a stage is cut into batches, all known at compile time. */
template <int T, int MT, int GPS> struct w4_cut {
    /* k-steps of 16 in a batch */
    static constexpr int steps = T * 2 / MT >= 128 || GPS == 4 ? 2 : 4;
    static constexpr int per_tile = 4 / steps;
    static constexpr int per_row = SW_STAGE_TILES * per_tile;  /* batches of one m-tile */
    static constexpr int n = MT * per_row;
    static constexpr int per_group = per_row / GPS;
};

template <bool BF16> __device__ __forceinline__ uint32_t w4_times(uint32_t a, uint32_t b)
{
    uint32_t d;

    if constexpr (BF16) asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    else asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Multiply what batch b became by the scales of its group, each channel's in both halves. */
template <int T, int MT, int NT, int GPS, bool BF16>
__device__ __forceinline__ void w4_scale_batch(uint32_t *frag, int b, uint32_t stage, int tile0)
{
    using at = w4_stage<T, NT, GPS>;
    using cut = w4_cut<T, MT, GPS>;
    uint32_t slot = (threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4) * 4;
    int record = (tile0 + b / cut::per_row) * GPS + b % cut::per_row / cut::per_group;
    uint32_t pair = w4_shared32(stage + at::s_at + record * 128 + slot);
    uint32_t scale[2] = {__byte_perm(pair, 0, 0x1010), __byte_perm(pair, 0, 0x3232)};

#pragma unroll
    for (int i = 0; i < 4 * cut::steps; i++) frag[i] = w4_times<BF16>(frag[i], scale[i & 1]);
}

/* Convert batch b of the stage at `stage`. */
template <int T, int MT, int NT, int GPS, bool BF16, bool ZEROS, bool SCALED>
__device__ __forceinline__ void w4_prepare(uint32_t *frag, int b, uint32_t stage, int tile0)
{
    using at = w4_stage<T, NT, GPS>;
    using cut = w4_cut<T, MT, GPS>;
    constexpr uint32_t zero8 = BF16 ? 0x43084308u : 0x64086408u;
    int thread = (int)threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    int tile = tile0 + b / cut::per_row, in_row = b % cut::per_row;
    uint32_t words[cut::steps], zero[2] = {zero8, zero8};

    w4_words<cut::steps>(words, stage + at::w_at +
                                    (tile * SW_STAGE_TILES + in_row / cut::per_tile) *
                                        SW_TILE4_BYTES +
                                    16 * thread + in_row % cut::per_tile * 4 * cut::steps);
    if constexpr (ZEROS) {
        uint32_t z = w4_shared16(stage + at::z_at + (tile * GPS + in_row / cut::per_group) * 64 +
                                 2 * (8 * warp + lane / 4));
        zero[0] = w4_magic<BF16>() | (z & 0xff) * 0x10001u;
        zero[1] = w4_magic<BF16>() | (z >> 8) * 0x10001u;
    }
#pragma unroll
    for (int s = 0; s < cut::steps; s++) w4_convert<BF16>(frag + 4 * s, words[s], zero);
    if constexpr (SCALED) w4_scale_batch<T, MT, NT, GPS, BF16>(frag, b, stage, tile0);
}

template <int T, int MT, int GPS, bool BF16, bool SCALED>
__device__ __forceinline__ void w4_issue(float (&sum)[T / 2], const uint32_t *frag, int b,
                                         uint32_t stage)
{
    using cut = w4_cut<T, MT, GPS>;
    int in_row = b % cut::per_row;
    uint32_t x = stage + (uint32_t)(in_row / cut::per_tile * T * 128 +
                                    in_row % cut::per_tile * cut::steps * 32);
    uint64_t desc = sw_wgmma_desc(x);

    sw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < cut::steps; s++)
        sw_wgmma<BF16>(sum, frag + 4 * s, desc + 2 * (uint64_t)s,
                       SCALED || in_row % cut::per_group || s);
    sw_wgmma_commit();
}

/* total += scale * sum, for the lane's two channels. */
template <int N>
__device__ __forceinline__ void w4_add_group(float (&total)[N], float (&sum)[N], const float *scale)
{
    sw_hold(sum);
#pragma unroll
    for (int i = 0; i < N; i++) total[i] = fmaf(scale[i / 2 % 2], sum[i], total[i]);
}

/* The zero comes from shared memory, so that the compiler cannot hoist 128 of them above the point
 * where the warpgroup gets the registers to hold them, which made it spill. */
template <int MT, int N>
__device__ __forceinline__ void w4_clear(float (&total)[MT][N], uint32_t zero_addr)
{
    float zero = __uint_as_float(w4_shared32(zero_addr));

#pragma unroll
    for (int row = 0; row < MT; row++)
#pragma unroll
        for (int i = 0; i < N; i++) total[row][i] = zero;
}

/* One software pipeline: splitting it would hide the order of issue and wait. */
template <int T, int MT, int NWG, int GPS, int STAGES, bool BF16, bool ZEROS>
__device__ __forceinline__ void w4_multiply(float (&total)[MT][T / 2], const w4_args &args,
                                            const w4_place &p, uint32_t ring, uint32_t full,
                                            uint32_t empty)
{
    constexpr int NT = MT * NWG;
    using at = w4_stage<T, NT, GPS>;
    using cut = w4_cut<T, MT, GPS>;
    int group_id = (int)threadIdx.x / 128, tile0 = group_id * MT, s = 0;
    uint32_t frag[2][4 * cut::steps], parity = 0;
    uint32_t slot = (threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4) * 4;
    bool is_bf16 = args.scales_are_bf16;
    float sum[T / 2];

    if (p.n_stages == 0) return;
    sw_mbar_wait(full, 0);
    w4_prepare<T, MT, NT, GPS, BF16, ZEROS, false>(frag[0], 0, ring, tile0);
    for (int it = 0; it < p.n_stages; it++) {
        uint32_t stage = ring + s * at::bytes, bar = empty + 8 * s;

#pragma unroll
        for (int b = 0; b < cut::n; b++) {
            w4_issue<T, MT, GPS, BF16, false>(sum, frag[b & 1], b, stage);
            if (b + 1 < cut::n) {
                sw_wgmma_wait<1>();
                w4_prepare<T, MT, NT, GPS, BF16, ZEROS, false>(frag[(b + 1) & 1], b + 1, stage,
                                                               tile0);
            } else if (it + 1 < p.n_stages) {
                if (++s == STAGES) s = 0, parity ^= 1;
                sw_mbar_wait(full + 8 * s, parity);
                sw_wgmma_wait<1>();
                w4_prepare<T, MT, NT, GPS, BF16, ZEROS, false>(frag[0], 0, ring + s * at::bytes,
                                                        tile0);
            }
            if ((b + 1) % cut::per_group == 0) {
                int row = b / cut::per_row, group = b % cut::per_row / cut::per_group;
                float scale[2];

                w4_scale_pair(scale, w4_shared32(stage + at::s_at +
                                                 ((tile0 + row) * GPS + group) * 128 + slot),
                              is_bf16);
                sw_wgmma_wait<0>();
                w4_add_group(total[row], sum, scale);
            }
        }
        /* Each warp for itself, and only when its scales have arrived: an arrival does not wait for
         * loads in flight, and without the fence the next stage's scales came in their place. */
        __threadfence_block();
        __syncwarp();
        sw_release_stage(bar);
    }
}

/* ---- phase 3 for weights that carry their scales ---- */

/* The ring as a consumer goes through it. */
template <int STAGES> struct w4_ring {
    uint32_t stages, full, empty, bytes;
    uint32_t parity;
    int s;

    __device__ __forceinline__ uint32_t stage(void) const { return stages + s * bytes; }
    __device__ __forceinline__ void turn(void)
    {
        if (++s == STAGES) s = 0, parity ^= 1;
    }
};

/* All products of the stage that `ring` stands at, and the first batch of the one after, to which
 * it moves. The last batch is left in the tensor cores. `before`: the stage before, in which all
 * products have ended once the first batch here is the only one on its way; 0: none. */
template <int T, int MT, int NT, int GPS, int STAGES, bool BF16, bool ZEROS>
__device__ __forceinline__ void w4_one_stage(float (&total)[MT][T / 2],
                                             uint32_t (&frag)[2][4 * w4_cut<T, MT, GPS>::steps],
                                             w4_ring<STAGES> &ring, int tile0, bool is_last,
                                             uint32_t before)
{
    using cut = w4_cut<T, MT, GPS>;
    uint32_t stage = ring.stage();

    ring.turn();
#pragma unroll
    for (int b = 0; b < cut::n; b++) {
        w4_issue<T, MT, GPS, BF16, true>(total[b / cut::per_row], frag[b & 1], b, stage);
        if (b + 1 == cut::n && !is_last) sw_mbar_wait(ring.full + 8 * ring.s, ring.parity);
        sw_wgmma_wait<1>();
        if (b == 0 && before) sw_release_stage(before);
        if (b + 1 < cut::n)
            w4_prepare<T, MT, NT, GPS, BF16, ZEROS, true>(frag[(b + 1) & 1], b + 1, stage, tile0);
        else if (!is_last)
            w4_prepare<T, MT, NT, GPS, BF16, ZEROS, true>(frag[0], 0, ring.stage(), tile0);
    }
}

/* Nothing may be in flight where a loop turns: the compiler would move accumulators that are being
 * written, and serialize all products to be safe. */
template <int MT, int N> __device__ __forceinline__ void w4_drain(float (&total)[MT][N])
{
    sw_wgmma_wait<0>();
    sw_hold(total);
}

/* At most two batches are in the tensor cores; they drain every second stage. */
template <int T, int MT, int NWG, int GPS, int STAGES, bool BF16, bool ZEROS>
__device__ __forceinline__ void w4_multiply_scaled(float (&total)[MT][T / 2], const w4_place &p,
                                                   uint32_t stages, uint32_t full, uint32_t empty)
{
    constexpr int NT = MT * NWG;
    int tile0 = (int)threadIdx.x / 128 * MT, left = p.n_stages;
    uint32_t frag[2][4 * w4_cut<T, MT, GPS>::steps];
    w4_ring<STAGES> ring = {stages, full, empty, w4_stage<T, NT, GPS>::bytes, 0, 0};

    if (left == 0) return;
    sw_mbar_wait(full, 0);
    w4_prepare<T, MT, NT, GPS, BF16, ZEROS, true>(frag[0], 0, stages, tile0);
#pragma unroll 1
    for (; left >= 2; left -= 2) {
        uint32_t first = empty + 8 * ring.s, second;

        SW_IS_THERE(first);
        w4_one_stage<T, MT, NT, GPS, STAGES, BF16, ZEROS>(total, frag, ring, tile0, false, 0);
        second = empty + 8 * ring.s;
        w4_one_stage<T, MT, NT, GPS, STAGES, BF16, ZEROS>(total, frag, ring, tile0, left == 2,
                                                          first);
        w4_drain(total);
        sw_release_stage(second);
    }
    if (left) {
        w4_one_stage<T, MT, NT, GPS, STAGES, BF16, ZEROS>(total, frag, ring, tile0, true, 0);
        w4_drain(total);
    }
}

/* ---- phase 4: sum over the cluster, round, store ---- */

/* Pitch of the [T][C] partial sums: two tokens apart must be 8 banks apart. */
template <int C> struct w4_pitch { static constexpr int elems = C + 4; };

template <int T, int MT, int C>
__device__ __forceinline__ void w4_park(const float (&total)[MT][T / 2], float *partial)
{
    int thread = (int)threadIdx.x % 128, lane = thread % 32;
    int channel0 = (int)threadIdx.x / 128 * MT * 64 + thread / 32 * 16 + lane / 4;

#pragma unroll
    for (int row = 0; row < MT; row++)
#pragma unroll
        for (int i = 0; i < T / 2; i++) {
            int token = i / 4 * 8 + lane % 4 * 2 + i % 2;

            partial[token * w4_pitch<C>::elems + channel0 + row * 64 + i / 2 % 2 * 8] =
                total[row][i];
        }
}

template <bool BF16> __device__ __forceinline__ uint16_t w4_round(float v)
{
    if constexpr (BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    return __half_as_ushort(__float2half_rn(v));
}

/* Eight channels of one token, from all CTAs of the cluster in the order of their rank. */
template <bool BF16>
__device__ __forceinline__ void w4_store8(const w4_args &args, const w4_place &p, uint32_t addr,
                                          int token, int channel)
{
    float4 lo = {0, 0, 0, 0}, hi = {0, 0, 0, 0};
    int64_t at = (int64_t)token * args.y_stride + channel;

    for (uint32_t r = 0; r < p.split; r++) {
        uint32_t there = sw_cluster_map(addr, r);
        float4 a = sw_cluster_load4(there), b = sw_cluster_load4(there + 16);

        lo.x += a.x, lo.y += a.y, lo.z += a.z, lo.w += a.w;
        hi.x += b.x, hi.y += b.y, hi.z += b.z, hi.w += b.w;
    }
    float v[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
    if (args.y_is_aligned && channel + 8 <= args.n_out) {
        uint32_t out[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = w4_round<BF16>(v[2 * i]) | (uint32_t)w4_round<BF16>(v[2 * i + 1]) << 16;
        *(uint4 *)(args.y + at) = make_uint4(out[0], out[1], out[2], out[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (channel + i < args.n_out) args.y[at + i] = w4_round<BF16>(v[i]);
    }
}

template <int T, int C, int THREADS, bool BF16>
__device__ __forceinline__ void w4_store(const w4_args &args, const w4_place &p, uint32_t partial)
{
    int n_tokens = min(T, args.n_tokens - p.token0);

    for (int i = (int)(p.rank * THREADS + threadIdx.x); i < n_tokens * (C / 8);
         i += (int)(p.split * THREADS)) {
        int token = i / (C / 8), channel = i % (C / 8) * 8;

        if (p.n_tile0 * 64 + channel < args.n_out)
            w4_store8<BF16>(args, p, partial + (token * w4_pitch<C>::elems + channel) * 4,
                            p.token0 + token, p.n_tile0 * 64 + channel);
    }
}

template <int T, int MT, int NWG, int GPS, int STAGES>
constexpr int w4_shared_bytes(void)
{
    using at = w4_stage<T, MT * NWG, GPS>;
    int ring = STAGES * at::bytes, partial = T * w4_pitch<64 * MT * NWG>::elems * 4;

    return (ring > partial ? ring : partial) + 1024;
}

/* Registers that a consumer thread can have when the CTA is alone on its SM: what the launch gives
 * each thread, rounded down to 8, pooled, less what the copying warpgroup keeps. */
template <int T, int NWG> struct w4_registers {
    static constexpr int copier = T >= 128 ? 32 : 40;
    static constexpr int at_entry = 65536 / (NWG * 128 + 128) / 8 * 8;
    static constexpr int free = at_entry * (NWG * 128 + 128) - copier * 128;
    static constexpr int consumer = free / (NWG * 128) / 8 * 8 > 240 ? 240
                                                                     : free / (NWG * 128) / 8 * 8;
};

/* Barriers, and zeros where the copies may leave gaps in what is multiplied. */
template <int NWG, int STAGES, int BYTES>
__device__ __forceinline__ void w4_begin(const w4_args &args, uint32_t *ring, uint32_t full,
                                         uint32_t empty)
{
    if (args.has_ragged_groups) {
        for (int i = (int)threadIdx.x; i < STAGES * BYTES / 4; i += (int)blockDim.x) ring[i] = 0;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            sw_mbar_init(full + 8 * i, 1);
            sw_mbar_init(empty + 8 * i, 4 * NWG * SW_ARRIVALS);
        }
        sw_mbar_init_fence();
    }
    __syncthreads();
}

template <int T, int MT, int NWG, int GPS, int STAGES, int PER_SM, bool SCALED, bool BF16,
          bool ZEROS>
__global__ void __launch_bounds__(NWG * 128 + w4_copy_threads(PER_SM), PER_SM)
    swk_w4a16_wgmma_sm90(const __grid_constant__ CUtensorMap x_map, const w4_args args)
{
    constexpr int NT = MT * NWG;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ float s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    float *partial = (float *)(s_bytes + (ring - sw_smem_addr(s_bytes)));
    w4_place p = w4_place_of<T, NT>(args);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (threadIdx.x == 0) s_zero = 0;
    w4_begin<NWG, STAGES, w4_stage<T, NT, GPS>::bytes>(args, (uint32_t *)partial, full, empty);
    if (warp >= NWG * 4) {
        if constexpr (PER_SM == 1) sw_fewer_registers<w4_registers<T, NWG>::copier>();
        if (warp == NWG * 4) w4_copy_all<T, NT, GPS, STAGES>(&x_map, args, p, ring, full, empty);
        __syncwarp();
        if (p.split > 1) sw_cluster_sync();
        if (p.split > 1) sw_cluster_sync();
    } else {
        if constexpr (PER_SM == 1) sw_more_registers<w4_registers<T, NWG>::consumer>();
        float total[MT][T / 2];

        w4_clear(total, sw_smem_addr(&s_zero));
        if constexpr (SCALED)
            w4_multiply_scaled<T, MT, NWG, GPS, STAGES, BF16, ZEROS>(total, p, ring, full, empty);
        else
            w4_multiply<T, MT, NWG, GPS, STAGES, BF16, ZEROS>(total, args, p, ring, full, empty);
        sw_named_sync(1, NWG * 128);
        w4_park<T, MT, 64 * NT>(total, partial);
        if (p.split > 1) sw_cluster_sync();
        else sw_named_sync(1, NWG * 128);
        w4_store<T, 64 * NT, NWG * 128, BF16>(args, p, ring);
        __syncwarp();
        if (p.split > 1) sw_cluster_sync();
    }
}

#endif
