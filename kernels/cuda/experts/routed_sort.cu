/* routed_sort.cu - pairs of a token and one of its experts, sorted by expert on the device.
 *
 * A counting sort of one CTA: a warp counts the experts of a run of pairs, the counts become the
 * places where each warp's rows of each expert begin, and each warp goes through its run again.
 * The order of an expert's pairs is that of the tokens, whatever the warps do first.
 */
#include "kernels/cuda/engine_launch.cuh"
#include "kernels/cuda/experts/routed_kernels.h"

#define SORT_THREADS 1024
#define SORT_WARPS (SORT_THREADS / 32)
#define GATHER_THREADS 256

/* Of each expert: where its rows and its blocks begin; room for one more, which is the end. */
struct rt_starts {
    int row[RT_EXPERTS_MAX + 1], block[RT_EXPERTS_MAX + 1];
};

/* Pairs of a warp, in whole rounds of 32, and how many warps have any. */
static __device__ __forceinline__ int pairs_of_warp(int n_pairs)
{
    return ((n_pairs + SORT_WARPS - 1) / SORT_WARPS + 31) / 32 * 32;
}

static __device__ void count(const rt_sort_args &a, int *counts)
{
    const int per = pairs_of_warp(a.n_pairs), n_warps = (a.n_pairs + per - 1) / per;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

    for (int i = (int)threadIdx.x; i < n_warps * a.n_experts; i += SORT_THREADS) counts[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (int i = warp * per + lane; i < min(a.n_pairs, (warp + 1) * per); i += 32)
        atomicAdd(counts + warp * a.n_experts + a.chosen[i], 1);
    __syncthreads();
}

/* Counts of the warps become where they begin among an expert's rows; the expert's rows. */
static __device__ void add_up_warps(const rt_sort_args &a, int *counts, rt_starts *starts)
{
    const int per = pairs_of_warp(a.n_pairs), n_warps = (a.n_pairs + per - 1) / per;

    for (int e = (int)threadIdx.x; e < a.n_experts; e += SORT_THREADS) {
        int sum = 0;

        for (int w = 0; w < n_warps; w++) {
            int *at = counts + w * a.n_experts + e, n = *at;

            *at = sum;
            sum += n;
        }
        starts->row[e] = sum;
        starts->block[e] = (sum + a.rows - 1) / a.rows;
    }
    __syncthreads();
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

/* Pairs i of a warp, whose experts are given, into their rows. */
static __device__ __forceinline__ void place32(const rt_sort_args &a, int *counts,
                                               const rt_starts *starts, int *pair_of_row, int i,
                                               int expert, float share)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned alike = __match_any_sync(~0u, expert);
    const int rank = __popc(alike & ((1u << lane) - 1));
    int before = expert < 0 ? 0 : counts[expert];

    __syncwarp();
    if (expert >= 0 && rank == 0) counts[expert] = before + __popc(alike);
    if (expert >= 0) {
        const int row = starts->row[expert] + before + rank;

        pair_of_row[row] = i;
        if (blockIdx.x == 0) a.to.pair_of_row[row] = i, a.to.share_of_row[row] = share;
    }
    __syncwarp();
}

/* Each warp goes through its pairs again: those of one expert among 32 follow each other. What is
 * read of AHEAD rounds is asked for at once. */
static __device__ void place(const rt_sort_args &a, int *counts, const rt_starts *starts,
                             int *pair_of_row)
{
    constexpr int AHEAD = 8;
    const int per = pairs_of_warp(a.n_pairs), warp = (int)threadIdx.x / 32;
    const int end = min(a.n_pairs, (warp + 1) * per);

    for (int at = warp * per; at < end; at += 32 * AHEAD) {
        int expert[AHEAD];
        float share[AHEAD];

#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            const int i = at + 32 * r + (int)threadIdx.x % 32;

            expert[r] = i < end ? a.chosen[i] : -1;
            share[r] = i < end ? a.share[i] : 0;
        }
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
            if (at + 32 * r < end)
                place32(a, counts + warp * a.n_experts, starts, pair_of_row,
                        at + 32 * r + (int)threadIdx.x % 32, expert[r], share[r]);
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
                                      {up.bias, down.bias}, row0 + i * per,
                                      min(per, n_rows - i * per), first + band0,
                                      min(RT_BAND, n - band0)};
        }
    }
    if (threadIdx.x == 0) *a.to.n_blocks = starts->block[a.n_experts];
}

