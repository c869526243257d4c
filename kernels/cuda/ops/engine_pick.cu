/* engine_pick.cu - the next token out of a row of logits, on the device. See engine_ops.h.
 *
 * What kernels/engine/sample.c does, from its own logits: temperature, top-k, top-p (ties to the
 * lower id), one draw of SplitMix64. Weights are counted in 2^-32 of the largest, so that sums are
 * whole numbers and their order does not matter. The heaviest are found by radix selection on the
 * bits of the weights, eight at a time from the top.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ptx/ptx_cluster.cuh"

#define N_THREADS 1024
#define N_WARPS (N_THREADS / 32)

typedef unsigned long long u64;

struct pick_state {
    float best[N_WARPS];
    int best_id[N_WARPS];
    int is_bad;
    unsigned counts[256];
    u64 sums[256];
    u64 scan[N_WARPS];
    unsigned prefix;    /* bits of the cut that are known */
    u64 above_count, above_sum;
};

/* Of the candidates in order of weight, then id: those above `bits`, and the first `n_equal` that
 * are equal to it. */
struct cut_line {
    unsigned bits;
    u64 n_equal;
};

static __device__ float weight_of(float logit, float top, float temperature)
{
    return expf((logit - top) / temperature);
}

static __device__ u64 fixed_of(float weight) { return (u64)(weight * 4294967296.0f); }

/* The best of what a thread has seen, in the order of the ids. */
struct seen {
    float best;
    int id, bad;

    __device__ __forceinline__ void see(float v, int i)
    {
        if (isnan(v) || v == INFINITY) bad = 1;
        if (v > best) {
            best = v;
            id = i;
        }
    }
};

/* Of this thread's share of the logits: by fours, several on their way at a time, where rows of
 * them are aligned. */
static __device__ seen see_share(const float *logits, int vocab)
{
    seen mine = {-INFINITY, vocab, 0};

    if (vocab % 4) {
        for (int i = (int)threadIdx.x; i < vocab; i += N_THREADS) mine.see(logits[i], i);
        return mine;
    }
#pragma unroll 8
    for (int i = 4 * (int)threadIdx.x; i < vocab; i += 4 * N_THREADS) {
        const float4 v = *(const float4 *)(logits + i);

        mine.see(v.x, i);
        mine.see(v.y, i + 1);
        mine.see(v.z, i + 2);
        mine.see(v.w, i + 3);
    }
    return mine;
}

/* The largest logit and its lowest id, in all threads; is_bad when one is no number. */
static __device__ float find_top(pick_state &s, const float *logits, int vocab, int *id)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const seen mine = see_share(logits, vocab);
    float best = mine.best;
    int best_id = mine.id, bad = mine.bad;

    if (threadIdx.x == 0) s.is_bad = 0;
    __syncthreads();
    for (int step = 16; step; step /= 2) {
        const float v = __shfl_xor_sync(~0u, best, step);
        const int i = __shfl_xor_sync(~0u, best_id, step);

        if (v > best || (v == best && i < best_id)) {
            best = v;
            best_id = i;
        }
    }
    if (bad) s.is_bad = 1;
    if (lane == 0) {
        s.best[warp] = best;
        s.best_id[warp] = best_id;
    }
    __syncthreads();
    for (int w = 0; w < N_WARPS; w++)
        if (s.best[w] > best || (s.best[w] == best && s.best_id[w] < best_id)) {
            best = s.best[w];
            best_id = s.best_id[w];
        }
    __syncthreads();
    *id = best_id;
    return best;
}

/* Walk the bins from the heaviest: the first where what is above plus the bin reaches `want`
 * (candidates, or with by_sum their weight). One thread. */
static __device__ void choose_bin(pick_state &s, u64 want, bool by_sum, int shift)
{
    int bin = 255;

    for (; bin > 0; bin--) {
        const u64 have = by_sum ? s.above_sum + s.sums[bin] : s.above_count + s.counts[bin];

        if (have >= want) break;
        s.above_sum += s.sums[bin];
        s.above_count += s.counts[bin];
    }
    s.prefix |= (unsigned)bin << shift;
}

