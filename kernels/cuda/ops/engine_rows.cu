/* engine_rows.cu - the row-wise steps of a decoder block. See engine_ops.h. */
#include <math.h>

#include "kernels/cuda/gemm/glu.cuh"
#include "kernels/cuda/ops/engine_heads.cuh"
#include "kernels/cuda/ptx/caches.cuh"

#define N_THREADS 256
#define EIGHTS_MAX 4 /* eights of a row that a thread of a norm keeps: rows of up to 32768 */

/* ---- embedding ---- */

static __device__ int64_t position_of(int64_t row, const int32_t *first, int64_t seq_len)
{
    return (first ? first[row / seq_len] : 0) + row % seq_len;
}

/* Eight of a row as floats; one in v[0] where rows are not of whole eights. */
template <int WIDTH>
static __device__ __forceinline__ sw_eight load_elements(const sw_bf16 *from)
{
    if (WIDTH == 8) return sw_load8(from);
    return {{sw_float(*from)}};
}

/* grid (rows, parts of a row), a thread to WIDTH neighbours */
template <int WIDTH> static __global__ void swk_embed(sw_embed_args a)
{
    const int64_t row = blockIdx.x, i = WIDTH * (blockIdx.y * (int64_t)N_THREADS + threadIdx.x);

    sw_await_ahead(); /* the next are not to start before: sw_attn_args.cache_is_there */
    sw_let_next();
    if (i >= a.hidden) return;
    const int64_t id = a.ids[row], at = a.first_row + position_of(row, a.first, a.seq_len);
    sw_eight e = load_elements<WIDTH>(a.embed + id * a.hidden + i), more = {};

    if (a.positions) more = load_elements<WIDTH>(a.positions + at * a.hidden + i);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        e.v[j] *= a.scale;
        if (a.positions) e.v[j] += more.v[j];
        a.x[row * a.hidden + i + j] = e.v[j];
    }
}

extern "C" sw_code sw_cuda_embed(const sw_embed_args *a, sw_launch how, sw_err *err)
{
    const int width = a->hidden % 8 ? 1 : 8;

    return sw_start("embedding", width == 8 ? swk_embed<8> : swk_embed<1>,
                    dim3((unsigned)a->n, sw_blocks(a->hidden / width, N_THREADS)), N_THREADS, 0,
                    how, err, *a);
}

/* ---- norms ---- */

/* Most of a norm of one row is its code being fetched: the usual rows, of an eight a thread and
 * without a bias, have a kernel of a third of the code. */
template <int HELD, bool HAS_BIAS> struct norm_cut {
    static constexpr int held = HELD; /* eights of a thread */
    static constexpr bool has_bias = HAS_BIAS;
};
typedef norm_cut<1, false> norm_usual;
typedef norm_cut<EIGHTS_MAX, false> norm_long;
typedef norm_cut<EIGHTS_MAX, true> norm_layer;

#define NORM_THREADS 512
#define NORM_WARPS (NORM_THREADS / 32)

static __device__ sw_eight load_row(const sw_norm_args &a, int64_t row, int64_t at)
{
    if (!a.x) return sw_load8(a.src.d + row * a.src.stride + at);
    return sw_stream_at(a, row, at);
}

/* As sw_block_sum adds them, once a kernel. */
static __device__ float sum_of_usual(float x, float *s_part)
{
    x = sw_warp_sum(x);
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = x;
    return sw_sum_of_parts<NORM_WARPS>(s_part);
}

/* The mean of x (of x^2 about `centre` with IS_SQUARE) over the row whose eights are in e. */
template <typename CUT, bool IS_SQUARE>
static __device__ float mean_of(const sw_eight *e, int n_mine, float centre, int64_t width,
                                float *s_part)
{
    float sum = 0;

#pragma unroll
    for (int j = 0; j < CUT::held; j++)
        for (int i = 0; j < n_mine && i < 8; i++)
            sum += IS_SQUARE ? (e[j].v[i] - centre) * (e[j].v[i] - centre) : e[j].v[i];
    sum = CUT::held == 1 ? sum_of_usual(sum, s_part) : sw_block_sum(sum, s_part);
    return sum / (float)width;
}

/* grid (rows), a thread to one eight in blockDim. The first weights come while the kernel ahead
 * still runs. */
