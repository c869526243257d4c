/* solver_gram.cu - sums of products of activations on the tensor cores. See kernels/solver.h.
 *
 * G is cut into strips of rows; a symmetric one takes only what lies right of the strip's first
 * row, so that strips of 1024 do 54 to 62 % of the whole product's work. cuBLAS has no syrk of
 * bf16.
 */
#include <string.h>

#include "kernels/cuda/solver/solver_math.cuh"

#define STRIP_ROWS 1024 /* measured best from 4096 to 14336 columns */

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

extern "C" sw_code sw_gram_new(sw_gram *out, sw_solver *s, int64_t n_rows, int64_t n_cols,
                               bool is_symmetric, sw_err *err)
{
    sw_gram g = {};
    int64_t n = n_rows * n_cols;
    sw_code rc;

    g.n_rows = n_rows;
    g.n_cols = n_cols;
    g.is_symmetric = is_symmetric;
    g.strip_rows = is_symmetric ? STRIP_ROWS : n_rows;
    TRY(SW_SOLVER_TAKE(&g.d_sum, s, n, "Hessian", err));
    CUDA(cudaMemsetAsync(g.d_sum, 0, (size_t)n * sizeof *g.d_sum, s->stream));
    *out = g;
    return SW_OK;
done:
    sw_gram_free(&g, s);
    return rc;
}

extern "C" void sw_gram_free(sw_gram *g, sw_solver *s)
{
    sw_device_put(s->gpu, g->d_sum);
    sw_device_put(s->gpu, g->d_piece);
    sw_device_put(s->gpu, g->d_part);
    memset(g, 0, sizeof *g);
}

/* grid (rows, columns / 256), 256 threads: the sums take over a chunk; of a symmetric one its upper
 * triangle. */
__global__ void swk_gram_flush(double *sum, const float *part, int64_t n_cols, bool is_symmetric)
{
    int64_t row = blockIdx.x, col = (int64_t)blockIdx.y * 256 + threadIdx.x;

    if (col >= n_cols || (is_symmetric && col < row)) return;
    sum[row * n_cols + col] += (double)part[row * n_cols + col];
}

static sw_code flush(sw_gram *g, double *d_sum, sw_solver *s, sw_err *err)
{
    dim3 grid((unsigned)g->n_rows, blocks_for(g->n_cols, 256));

    if (!g->n_part) return SW_OK;
    swk_gram_flush<<<grid, 256, 0, s->stream>>>(d_sum, g->d_part, g->n_cols, g->is_symmetric);
    g->n_part = 0;
    return launched("swk_gram_flush", err);
}

/* A chunk that is full: of the first piece into the sum, of others into one of the piece's own. */
static sw_code flush_chunk(sw_gram *g, sw_solver *s, sw_err *err)
{
    const int64_t n = g->n_rows * g->n_cols;
    sw_code rc = SW_OK;

    if (g->has_pieces && !g->d_piece) {
        TRY(SW_SOLVER_TAKE(&g->d_piece, s, n, "Hessian of a piece", err));
        CUDA(cudaMemsetAsync(g->d_piece, 0, (size_t)n * sizeof *g->d_piece, s->stream));
    }
    rc = flush(g, g->d_piece ? g->d_piece : g->d_sum, s, err);
done:
    return rc;
}

