/* engine_chosen_attention.cu - attention of a query over keys that were chosen for it. See
 * engine_chosen.h.
 *
 * A block has one head of one token. Each of its warps takes 32 chosen keys at a time, a lane to a
 * key for the score, and then all lanes together add up those keys' values, a lane to some pairs of
 * channels. A warp has its own running maximum (Milakov and Gimelshein, Online normalizer
 * calculation for softmax, 2018); at the end the warps' sums are put together in their order. So a
 * query is computed the same way whatever else is in the call.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_chosen.h"
#include "kernels/cuda/ops/engine_heads.cuh"

#define N_WARPS 8
#define LOG2_E 1.4426950408889634f

struct chosen_state {
    float q[SW_HEAD_DIM_MAX], out[N_WARPS][SW_HEAD_DIM_MAX];
    float tops[N_WARPS], sums[N_WARPS];
};

/* One head of keys and values of a sequence, and what of it the query sees. */
template <typename T> struct chosen_keys {
    const T *k, *v;
    int64_t k_stride, v_stride;
    const int32_t *chosen;
    int n, dim, v_dim;
};

/* What a warp carries: sums of values in pairs of channels lane + 32 i. */
template <int PAIRS> struct chosen_sums {
    float2 out[PAIRS];
    float top, sum;
};

static __device__ void load_query(float *s_q, const sw_bf16 *q, int dim)
{
    for (int i = (int)threadIdx.x; i < dim; i += 32 * N_WARPS) s_q[i] = sw_float(q[i]);
}

/* In powers of two; -inf where the lane has no key. */
template <typename T>
static __device__ float score_key(const chosen_keys<T> &x, const float *s_q, int32_t key,
                                  float scale)
{
    const T *row = x.k + key * x.k_stride;
    float sum = 0;

    if (key < 0) return -INFINITY;
    for (int col = 0; col < x.dim; col += 8) {
        const sw_eight e = sw_load8(row + col);

#pragma unroll
        for (int i = 0; i < 8; i++) sum += s_q[col + i] * e.v[i];
    }
    return sum * scale * LOG2_E;
}

/* The values of the lanes' keys, n of them, by the lanes' weights. */
template <int PAIRS, typename T>
static __device__ void add_values(chosen_sums<PAIRS> &sums, const chosen_keys<T> &x, int32_t key,
                                  float weight, int n)
{
    const int lane = threadIdx.x % 32;

    for (int j = 0; j < n; j++) {
        const float w = __shfl_sync(~0u, weight, j);
        const T *row = x.v + __shfl_sync(~0u, key, j) * x.v_stride;

#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int col = 2 * (lane + 32 * i);

            if (col >= x.v_dim) break;
            const float2 two = sw_load2(row + col);

            sums.out[i].x += w * two.x;
            sums.out[i].y += w * two.y;
        }
    }
}

/* The warp's keys: 32 of every 32 * N_WARPS. */
template <int PAIRS, typename T>
static __device__ void walk_keys(chosen_sums<PAIRS> &sums, const chosen_keys<T> &x,
                                 const float *s_q, float scale)
{
    const int lane = threadIdx.x % 32;

    for (int at = (int)(threadIdx.x / 32) * 32; at < x.n; at += 32 * N_WARPS) {
        const int n_now = x.n - at < 32 ? x.n - at : 32;
        const int32_t key = lane < n_now ? x.chosen[at + lane] : -1;
        const float score = score_key(x, s_q, key, scale);
        const float top = fmaxf(sums.top, sw_warp_max(score));
        const float weight = exp2f(score - top), shrunk = exp2f(sums.top - top);

        sums.sum = sums.sum * shrunk + sw_warp_sum(weight);
        sums.top = top;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            sums.out[i].x *= shrunk;
            sums.out[i].y *= shrunk;
        }
        add_values(sums, x, key, weight, n_now);
    }
}

template <int PAIRS>
static __device__ void keep_sums(chosen_state &s, const chosen_sums<PAIRS> &sums)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    if (lane == 0) {
        s.tops[warp] = sums.top;
        s.sums[warp] = sums.sum;
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        *(float2 *)&s.out[warp][2 * (lane + 32 * i)] = sums.out[i];
}

