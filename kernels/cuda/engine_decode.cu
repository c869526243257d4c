/* engine_decode.cu - attention of one query a sequence over its cache. See engine_ops.h.
 *
 * The keys of a sequence are cut over CTAs, each of which serves up to eight heads that share them.
 * A CTA walks its keys by 64: products of eight lanes a key, weights relative to the running
 * maximum, then sums of values with a lane to two dims. Its partial sums go to scratch; the last
 * CTA of a group to arrive adds them up in the order of the keys, so that the bytes do not depend
 * on which that is.
 */
#include <math.h>

#include "kernels/cuda/engine_heads.cuh"

#define N_THREADS 256
#define N_KEYS 64
#define N_HEADS_MAX 8
#define DIM_MAX 256
#define SPLITS_MAX 64
#define COUNTER_BYTES 256 /* keeps the partial sums aligned */
#define LOG2_E 1.4426950408889634f

/* Per CTA and head: the sums of values, then the maximum and the sum of weights. */
static __host__ __device__ int64_t partial_floats(const sw_attn_args *a)
{
    return (int64_t)N_HEADS_MAX * (a->v_head_dim + 2);
}

static int head_tiles(const sw_attn_args *a)
{
    return (a->n_heads / a->n_kv_heads + N_HEADS_MAX - 1) / N_HEADS_MAX;
}

/* CTAs that keys are cut over at most: two rounds of the card, a tile of keys each. */
static int n_splits(const sw_attn_args *a)
{
    const int64_t groups = a->n_seqs * a->n_kv_heads * head_tiles(a);
    int64_t n = (2 * a->n_sms + groups - 1) / groups, most = (a->capacity + N_KEYS - 1) / N_KEYS;

    if (n > SPLITS_MAX) n = SPLITS_MAX;
    if (n > most) n = most;
    return n < 1 ? 1 : (int)n;
}

static int64_t counter_bytes(const sw_attn_args *a)
{
    const int64_t n = a->n_seqs * a->n_kv_heads * head_tiles(a) * (int64_t)sizeof(unsigned);

    return (n + COUNTER_BYTES - 1) / COUNTER_BYTES * COUNTER_BYTES;
}

extern "C" int64_t sw_cuda_decode_scratch_bytes(const sw_attn_args *a)
{
    return counter_bytes(a) + a->n_seqs * a->n_kv_heads * head_tiles(a) * n_splits(a) *
                                  partial_floats(a) * (int64_t)sizeof(float);
}

template <int H> struct shared_state {
    float q[H][DIM_MAX];
    float weight[N_KEYS][H]; /* scores, then weights */
    float top[H], sum[H], shrink[H];
    float values[2 * N_THREADS * H]; /* at the end: [key group, head, dim] */
    bool is_last;
};

