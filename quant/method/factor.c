/* factor.c - see factor.h. */
#include "quant/method/factor.h"

#include <cblas.h>
#include <lapacke.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"

#define DAMP_RETRIES_MAX 12
#define DAMP_GROWTH 2.0
#define DAMP_CEILING 1.0

/* Descending by diagonal, ties by column: qsort is not stable, so the tie rule is spelled out. */
typedef struct column_rank {
    double diagonal;
    int32_t column;
} column_rank;

static int by_falling_diagonal(const void *a, const void *b)
{
    const column_rank *x = a, *y = b;

    if (x->diagonal != y->diagonal) return x->diagonal > y->diagonal ? -1 : 1;
    return x->column < y->column ? -1 : 1;
}

static void rank_columns(column_rank *ranks, const double *diagonal, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++) {
        ranks[j].diagonal = diagonal[j];
        ranks[j].column = (int32_t)j;
    }
    qsort(ranks + from, (size_t)(to - from), sizeof *ranks, by_falling_diagonal);
}

/* Sort inside each group, then emit the groups by their largest diagonal. */
static sw_code order_gar(int32_t *perm, column_rank *ranks, const double *diagonal, int64_t k,
                         int64_t group_elems, sw_err *err)
{
    int64_t n_groups = sw_ceil_div(k, group_elems), at = 0;
    column_rank *heads = NULL;
    sw_code rc = SW_MEM_GET(&heads, n_groups, "group order", err);

    if (rc != SW_OK) return rc;
    for (int64_t g = 0; g < n_groups; g++) {
        int64_t from = g * group_elems, to = sw_min_i64(from + group_elems, k);
        rank_columns(ranks, diagonal, from, to);
        heads[g].diagonal = ranks[from].diagonal;
        heads[g].column = (int32_t)g;
    }
    qsort(heads, (size_t)n_groups, sizeof *heads, by_falling_diagonal);
    for (int64_t g = 0; g < n_groups; g++) {
        int64_t from = heads[g].column * group_elems, to = sw_min_i64(from + group_elems, k);
        for (int64_t j = from; j < to; j++) perm[at++] = ranks[j].column;
    }
    sw_mem_put(heads);
    return SW_OK;
}

