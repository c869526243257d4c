/* engine_family.cu - operations of some families on rows of a block's buffers. See engine_family.h.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_family.h"
#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 256
#define N_WARPS (N_THREADS / 32)

/* ---- element by element ---- */

static __device__ float temper_of(const sw_elements_args &a, int64_t row)
{
    const int64_t position = (a.first ? a.first[row / a.seq_len] : 0) + row % a.seq_len;

    return 1.0f + a.factor * logf(1.0f + (float)((position + a.shift) / a.every));
}

static __device__ float element_of(const sw_elements_args &a, float d, float s, int64_t col)
{
    switch (a.kind) {
    case SW_ELEMENTS_COPY: return s;
    case SW_ELEMENTS_ADD: return d + s;
    case SW_ELEMENTS_GATE: return d / (1.0f + expf(-s));
    case SW_ELEMENTS_FACTOR: return s * a.factor;
    case SW_ELEMENTS_CLIP: return fminf(fmaxf(d, -a.factor), a.factor);
    case SW_ELEMENTS_VECTOR: return d * a.vector[col];
    default: return d;
    }
}

/* grid (rows, parts of a row), a thread to eight neighbours */
static __global__ void swk_elements(sw_elements_args a)
{
    const int64_t row = blockIdx.x, col = 8 * (blockIdx.y * (int64_t)N_THREADS + threadIdx.x);

    sw_begin();
    if (col >= a.width) return;
    sw_bf16 *to = a.dst.d + row * a.dst.stride + col;
    const bool is_made = a.kind == SW_ELEMENTS_COPY || a.kind == SW_ELEMENTS_FACTOR;
    sw_eight d = {}, s = {};

    if (!is_made) d = sw_load8(to);
    if (a.src.d) s = sw_load8(a.src.d + row * a.src.stride + col);
    if (a.kind == SW_ELEMENTS_TEMPER) {
        const float factor = temper_of(a, row);

#pragma unroll
        for (int i = 0; i < 8; i++) d.v[i] *= factor;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) d.v[i] = element_of(a, d.v[i], s.v[i], col + i);
    }
    sw_store8(to, d);
}

static bool reads_src(sw_elements_kind kind)
{
    return kind == SW_ELEMENTS_COPY || kind == SW_ELEMENTS_ADD || kind == SW_ELEMENTS_GATE ||
           kind == SW_ELEMENTS_FACTOR;
}

extern "C" sw_code sw_cuda_elements(const sw_elements_args *a, sw_launch how, sw_err *err)
{
    sw_elements_args own = *a;

    if (a->width % 8) return SW_FAIL(err, SW_E_BUG, "rows of %lld elements", (long long)a->width);
    if (!reads_src(a->kind)) own.src.d = NULL;
    return sw_start("rows", swk_elements,
                    dim3((unsigned)a->n, sw_blocks(a->width / 8, N_THREADS)), N_THREADS, 0, how,
                    err, own);
}

static __global__ void swk_scale(float *x, float factor, const float *d_number, int64_t n)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at < n) x[at] *= d_number ? factor * *d_number : factor;
}

extern "C" sw_code sw_cuda_scale_f32(float *x, float factor, const float *d_number, int64_t n,
                                 sw_launch how, sw_err *err)
{
    return sw_start("factor", swk_scale, sw_blocks(n, N_THREADS), N_THREADS, 0, how, err, x, factor,
                    d_number, n);
}

/* ---- norms of heads ---- */

/* A warp to a head. */
static __global__ void swk_head_norm(sw_head_norm_args a)
{
    const int64_t item = blockIdx.x * (int64_t)N_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, dim = a.head_dim;

    sw_begin();
    if (item >= a.n * a.n_heads) return;
    const int head = (int)(item % a.n_heads);
    sw_bf16 *x = a.x.d + item / a.n_heads * a.x.stride + (int64_t)head * dim;
    const int64_t at = a.has_weight_each ? (int64_t)head * dim : 0;
    float mean = 0, square = 0;

    for (int i = lane; a.bias && i < dim; i += 32) mean += sw_float(x[i]);
    if (a.bias) mean = sw_warp_sum(mean) / (float)dim;
    for (int i = lane; i < dim; i += 32) {
        const float v = sw_float(x[i]) - mean;

        square += v * v;
    }
    const float scale = 1.0f / sqrtf(sw_warp_sum(square) / (float)dim + a.eps);

    for (int i = lane; i < dim; i += 32) {
        float v = (sw_float(x[i]) - mean) * scale;

        if (a.weight) v *= a.weight[at + i];
        if (a.bias) v += a.bias[at + i];
        x[i] = sw_round16(v);
    }
}

