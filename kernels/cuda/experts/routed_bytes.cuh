/* routed_bytes.cuh - weights of routed experts times inputs of bytes (sm_90a): E4M3 or int4 times
 * E4M3, int8 times int8.
 *
 * As routed_few.cuh, one CTA a multiprocessor, in products of bytes: what a lane multiplies by is
 * the tile as it lies, of int4 made E4M3 (w8a8_small_floats). Sums of E4M3 leave the tensor cores
 * with every stage, since those add them with some 14 bits (see w8a8_split_k_wgmma.cuh); sums of
 * int8 stay there until the unit ends. Without groups a sum is multiplied by the scales of its
 * channel and of its row at the end. With groups of W every stage is by its own, and of E4M3
 * weights X has groups of 128 inputs too; int4 is with inputs of one scale a row. Of blocks a tile
 * has one scale a stage, of whose record the first 16 bytes come. Codes of E4M3 lie in columns
 * (column_tiles.h; routed_columns.cuh), always those of blocks.
 *
 *   stage:  X [T][128], W [4 tiles][2 k-tiles], with groups scales [4 tiles] and of X [T]
 *
 * With 64 rows and more to a block units are whole where there are many (rt_run_of). Of those of
 * 128 a block that has fewer is multiplied as one of 96 or 64, whose inputs end where those of 128
 * would.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_BYTES_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_BYTES_CUH

#include "kernels/cuda/experts/routed_columns.cuh"
#include "kernels/cuda/experts/routed_few.cuh"

/* MODE: a w8a8_mode. COLUMNS: the order of codes. */
template <int KIND_, int T_, int STAGES_, int COPIERS_, int MODE_, bool COLUMNS_>
struct rt_byte_cut {
    static constexpr int KIND = KIND_, MODE = MODE_;
    static constexpr bool COLUMNS = COLUMNS_;
    static constexpr int T = T_, STAGES = STAGES_, COPIERS = COPIERS_, PER_SM = 1;
    static constexpr int TILES = RT_TILES;
    static constexpr bool GROUPED = MODE != W8A8_PLAIN, WHOLE = T >= 64, SHORTENS = T >= 128;
    /* See rt_run_of. With few units a CTA, 64 rows are as fast or faster in one line. */
    static constexpr int whole_rounds = SHORTENS ? 0 : 8;
    static constexpr bool BLOCKS = MODE == W8A8_X_BLOCKS, X_GROUPED = MODE >= W8A8_X_GROUPS;
    static_assert(COLUMNS ? BLOCKS || !GROUPED : !BLOCKS, "what has codes in columns");
    static constexpr bool X_SCALES_WHOLE = false; /* they come as rt_whole_scales */
    static constexpr int box = SHORTENS ? RT_MANY_BOX : RT_FEW_BOX;
    static constexpr int MT = 2, NWG = 2, C = 64 * MT * NWG, consumers = NWG * 128;
    using at = w8a8_stage<KIND, T, RT_TILES, GROUPED>;
    static constexpr int pair_bytes = at::tile_bytes, record_room = SW_W8A8_RECORD_BYTES;
    static constexpr int x_pieces = 1, x_per_piece = 128, code_pieces = 1, CTAS = 1;
    static constexpr int w_at = at::w_at, s_at = at::s_at, stage_bytes = at::bytes;
    static constexpr int ring_bytes = STAGES * stage_bytes, threads = consumers + COPIERS;
    /* At the barrier of a stage: the warps that copy and, of scales of X, each lane. */
    static constexpr int arrivals = RT_COPY_WARPS + (X_GROUPED ? 32 : 0);

    /* Where scales of X lie. */
    static __device__ __forceinline__ int x_slot(int row)
    {
        return BLOCKS ? w8a8_block_slot(row) : row;
    }
    /* As how many rows a block of n_rows is multiplied. */
    static __device__ __forceinline__ int rows_for(int n_rows)
    {
        return !SHORTENS || n_rows > 96 ? T : n_rows > 64 ? 96 : 64;
    }
};

