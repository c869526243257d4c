/* rtn.c - round to nearest: the baseline every other method must beat. */
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "quant/refine.h"
#include "quant/rounding.h"

typedef struct rtn_job {
    const sw_solve_problem *p;
    sw_qtensor *q;
    sw_fit_fn fit; /* NULL: plain */
    sw_frame frame;
    const double *ones; /* [k_in] */
    sw_code *codes; /* one result per slab, as below */
    sw_err *errs;
    double *loss, *loss_rtn, *power;
} rtn_job;

static void fit_plain(sw_slab *slab, const rtn_job *job)
{
    const sw_qspec *spec = &job->p->spec;

    if (spec->num->values) sw_slab_fit(slab, job->ones, spec);
    else sw_slab_fit_range(slab, spec);
    sw_slab_round(slab, spec->num);
}

static sw_code rtn_slab(const rtn_job *job, int64_t row0, int64_t n_rows, int64_t at, sw_err *err)
{
    const sw_solve_problem *p = job->p;
    sw_slab slab;
    sw_code rc = sw_slab_new(&slab, &p->spec, p->k_in, err);

    if (rc != SW_OK) return rc;
    slab.frame = &job->frame;
    sw_slab_load(&slab, p->w, NULL, row0, n_rows);
    fit_plain(&slab, job);
    if (p->factor)
        rc = sw_refine_loss(&slab, p->factor, &job->loss_rtn[at], &job->power[at], err);
    job->loss[at] = job->loss_rtn[at];
    if (rc == SW_OK && job->fit) {
        if ((rc = job->fit(&slab, p, err)) != SW_OK) goto done;
        sw_slab_round(&slab, p->spec.num);
        if (p->factor) rc = sw_refine_loss(&slab, p->factor, &job->loss[at], NULL, err);
    }
    sw_slab_store(&slab, job->q, row0, n_rows);
done:
    sw_slab_free(&slab);
    return rc;
}

static void rtn_chunk(void *ctx, int64_t begin, int64_t end, int thread)
{
    rtn_job *job = ctx;
    int64_t at = begin / SW_SLAB_ROWS;

    (void)thread;
    job->codes[at] = rtn_slab(job, begin, end - begin, at, &job->errs[at]);
}

static sw_code collect(const rtn_job *job, int64_t n_slabs, sw_solve_report *report, sw_err *err)
{
    double loss = 0, loss_rtn = 0, power = 0;

    for (int64_t i = 0; i < n_slabs; i++) {
        if (job->codes[i] != SW_OK) return SW_FAIL(err, job->codes[i], "%s", job->errs[i].text);
        loss += job->loss[i];
        loss_rtn += job->loss_rtn[i];
        power += job->power[i];
    }
    if (!job->p->factor) return SW_OK;
    report->error = power > 0 ? loss / power : 0;
    report->error_rtn = power > 0 ? loss_rtn / power : 0;
    return SW_OK;
}

sw_code sw_round_solve(sw_qtensor *q, const sw_solve_problem *p, sw_fit_fn fit,
                       sw_solve_report *report, sw_err *err)
{
    int64_t n_slabs = sw_ceil_div(p->n_out, SW_SLAB_ROWS);
    rtn_job job = {.p = p, .q = q, .fit = fit};
    double *ones = NULL;
    sw_code rc;

    report->error = report->error_rtn = -1;
    rc = sw_frame_new(&job.frame, p->w, p->n_out, p->k_in, p->fused_amax, &p->spec, err);
    if (rc != SW_OK) goto done;
    q->global_scale = p->spec.has_global ? job.frame.global : 0.0f;
    if ((rc = SW_MEM_GET(&ones, p->k_in, "rounding weights", err)) != SW_OK) goto done;
    for (int64_t k = 0; k < p->k_in; k++) ones[k] = 1.0;
    job.ones = ones;
    if ((rc = SW_MEM_GET(&job.loss, 3 * n_slabs, "rounding sums", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&job.codes, n_slabs, "rounding results", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&job.errs, n_slabs, "rounding results", err)) != SW_OK) goto done;
    job.loss_rtn = job.loss + n_slabs;
    job.power = job.loss_rtn + n_slabs;
    sw_parallel_for(p->n_threads, p->n_out, SW_SLAB_ROWS, rtn_chunk, &job);
    rc = collect(&job, n_slabs, report, err);
done:
    sw_frame_free(&job.frame);
    sw_mem_put(ones);
    sw_mem_put(job.loss);
    sw_mem_put(job.codes);
    sw_mem_put(job.errs);
    return rc;
}

sw_code sw_rtn_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err)
{
    report->method = "rtn";
    return sw_round_solve(q, p, NULL, report, err);
}
