/* routed_sort.cu - pairs of a token and one of its experts, sorted by expert on the device, with
 * their inputs; and the sum over the experts of a token.
 *
 * A counting sort in one launch, without a word between its CTAs: each counts all pairs by runs of
 * them and experts, which tells where the rows of a run of each expert begin, and puts its own runs
 * there. The order of an expert's pairs is that of the tokens, whatever runs first.
 */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/ops/engine_launch.cuh"

#define SORT_THREADS 1024
#define SORT_WARPS (SORT_THREADS / 32)
#define RUN_PAIRS 8             /* of a run, at least */
#define RUNS_MAX 128
#define COUNT_BYTES (128 << 10) /* of shared memory for what is counted */
#define PARTS 8                 /* of the runs, that threads add up beside each other */
#define PART_EXPERTS (SORT_THREADS / PARTS)
#define COUNT_LOADS 8           /* of choices, which a thread has under way */
#define ROW_LOADS 8             /* of 16 bytes, which a lane that copies rows has under way */
#define SUM_THREADS 256

/* Of each expert: where its rows and its blocks begin; room for one more, which is the end. Before:
 * rows of the parts of the runs, of some experts. */
struct rt_starts {
    int row[RT_EXPERTS_MAX + 1], block[RT_EXPERTS_MAX + 1];
    int part[PARTS][PART_EXPERTS];
};

/* counts[run][expert]. A thread has COUNT_LOADS choices under way: of 8192 pairs all. */
static __device__ void count(const rt_sort_args &a, int *counts)
{
    for (int i = (int)threadIdx.x; i < (a.n_runs * a.n_experts + 3) / 4; i += SORT_THREADS)
        ((int4 *)counts)[i] = {};
    __syncthreads();
    for (int first = (int)threadIdx.x; first < a.n_pairs; first += COUNT_LOADS * SORT_THREADS) {
        int expert[COUNT_LOADS];

#pragma unroll
        for (int k = 0; k < COUNT_LOADS; k++) {
            const int i = first + k * SORT_THREADS;

            expert[k] = i < a.n_pairs ? a.chosen[i] : -1;
        }
#pragma unroll
        for (int k = 0; k < COUNT_LOADS; k++) {
            const int run = (first + k * SORT_THREADS) / a.run_pairs;

            if (expert[k] >= 0) atomicAdd(counts + run * a.n_experts + expert[k], 1);
        }
    }
    __syncthreads();
}

/* Numbers at[0], at[step], ... of n: their sum or, with PLACES, where each begins instead of it,
 * from `sum` on. Eight are fetched at once. */
template <bool PLACES>
static __device__ __forceinline__ int add_up(int *at, int step, int n, int sum)
{
    for (int i = 0; i < n; i += 8) {
        int v[8];

#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = i + k < n ? at[(i + k) * step] : 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (PLACES && i + k < n) at[(i + k) * step] = sum;
            sum += v[k];
        }
    }
    return sum;
}

/* Counts of the runs become where they begin among an expert's rows; the expert's rows. */
static __device__ void add_up_runs(const rt_sort_args &a, int *counts, rt_starts *starts)
{
    const int per = (a.n_runs + PARTS - 1) / PARTS;
    const int part = (int)threadIdx.x / PART_EXPERTS, i = (int)threadIdx.x % PART_EXPERTS;
    const int first = min(part * per, a.n_runs), n = min(per, a.n_runs - first);

    for (int e0 = 0; e0 < a.n_experts; e0 += PART_EXPERTS) {
        int *at = counts + first * a.n_experts + e0 + i, before = 0;
        const bool is_there = e0 + i < a.n_experts;

        if (is_there) starts->part[part][i] = add_up<false>(at, a.n_experts, n, 0);
        __syncthreads();
        if (is_there) {
            for (int p = 0; p < part; p++) before += starts->part[p][i];
            const int sum = add_up<true>(at, a.n_experts, n, before);

            if (part == PARTS - 1) {
                starts->row[e0 + i] = sum;
                starts->block[e0 + i] = (sum + a.rows - 1) / a.rows;
            }
        }
        __syncthreads();
    }
}

