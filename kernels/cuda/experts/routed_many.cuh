/* routed_many.cuh - 4-bit weights of routed experts times many rows each (sm_90a).
 *
 * The tensor cores are the limit. As w4a16_persistent.cuh: CTAs that stay, one a multiprocessor, go
 * through the units (routed_unit.cuh); weights are scaled in registers and products stay in the
 * tensor cores from the first stage of a unit to the last. A block has up to 128 or 96 rows; where
 * it has fewer it is multiplied as one of 96 or 80, or of 64.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_MANY_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_MANY_CUH

#include "kernels/cuda/experts/routed_copy.cuh"
#include "kernels/cuda/experts/routed_store.cuh"
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent.cuh"

#define RT_MANY_STAGES 4
#define RT_MANY_LEAST 64
#define RT_COPIER 40 /* registers of a thread that copies */

/* T rows of a block in a kernel of up to ROWS; of int4, or of E2M1 with scales of SCALE_K. */
template <int ROWS, int T>
using rt_many_cut = nwl_cut<NW_INT4, T, ROWS, 2, 2, RT_MANY_STAGES, 1, true, false>;
template <int SCALE_K, int ROWS> struct rt_many {
    template <int T> using of = rt_e2m1_cut<rt_many_cut<ROWS, T>, SCALE_K>;
};
template <int ROWS> struct rt_many<0, ROWS> {
    template <int T> using of = rt_cut<rt_many_cut<ROWS, T>>;
};
template <int SCALE_K, int ROWS, int T>
using rt_many_of = typename rt_many<SCALE_K, ROWS>::template of<T>;

/* Of a kernel of up to ROWS: the size between that and the least; rows of a box of inputs. */
template <int ROWS> constexpr int rt_many_middle = ROWS == 128 ? 96 : 80;
template <int ROWS> constexpr int rt_many_box = ROWS == 128 ? RT_MANY_BOX : RT_MANY_BOX / 2;

/* 80 tokens, which no other kernel has: as those of ptx.cuh. */
template <>
__device__ __forceinline__ void sw_wgmma<true, 40>(float (&d)[40], const uint32_t *a, uint64_t desc,
                                                   int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %45, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
                 "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, "
                 "{%40, %41, %42, %43}, %44, p, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate));
}

/* ---- phase 1: the warps that copy ---- */

template <class P>
static __device__ __forceinline__ void rt_many_codes_of(const rt_args &a, rt_source &from,
                                                        nwl_ahead *at, uint32_t ring,
                                                        uint32_t full, uint32_t empty)
{
#pragma unroll 1
    for (int ks = 0; ks < a.k_stages; ks++) {
        sw_mbar_sleep(empty + 8 * at->s, at->turn);
        rt_copy_codes<P>(a, from, ks, ring + at->s * P::stage_bytes, full + 8 * at->s);
        if (++at->s == P::STAGES) at->s = 0, at->turn ^= 1;
    }
}

/* What the next unit is, is asked for before the stages of this one are. */
template <int SCALE_K, int ROWS, bool GLU>
static __device__ __forceinline__ void rt_many_codes(const rt_args &a, int n_units, uint32_t ring,
                                                     uint32_t full, uint32_t empty)
{
    nwl_ahead at = {0, 1};
    rt_unit next = {};

    if ((int)blockIdx.x < n_units) next = rt_unit_of<GLU>(a, (int)blockIdx.x);
#pragma unroll 1
    for (int u = (int)blockIdx.x; u < n_units; u += (int)gridDim.x) {
        rt_source from = rt_source_of<GLU>(a, next, 0);

        if (u + (int)gridDim.x < n_units) next = rt_unit_of<GLU>(a, u + (int)gridDim.x);
        rt_many_codes_of<rt_many_of<SCALE_K, ROWS, ROWS>>(a, from, &at, ring, full, empty);
    }
}

template <class P, int BOX>
static __device__ __forceinline__ void rt_many_inputs_of(const CUtensorMap &x, const rt_args &a,
                                                         const rt_source &from, nwl_ahead *at,
                                                         uint32_t ring, uint32_t full,
                                                         uint32_t empty)
{
    const uint64_t keep = sw_policy_evict_last();

#pragma unroll 1
    for (int ks = 0; ks < a.k_stages; ks++) {
        uint32_t stage = ring + at->s * P::stage_bytes, bar = full + 8 * at->s;

        sw_mbar_sleep(empty + 8 * at->s, at->turn);
        rt_copy_scales<P>(a, from, ks, stage, bar, rt_x_bytes<P, BOX>(from.n_rows));
        rt_copy_x<P, BOX>(x, from, ks, stage, bar, keep);
        if (++at->s == P::STAGES) at->s = 0, at->turn ^= 1;
    }
}