template <typename CUT> static __global__ void swk_norm(sw_norm_args a)
{
    __shared__ float s_part[32];
    const int64_t row = blockIdx.x, n_eights = a.width / 8;
    sw_eight e[CUT::held], weight = {};
    int n_mine = 0;

    sw_let_next();
    if (CUT::held == 1) sw_clear_parts<NORM_WARPS>(s_part);
    if (a.dst.d && threadIdx.x < n_eights) weight = sw_load_floats(a.weight + 8 * threadIdx.x);
    sw_await_ahead();
#pragma unroll
    for (int j = 0; j < CUT::held; j++) {
        const int64_t at = threadIdx.x + (int64_t)j * blockDim.x;

        if (at >= n_eights) break;
        e[j] = load_row(a, row, at * 8);
        n_mine = j + 1;
    }
    if (!a.dst.d) return;
    const float mean = CUT::has_bias ? mean_of<CUT, false>(e, n_mine, 0, a.width, s_part) : 0;
    const float square = mean_of<CUT, true>(e, n_mine, mean, a.width, s_part);
    const float scale = 1.0f / sqrtf(square + a.eps);

#pragma unroll
    for (int j = 0; j < CUT::held; j++) {
        const int64_t at = 8 * (threadIdx.x + (int64_t)j * blockDim.x);

        if (j >= n_mine) break;
        if (j) weight = sw_load_floats(a.weight + at);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            e[j].v[i] = (e[j].v[i] - mean) * scale * weight.v[i];
            if (CUT::has_bias) e[j].v[i] += a.bias[at + i];
        }
        sw_store8(a.dst.d + row * a.dst.stride + at, e[j]);
    }
}

extern "C" sw_code sw_cuda_norm(const sw_norm_args *a, sw_launch how, sw_err *err)
{
    const int64_t n_eights = a->width / 8;
    const auto kernel = a->bias                     ? swk_norm<norm_layer>
                        : n_eights <= NORM_THREADS ? swk_norm<norm_usual>
                                                    : swk_norm<norm_long>;
    int64_t n_threads = (n_eights + 31) / 32 * 32;

    if (a->width % 8 || n_eights > EIGHTS_MAX * 1024)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a norm over %lld elements; on the device it takes "
                       "multiples of 8 up to %d", (long long)a->width, EIGHTS_MAX * 8192);
    if (n_threads > NORM_THREADS)
        n_threads = n_eights > EIGHTS_MAX * NORM_THREADS ? 1024 : NORM_THREADS;
    sw_divide_as_products(kernel);
    return sw_start("norm", kernel, (unsigned)a->n, (unsigned)n_threads, 0, how, err, *a);
}

/* ---- heads ---- */

#define HEADS_PER_BLOCK 8

/* A warp to a head: of each token first the queries, then keys, then values. */
static __global__ void swk_heads(sw_heads_args a, int64_t n_items, int per_token)
{
    __shared__ float s_heads[HEADS_PER_BLOCK][HEAD_DIM_MAX];
    const int warp = threadIdx.x / 32;
    const int64_t item = blockIdx.x * (int64_t)HEADS_PER_BLOCK + warp;
    float *s_head = s_heads[warp];

    sw_begin();
    if (item >= n_items) return;
    const int n_q = a.q.d ? a.n_heads : 0, n_k = a.k.d ? a.n_kv_heads : 0;
    const int64_t row = item / per_token, position = position_of(row, a.first, a.seq_len);
    const int64_t cached = row / a.seq_len * a.capacity + position;
    const int head = (int)(item % per_token);

    if (head >= n_q + n_k) {
        const int h = head - n_q - n_k;

        sw_load_head(s_head, a.v.d + row * a.v.stride + (int64_t)h * a.v_head_dim, a.v_head_dim);
        sw_cache_head(a.v_cache, cached * a.n_kv_heads + h, s_head, a.v_head_dim, a.kv.kind,
                      a.kv.v_scale);
        return;
    }
    const bool is_q = head < n_q;
    const int h = is_q ? head : head - n_q;
    sw_bf16 *from = (is_q ? a.q.d + row * a.q.stride : a.k.d + row * a.k.stride) +
                    (int64_t)h * a.head_dim;

    sw_load_head(s_head, from, a.head_dim);
    sw_prepare_head(s_head, a, is_q ? a.q_norm : a.k_norm, position);
    if (is_q || !a.k_cache)
        sw_store_head(from, s_head, a.head_dim);
    else
        sw_cache_head(a.k_cache, cached * a.n_kv_heads + h, s_head, a.head_dim, a.kv.kind,
                      a.kv.k_scale);
}

extern "C" sw_code sw_cuda_heads(const sw_heads_args *a, sw_launch how, sw_err *err)
{
    const int per_token = (a->q.d ? a->n_heads : 0) + (a->k.d ? a->n_kv_heads : 0) +
                          (a->v.d && a->v_cache ? a->n_kv_heads : 0);
    const int64_t n_items = a->n * per_token;

    if (a->head_dim > HEAD_DIM_MAX || a->head_dim % 2 || a->v_head_dim % 2)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "heads of %d and %d; on the device they are even and "
                       "up to %d", a->head_dim, a->v_head_dim, HEAD_DIM_MAX);
    return sw_start("heads", swk_heads, sw_blocks(n_items, HEADS_PER_BLOCK), 32 * HEADS_PER_BLOCK,
                    0, how, err, *a, n_items, per_token);
}

