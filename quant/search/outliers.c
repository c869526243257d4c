/* outliers.c - see outliers.h. */
#include "quant/search/outliers.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/method/row_work.h"

#define DAMP_AGAIN 1e-8 /* the Hessian is damped already */

typedef struct scored {
    double score;
    int32_t column;
} scored;

typedef struct outlier_job {
    const sw_solve_problem *p;
    sw_qtensor *q;
    const float *rounded; /* [n_out, k] all columns rounded to nearest */
    double *h_oo, *h_o;   /* see take_h */
} outlier_job;

static int by_falling_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;

    if (x->score > y->score) return -1;
    if (x->score < y->score) return 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

static int by_column(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return x < y ? -1 : x > y;
}

/* Every column rounded to nearest, as if none were kept. */
static sw_code round_all(float *out, const sw_solve_problem *p, sw_err *err)
{
    sw_solve_problem plain = *p;
    sw_solve_report ignored = {0};
    sw_qtensor q = {0};
    sw_code rc;

    plain.spec.n_outliers = 0;
    plain.factor = NULL;
    rc = sw_qtensor_alloc(&q, &plain.spec, p->n_out, p->k_in, err);
    if (rc == SW_OK && (rc = sw_rtn_solve(&q, &plain, &ignored, err)) == SW_OK)
        sw_qtensor_decode(out, &q);
    sw_qtensor_free(&q);
    return rc;
}

static sw_code choose(int32_t *columns, const sw_solve_problem *p, const float *rounded,
                      sw_err *err)
{
    int64_t k = p->k_in, n = p->spec.n_outliers;
    scored *scores = NULL;
    sw_code rc = SW_MEM_GET(&scores, k, "column scores", err);

    if (rc != SW_OK) return rc;
    for (int64_t r = 0; r < p->n_out; r++)
        for (int64_t j = 0; j < k; j++) {
            double e = (double)p->w[r * k + j] - (double)rounded[r * k + j];
            scores[j].score += e * e;
        }
    for (int64_t j = 0; j < k; j++) {
        if (p->factor) scores[j].score *= p->factor->h[j * k + j];
        else if (p->importance) scores[j].score *= p->importance[j];
        scores[j].column = (int32_t)j;
    }
    qsort(scores, (size_t)k, sizeof *scores, by_falling_score);
    for (int64_t i = 0; i < n; i++) columns[i] = scores[i].column;
    qsort(columns, (size_t)n, sizeof *columns, by_column);
    sw_mem_put(scores);
    return SW_OK;
}

/* H at the kept columns [n, k], and the Cholesky factor of their own block [n, n], lower by
 * columns; H is damped, so it exists. */
static sw_code take_h(double *h_oo, double *h_o, const sw_factor *f, const int32_t *columns,
                      int64_t n, sw_err *err)
{
    int64_t k = f->k_in;

    for (int64_t i = 0; i < n; i++) {
        const double *row = f->h + columns[i] * k;
        memcpy(h_o + i * k, row, (size_t)k * sizeof *row);
        for (int64_t j = 0; j < n; j++) h_oo[i * n + j] = row[columns[j]];
    }
    if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)n, h_oo, (lapack_int)n) != 0)
        return SW_FAIL(err, SW_E_FORMAT, "the Hessian of the outlier columns is not definite");
    return SW_OK;
}

/* H of the others once the kept columns follow them: the Schur complement
 * H_qq - H_qo inv(H_oo) H_oq, alone on its rows; h [k, k] is overwritten. */
static sw_code eliminate(double *h, const sw_factor *f, const int32_t *columns, int64_t n,
                         sw_err *err)
{
    int64_t k = f->k_in;
    double *h_oo = NULL, *h_o = NULL, mean = 0;
    sw_code rc;

    if ((rc = SW_MEM_GET(&h_oo, n * n, "outlier block", err)) != SW_OK ||
        (rc = SW_MEM_GET(&h_o, n * k, "outlier rows", err)) != SW_OK)
        goto done;
    memcpy(h, f->h, (size_t)(k * k) * sizeof *h);
    if ((rc = take_h(h_oo, h_o, f, columns, n, err)) != SW_OK) goto done;
    /* h_o becomes inv(L) H_o with H_oo = L L^T, so that h -= h_o^T h_o */
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasUpper, CblasTrans, CblasNonUnit, (int)n, (int)k,
                1.0, h_oo, (int)n, h_o, (int)k);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)k, (int)k, (int)n, -1.0, h_o, (int)k,
                h_o, (int)k, 1.0, h, (int)k);
    for (int64_t j = 0; j < k; j++) mean += f->h[j * k + j] / (double)k;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < k; j++) h[columns[i] * k + j] = h[j * k + columns[i]] = 0;
        h[columns[i] * k + columns[i]] = mean;
    }
