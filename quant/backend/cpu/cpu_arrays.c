/* cpu_arrays.c - arrays in memory, what searches do with them (backend.h), and lanes. */
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "quant/backend/cpu/cpu.h"

#define ROWS 64

/* Every step uses all threads. */
int sw_cpu_n_lanes(const sw_place *at, int64_t item_bytes)
{
    (void)at;
    (void)item_bytes;
    return 1;
}

sw_code sw_cpu_lane(sw_place *out, const sw_place *at, int i, sw_err *err)
{
    (void)i;
    (void)err;
    *out = *at;
    return SW_OK;
}

sw_code sw_cpu_finish(const sw_place *at, sw_err *err)
{
    (void)at;
    (void)err;
    return SW_OK;
}

sw_code sw_cpu_take(void **out, const sw_place *at, int64_t n, int64_t elem_bytes, const char *what,
                    sw_err *err)
{
    (void)at;
    return sw_mem_get(out, n, (size_t)elem_bytes, what, err);
}

void sw_cpu_put(const sw_place *at, void *values)
{
    (void)at;
    sw_mem_put(values);
}

sw_code sw_cpu_plus(const sw_place *at, double *to, const double *a, const double *b, int64_t n,
                    sw_err *err)
{
    (void)at;
    (void)err;
    for (int64_t i = 0; i < n; i++) to[i] = b ? a[i] + b[i] : a[i];
    return SW_OK;
}

sw_code sw_cpu_lend(float **out, const sw_place *at, float *from, int64_t n, const char *what,
                    sw_err *err)
{
    (void)at;
    (void)n;
    (void)what;
    (void)err;
    *out = from;
    return SW_OK;
}

void sw_cpu_unlend(const sw_place *at, float *values)
{
    (void)at;
    (void)values;
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

sw_code sw_cpu_scale(const sw_place *at, float *to, const float *from, const double *scale,
                     int64_t n, int64_t k, bool divides, sw_err *err)
{
    rows_job job = {.to = to, .from = from, .scale = scale, .k = k, .divides = divides};

    (void)err;
    if (scale) sw_parallel_for(at->n_threads, n, ROWS, scale_rows, &job);
    else if (to != from) memcpy(to, from, (size_t)(n * k) * sizeof *to);
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

sw_code sw_cpu_errors(const sw_place *at, double *by_row, const float *have, const float *want,
                      int64_t n, int64_t width, sw_err *err)
{
    rows_job job = {.from = have, .want = want, .by_row = by_row, .k = width};

    (void)err;
    sw_parallel_for(at->n_threads, n, ROWS, add_errors, &job);
    return SW_OK;
}

sw_code sw_cpu_multiply(const sw_place *at, float *y, const float *x, int64_t n,
                        const sw_weight *w, sw_scratch *scratch, sw_err *err)
{
    sw_gemm p = {.m = n, .x = x, .x_stride = w->k_in, .y = y, .y_stride = w->n_out, .w = w,
                 .n_threads = at->n_threads};

    return sw_gemm_run(&p, scratch, err);
}