/* ---- phase 1 ---- */

/* Of which row of X's scales a row of a block is: of one token all are of its only one. */
template <bool GLU> static __device__ __forceinline__ int rt_scale_row(const rt_args &a, int row)
{
    return GLU && !a.lists.blocks ? 0 : row;
}

/* The rows of X's scales that a lane brings: i * 32 + lane of the block. */
template <class P, bool GLU> struct rt_scale_rows {
    int row[(P::T + 31) / 32];

    __device__ __forceinline__ void find(const rt_args &a, const rt_unit &unit)
    {
#pragma unroll
        for (int i = 0; i < (P::T + 31) / 32; i++) {
            const int t = i * 32 + (int)threadIdx.x % 32;
            const int at = unit.row0 + min(t, unit.n_rows - 1);

            row[i] = rt_scale_row<GLU>(a, at);
        }
    }
    __device__ __forceinline__ void copy(const rt_args &a, int ks, uint32_t stage,
                                         uint32_t bar) const
    {
#pragma unroll
        for (int i = 0; i < (P::T + 31) / 32; i++) {
            const int t = i * 32 + (int)threadIdx.x % 32;

            if (t < P::T)
                sw_copy4(stage + P::at::xs_at + (uint32_t)P::x_slot(t) * 4,
                         a.x_scales + (int64_t)ks * a.x_rows + row[i]);
        }
        sw_copy_arrive(bar);
    }
};

/* Scales of X that lie side by side for all rows of a source, as whole 16 bytes. */
struct rt_whole_scales {
    const float *from;
    uint32_t n_bytes;
};

/* How many numbers of these lie before those of stage ks, of rows from `row` on. */
static __device__ __forceinline__ uint32_t rt_scale_shift(const rt_args &a, int ks, int row)
{
    return ((uint32_t)ks * (uint32_t)a.x_rows + (uint32_t)row) % 4;
}

static __device__ __forceinline__ rt_whole_scales rt_scales_of(const rt_args &a,
                                                               const rt_source &s, int ks)
{
    const uint32_t shift = rt_scale_shift(a, ks, s.x_row);
    const float *at = a.x_scales + (int64_t)ks * a.x_rows + s.x_row;

    return {at - shift, (shift + (uint32_t)s.n_rows + 3) / 4 * 16};
}

/* Of a pair of CTAs each brings every other box to both. */
template <class P>
static __device__ __forceinline__ void rt_copy_x_both(const CUtensorMap &x, const rt_source &s,
                                                      int ks, uint32_t stage, uint32_t bar,
                                                      uint64_t policy)
{
    const int first = rt_uniform((int)sw_cluster_rank()) * P::box;

#pragma unroll
    for (int t = 0; t < P::T; t += 2 * P::box)
        if (first + t < s.n_rows)
            sw_warp_load_both(stage + (uint32_t)(first + t) * 128, &x, ks * 128,
                              s.x_row + first + t, bar, policy);
}

