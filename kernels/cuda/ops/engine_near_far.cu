/* engine_near_far.cu - attention over the last tokens and over far keys, one head of keys for all
 * heads of queries. See engine_streams.h; kernels/engine/sparse/near_far.c for the source.
 *
 * A block has some heads of one token. Keys pass through shared memory in tiles; a tile's scores
 * are made by a thread for two of them, its weights by two warps' worth of lanes, and what comes
 * out by a thread for a pair of channels of every head.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_far.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 256
#define HEADS 16
#define KEYS 32
#define PAD 8 /* elements behind a row in shared memory, so that rows begin in other banks */

/* Shared memory: queries and keys as they are, weights, by what sums shrink. */
struct near_far_state {
    float weights[KEYS][HEADS], shrunk[HEADS], sums[HEADS];
};

/* The keys of one query: n_near rows from the oldest on, then far ones. */
struct keys_seen {
    const sw_bf16 *near, *far;
    const int32_t *chosen;
    int64_t row, dim, n_near, n;
};

static __device__ keys_seen keys_of(const sw_near_far_args &a, int64_t t)
{
    const sw_far_place &p = a.place;
    const int64_t seq = t / p.seq_len, position = far_position(p, t);
    keys_seen k = {};

    k.row = p.row;
    k.dim = p.dim;
    k.n_near = position + 1 < a.window ? position + 1 : a.window;
    k.near = far_row(p, seq, position + 1 - k.n_near);
    k.far = far_keys(p, seq);
    k.n = k.n_near;
    if (!p.rate) return k;
    const int64_t n_far = (position + 1) / p.rate;

    k.chosen = a.chosen ? a.chosen + t * a.top_k : NULL;
    k.n += k.chosen && n_far > a.top_k ? a.top_k : n_far;
    return k;
}

static __device__ __forceinline__ const sw_bf16 *key_at(const keys_seen &k, int64_t i)
{
    if (i < k.n_near) return k.near + i * k.row;
    return k.far + (k.chosen ? k.chosen[i - k.n_near] : i - k.n_near) * k.dim;
}

/* Keys [first, first + KEYS); zeros where there are none. */
static __device__ void load_keys(sw_bf16 *s_keys, const keys_seen &k, int64_t first)
{
    const int per_key = (int)(k.dim / 8);

    for (int i = (int)threadIdx.x; i < KEYS * per_key; i += N_THREADS) {
        const int key = i / per_key, col = i % per_key * 8;
        uint4 some = make_uint4(0, 0, 0, 0);

        if (first + key < k.n) some = *(const uint4 *)(key_at(k, first + key) + col);
        *(uint4 *)(s_keys + key * (k.dim + PAD) + col) = some;
    }
}

static __device__ void load_queries(sw_bf16 *s_q, const sw_near_far_args &a, int64_t t,
                                    int64_t head0)
{
    const int64_t dim = a.place.dim;
    const int per_head = (int)(dim / 8);

    for (int i = (int)threadIdx.x; i < HEADS * per_head; i += N_THREADS) {
        const int head = i / per_head, col = i % per_head * 8;
        uint4 some = make_uint4(0, 0, 0, 0);

        if (head0 + head < a.n_heads)
            some = *(const uint4 *)(a.q.d + t * a.q.stride + (head0 + head) * dim + col);
        *(uint4 *)(s_q + head * (dim + PAD) + col) = some;
    }
}

/* A thread to a head and two keys. */
static __device__ void score(near_far_state &s, const sw_bf16 *s_q, const sw_bf16 *s_keys,
                             int64_t dim, int n_keys, float scale)
{
    const int head = threadIdx.x / 16, one = threadIdx.x % 16, two = one + 16;
    const int64_t stride = dim + PAD;
    float sums[2] = {};

    for (int64_t d = 0; d < dim; d += 8) {
        const sw_eight q = sw_load8(s_q + head * stride + d);
        const sw_eight x = sw_load8(s_keys + one * stride + d);
        const sw_eight y = sw_load8(s_keys + two * stride + d);

#pragma unroll
        for (int i = 0; i < 8; i++) {
            sums[0] += q.v[i] * x.v[i];
            sums[1] += q.v[i] * y.v[i];
        }
    }
    s.weights[one][head] = one < n_keys ? sums[0] * scale : -INFINITY;
    s.weights[two][head] = two < n_keys ? sums[1] * scale : -INFINITY;
}

