/* engine_decode.cuh - attention of one query a sequence over a part of its keys: what a CTA does.
 * See engine_decode.cu. Whoever includes it says how many threads work (N_THREADS) and how many
 * heads at most share what is read (N_HEADS_MAX). */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_DECODE_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_DECODE_CUH

#include <math.h>

#include "kernels/cuda/ops/engine_heads.cuh"

#define N_KEYS 64
#define N_HELD 8 /* values that a lane asks for with the keys */
#define N_HELD_KEYS 2 /* eights of a key that a lane may have asked for before */
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

template <int H> struct shared_state {
    float q[H][DIM_MAX];
    float weight[N_KEYS][H]; /* scores, then weights */
    float top[H], sum[H], shrink[H];
    float values[2 * N_THREADS * H]; /* at the end: [key group, head, dim] */
    bool is_last;
};

/* Eight of a cache as they lie, and what they stand for. */
template <typename T> struct raw_eight {
    uint4 words;
    __device__ void load(const T *from) { words = *(const uint4 *)from; }
    __device__ void round(const float *v, float)
    {
        words = make_uint4(sw_pack2(v[0], v[1]), sw_pack2(v[2], v[3]), sw_pack2(v[4], v[5]),
                           sw_pack2(v[6], v[7]));
    }
    __device__ sw_eight wide(void) const
    {
        const uint32_t w[4] = {words.x, words.y, words.z, words.w};
        sw_eight e;

#pragma unroll
        for (int i = 0; i < 4; i++) {
            e.v[2 * i] = __uint_as_float(w[i] << 16);
            e.v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
        return e;
    }
};

template <> struct raw_eight<uint8_t> {
    uint2 words;
    __device__ void load(const uint8_t *from) { words = *(const uint2 *)from; }
    __device__ void round(const float *v, float scale)
    {
        const uint8_t *const kind = NULL;

        words = make_uint2(sw_round2(v[0], v[1], scale, kind) |
                               sw_round2(v[2], v[3], scale, kind) << 16,
                           sw_round2(v[4], v[5], scale, kind) |
                               sw_round2(v[6], v[7], scale, kind) << 16);
    }
    __device__ sw_eight wide(void) const { return sw_load8((const uint8_t *)&words); }
};

/* Keys and values of a CTA's first tile, in the threads that will look at them. */
template <typename T> struct early_tile {
    raw_eight<T> keys[N_HELD_KEYS];
    uint32_t values[N_HELD];
};

template <int H>
static __device__ void add_dot(float (&dot)[H], const shared_state<H> &s, const sw_eight &e, int at)
{
#pragma unroll
    for (int h = 0; h < H; h++)
#pragma unroll
        for (int i = 0; i < 8; i++) dot[h] += e.v[i] * s.q[h][at + i];
}

/* Eight lanes to a key: its products with all heads. `held`, unless NULL, has the first eights of
 * keys, a thread one key. */
template <int H, typename T>
static __device__ void score_keys(shared_state<H> &s, const sw_attn_args &a, const T *k, int n_keys,
                                  const early_tile<T> *held)
{
    const int part = threadIdx.x % 8;

    for (int key = threadIdx.x / 8; key < N_KEYS; key += N_THREADS / 8) {
        const T *from = k + key * a.k.stride;
        float dot[H] = {};
        int at = part * 8;

        if (held)
#pragma unroll
            for (int i = 0; i < N_HELD_KEYS; i++, at += 64)
                if (key < n_keys && at < a.head_dim) add_dot<H>(dot, s, held->keys[i].wide(), at);
        for (; key < n_keys && at < a.head_dim; at += 64)
            add_dot<H>(dot, s, sw_load8(from + at), at);
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

/* Which values a lane adds up: two dims of every n_groups-th key. */
struct value_share {
    int pair, group, n_groups;
};

static __device__ value_share share_of(const sw_attn_args &a)
{
    const int pairs = a.v_head_dim / 2;

    return {(int)threadIdx.x % pairs, (int)threadIdx.x / pairs, N_THREADS / pairs};
}

/* The first of them as they lie, on their way while keys are weighed. */
template <typename T>
static __device__ void hold_values(uint32_t (&held)[N_HELD], const sw_attn_args &a, const T *v,
                                   int n_keys, const value_share &mine)
{
#pragma unroll
    for (int i = 0; i < N_HELD; i++) {
        const int key = mine.group + i * mine.n_groups;

        held[i] = 0;
        if (mine.group < mine.n_groups && key < n_keys)
            held[i] = sw_raw2(v + key * a.v.stride + 2 * mine.pair);
    }
}

template <int H>
static __device__ void add_value(float (&sum)[H][2], const float (&weight)[H], float2 two)
{
#pragma unroll
    for (int h = 0; h < H; h++) {
        sum[h][0] += weight[h] * two.x;
        sum[h][1] += weight[h] * two.y;
    }
}

template <int H, typename T>
static __device__ void add_values(float (&sum)[H][2], const uint32_t (&held)[N_HELD],
                                  const shared_state<H> &s, const sw_attn_args &a, const T *v,
                                  int n_keys, const value_share &mine)
{
    if (mine.group >= mine.n_groups) return;
#pragma unroll
    for (int h = 0; h < H; h++) {
        sum[h][0] *= s.shrink[h];
        sum[h][1] *= s.shrink[h];
    }
#pragma unroll
    for (int i = 0; i < N_HELD; i++) {
        const int key = mine.group + i * mine.n_groups;

        if (key < n_keys) add_value<H>(sum, s.weight[key], sw_wide2(held[i], v));
    }
#pragma unroll 4
    for (int key = mine.group + N_HELD * mine.n_groups; key < n_keys; key += mine.n_groups)
        add_value<H>(sum, s.weight[key], sw_load2(v + key * a.v.stride + 2 * mine.pair));
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
    int item, split;                  /* the group, and which of these it is */
};

/* Of the CTA that has part `split` of the keys of a group of heads: groups of a sequence first. */
static __device__ attn_job heads_of_job(const sw_attn_args &a, int split, int item)
{
    const int heads = a.n_heads / a.n_kv_heads, tiles = (heads + N_HEADS_MAX - 1) / N_HEADS_MAX;
    const int group = item % (a.n_kv_heads * tiles);
    attn_job j;

    j.item = item;
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

static __device__ attn_job attention_job(const sw_attn_args &a, int splits, int split, int item)
{
    attn_job j = heads_of_job(a, split, item);

    cut_keys<false>(j, a, splits, N_KEYS);
    return j;
}

/* A warp to a head; norm and rotation as `heads` says. */
template <int H> static __device__ void load_queries(shared_state<H> &s, const sw_attn_args &a,
                                                     const sw_heads_args &heads, const attn_job &j,
                                                     const sw_turns &turns)
{
    const int h = threadIdx.x / 32;
    const sw_bf16 *q = a.q.d + j.seq * a.q.stride + (int64_t)(j.head0 + h) * a.head_dim;

    if (h < j.n_heads) {
        sw_load_head(s.q[h], q, a.head_dim);
        if (heads.q.d) sw_prepare_head(s.q[h], heads, heads.q_norm, j.there - 1, turns);
    } else if (h < H) {
#pragma unroll 1
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
static __device__ void remember(shared_state<H> &s, const sw_heads_args &heads, const attn_job &j,
                                const sw_turns &turns)
{
    const int warp = threadIdx.x / 32;
    const int64_t at = (j.seq * heads.capacity + j.there - 1) * heads.n_kv_heads + j.kv_head;

    if (warp == N_THREADS / 32 - 1) { /* the last warps have the fewest heads of q */
        sw_load_head(s.values, heads.k.d + j.seq * heads.k.stride + j.kv_head * heads.head_dim,
                     heads.head_dim);
        sw_prepare_head(s.values, heads, heads.k_norm, j.there - 1, turns);
        sw_cache_head(heads.k_cache, at, s.values, heads.head_dim, heads.kv.kind,
                      heads.kv.k_scale);
    } else if (warp == N_THREADS / 32 - 2) {
        sw_load_head(s.values + DIM_MAX,
                     heads.v.d + j.seq * heads.v.stride + j.kv_head * heads.v_head_dim,
                     heads.v_head_dim);
        sw_cache_head(heads.v_cache, at, s.values + DIM_MAX, heads.v_head_dim, heads.kv.kind,
                      heads.kv.v_scale);
    }
}

/* The sums of all key groups of the CTA into its place in scratch, or to `out` when no other has
 * keys of these heads. */
template <int H>
static __device__ void store_sums(float *partial, sw_bf16 *out, shared_state<H> &s,
                                  const sw_attn_args &a, const float (&sum)[H][2],
                                  const attn_job &j, const value_share &mine)
{
    const int dim = a.v_head_dim, n_heads = j.n_heads;

    if (mine.group < mine.n_groups)
#pragma unroll
        for (int h = 0; h < H; h++) {
            s.values[(mine.group * H + h) * dim + 2 * mine.pair] = sum[h][0];
            s.values[(mine.group * H + h) * dim + 2 * mine.pair + 1] = sum[h][1];
        }
    sw_meet<N_THREADS>();
    for (int i = (int)threadIdx.x; i < n_heads * dim; i += N_THREADS) {
        float value = 0;

        for (int g = 0; g < mine.n_groups; g++)
            value += s.values[(g * H + i / dim) * dim + i % dim];
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

/* Where keys and values of a job begin. */
template <typename T> static __device__ const T *keys_of(const sw_attn_args &a, const attn_job &j)
{
    return (const T *)a.k.d + j.seq * a.k_seq + j.begin * a.k.stride + j.kv_head * a.head_dim;
}

template <typename T> static __device__ const T *values_of(const sw_attn_args &a, const attn_job &j)
{
    return (const T *)a.v.d + j.seq * a.v_seq + j.begin * a.v.stride + j.kv_head * a.v_head_dim;
}

/* The first tile of a job, a thread to a part of one key. */
template <typename T>
static __device__ void hold_tile(early_tile<T> &t, const sw_attn_args &a, const attn_job &j)
{
    static_assert(N_THREADS / 8 <= N_KEYS, "at most one key a thread");
    const int key = threadIdx.x / 8, n_keys = (int)min((int64_t)N_KEYS, j.end - j.begin);

#pragma unroll
    for (int i = 0; i < N_HELD_KEYS; i++) {
        const int at = threadIdx.x % 8 * 8 + 64 * i;

        if (key < n_keys && at < a.head_dim)
            t.keys[i].load(keys_of<T>(a, j) + key * a.k.stride + at);
    }
    hold_values(t.values, a, values_of<T>(a, j), n_keys, share_of(a));
}

/* What `remember` has put in the place of one of them since, and left in shared memory. */
template <int H, typename T>
static __device__ void hold_newest(early_tile<T> &t, const shared_state<H> &s,
                                   const sw_attn_args &a, const sw_heads_args &heads,
                                   const attn_job &j)
{
    const value_share mine = share_of(a);
    const int newest = (int)(j.there - 1 - j.begin);
    const float *k = s.values, *v = s.values + DIM_MAX + 2 * mine.pair;

    if ((int)threadIdx.x / 8 == newest)
#pragma unroll
        for (int i = 0; i < N_HELD_KEYS; i++) {
            const int at = threadIdx.x % 8 * 8 + 64 * i;

            if (at < a.head_dim) t.keys[i].round(k + at, heads.kv.k_scale);
        }
#pragma unroll
    for (int i = 0; i < N_HELD; i++)
        if (mine.group < mine.n_groups && mine.group + i * mine.n_groups == newest)
            t.values[i] = sw_round2(v[0], v[1], heads.kv.v_scale, (const T *)NULL);
}

/* What was counted before; at `last` it begins at zero again. What this CTA has written may be read
 * by whoever counts later, and this CTA may read what those who counted before have written. */
static __device__ unsigned count_in(unsigned *counter, unsigned last)
{
    unsigned v;

    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(v)
                 : "l"(counter), "r"(last)
                 : "memory");
    return v;
}

/* A job that has keys, by all threads of a CTA. `early`: its first tile, asked for before the
 * newest key was there. */
template <int H, typename T>
static __device__ void attend(shared_state<H> &s, const sw_attn_args &a,
                              const sw_heads_args &heads, int splits, const attn_job &j,
                              int64_t counters, const sw_turns &turns, early_tile<T> &early)
{
    const value_share mine = share_of(a);
    const bool has_newest = heads.k.d && j.end == j.there;
    float *partial =
        (float *)((char *)a.scratch + counters) + j.item * splits * partial_floats(&a);
    float sum[H][2] = {};

    load_queries<H>(s, a, heads, j, turns);
    if (has_newest) remember<H>(s, heads, j, turns);
    for (int64_t key = j.begin; key < j.end; key += N_KEYS) {
        const int n_keys = (int)min((int64_t)N_KEYS, j.end - key);
        const T *k = keys_of<T>(a, j) + (key - j.begin) * a.k.stride;
        const T *v = values_of<T>(a, j) + (key - j.begin) * a.v.stride;
        uint32_t held[N_HELD];

        sw_meet<N_THREADS>();
        if (key == j.begin) {
            if (has_newest && j.there - key <= N_KEYS) hold_newest(early, s, a, heads, j);
#pragma unroll
            for (int i = 0; i < N_HELD; i++) held[i] = early.values[i];
            score_keys(s, a, k, n_keys, &early);
        } else {
            hold_values(held, a, v, n_keys, mine);
            score_keys(s, a, k, n_keys, (const early_tile<T> *)NULL);
        }
        sw_meet<N_THREADS>();
        weigh_keys<H>(s);
        sw_meet<N_THREADS>();
        add_values<H>(sum, held, s, a, v, n_keys, mine);
    }
    sw_bf16 *out = a.out.d + j.seq * a.out.stride + (int64_t)j.head0 * a.v_head_dim;

    store_sums<H>(partial + j.split * partial_floats(&a), out, s, a, sum, j, mine);
    if (j.n_parts == 1) return;
    sw_meet<N_THREADS>();
    if (threadIdx.x == 0)
        s.is_last = count_in((unsigned *)a.scratch + j.item, j.n_parts - 1) == j.n_parts - 1u;
    sw_meet<N_THREADS>();
    if (s.is_last) combine(a, partial, j.n_parts, j.head0, j.n_heads, out);
}

#endif
