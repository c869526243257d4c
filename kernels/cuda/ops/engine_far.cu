/* engine_far.cu - keys that stand for many tokens: what they are made of, making them, choosing
 * among them. See engine_streams.h; kernels/engine/sparse/ for the sources of the methods.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_far.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/engine/sparse/key_digits.h"

#define N_THREADS 256

/* ---- rows ---- */

/* A thread to eight neighbours. */
static __global__ void swk_far_keep(sw_far_place p, sw_bf16_rows k, sw_bf16_rows made)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x, per_row = p.row / 8;

    sw_begin();
    if (at >= p.n_seqs * p.seq_len * per_row) return;
    const int64_t t = at / per_row, col = at % per_row * 8;
    const sw_bf16 *from = col < p.dim ? k.d + t * k.stride + col : made.d + t * made.stride + col;

    *(uint4 *)(far_row(p, t / p.seq_len, far_position(p, t)) + col) = *(const uint4 *)from;
}

extern "C" sw_code sw_cuda_far_keep(const sw_far_place *p, sw_bf16_rows k, sw_bf16_rows made,
                                    sw_launch how, sw_err *err)
{
    return sw_start("rows of keys", swk_far_keep,
                    sw_blocks(p->n_seqs * p->seq_len * (p->row / 8), N_THREADS), N_THREADS, 0, how,
                    err, *p, k, made);
}

/* ---- far keys ---- */

/* Where the parts of a key lie in rows and in the table of positions. */
struct far_columns {
    int64_t dim, width, values, gates;
};

static __device__ far_columns columns_of(const sw_far_make &a)
{
    const sw_far_place &p = a.place;
    const int64_t dim = a.is_index ? p.index_dim : p.dim, width = p.overlaps ? 2 * dim : dim;
    const int64_t values = a.is_index ? p.row - 2 * width : p.dim;

    return {dim, width, values, values + width};
}

/* The running softmax of a channel. */
struct far_channel {
    float top, sum, mean;
};

/* Tokens [first, first + rate) of a sequence, in this column of what they have. */
static __device__ void see_window(far_channel &x, const sw_far_make &a, const far_columns &c,
                                  int64_t seq, int64_t first, int64_t column)
{
    for (int64_t s = 0; s < a.place.rate; s++) {
        const sw_bf16 *row = far_row(a.place, seq, first + s);
        const float gate =
            sw_float(row[c.gates + column]) + a.positions[s * c.width + column];
        const float top = fmaxf(x.top, gate), shrunk = expf(x.top - top), grown = expf(gate - top);

        x.sum = x.sum * shrunk + grown;
        x.mean = x.mean * shrunk + grown * sw_float(row[c.values + column]);
        x.top = top;
    }
}

/* Channels of window w into s_key; this thread's share of their squares. */
static __device__ float mix_window(float *s_key, const sw_far_make &a, const far_columns &c,
                                   int64_t seq, int64_t w)
{
    const int64_t rate = a.place.rate;
    float squares = 0;

    for (int64_t i = threadIdx.x; i < c.dim; i += N_THREADS) {
        far_channel x = {-INFINITY, 0, 0};

        if (a.place.overlaps && w) see_window(x, a, c, seq, (w - 1) * rate, i);
        see_window(x, a, c, seq, w * rate, a.place.overlaps ? c.dim + i : i);
        s_key[i] = x.mean / x.sum;
        squares += s_key[i] * s_key[i];
    }
    return squares;
}

/* grid (windows that may be complete, sequences) */
static __global__ void __launch_bounds__(N_THREADS) swk_far_make(sw_far_make a)
{
    __shared__ float s_part[32], s_key[SW_HEAD_DIM_MAX];
    const sw_far_place &p = a.place;
    const int64_t seq = blockIdx.y;

    sw_begin();
    const int64_t first = p.first ? p.first[seq] : 0, w = first / p.rate + blockIdx.x;

    if ((w + 1) * p.rate > first + p.seq_len) return;
    const far_columns c = columns_of(a);
    const float squares = mix_window(s_key, a, c, seq, w);
    const float scale = 1.0f / sqrtf(sw_block_sum(squares, s_part) / (float)c.dim + a.eps);
    sw_bf16 *to = far_keys(p, seq) + (a.is_index ? p.capacity / p.rate * p.dim : 0) + w * c.dim;

    for (int64_t i = threadIdx.x; i < c.dim / 2; i += N_THREADS) {
        const int64_t pair = i - (c.dim / 2 - a.half);
        float low = s_key[2 * i] * scale * a.norm[2 * i];
        float high = s_key[2 * i + 1] * scale * a.norm[2 * i + 1];

        if (pair >= 0) turn_pair(low, high, a.cos, a.sin, w * p.rate * a.half + pair);
        *(uint32_t *)(to + 2 * i) = sw_pack2(low, high);
    }
}

