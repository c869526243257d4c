/* engine_streams.cu - several residual streams. See engine_streams.h; kernels/engine/operations/
 * hyper.c for the source of the method. A block takes some tokens, so that the matrix, which is
 * large and in FP32, is read once for all of them.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ops/engine_streams.h"

#define N_THREADS 256
#define N_WARPS (N_THREADS / 32)
#define TOKENS 4                       /* of a block; each has a warp of its own in between */
#define OUTS 3                         /* that a warp makes at once */
#define OUT_MAX (SW_STREAMS_MAX * (SW_STREAMS_MAX + 2))

struct mix_state {
    float outs[TOKENS][OUT_MAX], squares[TOKENS];
};

static __device__ __forceinline__ float *stream_of(const sw_streams_args &a, int64_t t, int i)
{
    return i ? a.streams.d + t * a.streams.stride + i * a.width : a.x + t * a.width;
}

/* A lane's share of the products of a stream with OUTS rows of fn, and of its squares. */
static __device__ __forceinline__ void add_stream(float (&dots)[OUTS][TOKENS],
                                                  float (&squares)[TOKENS],
                                                  const sw_streams_args &a, int stream, int out0,
                                                  int n_out)
{
    const int64_t t0 = (int64_t)blockIdx.x * TOKENS, wide = a.n_streams * a.width;

    for (int64_t d = threadIdx.x % 32; d < a.width; d += 32) {
        float x[TOKENS];

#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            x[t] = t0 + t < a.n ? stream_of(a, t0 + t, stream)[d] : 0.0f;
            squares[t] += x[t] * x[t];
        }
#pragma unroll
        for (int o = 0; o < OUTS; o++) {
            const float w =
                out0 + o < n_out ? a.fn[(out0 + o) * wide + stream * a.width + d] : 0.0f;

#pragma unroll
            for (int t = 0; t < TOKENS; t++) dots[o][t] += w * x[t];
        }
    }
}

