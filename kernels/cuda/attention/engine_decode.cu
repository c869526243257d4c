/* engine_decode.cu - attention of one query a sequence over its cache. See engine_ops.h.
 *
 * The keys of a sequence are cut over CTAs, each of which serves up to eight heads that share them.
 * The warps of a CTA take tiles of 16 keys in turn, each for itself: nobody waits for anybody until
 * sums are added up. Products are those of tensor cores (m16n8k16):
 *
 *   scores   [heads, keys] = Q K^T. Rows 0 to 7 of A are the heads' queries rounded, rows 8 to 15
 *            what the rounding left, so that nothing is lost; a lane adds the two up.
 *   sums     [dims, heads] += V^T P^T, weights likewise in two parts, one product each. What a lane
 *            has of scores is what it needs of weights here: nothing is exchanged.
 *
 * Inputs of a product may be in any order that both operands have. So a lane reads 8 neighbouring
 * elements at a time straight into registers, 64 bytes of a key and 128 of a value a request, and
 * the next tile's are on their way while this one is multiplied. Codes of a cache (E4M3 or
 * int8) become F16, which holds them all, as queries and weights then are. The new key and value
 * go to the cache and are read from shared memory.
 *
 * A multiprocessor has 16 warps: in one CTA, or in two or four where there are more sequences; keys
 * are cut where the device has room for more CTAs. Partial sums then go to scratch; the last CTA of
 * a group to arrive adds them up in the order of the keys, so that the bytes do not depend on which
 * that is.
 */
#define N_THREADS 512 /* at most */
#define N_HEADS_MAX 8
#include "kernels/cuda/attention/decode_cta.cuh"
#include "kernels/cuda/ptx/caches.cuh"

extern "C" int64_t sw_cuda_decode_scratch_bytes(const sw_attn_args *a)
{
    return scratch_bytes(a, n_splits(a));
}

/* D: elements of a head, rounded up. */
template <int D, int WARPS> struct decode_state {
    static constexpr int dims = D, warps = WARPS;
    uint4 q[D / 16][32];        /* operands A of a k-step, by lane */
    uint8_t fresh[2][2 * D];    /* the new key and value, as they lie in the cache */
    float factor[N_HEADS_MAX];  /* what scores are multiplied by */
    float head[WARPS][D];       /* a warp's own, while heads are prepared */
    float out[WARPS][N_HEADS_MAX][D + 4], top[WARPS][N_HEADS_MAX], sum[WARPS][N_HEADS_MAX];
    bool is_last;

    __device__ const float (*out_of(int warp) const)[D + 4] { return out[warp]; }
};

/* A lane has eight neighbouring dims of a key, four a step. */
struct by_eights {
    static __device__ __forceinline__ int dim_of(int step, int column, int j)
    {
        return step / 2 * 32 + column * 8 + step % 2 * 4 + j;
    }
};

/* ---- a warp's tiles ---- */

/* A tile as a lane has it: keys 8t + lane / 4 by eights of 32 dims; values of the four keys that it
 * has weights of, by eights of 64 dims. */
template <int D, typename T> struct tile_keys {
    typename elements<T>::eight e[2][D / 32];
};
template <int D, typename T> struct tile_values {
    typename elements<T>::eight e[4][D / 64];
};

/* Keys or values of a head from the CTA's first on. Rows beyond the last are that one: their weight
 * is zero; columns beyond the last eight are those: of the query they are zero, or nobody reads
 * what they add up to. */
template <typename T> struct rows_of_head {
    typedef typename elements<T>::eight eight;
    const T *d;
    int stride, last_row, last_eight;

    static __device__ __forceinline__ rows_of_head make(const sw_bf16_rows &all, int64_t seq_elems,
                                                        const attn_job &j, int n_rows, int dim)
    {
        return {(const T *)all.d + j.seq * seq_elems + j.begin * all.stride +
                    (int64_t)j.kv_head * dim, (int)all.stride, n_rows - 1, dim - 8};
    }
    __device__ __forceinline__ eight at(int row, int col) const
    {
        return sw_load_line((const eight *)(d + (int64_t)min(row, last_row) * stride +
                                            min(col, last_eight)));
    }
    /* Of one row in shared memory. */
    __device__ __forceinline__ eight fresh_at(const uint8_t *s_row, int col) const
    {
        return *(const eight *)(s_row + min(col, last_eight) * sizeof(T));
    }
};