/* grid (rows) */
static __global__ void swk_latent_kv(sw_latent_args a)
{
    const int plain = a.head_dim - a.rope_dim, both = plain + a.v_head_dim;
    const int64_t row = blockIdx.x;

    sw_begin();
    for (int i = (int)threadIdx.x; i < a.n_heads * a.head_dim; i += (int)blockDim.x) {
        const int h = i / a.head_dim, d = i % a.head_dim;

        a.k.d[row * a.k.stride + i] = d < plain ? a.kv_b.d[row * a.kv_b.stride + h * both + d]
                                                : a.turned.d[row * a.turned.stride + d - plain];
    }
    for (int i = (int)threadIdx.x; i < a.n_heads * a.v_head_dim; i += (int)blockDim.x)
        a.v.d[row * a.v.stride + i] = a.kv_b.d[row * a.kv_b.stride + i / a.v_head_dim * both +
                                               plain + i % a.v_head_dim];
}

extern "C" sw_code sw_cuda_latent_kv(const sw_latent_args *a, sw_launch how, sw_err *err)
{
    return sw_start("latent kv", swk_latent_kv, (unsigned)a->n, N_THREADS, 0, how, err, *a);
}

/* ---- activations ---- */

/* grid (rows, parts of a row), a thread to eight neighbours */
static __global__ void swk_act(sw_act_args a)
{
    const int64_t row = blockIdx.x, col = 8 * (blockIdx.y * (int64_t)N_THREADS + threadIdx.x);

    sw_begin();
    if (col >= a.width) return;
    sw_bf16 *dst = a.g.d + row * a.g.stride + col;
    sw_eight g = sw_load8(dst), u = {{1, 1, 1, 1, 1, 1, 1, 1}};

    if (a.u.d) u = sw_load8(a.u.d + row * a.u.stride + col);
#pragma unroll
    for (int i = 0; i < 8; i++) g.v[i] = sw_any_glu_of(a.act, g.v[i], u.v[i], a.limit);
    sw_store8(dst, g);
}

extern "C" sw_code sw_cuda_act(const sw_act_args *a, sw_launch how, sw_err *err)
{
    sw_divide_as_products(swk_act);
    return sw_start("activation", swk_act,
                    dim3((unsigned)a->n, sw_blocks(a->width / 8, N_THREADS)), N_THREADS, 0, how,
                    err, *a);
}

/* ---- small things ---- */

static __global__ void swk_bias(void *y, int64_t stride, bool is_f32, const float *bias, int64_t n,
                                int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at >= n * width) return;
    const int64_t col = at % width, to = at / width * stride + col;

    if (is_f32)
        ((float *)y)[to] += bias[col];
    else
        ((sw_bf16 *)y)[to] = sw_round16(sw_float(((sw_bf16 *)y)[to]) + bias[col]);
}

extern "C" sw_code sw_cuda_bias(void *y, int64_t stride, bool is_f32, const float *bias, int64_t n,
                                int64_t width, sw_launch how, sw_err *err)
{
    return sw_start("bias", swk_bias, sw_blocks(n * width, N_THREADS), N_THREADS, 0, how, err, y,
                    stride, is_f32, bias, n, width);
}

static __global__ void swk_softcap(float *x, float cap, int64_t n)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at < n) x[at] = cap * tanhf(x[at] / cap);
}

extern "C" sw_code sw_cuda_softcap(float *x, float cap, int64_t n, sw_launch how, sw_err *err)
{
    return sw_start("softcap", swk_softcap, sw_blocks(n, N_THREADS), N_THREADS, 0, how, err, x, cap,
                    n);
}

static __global__ void swk_to_bf16(sw_bf16_rows dst, const float *src, sw_bf16_rows add, int64_t n,
                                   int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at >= n * width) return;
    const int64_t row = at / width, col = at % width;
    const float more = add.d ? sw_float(add.d[row * add.stride + col]) : 0.0f;

    dst.d[row * dst.stride + col] = sw_round16(src[at] + more);
}

extern "C" sw_code sw_cuda_to_bf16(sw_bf16_rows dst, const float *src, sw_bf16_rows add, int64_t n,
                                   int64_t width, sw_launch how, sw_err *err)
{
    return sw_start("rounding", swk_to_bf16, sw_blocks(n * width, N_THREADS), N_THREADS, 0, how,
                    err, dst, src, add, n, width);
}
