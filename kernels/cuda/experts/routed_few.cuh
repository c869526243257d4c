/* routed_few.cuh - 4-bit weights of routed experts times up to 64 rows each (sm_90a).
 *
 * Memory is the limit, so all multiprocessors must read all the time: the stages (128 inputs) of
 * all units (256 channels of a block of rows, routed_unit.cuh) stand in one line that is cut into
 * as many equal runs as there are CTAs ("stream-K", Osama et al. 2023, arXiv 2301.03598). The warp
 * that copies goes from unit to unit without a stop. Of the CTAs that share a unit which a cut goes
 * through, the first, whose last unit it is, adds the sums of the others, whose first it was, in
 * their order: so the order of every sum follows from the number of blocks and of CTAs alone.
 *
 *   CTA:       four tiles of 64 channels: two warpgroups that multiply two each, and two CTAs a
 *              multiprocessor; of more than 32 rows, for whose sums two tiles leave a thread no
 *              registers, four warpgroups of one each, and one CTA. Two warps that copy
 *   stage:     X [2 k-tiles][T][64], W [4 tiles][2 k-tiles], scales [4 tiles], multiplied as
 *              weight_only_wgmma.cuh does: of int4 up to 32 rows in the mode NW_GROUPS, which
 *              rounds no weight, else in NW_SCALED; of E2M1, whose product with a scale is exact,
 *              always in that
 *   partials:  one a CTA, of the unit that it ends and did not begin: [float4][thread]
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_FEW_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_FEW_CUH

#include "kernels/cuda/experts/routed_copy.cuh"
#include "kernels/cuda/experts/routed_store.cuh"
#include "kernels/cuda/gemm/weight_only/weight_only_wgmma.cuh"

#define RT_FEW_COPIER 32 /* registers of a thread where a warpgroup copies for four others */
#define RT_FEW_CONSUMER 112
/* Shared memory beside the ring: barriers, notes, rows of pairs; 1 KB of a CTA that CUDA keeps. */
#define RT_FEW_OTHER_BYTES (1024 + (P::T > 32 ? 2304 : 720))

template <class P> struct rt_few {
    static constexpr int park_rows = P::T < 16 ? 16 : P::T > 32 ? 32 : P::T;
    static constexpr int park_bytes = park_rows * 128; /* of a warpgroup */
    /* Ups on their way to the warpgroup of their gates; none where it is the same. */
    static constexpr int ups_at = P::ring_bytes + P::NWG * park_bytes;
    static constexpr int ups_bytes = P::MT > 1 ? 0 : P::T / 2 * 4 * 128;
    static constexpr int shared_bytes = ups_at + P::NWG / 2 * ups_bytes + 1024;
    static constexpr int partial_floats = P::T * P::C;
    static constexpr float unit = P::MODE == NW_GROUPS ? NW_WHOLE_UNIT : 1; /* of sums */
    /* Registers are a multiprocessor quarter's, of which four warpgroups and two warps would leave
     * those that multiply 96: a whole warpgroup copies then, and gives them of its own. */
    static constexpr bool moves = P::MT == 1;
    static constexpr int threads = P::consumers + (moves ? 128 : RT_COPY_WARPS * 32);
    static_assert(!moves || P::consumers * RT_FEW_CONSUMER + 128 * RT_FEW_COPIER <=
                                65536 / threads / 8 * 8 * threads, "the pool of a CTA");
    static_assert((shared_bytes + RT_FEW_OTHER_BYTES) * P::PER_SM <= 228 << 10,
                  "a multiprocessor has 228 KB");
};

/* The work of a CTA: n_whole units, of which those of all CTAs lie side by side, then a run of the
 * stages of the units from first_cut on; and whose of those a stage is. */
struct rt_run {
    int64_t n_stages;
    int n_ctas, cta, begin, end;
    int n_whole, first_cut;

    __device__ __forceinline__ int begin_of(int c) const { return (int)(n_stages * c / n_ctas); }
    __device__ __forceinline__ int owner(int stage) const
    {
        return (int)((((int64_t)stage + 1) * n_ctas - 1) / n_stages);
    }
    __device__ __forceinline__ int n_all(const rt_args &a) const
    {
        return n_whole * a.k_stages + end - begin;
    }
};

/* A cluster has one: its CTAs take units side by side of the same rows. */
template <class P> static __device__ __forceinline__ int rt_n_runs(void)
{
    return (int)gridDim.x / P::CTAS;
}

