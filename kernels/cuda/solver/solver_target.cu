/* solver_target.cu - rows times the inverse Hessian, and what else targets (quant/method/target.c)
 * and experts (experts.c) ask of a device.
 */
#include "kernels/cuda/solver/solver_math.cuh"
#include "kernels/cuda/solver/solver_product.cuh"
#include "kernels/solver_sizes.h"

/* ---- elementwise: any grid, 256 threads ---- */

#define EACH(i, n) \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

__global__ void swk_target_widen(double *to, const float *from, int64_t n)
{
    EACH(i, n) to[i] = (double)from[i];
}

__global__ void swk_target_widen_bf16(double *to, const __nv_bfloat16 *from, int64_t n)
{
    EACH(i, n) to[i] = (double)__bfloat162float(from[i]);
}

__global__ void swk_target_axpy(double *to, double scale, const double *from, int64_t n)
{
    EACH(i, n) to[i] = add(to[i], mul(scale, from[i]));
}

/* to[:, j] = from[:, perm[j]] */
__global__ void swk_target_gather(double *to, const double *from, const int32_t *perm, int64_t n,
                                  int64_t k)
{
    EACH(i, n * k) to[i] = from[i / k * k + perm[i % k]];
}

__global__ void swk_target_scatter(double *to, const double *from, const int32_t *perm, int64_t n,
                                   int64_t k)
{
    EACH(i, n * k) to[i / k * k + perm[i % k]] = from[i];
}

__global__ void swk_target_divide(double *rows, const double *pivot, int64_t n, int64_t k)
{
    EACH(i, n * k) rows[i] = __ddiv_rn(rows[i], pivot[i % k]);
}

__global__ void swk_target_mix(double *to, double a, const double *x, double b, const double *y,
                               int64_t n)
{
    EACH(i, n) to[i] = add(mul(a, x[i]), mul(b, y[i]));
}

/* m [k, k] over the roots of the pivots of row and column. */
__global__ void swk_target_whiten(double *m, const double *pivot, int64_t k)
{
    EACH(i, k * k) m[i] = __ddiv_rn(m[i], __dsqrt_rn(mul(pivot[i / k], pivot[i % k])));
}

/* rows [n, k] over the roots of the pivots of their columns. */
__global__ void swk_target_root_divide(double *rows, const double *pivot, int64_t n, int64_t k)
{
    EACH(i, n * k) rows[i] = __ddiv_rn(rows[i], __dsqrt_rn(pivot[i % k]));
}

static unsigned grid_for(int64_t n) { return blocks_for(n, 256 * 8); }

extern "C" int64_t sw_solver_rows(const sw_solver *s, int64_t n, int64_t row_bytes)
{
    return sw_solver_rows_in(s->work_bytes, n, row_bytes);
}

extern "C" sw_code sw_solver_widen(sw_solver *s, double *d_to, const float *from, int64_t n,
                                   sw_err *err)
{
    float *d_from = NULL;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&d_from, s, n, "weight", err));
    TRY(sw_device_upload(s->gpu, d_from, from, n * (int64_t)sizeof *from, err));
    swk_target_widen<<<grid_for(n), 256, 0, s->stream>>>(d_to, d_from, n);
    TRY(launched("swk_target_widen", err));
done:
    sw_device_put(s->gpu, d_from);
    return rc;
}

extern "C" sw_code sw_solver_axpy(sw_solver *s, double *d_to, double scale, const double *d_from,
                                  int64_t n, sw_err *err)
{
    swk_target_axpy<<<grid_for(n), 256, 0, s->stream>>>(d_to, scale, d_from, n);
    return launched("swk_target_axpy", err);
}

static sw_code times_by_halves(sw_solver *s, double *d_out, double beta, double alpha,
                               const double *d_a, const double *d_b, int64_t n, int64_t k,
                               sw_err *err)
{
    sw_halves a = {}, b = {};
    sw_code rc;

    TRY(sw_halves_new(&a, s, n, k, err));
    TRY(sw_halves_new(&b, s, k, k, err));
    TRY(sw_solver_halve(s, &a, d_a, k, n, 0, k, err));
    TRY(sw_solver_halve(s, &b, d_b, k, k, 0, k, err));
    TRY(sw_halves_product(s, d_out, k, &a, &b, false, n, k, k, alpha, beta, err));
done:
    sw_device_put(s->gpu, a.d);
    sw_device_put(s->gpu, b.d);
    return rc;
}

extern "C" sw_code sw_solver_times(sw_solver *s, double *d_out, double beta, double alpha,
                                   const double *d_a, const double *d_b, int64_t n, int64_t k,
                                   sw_err *err)
{
    if (sw_solver_splits(k)) return times_by_halves(s, d_out, beta, alpha, d_a, d_b, n, k, err);
    return sw_solver_times_exactly(s, d_out, beta, alpha, d_a, d_b, n, k, err);
}