template <class P, bool GLU>
static __device__ __forceinline__ void rt_byte_inputs(const CUtensorMap &x, const rt_args &a,
                                                      const rt_run &run, uint32_t ring,
                                                      uint32_t full, uint32_t empty,
                                                      rt_note *notes)
{
    const uint64_t keep = sw_policy_evict_last();
    rt_walk<P, GLU> w(a, run);
    rt_scale_rows<P, GLU> rows;
    bool is_new = true;
    int s = 0, turn = 1;

    sw_grid_wait_previous();
#pragma unroll 1
    for (int left = run.n_all(a); left > 0; left--) {
        const uint32_t stage = ring + s * P::stage_bytes, bar = full + 8 * s;
        const uint32_t x_at = stage + (uint32_t)(P::T - P::rows_for(w.from.n_rows)) * 128;

        if (P::X_GROUPED && !P::X_SCALES_WHOLE && is_new) rows.find(a, w.unit);
        sw_mbar_sleep(empty + 8 * s, turn);
        if (is_new) rt_write_note(notes + s, w.unit);
        const rt_whole_scales scales = rt_scales_of(a, w.from, w.ks);

        rt_copy_scales<P>(a, w.from, w.ks, stage, bar,
                          rt_x_bytes<P, P::box>(w.from.n_rows) +
                              (P::X_SCALES_WHOLE ? scales.n_bytes : 0));
        if constexpr (P::X_SCALES_WHOLE)
            sw_warp_load(stage + P::at::xs_at, scales.from, scales.n_bytes, bar, keep);
        if constexpr (P::CTAS > 1) rt_copy_x_both<P>(x, w.from, w.ks, x_at, bar, keep);
        else rt_copy_x<P, P::box>(x, w.from, w.ks, x_at, bar, keep);
        if constexpr (P::X_GROUPED && !P::X_SCALES_WHOLE) rows.copy(a, w.ks, stage, bar);
        is_new = w.step(a, run, left == 1);
        if (++s == P::STAGES) s = 0, turn ^= 1;
    }
}

/* What a warp of those that copy does. A CTA without work waits as well, or the kernel behind would
 * start before the one ahead of this has ended. */
template <class P, bool GLU>
static __device__ __forceinline__ void rt_byte_bring(const CUtensorMap &x, const rt_args &a,
                                                     const rt_run &run, uint32_t ring,
                                                     uint32_t full, uint32_t empty,
                                                     rt_note *notes, int warp)
{
    if (run.n_all(a) == 0) sw_grid_wait_previous();
    else if (warp == P::consumers / 32) rt_few_codes<P, GLU>(a, run, ring, full, empty);
    else if (warp == P::consumers / 32 + 1)
        rt_byte_inputs<P, GLU>(x, a, run, ring, full, empty, notes);
}

/* Makes what the kernels of bytes share before they part, by one thread: barriers and a zero that
 * the compiler does not see through. */
template <class P>
static __device__ __forceinline__ void rt_byte_prepare(const CUtensorMap &x, uint32_t full,
                                                       uint32_t empty, uint32_t *zero)
{
    if (threadIdx.x > 0) return;
    *zero = 0;
    sw_tensor_prefetch(&x);
    rt_make_barriers<P>(full, empty, P::arrivals);
    sw_mbar_init_fence();
}

/* ---- the end of a unit ---- */

/* What a row's codes are to be multiplied by, of thread threadIdx.x % 128; asked for early. */
template <class P, bool GLU>
static __device__ __forceinline__ float rt_x_scale_of(const rt_args &a, const rt_note &unit)
{
    const int row = unit.row0 + min((int)threadIdx.x % 128, unit.n_rows - 1);

    if (P::X_GROUPED) return 1;
    return a.x_scales[rt_scale_row<GLU>(a, row)];
}

/* The scales of a lane's two channels of both tiles, as they are stored; asked for early, as waits
 * for them were a seventh of the time of downs with 64 rows. */
template <class P, bool GLU> struct rt_channel_scales {
    uint32_t bits[2][2];

    __device__ __forceinline__ rt_channel_scales(const rt_args &a, const rt_note &unit)
    {
        const int slot = (int)threadIdx.x % 128 / 32 * 8 + (int)threadIdx.x % 32 / 4;

#pragma unroll
        for (int i = 0; i < (P::GROUPED ? 0 : 4); i++) {
            const int tile = rt_tile<GLU>(a, unit.j, rt_group() * 2 + i / 2);
            const int64_t at = (int64_t)tile * 64 + 2 * slot + i % 2;

            bits[i / 2][i % 2] = rt_scale_bits(unit.scales, a, at);
        }
    }
    __device__ __forceinline__ float of(const rt_args &a, int m, int i) const
    {
        return P::GROUPED ? 1 : rt_scale_value(bits[m][i], a) * w8a8_code_scale(P::KIND);
    }
};