/* The rows that pair_of_row names, in pieces of 4 KB, by the warps of the grid in turn. */
static __device__ void gather(const rt_sort_args &a, const int *pair_of_row, int warp, int n_warps)
{
    constexpr int LOADS = 8; /* of 16 bytes, which a lane has under way */
    const int chunks = a.width / 16, pieces = (chunks + 32 * LOADS - 1) / (32 * LOADS);

    for (int i = warp; i < a.n_pairs * pieces; i += n_warps) {
        const int row = i / pieces, first = i % pieces * 32 * LOADS + (int)threadIdx.x % 32;
        const uint4 *from = (const uint4 *)(a.x + pair_of_row[row] / a.top_k * a.x_stride);
        uint4 *to = (uint4 *)(a.x_sorted + (int64_t)row * a.width), v[LOADS];

#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (first + 32 * k < chunks) v[k] = from[first + 32 * k];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (first + 32 * k < chunks) to[first + 32 * k] = v[k];
    }
}

/* With a.x each CTA sorts for itself and gathers its rows, and the first one writes the lists. */
static __global__ void __launch_bounds__(SORT_THREADS) swk_routed_sort(rt_sort_args a)
{
    extern __shared__ int s_ints[]; /* [warps that have pairs][n_experts], then pair_of_row */
    __shared__ rt_starts s_starts;
    const int per = pairs_of_warp(a.n_pairs), n_warps = (a.n_pairs + per - 1) / per;
    int *pair_of_row = a.x ? s_ints + n_warps * a.n_experts : a.to.pair_of_row;

    sw_begin();
    count(a, s_ints);
    add_up_warps(a, s_ints, &s_starts);
    add_up_experts(a, &s_starts);
    __syncthreads();
    place(a, s_ints, &s_starts, pair_of_row);
    if (blockIdx.x == 0) write_blocks(a, &s_starts);
    if (!a.x) return;
    __syncthreads();
    gather(a, pair_of_row, (int)(threadIdx.x / 32 * gridDim.x + blockIdx.x),
           (int)(gridDim.x * SORT_WARPS));
}

extern "C" sw_code sw_routed_sort(const rt_sort_args *a, int n_ctas, sw_launch how, sw_err *err)
{
    const int per = ((a->n_pairs + SORT_WARPS - 1) / SORT_WARPS + 31) / 32 * 32;
    const int n_warps = (a->n_pairs + per - 1) / per;
    const size_t shared = 4 * ((size_t)n_warps * a->n_experts + (a->x ? a->n_pairs : 0));
    sw_code rc = sw_gpu_check((int)cudaFuncSetAttribute(
                                  swk_routed_sort, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)shared),
                              "sorting of experts", err);

    if (rc != SW_OK) return rc;
    return sw_start("sorting of experts", swk_routed_sort, (unsigned)n_ctas, SORT_THREADS, shared,
                    how, err, *a);
}

static __global__ void __launch_bounds__(GATHER_THREADS) swk_routed_gather(rt_sort_args a)
{
    constexpr int warps = GATHER_THREADS / 32;

    sw_begin();
    gather(a, a.to.pair_of_row, (int)(blockIdx.x * warps + threadIdx.x / 32),
           (int)(gridDim.x * warps));
}

extern "C" sw_code sw_routed_gather(const rt_sort_args *a, int n_ctas, sw_launch how, sw_err *err)
{
    return sw_start("gathering for experts", swk_routed_gather, (unsigned)n_ctas, GATHER_THREADS, 0,
                    how, err, *a);
}

/* A thread to eight neighbours. */
static __global__ void __launch_bounds__(GATHER_THREADS)
    swk_routed_sum(sw_bf16_rows to, bool adds, const uint16_t *rows, int64_t n_tokens, int top_k,
                   int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)GATHER_THREADS + threadIdx.x, per_row = width / 8;
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
                    sw_blocks(n_tokens * (width / 8), GATHER_THREADS), GATHER_THREADS, 0, how, err,
                    to, adds, rows, n_tokens, top_k, width);
}