extern "C" sw_code sw_cuda_far_make(const sw_far_make *a, sw_launch how, sw_err *err)
{
    const sw_far_place *p = &a->place;
    const dim3 grid((unsigned)(p->seq_len / p->rate + 1), (unsigned)p->n_seqs);

    if (a->is_index && p->index_dim > SW_HEAD_DIM_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "index_head_dim of %lld; on the device it is at "
                       "most %d; use --device cpu", (long long)p->index_dim, SW_HEAD_DIM_MAX);
    return sw_start("far keys", swk_far_make, grid, N_THREADS, 0, how, err, *a);
}

/* A thread to a pair that turns. */
static __global__ void swk_far_turn(sw_bf16_rows x, sw_far_place p, int64_t n_heads, int64_t dim,
                                    const float *cos, const float *sin, int64_t half)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at >= p.n_seqs * p.seq_len * n_heads * half) return;
    const int64_t pair = at % half, head = at / half % n_heads, t = at / half / n_heads;
    sw_bf16 *two = x.d + t * x.stride + (head + 1) * dim - 2 * half + 2 * pair;
    float low = sw_float(two[0]), high = sw_float(two[1]);

    turn_pair(low, high, cos, sin, far_position(p, t) * half + pair);
    *(uint32_t *)two = sw_pack2(low, high);
}

extern "C" sw_code sw_cuda_far_turn(sw_bf16_rows x, const sw_far_place *p, int64_t n_heads,
                                    int64_t dim, const float *cos, const float *sin, int64_t half,
                                    sw_launch how, sw_err *err)
{
    return sw_start("far keys", swk_far_turn,
                    sw_blocks(p->n_seqs * p->seq_len * n_heads * half, N_THREADS), N_THREADS, 0,
                    how, err, x, *p, n_heads, dim, cos, sin, half);
}

/* ---- the choice ---- */

/* Integers that are ordered as the scores are: see sparse/key_choice.c. */
static __device__ __forceinline__ uint32_t rank_of(const sw_far_choice &a, int64_t row, int64_t key)
{
    const float *products = a.products + row * a.n_heads * a.stride + key;
    const float *weights = a.weights + (a.row0 + row) * a.n_heads;
    float sum = 0;

    for (int64_t h = 0; h < a.n_heads; h++)
        sum += weights[h] * fmaxf(products[h * a.stride], 0.0f);
    return sw_key_rank(sum);
}

/* How many of the block's ranks reach a bound. */
static __device__ int64_t count_reaching(const uint32_t *ranks, int64_t n, uint32_t bound,
                                         float *s_part)
{
    int n_mine = 0;

    for (int64_t i = threadIdx.x; i < n; i += N_THREADS) n_mine += ranks[i] >= bound;
    return (int64_t)sw_block_sum((float)n_mine, s_part);
}

/* Ranks above the bound, and the first n_equal that are as large; a warp, in their order. */
static __device__ void put_chosen(int32_t *out, const uint32_t *ranks, int64_t n, uint32_t bound,
                                  int64_t n_equal)
{
    const int lane = threadIdx.x % 32;
    const uint32_t before = (1u << lane) - 1;
    int64_t n_out = 0;

    for (int64_t at = 0; at < n; at += 32) {
        const uint32_t rank = at + lane < n ? ranks[at + lane] : 0;
        const bool is_there = at + lane < n, is_equal = is_there && rank == bound;
        const uint32_t equals = __ballot_sync(~0u, is_equal);
        const bool is_in = is_there && (rank > bound ||
                                        (is_equal && __popc(equals & before) < n_equal));
        const uint32_t all = __ballot_sync(~0u, is_in);

        if (is_in) out[n_out + __popc(all & before)] = (int32_t)(at + lane);
        n_out += __popc(all);
        n_equal -= __popc(equals);
    }
}

/* grid (queries) */
static __global__ void __launch_bounds__(N_THREADS) swk_far_choose(sw_far_choice a)
{
    __shared__ float s_part[32];
    const int64_t row = blockIdx.x, t = a.row0 + row;
    uint32_t *ranks = a.ranks + row * a.n_keys, bound = 0;
    int32_t *out = a.chosen + t * a.top_k;

    sw_begin();
    const int64_t seen = (far_position(a.place, t) + 1) / a.place.rate;
    const int64_t n = seen < a.n_keys ? seen : a.n_keys;

    if (n <= a.top_k) {
        for (int64_t i = threadIdx.x; i < a.top_k; i += N_THREADS) out[i] = i < n ? (int)i : -1;
        return;
    }
    for (int64_t i = threadIdx.x; i < n; i += N_THREADS) ranks[i] = rank_of(a, row, i);
    __syncthreads();
    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t higher = bound | 1u << bit;

        if (count_reaching(ranks, n, higher, s_part) >= a.top_k) bound = higher;
    }
    const int64_t n_above =
        bound == ~0u ? 0 : count_reaching(ranks, n, bound + 1, s_part);

    if (threadIdx.x < 32) put_chosen(out, ranks, n, bound, a.top_k - n_above);
}

extern "C" sw_code sw_cuda_far_choose(const sw_far_choice *a, sw_launch how, sw_err *err)
{
    return sw_start("choice of keys", swk_far_choose, (unsigned)a->n, N_THREADS, 0, how, err, *a);
}
