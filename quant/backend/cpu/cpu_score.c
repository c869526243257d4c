/* cpu_score.c - what scales cost on sampled rows (transform.h), in memory: one scale a thread. */
#include "formats/base/parallel.h"
#include "quant/backend/cpu/cpu.h"
#include "quant/method/slab.h"

#define ROWS SW_SLAB_ROWS

typedef struct score_run {
    const sw_score_job *job;
    double *loss;   /* [job->n] */
    sw_code *codes; /* [job->n] */
    sw_err *errs;   /* [job->n] */
} score_run;

/* What a slab's rounding errors cost in the unscaled weight. */
static double slab_loss(const sw_slab *slab, const double *worth, const double *scale)
{
    double loss = 0;

    for (int64_t j = 0; j < slab->k; j++) {
        const double *step = slab->scales + j / slab->group_elems * ROWS;
        const double *zero = slab->zeros + j / slab->group_elems * ROWS;
        double sum = 0;
        for (int r = 0; r < ROWS; r++) {
            double e = step[r] * (slab->codes[j * ROWS + r] - zero[r]) - slab->target[j * ROWS + r];
            sum += e * e;
        }
        loss += worth[j] / (scale[j] * scale[j]) * sum;
    }
    return loss;
}

/* One sample's rows under a scale: fitted, rounded, and what that costs. */
static sw_code score_rows(double *loss, sw_slab *slab, float *rows, const sw_score_job *job,
                          int64_t at, const double *scale, sw_err *err)
{
    const sw_qspec *spec = job->specs[at];
    int64_t k = job->k;
    sw_frame frame = {0};
    sw_code rc;

    for (int64_t i = 0; i < ROWS * k; i++)
        rows[i] = (float)((double)job->sample[at * ROWS * k + i] * scale[i % k]);
    if ((rc = sw_frame_new(&frame, rows, ROWS, k, 0, spec, err)) != SW_OK) return rc;
    slab->frame = &frame;
    sw_slab_load(slab, rows, NULL, 0, ROWS);
    sw_slab_fit(slab, scale + k, spec);
    sw_slab_round(slab, spec->num);
    *loss += slab_loss(slab, job->worth, scale) * (double)frame.global * (double)frame.global;
    slab->frame = NULL;
    sw_frame_free(&frame);
    return SW_OK;
}

static sw_code score_one(double *loss, const sw_score_job *job, int which, sw_err *err)
{
    double *scale = NULL;
    float *rows = NULL;
    sw_slab slab = {0};
    sw_code rc;

    *loss = 0;
    if ((rc = sw_score_scale(&scale, job, which, err)) != SW_OK ||
        (rc = SW_MEM_GET(&rows, ROWS * job->k, "scaled rows", err)) != SW_OK ||
        (rc = sw_slab_new(&slab, job->specs[0], job->k, err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < job->n_samples && rc == SW_OK; i++)
        rc = score_rows(loss, &slab, rows, job, i, scale, err);
done:
    sw_slab_free(&slab);
    sw_mem_put(scale);
    sw_mem_put(rows);
    return rc;
}

static void score_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const score_run *run = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        run->codes[i] = score_one(&run->loss[i], run->job, (int)i, &run->errs[i]);
}

sw_code sw_cpu_score(double *loss, const sw_place *at, const sw_score_job *job, sw_err *err)
{
    score_run run = {.job = job, .loss = loss};
    sw_code rc = SW_MEM_GET(&run.codes, job->n, "scores", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&run.errs, job->n, "scores", err);
    if (rc == SW_OK) sw_parallel_for(at->n_threads, job->n, 1, score_some, &run);
    for (int i = 0; i < job->n && rc == SW_OK; i++)
        if (run.codes[i] != SW_OK) rc = SW_FAIL(err, run.codes[i], "%s", run.errs[i].text);
    sw_mem_put(run.codes);
    sw_mem_put(run.errs);
    return rc;
}
