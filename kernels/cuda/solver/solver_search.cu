/* solver_search.cu - what searches for scales ask of a device: columns scaled, products of floats,
 * errors by row. See kernels/solver.h.
 */
#include "formats/base/size.h"
#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/cuda/solver/solver_math.cuh"

/* ---- elementwise: any grid, 256 threads ---- */

#define EACH(i, n) \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

static unsigned grid_for(int64_t n) { return blocks_for(n, 256 * 8); }

__global__ void swk_search_fill(double *to, double value, int64_t n)
{
    EACH(i, n) to[i] = value;
}

extern "C" sw_code sw_solver_fill(sw_solver *s, double *d_to, double value, int64_t n, sw_err *err)
{
    swk_search_fill<<<grid_for(n), 256, 0, s->stream>>>(d_to, value, n);
    return launched("swk_search_fill", err);
}

__global__ void swk_search_scale(float *to, const float *from, const double *scale, int64_t n,
                                 int64_t k, bool divides)
{
    EACH(i, n * k) {
        double v = (double)from[i], by = scale[i % k];
        to[i] = (float)(divides ? __ddiv_rn(v, by) : mul(v, by));
    }
}

extern "C" sw_code sw_solver_scale(sw_solver *s, float *d_to, const float *d_from,
                                   const double *d_scale, int64_t n, int64_t k, bool divides,
                                   sw_err *err)
{
    if (n <= 0) return SW_OK;
    swk_search_scale<<<grid_for(n * k), 256, 0, s->stream>>>(d_to, d_from, d_scale, n, k, divides);
    return launched("swk_search_scale", err);
}

__global__ void swk_search_scale_gram(double *to, const double *from, const double *scale,
                                      int64_t k)
{
    EACH(i, k * k) to[i] = __ddiv_rn(from[i], mul(scale[i / k], scale[i % k]));
}

extern "C" sw_code sw_solver_scale_gram(sw_solver *s, double *d_to, const double *d_from,
                                        const double *d_scale, int64_t k, sw_err *err)
{
    swk_search_scale_gram<<<grid_for(k * k), 256, 0, s->stream>>>(d_to, d_from, d_scale, k);
    return launched("swk_search_scale_gram", err);
}

/* ---- products and their errors ---- */

/* By columns: y^T = w x^T. */
extern "C" sw_code sw_solver_multiply(sw_solver *s, float *d_y, const float *d_x, const float *d_w,
                                      int64_t n, int64_t n_out, int64_t k, sw_err *err)
{
    const float one = 1.0f, zero = 0.0f;
    sw_code rc = SW_OK;

    if (n <= 0) return SW_OK;
    LIB(s->libs.cublasGemmEx_64_fn(s->blas, CUBLAS_OP_T, CUBLAS_OP_N, n_out, n, k, &one, d_w,
                                   CUDA_R_32F, k, d_x, CUDA_R_32F, k, &zero, d_y, CUDA_R_32F,
                                   n_out, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT));
done:
    return rc;
}

/* grid (rows), 256 threads: every 256th element, then a tree of fixed shape. */
__global__ void swk_search_errors(double *out, const float *have, const float *want, int64_t width)
{
    __shared__ double s_sum[256];
    int64_t row = blockIdx.x;
    double sum = 0.0;

    for (int64_t i = threadIdx.x; i < width; i += 256) {
        double e = (double)have[row * width + i] - (want ? (double)want[row * width + i] : 0.0);
        sum += e * e;
    }
    s_sum[threadIdx.x] = sum;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) s_sum[threadIdx.x] += s_sum[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[row] = s_sum[0];
}

extern "C" sw_code sw_solver_row_errors(double *by_row, sw_solver *s, const float *d_have,
                                        const float *d_want, int64_t n, int64_t width, sw_err *err)
{
    double *d_rows = NULL, *rows = NULL;
    sw_code rc = SW_OK;

    if (n <= 0) return SW_OK;
    TRY(SW_SOLVER_TAKE(&d_rows, s, n, "errors of rows", err));
    TRY(SW_MEM_GET(&rows, n, "errors of rows", err));
    swk_search_errors<<<(unsigned)n, 256, 0, s->stream>>>(d_rows, d_have, d_want, width);
    TRY(launched("swk_search_errors", err));
    TRY(sw_device_download(s->gpu, rows, d_rows, n * (int64_t)sizeof *rows, err));
    for (int64_t i = 0; i < n; i++) by_row[i] += rows[i];
done:
    sw_device_put(s->gpu, d_rows);
    sw_mem_put(rows);
    return rc;
}

/* grid (blocks of columns, blocks of rows), 256 threads: the largest magnitude of each block. */
__global__ void swk_search_amax(float *out, const float *w, int64_t n, int64_t k, int64_t rows,
                                int64_t cols)
{
    __shared__ float s_most[256];
    int64_t row0 = blockIdx.y * rows, col0 = blockIdx.x * cols;
    int64_t n_rows = min(rows, n - row0), n_cols = min(cols, k - col0);
    float most = 0.0f;

    for (int64_t i = threadIdx.x; i < n_rows * n_cols; i += 256)
        most = fmaxf(most, fabsf(w[(row0 + i / n_cols) * k + col0 + i % n_cols]));
    s_most[threadIdx.x] = most;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            s_most[threadIdx.x] = fmaxf(s_most[threadIdx.x], s_most[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) out[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = s_most[0];
}

extern "C" sw_code sw_solver_amax(float *amax, sw_solver *s, const float *d_w, int64_t n, int64_t k,
                                  int64_t rows, int64_t cols, sw_err *err)
{
    dim3 grid(blocks_for(k, cols), blocks_for(n, rows));
    int64_t n_blocks = (int64_t)grid.x * grid.y;
    float *d_most = NULL;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&d_most, s, n_blocks, "ranges", err));
    swk_search_amax<<<grid, 256, 0, s->stream>>>(d_most, d_w, n, k, rows, cols);
    TRY(launched("swk_search_amax", err));
    TRY(sw_device_download(s->gpu, amax, d_most, n_blocks * (int64_t)sizeof *amax, err));
done:
    sw_device_put(s->gpu, d_most);
    return rc;
}

/* ---- rounded inputs ---- */

extern "C" sw_code sw_solver_act_round(sw_solver *s, float *d_to, const float *d_x, int64_t n,
                                       int64_t k, const sw_act *act, float input_scale,
                                       sw_err *err)
{
    sw_launch how = {s->stream, false};

    return n > 0 ? sw_cuda_act_round_f32(d_to, d_x, n, k, act, input_scale, how, err) : SW_OK;
}

extern "C" sw_code sw_solver_act_round_bf16(sw_solver *s, uint16_t *d_to, const void *d_x,
                                            int64_t stride, int64_t n, int64_t k,
                                            const sw_act *act, float input_scale, sw_err *err)
{
    sw_bf16_rows to = {d_to, k}, from = {(sw_bf16 *)(uintptr_t)d_x, stride};
    sw_launch how = {s->stream, false};

    return n > 0 ? sw_cuda_act_round(to, from, n, k, act, input_scale, how, err) : SW_OK;
}