/* Scores into weights; a warp has heads 2 w and 2 w + 1, a lane a key. */
static __device__ void weigh(near_far_state &s, float (&tops)[2], float (&sums)[2])
{
    const int lane = threadIdx.x % 32, head0 = (int)(threadIdx.x / 32) * 2;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float mine = s.weights[lane][head0 + i];
        const float top = fmaxf(tops[i], sw_warp_max(mine)), weight = expf(mine - top);
        const float shrunk = expf(tops[i] - top);

        s.weights[lane][head0 + i] = weight;
        sums[i] = sums[i] * shrunk + sw_warp_sum(weight);
        tops[i] = top;
        if (lane == 0) s.shrunk[head0 + i] = shrunk;
    }
}

/* A thread to a pair of channels. */
static __device__ void add_values(float (&out)[HEADS][2], const near_far_state &s,
                                  const sw_bf16 *s_keys, int64_t dim)
{
    const int64_t col = 2 * (int64_t)threadIdx.x;

    if (col >= dim) return;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        out[h][0] *= s.shrunk[h];
        out[h][1] *= s.shrunk[h];
    }
    for (int key = 0; key < KEYS; key++) {
        const uint32_t two = *(const uint32_t *)(s_keys + key * (dim + PAD) + col);
        const float x = __uint_as_float(two << 16), y = __uint_as_float(two & 0xffff0000u);

#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            out[h][0] += s.weights[key][h] * x;
            out[h][1] += s.weights[key][h] * y;
        }
    }
}

static __device__ void put_out(const sw_near_far_args &a, const near_far_state &s,
                               float (&out)[HEADS][2], int64_t t, int64_t head0)
{
    const int64_t dim = a.place.dim, col = 2 * (int64_t)threadIdx.x;
    const int64_t pair = threadIdx.x - (dim / 2 - a.half);

    if (col >= dim) return;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float x = out[h][0] / s.sums[h], y = out[h][1] / s.sums[h];

        if (head0 + h >= a.n_heads) break;
        if (pair >= 0) { /* by the opposite of the angle */
            const int64_t at = far_position(a.place, t) * a.half + pair;
            const float cos = a.cos[at], sin = a.sin[at], low = x;

            x = low * cos + y * sin;
            y = y * cos - low * sin;
        }
        *(uint32_t *)(a.out.d + t * a.out.stride + (head0 + h) * dim + col) = sw_pack2(x, y);
    }
}

/* grid (tokens, heads / HEADS); a sink takes weight and has no value */
static __global__ void __launch_bounds__(N_THREADS) swk_near_far(sw_near_far_args a)
{
    extern __shared__ uint4 s_rows[];
    __shared__ near_far_state s;
    const int64_t t = blockIdx.x, head0 = (int64_t)blockIdx.y * HEADS, dim = a.place.dim;
    const int mine = (int)(threadIdx.x / 32) * 2;
    sw_bf16 *s_q = (sw_bf16 *)s_rows, *s_keys = s_q + HEADS * (dim + PAD);
    float out[HEADS][2] = {}, tops[2], sums[2] = {1.0f, 1.0f};

    sw_begin();
    const keys_seen k = keys_of(a, t);

#pragma unroll
    for (int i = 0; i < 2; i++)
        tops[i] = head0 + mine + i < a.n_heads ? a.sinks[head0 + mine + i] : 0.0f;
    load_queries(s_q, a, t, head0);
    for (int64_t first = 0; first < k.n; first += KEYS) {
        const int64_t left = k.n - first;

        load_keys(s_keys, k, first);
        __syncthreads();
        score(s, s_q, s_keys, dim, left < KEYS ? (int)left : KEYS, a.scale);
        __syncthreads();
        weigh(s, tops, sums);
        __syncthreads();
        add_values(out, s, s_keys, dim);
        __syncthreads();
    }
    if (threadIdx.x % 32 < 2) s.sums[mine + threadIdx.x % 32] = threadIdx.x % 2 ? sums[1] : sums[0];
    __syncthreads();
    put_out(a, s, out, t, head0);
}

extern "C" sw_code sw_cuda_near_far(const sw_near_far_args *a, sw_launch how, sw_err *err)
{
    const sw_far_place *p = &a->place;
    const int shared_bytes = (int)((HEADS + KEYS) * (p->dim + PAD) * (int64_t)sizeof(sw_bf16));
    const dim3 grid((unsigned)(p->n_seqs * p->seq_len), sw_blocks(a->n_heads, HEADS));
    const sw_code rc =
        sw_device_check((int)cudaFuncSetAttribute(swk_near_far,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  shared_bytes), "attention", err);

    if (rc != SW_OK) return rc;
    return sw_start("attention", swk_near_far, grid, N_THREADS, (size_t)shared_bytes, how, err, *a);
}