/* s.outs [n_out] of the block's tokens: their streams, as one normed row, times fn. */
static __device__ void project(mix_state &s, const sw_streams_args &a, int n_out)
{
    const int warp = threadIdx.x / 32;

    for (int out0 = warp * OUTS; out0 < n_out || out0 == 0; out0 += N_WARPS * OUTS) {
        float dots[OUTS][TOKENS] = {}, squares[TOKENS] = {};

        for (int i = 0; i < a.n_streams; i++) add_stream(dots, squares, a, i, out0, n_out);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
#pragma unroll
            for (int o = 0; o < OUTS; o++) {
                const float dot = sw_warp_sum(dots[o][t]);

                if (threadIdx.x % 32 == 0 && out0 + o < n_out) s.outs[t][out0 + o] = dot;
            }
            squares[t] = sw_warp_sum(squares[t]);
            if (threadIdx.x == 0 && out0 == 0) s.squares[t] = squares[t];
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Rows of x [n, n] divided by their sums, or columns; a lane to each. */
static __device__ void balance(float *x, int n, int step, int next, float eps)
{
    const int i = threadIdx.x % 32;
    float sum = eps;

    for (int k = 0; k < n && i < n; k++) sum += x[i * next + k * step];
    for (int k = 0; k < n && i < n; k++) x[i * next + k * step] /= sum;
    __syncwarp();
}

static __device__ void make_mixture(float *x, const sw_streams_args &a)
{
    const int n = a.n_streams, i = threadIdx.x % 32;

    if (i < n) {
        float top = x[i * n], sum = 0;

        for (int k = 1; k < n; k++) top = fmaxf(top, x[i * n + k]);
        for (int k = 0; k < n; k++) sum += x[i * n + k] = expf(x[i * n + k] - top);
        for (int k = 0; k < n; k++) x[i * n + k] = x[i * n + k] / sum + a.eps;
    }
    __syncwarp();
    balance(x, n, n, 1, a.eps);
    for (int r = 1; r < a.n_rounds; r++) {
        balance(x, n, 1, n, a.eps);
        balance(x, n, n, 1, a.eps);
    }
}

/* What a token's products mean: how much of each stream is read, and (is_mix) what each gets. */
static __device__ void find_shares(mix_state &s, const sw_streams_args &a, int n_out, bool is_mix)
{
    const int t = threadIdx.x / 32, lane = threadIdx.x % 32, n = a.n_streams;
    const int64_t row = (int64_t)blockIdx.x * TOKENS + t;

    if (t < TOKENS && row < a.n) {
        float *x = s.outs[t];
        const float size = (float)n * (float)a.width;
        const float scale = 1.0f / sqrtf(s.squares[t] / size + a.norm_eps);

        for (int i = lane; i < n_out; i += 32) {
            const float v = x[i] * scale * a.scale[i < 2 * n ? i / n : 2] + a.base[i];

            x[i] = i < n ? sigmoid(v) + a.eps : i < 2 * n ? 2.0f * sigmoid(v) : v;
        }
        __syncwarp();
        if (is_mix) {
            make_mixture(x + 2 * n, a);
            for (int i = lane; i < n * (n + 1); i += 32)
                a.coefs[row * n * (n + 1) + i] = x[n + i];
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ float read_streams(const mix_state &s, const sw_streams_args &a,
                                                     int t, int64_t row, int64_t d)
{
    float sum = 0;

    for (int i = 0; i < a.n_streams; i++) sum += s.outs[t][i] * stream_of(a, row, i)[d];
    return sum;
}

static __device__ __forceinline__ void put(sw_bf16_rows to, int64_t row, int64_t d, float x)
{
    to.d[row * to.stride + d] = sw_round16(x);
}

static __device__ __forceinline__ void put(sw_f32_rows to, int64_t row, int64_t d, float x)
{
    to.d[row * to.stride + d] = x;
}

/* grid (tokens / TOKENS) */
template <class Dst>
static __global__ void __launch_bounds__(N_THREADS)
    swk_read_streams(sw_streams_args a, Dst dst, int n_out, bool is_mix)
{
    __shared__ mix_state s;
    const int64_t t0 = (int64_t)blockIdx.x * TOKENS;

    sw_begin();
    project(s, a, n_out);
    find_shares(s, a, n_out, is_mix);
    for (int t = 0; t < TOKENS && t0 + t < a.n; t++)
        for (int64_t d = threadIdx.x; d < a.width; d += N_THREADS)
            put(dst, t0 + t, d, read_streams(s, a, t, t0 + t, d));
}

extern "C" sw_code sw_cuda_streams_mix(const sw_streams_args *a, sw_bf16_rows dst, sw_launch how,
                                       sw_err *err)
{
    return sw_start("residual streams", swk_read_streams<sw_bf16_rows>, sw_blocks(a->n, TOKENS),
                    N_THREADS, 0, how, err, *a, dst, a->n_streams * (a->n_streams + 2), true);
}

extern "C" sw_code sw_cuda_streams_merge(const sw_streams_args *a, sw_launch how, sw_err *err)
{
    const sw_f32_rows dst = {a->x, a->width};

    return sw_start("residual streams", swk_read_streams<sw_f32_rows>, sw_blocks(a->n, TOKENS),
                    N_THREADS, 0, how, err, *a, dst, a->n_streams, false);
}

/* grid (tokens) */
static __global__ void swk_streams_add(sw_streams_args a, sw_bf16_rows src)
{
    __shared__ float s_coefs[SW_STREAMS_MAX * (SW_STREAMS_MAX + 1)];
    const int n = a.n_streams;
    const int64_t row = blockIdx.x;

    sw_begin();
    for (int i = (int)threadIdx.x; i < n * (n + 1); i += N_THREADS)
        s_coefs[i] = a.coefs[row * n * (n + 1) + i];
    __syncthreads();
    for (int64_t d = threadIdx.x; d < a.width; d += N_THREADS) {
        const float in = sw_float(src.d[row * src.stride + d]);
        float old[SW_STREAMS_MAX];

#pragma unroll
        for (int i = 0; i < SW_STREAMS_MAX; i++) old[i] = i < n ? stream_of(a, row, i)[d] : 0.0f;
        for (int k = 0; k < n; k++) {
            float sum = s_coefs[k] * in;

#pragma unroll
            for (int i = 0; i < SW_STREAMS_MAX; i++)
                if (i < n) sum += s_coefs[n + i * n + k] * old[i];
            stream_of(a, row, k)[d] = sum;
        }
    }
}

extern "C" sw_code sw_cuda_streams_add(const sw_streams_args *a, sw_bf16_rows src, sw_launch how,
                                       sw_err *err)
{
    return sw_start("residual streams", swk_streams_add, (unsigned)a->n, N_THREADS, 0, how, err,
                    *a, src);
}

/* grid (tokens) */
static __global__ void swk_streams_begin(sw_streams_args a)
{
    sw_begin();
    for (int64_t d = threadIdx.x; d < a.width; d += N_THREADS)
        for (int i = 1; i < a.n_streams; i++)
            stream_of(a, blockIdx.x, i)[d] = a.x[blockIdx.x * a.width + d];
}

extern "C" sw_code sw_cuda_streams_begin(const sw_streams_args *a, sw_launch how, sw_err *err)
{
    return sw_start("residual streams", swk_streams_begin, (unsigned)a->n, N_THREADS, 0, how, err,
                    *a);
}

static __global__ void swk_keep_ids(sw_f32_rows column, const uint32_t *ids, int64_t n)
{
    const int64_t row = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (row < n) column.d[row * column.stride] = __uint_as_float(ids[row]);
}

extern "C" sw_code sw_cuda_keep_ids(sw_f32_rows column, const uint32_t *ids, int64_t n,
                                    sw_launch how, sw_err *err)
{
    return sw_start("token ids", swk_keep_ids, sw_blocks(n, N_THREADS), N_THREADS, 0, how, err,
                    column, ids, n);
}