/* Counts of the experts become where they begin; by the first warp. */
static __device__ void add_up_experts(const rt_sort_args &a, rt_starts *starts)
{
    const int lane = (int)threadIdx.x, per = (a.n_experts + 31) / 32;
    const int first = min(lane * per, a.n_experts), end = min(first + per, a.n_experts);
    int rows = 0, blocks = 0, rows_before, blocks_before;

    if (threadIdx.x >= 32) return;
    for (int e = first; e < end; e++) rows += starts->row[e], blocks += starts->block[e];
    rows_before = rows, blocks_before = blocks;
    for (int d = 1; d < 32; d *= 2) {
        int r = __shfl_up_sync(~0u, rows_before, d), b = __shfl_up_sync(~0u, blocks_before, d);

        if (lane >= d) rows_before += r, blocks_before += b;
    }
    rows_before -= rows, blocks_before -= blocks;
    for (int e = first; e < end; e++) {
        int r = starts->row[e], b = starts->block[e];

        starts->row[e] = rows_before, starts->block[e] = blocks_before;
        rows_before += r, blocks_before += b;
    }
    if (lane == 31)
        starts->row[a.n_experts] = rows_before, starts->block[a.n_experts] = blocks_before;
}

/* One warp: the pairs of a run into their rows, 32 at a time, of which those of one expert follow
 * each other. */
static __device__ void place(const rt_sort_args &a, int *counts, const rt_starts *starts, int run,
                             int *row_of)
{
    const int lane = (int)threadIdx.x % 32, begin = run * a.run_pairs;
    const int end = min(a.n_pairs, begin + a.run_pairs);

    for (int at = begin; at < end; at += 32) {
        const int i = at + lane, expert = i < end ? a.chosen[i] : -1;
        const unsigned alike = __match_any_sync(~0u, expert);
        const int rank = __popc(alike & ((1u << lane) - 1));
        const int before = expert < 0 ? 0 : counts[expert];

        __syncwarp();
        if (expert >= 0 && rank == 0) counts[expert] = before + __popc(alike);
        if (expert >= 0) {
            const int row = starts->row[expert] + before + rank;

            row_of[i - begin] = row;
            a.to.pair_of_row[row] = i;
            a.to.share_of_row[row] = a.share[i];
        }
        __syncwarp();
    }
}

/* Rows of the blocks of an expert that has n_rows in n_blocks. */
static __device__ __forceinline__ int block_rows(const rt_sort_args &a, int n_rows, int n_blocks)
{
    if (!a.even) return a.rows;
    return ((n_rows + n_blocks - 1) / n_blocks + a.even - 1) / a.even * a.even;
}

static __device__ void write_blocks(const rt_sort_args &a, const rt_starts *starts)
{
    for (int e = (int)threadIdx.x / 32; e < a.n_experts; e += SORT_WARPS) {
        const int row0 = starts->row[e], n_rows = starts->row[e + 1] - row0;
        const int first = starts->block[e], n = starts->block[e + 1] - first;
        if (n == 0) continue;
        const int per = block_rows(a, n_rows, n);
        const sw_expert up = a.ups[e], down = a.downs[e];

        for (int i = (int)threadIdx.x % 32; i < n; i += 32) {
            const int band0 = i / RT_BAND * RT_BAND;

            a.to.blocks[first + i] = {{up.codes, down.codes}, {up.scales, down.scales},
                                      {up.bias, down.bias},
                                      {up.global_scale, down.global_scale}, row0 + i * per,
                                      min(per, n_rows - i * per), first + band0,
                                      min(RT_BAND, n - band0)};
        }
    }
    if (threadIdx.x == 0) *a.to.n_blocks = starts->block[a.n_experts];
}

/* Inputs of the pairs of a run to their rows, a warp to a piece of 4 KB. */
static __device__ void gather(const rt_sort_args &a, int run, const int *row_of)
{
    const int chunks = a.width / 16, pieces = (chunks + 32 * ROW_LOADS - 1) / (32 * ROW_LOADS);
    const int begin = run * a.run_pairs, n = min(a.n_pairs - begin, a.run_pairs);

    for (int i = (int)threadIdx.x / 32; i < n * pieces; i += SORT_WARPS) {
        const int pair = i / pieces, first = i % pieces * 32 * ROW_LOADS + (int)threadIdx.x % 32;
        const uint4 *from = (const uint4 *)(a.x + (begin + pair) / a.top_k * a.x_stride);
        uint4 *to = (uint4 *)(a.x_sorted + (int64_t)row_of[pair] * a.width), v[ROW_LOADS];

#pragma unroll
        for (int k = 0; k < ROW_LOADS; k++)
            if (first + 32 * k < chunks) v[k] = from[first + 32 * k];
#pragma unroll
        for (int k = 0; k < ROW_LOADS; k++)
            if (first + 32 * k < chunks) to[first + 32 * k] = v[k];
    }
}

