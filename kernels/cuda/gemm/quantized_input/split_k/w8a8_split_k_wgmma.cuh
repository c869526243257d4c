/* w8a8_split_k_wgmma.cuh - products of 8-bit inputs on Swage tiles with warpgroup matrix products
 * (sm_90a).
 *
 * Computes the transposed product: 64 channels of a tile are the rows of A, which the lanes take
 * from the tile as they lie there (E4M3), less 128 (int8) or widened (int4); T tokens of X codes
 * are the columns of B in shared memory. X's codes stand in the order of tiles, so both agree.
 *
 *   grid:    clusters of `split` CTAs that share k; channel blocks run fastest, then token blocks
 *   CTA:     NWG consumer warpgroups, MT tiles of 64 channels each, and a warp or a warpgroup of
 *            which one thread copies
 *   stage:   128 inputs: X [T][128] bytes, 128 B swizzle; W [C/64] pairs of tiles; with GROUPED
 *            records of scales (and of zero points of int4)
 *   batch:   a tile's 128 inputs: four products of 32
 *
 * Sums: int8 and int4 with one group a channel stay int32 to the end. GROUPED, and all of E4M3,
 * whose tensor cores add with some 14 bits, leave the tensor cores with every stage and are added
 * in fp32, scaled by group where there are groups.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_SPLIT_K_W8A8_SPLIT_K_WGMMA_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_SPLIT_K_W8A8_SPLIT_K_WGMMA_CUH

#include "kernels/cuda/gemm/cluster_sum.cuh"
#include "kernels/cuda/gemm/glu.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_boxes.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_pieces.cuh"

/* ---- phase 4: sum over the cluster, round, store ---- */

/* Pitch of the [T][C] partial sums: two tokens apart must be 8 banks apart. */
template <int C>
struct w8a8_pitch {
    static constexpr int elems = C + 4;
};

static __device__ __forceinline__ uint32_t w8a8_bits(float v) { return __float_as_uint(v); }
static __device__ __forceinline__ uint32_t w8a8_bits(int v) { return (uint32_t)v; }

template <int T, int MT, int C, typename type>
static __device__ __forceinline__ void w8a8_park(const type (&total)[MT][T / 2], uint32_t *partial)
{
    int thread = (int)threadIdx.x % 128, lane = thread % 32;
    int channel0 = (int)threadIdx.x / 128 * MT * 64 + thread / 32 * 16 + lane / 4;

#pragma unroll
    for (int row = 0; row < MT; row++)
#pragma unroll
        for (int i = 0; i < T / 2; i++) {
            int token = i / 4 * 8 + lane % 4 * 2 + i % 2;

            partial[token * w8a8_pitch<C>::elems + channel0 + row * 64 + i / 2 % 2 * 8] =
                w8a8_bits(total[row][i]);
        }
}

/* Scales (and what zero points are beyond the codes' own) of the CTA's channels, in their order:
 * only where there is one group a channel. */
template <int KIND, int C, int THREADS>
static __device__ __forceinline__ void w8a8_channel_scales(const w8a8_args &a, const w8a8_place &p,
                                                           float *scales, int *zeros)
{
    for (int i = (int)threadIdx.x; i < C; i += THREADS) {
        int n_tile = w8a8_tile(a, p, i / 64), slot = 2 * (i % 64 / 16 * 8 + i % 8) + i % 16 / 8;
        int64_t at = (int64_t)n_tile * 64 + slot;

        scales[i] = 1;
        zeros[i] = 0;
        if (n_tile >= a.n_tiles || a.n_groups > 1) continue;
        scales[i] = w8a8_scale_at(a, at) * w8a8_code_scale(KIND);
        if (a.zeros) zeros[i] = a.zeros[at] - a.zero_none;
    }
}

/* What it takes to make Y of a CTA's sums. */
struct w8a8_finish {
    const float *scales, *x_scales; /* of its channels, where there is one group; of its tokens */
    const int *zeros;               /* of its channels, beyond the codes' own */
    uint32_t partial;               /* its sums in shared memory */
};

