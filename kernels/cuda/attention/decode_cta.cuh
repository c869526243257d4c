/* decode_cta.cuh - what a CTA does for one query a sequence before its keys and after them: plan,
 * heads, weights, sums. Both kernels of decode attention (engine_decode.cu of any device,
 * attention_decode.cuh of Hopper) have it; S is the state that one of them keeps in shared memory,
 * for `warps` warps and heads of up to `dims`. Whoever includes it defines N_THREADS and
 * N_HEADS_MAX before. */
#ifndef SW_KERNELS_CUDA_ATTENTION_DECODE_CTA_CUH
#define SW_KERNELS_CUDA_ATTENTION_DECODE_CTA_CUH

#include "kernels/cuda/ops/engine_decode.cuh"
#include "kernels/cuda/ops/engine_decode_elements.cuh"

#define TILE 16       /* keys of a warp at a time */
#define PART_KEYS 128 /* at least, where they are cut */

/* Warps of a multiprocessor: registers for a tile and sums of D dims each. */
static constexpr int warps_of(int D) { return D > 128 ? 8 : 16; }

static int64_t n_groups(const sw_attn_args *a)
{
    return a->n_seqs * a->n_kv_heads * head_tiles(a);
}

/* CTAs a multiprocessor. */
static int per_sm(const sw_attn_args *a)
{
    const int64_t n = n_groups(a);

    return n <= a->n_sms ? 1 : n <= 2 * a->n_sms ? 2 : 4;
}

/* One round of the device. */
static int n_splits(const sw_attn_args *a)
{
    return splits_of(a, per_sm(a) * a->n_sms / n_groups(a));
}

/* ---- before the keys ---- */

/* The head in s_head as the operand of all k-steps, by one warp: a lane to one of the lanes that
 * will read it. ORDER: which dim element j of a column of a step is. */
template <typename T, typename ORDER, typename S>
static __device__ void lay_out_query(S &s, int h, const float *s_head, int dim)
{
    typedef elements<T> E;
    const int lane = threadIdx.x % 32;
    float top = 0, factor = 1;

    if (E::scales_queries) {
        for (int i = lane; i < dim; i += 32) top = fmaxf(top, fabsf(s_head[i]));
        const int exponent = min(max((int)(__float_as_uint(sw_warp_max(top)) >> 23), 1), 253);

        factor = __uint_as_float((uint32_t)(254 - exponent) << 23);
        if (lane == 0) s.factor[h] = __uint_as_float((uint32_t)exponent << 23);
    }
#pragma unroll 1
    for (int i = lane; i < S::dims / 4; i += 32) {
        const int step = i / 4;
        float v[4] = {};
        uint4 a;

#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = ORDER::dim_of(step, i % 4, j);

            if (at < dim) v[j] = s_head[at] * factor;
        }
        a.x = E::round(v[0], v[1]);
        a.z = E::round(v[2], v[3]);
        a.y = E::round(v[0], v[1]);
        a.w = E::round(v[2], v[3]);
        s.q[step][h * 4 + i % 4] = a;
    }
}

/* The new head in s_head into shared memory as the cache has it, and from there into the cache; a
 * warp. Tiles of heads that share it write the same. */
template <typename T>
static __device__ void remember(uint8_t *s_fresh, void *cache, int64_t at, const float *s_head,
                                int dim, float scale)
{
    const int n_bytes = dim * (int)sizeof(T);

    sw_store_as((T *)s_fresh, s_head, dim, scale);
    __syncwarp();
#pragma unroll 1
    for (int i = (int)threadIdx.x % 32 * 8; i < n_bytes; i += 256)
        *(uint2 *)((uint8_t *)cache + at * n_bytes + i) = *(const uint2 *)(s_fresh + i);
}

/* Head i of a job as it came from its product: the queries, then the new key and value. */
static __device__ __forceinline__ const sw_bf16 *head_at(const sw_attn_args &a,
                                                         const sw_heads_args &heads,
                                                         const attn_job &j, int i)
{
    const bool is_query = i < j.n_heads, is_value = i > j.n_heads;
    const sw_bf16_rows &from = is_query ? a.q : is_value ? heads.v : heads.k;

    return from.d + j.seq * from.stride +
           (int64_t)(is_query ? j.head0 + i : j.kv_head) * (is_value ? a.v_head_dim : a.head_dim);
}

/* What a warp will prepare, asked for before it is known which keys there are. Heads beyond these
 * rounds are loaded when it is their turn. */