/* The same of their scales. */
static __device__ void gather_scales(const rt_sort_args &a, int run, const int *row_of)
{
    const int begin = run * a.run_pairs, n = min(a.n_pairs - begin, a.run_pairs);
    const int n_tokens = a.n_pairs / a.top_k;

    for (int i = (int)threadIdx.x; i < n * a.n_groups; i += SORT_THREADS) {
        const int group = i / n, pair = i % n;

        a.scales_sorted[(int64_t)group * a.n_pairs + row_of[pair]] =
            a.scales[(int64_t)group * n_tokens + (begin + pair) / a.top_k];
    }
}

/* grid (runs, or fewer): a CTA to each run. */
static __global__ void __launch_bounds__(SORT_THREADS) swk_routed_sort(rt_sort_args a)
{
    extern __shared__ __align__(16) int s_ints[]; /* [n_runs][n_experts], rows of a run's pairs */
    __shared__ rt_starts s_starts;
    int *row_of = s_ints + a.n_runs * a.n_experts;

    sw_let_next();
    if (!a.has_choices) sw_await_ahead();
    count(a, s_ints);
    add_up_runs(a, s_ints, &s_starts);
    add_up_experts(a, &s_starts);
    __syncthreads();
    if (blockIdx.x == 0) write_blocks(a, &s_starts);
    for (int run = (int)blockIdx.x; run < a.n_runs; run += (int)gridDim.x) {
        if (threadIdx.x < 32) place(a, s_ints + run * a.n_experts, &s_starts, run, row_of);
        __syncthreads();
        sw_await_ahead(); /* inputs */
        gather(a, run, row_of);
        if (a.scales_sorted) gather_scales(a, run, row_of);
        __syncthreads();
    }
}

extern "C" sw_code sw_routed_sort(const rt_sort_args *p, sw_launch how, sw_err *err)
{
    rt_sort_args a = *p;
    int runs = COUNT_BYTES / 4 / a.n_experts;
    size_t shared;
    sw_code rc;

    if (runs > RUNS_MAX) runs = RUNS_MAX;
    a.run_pairs = (a.n_pairs + runs - 1) / runs;
    if (a.run_pairs < RUN_PAIRS) a.run_pairs = RUN_PAIRS;
    a.n_runs = (a.n_pairs + a.run_pairs - 1) / a.run_pairs;
    shared = 4 * ((size_t)a.n_runs * a.n_experts + a.run_pairs);
    rc = sw_device_check((int)cudaFuncSetAttribute(swk_routed_sort,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                (int)shared),
                      "sorting of experts", err);
    if (rc != SW_OK) return rc;
    return sw_start("sorting of experts", swk_routed_sort, (unsigned)a.n_runs, SORT_THREADS, shared,
                    how, err, a);
}

/* A thread to eight neighbours. */
static __global__ void __launch_bounds__(SUM_THREADS)
    swk_routed_sum(sw_bf16_rows to, bool adds, const uint16_t *rows, int64_t n_tokens, int top_k,
                   int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)SUM_THREADS + threadIdx.x, per_row = width / 8;
    sw_eight sum = {};

    sw_begin();
    if (at >= n_tokens * per_row) return;
    const int64_t token = at / per_row, col = at % per_row * 8;
    sw_bf16 *dst = to.d + token * to.stride + col;

    for (int i = 0; i < top_k; i++) {
        const sw_eight e = sw_load8(rows + (token * top_k + i) * width + col);

#pragma unroll
        for (int k = 0; k < 8; k++) sum.v[k] += e.v[k];
    }
    if (adds) {
        const sw_eight before = sw_load8(dst);

#pragma unroll
        for (int k = 0; k < 8; k++) sum.v[k] += before.v[k];
    }
    sw_store8(dst, sum);
}

extern "C" sw_code sw_routed_sum(sw_bf16_rows to, bool adds, const uint16_t *rows, int64_t n_tokens,
                                 int top_k, int64_t width, sw_launch how, sw_err *err)
{
    return sw_start("sums of experts", swk_routed_sum,
                    sw_blocks(n_tokens * (width / 8), SUM_THREADS), SUM_THREADS, 0, how, err,
                    to, adds, rows, n_tokens, top_k, width);
}