done:
    sw_mem_put(h_oo);
    sw_mem_put(h_o);
    return rc;
}

static sw_code factor_rest(sw_factor *out, const sw_solve_problem *p, const int32_t *columns,
                           sw_err *err)
{
    int64_t k = p->k_in;
    sw_hessian h = {.k_in = k, .n_tokens = p->factor->n_tokens,
                    .place = sw_place_cpu(p->n_threads)};
    sw_factor_options o = {p->factor->order, p->spec.group_elems, DAMP_AGAIN};
    sw_code rc = SW_MEM_GET(&h.h, k * k, "Hessian without outliers", err);

    if (rc == SW_OK) rc = eliminate(h.h, p->factor, columns, p->spec.n_outliers, err);
    if (rc == SW_OK) rc = sw_factor_new(out, &h, &o, err);
    if (rc == SW_OK) out->damp = p->factor->damp; /* what was added in truth */
    sw_mem_put(h.h);
    return rc;
}

/* Solve with the kept columns taken out of weight, target and Hessian. */
static sw_code solve_rest(sw_qtensor *q, const sw_solve_problem *p, sw_solve_fn solve,
                          sw_solve_report *report, sw_err *err)
{
    int64_t k = p->k_in, n_elems = p->n_out * k;
    sw_solve_problem rest = *p;
    sw_factor factor = {0};
    float *w = NULL;
    double *shift = NULL;
    bool *is_exact = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&w, n_elems, "weight without outliers", err)) != SW_OK ||
        (rc = SW_MEM_GET(&is_exact, k, "outlier mask", err)) != SW_OK)
        goto done;
    if (p->target_shift && (rc = SW_MEM_GET(&shift, n_elems, "target shift", err)) != SW_OK)
        goto done;
    if (p->factor) {
        if ((rc = factor_rest(&factor, p, q->outlier_cols, err)) != SW_OK) goto done;
        rest.factor = &factor;
    }
    memcpy(w, p->w, (size_t)n_elems * sizeof *w);
    if (shift) memcpy(shift, p->target_shift, (size_t)n_elems * sizeof *shift);
    for (int64_t i = 0; i < p->spec.n_outliers; i++) {
        int64_t j = q->outlier_cols[i];
        is_exact[j] = true;
        for (int64_t r = 0; r < p->n_out; r++) w[r * k + j] = 0.0f;
        for (int64_t r = 0; shift && r < p->n_out; r++) shift[r * k + j] = 0.0;
    }
    rest.w = w;
    rest.target_shift = shift;
    rest.is_exact = is_exact;
    rc = solve(q, &rest, report, err);
done:
    sw_factor_free(&factor);
    sw_mem_put(w);
    sw_mem_put(shift);
    sw_mem_put(is_exact);
    return rc;
}

static double target_at(const sw_solve_problem *p, int64_t at)
{
    return (double)p->w[at] + (p->target_shift ? p->target_shift[at] : 0.0);
}

static void store_values(const outlier_job *job, int64_t row0, int64_t n_rows, const double *moves)
{
    int64_t n = job->q->spec.n_outliers, k = job->q->k_in;

    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < n; i++) {
            double v = target_at(job->p, (row0 + r) * k + job->q->outlier_cols[i]);
            if (moves) v += moves[r * n + i];
            job->q->outlier_values[(row0 + r) * n + i] =
                sw_num_round_to((float)v, SW_DTYPE_F16);
        }
}

/* error [n_rows, k] = decoded rows of q less the target. */
static void row_errors(double *error, float *values, const outlier_job *job, int64_t row0,
                       int64_t n_rows)
{
    int64_t k = job->p->k_in;

    sw_qtensor_decode_rows(values, job->q, row0, n_rows);
    for (int64_t i = 0; i < n_rows * k; i++)
        error[i] = (double)values[i] - target_at(job->p, row0 * k + i);
}