static sw_code choose_order(sw_factor *f, const double *diagonal, const sw_factor_options *options,
                            sw_err *err)
{
    int64_t k = f->k_in, group = options->group_elems ? options->group_elems : k;
    column_rank *ranks = NULL;
    sw_code rc = SW_MEM_GET(&ranks, k, "column order", err);

    if (rc != SW_OK) return rc;
    for (int64_t j = 0; j < k; j++) f->perm[j] = (int32_t)j;
    if (options->order == SW_ORDER_STATIC) {
        rank_columns(ranks, diagonal, 0, k);
        for (int64_t j = 0; j < k; j++) f->perm[j] = ranks[j].column;
    } else if (options->order == SW_ORDER_GAR) {
        rc = order_gar(f->perm, ranks, diagonal, k, group, err);
    }
    sw_mem_put(ranks);
    return rc;
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

/* Does H + lambda have a Cholesky factor? */
static sw_code try_damp(bool *is_definite, sw_factor *f, double lambda, sw_err *err)
{
    lapack_int k = (lapack_int)f->k_in;

    if (f->solver) return sw_device_factor_try(is_definite, &f->on, f->solver, lambda, err);
    load_reversed(f, lambda);
    /* lower by rows is upper by columns: no transposed copy */
    *is_definite = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', k, f->u, k) == 0;
    return SW_OK;
}

static sw_code factorize(sw_factor *f, double mean_diagonal, sw_err *err)
{
    bool is_definite = false;
    sw_code rc;

    for (f->n_retries = 0; f->n_retries <= DAMP_RETRIES_MAX; f->n_retries++) {
        rc = try_damp(&is_definite, f, f->damp * mean_diagonal, err);
        if (rc != SW_OK || is_definite) return rc;
        f->damp = f->damp > 0 ? f->damp * DAMP_GROWTH : 1e-4;
        if (f->damp > DAMP_CEILING) break;
    }
    return SW_FAIL(err, SW_E_FORMAT, "the Hessian of %lld tokens stays indefinite up to damping %g",
                   (long long)f->n_tokens, f->damp);
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

/* A dead input gets the unit of the others, so that it neither steers nor breaks anything. */
static double mark_dead(sw_factor *f, double *diagonal)
{
    int64_t k = f->k_in, n_live = 0;
    double sum = 0, mean;

    for (int64_t j = 0; j < k; j++) {
        f->is_dead[j] = !(diagonal[j] > 0);
        f->n_dead += f->is_dead[j];
        n_live += !f->is_dead[j];
        sum += diagonal[j];
    }
    mean = n_live ? sum / (double)n_live : 1.0;
    for (int64_t j = 0; j < k; j++)
        if (f->is_dead[j]) diagonal[j] = mean;
    return mean;
}

/* H with the diagonal in its place, and room for the factor. */
static sw_code take_matrices(sw_factor *f, const sw_hessian *hess, const double *diagonal,
                             sw_err *err)
{
    int64_t k = f->k_in;
    sw_code rc;

    if (hess->solver) {
        f->solver = hess->solver;
        return sw_device_factor_new(&f->on, f->solver, hess->on_h.d_sum, diagonal, f->perm, k, err);
    }
    if ((rc = SW_MEM_GET(&f->pivot, k, "pivots", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&f->h, k * k, "damped Hessian", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&f->u, k * k, "inverse factor", err)) != SW_OK) return rc;
    memcpy(f->h, hess->h, (size_t)(k * k) * sizeof *f->h);
    for (int64_t j = 0; j < k; j++) f->h[j * k + j] = diagonal[j];
    return SW_OK;
}

static sw_code finish(sw_factor *f, double lambda, sw_err *err)
{
    int64_t k = f->k_in;
    sw_code rc;

    if (f->solver) return sw_device_factor_finish(&f->on, f->solver, lambda, err);
    if ((rc = invert(f, err)) != SW_OK) return rc;
    for (int64_t j = 0; j < k; j++) f->h[j * k + j] += lambda;
    return SW_OK;
}

sw_code sw_factor_new(sw_factor *out, const sw_hessian *hess, const sw_factor_options *options,
                      sw_err *err)
{
    int64_t k = hess->k_in;
    sw_factor f = {.k_in = k, .n_tokens = hess->n_tokens, .order = options->order,
                   .damp = options->damp};
    double *diagonal = NULL, mean_diagonal;
    sw_code rc;

    if ((rc = SW_MEM_GET(&diagonal, k, "diagonal", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&f.perm, k, "column order", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&f.is_dead, k, "dead columns", err)) != SW_OK) goto done;
    if ((rc = sw_hessian_diagonal(diagonal, hess, err)) != SW_OK) goto done;
    mean_diagonal = mark_dead(&f, diagonal);
    if ((rc = choose_order(&f, diagonal, options, err)) != SW_OK) goto done;
    if ((rc = take_matrices(&f, hess, diagonal, err)) != SW_OK) goto done;
    if ((rc = factorize(&f, mean_diagonal, err)) != SW_OK) goto done;
    if ((rc = finish(&f, f.damp * mean_diagonal, err)) != SW_OK) goto done;
    *out = f;
    memset(&f, 0, sizeof f);
done:
    sw_factor_free(&f);
    sw_mem_put(diagonal);
    return rc;
}

void sw_factor_free(sw_factor *factor)
{
    sw_mem_put(factor->perm);
    sw_mem_put(factor->is_dead);
    sw_mem_put(factor->pivot);
    sw_mem_put(factor->h);
    sw_mem_put(factor->u);
    if (factor->solver) sw_device_factor_free(&factor->on, factor->solver);
    memset(factor, 0, sizeof *factor);
}

/* What costs an error at each step, in memory: borrowed, or in `own`, to be freed. */
static sw_code fetch_pivots(const double **out, double **own, const sw_factor *f, sw_err *err)
{
    sw_code rc;

    *out = f->pivot;
    if (!f->solver) return SW_OK;
    if ((rc = SW_MEM_GET(own, f->k_in, "pivots", err)) != SW_OK) return rc;
    *out = *own;
    return sw_device_download(sw_solver_gpu(f->solver), *own, f->on.d_pivot,
                              f->k_in * (int64_t)sizeof **own, err);
}

sw_code sw_factor_costs(double *diagonal, double *pivot, const sw_factor *factor, sw_err *err)
{
    int64_t k = factor->k_in;
    const double *by_step;
    double *own = NULL;
    sw_code rc = fetch_pivots(&by_step, &own, factor, err);

    if (rc == SW_OK && factor->solver)
        rc = sw_solver_diagonal(diagonal, factor->solver, factor->on.d_h, k, err);
    for (int64_t j = 0; j < k && rc == SW_OK; j++) {
        pivot[factor->perm[j]] = by_step[j];
        if (!factor->solver) diagonal[j] = factor->h[j * (k + 1)];
    }
    sw_mem_put(own);
    return rc;
}

/* inv(H) = U^T diag(1/pivot) U in perm order, U unit upper. */
void sw_factor_times_inverse(double *rows, double *scratch, const sw_factor *factor, int64_t n)
{
    int64_t k = factor->k_in;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) scratch[i * k + j] = rows[i * k + factor->perm[j]];
    cblas_dtrmm(CblasRowMajor, CblasRight, CblasUpper, CblasTrans, CblasUnit, (int)n, (int)k, 1.0,
                factor->u, (int)k, scratch, (int)k);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) scratch[i * k + j] /= factor->pivot[j];
    cblas_dtrmm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasUnit, (int)n, (int)k, 1.0,
                factor->u, (int)k, scratch, (int)k);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) rows[i * k + factor->perm[j]] = scratch[i * k + j];
}
