/* routed_tall.cuh - E4M3 weights of routed experts times inputs in E4M3, or int8 times int8, for
 * hundreds of rows each, with tokens as the rows of the products (sm_90a).
 *
 * As routed_bytes.cuh, with these differences:
 *
 *   unit:   256 rows x 128 channels: tiles of 64 rows in turn for two warpgroups, the second of
 *           which has one less where a block has no more than 192; or 192 rows, a tile for each of
 *           three. With GLU 64 gates and their ups, so that a thread has both
 *   stage:  X [rows][128], W [4 k-steps][2 tiles][2 KB], both operands in shared memory
 *   pairs:  two CTAs of a cluster take units side by side of the same rows, of which each brings
 *           every other box to both; a stage is replaced when both are done with it
 *   scales: of tokens and channels at the end; of blocks a thread has two of inputs a tile of 64
 *           rows, and a stage's product of those with the weight's, which all channels of a tile
 *           share, is a number for 32 sums. Those of a stage are sorted as rows are and come in one
 *           piece: 256 copies of 4 bytes held stages back
 *   int8:   sums stay in the tensor cores from the first stage of a unit to the last
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_TALL_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_TALL_CUH

#include "kernels/cuda/experts/routed_bytes.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_tokens_as_rows.cuh"

#define RT_TALL_ROWS 128   /* of a warpgroup, at most */
#define RT_TALL_PARK 2048  /* bytes: 16 rows x 64 channels on their way to memory, of a warp */

template <int KIND_, int ROWS, bool BLOCKS_> struct rt_tall_cut {
    static constexpr int KIND = KIND_, T = ROWS, STAGES = 4, TILES = 2;
    static constexpr bool BLOCKS = BLOCKS_, GROUPED = BLOCKS, X_GROUPED = BLOCKS, WHOLE = true;
    static constexpr bool X_SCALES_WHOLE = BLOCKS;
    static constexpr int CTAS = 2, whole_rounds = 0, box = 64;
    /* Two warpgroups take as long for three tiles as for four: by channel, blocks are full but for
     * the last one. In blocks that was slower where an expert has some more rows than one. */
    static constexpr int even_rows = T == 256 && !BLOCKS ? T : 0;
    static constexpr int NWG = T == 192 ? 3 : 2, C = 64 * TILES, consumers = NWG * 128;
    using at = w8a8_stage<KIND, T, TILES, GROUPED>;
    static constexpr int pair_bytes = at::tile_bytes, record_room = SW_W8A8_RECORD_BYTES;
    static constexpr int x_pieces = 1, x_per_piece = 128, code_pieces = 4; /* k-steps */
    static constexpr int w_at = at::w_at, s_at = at::s_at, stage_bytes = at::bytes;
    static constexpr int ring_bytes = STAGES * stage_bytes, threads = consumers + 128;
    static constexpr int shared_bytes = ring_bytes + consumers / 32 * RT_TALL_PARK + 1024;
    static constexpr int arrivals = RT_COPY_WARPS;
    /* Registers. */
    static constexpr int copier = NWG == 3 ? 32 : 40, consumer = NWG == 3 ? 160 : 232;
    static_assert(!BLOCKS || at::xs_at + T * 4 + 16 <= stage_bytes,
                  "scales of X from a multiple of 16 on");
    using ring = w8a8_cluster_ring<CTAS, STAGES>;

    /* Where inputs lie in a stage does not depend on how many there are. */
    static __device__ __forceinline__ int rows_for(int) { return T; }
};

/* The same with the sums of M tiles of rows a warpgroup. */
template <class P, int M> struct rt_tall_sums : P {
    static constexpr int MT = M;
};

/* ---- products ---- */

/* Of a unit, in shared memory, a warpgroup's own: biases of its channels, which pairs its rows are
 * and their shares; and what unit it is, which would take registers from the products. Where scales
 * do not change along k, those of its channels and of its rows too. */
struct rt_tall_rows {
    __align__(8) float w_scale[2 * 64];
    float bias[2 * 64];
    int pair[RT_TALL_ROWS];
    float share[RT_TALL_ROWS];
    float x_scale[RT_TALL_ROWS];
    rt_note unit;
};

/* What a consumer has of shared memory beside the ring: park is its warp's, rows its
 * warpgroup's. */
