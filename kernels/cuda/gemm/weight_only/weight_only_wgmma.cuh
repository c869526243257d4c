/* weight_only_wgmma.cuh - int4 or int8 weights in Swage tiles times 16-bit inputs with warpgroup
 * products (sm_90a): int4, int8 and E4M3. Compiled for what has been checked on a device, which is
 * what can_run of w4a16.cu and w8a16.cu say; of 8 bits, zero points, groups, F16 and E4M3 are
 * written, and wait for that.
 *
 * Computes the transposed product: 64 channels of a tile are the rows of A, which each lane
 * converts from its 16 bytes into registers; T tokens of X are the columns of B in shared memory.
 *
 *   grid:    clusters of `split` CTAs; a cluster owns C = 64 * MT * NWG channels x T tokens, each
 *            of its CTAs a run of k-stages (128 inputs); n-blocks run fastest, then token blocks
 *   CTA:     NWG consumer warpgroups side by side, MT tiles of 64 channels each, KW times: the
 *            i-th of KW takes every KW-th stage; and one warp (or warpgroup) that copies
 *   stage:   X  [2 k-tiles][T][64] 16-bit, 128 B swizzle (zeros outside [m, k_in])
 *            W  [C/64][2 k-tiles] tiles; scales [C/64][GPS] records, zeros [C/64][GPS] of 64 B
 *   batch:   the inputs converted and issued at once: a k-tile, or half of one
 *
 * MODE, where the scales come in:
 *   NW_GROUPS   A holds the integers code - zero, which bf16 and fp16 represent exactly; a group's
 *               sum is kept apart in fp32, multiplied by the scale in fp32 and added to the total.
 *               No weight is rounded: a one-hot X returns scale * (code - zero) rounded once. While
 *               a batch is in the tensor cores the next one is converted; while a group is scaled,
 *               the other warpgroups keep the tensor cores busy.
 *   NW_SCALED   for many tokens: A holds scale * (code - zero), rounded once to the type of X,
 *               which must be that of the scales; products go straight into the total, and the
 *               tensor cores seldom drain.
 *   NW_CHANNEL  one group a channel: integers straight into the total, which is scaled at the end.
 * The order of every sum is fixed.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_WGMMA_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_WGMMA_CUH

#include "kernels/cuda/gemm/cluster_sum.cuh"
#include "kernels/cuda/gemm/glu.cuh"
#include "kernels/cuda/gemm/weight_only/weight_only_pairs.cuh"
#include "kernels/cuda/ptx/ptx_tokens.cuh"

/* ---- phase 3: the main loop of a consumer warpgroup ---- */

template <class P>
__device__ __forceinline__ void nw_issue(float (&sum)[P::T / 2], const uint32_t *frag, int b,
                                         uint32_t stage)
{
    int in_row = b % P::per_row;
    uint64_t desc = sw_wgmma_desc(stage + (uint32_t)(in_row / P::per_tile * P::T * 128 +
                                                     in_row % P::per_tile * P::steps * 32));

    sw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < P::steps; s++) {
        int adds = P::MODE != NW_GROUPS || in_row % P::per_group || s;

        if constexpr (sw_wgmma_has_more(P::T / 2))
            sw_wgmma_more<P::BF16>(sum, frag + 4 * s, desc + 2 * (uint64_t)s, adds);
        else sw_wgmma<P::BF16>(sum, frag + 4 * s, desc + 2 * (uint64_t)s, adds);
    }
    sw_wgmma_commit();
}

/* total += scale * sum, for the lane's two channels. */
template <int N>
__device__ __forceinline__ void nw_add_group(float (&total)[N], float (&sum)[N], const float *scale)
{
    sw_hold(sum);
#pragma unroll
    for (int i = 0; i < N; i++) total[i] = fmaf(scale[i / 2 % 2], sum[i], total[i]);
}

/* Registers that a consumer thread can have where a whole warpgroup copies: what the launch gives
 * each thread, rounded down to 8, pooled, less what the copying warpgroup keeps. */