#define RT_SHARERS 4 /* CTAs to a unit that is cut, at most, where most units are not */

/* With P::WHOLE, where each CTA has P::whole_rounds units or more, only what is left when every CTA
 * has had as many units as any other is cut: CTAs that work side by side are then at the same
 * weights and rows, which the L2 has for all of them. In one line they are far apart, which is
 * right where weights are read once and rows are few, and balances better what is little. */
template <class P> static __device__ __forceinline__ rt_run rt_run_of(const rt_args &a)
{
    const int64_t n_units = (int64_t)rt_n_blocks(a) * a.n_units;
    const int n_runs = rt_n_runs<P>(), rounds = (int)(n_units / n_runs);
    const bool is_whole = P::WHOLE && rounds >= P::whole_rounds;
    rt_run r;

    r.n_whole = is_whole ? rounds : 0;
    r.first_cut = r.n_whole * n_runs;
    r.n_stages = (n_units - r.first_cut) * a.k_stages;
    r.n_ctas = (int)min((int64_t)n_runs, r.n_stages);
    if (is_whole) r.n_ctas = (int)min((int64_t)r.n_ctas, (n_units - r.first_cut) * RT_SHARERS);
    r.cta = (int)blockIdx.x / P::CTAS;
    r.begin = r.end = 0;
    if (r.cta < r.n_ctas) {
        r.begin = rt_uniform(r.begin_of(r.cta));
        r.end = rt_uniform(r.begin_of(r.cta + 1));
    }
    return r;
}

/* ---- phase 1: the warps that copy ---- */

/* Stages in their order, with the unit that they belong to. */
template <class P, bool GLU> struct rt_walk {
    int at, ks, n_whole;
    rt_unit unit;
    rt_source from;

    __device__ __forceinline__ void begin_cut(const rt_args &a, const rt_run &run)
    {
        at = run.first_cut + run.begin / a.k_stages, ks = run.begin % a.k_stages;
    }
    __device__ __forceinline__ void find(const rt_args &a)
    {
        unit = rt_unit_of<GLU>(a, at, P::CTAS > 1 ? rt_n_runs<P>() : 0);
        if constexpr (P::CTAS > 1) unit.j = unit.j * P::CTAS + (int)sw_cluster_rank();
        from = rt_source_of<GLU, P::TILES>(a, unit, ks);
    }
    __device__ __forceinline__ rt_walk(const rt_args &a, const rt_run &run)
    {
        n_whole = run.n_whole;
        at = run.cta, ks = 0;
        if (!P::WHOLE || n_whole == 0) begin_cut(a, run);
        find(a);
    }
    /* True where a unit begins. */
    __device__ __forceinline__ bool step(const rt_args &a, const rt_run &run, bool is_last)
    {
        if (++ks < a.k_stages || is_last) return false;
        ks = 0;
        if (!P::WHOLE || n_whole == 0) at++;
        else if (--n_whole) at += rt_n_runs<P>();
        else begin_cut(a, run);
        find(a);
        return true;
    }
};

/* Of downs these are under way while the kernel ahead still makes their inputs. */
template <class P, bool GLU>
static __device__ __forceinline__ void rt_few_codes(const rt_args &a, const rt_run &run,
                                                    uint32_t ring, uint32_t full, uint32_t empty)
{
    rt_walk<P, GLU> w(a, run);
    int s = 0, turn = 1;

#pragma unroll 1
    for (int left = run.n_all(a); left > 0; left--) {
        sw_mbar_sleep(empty + 8 * s, turn);
        rt_copy_codes<P>(a, w.from, w.ks, ring + s * P::stage_bytes, full + 8 * s);
        w.step(a, run, left == 1);
        if (++s == P::STAGES) s = 0, turn ^= 1;
    }
}

template <class P, bool GLU>
static __device__ __forceinline__ void rt_few_inputs(const CUtensorMap &x, const rt_args &a,
                                                     const rt_run &run, uint32_t ring,
                                                     uint32_t full, uint32_t empty, rt_note *notes)
{
    const uint64_t keep = sw_policy_evict_last();
    rt_walk<P, GLU> w(a, run);
    bool is_new = true;
    int s = 0, turn = 1;

    sw_grid_wait_previous();
#pragma unroll 1
    for (int left = run.n_all(a); left > 0; left--) {
        const uint32_t stage = ring + s * P::stage_bytes;

        sw_mbar_sleep(empty + 8 * s, turn);
        if (is_new) rt_write_note(notes + s, w.unit);
        rt_copy_scales<P>(a, w.from, w.ks, stage, full + 8 * s,
                          rt_x_bytes<P, P::box>(w.from.n_rows));
        rt_copy_x<P, P::box>(x, w.from, w.ks, stage, full + 8 * s, keep);
        is_new = w.step(a, run, left == 1);
        if (++s == P::STAGES) s = 0, turn ^= 1;
    }
}