/* Four channels of one token, scaled and rounded; both are counted from the CTA's first. */
template <int KIND, bool GROUPED, typename type>
static __device__ __forceinline__ void w8a8_finish4(uint32_t (&out)[4], const w8a8_args &a,
                                                    const w8a8_place &p, const w8a8_finish &f,
                                                    const type (&v)[4], int token, int channel)
{
    int x_sum = KIND == W8A8_INT8 && a.zeros ? a.x_sums[p.token0 + token] : 0;
    float x_scale = a.has_x_groups ? 1.0f : f.x_scales[token];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float y = (float)v[i];

        if constexpr (!w8a8_is_float(KIND) && !GROUPED)
            y = (float)(v[i] - f.zeros[channel + i] * x_sum);
        if (!GROUPED) y *= f.scales[channel + i];
        out[i] = sw_round16(y * x_scale, a.y_is_bf16);
    }
}

/* And stored, from channel `first` of Y on. */
static __device__ __forceinline__ void w8a8_put4(const w8a8_args &a, const uint32_t (&out)[4],
                                                 int token, int first)
{
    uint16_t *to = a.y + (int64_t)token * a.y_stride + first;

    if (a.y_is_aligned && first + 4 <= a.n_out) {
        *(uint2 *)to = make_uint2(out[0] | out[1] << 16, out[2] | out[3] << 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i < a.n_out) to[i] = (uint16_t)out[i];
}

/* Sums of all that share k, in the order of their rank. */
template <int KIND, int T, int C, int THREADS, bool GROUPED>
static __device__ __forceinline__ void w8a8_store(const w8a8_args &a, const w8a8_place &p,
                                                  const w8a8_finish &f)
{
    constexpr int HELD = T >= 32 ? 2 : 1;
    using type = typename w8a8_sum<GROUPED ? W8A8_E4M3 : KIND>::type; /* of groups in fp32 */
    sw_cluster_pieces<HELD> pieces(p.rank, (uint32_t)a.split, THREADS,
                                   min(T, a.m - p.token0) * (C / 4));

    for (; pieces.more(); pieces.turn()) {
        type v[HELD][4];
        uint32_t at[HELD];

#pragma unroll
        for (int h = 0; h < HELD; h++) {
            int piece = pieces.piece(h);

            at[h] = f.partial + (uint32_t)(piece / (C / 4) * w8a8_pitch<C>::elems +
                                           piece % (C / 4) * 4) * 4;
        }
        sw_cluster_sum<1, 0>(v, at, p.rank, (uint32_t)a.split);
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            int piece = pieces.piece(h);

            sw_hold(v[h]); /* the last meeting wants them to have arrived, stored or not */
            if (pieces.is_piece(h)) {
                int token = piece / (C / 4), channel = piece % (C / 4) * 4;
                uint32_t out[4];

                w8a8_finish4<KIND, GROUPED>(out, a, p, f, v[h], token, channel);
                w8a8_put4(a, out, p.token0 + token, p.n_tile0 * 64 + channel);
            }
        }
    }
}

/* Whether a tile of gates and that of their ups can be those of a CTA. */
template <int KIND, int T, int C, int MODE>
__host__ __device__ constexpr bool w8a8_takes_gates(void)
{
    return C == 128 && T <= 64 && MODE == W8A8_PLAIN && !w8a8_is_int4(KIND);
}

/* Of gates and their ups, C / 2 channels further on: what a kernel of its own would make of both as
 * they would have been stored, in BF16. */
