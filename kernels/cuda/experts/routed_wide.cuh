/* routed_wide.cuh - int8 weights of routed experts times inputs in int8, for hundreds of rows each
 * (sm_90a).
 *
 * As routed_bytes.cuh, with these differences:
 *
 *   unit:  256 rows x 128 channels: a tile of 64 for each of two warpgroups, with GLU gates for
 *          the first and their ups for the second, so that what is fetched once meets 256 rows. A
 *          block of fewer is multiplied as one of 128 or 64
 *   sums:  in the tensor cores from the first stage of a unit to the last
 *   gates: after the last stage each warpgroup gives the other half of its sums, through shared
 *          memory, 64 rows at a time, so that both have gates and ups of half of the rows
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_WIDE_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_WIDE_CUH

#include "kernels/cuda/experts/routed_bytes.cuh"

#define RT_WIDE_GIVEN 8192 /* bytes: 64 rows x 64 channels, of which a warpgroup gets half */
#define RT_WIDE_COPIER 40  /* registers */
#define RT_WIDE_CONSUMER 232

struct rt_wide_cut {
    static constexpr int KIND = W8A8_INT8, T = 256, STAGES = 4, TILES = 2;
    static constexpr bool GROUPED = false, BLOCKS = false, X_GROUPED = false, WHOLE = true;
    static constexpr bool X_SCALES_SORTED = false;
    static constexpr int whole_rounds = 0, box = 64;
    static constexpr int MT = 1, NWG = 2, C = 64 * MT * NWG, consumers = NWG * 128;
    using at = w8a8_stage<KIND, T, TILES, false>;
    static constexpr int pair_bytes = at::tile_bytes, record_room = SW_W8A8_RECORD_BYTES;
    static constexpr int x_pieces = 1, x_per_piece = 128, code_pieces = 1, CTAS = 1;
    static constexpr int w_at = at::w_at, s_at = at::s_at, stage_bytes = at::bytes;
    static constexpr int ring_bytes = STAGES * stage_bytes, threads = consumers + 128;
    static constexpr int shared_bytes = ring_bytes + NWG * RT_WIDE_GIVEN + 1024;
    static constexpr int arrivals = RT_COPY_WARPS;

    /* As how many rows a block of n_rows is multiplied. */
    static __device__ __forceinline__ int rows_for(int n_rows)
    {
        return n_rows > 128 ? T : n_rows > 64 ? 128 : 64;
    }
};

/* ---- the end of a unit ---- */

/* Of a block's rows, in shared memory, a warpgroup's own; and what unit they are of, which would
 * take registers from the products. */
struct rt_wide_rows {
    rt_rows<rt_wide_cut::T> of_pairs;
    __align__(16) float x_scale[rt_wide_cut::T];
    rt_note unit;
};

/* What a consumer has of shared memory beside the ring, which is its warpgroup's; given: sums from
 * the other one, and rows on their way to memory. */
struct rt_wide_own {
    uint32_t given, zero_addr;
    rt_wide_rows *rows;
};

/* Asks for what rows are multiplied by, which nobody of the warpgroup reads any more. */
template <bool GLU>
static __device__ __forceinline__ void rt_wide_ask(const rt_args &a, const rt_note &unit,
                                                   rt_wide_rows *rows)
{
    sw_named_sync(2 + rt_group(), 128);
    if (threadIdx.x % 128 == 0) rows->unit = unit;
#pragma unroll
    for (int i = (int)threadIdx.x % 128; i < rt_wide_cut::T; i += 128) {
        const int row = unit.row0 + min(i, unit.n_rows - 1);
        const bool is_sorted = a.lists.blocks;
        const int token = GLU && is_sorted ? a.lists.pair_of_row[row] / a.top_k : 0;

        sw_copy4(sw_smem_addr(rows->x_scale + i), a.x_scales + (GLU ? token : row));
        if (GLU) continue;
        sw_copy4(sw_smem_addr(rows->of_pairs.share + i),
                 (is_sorted ? a.lists.share_of_row : a.share) + row);
        if (is_sorted)
            sw_copy4(sw_smem_addr(rows->of_pairs.pair + i), a.lists.pair_of_row + row);
        else rows->of_pairs.pair[i] = row;
    }
    sw_copy_commit();
}