/* ---- phase 3: units that a cut goes through ---- */

/* Of a thread: float4 i of partial p. */
template <class P> static __device__ __forceinline__ float4 *rt_partial(const rt_args &a, int p)
{
    return (float4 *)(a.partials + (int64_t)p * (P::T * P::C)) + threadIdx.x;
}

template <class P, int N>
static __device__ __forceinline__ void rt_publish(const float (&total)[P::MT][N], const rt_args &a,
                                                  int partial, int n_rows)
{
    float4 *to = rt_partial<P>(a, partial);

#pragma unroll
    for (int m = 0; m < P::MT; m++)
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            const float *v = &total[m][4 * j];

            if (8 * j < n_rows)
                to[(m * (N / 4) + j) * P::consumers] = make_float4(v[0], v[1], v[2], v[3]);
        }
}

/* total += those of CTAs c0 to c1, in their order: eight float4 are asked for at once, be they of
 * one or of several. */
template <class P, int N>
static __device__ __forceinline__ void rt_add_partials(float (&total)[P::MT][N], const rt_args &a,
                                                       int c0, int c1, int n_rows)
{
    constexpr int FLOAT4 = P::MT * (N / 4), PIECE = FLOAT4 < 8 ? FLOAT4 : 8, AT_ONCE = 8 / PIECE;
    static_assert(FLOAT4 % PIECE == 0, "pieces are whole");

    for (int c = c0; c <= c1; c += AT_ONCE)
#pragma unroll
        for (int first = 0; first < FLOAT4; first += PIECE) {
            float4 v[AT_ONCE][PIECE] = {};

#pragma unroll
            for (int i = 0; i < AT_ONCE * PIECE; i++) {
                const int at = first + i % PIECE;

                if (c + i / PIECE <= c1 && at % (N / 4) * 8 < n_rows)
                    v[i / PIECE][i % PIECE] =
                        __ldcg(rt_partial<P>(a, c + i / PIECE) + at * P::consumers);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE * PIECE; i++) {
                const float4 w = v[i / PIECE][i % PIECE];
                const int at = first + i % PIECE;
                float *to = total[at / (N / 4)] + at % (N / 4) * 4;

                to[0] += w.x, to[1] += w.y, to[2] += w.z, to[3] += w.w;
            }
        }
}

/* What this CTA has of a unit that another began, for that one. */
template <class P, int N>
static __device__ __forceinline__ void rt_hand_over(const float (&total)[P::MT][N],
                                                    const rt_args &a, int cta, int n_rows)
{
    rt_publish<P>(total, a, cta, n_rows);
    __threadfence();
    sw_named_sync(1, P::consumers);
    if (threadIdx.x == 0)
        asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(a.flags + cta) : "memory");
}

/* What CTAs c0 to c1 have of a unit that this one began. They have it before they wait for anybody,
 * and come to run whatever this one does. */
template <class P, int N>
static __device__ __forceinline__ void rt_take_over(float (&total)[P::MT][N], const rt_args &a,
                                                    int c0, int c1, int n_rows)
{
    for (int c = c0 + (int)threadIdx.x; c <= c1; c += P::consumers) {
        int is_there = 0;

        while (!is_there)
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                         : "=r"(is_there)
                         : "l"(a.flags + c)
                         : "memory");
        a.flags[c] = 0;
    }
    sw_named_sync(1, P::consumers);
    rt_add_partials<P>(total, a, c0, c1, n_rows);
}

/* Has the CTA that began a unit have all its sums, of which this one has those of stages
 * [k0, k0 + n); u: which unit of those that are cut. True in the CTA that began it. */