struct rt_tall_own {
    uint32_t park, zero_addr;
    rt_tall_rows *rows;
};

/* The row of a block that row i of this warpgroup is. */
template <class P> static __device__ __forceinline__ int rt_tall_row_of(int i)
{
    return (i / 64 * P::NWG + rt_group()) * 64 + i % 64;
}

/* Asks for what is the unit's, which nobody of the warpgroup reads any more. */
template <class P, bool GLU>
static __device__ __forceinline__ void rt_tall_ask(const rt_args &a, const rt_note &unit,
                                                   rt_tall_rows *rows)
{
    const int i = (int)threadIdx.x % 128, tile = rt_tile<GLU, P::TILES>(a, unit.j, i / 64);
    const int row = unit.row0 + min(rt_tall_row_of<P>(i), unit.n_rows - 1);
    const int64_t channel = (int64_t)tile * 64 + i % 64;
    const bool is_sorted = a.lists.blocks;

    sw_named_sync(2 + rt_group(), 128);
    if (i == 0) rows->unit = unit;
    if (unit.bias && channel < (GLU ? 2 : 1) * a.n_out)
        sw_copy4(sw_smem_addr(rows->bias + i), unit.bias + channel);
    else rows->bias[i] = 0;
    if (!GLU) {
        sw_copy4(sw_smem_addr(rows->share + i),
                 (is_sorted ? a.lists.share_of_row : a.share) + row);
        if (is_sorted) sw_copy4(sw_smem_addr(rows->pair + i), a.lists.pair_of_row + row);
        else rows->pair[i] = row;
    }
    if constexpr (!P::BLOCKS)
        sw_copy4(sw_smem_addr(rows->x_scale + i), a.x_scales + rt_scale_row<GLU>(a, row));
    sw_copy_commit();
}

/* It is there, for all of the warpgroup. */
static __device__ __forceinline__ void rt_tall_wait(void)
{
    sw_copy_wait<0>();
    sw_named_sync(2 + rt_group(), 128);
}