/* Where the heaviest reach `want`. Afterwards above_count and above_sum are of what lies above. */
static __device__ cut_line find_cut(pick_state &s, const float *logits, int vocab, float top,
                                    float temperature, u64 want, bool by_sum)
{
    cut_line cut;

    if (threadIdx.x == 0) {
        s.prefix = 0;
        s.above_count = s.above_sum = 0;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < 256) s.counts[threadIdx.x] = 0, s.sums[threadIdx.x] = 0;
        __syncthreads();
        const unsigned known = shift == 24 ? 0 : ~0u << (shift + 8), prefix = s.prefix;

        for (int i = (int)threadIdx.x; i < vocab; i += N_THREADS) {
            const float w = weight_of(logits[i], top, temperature);
            const unsigned bits = __float_as_uint(w);

            if ((bits & known) != prefix) continue;
            atomicAdd(&s.counts[bits >> shift & 255], 1u);
            atomicAdd(&s.sums[bits >> shift & 255], fixed_of(w));
        }
        __syncthreads();
        if (threadIdx.x == 0) choose_bin(s, want, by_sum, shift);
    }
    __syncthreads();
    cut.bits = s.prefix;
    const u64 each = fixed_of(__uint_as_float(cut.bits));
    const u64 missing = want - (by_sum ? s.above_sum : s.above_count);

    cut.n_equal = by_sum ? (each ? (missing + each - 1) / each : vocab) : missing;
    if (cut.n_equal < 1 && s.above_count == 0) cut.n_equal = 1;
    __syncthreads();
    return cut;
}

/* The sum of `mine` over the threads before this one; *total over all. */
static __device__ u64 sum_before(pick_state &s, u64 mine, u64 *total)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u64 sum = mine, before = 0;

    for (int step = 1; step < 32; step *= 2) {
        const u64 from = __shfl_up_sync(~0u, sum, step);

        if (lane >= step) sum += from;
    }
    __syncthreads();
    if (lane == 31) s.scan[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < N_WARPS; w++) {
        if (w < warp) before += s.scan[w];
        *total += s.scan[w];
    }
    return before + sum - mine;
}

static __device__ u64 next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The weight that candidate i brings when n_equal_before of its weight came before it. */
static __device__ u64 kept_weight(float weight, cut_line cut, u64 *n_equal_before)
{
    const unsigned bits = __float_as_uint(weight);

    if (bits < cut.bits) return 0;
    if (bits == cut.bits && (*n_equal_before)++ >= cut.n_equal) return 0;
    return fixed_of(weight);
}

/* A thread to a run of neighbouring ids; the one whose run holds the target finds it. */
static __device__ void draw(pick_state &s, const sw_pick_args &a, int64_t seq, const float *logits,
                            float top, cut_line cut, uint32_t *out)
{
    const int vocab = (int)a.vocab, run = (vocab + N_THREADS - 1) / N_THREADS;
    const int begin = min(vocab, (int)threadIdx.x * run), end = min(vocab, begin + run);
    u64 equal = 0, mine = 0, total, all_equal, at;

    for (int i = begin; i < end; i++)
        equal += __float_as_uint(weight_of(logits[i], top, a.temperature)) == cut.bits;
    const u64 equal_before = sum_before(s, equal, &all_equal);

    equal = equal_before;
    for (int i = begin; i < end; i++)
        mine += kept_weight(weight_of(logits[i], top, a.temperature), cut, &equal);
    at = sum_before(s, mine, &total);
    __syncthreads();
    if (threadIdx.x == 0) s.scan[0] = __umul64hi(next_random(a.state + seq) >> 11 << 11, total);
    __syncthreads();
    const u64 target = s.scan[0];

    if (target < at || target >= at + mine) return;
    equal = equal_before;
    for (int i = begin; i < end; i++) {
        at += kept_weight(weight_of(logits[i], top, a.temperature), cut, &equal);
        if (target < at) {
            *out = (uint32_t)i;
            return;
        }
    }
}

/* What a step of the sequence leaves; a thread. */
static __device__ void advance(const sw_pick_args &a, int64_t seq, uint32_t id, bool is_bad)
{
    if (is_bad) *a.not_finite = 1 + (int32_t)seq;
    a.ids[seq] = id;
    if (a.log && a.n_logged[seq] < a.log_capacity)
        a.log[seq * a.log_capacity + a.n_logged[seq]++] = id;
    if (a.first) a.first[seq]++;
}

