/* target.c - see target.h. */
#include "quant/method/target.h"

#include <cblas.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "quant/device/target_device.h"

#define ROWS 64 /* rows are independent: the unit of parallel work */

typedef struct target_job {
    const sw_factor *f;
    const sw_hessian *seen, *held;
    const float *w;
    double *shift;            /* [n_out, k] when a shift is wanted */
    sw_strengths strengths;
    double (*forms)[5];       /* per chunk: dd, dr, rr, d, r of the held-out error */
    double *scratch;          /* [n_threads, buffers, ROWS, k] */
    int n_buffers;
    bool with_residual;
} target_job;

static void widen(double *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
}

/* out [n, k] = beta out + alpha a [n, k] * b [k, k] */
static void multiply(double *out, double beta, double alpha, const double *a, const double *b,
                     int64_t n, int64_t k)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)k, (int)k, alpha, a, (int)k,
                b, (int)k, beta, out, (int)k);
}

static double inner(const double *a, const double *b, int64_t n)
{
    return cblas_ddot((int)n, a, 1, b, 1);
}

static void shift_chunk(void *ctx, int64_t begin, int64_t end, int thread)
{
    const target_job *job = ctx;
    int64_t k = job->f->k_in, n = end - begin;
    double *wide = job->scratch + (int64_t)thread * job->n_buffers * ROWS * k;
    double *rows = job->shift + begin * k;

    memset(rows, 0, (size_t)(n * k) * sizeof *rows);
    if (job->with_residual)
        cblas_daxpy((int)(n * k), job->strengths.residual, job->seen->r + begin * k, 1, rows, 1);
    if (job->seen->d && job->strengths.input > 0) {
        widen(wide, job->w + begin * k, n * k);
        multiply(rows, 1.0, job->strengths.input, wide, job->seen->d, n, k);
    }
    sw_factor_times_inverse(rows, wide, job->f, n);
}

/* With S = a Sd + b Sr the held-out error is tr(S H S^T) - 2 tr(S B^T) + const, B = W D + R. */
static void form_chunk(void *ctx, int64_t begin, int64_t end, int thread)
{
    const target_job *job = ctx;
    int64_t k = job->f->k_in, n = end - begin, nk = n * k;
    double *wide = job->scratch + (int64_t)thread * job->n_buffers * ROWS * k;
    double *sd = wide + ROWS * k, *sr = sd + ROWS * k, *b = sr + ROWS * k, *t = b + ROWS * k;
    double *form = job->forms[begin / ROWS];

    widen(wide, job->w + begin * k, nk);
    multiply(sd, 0.0, 1.0, wide, job->seen->d, n, k);
    multiply(b, 0.0, 1.0, wide, job->held->d, n, k);
    sw_factor_times_inverse(sd, t, job->f, n);
    memset(sr, 0, (size_t)nk * sizeof *sr);
    if (job->with_residual) {
        memcpy(sr, job->seen->r + begin * k, (size_t)nk * sizeof *sr);
        sw_factor_times_inverse(sr, t, job->f, n);
        cblas_daxpy((int)nk, 1.0, job->held->r + begin * k, 1, b, 1);
    }
    multiply(t, 0.0, 1.0, sd, job->held->h, n, k);
    form[0] = inner(t, sd, nk);
    form[1] = inner(t, sr, nk);
    multiply(t, 0.0, 1.0, sr, job->held->h, n, k);
    form[2] = inner(t, sr, nk);
    form[3] = inner(b, sd, nk);
    form[4] = inner(b, sr, nk);
}

static double clamp(double v, double cap)
{
    return v > cap ? cap : v > 0 ? v : 0;
}

/* Coordinate descent on a convex form of two clamped variables: exact after a few rounds. */
static sw_strengths minimize(const double q[5], sw_strengths cap)
{
    sw_strengths s = {0, 0};

    for (int round = 0; round < 50; round++) {
        s.input = q[0] > 0 ? clamp((q[3] - q[1] * s.residual) / q[0], cap.input) : 0;
        s.residual = q[2] > 0 ? clamp((q[4] - q[1] * s.input) / q[2], cap.residual) : 0;
    }
    return s;
}