template <int KIND, int T, int C, int THREADS>
static __device__ __forceinline__ void w8a8_store_gated(const w8a8_args &a, const w8a8_place &p,
                                                        const w8a8_finish &f)
{
    using type = typename w8a8_sum<KIND>::type;
    sw_cluster_pieces<1> pieces(p.rank, (uint32_t)a.split, THREADS,
                                min(T, a.m - p.token0) * (C / 8));

    for (; pieces.more(); pieces.turn()) {
        int token = pieces.piece(0) / (C / 8), channel = pieces.piece(0) % (C / 8) * 4;
        uint32_t gate = f.partial + (uint32_t)(token * w8a8_pitch<C>::elems + channel) * 4;
        const uint32_t at[2] = {gate, gate + C / 2 * 4};
        uint32_t out[2][4];
        type v[2][4];

        sw_cluster_sum<1, 0>(v, at, p.rank, (uint32_t)a.split);
        sw_hold(v[0]);
        sw_hold(v[1]);
        if (!pieces.is_piece(0)) continue;
#pragma unroll
        for (int part = 0; part < 2; part++)
            w8a8_finish4<KIND, false>(out[part], a, p, f, v[part], token, channel + part * C / 2);
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[0][i] = sw_round16(sw_glu_of(a.glu_act, __uint_as_float(out[0][i] << 16),
                                             __uint_as_float(out[1][i] << 16), a.glu_limit), true);
        w8a8_put4(a, out[0], p.token0 + token, p.n_tile0 * 32 + channel);
    }
}

template <int KIND, int T, int C, int THREADS, int MODE>
static __device__ __forceinline__ void w8a8_store_all(const w8a8_args &a, const w8a8_place &p,
                                                      const w8a8_finish &f)
{
    if constexpr (w8a8_takes_gates<KIND, T, C, MODE>())
        if (a.gate_tiles) {
            w8a8_store_gated<KIND, T, C, THREADS>(a, p, f);
            return;
        }
    w8a8_store<KIND, T, C, THREADS, MODE != W8A8_PLAIN>(a, p, f);
}

/* Stages of the ring: what STAGES of 8-bit weights take holds more of 4 bits. */
template <int KIND, int T, int NT, int STAGES, int MODE>
__host__ __device__ constexpr int w8a8_n_stages(void)
{
    return w8a8_is_int4(KIND) ? STAGES * w8a8_stage_bytes<W8A8_INT8, T, NT, MODE>() /
                                    w8a8_stage_bytes<KIND, T, NT, MODE>()
                              : STAGES;
}

template <int KIND, int T, int MT, int NWG, int STAGES, int MODE>
constexpr int w8a8_shared_bytes(void)
{
    int ring = w8a8_n_stages<KIND, T, MT * NWG, STAGES, MODE>() *
               w8a8_stage_bytes<KIND, T, MT * NWG, MODE>();
    int partial = T * w8a8_pitch<64 * MT * NWG>::elems * 4;

    return (ring > partial ? ring : partial) + 1024;
}

/* Do tokens go through in pieces? Where a warpgroup has registers for no more, and scales of blocks
 * are added up so alone. */
template <int T, int PER_SM, int COPIERS> __host__ __device__ constexpr bool w8a8_in_pieces(void)
{
    return T == 256 || (T > 32 && PER_SM == 1 && COPIERS == 32);
}

/* Threads of the warp that copies, or of its warpgroup, with a warp that makes scales of blocks. */
template <int COPIERS, int MODE> __host__ __device__ constexpr int w8a8_copiers(void)
{
    return MODE == W8A8_X_BLOCKS && COPIERS == 32 ? 64 : COPIERS;
}

