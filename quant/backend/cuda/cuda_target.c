/* cuda_target.c - the sums that a linear's target is made of (target.h) on a CUDA device;
 * cpu_target.c says what is computed.
 */
#include "formats/base/size.h"
#include "quant/backend/cuda/cuda.h"

/* Matrices of rows that are worked on at a time. */
typedef struct device_rows {
    double *wide, *sd, *sr, *b, *t; /* [n, k] each */
    int64_t n;
} device_rows;

static sw_code take(double **out, const sw_factor *f, int64_t n_rows, sw_err *err)
{
    return sw_device_take((void **)out, sw_cuda_gpu(&f->place), n_rows * f->k_in,
                          (int64_t)sizeof **out, "target", err);
}

static void put_rows(device_rows *r, const sw_factor *f)
{
    double *taken[] = {r->wide, r->sd, r->sr, r->b, r->t};

    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sw_device_put(sw_cuda_gpu(&f->place), taken[i]);
}

/* n elements of a weight's rows, at `at` of `from`, and where they go. */
typedef sw_code run_of_rows(sw_solver *s, double *d_to, const void *from, int64_t at, int64_t n,
                            sw_err *err);

static sw_code add_run(sw_solver *s, double *d_to, const void *d_from, int64_t at, int64_t n,
                       sw_err *err)
{
    return sw_solver_axpy(s, d_to, 1.0, (const double *)d_from + at, n, err);
}

static sw_code copy_run(sw_solver *s, double *d_to, const void *d_from, int64_t at, int64_t n,
                        sw_err *err)
{
    return sw_solver_copy(s, d_to, (const double *)d_from + at, n * (int64_t)sizeof *d_to, err);
}

/* Of floats in memory. */
static sw_code widen_run(sw_solver *s, double *d_to, const void *from, int64_t at, int64_t n,
                         sw_err *err)
{
    return sw_solver_widen(s, d_to, (const float *)from + at, n, err);
}

/* d_to [n, k] by `run` of the rows of `from` [n_out, k] that the sample has. */
static sw_code put_sample(run_of_rows *run, double *d_to, const void *from,
                          const sw_row_sample *rows, const sw_factor *f, sw_err *err)
{
    const int64_t k = f->k_in, n = sw_row_sample_count(rows);
    sw_row_run next;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i += next.n) {
        next = sw_row_sample_run(rows, i, n);
        rc = run(sw_cuda_solver(&f->place), d_to + i * k, from, next.row * k, next.n * k, err);
    }
    return rc;
}

/* W D of these rows, from the sums or as a product. */
static sw_code times_cross(double *d_to, const device_rows *r, const sw_factor *f,
                           const sw_hessian *hess, const sw_row_sample *rows, sw_err *err)
{
    if (hess->is_weighed) return put_sample(copy_run, d_to, hess->d, rows, f, err);
    return sw_solver_times(sw_cuda_solver(&f->place), d_to, 0.0, 1.0, r->wide, hess->d, r->n,
                           f->k_in, err);
}

static sw_code form_rows(double (*by_row)[5], device_rows *r, const sw_factor *f,
                         const sw_hessian *seen, const sw_hessian *held,
                         const sw_row_sample *rows, bool with_residual, sw_err *err)
{
    int64_t k = f->k_in, n = r->n;
    sw_solver *s = sw_cuda_solver(&f->place);
    sw_code rc;

#define TRY(call) if ((rc = (call)) != SW_OK) return rc
    TRY(times_cross(r->sd, r, f, seen, rows, err));
    TRY(times_cross(r->b, r, f, held, rows, err));
    TRY(sw_solver_times_inverse(s, r->sd, r->t, sw_cuda_factor(f), n, err));
    if (with_residual) {
        TRY(put_sample(copy_run, r->sr, seen->r, rows, f, err));
        TRY(sw_solver_times_inverse(s, r->sr, r->t, sw_cuda_factor(f), n, err));
        TRY(put_sample(add_run, r->b, held->r, rows, f, err));
    }
    TRY(sw_solver_times(s, r->t, 0.0, 1.0, r->sd, held->h, n, k, err));
    TRY(sw_solver_inner_rows(&by_row[0][0], 5, s, r->t, r->sd, n, k, err));
    TRY(sw_solver_inner_rows(&by_row[0][3], 5, s, r->b, r->sd, n, k, err));
    if (!with_residual) return SW_OK;
    TRY(sw_solver_inner_rows(&by_row[0][1], 5, s, r->t, r->sr, n, k, err));
    TRY(sw_solver_times(s, r->t, 0.0, 1.0, r->sr, held->h, n, k, err));
    TRY(sw_solver_inner_rows(&by_row[0][2], 5, s, r->t, r->sr, n, k, err));
    TRY(sw_solver_inner_rows(&by_row[0][4], 5, s, r->b, r->sr, n, k, err));
    return SW_OK;
}