template <class P, int N>
static __device__ __forceinline__ bool rt_bring_together(float (&total)[P::MT][N], const rt_args &a,
                                                         const rt_run &run, int u, int k0, int n,
                                                         int n_rows)
{
    /* Where partials of this CTA's likes begin, those of one rank in their clusters. */
    const int like = P::CTAS > 1 ? (int)sw_cluster_rank() * rt_n_runs<P>() : 0;

    if (k0) {
        rt_hand_over<P>(total, a, like + run.cta, n_rows);
        return false;
    }
    if (n < a.k_stages)
        rt_take_over<P>(total, a, like + run.cta + 1,
                        like + run.owner((u + 1) * a.k_stages - 1), n_rows);
    return true;
}

/* ---- the whole ---- */

template <class P, bool GLU>
static __device__ __forceinline__ void rt_few_consume(const rt_args &a, const rt_run &run,
                                                      nw_ring<P> &ring, rt_parks parks,
                                                      const rt_note *notes, rt_rows<P::T> *rows,
                                                      uint32_t nobody)
{
    const int tile0 = rt_group() * P::MT;
    int left = run.n_whole;

#pragma unroll 1
    for (int stage = run.begin; left > 0 || stage < run.end;) {
        const int u = stage / a.k_stages, k0 = left > 0 ? 0 : stage % a.k_stages;
        const int n = left > 0 ? a.k_stages : min(a.k_stages - k0, run.end - stage);
        float total[P::MT][P::T / 2] = {};

        ring.wait();
        rt_note unit = notes[ring.s];
        const rt_row row = rt_row_of<GLU>(a, unit);

        if constexpr (P::MODE == NW_GROUPS) nw_multiply_groups<P>(total, a.nw, tile0, n, ring);
        else nw_multiply_through<P>(total, ring, tile0, n, nobody);
        unit.factor *= 1 / rt_few<P>::unit;
        if (left > 0) left--;
        else stage += n;
        if (rt_bring_together<P>(total, a, run, u, k0, n, unit.n_rows))
            rt_finish<GLU, P::MT, P::T / 2, P::T>(total, a, unit, parks, row, rows);
    }
}

template <class P, bool GLU>
__global__ void __launch_bounds__(rt_few<P>::threads, P::PER_SM)
    swk_routed_few_sm90(const __grid_constant__ CUtensorMap x, const rt_args a)
{
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_bars[2][P::STAGES], s_nobody;
    __shared__ rt_rows<P::T> s_rows[P::NWG];
    __shared__ rt_note s_notes[P::STAGES];
    uint32_t ring = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    uint32_t full = sw_smem_addr(s_bars), empty = full + 8 * P::STAGES;
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);

    rt_clear_ring<P>(a, ring, P::ring_bytes);
    if (threadIdx.x == 0) {
        sw_tensor_prefetch(&x);
        rt_make_barriers<P>(full, empty, RT_COPY_WARPS);
        sw_mbar_init(sw_smem_addr(&s_nobody), SW_ARRIVALS_MAX);
        sw_mbar_init_fence();
    }
    /* The lists come from the kernel ahead, or were there before it let this one start: of those
     * that wait for them, each lets the next one start after that. */
    if (GLU) sw_grid_wait_previous();
    sw_grid_launch_next();
    __syncthreads();

    /* Each asks for its run once it has its registers: what is kept across that is spilled. */
    if (warp >= P::consumers / 32) {
        if constexpr (rt_few<P>::moves) sw_fewer_registers<RT_FEW_COPIER>();
        const rt_run run = rt_run_of<P>(a);

        if (run.n_all(a) == 0) sw_grid_wait_previous();
        else if (warp == P::consumers / 32) rt_few_codes<P, GLU>(a, run, ring, full, empty);
        else if (warp == P::consumers / 32 + 1)
            rt_few_inputs<P, GLU>(x, a, run, ring, full, empty, s_notes);
    } else {
        if constexpr (rt_few<P>::moves) sw_more_registers<RT_FEW_CONSUMER>();
        const rt_run run = rt_run_of<P>(a);
        const uint32_t group = threadIdx.x / 128;
        const rt_parks parks = {ring + P::ring_bytes + group * rt_few<P>::park_bytes,
                                ring + rt_few<P>::ups_at + group / 2 * rt_few<P>::ups_bytes};
        /* From a lane, so that it is kept: the compiler makes it of a special register else. */
        full = __shfl_sync(~0u, full, 0);
        nw_ring<P> at = {ring, full, full + 8 * P::STAGES, 0, 0};

        sw_grid_wait_previous();
        rt_few_consume<P, GLU>(a, run, at, parks, s_notes, s_rows + group, sw_smem_addr(&s_nobody));
    }
}

#endif