/* sum over the rows of e H e^T; scratch [n_rows, k]. */
static double cost(const double *e, double *scratch, const sw_factor *f, int64_t n_rows)
{
    int64_t k = f->k_in;
    double sum = 0;

    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n_rows, (int)k, (int)k, 1.0, e,
                (int)k, f->h, (int)k, 0.0, scratch, (int)k);
    for (int64_t i = 0; i < n_rows * k; i++) sum += e[i] * scratch[i];
    return sum;
}

static void measure(sw_row_figures *out, const outlier_job *job, int64_t row0, int64_t n_rows,
                    double *e, double *scratch, float *values)
{
    const sw_solve_problem *p = job->p;
    int64_t k = p->k_in;

    row_errors(e, values, job, row0, n_rows);
    out->loss = cost(e, scratch, p->factor, n_rows);
    for (int64_t i = 0; i < n_rows * k; i++)
        e[i] = (double)job->rounded[row0 * k + i] - target_at(p, row0 * k + i);
    out->loss_rtn = cost(e, scratch, p->factor, n_rows);
    for (int64_t i = 0; i < n_rows * k; i++) e[i] = (double)p->w[row0 * k + i];
    out->power = cost(e, scratch, p->factor, n_rows);
}

/* The kept values of some rows, and what those rows cost. */
static sw_code finish_rows(sw_row_figures *out, sw_row_space *space, const void *ctx, int64_t row0,
                           int64_t n_rows, sw_err *err)
{
    const outlier_job *job = ctx;
    int64_t k = job->p->k_in, n = job->q->spec.n_outliers;
    double *e = NULL, *scratch, *moves;
    float *values = NULL;
    sw_code rc = SW_MEM_GET(&e, n_rows * (2 * k + n), "outlier rows", err);

    (void)space;
    if (rc != SW_OK || (rc = SW_MEM_GET(&values, n_rows * k, "outlier rows", err)) != SW_OK)
        goto done;
    scratch = e + n_rows * k;
    moves = scratch + n_rows * k;
    store_values(job, row0, n_rows, NULL);
    row_errors(e, values, job, row0, n_rows);
    for (int64_t i = 0; i < n; i++) /* exact, whatever F16 makes of them for now */
        for (int64_t r = 0; r < n_rows; r++) e[r * k + job->q->outlier_cols[i]] = 0;
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n_rows, (int)n, (int)k, -1.0, e,
                (int)k, job->h_o, (int)k, 0.0, moves, (int)n);
    if (LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', (lapack_int)n, (lapack_int)n_rows, job->h_oo,
                       (lapack_int)n, moves, (lapack_int)n) != 0) {
        rc = SW_FAIL(err, SW_E_BUG, "outlier system cannot be solved");
        goto done;
    }
    store_values(job, row0, n_rows, moves);
    measure(out, job, row0, n_rows, e, scratch, values);
done:
    sw_mem_put(e);
    sw_mem_put(values);
    return rc;
}

static sw_code finish_all(outlier_job *job, sw_solve_report *report, sw_err *err)
{
    int64_t n = job->q->spec.n_outliers;
    sw_row_figures sum;
    sw_arena arena = {0};
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&job->h_oo, &arena, n * n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&job->h_o, &arena, n * job->p->k_in, err)) != SW_OK ||
        (rc = take_h(job->h_oo, job->h_o, job->p->factor, job->q->outlier_cols, n, err)) !=
            SW_OK ||
        (rc = sw_rows_solve(&sum, job->p->figures, finish_rows, job, job->p->n_out,
                            job->p->n_threads, err)) != SW_OK)
        goto done;
    sw_rows_report(report, &sum);
done:
    sw_arena_free(&arena);
    return rc;
}

sw_code sw_outliers_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_fn solve,
                          sw_solve_report *report, sw_err *err)
{
    outlier_job job = {.p = p, .q = q};
    float *rounded = NULL;
    sw_code rc;

    if (!p->spec.n_outliers) return solve(q, p, report, err);
    if ((rc = SW_MEM_GET(&rounded, p->n_out * p->k_in, "rounded weight", err)) != SW_OK) return rc;
    job.rounded = rounded;
    if ((rc = round_all(rounded, p, err)) != SW_OK ||
        (rc = choose(q->outlier_cols, p, rounded, err)) != SW_OK ||
        (rc = solve_rest(q, p, solve, report, err)) != SW_OK)
        goto done;
    if (p->factor)
        rc = finish_all(&job, report, err);
    else
        store_values(&job, 0, p->n_out, NULL);
done:
    sw_mem_put(rounded);
    return rc;
}