template <int SCALE_K, int ROWS, bool GLU>
static __device__ __forceinline__ void rt_many_inputs(const CUtensorMap &x, const rt_args &a,
                                                      int n_units, uint32_t ring, uint32_t full,
                                                      uint32_t empty, rt_note *notes)
{
    constexpr int MIDDLE = rt_many_middle<ROWS>, LEAST = RT_MANY_LEAST, BOX = rt_many_box<ROWS>;
    nwl_ahead at = {0, 1};
    rt_unit next = {};

    if ((int)blockIdx.x < n_units) next = rt_unit_of<GLU>(a, (int)blockIdx.x);
#pragma unroll 1
    for (int u = (int)blockIdx.x; u < n_units; u += (int)gridDim.x) {
        const rt_source from = rt_source_of<GLU>(a, next, 0);

        sw_mbar_sleep(empty + 8 * at.s, at.turn);
        rt_write_note(notes + at.s, next);
        if (u + (int)gridDim.x < n_units) next = rt_unit_of<GLU>(a, u + (int)gridDim.x);
        if (from.n_rows > MIDDLE)
            rt_many_inputs_of<rt_many_of<SCALE_K, ROWS, ROWS>, BOX>(x, a, from, &at, ring, full,
                                                                    empty);
        else if (from.n_rows > LEAST)
            rt_many_inputs_of<rt_many_of<SCALE_K, ROWS, MIDDLE>, BOX>(x, a, from, &at, ring, full,
                                                                      empty);
        else
            rt_many_inputs_of<rt_many_of<SCALE_K, ROWS, LEAST>, BOX>(x, a, from, &at, ring, full,
                                                                     empty);
    }
}

/* ---- phases 2 to 4 ---- */

/* The ring as a consumer leaves it for the next unit, whose block may be cut otherwise. */
struct rt_place {
    uint32_t stages, full, empty, nobody, park;
    int s, parity;
};

template <class P, int ROWS, bool GLU>
static __device__ __forceinline__ void rt_many_unit(const rt_args &a, const rt_note *note,
                                                    rt_place *at, rt_rows<ROWS> *rows)
{
    nw_ring<P> ring = {at->stages, at->full, at->empty, at->s, at->parity};
    const int tile0 = (int)threadIdx.x / 128 * P::MT;
    const rt_note unit = *note;
    const rt_row row = rt_row_of<GLU>(a, unit);
    float total[2][P::T / 2];

    nw_clear<P>(total, 0);
    nw_multiply_through<P>(total, ring, tile0, a.k_stages, at->nobody);
    rt_finish<GLU, P::MT, P::T / 2, ROWS>(total, a, unit, {at->park}, row, rows);
    at->s = ring.s, at->parity = ring.parity;
}

template <int SCALE_K, int ROWS, bool GLU>
static __device__ __forceinline__ void rt_many_consume(const rt_args &a, int n_units, rt_place at,
                                                       const rt_note *notes, rt_rows<ROWS> *rows)
{
    constexpr int MIDDLE = rt_many_middle<ROWS>, LEAST = RT_MANY_LEAST;

#pragma unroll 1
    for (int u = (int)blockIdx.x; u < n_units; u += (int)gridDim.x) {
        const rt_note *note = notes + at.s;

        sw_mbar_sleep(at.full + 8 * at.s, at.parity);
        const int n_rows = rt_uniform(note->n_rows);

        if (n_rows > MIDDLE)
            rt_many_unit<rt_many_of<SCALE_K, ROWS, ROWS>, ROWS, GLU>(a, note, &at, rows);
        else if (n_rows > LEAST)
            rt_many_unit<rt_many_of<SCALE_K, ROWS, MIDDLE>, ROWS, GLU>(a, note, &at, rows);
        else rt_many_unit<rt_many_of<SCALE_K, ROWS, LEAST>, ROWS, GLU>(a, note, &at, rows);
    }
}

template <int SCALE_K, int ROWS, bool GLU>
__global__ void __launch_bounds__(rt_many_cut<ROWS, ROWS>::threads, 1)
    swk_routed_many_sm90(const __grid_constant__ CUtensorMap x, const rt_args a)
{
    using P = rt_many_of<SCALE_K, ROWS, ROWS>;
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_full[P::STAGES], s_empty[P::STAGES], s_nobody;
    __shared__ rt_rows<ROWS> s_rows[2];
    __shared__ rt_note s_notes[P::STAGES];
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_full), empty = sw_smem_addr(s_empty);
    uint32_t park = ring + P::STAGES * P::stage_bytes + threadIdx.x / 128 * 2 * P::park_bytes;
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    rt_clear_ring<P>(a, ring, P::STAGES * P::stage_bytes);
    if (threadIdx.x == 0) {
        rt_make_barriers<P>(full, empty, RT_COPY_WARPS);
        sw_mbar_init(sw_smem_addr(&s_nobody), SW_ARRIVALS_MAX);
        sw_mbar_init_fence();
    }
    sw_grid_wait_previous();
    sw_grid_launch_next();
    __syncthreads();
    int n_units = rt_n_blocks(a) * a.n_units;

    if (warp >= P::consumers / 32) {
        sw_fewer_registers<RT_COPIER>();
        if (warp == P::consumers / 32)
            rt_many_codes<SCALE_K, ROWS, GLU>(a, n_units, ring, full, empty);
        if (warp == P::consumers / 32 + 1)
            rt_many_inputs<SCALE_K, ROWS, GLU>(x, a, n_units, ring, full, empty, s_notes);
    } else {
        sw_more_registers<P::consumer>();
        rt_many_consume<SCALE_K, ROWS, GLU>(a, n_units,
                             {ring, full, empty, sw_smem_addr(&s_nobody), park, 0, 0},
                             s_notes, s_rows + threadIdx.x / 128);
    }
}

#endif
