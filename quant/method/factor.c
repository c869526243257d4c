/* factor.c - see factor.h. */
#include "quant/method/factor.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"

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

static sw_code factorize(sw_factor *f, double mean_diagonal, sw_err *err)
{
    bool is_definite = false;
    sw_code rc;

    for (f->n_retries = 0; f->n_retries <= DAMP_RETRIES_MAX; f->n_retries++) {
        rc = sw_backend_of(&f->place)->factor_try(&is_definite, f, f->damp * mean_diagonal, err);
        if (rc != SW_OK || is_definite) return rc;
        f->damp = f->damp > 0 ? f->damp * DAMP_GROWTH : 1e-4;
        if (f->damp > DAMP_CEILING) break;
    }
    return SW_FAIL(err, SW_E_FORMAT, "the Hessian of %lld tokens stays indefinite up to damping %g",
                   (long long)f->n_tokens, f->damp);
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

sw_code sw_factor_new(sw_factor *out, const sw_hessian *hess, const sw_factor_options *options,
                      sw_err *err)
{
    int64_t k = hess->k_in;
    const sw_backend *backend = sw_backend_of(&hess->place);
    sw_factor f = {.k_in = k, .n_tokens = hess->n_tokens, .order = options->order,
                   .damp = options->damp, .place = hess->place};
    double *diagonal = NULL, mean_diagonal;
    sw_span span = sw_span_open("factor");
    sw_code rc;

    if ((rc = SW_MEM_GET(&diagonal, k, "diagonal", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&f.perm, k, "column order", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&f.is_dead, k, "dead columns", err)) != SW_OK) goto done;
    if ((rc = sw_hessian_diagonal(diagonal, hess, err)) != SW_OK) goto done;
    mean_diagonal = mark_dead(&f, diagonal);
    if ((rc = choose_order(&f, diagonal, options, err)) != SW_OK) goto done;
    if ((rc = backend->factor_new(&f, hess, diagonal, err)) != SW_OK) goto done;
    if ((rc = factorize(&f, mean_diagonal, err)) != SW_OK) goto done;
    if ((rc = backend->factor_finish(&f, f.damp * mean_diagonal, err)) != SW_OK) goto done;
    *out = f;
    memset(&f, 0, sizeof f);
done:
    sw_factor_free(&f);
    sw_mem_put(diagonal);
    sw_span_close(span, NULL);
    return rc;
}

void sw_factor_free(sw_factor *factor)
{
    sw_backend_of(&factor->place)->factor_free(factor);
    sw_mem_put(factor->perm);
    sw_mem_put(factor->is_dead);
    memset(factor, 0, sizeof *factor);
}

sw_code sw_factor_costs(double *diagonal, double *pivot, const sw_factor *factor, sw_err *err)
{
    int64_t k = factor->k_in;
    double *by_step = NULL;
    sw_code rc = SW_MEM_GET(&by_step, k, "pivots", err);

    if (rc == SW_OK)
        rc = sw_backend_of(&factor->place)->factor_costs(diagonal, by_step, factor, err);
    for (int64_t j = 0; j < k && rc == SW_OK; j++) pivot[factor->perm[j]] = by_step[j];
    sw_mem_put(by_step);
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