/* Which dims of a key or a value are a lane's first eight. */
static __device__ __forceinline__ int key_col(void) { return (int)threadIdx.x % 4 * 8; }
static __device__ __forceinline__ int value_col(void) { return (int)threadIdx.x % 32 / 4 * 8; }

template <int D, typename T>
static __device__ __forceinline__ void load_keys(tile_keys<D, T> &k, const rows_of_head<T> &from,
                                                 int key)
{
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            k.e[t][i] = from.at(key + (int)threadIdx.x % 32 / 4 + 8 * t, key_col() + 32 * i);
}

template <int D, typename T>
static __device__ __forceinline__ void load_values(tile_values<D, T> &v,
                                                   const rows_of_head<T> &from, int key)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < D / 64; i++)
            v.e[j][i] = from.at(key + key_of(j), value_col() + 64 * i);
}

/* The new key and value, row `last` of a tile, and what lies behind. */
template <int D, typename T>
static __device__ __forceinline__ void take_fresh(tile_keys<D, T> &k, tile_values<D, T> &v,
                                                  const rows_of_head<T> &keys,
                                                  const rows_of_head<T> &values,
                                                  const uint8_t (&s_fresh)[2][2 * D], int last)
{
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            if ((int)threadIdx.x % 32 / 4 + 8 * t >= last)
                k.e[t][i] = keys.fresh_at(s_fresh[0], key_col() + 32 * i);
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < D / 64; i++)
            if (key_of(j) >= last) v.e[j][i] = values.fresh_at(s_fresh[1], value_col() + 64 * i);
}

template <int D, typename T, int WARPS>
static __device__ __forceinline__ void score(float (&weight)[4], const decode_state<D, WARPS> &s,
                                             const tile_keys<D, T> &k, const sw_attn_args &a,
                                             int n_keys)
{
    const int lane = threadIdx.x % 32;
    const float factor = elements<T>::scales_queries ? s.factor[lane / 4] * a.scale : a.scale;
    float sum[2][4] = {};

#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        const uint4 q = s.q[step][lane];
        const uint32_t operand[4] = {q.x, q.y, q.z, q.w};

#pragma unroll
        for (int t = 0; t < 2; t++) {
            uint32_t b[2];

            elements<T>::fours(b, k.e[t][step / 2], step % 2);
            elements<T>::multiply(sum[t], operand, b);
        }
    }
    weigh(weight, sum, factor, a, n_keys);
}

template <int D, typename T>
static __device__ __forceinline__ void add(warp_sums<D> &sums, float (&weight)[4],
                                           const tile_values<D, T> &v)
{
    typedef elements<T> E;
    const uint32_t rounded[2] = {E::round(weight[0], weight[1]), E::round(weight[2], weight[3])};
    const uint32_t rest[2] = {E::round(weight[0], weight[1]), E::round(weight[2], weight[3])};

#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint32_t operand[4];

        E::across(operand[0], operand[1], v.e[0][i / 4], v.e[1][i / 4], i % 4);
        E::across(operand[2], operand[3], v.e[2][i / 4], v.e[3][i / 4], i % 4);
        E::multiply(sums.out[i], operand, rounded);
        E::multiply(sums.out[i], operand, rest);
    }
}

/* The tiles of this warp, of which the first is asked for before queries are there; all threads
 * meet within. */
template <typename T, int D, int WARPS>
static __device__ __forceinline__ void walk(warp_sums<D> &sums, decode_state<D, WARPS> &s,
                                            const sw_attn_args &a, const sw_heads_args &heads,
                                            const attn_job &j,
                                            const held_heads<D, WARPS> &held)
{
    const bool remembers = heads.k.d && j.end == j.there;
    const int n_keys = (int)(j.end - j.begin), n_cached = n_keys - remembers;
    const rows_of_head<T> k = rows_of_head<T>::make(a.k, a.k_seq, j, n_cached, a.head_dim);
    const rows_of_head<T> v = rows_of_head<T>::make(a.v, a.v_seq, j, n_cached, a.v_head_dim);
    int key = (int)threadIdx.x / 32 * TILE;
    tile_keys<D, T> keys;
    tile_values<D, T> values;
    sw_turns turns;

    if (key < n_cached) {
        load_keys(keys, k, key);
        load_values(values, v, key);
    }
    sw_hold_turns(turns, heads, j.there - 1);
    prepare<T, by_eights>(s, a, heads, j, held, turns, remembers);
    __syncthreads();
#pragma unroll 1
    for (; key < n_keys; key += WARPS * TILE) {
        const int next = key + WARPS * TILE;
        float weight[4];

        if (remembers && key + TILE >= n_keys)
            take_fresh(keys, values, k, v, s.fresh, n_keys - 1 - key);
        score(weight, s, keys, a, n_keys - key);
        if (next < n_cached) load_keys(keys, k, next);
        weigh(weight, sums);
        add(sums, weight, values);
        if (next < n_cached) load_values(values, v, next);
    }
}

