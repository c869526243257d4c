/* solver_split.cu - products of doubles on the tensor cores of 16-bit floats. See
 * solver_internal.cuh.
 *
 * A double is, to 2^-17 of itself, its rounding to BF16 and the rounding of what that leaves. The
 * product of two such sums without that of the small halves is three products of BF16, exact term
 * by term and summed in floats: about 1e-5 of what the terms are worth, which is how well the sums
 * of activations that they are made of are known, at three to four times the rate of doubles.
 */
#include "kernels/cuda/solver/solver_math.cuh"
#include "kernels/solver_sizes.h"

/* grid (rows, columns / 1024), 256 threads: columns [begin, end) of both halves. */
__global__ void swk_split_halves(__nv_bfloat16 *to, int64_t low, int64_t to_stride,
                                 const double *from, int64_t from_stride, int64_t begin,
                                 int64_t end)
{
    int64_t row = blockIdx.x, first = begin + (int64_t)blockIdx.y * 1024;

    for (int64_t c = first + threadIdx.x; c < first + 1024 && c < end; c += 256) {
        double v = from[row * from_stride + c];
        __nv_bfloat16 high = __float2bfloat16_rn((float)v);

        to[row * to_stride + c] = high;
        to[low + row * to_stride + c] =
            __float2bfloat16_rn((float)sub(v, (double)__bfloat162float(high)));
    }
}

extern "C" sw_code sw_solver_halve(sw_solver *s, const sw_halves *to, const double *d_from,
                                   int64_t from_stride, int64_t n_rows, int64_t begin,
                                   int64_t end, sw_err *err)
{
    if (n_rows <= 0 || end <= begin) return SW_OK;
    swk_split_halves<<<dim3((unsigned)n_rows, blocks_for(end - begin, 1024)), 256, 0, s->stream>>>(
        (__nv_bfloat16 *)to->d, to->low, to->stride, d_from, from_stride, begin, end);
    return launched("swk_split_halves", err);
}

extern "C" sw_code sw_halves_new(sw_halves *out, sw_solver *s, int64_t n_rows, int64_t n_cols,
                                 sw_err *err)
{
    sw_halves h = {};
    sw_code rc = SW_SOLVER_TAKE(&h.d, s, 2 * n_rows * n_cols, "halves of doubles", err);

    h.stride = n_cols;
    h.low = n_rows * n_cols;
    if (rc == SW_OK) *out = h;
    return rc;
}

/* grid (rows, columns / 1024), 256 threads: c = alpha (part's row + that of the low half) + beta c.
 */
__global__ void swk_split_join(double *c, int64_t c_stride, const float *part, int64_t part_stride,
                               int64_t n_cols, double alpha, double beta)
{
    int64_t row = blockIdx.x, first = (int64_t)blockIdx.y * 1024;
    const float *high = part + row * part_stride, *low = high + gridDim.x * part_stride;
    double *to = c + row * c_stride;

    for (int64_t j = first + threadIdx.x; j < first + 1024 && j < n_cols; j += 256) {
        double v = mul(alpha, add((double)high[j], (double)low[j]));
        to[j] = beta == 0.0 ? v : add(v, mul(beta, to[j]));
    }
}

/* part [rows, n] = a [rows, k] b [k, n] + beta part, of one half each. */
static sw_code multiply(sw_solver *s, float *d_part, const uint16_t *d_a, int64_t a_stride,
                        const uint16_t *d_b, int64_t b_stride, bool is_b_turned, int64_t n_rows,
                        int64_t n, int64_t k, float beta, sw_err *err)
{
    const float one = 1.0f;
    sw_code rc = SW_OK;

    LIB(s->libs.cublasGemmEx_64_fn(
        s->blas, is_b_turned ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, n, n_rows, k, &one, d_b,
        CUDA_R_16BF, b_stride, d_a, CUDA_R_16BF, a_stride, &beta, d_part, CUDA_R_32F, n,
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
done:
    return rc;
}

/* Columns of C at a time that fit into the room for sums. */
static int64_t columns_at_a_time(int64_t m)
{
    int64_t n = SW_SPLIT_PART_ELEMS / (2 * m) / 64 * 64;

    return n > 64 ? n : 64;
}

extern "C" sw_code sw_halves_product(sw_solver *s, double *d_c, int64_t ldc,
                                     const sw_halves *a, const sw_halves *b, bool is_b_turned,
                                     int64_t m, int64_t n, int64_t k, double alpha, double beta,
                                     sw_err *err)
{
    const int64_t step = columns_at_a_time(m);
    sw_code rc = SW_OK;

    if (m <= 0 || n <= 0) return SW_OK;
    if (!s->d_split_part)
        TRY(SW_SOLVER_TAKE(&s->d_split_part, s, SW_SPLIT_PART_ELEMS, "sums of halves", err));
    for (int64_t at = 0; at < n; at += step) {
        const int64_t width = step < n - at ? step : n - at;
        const uint16_t *d_b = b->d + (is_b_turned ? at * b->stride : at);

        TRY(sw_checked_fill(s->d_split_part, width * 4, width * 4, 2 * m, s->stream, err));
        /* both halves of A, which lie behind each other, by the high half of B */
        TRY(multiply(s, s->d_split_part, a->d, a->stride, d_b, b->stride, is_b_turned, 2 * m,
                     width, k, 0.0f, err));
        TRY(multiply(s, s->d_split_part, a->d, a->stride, d_b + b->low, b->stride, is_b_turned, m,
                     width, k, 1.0f, err));
        swk_split_join<<<dim3((unsigned)m, blocks_for(width, 1024)), 256, 0, s->stream>>>(
            d_c + at, ldc, s->d_split_part, width, width, alpha, beta);
        TRY(launched("swk_split_join", err));
    }
done:
    return rc;
}