/* It is there, for all of the warpgroup. */
static __device__ __forceinline__ void rt_wide_wait(void)
{
    sw_copy_wait<0>();
    sw_named_sync(2 + rt_group(), 128);
}

/* Times the scales of channels and of rows. */
template <bool GLU, int N>
static __device__ __forceinline__ void rt_wide_scale(float (&total)[N], const rt_args &a,
                                                     const rt_note &unit,
                                                     const rt_wide_rows *rows)
{
    const int lane = (int)threadIdx.x % 32, slot = (int)threadIdx.x % 128 / 32 * 8 + lane / 4;
    const int tile = rt_tile<GLU, rt_wide_cut::TILES>(a, unit.j, rt_group());
    const int64_t at = (int64_t)tile * 64 + 2 * slot;
    const float w[2] = {rt_float(unit.scales, a, at), rt_float(unit.scales, a, at + 1)};

#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        const uint2 x = sw_shared8(sw_smem_addr(rows->x_scale + 8 * j + lane % 4 * 2));

#pragma unroll
        for (int i = 0; i < 4; i++)
            total[4 * j + i] *= w[i / 2] * __uint_as_float(i % 2 ? x.y : x.x);
    }
}

/* Of 64 rows' sums from `total` on: half of them for the other warpgroup. mine: what this one has
 * of its own 32 rows, theirs: what it gets of these. */
static __device__ __forceinline__ void rt_wide_part(float *mine, float *theirs, const float *total,
                                                    uint32_t given)
{
    const bool is_up = rt_group();
    const uint32_t at = given + threadIdx.x % 128 * 16;
    const uint32_t there = is_up ? at - RT_WIDE_GIVEN : at + RT_WIDE_GIVEN;

    sw_named_sync(1, rt_wide_cut::consumers); /* nobody reads what was given before */
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        float give[4];

#pragma unroll
        for (int e = 0; e < 4; e++) {
            give[e] = is_up ? total[i + e] : total[16 + i + e];
            mine[i + e] = is_up ? total[16 + i + e] : total[i + e];
        }
        sw_shared_put16(there + (uint32_t)i * 512, give);
    }
    sw_named_sync(1, rt_wide_cut::consumers);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        const uint4 v = sw_shared16(at + (uint32_t)i * 512);

        theirs[i] = __uint_as_float(v.x), theirs[i + 1] = __uint_as_float(v.y);
        theirs[i + 2] = __uint_as_float(v.z), theirs[i + 3] = __uint_as_float(v.w);
    }
}

template <int N>
static __device__ __forceinline__ void rt_wide_finish_glu(float (&total)[N], const rt_args &a,
                                                          const rt_note &unit, uint32_t given)
{
    const int channel0 = unit.j * 64;
    const bool is_up = rt_group();
    const float2 g = rt_bias(unit.bias, channel0, a.n_out);
    const float2 u = rt_bias(unit.bias, a.n_out + channel0, 2 * a.n_out);

#pragma unroll
    for (int t = 0; t < N; t += 32) {
        float mine[16], theirs[16];
        rt_note half = unit;

        rt_wide_part(mine, theirs, total + t, given);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float gate = is_up ? theirs[i] : mine[i], up = is_up ? mine[i] : theirs[i];

            mine[i] = rt_glu(a, fmaf(gate, unit.factor, i / 2 % 2 ? g.y : g.x),
                             fmaf(up, unit.factor, i / 2 % 2 ? u.y : u.x));
        }
        half.row0 += 2 * t + 32 * is_up, half.n_rows -= 2 * t + 32 * is_up;
        rt_store<16, false, rt_wide_cut::T>(mine, a, half, channel0, given, nullptr);
    }
}

template <int N>
static __device__ __forceinline__ void rt_wide_finish_down(float (&total)[N], const rt_args &a,
                                                           const rt_note &unit, uint32_t park,
                                                           const rt_rows<rt_wide_cut::T> *rows)
{
    const int channel0 = (unit.j * rt_wide_cut::TILES + rt_group()) * 64;
    const float2 b = rt_bias(unit.bias, channel0, a.n_out);

#pragma unroll
    for (int i = 0; i < N; i++) total[i] = fmaf(total[i], unit.factor, i / 2 % 2 ? b.y : b.x);
    if (channel0 < a.n_out) rt_store<N, true, rt_wide_cut::T>(total, a, unit, channel0, park, rows);
}