/* The first row of the lane in a tile of 64. */
static __device__ __forceinline__ int rt_tall_row(void)
{
    return (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
}

/* Of a thread, what does not change from stage to stage: where the rows of its warpgroup begin in a
 * stage, in a uniform register, as descriptors follow from it; where the scale of its first row
 * lies; how a scale of W becomes a float: its bits go up by so many, or it is an F16. */
struct rt_tall_place {
    uint32_t x, scale;
    int up;
    bool is_half;
};

template <class P>
static __device__ __forceinline__ rt_tall_place rt_tall_place_of(const rt_args &a)
{
    const uint32_t group = (uint32_t)rt_group();

    return {group * (64 * 128), P::at::xs_at + (group * 64 + (uint32_t)rt_tall_row()) * 4,
            a.nw.scale_bytes == 4 ? 0 : 16, a.nw.scale_bytes == 2 && !a.nw.scales_are_bf16};
}

/* The first of a record of scales, which are all alike, without a branch between two products. */
static __device__ __forceinline__ float rt_tall_w_scale(uint32_t record, const rt_tall_place &at)
{
    const uint32_t v = sw_shared4(record);
    const float half = __half2float(__ushort_as_half((unsigned short)v));

    return at.is_half ? half : __uint_as_float(v << at.up);
}

/* What sums of a stage are multiplied by: nothing yet, where scales do not change along k. */
template <class P, int M, bool BLOCKS = P::BLOCKS> struct rt_tall_factors {
    __device__ __forceinline__ void load(uint32_t, const rt_tall_place &, uint32_t) {}
    __device__ __forceinline__ void add(float (&total)[64], const float (&part)[64], int) const
    {
#pragma unroll
        for (int i = 0; i < 64; i++) total[i] += part[i];
    }
};

/* Of each tile of rows the lane's two, times those of the two tiles of channels. */
template <class P, int M> struct rt_tall_factors<P, M, true> {
    float of[M][2][2]; /* [tile of rows][row][tile of channels] */

    /* shift: see rt_scale_shift. */
    __device__ __forceinline__ void load(uint32_t stage, const rt_tall_place &place,
                                         uint32_t shift)
    {
        const uint32_t at = stage + place.scale + shift * 4;
        float x[2 * M], w[2];

#pragma unroll
        for (int i = 0; i < 2 * M; i++)
            x[i] = __uint_as_float(sw_shared4(at + (uint32_t)(i / 2 * 128 + i % 2 * 8) * 4));
#pragma unroll
        for (int t = 0; t < 2; t++)
            w[t] = rt_tall_w_scale(stage + P::s_at + (uint32_t)(t * P::record_room), place);
#pragma unroll
        for (int i = 0; i < 4 * M; i++)
            of[i / 4][i / 2 % 2][i % 2] = w[i % 2] * x[i / 2];
    }
    /* m: the tile of rows. */
    __device__ __forceinline__ void add(float (&total)[64], const float (&part)[64], int m) const
    {
#pragma unroll
        for (int i = 0; i < 64; i++)
            total[i] = fmaf(of[m][i / 2 % 2][i / 32], part[i], total[i]);
    }
};

/* The stage that `ring` stands at, whose first tile of rows is on its way in `part`, and with NEXT
 * that of the one after. Scales come beside products: read ahead of them they keep those back. */
template <class P, int M, bool NEXT>
static __device__ __forceinline__ void rt_tall_stage(float (&total)[M][64], float (&part)[64],
                                                     typename P::ring &ring,
                                                     const rt_tall_place &at, uint32_t shift)
{
    const uint32_t stage = ring.stage(), bar = ring.bar();
    rt_tall_factors<P, M> factors;

    ring.turn();
    factors.load(stage, at, shift);
#pragma unroll
    for (int m = 0; m < M; m++) {
        if (NEXT && m + 1 == M) ring.wait();
        sw_wgmma_wait<0>();
        sw_hold(part);
        factors.add(total[m], part, m);
        if (m + 1 < M)
            w8a8_issue_rows(part, stage + at.x + (uint32_t)((m + 1) * 128 * 128),
                            stage + P::w_at);
        else if (NEXT) w8a8_issue_rows(part, ring.stage() + at.x, ring.stage() + P::w_at);
    }
    /* Behind the next products, which else would wait for the arrival too. They have waited for the
     * additions, and those for scales; where there are none ptxas may put it ahead of both. */
    if (P::BLOCKS && !NEXT) __threadfence_block();
    __syncwarp();
    ring.release(bar);
}

/* What descriptors and the loop follow from, in uniform registers. */
template <class ring_type>
static __device__ __forceinline__ void rt_tall_settle(ring_type &ring, int &n)
{
    n = rt_uniform(n);
    ring.s = rt_uniform(ring.s);
    ring.parity = (uint32_t)rt_uniform((int)ring.parity);
}

/* n stages of a unit; shift: rt_scale_shift of the first. */
template <class P, int M>
static __device__ __forceinline__ void rt_tall_multiply(float (&total)[M][64],
                                                        typename P::ring &ring, const rt_args &a,
                                                        int n, uint32_t shift)
{
    const rt_tall_place at = rt_tall_place_of<P>(a);
    float part[64];

    rt_tall_settle(ring, n);
    ring.wait();
    w8a8_issue_rows(part, ring.stage() + at.x, ring.stage() + P::w_at);
#pragma unroll 1
    for (; n > 1; n--) {
        rt_tall_stage<P, M, true>(total, part, ring, at, shift);
        shift = (shift + (uint32_t)a.x_rows) % 4;
    }
    rt_tall_stage<P, M, false>(total, part, ring, at, shift);
}

/* The same of int8, to sums that are zeros. A stage goes back when its products are over and those
 * of the next one have been asked for. */
template <class P, int M>
static __device__ __forceinline__ void rt_tall_multiply(int (&sum)[M][64], typename P::ring &ring,
                                                        const rt_args &a, int n, uint32_t)
{
    const rt_tall_place at = rt_tall_place_of<P>(a);
    uint32_t before = 0;

    rt_tall_settle(ring, n);
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        ring.wait();
#pragma unroll
        for (int m = 0; m < M; m++)
            w8a8_issue_rows(sum[m], ring.stage() + at.x + (uint32_t)(m * 128 * 128),
                            ring.stage() + P::w_at, true);
        sw_wgmma_wait<M>();
        __syncwarp();
        if (i > 0) ring.release(before);
        before = ring.bar();
        ring.turn();
    }
    sw_wgmma_wait<0>();
    sw_hold(sum);
    __syncwarp();
    ring.release(before);
}

