/* cpu_factor.c - the factor of a Hessian in memory (factor.h) on the CPU. */
#include <lapacke.h>
#include <string.h>

#include "quant/backend/cpu/cpu.h"

sw_code sw_cpu_factor_new(sw_factor *f, const sw_hessian *hess, const double *diagonal,
                          sw_err *err)
{
    int64_t k = f->k_in;
    sw_code rc;

    if ((rc = SW_MEM_GET(&f->pivot, k, "pivots", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&f->h, k * k, "damped Hessian", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&f->u, k * k, "inverse factor", err)) != SW_OK) return rc;
    memcpy(f->h, hess->h, (size_t)(k * k) * sizeof *f->h);
    for (int64_t j = 0; j < k; j++) f->h[j * k + j] = diagonal[j];
    return SW_OK;
}

void sw_cpu_factor_free(sw_factor *f)
{
    sw_mem_put(f->pivot);
    sw_mem_put(f->h);
    sw_mem_put(f->u);
}

/* u = reversed and permuted H + damp, so that its lower factor becomes inv(U) after reversal. */
static void load_reversed(sw_factor *f, double lambda)
{
    int64_t k = f->k_in;

    for (int64_t i = 0; i < k; i++) {
        const double *row = f->h + (int64_t)f->perm[k - 1 - i] * k;
        for (int64_t j = 0; j <= i; j++) f->u[i * k + j] = row[f->perm[k - 1 - j]];
        f->u[i * k + i] += lambda;
    }
}

sw_code sw_cpu_factor_try(bool *is_definite, sw_factor *f, double lambda, sw_err *err)
{
    lapack_int k = (lapack_int)f->k_in;

    (void)err;
    load_reversed(f, lambda);
    /* lower by rows is upper by columns: no transposed copy */
    *is_definite = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', k, f->u, k) == 0;
    return SW_OK;
}

/* inv(L) reversed is U; scale its rows to a unit diagonal and keep the pivots. */
static sw_code invert(sw_factor *f, sw_err *err)
{
    int64_t k = f->k_in;

    if (LAPACKE_dtrtri(LAPACK_COL_MAJOR, 'U', 'N', (lapack_int)k, f->u, (lapack_int)k) != 0)
        return SW_FAIL(err, SW_E_FORMAT, "the Hessian's factor has a zero on its diagonal");
    for (int64_t i = 0; i < k / 2; i++) { /* rotate by half a turn: (i, j) <-> (k-1-i, k-1-j) */
        double *a = f->u + i * k, *b = f->u + (k - 1 - i) * k;
        for (int64_t j = 0; j < k; j++) {
            double t = a[j];
            a[j] = b[k - 1 - j];
            b[k - 1 - j] = t;
        }
    }
    if (k % 2) {
        double *row = f->u + (k / 2) * k;
        for (int64_t j = 0; j < k / 2; j++) {
            double t = row[j];
            row[j] = row[k - 1 - j];
            row[k - 1 - j] = t;
        }
    }
    for (int64_t i = 0; i < k; i++) {
        double *row = f->u + i * k, unit = row[i];
        f->pivot[i] = 1.0 / (unit * unit);
        for (int64_t j = 0; j < k; j++) row[j] = j < i ? 0.0 : row[j] / unit;
    }
    return SW_OK;
}

sw_code sw_cpu_factor_finish(sw_factor *f, double lambda, sw_err *err)
{
    int64_t k = f->k_in;
    sw_code rc = invert(f, err);

    if (rc != SW_OK) return rc;
    for (int64_t j = 0; j < k; j++) f->h[j * k + j] += lambda;
    return SW_OK;
}

sw_code sw_cpu_factor_costs(double *diagonal, double *by_step, const sw_factor *f, sw_err *err)
{
    int64_t k = f->k_in;

    (void)err;
    memcpy(by_step, f->pivot, (size_t)k * sizeof *by_step);
    for (int64_t j = 0; j < k; j++) diagonal[j] = f->h[j * (k + 1)];
    return SW_OK;
}
