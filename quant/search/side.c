/* side.c - see side.h. */
#include "quant/search/side.h"

#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"

#define ROWS 64

static sw_device *gpu_of(const sw_side *side) { return sw_solver_gpu(side->solver); }

sw_code sw_side_take(float **out, const sw_side *side, int64_t n, const char *what, sw_err *err)
{
    if (!side->solver) return SW_MEM_GET(out, n, what, err);
    return sw_device_take((void **)out, gpu_of(side), n, (int64_t)sizeof **out, what, err);
}

void sw_side_put(const sw_side *side, float *values)
{
    if (side->solver)
        sw_device_put(gpu_of(side), values);
    else sw_mem_put(values);
}

sw_code sw_side_copy(float **out, const sw_side *side, const float *from, int64_t n,
                     const char *what, sw_err *err)
{
    float *values = NULL;
    sw_code rc = sw_side_take(&values, side, n, what, err);

    if (rc != SW_OK) return rc;
    if (side->solver)
        rc = sw_device_upload(gpu_of(side), values, from, n * (int64_t)sizeof *from, err);
    else
        memcpy(values, from, (size_t)n * sizeof *from);
    if (rc == SW_OK) *out = values;
    else sw_side_put(side, values);
    return rc;
}

typedef struct rows_job {
    float *to;
    const float *from, *want;
    const double *scale;
    double *by_row;
    int64_t k;
    bool divides;
} rows_job;

static void scale_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const rows_job *job = ctx;
    int64_t k = job->k;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const float *from = job->from + row * k;
        float *to = job->to + row * k;
        if (job->divides)
            for (int64_t j = 0; j < k; j++) to[j] = (float)((double)from[j] / job->scale[j]);
        else
            for (int64_t j = 0; j < k; j++) to[j] = (float)((double)from[j] * job->scale[j]);
    }
}

static sw_code scale_there(const sw_side *side, float *to, const float *from, const double *scale,
                           int64_t n, int64_t k, bool divides, sw_err *err)
{
    sw_device *gpu = gpu_of(side);
    double *d_scale = NULL;
    sw_code rc;

    if (!scale) return sw_solver_copy(side->solver, to, from, n * k * (int64_t)sizeof *to, err);
    rc = sw_device_take((void **)&d_scale, gpu, k, (int64_t)sizeof *d_scale, "scale", err);
    if (rc == SW_OK) rc = sw_device_upload(gpu, d_scale, scale, k * (int64_t)sizeof *scale, err);
    if (rc == SW_OK) rc = sw_solver_scale(side->solver, to, from, d_scale, n, k, divides, err);
    sw_device_put(gpu, d_scale);
    return rc;
}

sw_code sw_side_scale(const sw_side *side, float *to, const float *from, const double *scale,
                      int64_t n, int64_t k, bool divides, sw_err *err)
{
    rows_job job = {.to = to, .from = from, .scale = scale, .k = k, .divides = divides};

    if (!scale && to == from) return SW_OK;
    if (side->solver) return scale_there(side, to, from, scale, n, k, divides, err);
    if (scale) sw_parallel_for(side->n_threads, n, ROWS, scale_rows, &job);
    else memcpy(to, from, (size_t)(n * k) * sizeof *to);
    return SW_OK;
}

static void add_errors(void *ctx, int64_t begin, int64_t end, int thread)
{
    const rows_job *job = ctx;
    int64_t k = job->k;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        double sum = 0;
        for (int64_t j = row * k; j < (row + 1) * k; j++) {
            double e = (double)job->from[j] - (job->want ? (double)job->want[j] : 0.0);
            sum += e * e;
        }
        job->by_row[row] += sum;
    }
}

sw_code sw_side_errors(const sw_side *side, double *by_row, const float *have, const float *want,
                       int64_t n, int64_t width, sw_err *err)
{
    rows_job job = {.from = have, .want = want, .by_row = by_row, .k = width};

    if (side->solver)
        return sw_solver_row_errors(by_row, side->solver, have, want, n, width, err);
    sw_parallel_for(side->n_threads, n, ROWS, add_errors, &job);
    return SW_OK;
}

static sw_code multiply_there(const sw_side *side, float *y, const float *x, int64_t n,
                              const sw_weight *w, sw_err *err)
{
    sw_solver *s = side->solver;
    float *rounded = NULL;
    sw_code rc = SW_OK;

    if (w->act.scope != SW_ACT_NONE) {
        if ((rc = sw_side_take(&rounded, side, n * w->k_in, "rounded inputs", err)) != SW_OK)
            return rc;
        rc = sw_solver_act_round(s, rounded, x, n, w->k_in, &w->act, w->input_scale, err);
        x = rounded;
    }
    if (rc == SW_OK) rc = sw_solver_multiply(s, y, x, w->dense, n, w->n_out, w->k_in, err);
    sw_side_put(side, rounded);
    return rc;
}

sw_code sw_side_multiply(const sw_side *side, float *y, const float *x, int64_t n,
                         const sw_weight *w, sw_scratch *scratch, sw_err *err)
{
    sw_gemm p = {.m = n, .x = x, .x_stride = w->k_in, .y = y, .y_stride = w->n_out, .w = w,
                 .n_threads = side->n_threads};

    return side->solver ? multiply_there(side, y, x, n, w, err) : sw_gemm_run(&p, scratch, err);
}