extern "C" sw_code sw_cuda_head_norm(const sw_head_norm_args *a, sw_launch how, sw_err *err)
{
    return sw_start("norm of heads", swk_head_norm, sw_blocks(a->n * a->n_heads, N_WARPS),
                    N_THREADS, 0, how, err, *a);
}

/* ---- columns in other places ---- */

/* grid (rows, parts) */
static __global__ void swk_regroup(sw_regroup_args a)
{
    const sw_regroup_part &part = a.part[blockIdx.y];
    const int64_t row = blockIdx.x;

    sw_begin();
    const sw_bf16 *from = a.src.d + row * a.src.stride + part.from;
    sw_bf16 *to = part.dst.d + row * part.dst.stride;

    for (int64_t i = threadIdx.x; i < a.n_groups * part.size; i += blockDim.x)
        to[i] = from[i / part.size * a.group_width + i % part.size];
}

extern "C" sw_code sw_cuda_regroup(const sw_regroup_args *a, sw_launch how, sw_err *err)
{
    return sw_start("columns", swk_regroup, dim3((unsigned)a->n, (unsigned)a->n_parts), N_THREADS,
                    0, how, err, *a);
}

/* ---- what a whole row decides ---- */

/* grid (rows) */
static __global__ void swk_row_gate(sw_bf16_rows dst, sw_bf16_rows src, const sw_bf16 *weight,
                                    int64_t width, int64_t k_in)
{
    __shared__ float s_part[32];
    const int64_t row = blockIdx.x;
    float sum = 0;

    sw_begin();
    for (int64_t i = threadIdx.x; i < k_in; i += blockDim.x)
        sum += sw_float(src.d[row * src.stride + i]) * sw_float(weight[i]);
    const float gate = 1.0f / (1.0f + expf(-sw_block_sum(sum, s_part)));

    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        sw_bf16 *to = dst.d + row * dst.stride + i;

        *to = sw_round16(sw_float(*to) * gate);
    }
}

extern "C" sw_code sw_cuda_row_gate(sw_bf16_rows dst, sw_bf16_rows src, const sw_bf16 *weight,
                                    int64_t n, int64_t width, int64_t k_in, sw_launch how,
                                    sw_err *err)
{
    return sw_start("gate of rows", swk_row_gate, (unsigned)n, N_THREADS, 0, how, err, dst, src,
                    weight, width, k_in);
}

/* grid (rows) */
static __global__ void swk_cut(sw_bf16_rows rows, float cut, int64_t width)
{
    __shared__ float s_part[32];
    sw_bf16 *x = rows.d + blockIdx.x * rows.stride;
    float sum = 0, squares = 0;

    sw_begin();
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += sw_float(x[i]);
    const float mean = sw_block_sum(sum, s_part) / (float)width;

    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float v = sw_float(x[i]) - mean;

        squares += v * v;
    }
    const float least = mean + cut * sqrtf(sw_block_sum(squares, s_part) / (float)width);

    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
        x[i] = sw_round16(fmaxf(sw_float(x[i]) - least, 0.0f));
}

extern "C" sw_code sw_cuda_cut(sw_bf16_rows x, float cut, int64_t n, int64_t width, sw_launch how,
                               sw_err *err)
{
    return sw_start("cut", swk_cut, (unsigned)n, N_THREADS, 0, how, err, x, cut, width);
}

/* grid (rows) */
static __global__ void swk_mean_norm(float *x, const float *weight, const float *bias,
                                     int64_t width, float eps)
{
    __shared__ float s_part[32];
    float *row = x + blockIdx.x * width, sum = 0, squares = 0;

    sw_begin();
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += row[i];
    const float mean = sw_block_sum(sum, s_part) / (float)width;

    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
        squares += (row[i] - mean) * (row[i] - mean);
    const float scale = 1.0f / sqrtf(sw_block_sum(squares, s_part) / (float)width + eps);

    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
        row[i] = (row[i] - mean) * scale * weight[i] + bias[i];
}

extern "C" sw_code sw_cuda_mean_norm(float *x, const float *weight, const float *bias, int64_t n,
                                     int64_t width, float eps, sw_launch how, sw_err *err)
{
    return sw_start("norm of embeddings", swk_mean_norm, (unsigned)n, N_THREADS, 0, how, err, x,
                    weight, bias, width, eps);
}