/* Eight lanes to a key: its products with all heads. */
template <int H, typename T>
static __device__ void score_keys(shared_state<H> &s, const sw_attn_args &a, const T *k, int n_keys)
{
    const int part = threadIdx.x % 8;

    for (int key = threadIdx.x / 8; key < N_KEYS; key += N_THREADS / 8) {
        float dot[H] = {};

        for (int at = part * 8; key < n_keys && at < a.head_dim; at += 64) {
            const sw_eight e = sw_load8(k + key * a.k.stride + at);

#pragma unroll
            for (int h = 0; h < H; h++)
#pragma unroll
                for (int i = 0; i < 8; i++) dot[h] += e.v[i] * s.q[h][at + i];
        }
#pragma unroll
        for (int h = 0; h < H; h++) {
            float v = dot[h];

            for (int step = 4; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
            v *= a.scale;
            if (a.cap > 0) v = a.cap * tanhf(v / a.cap);
            if (part == 0) s.weight[key][h] = key < n_keys ? v * LOG2_E : -INFINITY;
        }
    }
}

/* A warp to a head. Every tile has a key, so the maximum is finite. */
template <int H> static __device__ void weigh_keys(shared_state<H> &s)
{
    const int h = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (h >= H) return;
    const float a = s.weight[lane][h], b = s.weight[lane + 32][h];
    const float top = fmaxf(s.top[h], sw_warp_max(fmaxf(a, b)));
    const float x = exp2f(a - top), y = exp2f(b - top), sum = sw_warp_sum(x + y);

    s.weight[lane][h] = x;
    s.weight[lane + 32][h] = y;
    if (lane) return;
    s.shrink[h] = exp2f(s.top[h] - top);
    s.sum[h] = s.sum[h] * s.shrink[h] + sum;
    s.top[h] = top;
}

/* A lane to two dims of every `n_groups`-th key. */
template <int H, typename T>
static __device__ void add_values(float (&sum)[H][2], const shared_state<H> &s,
                                  const sw_attn_args &a, const T *v, int n_keys, int pair,
                                  int group, int n_groups)
{
#pragma unroll
    for (int h = 0; h < H; h++) {
        sum[h][0] *= s.shrink[h];
        sum[h][1] *= s.shrink[h];
    }
#pragma unroll 4
    for (int key = group; key < n_keys; key += n_groups) {
        const float2 two = sw_load2(v + key * a.v.stride + 2 * pair);

#pragma unroll
        for (int h = 0; h < H; h++) {
            sum[h][0] += s.weight[key][h] * two.x;
            sum[h][1] += s.weight[key][h] * two.y;
        }
    }
}

/* Add up what the CTAs of a group left, in key order, and the sink. */
static __device__ void combine(const sw_attn_args &a, const float *partial, int n_parts, int head0,
                               int n_heads, sw_bf16 *out)
{
    const int dim = a.v_head_dim;

    for (int i = (int)threadIdx.x; i < n_heads * dim; i += N_THREADS) {
        const int h = i / dim, d = i % dim;
        const float sink = a.sinks ? a.sinks[head0 + h] * LOG2_E : -INFINITY;
        float top = sink, sum = 0, value = 0;

        for (int p = 0; p < n_parts; p++)
            top = fmaxf(top, partial[p * partial_floats(&a) + h * (dim + 2) + dim]);
        if (a.sinks) sum = exp2f(sink - top);
        for (int p = 0; p < n_parts; p++) {
            const float *part = partial + p * partial_floats(&a) + h * (dim + 2);
            const float weight = exp2f(part[dim] - top);

            value += weight * part[d];
            sum += weight * part[dim + 1];
        }
        out[h * dim + d] = sw_round16(value / sum * a.kv.v_scale);
    }
}

template <int H> struct job {
    int seq, kv_head, head0, n_heads; /* heads of this CTA */
    int64_t begin, end, there;        /* its keys, of so many */
    int n_parts;                      /* CTAs of the group that have keys */
};

template <int H> static __device__ job<H> job_of(const sw_attn_args &a, int splits)
{
    const int heads = a.n_heads / a.n_kv_heads, tiles = (heads + N_HEADS_MAX - 1) / N_HEADS_MAX;
    job<H> j;

    j.seq = (int)blockIdx.z;
    j.kv_head = (int)blockIdx.y / tiles;
    j.head0 = j.kv_head * heads + (int)blockIdx.y % tiles * N_HEADS_MAX;
    j.n_heads = min(N_HEADS_MAX, (j.kv_head + 1) * heads - j.head0);
    const int64_t there = (a.first ? a.first[j.seq] : 0) + 1;
    const int64_t oldest = a.window && there > a.window ? there - a.window : 0;
    const int64_t each = ((there - oldest + splits - 1) / splits + N_KEYS - 1) / N_KEYS * N_KEYS;

    j.n_parts = (int)((there - oldest + each - 1) / each);
    j.begin = oldest + blockIdx.x * each;
    j.end = min(there, j.begin + each);
    j.there = there;
    return j;
}

/* A warp to a head; norm and rotation as `heads` says. */
template <int H> static __device__ void load_queries(shared_state<H> &s, const sw_attn_args &a,
                                                     const sw_heads_args &heads, const job<H> &j)
{
    const int h = threadIdx.x / 32;
    const sw_bf16 *q = a.q.d + j.seq * a.q.stride + (int64_t)(j.head0 + h) * a.head_dim;

    if (h < j.n_heads) {
        sw_load_head(s.q[h], q, a.head_dim);
        if (heads.q.d) sw_prepare_head(s.q[h], heads, heads.q_norm, j.there - 1);
    } else if (h < H) {
        for (int i = (int)threadIdx.x % 32; i < a.head_dim; i += 32) s.q[h][i] = 0;
    }
    if (threadIdx.x < H) {
        s.top[threadIdx.x] = -INFINITY;
        s.sum[threadIdx.x] = 0;
    }
}

/* The new key and value into the cache, by the CTA that has the last keys. Tiles of heads that
 * share them write the same. */
template <int H>
static __device__ void remember(shared_state<H> &s, const sw_heads_args &heads, const job<H> &j)
{
    const int warp = threadIdx.x / 32;
    const int64_t at = (j.seq * heads.capacity + j.there - 1) * heads.n_kv_heads + j.kv_head;

    if (warp == N_THREADS / 32 - 1) { /* the last warps have the fewest heads of q */
        sw_load_head(s.values, heads.k.d + j.seq * heads.k.stride + j.kv_head * heads.head_dim,
                     heads.head_dim);
        sw_prepare_head(s.values, heads, heads.k_norm, j.there - 1);
        sw_cache_head(heads.k_cache, at, s.values, heads.head_dim, heads.kv.is_e4m3,
                      heads.kv.k_scale);
    } else if (warp == N_THREADS / 32 - 2) {
        sw_load_head(s.values + DIM_MAX,
                     heads.v.d + j.seq * heads.v.stride + j.kv_head * heads.v_head_dim,
                     heads.v_head_dim);
        sw_cache_head(heads.v_cache, at, s.values + DIM_MAX, heads.v_head_dim, heads.kv.is_e4m3,
                      heads.kv.v_scale);
    }
}

/* The sums of all key groups of the CTA into its place in scratch, or to `out` when no other has
 * keys of these heads. */
template <int H>
static __device__ void store_sums(float *partial, sw_bf16 *out, shared_state<H> &s,
                                  const sw_attn_args &a, const float (&sum)[H][2], const job<H> &j,
                                  int pair, int group, int n_groups)
{
    const int dim = a.v_head_dim, n_heads = j.n_heads;

    if (group < n_groups)
#pragma unroll
        for (int h = 0; h < H; h++) {
            s.values[(group * H + h) * dim + 2 * pair] = sum[h][0];
            s.values[(group * H + h) * dim + 2 * pair + 1] = sum[h][1];
        }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_heads * dim; i += N_THREADS) {
        float value = 0;

        for (int g = 0; g < n_groups; g++) value += s.values[(g * H + i / dim) * dim + i % dim];
        if (j.n_parts > 1) {
            partial[i / dim * (dim + 2) + i % dim] = value;
            continue;
        }
        const int h = i / dim;
        float total = s.sum[h], shrink = 1;

        if (a.sinks) {
            const float sink = a.sinks[j.head0 + h] * LOG2_E, top = fmaxf(sink, s.top[h]);

            shrink = exp2f(s.top[h] - top);
            total = total * shrink + exp2f(sink - top);
        }
        out[i] = sw_round16(value * shrink / total * a.kv.v_scale);
    }
    if (j.n_parts == 1) return;
    if ((int)threadIdx.x < n_heads) {
        partial[threadIdx.x * (dim + 2) + dim] = s.top[threadIdx.x];
        partial[threadIdx.x * (dim + 2) + dim + 1] = s.sum[threadIdx.x];
    }
}

