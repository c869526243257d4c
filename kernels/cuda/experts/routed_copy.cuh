/* routed_copy.cuh - phase 1 of the kernels of routed experts: bringing a stage.
 *
 * The weights of an expert are anywhere, so tiles and scales come as straight pieces, 4 KB and 128
 * bytes each; the inputs as boxes of the sorted rows. What asks for one stage after the other are
 * two warps, one for the codes and one for scales and inputs: with all ten or more requests of a
 * stage in one warp, some 250 instructions, the memory waited for it.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_COPY_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_COPY_CUH

#include "kernels/cuda/experts/routed_unit.cuh"
#include "kernels/cuda/gemm/weight_only/weight_only_copy.cuh"
#include "kernels/cuda/ptx/arrive.cuh"

/* Batches of four k-steps of any CUT of weight_only_copy.cuh, which has two where two tiles of so
 * many rows would leave no registers for more. */
template <class CUT> struct rt_long_batches : CUT {
    static constexpr int steps = 4, per_tile = 1, per_row = NW_STAGE_TILES;
    static constexpr int n_batches = CUT::MT * per_row, per_group = per_row / CUT::GPS;
};

/* A cut of weight_only_copy.cuh or w4a16_persistent.cuh, and what this file asks of one. */
template <class CUT> struct rt_cut : CUT {
    static constexpr int pair_bytes = NW_STAGE_TILES * NW_BLOCK_BYTES; /* of a tile in a stage */
    static constexpr int record_room = 128, TILES = RT_TILES;
    static constexpr bool FUSED = true; /* with scales: see SW_ROUTED_SCALE_END */
    static constexpr bool BLOCKS = false; /* scales of a record are alike, so 16 bytes of it do */
    /* See rt_run_of: rows that 264 CTAs, far apart, read again with every unit outgrow the L2 from
     * some 8 of 14 KB on. */
    static constexpr bool WHOLE = CUT::T >= 16;
    static constexpr int whole_rounds = 4;
    static constexpr int box = CUT::T > RT_MANY_BOX ? CUT::T : RT_FEW_BOX; /* rows of X at once */
    static constexpr int x_pieces = NW_STAGE_TILES, x_per_piece = 64; /* inputs of 128 bytes */
    static constexpr int code_pieces = 1; /* of a tile in a stage, each with its like of others */
    static constexpr int CTAS = 1;        /* of a cluster: see rt_run */
};

/* The same for E2M1 with scales of SCALE_K inputs, of a CUT of int4 in groups of 128, whose stages
 * need more room for scales. */
template <class CUT, int SCALE_K_> struct rt_e2m1_cut : rt_cut<CUT> {
    static constexpr int KIND = NW_E2M1, SCALE_K = SCALE_K_;
    static constexpr bool FUSED = false;
    static constexpr int record_room = NW_STAGE_TILES * 64 / SCALE_K * 64;
    static constexpr int stage_bytes = (CUT::s_at + CUT::NT * record_room + 1023) / 1024 * 1024;
    static constexpr int ring_bytes = CUT::STAGES * stage_bytes;
    static constexpr int shared_bytes = CUT::shared_bytes + ring_bytes -
                                        CUT::STAGES * CUT::stage_bytes;
    static_assert(CUT::steps == 4 && CUT::MODE == NW_SCALED, "batches of a tile");
};

#define RT_COPY_WARPS 2 /* both of which say what comes in a stage */

/* Makes the barriers of a ring, by one thread: so many arrivals say that a stage is full, all warps
 * that multiply that it is empty. */
template <class P>
static __device__ __forceinline__ void rt_make_barriers(uint32_t full, uint32_t empty, int arrivals)
{
    for (int i = 0; i < P::STAGES; i++) {
        sw_mbar_init(full + 8 * i, arrivals);
        sw_mbar_init(empty + 8 * i, P::CTAS * 4 * P::NWG * SW_ARRIVALS);
    }
}

static __device__ __forceinline__ const uint8_t *rt_uniform(const uint8_t *p)
{
    const uint64_t v = (uint64_t)p;

    return (const uint8_t *)((uint64_t)(uint32_t)rt_uniform((int)(v >> 32)) << 32 |
                             (uint32_t)rt_uniform((int)v));
}

/* Where the tiles of a unit lie: the first one's codes of the stage that comes next and its scales,
 * and how far the others are from it, in tiles. */
struct rt_source {
    const uint8_t *codes, *scales;
    int to[RT_TILES];
    uint64_t policy;
    int x_row, n_rows;
};