extern "C" sw_code sw_solver_times_exactly(sw_solver *s, double *d_out, double beta, double alpha,
                                           const double *d_a, const double *d_b, int64_t n,
                                           int64_t k, sw_err *err)
{
    return sw_solver_dgemm(s, d_out, k, d_a, k, d_b, k, n, k, k, alpha, beta, err);
}

extern "C" sw_code sw_solver_take_product(sw_solver *s, double *d_out, const uint16_t *d_w,
                                          const double *d_b, int64_t n, int64_t k, sw_err *err)
{
    const int64_t n_rows = sw_solver_rows(s, n, 8 * k);
    double *d_wide = NULL;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&d_wide, s, n_rows * k, "weight", err));
    for (int64_t row = 0; row < n; row += n_rows) {
        const int64_t some = n_rows < n - row ? n_rows : n - row;

        swk_target_widen_bf16<<<grid_for(some * k), 256, 0, s->stream>>>(
            d_wide, (const __nv_bfloat16 *)d_w + row * k, some * k);
        TRY(launched("swk_target_widen_bf16", err));
        TRY(sw_solver_times(s, d_out + row * k, 1.0, -1.0, d_wide, d_b, some, k, err));
    }
done:
    sw_device_put(s->gpu, d_wide);
    return rc;
}

#define UNIT_COLS 512 /* of a triangle at a time */

/* Columns [at, end) of rows U^T or rows U, of whose inputs [first, last) count. */
typedef struct unit_columns {
    int64_t at, end, first, last;
    int64_t u; /* where what they are multiplied by begins in U */
} unit_columns;

static unit_columns columns_from(int64_t at, int64_t k, bool is_turned)
{
    unit_columns c = {};

    c.at = at;
    c.end = at + UNIT_COLS < k ? at + UNIT_COLS : k;
    c.first = is_turned ? at : 0;
    c.last = is_turned ? k : c.end;
    c.u = is_turned ? at * k + c.first : at;
    return c;
}

/* to <- rows U^T or rows U, [n, k]; below its diagonal U is 0. */
static sw_code times_unit(sw_solver *s, double *d_to, const double *d_from,
                          const sw_device_factor *f, int64_t n, bool is_turned, sw_err *err)
{
    const int64_t k = f->k_in;
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < k && rc == SW_OK; at += UNIT_COLS) {
        const unit_columns c = columns_from(at, k, is_turned);
        sw_row_product p = {};

        p.is_b_turned = is_turned;
        p.m = n, p.n = c.end - c.at, p.k = c.last - c.first;
        p.d_a = d_from + c.first, p.d_b = f->d_u + c.u, p.d_c = d_to + at;
        p.lda = p.ldb = p.ldc = k;
        p.alpha = 1.0;
        rc = sw_solver_multiply_rows(s, &p, err);
    }
    return rc;
}

/* The same by halves; the rows are in `from`. */
static sw_code times_unit_halves(sw_solver *s, double *d_to, const sw_halves *from,
                                 const sw_device_factor *f, int64_t n, bool is_turned, sw_err *err)
{
    const int64_t k = f->k_in;
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < k && rc == SW_OK; at += UNIT_COLS) {
        const unit_columns c = columns_from(at, k, is_turned);
        const sw_halves rows = {from->d + c.first, k, from->low};
        const sw_halves u = {f->d_u_halves + c.u, k, k * k};

        rc = sw_halves_product(s, d_to + at, k, &rows, &u, is_turned, n, c.end - c.at,
                               c.last - c.first, 1.0, 0.0, err);
    }
    return rc;
}

/* As below. */
static sw_code times_inverse_halves(sw_solver *s, double *d_rows, double *d_scratch,
                                    const sw_device_factor *f, int64_t n, sw_err *err)
{
    const int64_t k = f->k_in;
    const unsigned grid = grid_for(n * k);
    sw_halves h = {};
    sw_code rc;

    TRY(sw_halves_new(&h, s, n, k, err));
    swk_target_gather<<<grid, 256, 0, s->stream>>>(d_scratch, d_rows, f->d_perm, n, k);
    TRY(launched("swk_target_gather", err));
    TRY(sw_solver_halve(s, &h, d_scratch, k, n, 0, k, err));
    TRY(times_unit_halves(s, d_rows, &h, f, n, true, err));
    swk_target_divide<<<grid, 256, 0, s->stream>>>(d_rows, f->d_pivot, n, k);
    TRY(launched("swk_target_divide", err));
    TRY(sw_solver_halve(s, &h, d_rows, k, n, 0, k, err));
    TRY(times_unit_halves(s, d_scratch, &h, f, n, false, err));
    swk_target_scatter<<<grid, 256, 0, s->stream>>>(d_rows, d_scratch, f->d_perm, n, k);
    TRY(launched("swk_target_scatter", err));
done:
    sw_device_put(s->gpu, h.d);
    return rc;
}

/* inv(H) = U^T diag(1 / pivot) U in perm order, U unit upper: what is in that order changes between
 * scratch and rows. */