sw_code sw_cuda_target_form(double (*by_row)[5], const sw_factor *f, const sw_hessian *seen,
                            const sw_hessian *held, const float *w, const sw_row_sample *rows,
                            bool with_residual, sw_err *err)
{
    const int64_t n_all = sw_row_sample_count(rows);
    const int64_t n = sw_solver_rows(sw_cuda_solver(&f->place), n_all, 5 * 8 * f->k_in);
    device_rows r = {0};
    sw_code rc = take(&r.wide, f, n, err);

    if (rc == SW_OK) rc = take(&r.sd, f, n, err);
    if (rc == SW_OK && with_residual) rc = take(&r.sr, f, n, err);
    if (rc == SW_OK) rc = take(&r.b, f, n, err);
    if (rc == SW_OK) rc = take(&r.t, f, n, err);
    for (int64_t row = 0; row < n_all && rc == SW_OK; row += n) {
        const sw_row_sample some = sw_row_sample_part(rows, row, sw_min_i64(row + n, n_all));

        r.n = sw_row_sample_count(&some);
        if (!seen->is_weighed) rc = put_sample(widen_run, r.wide, w, &some, f, err);
        if (rc == SW_OK) rc = form_rows(by_row + row, &r, f, seen, held, &some, with_residual, err);
    }
    put_rows(&r, f);
    return rc;
}

static sw_code shift_rows(double *d_shift, device_rows *r, const sw_factor *f,
                          const sw_hessian *hess, const float *w, int64_t row0,
                          sw_strengths strengths, bool with_residual, sw_err *err)
{
    int64_t k = f->k_in;
    sw_solver *s = sw_cuda_solver(&f->place);
    sw_code rc;

    TRY(sw_device_fill(sw_solver_gpu(s), d_shift, 0, r->n * k * (int64_t)sizeof *d_shift, err));
    if (with_residual)
        TRY(sw_solver_axpy(s, d_shift, strengths.residual, hess->r + row0 * k, r->n * k,
                           err));
    if (hess->d && strengths.input > 0 && hess->is_weighed) {
        TRY(sw_solver_axpy(s, d_shift, strengths.input, hess->d + row0 * k, r->n * k, err));
    } else if (hess->d && strengths.input > 0) {
        TRY(sw_solver_widen(s, r->wide, w, r->n * k, err));
        TRY(sw_solver_times(s, d_shift, 1.0, strengths.input, r->wide, hess->d, r->n, k,
                            err));
    }
    TRY(sw_solver_times_inverse(s, d_shift, r->wide, sw_cuda_factor(f), r->n, err));
    return SW_OK;
#undef TRY
}

sw_code sw_cuda_target_shift(double *shift, const sw_factor *f, const sw_hessian *hess,
                             const float *w, int64_t n_out, sw_strengths strengths,
                             bool with_residual, sw_err *err)
{
    int64_t k = f->k_in, n = sw_solver_rows(sw_cuda_solver(&f->place), n_out, 2 * 8 * k);
    device_rows r = {0};
    sw_code rc = take(&r.wide, f, n, err);

    for (int64_t row = 0; row < n_out && rc == SW_OK; row += n) {
        r.n = sw_min_i64(n, n_out - row);
        rc = shift_rows(shift + row * k, &r, f, hess, w + row * k, row, strengths, with_residual,
                        err);
    }
    put_rows(&r, f);
    return rc;
}
