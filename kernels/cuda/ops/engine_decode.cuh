/* engine_decode.cuh - attention of one query a sequence over a part of its keys: which part and
 * heads a CTA has, and the sum of what all have of a group. See decode_cta.cuh. Whoever includes it
 * says how many threads work (N_THREADS) and how many heads at most share what is read
 * (N_HEADS_MAX). */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_DECODE_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_DECODE_CUH

#include <math.h>

#include "kernels/cuda/ops/engine_heads.cuh"

#define N_KEYS 64
#define DIM_MAX SW_DECODE_DIM_MAX
#define SPLITS_MAX 64
#define COUNTER_BYTES 256 /* keeps the partial sums aligned */
#define LOG2_E 1.4426950408889634f

/* Per CTA and head: the sums of values, then the maximum and the sum of weights. */
static __host__ __device__ int64_t partial_floats(const sw_attn_args *a)
{
    return (int64_t)N_HEADS_MAX * (a->v_head_dim + 2);
}

static __host__ __device__ int head_tiles(const sw_attn_args *a)
{
    return (a->n_heads / a->n_kv_heads + N_HEADS_MAX - 1) / N_HEADS_MAX;
}

/* CTAs that the keys of a group of heads are cut over, of about so many: a tile of keys each. */
static int splits_of(const sw_attn_args *a, int64_t n)
{
    const int64_t most = (a->capacity + N_KEYS - 1) / N_KEYS;

    if (n > SPLITS_MAX) n = SPLITS_MAX;
    if (n > most) n = most;
    return n < 1 ? 1 : (int)n;
}

static int64_t counter_bytes(const sw_attn_args *a)
{
    const int64_t n = a->n_seqs * a->n_kv_heads * head_tiles(a) * (int64_t)sizeof(unsigned);

    return (n + COUNTER_BYTES - 1) / COUNTER_BYTES * COUNTER_BYTES;
}

static int64_t scratch_bytes(const sw_attn_args *a, int splits)
{
    return counter_bytes(a) + a->n_seqs * a->n_kv_heads * head_tiles(a) * splits *
                                  partial_floats(a) * (int64_t)sizeof(float);
}

#define COMBINED 4 /* asked for at once */

/* Add up what the CTAs of a group left, in key order, and the sink. */
static __device__ void combine(const sw_attn_args &a, const float *partial, int n_parts, int head0,
                               int n_heads, sw_bf16 *out, int n_threads = N_THREADS)
{
    const int dim = a.v_head_dim;

    for (int i = (int)threadIdx.x; i < n_heads * dim; i += n_threads) {
        const int h = i / dim, d = i % dim;
        float top = a.sinks ? a.sinks[head0 + h] * LOG2_E : -INFINITY;
        float sum = a.sinks ? 1 : 0, value = 0;

        for (int p = 0; p < n_parts; p += COMBINED) {
            float tops[COMBINED], sums[COMBINED], values[COMBINED], most = top;

#pragma unroll
            for (int j = 0; j < COMBINED; j++) {
                const float *part =
                    partial + min(p + j, n_parts - 1) * partial_floats(&a) + h * (dim + 2);

                tops[j] = p + j < n_parts ? part[dim] : -INFINITY;
                sums[j] = part[dim + 1];
                values[j] = part[d];
            }
#pragma unroll
            for (int j = 0; j < COMBINED; j++) most = fmaxf(most, tops[j]);
            sum *= exp2f(top - most);
            value *= exp2f(top - most);
#pragma unroll
            for (int j = 0; j < COMBINED; j++) {
                sum += exp2f(tops[j] - most) * sums[j];
                value += exp2f(tops[j] - most) * values[j];
            }
            top = most;
        }
        out[h * dim + d] = sw_round16(value / sum * a.kv.v_scale);
    }
}

struct attn_job {
    int seq, kv_head, head0, n_heads; /* heads of this CTA */
    int64_t begin, end, there;        /* its keys, of so many */
    int n_parts;                      /* CTAs of the group that have keys */
    int split;                        /* which of these it is */
};

/* Of the CTA that has part `split` of the keys of group `item` of heads: groups of a sequence
 * first. */
static __device__ attn_job heads_of_job(const sw_attn_args &a, int split, int item)
{
    const int heads = a.n_heads / a.n_kv_heads, tiles = (heads + N_HEADS_MAX - 1) / N_HEADS_MAX;
    const int group = item % (a.n_kv_heads * tiles);
    attn_job j;

    j.split = split;
    j.seq = item / (a.n_kv_heads * tiles);
    j.kv_head = group / tiles;
    j.head0 = j.kv_head * heads + group % tiles * N_HEADS_MAX;
    j.n_heads = min(N_HEADS_MAX, (j.kv_head + 1) * heads - j.head0);
    return j;
}

/* Which keys it has, whole units of them. */
template <bool CHUNKED>
static __device__ void cut_keys(attn_job &j, const sw_attn_args &a, int splits, int unit)
{
    const int there = (a.first ? __ldcg(a.first + j.seq) : 0) + 1, window = (int)a.window;
    const int oldest = CHUNKED                     ? there - 1 - (there - 1) % a.chunk
                       : window && there > window ? there - window
                                                  : 0;
    const int each = ((there - oldest + splits - 1) / splits + unit - 1) / unit * unit;

    j.n_parts = (there - oldest + each - 1) / each;
    j.begin = oldest + j.split * each;
    j.end = min((int64_t)there, j.begin + each);
    j.there = there;
}

#endif