/* n stages in which this warpgroup has no rows. */
template <class ring_type>
static __device__ __forceinline__ void rt_tall_pass(ring_type &ring, int n)
{
#pragma unroll 1
    for (; n > 0; n--) {
        const uint32_t bar = ring.bar();

        ring.wait();
        ring.turn();
        __syncwarp();
        ring.release(bar);
    }
}

/* ---- the end of a unit ---- */

static __device__ __forceinline__ float rt_float(const uint8_t *scales, const rt_args &a, int64_t i)
{
    if (a.nw.scale_bytes == 4) return ((const float *)scales)[i];
    return rt_scale_value(((const uint16_t *)scales)[i], a);
}

/* Fetches the scales of the unit's channels, for all of the warpgroup. */
template <class P, bool GLU>
static __device__ __forceinline__ void rt_tall_fetch_scales(const rt_args &a, rt_tall_rows *rows)
{
    const int i = (int)threadIdx.x % 128, n = i % 64;
    const int64_t tile = rt_tile<GLU, P::TILES>(a, rows->unit.j, i / 64);
    const int slot = 2 * (8 * (n / 16) + n % 8) + n % 16 / 8; /* sw_tile_slot */

    rows->w_scale[i] = rt_float(rows->unit.scales, a, tile * 64 + slot);
    sw_named_sync(2 + rt_group(), 128);
}

/* Times the scales of rows and of channels; m: which tile of the warpgroup's. */
static __device__ __forceinline__ void rt_tall_scale(float (&total)[64], int m,
                                                     const rt_tall_rows *rows)
{
    const float x[2] = {rows->x_scale[m * 64 + rt_tall_row()],
                        rows->x_scale[m * 64 + rt_tall_row() + 8]};

#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        const int channel = i / 4 * 8 + (int)threadIdx.x % 4 * 2;
        const uint2 w = sw_shared8(sw_smem_addr(rows->w_scale + channel));

#pragma unroll
        for (int e = 0; e < 4; e++)
            total[i + e] *= __uint_as_float(e % 2 ? w.y : w.x) * x[e / 2];
    }
}

/* 16 rows x 64 channels of a warp, from row `first` of the block and channel0 on, to memory;
 * `pair`: of these rows, where they are pairs'. */
template <bool IS_PAIR>
static __device__ __forceinline__ void rt_tall_store(const float *v, const rt_args &a,
                                                     const rt_note &unit, int channel0, int first,
                                                     uint32_t park, const int *pair)
{
    const int lane = (int)threadIdx.x % 32;

    __syncwarp();
    w8a8_lay_out_rows<true>(v, park, 0, lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = i * 4 + lane / 8, channel = channel0 + lane % 8 * 8;

        if (first + row >= unit.n_rows || channel >= a.n_out) continue;
        const int64_t of = IS_PAIR ? pair[row] : unit.row0 + first + row;

        *(uint4 *)(a.y + of * a.n_out + channel) =
            sw_shared16(park + (uint32_t)(row * 128 + (lane % 8 ^ (row & 7)) * 16));
    }
}

/* Of a tile of rows, `first` its warp's first row in the block. */
static __device__ __forceinline__ void rt_tall_finish_glu(float (&total)[64], const rt_args &a,
                                                          const rt_note &unit, int first,
                                                          uint32_t park, const rt_tall_rows *rows)
{
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int channel = i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;

        total[i] = rt_glu(a, fmaf(total[i], unit.factor, rows->bias[channel]),
                          fmaf(total[32 + i], unit.factor, rows->bias[64 + channel]));
    }
    rt_tall_store<false>(total, a, unit, unit.j * 64, first, park, nullptr);
}

/* m: which tile of the warpgroup's. */
static __device__ __forceinline__ void rt_tall_finish_down(float (&total)[64], const rt_args &a,
                                                           const rt_note &unit, int m, int first,
                                                           uint32_t park, const rt_tall_rows *rows)
{
    const float share[2] = {rows->share[m * 64 + rt_tall_row()],
                            rows->share[m * 64 + rt_tall_row() + 8]};

#pragma unroll
    for (int t = 0; t < 2; t++) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int channel = t * 64 + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;

            total[32 * t + i] = fmaf(total[32 * t + i], unit.factor, rows->bias[channel]) *
                                share[i / 2 % 2];
        }
        rt_tall_store<true>(total + 32 * t, a, unit, (unit.j * 2 + t) * 64, first, park,
                            rows->pair + m * 64 + (int)threadIdx.x % 128 / 32 * 16);
    }
}