template <class P> struct nw_registers {
    static constexpr bool moves = nw_copy_threads(P::PER_SM, P::KW) == 128;
    static constexpr int copier = P::T >= 128 ? 32 : 40;
    static constexpr int at_entry = 65536 / P::threads / 8 * 8;
    static constexpr int free = at_entry * P::threads - copier * 128;
    static constexpr int most = free / P::consumers / 8 * 8;
    static constexpr int consumer = most > 240 ? 240 : most;
};

/* Zeros. Where products add to them the compiler must see that they are constants: from memory, one
 * for all, it would copy them where products have begun, and serialize those. Where they do not,
 * and a warpgroup has yet to get the registers to hold them, they come from memory: it would hoist
 * them above that, and spill. */
template <class P>
__device__ __forceinline__ void nw_clear(float (&total)[P::MT][P::T / 2], uint32_t zero_addr)
{
    float zero = 0;

    if constexpr (P::MODE == NW_GROUPS && nw_registers<P>::moves)
        zero = __uint_as_float(sw_shared4(zero_addr));
#pragma unroll
    for (int row = 0; row < P::MT; row++)
#pragma unroll
        for (int i = 0; i < P::T / 2; i++) total[row][i] = zero;
}

/* NW_GROUPS. One software pipeline: splitting it would hide the order of issue and wait. */
template <class P>
__device__ __forceinline__ void nw_multiply_groups(float (&total)[P::MT][P::T / 2],
                                                   const nw_args &args, int tile0, int left,
                                                   nw_ring<P> &ring)
{
    uint32_t frag[2][4 * P::steps];
    float sum[P::T / 2];

    if (left == 0) return;
    ring.wait();
    nw_prepare<P>(frag[0], nw_fetch<P>(0, ring.stage(), tile0));
    for (; left > 0; left--) {
        uint32_t stage = ring.stage(), bar = ring.bar();

        ring.turn();
#pragma unroll
        for (int b = 0; b < P::n_batches; b++) {
            bool ends_group = (b + 1) % P::per_group == 0;
            int row = b / P::per_row, group = b % P::per_row / P::per_group;
            nw_raw<P> raw = {};
            float scale[2];

            nw_issue<P>(sum, frag[b & 1], b, stage);
            if (ends_group) nw_scales<P>(scale, stage, (tile0 + row) * P::GPS + group, args);
            if (b + 1 < P::n_batches) {
                raw = nw_fetch<P>(b + 1, stage, tile0);
                sw_wgmma_wait<1>();
                nw_prepare<P>(frag[(b + 1) & 1], raw);
            } else if (left > 1) {
                ring.wait();
                raw = nw_fetch<P>(0, ring.stage(), tile0);
                sw_wgmma_wait<1>();
                nw_prepare<P>(frag[0], raw);
            }
            if (ends_group) {
                sw_wgmma_wait<0>();
                nw_add_group(total[row], sum, scale);
            }
        }
        /* Each warp for itself, and only when its scales have arrived: an arrival does not wait for
         * loads in flight, and without the fence the next stage's scales came in their place. */
        __threadfence_block();
        __syncwarp();
        sw_release_stage(bar);
    }
}

/* ---- phase 3 where products go straight into the total ---- */

/* This warp is done with the stage of `bar`, as both CTAs of a pair must be before one fills it. */
template <class P> __device__ __forceinline__ void nw_release(uint32_t bar)
{
    if constexpr (P::CTAS == 1) {
        sw_release_stage(bar);
    } else {
#pragma unroll
        for (int r = 0; r < P::CTAS; r++)
            if (SW_ARRIVES(r)) sw_cluster_arrive(sw_cluster_map(bar, (uint32_t)r));
    }
}

/* Before sums are read. */
template <int MT, int N> __device__ __forceinline__ void nw_drain(float (&total)[MT][N])
{
    sw_wgmma_wait<0>();
    sw_hold(total);
}

/* All products of the stage that `ring` stands at and, with NEXT, the first batch of the one after,
 * to which it moves. `before`: the barrier of the stage before, whose products have ended once the
 * first batch here is the only one on its way. */
