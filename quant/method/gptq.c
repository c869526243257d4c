/* gptq.c - GPTQ on slabs of rows.
 *
 * Method: Frantar et al., "GPTQ" (arXiv 2210.17323), algorithm 1, with
 *  - the inverse factor taken in double (factor.h);
 *  - scales fitted with weights (grid.h): with static groups on the value aimed at, weighted by
 *    the Hessian's diagonal; otherwise when the sweep reaches the group, on weights that hold all
 *    updates so far, in-block ones included, weighted by the pivots (what an error really costs
 *    once later columns have compensated it);
 *  - refinement afterwards (refine.h): coordinate descent on the codes and a least-squares
 *    re-fit of all scales of a row, both with the full Hessian;
 *  - dead inputs rounded to nearest, never zeroed: their row of H is a lone diagonal, so nothing
 *    is spread from or to them.
 */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/size.h"
#include "quant/method/grid.h"
#include "quant/method/refine.h"
#include "quant/method/rounding.h"
#include "quant/method/row_work.h"

#define ROWS SW_SLAB_ROWS
#define BLOCK_COLS 128 /* lazy-update block; a multiple of every group size below it */

typedef struct gptq_job {
    const sw_solve_problem *p;
    sw_qtensor *q;
    sw_frame frame;
    const double *diagonal; /* [k] of H, stored order */
} gptq_job;

/* A slab of a thread, and what the sweep needs besides. */
typedef struct gptq_slab {
    sw_slab *s;
    double *w;      /* [k] perm order, updated as the sweep goes */
    double *errors; /* [BLOCK_COLS] */
} gptq_slab;

static sw_code slab_of(gptq_slab *out, sw_row_space *space, const gptq_job *job, sw_err *err)
{
    int64_t k = job->p->k_in;
    sw_code rc = SW_OK;

    if (!space->more)
        rc = SW_MEM_GET(&space->more, (k + BLOCK_COLS) * ROWS, "GPTQ slab", err);
    if (rc == SW_OK && !space->slab.target)
        rc = sw_slab_new(&space->slab, &job->p->spec, k, err);
    *out = (gptq_slab){.s = &space->slab, .w = space->more};
    if (rc == SW_OK) out->errors = space->more + k * ROWS;
    return rc;
}

static SW_HOT void subtract_scaled(double *w, int64_t n, const double *u, const double *e)
{
    for (int64_t c = 0; c < n; c++)
        for (int r = 0; r < ROWS; r++) w[c * ROWS + r] -= u[c] * e[r];
}

/* Quantize the column at step i and spread its error over the rest of its block. */
static void sweep_column(gptq_slab *slab, const sw_factor *f, const sw_num *num, int64_t i,
                         int64_t block_begin, int64_t block_end)
{
    int64_t col = f->perm[i], g = col / slab->s->group_elems;
    const double *scale = slab->s->scales + g * ROWS, *zero = slab->s->zeros + g * ROWS;
    double *code = slab->s->codes + col * ROWS, *w = slab->w + i * ROWS;
    double *e = slab->errors + (i - block_begin) * ROWS;

    if (slab->s->is_exact && slab->s->is_exact[col]) {
        memcpy(code, zero, ROWS * sizeof *code);
        memset(e, 0, ROWS * sizeof *e);
        return;
    }
    sw_grid_codes(code, w, scale, zero, num);
    for (int r = 0; r < ROWS; r++) e[r] = w[r] - scale[r] * (code[r] - zero[r]);
    subtract_scaled(w + ROWS, block_end - i - 1, f->u + i * f->k_in + i + 1, e);
}

/* Fit the group that starts at step i on the weights as they are now. */
static void fit_at(gptq_slab *slab, const sw_factor *f, const sw_qspec *spec, int64_t i)
{
    int64_t g = f->perm[i] / slab->s->group_elems;
    int64_t n = sw_min_i64(slab->s->group_elems, f->k_in - g * slab->s->group_elems);

    sw_grid_fit(slab->s->scales + g * ROWS, slab->s->zeros + g * ROWS, slab->w + i * ROWS,
                f->pivot + i, n, spec);
}