template <int KIND, int T, int MT, int NWG, int STAGES, int PER_SM, int COPIERS, int MODE>
static __device__ __forceinline__ void w8a8_consume(const w8a8_args &a, const w8a8_place &p,
                                                    uint32_t ring_at, uint32_t full, uint32_t empty,
                                                    uint32_t *partial, uint32_t zero_addr)
{
    constexpr bool grouped = w8a8_has_records(MODE);
    w8a8_ring<STAGES> ring = {ring_at, full, empty, w8a8_stage_bytes<KIND, T, MT * NWG, MODE>(),
                              0,       0};

    if constexpr (!w8a8_is_float(KIND) && MODE == W8A8_PLAIN) {
        int total[MT][T / 2];

        w8a8_clear(total, zero_addr);
        w8a8_multiply<KIND, T, MT, NWG>(total, ring, a, p);
        sw_named_sync(1, NWG * 128);
        w8a8_park<T, MT, 64 * MT * NWG>(total, partial);
    } else {
        float total[MT][T / 2];

        w8a8_clear(total, zero_addr);
        static_assert(w8a8_in_pieces<T, PER_SM, COPIERS>() || MODE != W8A8_X_BLOCKS, "no sums");
        if constexpr (w8a8_in_pieces<T, PER_SM, COPIERS>())
            w8a8_multiply_pieces<KIND, T, T == 64 ? 32 : 64, MODE>(total[0], ring, a, p);
        else
            w8a8_multiply_stages<KIND, T, MT, NWG, MT == 1 && (PER_SM == 1 || T < 64), grouped>(
                total, ring, a, p);
        sw_named_sync(1, NWG * 128);
        w8a8_park<T, MT, 64 * MT * NWG>(total, partial);
    }
}

template <int KIND, int T, int MT, int NWG, int ST, int PER_SM, int COPIERS, int MODE>
static __global__ void __launch_bounds__(NWG * 128 + w8a8_copiers<COPIERS, MODE>(), PER_SM)
    swk_w8a8_split_k_sm90(const __grid_constant__ w8a8_maps maps, const w8a8_args a)
{
    constexpr int NT = MT * NWG, C = 64 * NT, consumers = NWG * 128;
    constexpr int STAGES = w8a8_n_stages<KIND, T, NT, ST, MODE>();
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[STAGES], s_empty[STAGES];
    __shared__ float s_scales[C], s_x_scales[T];
    __shared__ int s_zeros[C];
    __shared__ uint32_t s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    uint32_t *partial = (uint32_t *)(s_bytes + (ring - sw_smem_addr(s_bytes)));
    w8a8_place p = w8a8_place_of<T, NT>(a);
    bool is_cluster = a.split > 1;
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    sw_grid_launch_next();
    if (p.token0 >= a.m) { /* a place holder: see n_ctas_of */
        sw_grid_wait_previous();
        return;
    }
    if (threadIdx.x == 0) s_zero = 0;
    if (threadIdx.x == consumers)
        w8a8_open<KIND, T, NT, MODE, STAGES, 4 * NWG * SW_ARRIVALS>(maps, a, p, ring, full,
                                                                       empty);
    __syncthreads();
    if (warp >= consumers / 32) {
        if constexpr (COPIERS == 128) sw_fewer_registers<w8a8_registers<NWG>::copier>();
        if (warp == consumers / 32)
            w8a8_fill<KIND, T, NT, MODE, STAGES>(maps, a, p, ring, full, empty);
        if constexpr (MODE == W8A8_X_BLOCKS)
            if (warp == consumers / 32 + 1)
                w8a8_scale_all<KIND, T, NT, MODE, STAGES>(a, p, ring, full, empty);
        __syncwarp();
        if (is_cluster) sw_cluster_sync();
        if (is_cluster) sw_cluster_part();
    } else {
        if constexpr (COPIERS == 128) sw_more_registers<w8a8_registers<NWG>::consumer>();
        /* While the first stage is on its way; the barrier before the sums are parked orders it. */
        if (MODE == W8A8_PLAIN) w8a8_channel_scales<KIND, C, consumers>(a, p, s_scales, s_zeros);
        sw_grid_wait_previous();
        if (!a.has_x_groups && (int)threadIdx.x < T)
            s_x_scales[threadIdx.x] = a.x_scales[min(p.token0 + (int)threadIdx.x, a.m - 1)];
        w8a8_consume<KIND, T, MT, NWG, STAGES, PER_SM, COPIERS, MODE>(
            a, p, ring, full, empty, partial, sw_smem_addr(&s_zero));
        if (is_cluster) sw_cluster_sync();
        else sw_named_sync(1, consumers);
        w8a8_store_all<KIND, T, C, consumers, MODE>(a, p, {s_scales, s_x_scales, s_zeros, ring});
        __syncwarp();
        if (is_cluster) sw_cluster_part();
    }
}

#endif