template <class P, bool NEXT>
__device__ __forceinline__ void nw_one_stage(float (&total)[P::MT][P::T / 2],
                                             uint32_t (&frag)[2][4 * P::steps], nw_ring<P> &ring,
                                             int tile0, uint32_t before)
{
    uint32_t stage = ring.stage();

    ring.turn();
#pragma unroll
    for (int b = 0; b < P::n_batches; b++) {
        bool is_last = b + 1 == P::n_batches;
        nw_raw<P> raw = {};

        nw_issue<P>(total[b / P::per_row], frag[b & 1], b, stage);
        if (NEXT && is_last) ring.wait();
        if (P::early && !is_last) raw = nw_fetch<P>(b + 1, stage, tile0);
        else if (P::early && NEXT) raw = nw_fetch<P>(0, ring.stage(), tile0);
        sw_wgmma_wait<1>();
        if (b == 0) nw_release<P>(before);
        if (!P::early && !is_last) raw = nw_fetch<P>(b + 1, stage, tile0);
        else if (!P::early && NEXT) raw = nw_fetch<P>(0, ring.stage(), tile0);
        if (NEXT || !is_last) nw_prepare<P>(frag[(b + 1) & 1], raw);
    }
}

/* Sums as they are, of products whose weights were times NW_FUSED_UNIT. */
template <class P>
__device__ __forceinline__ void nw_take_off_unit(float (&total)[P::MT][P::T / 2])
{
    if constexpr (P::FUSED) {
#pragma unroll
        for (int row = 0; row < P::MT; row++)
#pragma unroll
            for (int i = 0; i < P::T / 2; i++) total[row][i] *= 1 / NW_FUSED_UNIT;
    }
}

/* Products stay in flight where the loop turns, which the compiler grants to sums that began as
 * constants: see nw_clear. `nobody`: a barrier that nobody waits for, in the place of that of a
 * stage before the first. */
template <class P>
__device__ __forceinline__ void nw_multiply_through(float (&total)[P::MT][P::T / 2],
                                                    nw_ring<P> &ring, int tile0, int n_stages,
                                                    uint32_t nobody)
{
    uint32_t frag[2][4 * P::steps], before = nobody, last;

    ring.wait();
    nw_prepare<P>(frag[0], nw_fetch<P>(0, ring.stage(), tile0));
#pragma unroll 1
    for (int left = n_stages; left > 1; left--) {
        uint32_t bar = ring.bar();

        nw_one_stage<P, true>(total, frag, ring, tile0, before);
        if (P::drains) nw_drain(total);
        before = bar;
    }
    last = ring.bar();
    nw_one_stage<P, false>(total, frag, ring, tile0, before);
    nw_drain(total);
    nw_release<P>(last);
    nw_take_off_unit<P>(total);
}

/* Scales of whole channels, which no stage brought. */
template <class P>
__device__ __forceinline__ void nw_scale_total(float (&total)[P::MT][P::T / 2], const nw_args &args,
                                               int n_tile)
{
#pragma unroll
    for (int row = 0; row < P::MT; row++) {
        int64_t at = (int64_t)min(n_tile + row, args.n_tiles - 1) * 32 + nw_slot();
        uint2 raw = {};
        float scale[2];

        if (args.scale_bytes == 4) raw = ((const uint2 *)args.scales)[at];
        else raw.x = ((const uint32_t *)args.scales)[at];
        nw_scale_pair<P>(scale, raw, args);
#pragma unroll
        for (int i = 0; i < P::T / 2; i++) total[row][i] *= scale[i / 2 % 2];
    }
}

/* ---- phase 4: sum over the CTA's KW and the cluster, round, store ---- */

/* Of the rows of a warp: rows of products of a warpgroup are a tile apart. */
template <class P> __device__ __forceinline__ int nw_first_channel(int tile0, int warp)
{
    if constexpr (P::MODE == NW_PAIRS) return (tile0 + warp / 2) * 64 + warp % 2 * 16;
    return tile0 * 64 + warp * 16;
}

template <class P>
__device__ __forceinline__ void nw_park(const float (&total)[P::MT][P::T / 2], int tile0,
                                        float *partial)
{
    int thread = (int)threadIdx.x % 128, lane = thread % 32;
    int channel0 = nw_first_channel<P>(tile0, thread / 32) + lane / 4;

#pragma unroll
    for (int row = 0; row < P::MT; row++)
#pragma unroll
        for (int i = 0; i < P::T / 2; i++) {
            int token = i / 4 * 8 + lane % 4 * 2 + i % 2;

            partial[token * P::pitch + channel0 + row * P::row_channels + i / 2 % 2 * 8] =
                total[row][i];
        }
}