template <int D, int WARPS> struct held_heads {
    static constexpr int rounds = (N_HEADS_MAX / 2 + 2 + WARPS - 1) / WARPS;
    uint32_t two[rounds][D / 64];

    __device__ __forceinline__ void load(const sw_attn_args &a, const sw_heads_args &heads,
                                         const attn_job &j)
    {
        const int n = j.n_heads + (heads.k.d ? 2 : 0);

#pragma unroll
        for (int r = 0; r < rounds; r++) {
            const int i = (int)threadIdx.x / 32 + r * WARPS;
            const int dim = i > j.n_heads ? a.v_head_dim : a.head_dim;

#pragma unroll
            for (int t = 0; t < D / 64; t++) {
                const int at = 64 * t + (int)threadIdx.x % 32 * 2;

                two[r][t] = 0;
                if (i < n && at < dim)
                    two[r][t] = *(const uint32_t *)(head_at(a, heads, j, i) + at);
            }
        }
    }
    __device__ __forceinline__ void put(float *s_head, int round, int dim) const
    {
#pragma unroll
        for (int r = 0; r < rounds; r++)
#pragma unroll
            for (int t = 0; t < D / 64; t++) {
                const int at = 64 * t + (int)threadIdx.x % 32 * 2;

                if (r != round || at >= dim) continue;
                s_head[at] = __uint_as_float(two[r][t] << 16);
                s_head[at + 1] = __uint_as_float(two[r][t] & 0xffff0000u);
            }
        __syncwarp();
    }
};

/* Queries, and with `remembers` the new key and value: a warp to a head. */
template <typename T, typename ORDER, typename S>
static __device__ void prepare(S &s, const sw_attn_args &a,
                               const sw_heads_args &heads, const attn_job &j,
                               const held_heads<S::dims, S::warps> &held, const sw_turns &turns,
                               bool remembers)
{
    constexpr int rounds = held_heads<S::dims, S::warps>::rounds;
    constexpr bool is_one_round = S::warps >= N_HEADS_MAX + 2;
    const int64_t at = (j.seq * heads.capacity + j.there - 1) * heads.n_kv_heads + j.kv_head;
    float *s_head = s.head[threadIdx.x / 32];

#pragma unroll 1
    for (int i = (int)threadIdx.x / 32; i < j.n_heads + 2 * remembers; i += S::warps) {
        const bool is_query = i < j.n_heads, is_value = i > j.n_heads;
        const int dim = is_value ? a.v_head_dim : a.head_dim;

        if (is_one_round || i / S::warps < rounds) held.put(s_head, i / S::warps, dim);
        else sw_load_head(s_head, head_at(a, heads, j, i), dim);
        if (is_query ? heads.q.d != NULL : !is_value)
            sw_prepare_head(s_head, heads, is_query ? heads.q_norm : heads.k_norm, j.there - 1,
                            turns);
        if (is_query)
            lay_out_query<T, ORDER>(s, i, s_head, dim);
        else
            remember<T>(s.fresh[is_value], is_value ? heads.v_cache : heads.k_cache, at, s_head,
                        dim, is_value ? heads.kv.v_scale : heads.kv.k_scale);
        if (is_one_round) break;
        __syncwarp();
    }
}

/* ---- a warp's tiles ---- */

/* Of values and weights: which key of the tile is the lane's j-th. */
static __device__ __forceinline__ int key_of(int j)
{
    return (int)threadIdx.x % 4 * 2 + j % 2 + j / 2 * 8;
}

/* What a warp carries from tile to tile: of the head lane / 4 the maximum and this lane's share of
 * the weights' sum; of heads lane % 4 * 2 and the next the sums of values. */
template <int D> struct warp_sums {
    float top, sum;
    float out[D / 16][4]; /* dims 64 (i / 4) + 8 (lane / 4) + 2 (i % 4) and the next, two heads */
};

/* Scores to weights relative to the running maximum, to which `sums` is brought. Every tile has a
 * key, so the maximum is finite. */
template <int D>
static __device__ __forceinline__ void weigh(float (&weight)[4], warp_sums<D> &sums)
{
    const int head = threadIdx.x % 4 * 2;
    float top = fmaxf(fmaxf(weight[0], weight[1]), fmaxf(weight[2], weight[3]));

    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(sums.top, fmaxf(top, __shfl_xor_sync(~0u, top, 2)));
    if (__any_sync(~0u, top != sums.top)) {
        const float shrink = exp2f(sums.top - top);
        const float one = __shfl_sync(~0u, shrink, head * 4);
        const float two = __shfl_sync(~0u, shrink, head * 4 + 4);

        sums.top = top;
        sums.sum *= shrink;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            sums.out[i][0] *= one, sums.out[i][2] *= one;
            sums.out[i][1] *= two, sums.out[i][3] *= two;
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        weight[j] = exp2f(weight[j] - top);
        sums.sum += weight[j];
    }
}

