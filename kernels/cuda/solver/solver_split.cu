/* solver_split.cu - products of doubles on the tensor cores of 16-bit floats. See
 * solver_internal.cuh.
 *
 * A double is, to 2^-17 of itself, its rounding to BF16 and the rounding of what that leaves. The
 * product of two such sums without that of the small halves is three products of BF16, exact term
 * by term and summed in floats: about 1e-5 of what the terms are worth, which is how well the sums
 * of activations that they are made of are known, at three to four times the rate of doubles.
 */
#include "kernels/cuda/solver/solver_math.cuh"
#include "kernels/cuda/solver/solver_product.cuh"
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

/* Columns of C at a time, for which there is room whatever the rows: a product's bytes are those of
 * its shape. */
#define COLUMNS (SW_SPLIT_PART_ELEMS / (2 * SW_SOLVER_ROWS))

/* part [2, m, width] = both halves of A by B's high half, plus A's high by B's low. */
static sw_code multiply(sw_solver *s, const sw_halves *a, const sw_halves *b, int64_t at,
                        int64_t width, bool is_b_turned, int64_t m, int64_t k, sw_err *err)
{
    sw_row_product p = {};
    sw_code rc;

    p.is_bf16 = true;
    p.is_b_turned = is_b_turned;
    p.m = m, p.n = width, p.k = k;
    p.d_a = a->d, p.lda = a->stride;
    p.d_b = b->d + (is_b_turned ? at * b->stride : at), p.ldb = b->stride;
    p.d_c = s->d_split_part, p.ldc = width;
    p.alpha = 1.0;
    TRY(sw_solver_multiply_halves(s, &p, a->low, m * width, err));
    p.d_b = (const uint16_t *)p.d_b + b->low;
    p.beta = 1.0;
    TRY(sw_solver_multiply_rows(s, &p, err));
done:
    return rc;
}

extern "C" sw_code sw_halves_product(sw_solver *s, double *d_c, int64_t ldc,
                                     const sw_halves *a, const sw_halves *b, bool is_b_turned,
                                     int64_t m, int64_t n, int64_t k, double alpha, double beta,
                                     sw_err *err)
{
    sw_code rc = SW_OK;

    if (m <= 0 || n <= 0) return SW_OK;
    if (m > SW_SOLVER_ROWS)
        return SW_FAIL(err, SW_E_BUG, "a product of %lld rows at a time", (long long)m);
    if (!s->d_split_part)
        TRY(SW_SOLVER_TAKE(&s->d_split_part, s, SW_SPLIT_PART_ELEMS, "sums of halves", err));
    for (int64_t at = 0; at < n; at += COLUMNS) {
        const int64_t width = COLUMNS < n - at ? COLUMNS : n - at;

        TRY(sw_checked_fill(s->d_split_part, width * 4, width * 4, 2 * m, s->stream, err));
        TRY(multiply(s, a, b, at, width, is_b_turned, m, k, err));
        swk_split_join<<<dim3((unsigned)m, blocks_for(width, 1024)), 256, 0, s->stream>>>(
            d_c + at, ldc, s->d_split_part, width, width, alpha, beta);
        TRY(launched("swk_split_join", err));
    }
done:
    return rc;
}