/* Times the scales of channels, unless every stage had its own, and of rows, which go through
 * s_scales, a warpgroup's own: what stores the sums meets before the next unit's go there. */
template <class P, bool GLU, int N>
static __device__ __forceinline__ void
rt_scale_sums(float (&total)[2][N], const rt_args &a, const rt_channel_scales<P, GLU> &channels,
              float x_scale, float *s_scales)
{
    const int lane = (int)threadIdx.x % 32;
    float w[2][2];

    for (int i = 0; i < 4; i++) w[i / 2][i % 2] = channels.of(a, i / 2, i % 2);
    if ((int)threadIdx.x % 128 < 2 * N) s_scales[threadIdx.x % 128] = x_scale;
    sw_named_sync(2 + rt_group(), 128);
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        const uint2 x = sw_shared8(sw_smem_addr(s_scales + 8 * j + lane % 4 * 2));

#pragma unroll
        for (int i = 0; i < 8; i++)
            total[i / 4][4 * j + i % 4] *=
                w[i / 4][i % 4 / 2] * __uint_as_float(i % 2 ? x.y : x.x);
    }
}

/* ---- the whole ---- */

/* The sums of n_stages stages, to `sum`, which is zeros; those of int8 stay in the tensor cores. */
template <class P, int T, typename type>
static __device__ __forceinline__ void rt_byte_multiply(type (&sum)[2][T / 2],
                                                        w8a8_ring<P::STAGES> &ring,
                                                        const rt_args &a, int n_stages)
{
    constexpr int AT_ONCE = rt_rows_at_once<P, T>();
    w8a8_ring<P::STAGES> at = ring;
    w8a8_args args = {};
    w8a8_place place = {};

    at.stages += (uint32_t)(P::T - T) * 128;
    args.scale_bytes = a.nw.scale_bytes;
    args.scales_are_bf16 = a.nw.scales_are_bf16;
    args.record_bytes = P::record_room;
    args.has_x_groups = P::X_GROUPED;
    place.n_stages = n_stages;
    if constexpr (P::KIND == W8A8_INT8)
        w8a8_multiply<P::KIND, T, P::MT, P::NWG>(sum, at, args, place);
    else if constexpr (!P::COLUMNS)
        w8a8_multiply_stages<P::KIND, T, P::MT, P::NWG, 0, P::GROUPED>(sum, at, args, place);
    else if constexpr (AT_ONCE) rt_column_stages<P, T, AT_ONCE>(sum, at, a, n_stages);
    else rt_column_tiles<P, T>(sum, at, a, n_stages);
    ring.s = at.s, ring.parity = at.parity;
}

/* What a consumer has of shared memory beside the ring, which is its warpgroup's. */
template <class P> struct rt_byte_own {
    uint32_t park, zero_addr;
    rt_rows<P::T> *rows;
    float *scales;
};

/* Stages [k0, k0 + n) of a unit whose block is multiplied as T rows; u: which of those that are
 * cut. */
template <class P, int T, bool GLU>
static __device__ __forceinline__ void
rt_byte_unit(const rt_args &a, const rt_run &run, w8a8_ring<P::STAGES> &ring, const rt_note &unit,
             const rt_byte_own<P> &own, int u, int k0, int n)
{
    const rt_row row = rt_row_of<GLU>(a, unit);
    const float x_scale = rt_x_scale_of<P, GLU>(a, unit);
    const rt_channel_scales<P, GLU> channels(a, unit);
    typename w8a8_sum<P::KIND>::type sum[2][T / 2];
    float total[2][T / 2];

    w8a8_clear(sum, own.zero_addr);
    rt_byte_multiply<P, T>(sum, ring, a, n);
#pragma unroll
    for (int i = 0; i < T; i++) total[i % 2][i / 2] = (float)sum[i % 2][i / 2];
    if (!rt_bring_together<P>(total, a, run, u, k0, n, unit.n_rows)) return;
    if constexpr (!P::X_GROUPED) rt_scale_sums<P, GLU>(total, a, channels, x_scale, own.scales);
    rt_finish<GLU, P::MT, T / 2, P::T>(total, a, unit, {own.park}, row, own.rows);
}