/* part += a^T b for tokens of one chunk. */
static sw_code add_chunk(sw_gram *g, sw_solver *s, const uint16_t *d_a, int64_t a_stride,
                         const uint16_t *d_b, int64_t b_stride, int64_t n_tokens, sw_err *err)
{
    float one = 1.0f, beta = g->n_part ? 1.0f : 0.0f;
    int64_t step = g->strip_rows;
    sw_code rc = SW_OK;

    if (!g->d_part)
        TRY(SW_SOLVER_TAKE(&g->d_part, s, g->n_rows * g->n_cols, "Hessian of a chunk", err));

    for (int64_t row = 0; row < g->n_rows; row += step) {
        int64_t from = g->is_symmetric ? row : 0, n = at_most(step, g->n_rows - row);
        float *to = g->d_part + row * g->n_cols + from;

        if (!g->n_part)
            TRY(sw_checked_fill(to, g->n_cols * 4, (g->n_cols - from) * 4, n, s->stream, err));
        LIB(s->libs.cublasGemmEx_64_fn(
            s->blas, CUBLAS_OP_N, CUBLAS_OP_T, g->n_cols - from, n, n_tokens,
            &one, d_b + from, CUDA_R_16BF, b_stride, d_a + row, CUDA_R_16BF, a_stride,
            &beta, to, CUDA_R_32F, g->n_cols, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    g->n_part += n_tokens;
done:
    return rc;
}

extern "C" sw_code sw_gram_add(sw_gram *g, sw_solver *s, const uint16_t *d_a, int64_t a_stride,
                               const uint16_t *d_b, int64_t b_stride, int64_t n_tokens,
                               sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < n_tokens && rc == SW_OK;) {
        int64_t n = at_most(SW_GRAM_CHUNK_TOKENS - g->n_part, n_tokens - at);
        rc = add_chunk(g, s, d_a + at * a_stride, a_stride, d_b + at * b_stride, b_stride, n, err);
        if (rc == SW_OK && g->n_part == SW_GRAM_CHUNK_TOKENS) rc = flush_chunk(g, s, err);
        at += n;
    }
    if (rc == SW_OK) g->n_tokens += n_tokens;
    return rc;
}

/* grid (tiles, tiles) of 32 x 32, block (32, 8): the lower triangle from the upper. */
__global__ void swk_gram_mirror(double *sum, int64_t n)
{
    __shared__ double s_tile[32][33];
    int64_t row0 = (int64_t)blockIdx.y * 32, col0 = (int64_t)blockIdx.x * 32;

    if (col0 < row0) return;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (row0 + i < n && col0 + threadIdx.x < n)
            s_tile[i][threadIdx.x] = sum[(row0 + i) * n + col0 + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) {
        int64_t row = col0 + i, col = row0 + threadIdx.x;
        if (row < n && col < n && col < row) sum[row * n + col] = s_tile[threadIdx.x][i];
    }
}

/* Any grid, 256 threads. */
__global__ void swk_gram_merge(double *into, const double *from, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        into[i] += from[i];
}

static sw_code merge(sw_gram *into, const double *d_from, sw_solver *s, sw_err *err)
{
    int64_t n = into->n_rows * into->n_cols;

    swk_gram_merge<<<blocks_for(n, 256 * 8), 256, 0, s->stream>>>(into->d_sum, d_from, n);
    return launched("swk_gram_merge", err);
}

extern "C" sw_code sw_gram_end_piece(sw_gram *g, sw_solver *s, sw_err *err)
{
    sw_code rc = flush(g, g->d_piece ? g->d_piece : g->d_sum, s, err);

    if (rc == SW_OK && g->d_piece) rc = merge(g, g->d_piece, s, err);
    sw_device_put(s->gpu, g->d_piece);
    sw_device_put(s->gpu, g->d_part);
    g->d_piece = NULL;
    g->d_part = NULL;
    g->has_pieces = g->n_tokens > 0;
    return rc;
}

extern "C" sw_code sw_gram_finish(sw_gram *g, sw_solver *s, sw_err *err)
{
    unsigned tiles = blocks_for(g->n_rows, 32);
    sw_code rc = sw_gram_end_piece(g, s, err);

    if (rc != SW_OK || !g->is_symmetric) return rc;
    swk_gram_mirror<<<dim3(tiles, tiles), dim3(32, 8), 0, s->stream>>>(g->d_sum, g->n_rows);
    return launched("swk_gram_mirror", err);
}

extern "C" sw_code sw_gram_merge(sw_gram *into, const sw_gram *from, sw_solver *s, sw_err *err)
{
    into->n_tokens += from->n_tokens;
    into->has_pieces = into->n_tokens > 0;
    return merge(into, from->d_sum, s, err);
}

/* 256 threads an element each. */
__global__ void swk_diagonal(double *out, const double *h, int64_t k)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i < k) out[i] = h[i * k + i];
}

sw_code sw_solver_take_diagonal(double *d_out, sw_solver *s, const double *d_h, int64_t k,
                                sw_err *err)
{
    swk_diagonal<<<blocks_for(k, 256), 256, 0, s->stream>>>(d_out, d_h, k);
    return launched("swk_diagonal", err);
}

extern "C" sw_code sw_solver_diagonal(double *diagonal, sw_solver *s, const double *d_h, int64_t k,
                                      sw_err *err)
{
    double *d = NULL;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&d, s, k, "diagonal", err));
    TRY(sw_solver_take_diagonal(d, s, d_h, k, err));
    TRY(sw_device_download(s->gpu, diagonal, d, k * (int64_t)sizeof *d, err));