template <bool GLU, int TILES = RT_TILES>
static __device__ __forceinline__ rt_source rt_source_of(const rt_args &a, const rt_unit &unit,
                                                         int k0)
{
    const int j = rt_uniform(unit.j), first = rt_tile<GLU, TILES>(a, j, 0);
    rt_source s;

    s.codes = rt_uniform(unit.codes) +
              ((int64_t)first * a.k_tiles + k0 * NW_STAGE_TILES) * a.tile_bytes;
    s.scales = rt_uniform(unit.scales) + (int64_t)first * a.scale_bytes;
#pragma unroll
    for (int i = 0; i < TILES; i++) s.to[i] = rt_tile<GLU, TILES>(a, j, i) - first;
    s.policy = rt_uniform(unit.is_shared) ? sw_policy_evict_last() : sw_policy_evict_first();
    s.x_row = rt_uniform(unit.x_row);
    s.n_rows = rt_uniform(unit.n_rows);
    return s;
}

/* What those that multiply have to know of a unit, beside its first stage; seen with that. */
struct __align__(16) rt_note {
    const float *bias;
    const uint8_t *scales; /* of the expert */
    float factor;          /* of what is multiplied, in all its weights */
    int row0, n_rows, j;
};

static __device__ __forceinline__ void rt_write_note(rt_note *to, const rt_unit &unit)
{
    if (threadIdx.x % 32 == 0)
        *to = {unit.bias, unit.scales, unit.factor, unit.row0, unit.n_rows, unit.j};
    __syncwarp();
}

/* Codes of stage ks. The second half of a last stage without one keeps what was there: numbers,
 * whose inputs are zeros. */
template <class P>
static __device__ __forceinline__ void rt_copy_codes(const rt_args &a, rt_source &s, int ks,
                                                     uint32_t stage, uint32_t bar)
{
    constexpr int PIECE = P::pair_bytes / P::code_pieces;
    const uint32_t n_bytes = (uint32_t)(min(a.k_tiles - ks * NW_STAGE_TILES, NW_STAGE_TILES) *
                                        P::pair_bytes / NW_STAGE_TILES);

    sw_warp_expect(bar, P::TILES * n_bytes);
#pragma unroll
    for (int piece = 0; piece < P::code_pieces; piece++)
#pragma unroll
        for (int i = 0; i < P::TILES; i++)
            if (P::code_pieces == 1 || piece * PIECE < (int)n_bytes)
                sw_warp_load(stage + P::w_at + (piece * P::TILES + i) * PIECE,
                             s.codes + s.to[i] * (a.k_tiles * (P::pair_bytes / NW_STAGE_TILES)) +
                                 piece * PIECE,
                             P::code_pieces == 1 ? n_bytes : PIECE, bar, s.policy);
    s.codes += P::pair_bytes;
}

/* Scales of stage ks, beside which x_bytes of inputs come. */
template <class P>
static __device__ __forceinline__ void rt_copy_scales(const rt_args &a, const rt_source &s, int ks,
                                                      uint32_t stage, uint32_t bar,
                                                      uint32_t x_bytes)
{
    const int group = a.group_stages == 1 ? ks : a.group_stages ? ks / a.group_stages : 0;
    const int from = group * a.record_bytes;
    const uint32_t n_bytes =
        P::BLOCKS ? 16 : (uint32_t)min(a.record_bytes, a.scale_bytes - from);

    sw_warp_expect(bar, x_bytes + (P::GROUPED ? P::TILES * n_bytes : 0));
#pragma unroll
    for (int i = 0; P::GROUPED && i < P::TILES; i++)
        sw_warp_load(stage + P::s_at + i * P::record_room,
                     s.scales + from + s.to[i] * a.scale_bytes, n_bytes, bar, s.policy);
}

/* Zeros where a last stage of half the inputs may find what was never brought: what those bits are
 * as scales need not be numbers, and codes are multiplied, if only by zeros. By all threads, before
 * they meet. */
template <class P>
static __device__ __forceinline__ void rt_clear_ring(const rt_args &a, uint32_t ring, int n_bytes)
{
    if (a.k_tiles % 2 == 0) return;
    for (int i = (int)threadIdx.x * 16; i < n_bytes; i += (int)blockDim.x * 16)
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(ring + (uint32_t)i), "r"(0)
                     : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Rows that are not there keep what was in their place: their sums are not stored. */
template <class P, int BOX>
static __device__ __forceinline__ uint32_t rt_x_bytes(int n_rows)
{
    return (uint32_t)(min((n_rows + BOX - 1) / BOX * BOX, P::T) * P::x_pieces * 128);
}

template <class P, int BOX>
static __device__ __forceinline__ void rt_copy_x(const CUtensorMap &x, const rt_source &s, int ks,
                                                 uint32_t stage, uint32_t bar, uint64_t policy)
{
#pragma unroll
    for (int piece = 0; piece < P::x_pieces; piece++)
#pragma unroll
        for (int t = 0; t < P::T; t += BOX)
            if (t < s.n_rows)
                sw_warp_load_2d(stage + (piece * P::T + t) * 128, &x,
                                (ks * P::x_pieces + piece) * P::x_per_piece, s.x_row + t, bar,
                                policy);
}

#endif