/* ---- after the keys ---- */

/* The sums of all warps into this CTA's place in scratch, or to `out` when no other has keys of
 * these heads. Every thread runs this once, and instructions come slower than what they read: the
 * loops are short rather than unrolled. */
template <typename S>
static __device__ void store_warps(float *partial, sw_bf16 *out, const S &s,
                                   const sw_attn_args &a, const attn_job &j)
{
    const int dim = a.v_head_dim;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < j.n_heads * S::dims; i += 32 * S::warps) {
        const int h = i / S::dims, d = i % S::dims;
        const bool has_sink = a.sinks && j.n_parts == 1;
        const float sink = has_sink ? a.sinks[j.head0 + h] * LOG2_E : -INFINITY;
        float top = sink, sum = 0, value = 0;

        if (d >= dim) continue;
#pragma unroll 4
        for (int w = 0; w < S::warps; w++) top = fmaxf(top, s.top[w][h]);
        if (has_sink) sum = exp2f(sink - top);
#pragma unroll 4
        for (int w = 0; w < S::warps; w++) {
            const float weight = exp2f(s.top[w][h] - top);

            value += weight * s.out_of(w)[h][d];
            sum += weight * s.sum[w][h];
        }
        if (j.n_parts == 1) {
            out[h * dim + d] = sw_round16(value / sum * a.kv.v_scale);
            continue;
        }
        partial[h * (dim + 2) + d] = value;
        if (d == 0) {
            partial[h * (dim + 2) + dim] = top;
            partial[h * (dim + 2) + dim + 1] = sum;
        }
    }
}

/* Not in line, since few models have caps. */
static __device__ __noinline__ float capped(float v, float cap) { return cap * tanhf(v / cap); }

/* Scores of a lane's four keys of a tile, of which there are n_keys, by sums of two products. */
static __device__ __forceinline__ void weigh(float (&weight)[4], const float (&sum)[2][4],
                                             float factor, const sw_attn_args &a, int n_keys)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float v = (sum[j / 2][j % 2] + sum[j / 2][j % 2 + 2]) * factor;

        if (a.cap > 0) v = capped(v, a.cap);
        weight[j] = key_of(j) < n_keys ? v * LOG2_E : -INFINITY;
    }
}

/* Partial sums of all CTAs of a group: the last to arrive adds them up. */
template <typename S>
static __device__ void finish(S &s, float *partial, unsigned *counter, sw_bf16 *out,
                              const sw_attn_args &a, const attn_job &j)
{
    store_warps(partial + j.split * partial_floats(&a), out, s, a, j);
    if (j.n_parts == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) s.is_last = atomicInc(counter, j.n_parts - 1) == j.n_parts - 1u;
    __syncthreads();
    if (!s.is_last) return;
    __threadfence();
    combine(a, partial, j.n_parts, j.head0, j.n_heads, out, 32 * S::warps);
}

/* ---- the host's side ---- */

static sw_code allow_shared(const void *kernel, int n_bytes, sw_err *err)
{
    return sw_device_check((int)cudaFuncSetAttribute(kernel,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     n_bytes),
                           "attention", err);
}

/* KERNEL::run launches one of both kernels, for elements T of a cache, heads of up to D and CTAs of
 * so many warps. */
template <template <typename, int, int, bool> class KERNEL, typename T, int D>
static sw_code run_cut(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                       sw_err *err)
{
    if (a->chunk) return KERNEL<T, D, warps_of(D) / 2, true>::run(a, heads, how, err);
    if (per_sm(a) == 1) return KERNEL<T, D, warps_of(D), false>::run(a, heads, how, err);
    if (per_sm(a) == 2) return KERNEL<T, D, warps_of(D) / 2, false>::run(a, heads, how, err);
    return KERNEL<T, D, warps_of(D) / 4, false>::run(a, heads, how, err);
}

template <template <typename, int, int, bool> class KERNEL, typename T>
static sw_code run_dim(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                       sw_err *err)
{
    const int dim = a->head_dim > a->v_head_dim ? a->head_dim : a->v_head_dim;

    if (dim <= 64) return run_cut<KERNEL, T, 64>(a, heads, how, err);
    return dim <= 128 ? run_cut<KERNEL, T, 128>(a, heads, how, err)
                      : run_cut<KERNEL, T, 256>(a, heads, how, err);
}

template <template <typename, int, int, bool> class KERNEL>
static sw_code run_decode(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                          sw_err *err)
{
    const auto run = sw_of_kind(a->kv.kind, run_dim<KERNEL, sw_bf16>, run_dim<KERNEL, uint8_t>,
                                run_dim<KERNEL, int8_t>);

    return run(a, heads, how, err);
}

#endif