/* grid (splits, kv heads x tiles of heads, sequences) */
template <int H, typename T>
static __global__ void __launch_bounds__(N_THREADS)
    swk_attention_decode(sw_attn_args a, sw_heads_args heads, int splits, int64_t counters)
{
    extern __shared__ __align__(16) char s_bytes[];
    shared_state<H> &s = *(shared_state<H> *)s_bytes;

    sw_begin();
    const job<H> j = job_of<H>(a, splits);
    const int pairs = a.v_head_dim / 2, n_groups = N_THREADS / pairs;
    const int pair = threadIdx.x % pairs, group = threadIdx.x / pairs;
    const int64_t item = (int64_t)j.seq * gridDim.y + blockIdx.y;
    unsigned *counter = (unsigned *)a.scratch + item;
    float *partial = (float *)((char *)a.scratch + counters) + item * splits * partial_floats(&a);
    float sum[H][2] = {};

    if (blockIdx.x >= j.n_parts) return;
    load_queries<H>(s, a, heads, j);
    if (heads.k.d && j.end == j.there) remember<H>(s, heads, j);
    for (int64_t key = j.begin; key < j.end; key += N_KEYS) {
        const int n_keys = (int)min((int64_t)N_KEYS, j.end - key);
        const T *k = (const T *)a.k.d + j.seq * a.k_seq + key * a.k.stride +
                     j.kv_head * a.head_dim;
        const T *v = (const T *)a.v.d + j.seq * a.v_seq + key * a.v.stride +
                     j.kv_head * a.v_head_dim;

        __syncthreads();
        score_keys(s, a, k, n_keys);
        __syncthreads();
        weigh_keys<H>(s);
        __syncthreads();
        if (group < n_groups) add_values(sum, s, a, v, n_keys, pair, group, n_groups);
    }
    sw_bf16 *out = a.out.d + j.seq * a.out.stride + (int64_t)j.head0 * a.v_head_dim;

    store_sums<H>(partial + blockIdx.x * partial_floats(&a), out, s, a, sum, j, pair, group,
                  n_groups);
    if (j.n_parts == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) s.is_last = atomicInc(counter, j.n_parts - 1) == j.n_parts - 1u;
    __syncthreads();
    if (!s.is_last) return;
    __threadfence();
    combine(a, partial, j.n_parts, j.head0, j.n_heads, out);
}

template <int H>
static sw_code run(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how, sw_err *err)
{
    const sw_heads_args none = {};
    const dim3 grid((unsigned)n_splits(a), (unsigned)(a->n_kv_heads * head_tiles(a)),
                    (unsigned)a->n_seqs);

    return sw_start("attention",
                    a->kv.is_e4m3 ? swk_attention_decode<H, uint8_t>
                                  : swk_attention_decode<H, sw_bf16>,
                    grid, N_THREADS, sizeof(shared_state<H>), how, err, sw_settle_scales(a),
                    heads ? *heads : none, n_splits(a), counter_bytes(a));
}

extern "C" sw_code sw_cuda_attention_decode(const sw_attn_args *a, const sw_heads_args *heads,
                                            sw_launch how, sw_err *err)
{
    const int shared = a->n_heads / a->n_kv_heads;

    if (a->head_dim > DIM_MAX || a->v_head_dim > DIM_MAX || a->head_dim % 8 || a->v_head_dim % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "heads of %d and %d; on the card they are multiples "
                       "of 8 up to %d", a->head_dim, a->v_head_dim, DIM_MAX);
    if (shared == 1) return run<1>(a, heads, how, err);
    if (shared == 2) return run<2>(a, heads, how, err);
    return shared <= 4 ? run<4>(a, heads, how, err) : run<8>(a, heads, how, err);
}
