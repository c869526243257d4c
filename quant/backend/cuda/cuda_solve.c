/* cuda_solve.c - solving weights, and scoring scales on samples of them, on a CUDA device. */
#include "formats/base/size.h"
#include "quant/backend/cuda/cuda.h"
#include "quant/method/frame.h"
#include "quant/method/rounding.h"
#include "quant/method/row_work.h"

bool sw_cuda_can_solve(const sw_qspec *spec) { return sw_solver_can(spec); }

static sw_solver *solver_of(const sw_solve_problem *p)
{
    return sw_cuda_solver(p->factor ? &p->factor->place : &p->place);
}

/* For sw_frame_new_by: a weight on the device. */
static sw_code find_amax(float *amax, void *self, const float *w, int64_t n, int64_t k,
                         int64_t rows, int64_t cols, sw_err *err)
{
    return sw_solver_amax(amax, self, w, n, k, rows, cols, err);
}

/* What is settled about scales beforehand, from wherever the weight is. */
static sw_code new_frame(sw_frame *frame, const sw_solve_problem *p, sw_err *err)
{
    if (p->values)
        return sw_frame_new_by(frame, find_amax, solver_of(p), p->values, p->n_out, p->k_in,
                               p->fused_amax, &p->spec, err);
    return sw_frame_new(frame, p->w, p->n_out, p->k_in, p->fused_amax, &p->spec, err);
}

static sw_device_problem problem_of(const sw_solve_problem *p, const sw_frame *frame)
{
    return (sw_device_problem){.w = p->w, .d_w = p->values, .d_values = p->values,
                               .n_out = p->n_out, .k_in = p->k_in, .spec = p->spec,
                               .global = (double)frame->global, .shared = frame->shared,
                               .shared_rows = frame->rows,
                               .factor = p->factor ? sw_cuda_factor(p->factor) : NULL,
                               .d_shift = p->target_shift, .refine_rounds = p->refine_rounds};
}

sw_code sw_cuda_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_kind kind,
                      sw_solve_report *report, sw_err *err)
{
    static const sw_device_method methods[SW_SOLVE_KINDS] = {[SW_SOLVE_RTN] = SW_DEVICE_RTN,
                                                             [SW_SOLVE_CLIP] = SW_DEVICE_CLIP,
                                                             [SW_SOLVE_GPTQ] = SW_DEVICE_GPTQ};
    sw_frame frame = {0};
    sw_device_problem d;
    sw_device_sums sums, *by_row = NULL;
    sw_code rc = new_frame(&frame, p, err);

    if (rc == SW_OK && p->figures) rc = SW_MEM_GET(&by_row, p->n_out, "figures of rows", err);
    if (rc != SW_OK) goto done;
    if (q) q->global_scale = p->spec.has_global ? frame.global : 0.0f;
    d = problem_of(p, &frame);
    d.method = methods[kind];
    d.refit = kind == SW_SOLVE_GPTQ && sw_gptq_refits(p) && !frame.shared;
    d.by_row = by_row;
    rc = sw_solver_solve(q, &sums, solver_of(p), &d, NULL, err);
    for (int64_t i = 0; rc == SW_OK && by_row && i < p->n_out; i++)
        p->figures[i] = (sw_row_figures){by_row[i].loss, by_row[i].loss_rtn, by_row[i].power};
    if (rc == SW_OK && p->factor) {
        sw_row_figures figures = {sums.loss, sums.loss_rtn, sums.power};
        sw_rows_report(report, &figures);
    }
done:
    sw_mem_put(by_row);
    sw_frame_free(&frame);
    return rc;
}

sw_code sw_cuda_score_rows(double *loss, const sw_solve_problem *p, const double *d_weight,
                           sw_err *err)
{
    sw_frame frame = {0};
    sw_device_problem d;
    sw_code rc = new_frame(&frame, p, err);

    if (rc != SW_OK) return rc;
    d = problem_of(p, &frame);
    rc = sw_solver_score(loss, sw_cuda_solver(&p->place), &d, d_weight, err);
    sw_frame_free(&frame);
    return rc;
}

/* One scale: the sampled rows [n_samples * SW_SLAB_ROWS, k] times it, each sample fitted and
 * rounded. */
static sw_code score_one(double *loss, const sw_place *at, const sw_score_job *job, int which,
                         const float *d_sample, float *d_rows, sw_err *err)
{
    int64_t k = job->k;
    sw_device *gpu = sw_cuda_gpu(at);
    double *scale = NULL, *d_worth = NULL;
    sw_code rc = sw_score_scale(&scale, job, which, err);

    if (rc == SW_OK)
        rc = sw_cuda_scale(at, d_rows, d_sample, scale, job->n_samples * SW_SLAB_ROWS, k, false,
                           err);
    if (rc == SW_OK)
        rc = sw_device_take((void **)&d_worth, gpu, k, (int64_t)sizeof *d_worth, "scale", err);
    if (rc == SW_OK)
        rc = sw_device_upload(gpu, d_worth, scale + k, k * (int64_t)sizeof *d_worth, err);
    for (int64_t i = 0; i < job->n_samples && rc == SW_OK; i++) {
        sw_solve_problem p = {.values = d_rows + i * SW_SLAB_ROWS * k, .n_out = SW_SLAB_ROWS,
                              .k_in = k, .spec = *job->specs[i], .place = *at};
        rc = sw_cuda_score_rows(loss, &p, d_worth, err);
    }
    sw_device_put(gpu, d_worth);
    sw_mem_put(scale);
    return rc;
}

sw_code sw_cuda_score(double *loss, const sw_place *at, const sw_score_job *job, sw_err *err)
{
    int64_t n = job->n_samples * SW_SLAB_ROWS * job->k;
    float *d_sample = NULL, *d_rows = NULL;
    sw_code rc = sw_cuda_lend(&d_sample, at, job->sample, n, "sampled rows", err);

    if (rc == SW_OK)
        rc = sw_cuda_take((void **)&d_rows, at, n, (int64_t)sizeof *d_rows, "sampled rows", err);
    for (int i = 0; i < job->n && rc == SW_OK; i++) {
        loss[i] = 0;
        rc = score_one(&loss[i], at, job, i, d_sample, d_rows, err);
    }
    sw_cuda_unlend(at, d_sample);
    sw_cuda_put(at, d_rows);
    return rc;
}