template <bool BF16> __device__ __forceinline__ uint16_t nw_round(float v)
{
    if constexpr (BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    return __half_as_ushort(__float2half_rn(v));
}

/* Four channels of one token. */
template <bool BF16>
__device__ __forceinline__ void nw_store4(const nw_args &args, const float (&v)[4], int token,
                                          int channel)
{
    uint16_t *to = args.y + (int64_t)token * args.y_stride + channel;

    if (args.y_is_aligned && channel + 4 <= args.n_out) {
        *(uint2 *)to = make_uint2(nw_round<BF16>(v[0]) | (uint32_t)nw_round<BF16>(v[1]) << 16,
                                  nw_round<BF16>(v[2]) | (uint32_t)nw_round<BF16>(v[3]) << 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (channel + i < args.n_out) to[i] = nw_round<BF16>(v[i]);
}

template <class P>
__device__ __forceinline__ void nw_store(const nw_args &args, const nw_place &p, uint32_t partial)
{
    constexpr int HELD = P::KW == 1 && P::T >= 32 ? 2 : 1, of_token = P::C / 4;
    sw_cluster_pieces<HELD> pieces(p.rank, p.split, P::consumers,
                                   min(P::T, args.n_tokens - p.token0) * of_token);

    for (; pieces.more(); pieces.turn()) {
        float v[HELD][4];
        uint32_t at[HELD];

#pragma unroll
        for (int h = 0; h < HELD; h++) {
            int piece = pieces.piece(h);

            at[h] = partial + (uint32_t)(piece / of_token * P::pitch + piece % of_token * 4) * 4;
        }
        sw_cluster_sum<P::KW, P::partial_bytes>(v, at, p.rank, p.split);
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            int piece = pieces.piece(h);

            sw_hold(v[h]); /* the last meeting wants them to have arrived, stored or not */
            if (pieces.is_piece(h))
                nw_store4<P::BF16>(args, v[h], p.token0 + piece / of_token,
                                   p.n_tile0 * 64 + piece % of_token * 4);
        }
    }
}

__device__ __forceinline__ float nw_rounded(float v)
{
    return __uint_as_float((uint32_t)nw_round<true>(v) << 16);
}

/* Of gates and their ups, C / 2 channels further on: what a kernel of its own would make of both as
 * they would have been stored. */
template <class P>
__device__ __forceinline__ void nw_store_gated(const nw_args &args, const nw_place &p,
                                               uint32_t partial)
{
    constexpr int of_token = P::C / 8;
    sw_cluster_pieces<1> pieces(p.rank, p.split, P::consumers,
                                min(P::T, args.n_tokens - p.token0) * of_token);

    for (; pieces.more(); pieces.turn()) {
        int token = pieces.piece(0) / of_token, channel = pieces.piece(0) % of_token * 4;
        uint32_t gate = partial + (uint32_t)(token * P::pitch + channel) * 4;
        const uint32_t at[2] = {gate, gate + P::C / 2 * 4};
        float v[2][4];

        sw_cluster_sum<P::KW, P::partial_bytes>(v, at, p.rank, p.split);
        sw_hold(v[0]);
        sw_hold(v[1]);
        if (!pieces.is_piece(0)) continue;
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[0][i] = sw_glu_of(args.glu_act, nw_rounded(v[0][i]), nw_rounded(v[1][i]),
                                args.glu_limit);
        nw_store4<true>(args, v[0], p.token0 + token, p.n_tile0 * 32 + channel);
    }
}

template <class P>
__device__ __forceinline__ void nw_store_all(const nw_args &args, const nw_place &p,
                                             uint32_t partial)
{
    if constexpr (P::takes_gates)
        if (args.has_gates) {
            nw_store_gated<P>(args, p, partial);
            return;
        }
    nw_store<P>(args, p, partial);
}

/* Barriers, by the warp that copies, which then fills the ring at once: the weights depend on no
 * earlier kernel. */
template <class P>
__device__ __forceinline__ void nw_begin(const nw_maps &maps, const nw_args &args,
                                         const nw_place &p, int warp, uint32_t ring, uint32_t full,
                                         uint32_t empty, uint32_t nobody)
{
    if (warp == P::consumers / 32) {
        if (threadIdx.x % 32 == 0) {
            sw_tensor_prefetch(&maps.codes);
            sw_tensor_prefetch(&maps.scales);
            if (P::ZEROS) sw_tensor_prefetch(&maps.zeros);
            sw_tensor_prefetch(&maps.x);
            for (int i = 0; i < P::STAGES; i++) {
                sw_mbar_init(full + 8 * i, 1);
                sw_mbar_init(empty + 8 * i, 4 * P::NWG * SW_ARRIVALS);
            }
            sw_mbar_init(nobody, SW_ARRIVALS_MAX);
            sw_mbar_init_fence();
        }
        __syncwarp();
        nw_copy_first<P>(maps, args, p, ring, full);
    }
    __syncthreads();
}

/* What the consumers do once they have their registers. */
template <class P>
__device__ __forceinline__ void nw_consume(const nw_args &args, const nw_place &p, uint32_t ring,
                                           uint32_t full, uint32_t empty, float *partial,
                                           uint32_t nobody, uint32_t zero_addr)
{
    float total[P::MT][P::T / 2];
    /* The same in a warp, which the compiler must see: descriptors follow from it. */
    int part = P::KW == 1 ? 0 : __shfl_sync(~0u, (int)threadIdx.x / (P::NWG * 128), 0);
    int tile0 = (int)threadIdx.x / 128 % P::NWG * P::MT;
    int n_stages = (p.n_stages - part + P::KW - 1) / P::KW;
    nw_ring<P> at = {ring, full, empty, part, 0};

    nw_clear<P>(total, zero_addr);
    if constexpr (P::MODE == NW_PAIRS) {
        if (args.scales_are_bf16) nw_multiply_pairs<P, true>(total, tile0, n_stages, at);
        else nw_multiply_pairs<P, false>(total, tile0, n_stages, at);
    } else if constexpr (P::MODE == NW_GROUPS) {
        nw_multiply_groups<P>(total, args, tile0, n_stages, at);
    } else if (n_stages) {
        nw_multiply_through<P>(total, at, tile0, n_stages, nobody);
    }
    if constexpr (P::MODE == NW_CHANNEL) nw_scale_total<P>(total, args, p.n_tile0 + tile0);
    sw_named_sync(1, P::consumers);
    nw_park<P>(total, tile0, partial + part * (P::partial_bytes / 4));
}

template <class P>
__global__ void __launch_bounds__(P::threads, P::PER_SM)
    swk_weight_only_wgmma_sm90(const __grid_constant__ nw_maps maps, const nw_args args)
{
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[P::STAGES], s_empty[P::STAGES], s_nobody;
    __shared__ float s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    float *partial = (float *)(s_bytes + (ring - sw_smem_addr(s_bytes)));
    nw_place p = nw_place_of<P>(args);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (p.token0 >= args.n_tokens) { /* a place holder: see launch */
        sw_grid_wait_previous();
        return;
    }
    if (threadIdx.x == 0) s_zero = 0;
    nw_begin<P>(maps, args, p, warp, ring, full, empty, sw_smem_addr(&s_nobody));
    if (warp >= P::consumers / 32) {
        if constexpr (nw_registers<P>::moves) sw_fewer_registers<nw_registers<P>::copier>();
        if (warp == P::consumers / 32)
            nw_copy_rest<P>(maps, args, p, ring, full, empty);
        __syncwarp();
        if (p.split > 1) sw_cluster_sync();
        if (p.split > 1) sw_cluster_part();
    } else {
        if constexpr (nw_registers<P>::moves) sw_more_registers<nw_registers<P>::consumer>();
        nw_consume<P>(args, p, ring, full, empty, partial, sw_smem_addr(&s_nobody),
                      sw_smem_addr(&s_zero));
        if (p.split > 1) sw_cluster_sync();
        else sw_named_sync(1, P::consumers);
        nw_store_all<P>(args, p, ring);
        __syncwarp();
        if (p.split > 1) sw_cluster_part();
    }
}

#endif