extern "C" sw_code sw_solver_times_inverse(sw_solver *s, double *d_rows, double *d_scratch,
                                           const sw_device_factor *f, int64_t n, sw_err *err)
{
    int64_t k = f->k_in;
    unsigned grid = grid_for(n * k);
    sw_code rc;

    if (f->d_u_halves) return times_inverse_halves(s, d_rows, d_scratch, f, n, err);
    swk_target_gather<<<grid, 256, 0, s->stream>>>(d_scratch, d_rows, f->d_perm, n, k);
    TRY(launched("swk_target_gather", err));
    TRY(times_unit(s, d_rows, d_scratch, f, n, true, err));
    swk_target_divide<<<grid, 256, 0, s->stream>>>(d_rows, f->d_pivot, n, k);
    TRY(launched("swk_target_divide", err));
    TRY(times_unit(s, d_scratch, d_rows, f, n, false, err));
    swk_target_scatter<<<grid, 256, 0, s->stream>>>(d_rows, d_scratch, f->d_perm, n, k);
    TRY(launched("swk_target_scatter", err));
done:
    return rc;
}

extern "C" sw_code sw_solver_inner_rows(double *by_row, int64_t stride, sw_solver *s,
                                        const double *d_a, const double *d_b, int64_t n,
                                        int64_t k, sw_err *err)
{
    double *d_rows = NULL, *rows = NULL;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&d_rows, s, n, "inner products", err));
    TRY(SW_MEM_GET(&rows, n, "inner products", err));
    TRY(sw_rows_dot(d_rows, d_a, d_b, n, k, s->stream, err));
    TRY(sw_device_download(s->gpu, rows, d_rows, n * (int64_t)sizeof *rows, err));
    for (int64_t i = 0; i < n; i++) by_row[i * stride] = rows[i];
done:
    sw_device_put(s->gpu, d_rows);
    sw_mem_put(rows);
    return rc;
}

extern "C" sw_code sw_solver_inner(double *sum, sw_solver *s, const double *d_a, const double *d_b,
                                   int64_t n, int64_t k, sw_err *err)
{
    double *rows = NULL;
    sw_code rc;

    TRY(SW_MEM_GET(&rows, n, "inner products", err));
    TRY(sw_solver_inner_rows(rows, 1, s, d_a, d_b, n, k, err));
    for (int64_t i = 0; i < n; i++) *sum += rows[i];
done:
    sw_mem_put(rows);
    return rc;
}

extern "C" sw_code sw_solver_mix(sw_solver *s, double *d_to, double a, const double *d_a, double b,
                                 const double *d_b, int64_t n, sw_err *err)
{
    swk_target_mix<<<grid_for(n), 256, 0, s->stream>>>(d_to, a, d_a, b, d_b, n);
    return launched("swk_target_mix", err);
}

/* By columns U is lower and turned: U M, then M U^T. */
extern "C" sw_code sw_solver_whiten(sw_solver *s, double *d_m, const sw_device_factor *f,
                                    sw_err *err)
{
    const double one = 1.0;
    int64_t k = f->k_in;
    sw_code rc;

    LIB(s->libs.cublasDtrmm_v2_64_fn(s->blas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                     CUBLAS_OP_T, CUBLAS_DIAG_UNIT, k, k, &one, f->d_u, k, d_m, k,
                                     d_m, k));
    LIB(s->libs.cublasDtrmm_v2_64_fn(s->blas, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER,
                                     CUBLAS_OP_N, CUBLAS_DIAG_UNIT, k, k, &one, f->d_u, k, d_m, k,
                                     d_m, k));
    swk_target_whiten<<<grid_for(k * k), 256, 0, s->stream>>>(d_m, f->d_pivot, k);
    TRY(launched("swk_target_whiten", err));
done:
    return rc;
}

static sw_code divide_by_roots(sw_solver *s, double *d_rows, const sw_device_factor *f, int64_t n,
                               sw_err *err)
{
    swk_target_root_divide<<<grid_for(n * f->k_in), 256, 0, s->stream>>>(d_rows, f->d_pivot, n,
                                                                         f->k_in);
    return launched("swk_target_root_divide", err);
}

/* W is U with its rows over the roots of the pivots; rows are columns to the library. */
extern "C" sw_code sw_solver_whiten_rows(sw_solver *s, double *d_rows, const sw_device_factor *f,
                                         int64_t n, bool is_turned, sw_err *err)
{
    const double one = 1.0;
    const int64_t k = f->k_in;
    sw_code rc;

    if (!is_turned) TRY(divide_by_roots(s, d_rows, f, n, err));
    LIB(s->libs.cublasDtrmm_v2_64_fn(s->blas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                     is_turned ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_DIAG_UNIT, k, n,
                                     &one, f->d_u, k, d_rows, k, d_rows, k));
    if (is_turned) TRY(divide_by_roots(s, d_rows, f, n, err));
    rc = SW_OK;
done:
    return rc;
}