/* ---- the whole ---- */

/* Stages [k0, k0 + n) of a unit; u: which of those that are cut. */
template <class P, bool GLU, int M>
static __device__ __forceinline__ void
rt_tall_unit(const rt_args &a, const rt_run &run, typename P::ring &ring, const rt_note &note,
             const rt_tall_own &own, int u, int k0, int n)
{
    using sums = rt_tall_sums<P, M>;
    /* One token is the row of all its pairs. */
    const int x_row = GLU && !a.lists.blocks ? 0 : note.row0;
    typename w8a8_sum<P::KIND>::type sum[M][64];
    float total[M][64];

    rt_tall_ask<P, GLU>(a, note, own.rows);
    w8a8_clear(sum, own.zero_addr);
    if (rt_uniform(note.n_rows) <= rt_group() * 64) rt_tall_pass(ring, n);
    else rt_tall_multiply<P, M>(sum, ring, a, n, rt_scale_shift(a, k0, x_row));
    rt_tall_wait();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 64; i++) total[m][i] = (float)sum[m][i];
    if (!rt_bring_together<sums>(total, a, run, u, k0, n, P::T)) return;
    if constexpr (!P::BLOCKS) rt_tall_fetch_scales<P, GLU>(a, own.rows);
    const rt_note unit = own.rows->unit;

#pragma unroll
    for (int m = 0; m < M; m++) {
        if constexpr (!P::BLOCKS) rt_tall_scale(total[m], m, own.rows);
        const int first = rt_tall_row_of<P>(m * 64 + (int)threadIdx.x % 128 / 32 * 16);

        if constexpr (GLU) rt_tall_finish_glu(total[m], a, unit, first, own.park, own.rows);
        else rt_tall_finish_down(total[m], a, unit, m, first, own.park, own.rows);
    }
}

template <class P, bool GLU>
static __device__ __forceinline__ void
rt_unit_of_rows(const rt_args &a, const rt_run &run, typename P::ring &ring,
                const rt_note &unit, const rt_tall_own &own, int u, int k0, int n)
{
    if constexpr (P::NWG == 2)
        if (rt_uniform(unit.n_rows) > 128 + rt_group() * 64) {
            rt_tall_unit<P, GLU, 2>(a, run, ring, unit, own, u, k0, n);
            return;
        }
    rt_tall_unit<P, GLU, 1>(a, run, ring, unit, own, u, k0, n);
}

template <class P, bool GLU>
__global__ void __launch_bounds__(P::threads, 1)
    swk_routed_tall_sm90(const __grid_constant__ CUtensorMap x, const rt_args a)
{
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[P::STAGES], s_empty[P::STAGES];
    __shared__ rt_tall_rows s_rows[P::NWG];
    __shared__ rt_note s_notes[P::STAGES];
    __shared__ uint32_t s_zero;
    __shared__ rt_run s_run; /* for those whose registers the products want */
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    rt_clear_ring<P>(a, ring, P::ring_bytes);
    rt_byte_prepare<P>(x, full, empty, &s_zero);
    if (GLU && a.lists.blocks) sw_grid_wait_previous(); /* see routed_bytes.cuh */
    sw_grid_launch_next();
    __syncthreads();
    sw_cluster_sync(); /* the barriers of both are there, and zeros where the other one writes */
    rt_run run = rt_run_of<P>(a);

    if (threadIdx.x == 0) s_run = run;
    __syncthreads();
    if (warp >= P::consumers / 32) {
        sw_fewer_registers<P::copier>();
        rt_byte_bring<P, GLU>(x, a, run, ring, full, empty, s_notes, warp);
    } else {
        typename P::ring at = {{ring, full, empty, P::stage_bytes, 0, 0}};

        sw_more_registers<P::consumer>();
        sw_grid_wait_previous();
        rt_byte_consume<P, GLU>(a, s_run, at, s_notes,
                                rt_tall_own{ring + P::ring_bytes + (uint32_t)(warp * RT_TALL_PARK),
                                            sw_smem_addr(&s_zero), s_rows + rt_group()});
    }
    __syncwarp();
    sw_cluster_part();
}

#endif