/* The warps' sums into one row; warps that had no key count for nothing. */
static __device__ void put_row(sw_bf16 *out, const chosen_state &s, int v_dim, float v_scale)
{
    float top = s.tops[0], sum = 0;

    for (int w = 1; w < N_WARPS; w++) top = fmaxf(top, s.tops[w]);
    for (int w = 0; w < N_WARPS; w++) sum += exp2f(s.tops[w] - top) * s.sums[w];
    sum /= v_scale;
    for (int col = 2 * (int)threadIdx.x; col < v_dim; col += 64 * N_WARPS) {
        float x = 0, y = 0;

        for (int w = 0; w < N_WARPS; w++) {
            const float share = exp2f(s.tops[w] - top);

            x += share * s.out[w][col];
            y += share * s.out[w][col + 1];
        }
        *(uint32_t *)(out + col) = sw_pack2(x / sum, y / sum);
    }
}

template <typename T>
static __device__ chosen_keys<T> keys_of(const sw_attn_args &a, sw_chosen_rows chosen, int top_k,
                                         int64_t t, int head)
{
    const int64_t seq = t / a.seq_len, kv_head = head / (a.n_heads / a.n_kv_heads);
    const int64_t seen = (a.first ? a.first[seq] : 0) + t % a.seq_len + 1;

    return {(const T *)a.k.d + seq * a.k_seq + kv_head * a.head_dim,
            (const T *)a.v.d + seq * a.v_seq + kv_head * a.v_head_dim, a.k.stride, a.v.stride,
            chosen.d + t * chosen.stride, seen < top_k ? (int)seen : top_k, a.head_dim,
            a.v_head_dim};
}

/* grid (tokens, heads): neighbouring tokens choose much the same keys */
template <int PAIRS, typename T>
static __global__ void __launch_bounds__(32 * N_WARPS)
    swk_chosen_attention(sw_attn_args a, sw_chosen_rows chosen, int top_k)
{
    __shared__ chosen_state s;
    const int64_t t = blockIdx.x;
    const int head = (int)blockIdx.y;
    chosen_sums<PAIRS> sums = {{}, -INFINITY, 0};

    sw_begin();
    const chosen_keys<T> x = keys_of<T>(a, chosen, top_k, t, head);

    load_query(s.q, a.q.d + t * a.q.stride + (int64_t)head * a.head_dim, a.head_dim);
    __syncthreads();
    walk_keys(sums, x, s.q, a.scale);
    keep_sums(s, sums);
    __syncthreads();
    put_row(a.out.d + t * a.out.stride + (int64_t)head * a.v_head_dim, s, a.v_head_dim,
            a.kv.v_scale);
}

template <int PAIRS>
static sw_code run(const sw_attn_args *a, sw_chosen_rows chosen, int64_t top_k, sw_launch how,
                   sw_err *err)
{
    const dim3 grid((unsigned)(a->n_seqs * a->seq_len), (unsigned)a->n_heads);
    const sw_attn_args settled = sw_settle_scales(a);

    return sw_start("attention",
                    sw_of_kind(a->kv.kind, swk_chosen_attention<PAIRS, sw_bf16>,
                               swk_chosen_attention<PAIRS, uint8_t>,
                               swk_chosen_attention<PAIRS, int8_t>),
                    grid, 32 * N_WARPS, 0, how, err, settled, chosen, (int)top_k);
}

extern "C" sw_code sw_cuda_chosen_attention(const sw_attn_args *a, sw_chosen_rows chosen,
                                            int64_t top_k, sw_launch how, sw_err *err)
{
    if (a->sinks || a->window || a->chunk || a->cap > 0)
        return SW_FAIL(err, SW_E_BUG, "chosen keys beside sinks, a window, chunks or a cap");
    if (a->head_dim > SW_HEAD_DIM_MAX || a->v_head_dim > SW_HEAD_DIM_MAX || a->head_dim % 8 ||
        a->v_head_dim % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "heads of %d and %d; on the device they are "
                       "multiples of 8 up to %d", a->head_dim, a->v_head_dim, SW_HEAD_DIM_MAX);
    if (a->v_head_dim <= 128) return run<2>(a, chosen, top_k, how, err);
    if (a->v_head_dim <= 256) return run<4>(a, chosen, top_k, how, err);
    return run<8>(a, chosen, top_k, how, err);
}