/* ---- the whole ---- */

/* n stages of a unit whose block is multiplied as T rows. */
template <int T>
static __device__ __forceinline__ void rt_wide_multiply(float (&total)[1][T / 2],
                                                        w8a8_ring<rt_wide_cut::STAGES> &ring,
                                                        uint32_t zero_addr, int n)
{
    w8a8_ring<rt_wide_cut::STAGES> at = ring;
    w8a8_args args = {};
    w8a8_place place = {};
    int sum[1][T / 2];

    at.stages += (uint32_t)(rt_wide_cut::T - T) * 128;
    place.n_stages = n;
    w8a8_clear(sum, zero_addr);
    w8a8_multiply<rt_wide_cut::KIND, T, 1, rt_wide_cut::NWG>(sum, at, args, place);
#pragma unroll
    for (int i = 0; i < T / 2; i++) total[0][i] = (float)sum[0][i];
    ring.s = at.s, ring.parity = at.parity;
}

/* Stages [k0, k0 + n) of a unit; u: which of those that are cut. */
template <int T, bool GLU>
static __device__ __forceinline__ void
rt_wide_unit(const rt_args &a, const rt_run &run, w8a8_ring<rt_wide_cut::STAGES> &ring,
             const rt_wide_own &own, int u, int k0, int n)
{
    float total[1][T / 2];

    rt_wide_multiply<T>(total, ring, own.zero_addr, n);
    rt_wide_wait();
    const rt_note unit = own.rows->unit;

    if (!rt_bring_together<rt_wide_cut>(total, a, run, u, k0, n, unit.n_rows)) return;
    rt_wide_scale<GLU>(total[0], a, unit, own.rows);
    if constexpr (GLU) rt_wide_finish_glu(total[0], a, unit, own.given);
    else rt_wide_finish_down(total[0], a, unit, own.given, &own.rows->of_pairs);
}

template <class P, bool GLU>
static __device__ __forceinline__ void
rt_unit_of_rows(const rt_args &a, const rt_run &run, w8a8_ring<P::STAGES> &ring,
                const rt_note &unit, const rt_wide_own &own, int u, int k0, int n)
{
    const int rows = rt_uniform(P::rows_for(unit.n_rows));

    rt_wide_ask<GLU>(a, unit, own.rows);
    if (rows == P::T) rt_wide_unit<P::T, GLU>(a, run, ring, own, u, k0, n);
    else if (rows == 128) rt_wide_unit<128, GLU>(a, run, ring, own, u, k0, n);
    else rt_wide_unit<64, GLU>(a, run, ring, own, u, k0, n);
}

template <bool GLU>
__global__ void __launch_bounds__(rt_wide_cut::threads, 1)
    swk_routed_wide_sm90(const __grid_constant__ CUtensorMap x, const rt_args a)
{
    using P = rt_wide_cut;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[P::STAGES], s_empty[P::STAGES];
    __shared__ rt_wide_rows s_rows[P::NWG];
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
    rt_run run = rt_run_of<P>(a);

    if (threadIdx.x == 0) s_run = run;
    __syncthreads();
    if (warp >= P::consumers / 32) {
        sw_fewer_registers<RT_WIDE_COPIER>();
        rt_byte_bring<P, GLU>(x, a, run, ring, full, empty, s_notes, warp);
    } else {
        w8a8_ring<P::STAGES> at = {ring, full, empty, P::stage_bytes, 0, 0};

        sw_more_registers<RT_WIDE_CONSUMER>();
        sw_grid_wait_previous();
        rt_byte_consume<P, GLU>(a, s_run, at, s_notes,
                                rt_wide_own{ring + P::ring_bytes +
                                                   (uint32_t)(rt_group() * RT_WIDE_GIVEN),
                                               sw_smem_addr(&s_zero), s_rows + rt_group()});
    }
}

#endif