done:
    sw_device_put(s->gpu, d);
    return rc;
}

/* Any grid, 256 threads. */
__global__ void swk_solver_to_bf16(__nv_bfloat16 *to, const float *x, const float *y, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = __float2bfloat16_rn(y ? __fsub_rn(x[i], y[i]) : x[i]);
}

extern "C" sw_code sw_solver_to_bf16(sw_solver *s, uint16_t *d_to, const float *d_x,
                                     const float *d_y, int64_t n, sw_err *err)
{
    if (n <= 0) return SW_OK;
    swk_solver_to_bf16<<<blocks_for(n, 256 * 8), 256, 0, s->stream>>>((__nv_bfloat16 *)d_to, d_x,
                                                                     d_y, n);
    return launched("swk_solver_to_bf16", err);
}

extern "C" sw_code sw_solver_copy(sw_solver *s, void *d_to, const void *d_from, int64_t n_bytes,
                                  sw_err *err)
{
    return sw_device_check((int)cudaMemcpyAsync(d_to, d_from, (size_t)n_bytes,
                                                cudaMemcpyDeviceToDevice, s->stream),
                           "a copy on the device", err);
}

/* `from` divided by scale, unless that is NULL, less x; without `from` x itself. */
static __device__ __forceinline__ __nv_bfloat16 kept(__nv_bfloat16 x, const __nv_bfloat16 *from,
                                                     const float *scale)
{
    float f;

    if (!from) return x;
    f = __bfloat162float(*from);
    if (scale) f = __fdiv_rn(f, *scale);
    return __float2bfloat16_rn(__fsub_rn(f, __bfloat162float(x)));
}

/* grid (rows, columns / 1024), 256 threads. */
__global__ void swk_solver_keep(__nv_bfloat16 *to, const __nv_bfloat16 *from,
                                const __nv_bfloat16 *x, const float *scale, int64_t stride,
                                int64_t k)
{
    int64_t row = blockIdx.x, begin = (int64_t)blockIdx.y * 1024;

    for (int64_t c = begin + threadIdx.x; c < begin + 1024 && c < k; c += 256)
        to[row * k + c] = kept(x[row * stride + c], from ? &from[row * k + c] : NULL,
                               scale ? &scale[c] : NULL);
}

/* grid (rows, columns / 2048), 256 threads, 8 columns each; all rows 16-byte aligned. */
__global__ void swk_solver_keep8(uint4 *to, const uint4 *from, const uint4 *x, const float *scale,
                                 int64_t stride8, int64_t k8)
{
    int64_t row = blockIdx.x, c = (int64_t)blockIdx.y * 256 + threadIdx.x;
    uint4 v, f;
    __nv_bfloat16 *e = (__nv_bfloat16 *)&v;

    if (c >= k8) return;
    v = x[row * stride8 + c];
    if (from) {
        f = from[row * k8 + c];
#pragma unroll
        for (int i = 0; i < 8; i++)
            e[i] = kept(e[i], (const __nv_bfloat16 *)&f + i, scale ? &scale[c * 8 + i] : NULL);
    }
    to[row * k8 + c] = v;
}

static bool is_aligned(const void *d) { return ((uintptr_t)d & 15) == 0; }

extern "C" sw_code sw_solver_keep(sw_solver *s, uint16_t *d_to, const uint16_t *d_from,
                                  const float *d_scale, const void *d_x, int64_t stride, int64_t n,
                                  int64_t k, sw_err *err)
{
    if (n <= 0) return SW_OK;
    if (k % 8 == 0 && stride % 8 == 0 && is_aligned(d_to) && is_aligned(d_from) && is_aligned(d_x))
        swk_solver_keep8<<<dim3((unsigned)n, blocks_for(k, 2048)), 256, 0, s->stream>>>(
            (uint4 *)d_to, (const uint4 *)d_from, (const uint4 *)d_x, d_scale, stride / 8, k / 8);
    else
        swk_solver_keep<<<dim3((unsigned)n, blocks_for(k, 1024)), 256, 0, s->stream>>>(
            (__nv_bfloat16 *)d_to, (const __nv_bfloat16 *)d_from, (const __nv_bfloat16 *)d_x,
            d_scale, stride, k);
    return launched("swk_solver_keep", err);
}