/* The same of however many rows. */
template <class P, bool GLU>
static __device__ __forceinline__ void
rt_unit_of_rows(const rt_args &a, const rt_run &run, w8a8_ring<P::STAGES> &ring,
                const rt_note &unit, const rt_byte_own<P> &own, int u, int k0, int n)
{
    const int rows = rt_uniform(P::rows_for(unit.n_rows));

    if (!P::SHORTENS || rows == P::T)
        rt_byte_unit<P, P::T, GLU>(a, run, ring, unit, own, u, k0, n);
    else if (rows == 96) rt_byte_unit<P, 96, GLU>(a, run, ring, unit, own, u, k0, n);
    else rt_byte_unit<P, 64, GLU>(a, run, ring, unit, own, u, k0, n);
}

/* All units of a CTA, in a loop as rt_few_consume's: in one function for both ptxas takes other
 * registers. own: rt_byte_own, or of another cut, which has its own rt_unit_of_rows. */
template <class P, bool GLU, class ring_type, class own_type>
static __device__ __forceinline__ void rt_byte_consume(const rt_args &a, const rt_run &run,
                                                       ring_type &ring, const rt_note *notes,
                                                       const own_type &own)
{
    int left = run.n_whole;

#pragma unroll 1
    for (int stage = run.begin; left > 0 || stage < run.end;) {
        const int u = stage / a.k_stages, k0 = left > 0 ? 0 : stage % a.k_stages;
        const int n = left > 0 ? a.k_stages : min(a.k_stages - k0, run.end - stage);

        ring.wait();
        const rt_note unit = notes[ring.s];

        rt_unit_of_rows<P, GLU>(a, run, ring, unit, own, u, k0, n);
        if (left > 0) left--;
        else stage += n;
    }
}

template <class P, bool GLU>
__global__ void __launch_bounds__(P::threads, 1)
    swk_routed_bytes_sm90(const __grid_constant__ CUtensorMap x, const rt_args a)
{
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[P::STAGES], s_empty[P::STAGES];
    __shared__ rt_rows<P::T> s_rows[2];
    __shared__ rt_note s_notes[P::STAGES];
    __shared__ __align__(16) float s_scales[2][P::T];
    __shared__ uint32_t s_zero;
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    rt_clear_ring<P>(a, ring, P::ring_bytes);
    rt_byte_prepare<P>(x, full, empty, &s_zero);
    /* For lists, see routed_few.cuh. One token has none, and the quantizing of X that is ahead let
     * this kernel start only after it had waited itself: choices are there, so weights may come
     * while it makes the codes. */
    if (GLU && a.lists.blocks) sw_grid_wait_previous();
    sw_grid_launch_next();
    __syncthreads();
    rt_run run = rt_run_of<P>(a);

    if (warp >= P::consumers / 32) {
        if constexpr (P::COPIERS == 128) sw_fewer_registers<40>();
        rt_byte_bring<P, GLU>(x, a, run, ring, full, empty, s_notes, warp);
    } else {
        w8a8_ring<P::STAGES> at = {ring, full, empty, P::stage_bytes, 0, 0};

        if constexpr (P::COPIERS == 128) sw_more_registers<232>();
        sw_grid_wait_previous();
        rt_byte_consume<P, GLU>(a, run, at, s_notes,
                                rt_byte_own<P>{ring + P::ring_bytes +
                                                   (uint32_t)(rt_group() * rt_few<P>::park_bytes),
                                               sw_smem_addr(&s_zero), s_rows + rt_group(),
                                               s_scales[rt_group()]});
    }
}

#endif