/* The form over all rows, summed chunk by chunk, in the scale of the factor. */
static sw_code sum_forms(double form[5], target_job *job, int64_t n_out, double scale, sw_err *err)
{
    int64_t n_chunks = sw_ceil_div(n_out, ROWS);
    int n_threads = job->seen->n_threads;
    double sums[5] = {0};
    sw_code rc;

    if (job->f->solver) {
        rc = sw_target_form_device(sums, job->f, job->seen, job->held, job->w, n_out,
                                   job->with_residual, err);
        for (int i = 0; i < 5; i++) form[i] = sums[i] * (i < 3 ? scale * scale : scale);
        return rc;
    }
    rc = SW_MEM_GET(&job->scratch, n_threads * job->n_buffers * ROWS * job->f->k_in,
                    "target search", err);
    if (rc != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&job->forms, n_chunks, "target search", err)) != SW_OK) goto done;
    sw_parallel_for(n_threads, n_out, ROWS, form_chunk, job);
    for (int64_t c = 0; c < n_chunks; c++)
        for (int i = 0; i < 5; i++) sums[i] += job->forms[c][i] * (i < 3 ? scale * scale : scale);
    memcpy(form, sums, sizeof sums);
done:
    sw_mem_put(job->scratch);
    sw_mem_put(job->forms);
    return rc;
}

sw_code sw_target_strengths(sw_strengths *out, const sw_factor *factor, const sw_hessian *seen,
                            const sw_hessian *held, const float *w, int64_t n_out,
                            sw_strengths cap, sw_err *err)
{
    /* the factor is of all tokens, the cross terms of those seen: bring them to one scale */
    double scale = (double)(seen->n_tokens + held->n_tokens) / (double)seen->n_tokens;
    double q[5];
    target_job job = {.f = factor, .seen = seen, .held = held, .w = w, .n_buffers = 5};
    sw_code rc;

    job.with_residual = cap.residual > 0 && seen->n_out_residual == n_out;
    if ((rc = sum_forms(q, &job, n_out, scale, err)) != SW_OK) return rc;
    *out = minimize(q, cap);
    return SW_OK;
}

sw_code sw_target_shift(double *shift, const sw_factor *factor, const sw_hessian *hess,
                        const float *w, int64_t n_out, sw_strengths strengths, sw_err *err)
{
    target_job job = {.f = factor, .seen = hess, .w = w, .shift = shift, .strengths = strengths,
                      .n_buffers = 1};
    sw_code rc;

    job.with_residual = strengths.residual > 0 && hess->n_out_residual == n_out;
    if (factor->solver)
        return sw_target_shift_device(shift, factor, hess, w, n_out, strengths, job.with_residual,
                                      err);
    rc = SW_MEM_GET(&job.scratch, hess->n_threads * ROWS * factor->k_in, "target shift", err);
    if (rc != SW_OK) return rc;
    sw_parallel_for(hess->n_threads, n_out, ROWS, shift_chunk, &job);
    sw_mem_put(job.scratch);
    return SW_OK;
}

sw_code sw_target_shift_new(double **out, const sw_factor *factor, int64_t n_out, sw_err *err)
{
    int64_t n = n_out * factor->k_in;

    if (!factor->solver) return SW_MEM_GET(out, n, "target shift", err);
    return sw_device_take((void **)out, sw_solver_gpu(factor->solver), n, (int64_t)sizeof **out,
                          "target shift", err);
}

void sw_target_shift_free(double *shift, const sw_factor *factor)
{
    if (!shift) return;
    if (factor->solver)
        sw_device_put(sw_solver_gpu(factor->solver), shift);
    else sw_mem_put(shift);
}