/* grid (sequences) */
static __global__ void __launch_bounds__(N_THREADS) swk_pick(sw_pick_args a)
{
    __shared__ pick_state s;
    __shared__ uint32_t s_id;
    const int64_t seq = blockIdx.x;
    int top_id;

    sw_begin();
    const float *logits = a.logits + seq * a.vocab;
    const float top = find_top(s, logits, (int)a.vocab, &top_id);
    const bool is_bad = s.is_bad || top == -INFINITY;

    if (threadIdx.x == 0) s_id = is_bad ? 0 : (uint32_t)top_id;
    if (!is_bad && a.temperature > 0) {
        cut_line cut = {0, (u64)a.vocab};

        if (a.top_k > 0 && a.top_k < a.vocab)
            cut = find_cut(s, logits, (int)a.vocab, top, a.temperature, (u64)a.top_k, false);
        if (a.top_p < 1) {
            u64 mine = 0, total;

            if (cut.bits) { /* what top-k left: all above, and some equals */
                total = s.above_sum + cut.n_equal * fixed_of(__uint_as_float(cut.bits));
            } else {
                for (int i = (int)threadIdx.x; i < a.vocab; i += N_THREADS)
                    mine += fixed_of(weight_of(logits[i], top, a.temperature));
                (void)sum_before(s, mine, &total);
            }
            __syncthreads();
            cut = find_cut(s, logits, (int)a.vocab, top, a.temperature,
                           max((u64)1, (u64)ceil(a.top_p * (double)total)), true);
        }
        draw(s, a, seq, logits, top, cut, &s_id);
    }
    __syncthreads();
    if (threadIdx.x == 0) advance(a, seq, s_id, is_bad);
}

/* ---- the largest, by several CTAs ---- */

#define PARTS 8 /* CTAs of a cluster, each with a part of the row */

/* grid (sequences x PARTS): the first CTA of a cluster hears what the others have found. */
static __global__ void __launch_bounds__(N_THREADS) swk_pick_top(sw_pick_args a)
{
#if __CUDA_ARCH__ >= 900
    __shared__ pick_state s;
    __shared__ __align__(16) float s_found[4]; /* the best, its id, whether one is no number */
    const int64_t seq = blockIdx.x / PARTS;
    const int rank = (int)(blockIdx.x % PARTS), vocab = (int)a.vocab;
    const int each = (vocab / PARTS + 4) / 4 * 4;
    const int begin = min(vocab, rank * each), end = min(vocab, begin + each);
    int id;

    sw_begin();
    const float top = find_top(s, a.logits + seq * a.vocab + begin, end - begin, &id);

    if (threadIdx.x == 0) {
        s_found[0] = top;
        s_found[1] = __int_as_float(begin + id);
        s_found[2] = s.is_bad ? 1.0f : 0.0f;
        s_found[3] = 0;
    }
    sw_cluster_sync();
    if (rank == 0 && threadIdx.x == 0) {
        float best = -INFINITY, bad = 0;
        int best_id = 0;

        for (unsigned r = 0; r < PARTS; r++) { /* in the order of the ids */
            float found[4];

            sw_cluster_get16(found, sw_cluster_map(sw_smem_addr(s_found), r));
            bad += found[2];
            if (found[0] > best) {
                best = found[0];
                best_id = __float_as_int(found[1]);
            }
        }
        const bool is_bad = bad > 0 || best == -INFINITY;

        advance(a, seq, is_bad ? 0 : (uint32_t)best_id, is_bad);
    }
    sw_cluster_sync();
#endif
}

extern "C" sw_code sw_cuda_pick(const sw_pick_args *a, sw_launch how, sw_err *err)
{
    if (!(a->temperature > 0) && a->n_seqs > 0 && a->vocab % 4 == 0 && sw_has_clusters())
        return sw_start_clusters("sampling", swk_pick_top, PARTS, (unsigned)(a->n_seqs * PARTS),
                                 N_THREADS, 0, how, err, *a);
    return sw_start("sampling", swk_pick, (unsigned)a->n_seqs, N_THREADS, 0, how, err, *a);
}
