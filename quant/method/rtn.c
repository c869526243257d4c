/* rtn.c - round to nearest: the baseline every other method must beat. */
#include "formats/base/size.h"
#include "quant/method/refine.h"
#include "quant/method/round_rows.h"
#include "quant/method/rounding.h"
#include "quant/method/row_work.h"

typedef struct rtn_job {
    const sw_solve_problem *p;
    sw_qtensor *q;
    sw_fit_fn fit; /* NULL: plain */
    sw_frame frame;
    const double *weights; /* [k_in] of squared errors */
} rtn_job;

#define PART_COLS 256 /* that are loaded, rounded and stored while they are in the second cache */

static void fit_plain(sw_slab *slab, const rtn_job *job)
{
    const sw_qspec *spec = &job->p->spec;

    if (spec->num->values || job->p->importance)
        sw_slab_fit(slab, job->weights + slab->first, spec);
    else
        sw_slab_fit_range(slab, spec);
    sw_slab_round(slab, spec->num);
}

/* Columns that can be worked on by themselves: whole groups, or all, where a factor ties them or
 * a scale serves them all. */
static int64_t part_of(const rtn_job *job)
{
    const sw_solve_problem *p = job->p;
    const int64_t group = p->spec.group_elems;

    if (p->factor || job->fit || !group) return p->k_in;
    return sw_min_i64(p->k_in, sw_ceil_div(PART_COLS, group) * group);
}

/* The slab's columns of these rows. */
static sw_code round_part(sw_row_figures *out, sw_slab *slab, const rtn_job *job, int64_t row0,
                          int64_t n_rows, sw_err *err)
{
    const sw_solve_problem *p = job->p;
    const bool has_figures = p->factor && !p->is_trial;
    sw_code rc = SW_OK;

    sw_slab_load(slab, p->w, NULL, row0, n_rows);
    if (has_figures || !job->fit) fit_plain(slab, job);
    if (has_figures) rc = sw_refine_power(slab, p->factor, &out->power, err);
    if (has_figures && rc == SW_OK) rc = sw_refine_loss(slab, p->factor, &out->loss_rtn, err);
    out->loss = out->loss_rtn;
    if (rc == SW_OK && job->fit) {
        if ((rc = job->fit(slab, p, err)) != SW_OK) return rc;
        sw_slab_round(slab, p->spec.num);
        if (has_figures) rc = sw_refine_loss(slab, p->factor, &out->loss, err);
    }
    sw_slab_store(slab, job->q, row0, n_rows);
    return rc;
}

static sw_code rtn_slab(sw_row_figures *out, sw_row_space *space, const void *ctx, int64_t row0,
                        int64_t n_rows, sw_err *err)
{
    const rtn_job *job = ctx;
    const int64_t k_in = job->p->k_in;
    sw_slab *slab = &space->slab;
    sw_code rc = SW_OK;

    if (!slab->target) rc = sw_slab_new_part(slab, &job->p->spec, k_in, part_of(job), err);
    slab->frame = &job->frame;
    for (int64_t first = 0; first < k_in && rc == SW_OK; first += slab->width) {
        sw_slab_move(slab, first);
        rc = round_part(out, slab, job, row0, n_rows, err);
    }
    return rc;
}

/* The same without a slab. */
static sw_code rtn_rows(sw_row_figures *out, sw_row_space *space, const void *ctx, int64_t row0,
                        int64_t n_rows, sw_err *err)
{
    const rtn_job *job = ctx;

    (void)out;
    (void)space;
    (void)err;
    sw_round_rows(job->q, job->p, row0, n_rows);
    return SW_OK;
}

sw_code sw_round_solve(sw_qtensor *q, const sw_solve_problem *p, sw_fit_fn fit,
                       sw_solve_report *report, sw_err *err)
{
    rtn_job job = {.p = p, .q = q, .fit = fit};
    sw_rows_fn fn = rtn_slab;
    sw_row_figures sum;
    double *ones = NULL;
    sw_code rc;

    report->error = report->error_rtn = -1;
    rc = sw_frame_new(&job.frame, p->w, p->n_out, p->k_in, p->fused_amax, &p->spec, err);
    if (rc != SW_OK) goto done;
    q->global_scale = p->spec.has_global ? job.frame.global : 0.0f;
    if ((rc = SW_MEM_GET(&ones, p->k_in, "rounding weights", err)) != SW_OK) goto done;
    for (int64_t k = 0; k < p->k_in; k++) ones[k] = 1.0;
    job.weights = p->importance ? p->importance : ones;
    if (!fit && sw_round_rows_serves(p, &job.frame)) fn = rtn_rows;
    rc = sw_rows_solve(&sum, p->figures, fn, &job, p->n_out, p->n_threads, err);
    if (rc == SW_OK && p->factor && !p->is_trial) sw_rows_report(report, &sum);
done:
    sw_frame_free(&job.frame);
    sw_mem_put(ones);
    return rc;
}

sw_code sw_rtn_rows(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                    sw_err *err)
{
    return sw_round_solve(q, p, NULL, report, err);
}