/* ---- after the keys ---- */

template <int D, int WARPS>
static __device__ void park(decode_state<D, WARPS> &s, warp_sums<D> &sums)
{
    const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;

    sums.sum += __shfl_xor_sync(~0u, sums.sum, 1);
    sums.sum += __shfl_xor_sync(~0u, sums.sum, 2);
    if (column == 0) {
        s.top[warp][row] = sums.top;
        s.sum[warp][row] = sums.sum;
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < D / 16; i += 2)
            *(float4 *)&s.out[warp][2 * column + h][i / 4 * 64 + row * 8 + i % 4 * 2] =
                make_float4(sums.out[i][h], sums.out[i][h + 2], sums.out[i + 1][h],
                            sums.out[i + 1][h + 2]);
    __syncthreads();
}

/* grid (splits, kv heads x tiles of heads, sequences) */
template <typename T, int D, int WARPS, bool CHUNKED>
static __global__ void __launch_bounds__(32 * WARPS, warps_of(D) / WARPS)
    swk_attention_decode(sw_attn_args a, sw_heads_args heads, int splits, int64_t counters)
{
    extern __shared__ __align__(16) char s_bytes[];
    decode_state<D, WARPS> &s = *(decode_state<D, WARPS> *)s_bytes;
    const int item = (int)(blockIdx.z * gridDim.y + blockIdx.y), split = (int)blockIdx.x;
    unsigned *counter = (unsigned *)a.scratch + item;
    float *partial = (float *)((char *)a.scratch + counters) +
                     (int64_t)item * splits * partial_floats(&a);

    sw_begin();
    attn_job j = heads_of_job(a, split, item);
    held_heads<D, WARPS> held;

    held.load(a, heads, j);
    cut_keys<CHUNKED>(j, a, splits, PART_KEYS);
    sw_bf16 *out = a.out.d + j.seq * a.out.stride + (int64_t)j.head0 * a.v_head_dim;
    warp_sums<D> sums = {-INFINITY};

    if (split >= j.n_parts) return;
    walk<T>(sums, s, a, heads, j, held);
    park(s, sums);
    finish(s, partial, counter, out, a, j);
}

template <typename T, int D, int WARPS, bool CHUNKED> struct any_launch {
    static sw_code run(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                       sw_err *err)
    {
        const sw_heads_args none = {};
        const dim3 grid((unsigned)n_splits(a), (unsigned)(a->n_kv_heads * head_tiles(a)),
                        (unsigned)a->n_seqs);
        const int shared_bytes = (int)sizeof(decode_state<D, WARPS>);
        const auto kernel = swk_attention_decode<T, D, WARPS, CHUNKED>;
        const sw_code rc = allow_shared((const void *)kernel, shared_bytes, err);

        if (rc != SW_OK) return rc;
        return sw_start("attention", kernel, grid, 32 * WARPS,
                        (size_t)shared_bytes, how, err, sw_settle_scales(a), heads ? *heads : none,
                        n_splits(a), counter_bytes(a));
    }
};

extern "C" sw_code sw_cuda_attention_decode_any(const sw_attn_args *a, const sw_heads_args *heads,
                                                sw_launch how, sw_err *err)
{
    if (a->head_dim > DIM_MAX || a->v_head_dim > DIM_MAX || a->head_dim % 8 || a->v_head_dim % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "heads of %d and %d; on the device they are "
                       "multiples of 8 up to %d", a->head_dim, a->v_head_dim, DIM_MAX);
    return run_decode<any_launch>(a, heads, how, err);
}
