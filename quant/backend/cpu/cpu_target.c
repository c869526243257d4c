/* cpu_target.c - the sums that a linear's target is made of (target.h), in memory on the CPU. */
#include <cblas.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "quant/backend/cpu/cpu.h"

#define ROWS 64 /* rows are independent: the unit of parallel work */

_Static_assert(SW_SAMPLE_BLOCK_ROWS % ROWS == 0, "no chunk has rows of two blocks of a sample");

typedef struct target_job {
    const sw_factor *f;
    const sw_hessian *seen, *held;
    const float *w;
    double *shift;            /* [n_out, k] when a shift is wanted */
    sw_strengths strengths;
    const sw_row_sample *rows; /* of forms */
    double (*forms)[5];       /* of the sample, at a chunk's first row: dd, dr, rr, d, r */
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
    int64_t first = sw_row_sample_run(job->rows, begin, n).row * k;
    double *wide = job->scratch + (int64_t)thread * job->n_buffers * ROWS * k;
    double *sd = wide + ROWS * k, *sr = sd + ROWS * k, *b = sr + ROWS * k, *t = b + ROWS * k;
    double *form = job->forms[begin];

    widen(wide, job->w + first, nk);
    multiply(sd, 0.0, 1.0, wide, job->seen->d, n, k);
    multiply(b, 0.0, 1.0, wide, job->held->d, n, k);
    sw_factor_times_inverse(sd, t, job->f, n);
    memset(sr, 0, (size_t)nk * sizeof *sr);
    if (job->with_residual) {
        memcpy(sr, job->seen->r + first, (size_t)nk * sizeof *sr);
        sw_factor_times_inverse(sr, t, job->f, n);
        cblas_daxpy((int)nk, 1.0, job->held->r + first, 1, b, 1);
    }
    multiply(t, 0.0, 1.0, sd, job->held->h, n, k);
    form[0] = inner(t, sd, nk);
    form[1] = inner(t, sr, nk);
    multiply(t, 0.0, 1.0, sr, job->held->h, n, k);
    form[2] = inner(t, sr, nk);
    form[3] = inner(b, sd, nk);
    form[4] = inner(b, sr, nk);
}

/* Chunk by chunk. */
sw_code sw_cpu_target_form(double (*by_row)[5], const sw_factor *f, const sw_hessian *seen,
                           const sw_hessian *held, const float *w, const sw_row_sample *rows,
                           bool with_residual, sw_err *err)
{
    target_job job = {.f = f, .seen = seen, .held = held, .w = w, .n_buffers = 5,
                      .with_residual = with_residual, .rows = rows, .forms = by_row};
    int n_threads = seen->place.n_threads;
    sw_code rc;

    rc = SW_MEM_GET(&job.scratch, n_threads * job.n_buffers * ROWS * f->k_in, "target search", err);
    if (rc != SW_OK) return rc;
    sw_parallel_for(n_threads, sw_row_sample_count(rows), ROWS, form_chunk, &job);
    sw_mem_put(job.scratch);
    return SW_OK;
}

sw_code sw_cpu_target_shift(double *shift, const sw_factor *f, const sw_hessian *hess,
                            const float *w, int64_t n_out, sw_strengths strengths,
                            bool with_residual, sw_err *err)
{
    target_job job = {.f = f, .seen = hess, .w = w, .shift = shift, .strengths = strengths,
                      .n_buffers = 1, .with_residual = with_residual};
    int n_threads = hess->place.n_threads;
    sw_code rc = SW_MEM_GET(&job.scratch, n_threads * ROWS * f->k_in, "target shift", err);

    if (rc != SW_OK) return rc;
    sw_parallel_for(n_threads, n_out, ROWS, shift_chunk, &job);
    sw_mem_put(job.scratch);
    return SW_OK;
}