static void sweep(gptq_slab *slab, const gptq_job *job, bool refit)
{
    const sw_factor *f = job->p->factor;
    int64_t k = f->k_in, seen_group = -1;

    for (int64_t i = 0; i < k; i++)
        memcpy(slab->w + i * ROWS, slab->s->target + (int64_t)f->perm[i] * ROWS,
               ROWS * sizeof *slab->w);
    for (int64_t b = 0; b < k; b += BLOCK_COLS) {
        int64_t end = sw_min_i64(b + BLOCK_COLS, k);
        for (int64_t i = b; i < end; i++) {
            int64_t g = f->perm[i] / slab->s->group_elems;
            if (refit && g != seen_group) fit_at(slab, f, &job->p->spec, i);
            seen_group = g;
            sweep_column(slab, f, job->p->spec.num, i, b, end);
        }
        if (end < k)
            cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(k - end), ROWS,
                        (int)(end - b), -1.0, f->u + b * k + end, (int)k, slab->errors, ROWS, 1.0,
                        slab->w + end * ROWS, ROWS);
    }
}

static int64_t group_elems(const sw_solve_problem *p)
{
    return p->spec.group_elems ? p->spec.group_elems : p->k_in;
}

bool sw_gptq_refits(const sw_solve_problem *p)
{
    return p->factor->order != SW_ORDER_STATIC && group_elems(p) <= BLOCK_COLS;
}

/* What the rows are worth and what plain rounding costs; the slab holds the target afterwards. */
static sw_code figures_before(sw_row_figures *out, sw_slab *s, const sw_solve_problem *p,
                              int64_t row0, int64_t n_rows, sw_err *err)
{
    sw_code rc;

    if (!p->is_trial) {
        sw_slab_load(s, p->w, NULL, row0, n_rows);
        sw_slab_fit_range(s, &p->spec);
        sw_slab_round(s, p->spec.num);
        if ((rc = sw_refine_power(s, p->factor, &out->power, err)) != SW_OK) return rc;
    }
    /* both losses are of what is missed of the target: what moves towards it is no loss */
    sw_slab_load(s, p->w, p->target_shift, row0, n_rows);
    return p->is_trial ? SW_OK : sw_refine_loss(s, p->factor, &out->loss_rtn, err);
}

static sw_code solve_slab(sw_row_figures *out, sw_row_space *space, const void *ctx, int64_t row0,
                          int64_t n_rows, sw_err *err)
{
    const gptq_job *job = ctx;
    const sw_solve_problem *p = job->p;
    bool refit = sw_gptq_refits(p) && !job->frame.shared;
    gptq_slab slab;
    sw_code rc = slab_of(&slab, space, job, err);

    if (rc != SW_OK) return rc;
    slab.s->frame = &job->frame;
    slab.s->is_exact = p->is_exact;
    if ((rc = figures_before(out, slab.s, p, row0, n_rows, err)) != SW_OK) return rc;
    /* scales of all groups at once, on the target, weighted by the diagonal */
    sw_slab_fit(slab.s, job->diagonal, &p->spec);
    sweep(&slab, job, refit);
    rc = sw_refine(slab.s, p->factor, &p->spec, p->refine_rounds, &out->loss, err);
    if (rc == SW_OK) sw_slab_store(slab.s, job->q, row0, n_rows);
    return rc;
}

sw_code sw_gptq_rows(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err)
{
    int64_t k = p->k_in;
    gptq_job job = {.p = p, .q = q};
    sw_row_figures sum;
    double *diagonal = NULL;
    sw_code rc;

    rc = sw_frame_new(&job.frame, p->w, p->n_out, k, p->fused_amax, &p->spec, err);
    if (rc != SW_OK) goto done;
    q->global_scale = p->spec.has_global ? job.frame.global : 0.0f;
    if ((rc = SW_MEM_GET(&diagonal, k, "GPTQ weights", err)) != SW_OK) goto done;
    for (int64_t j = 0; j < k; j++) diagonal[j] = p->factor->h[j * k + j];
    job.diagonal = diagonal;
    rc = sw_rows_solve(&sum, p->figures, solve_slab, &job, p->n_out, p->n_threads, err);
    if (rc == SW_OK && !p->is_trial) sw_rows_report(report, &sum);
done:
    sw_frame_free(&job.frame);
    sw_mem_put(diagonal);
    return rc;
}
