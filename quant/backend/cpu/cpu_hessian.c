/* cpu_hessian.c - sums of products in memory (hessian.h) on the CPU. */
#include <cblas.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "quant/backend/cpu/cpu.h"

#define STRIP_ROWS 128

sw_code sw_cpu_hessian_new(sw_hessian *hess, bool with_cross, sw_err *err)
{
    int64_t k = hess->k_in, n_r = hess->n_out_residual;
    sw_code rc = SW_MEM_GET(&hess->h, k * k, "Hessian", err);

    if (rc == SW_OK && with_cross) rc = SW_MEM_GET(&hess->d, k * k, "cross term", err);
    if (rc == SW_OK && n_r) rc = SW_MEM_GET(&hess->r, n_r * k, "residual term", err);
    return rc;
}

/* D is the product of rows that are there; W D would take another for every chunk. */
sw_code sw_cpu_hessian_weigh(sw_hessian *hess, sw_err *err)
{
    (void)hess;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "the CPU sums cross terms of inputs alone");
}

void sw_cpu_hessian_free(sw_hessian *hess)
{
    sw_mem_put(hess->h);
    sw_mem_put(hess->d);
    sw_mem_put(hess->r);
}

/* One product C += A^T B over a chunk of tokens, cut into strips of C's rows. */
typedef struct gram_job {
    double *c;       /* [n_a, n_b] */
    const float *a;  /* [n_tokens, n_a] */
    const float *b;  /* [n_tokens, n_b] */
    int64_t n_a, n_b, n_tokens;
    bool upper_only; /* a == b: columns left of the strip are not needed */
    float *scratch;  /* [n_threads, STRIP_ROWS, n_b] */
} gram_job;

static SW_HOT void add_rows(double *to, int64_t to_stride, const float *from, int64_t n_rows,
                            int64_t width)
{
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < width; j++) to[i * to_stride + j] += (double)from[i * width + j];
}

static void gram_strip(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gram_job *job = ctx;
    int64_t from = job->upper_only ? begin : 0, width = job->n_b - from;
    float *part = job->scratch + (int64_t)thread * STRIP_ROWS * job->n_b;

    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(end - begin), (int)width,
                (int)job->n_tokens, 1.0f, job->a + begin, (int)job->n_a, job->b + from,
                (int)job->n_b, 0.0f, part, (int)width);
    add_rows(job->c + begin * job->n_b + from, job->n_b, part, end - begin, width);
}

static sw_code gram_add(gram_job job, int n_threads, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&job.scratch, (int64_t)n_threads * STRIP_ROWS * job.n_b,
                            "Hessian scratch", err);

    if (rc != SW_OK) return rc;
    sw_parallel_for(n_threads, job.n_a, STRIP_ROWS, gram_strip, &job);
    sw_mem_put(job.scratch);
    return SW_OK;
}


sw_code sw_cpu_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                           int64_t n_tokens, sw_err *err)
{
    int64_t k = hess->k_in, n_r = hess->n_out_residual;
    int n_threads = hess->place.n_threads;
    sw_code rc;

    for (int64_t at = 0; at < n_tokens; at += SW_HESSIAN_CHUNK_TOKENS) {
        int64_t n = sw_min_i64(SW_HESSIAN_CHUNK_TOKENS, n_tokens - at);
        gram_job h = {hess->h, x + at * k, x + at * k, k, k, n, true, NULL};
        if ((rc = gram_add(h, n_threads, err)) != SW_OK) return rc;
        if (hess->d && dx) {
            gram_job d = {hess->d, dx + at * k, x + at * k, k, k, n, false, NULL};
            if ((rc = gram_add(d, n_threads, err)) != SW_OK) return rc;
        }
        if (hess->r && dr) {
            gram_job r = {hess->r, dr + at * n_r, x + at * k, n_r, k, n, false, NULL};
            if ((rc = gram_add(r, n_threads, err)) != SW_OK) return rc;
        }
    }
    hess->n_tokens += n_tokens;
    return SW_OK;
}

sw_code sw_cpu_hessian_settle(sw_hessian *hess, sw_err *err)
{
    (void)err;
    sw_hessian_finish(hess);
    return SW_OK;
}

sw_code sw_cpu_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err)
{
    int64_t k = hess->k_in;

    (void)err;
    for (int64_t j = 0; j < k; j++) diagonal[j] = hess->h[j * k + j];
    return SW_OK;
}

sw_code sw_cpu_hessian_scale(sw_hessian *out, const sw_hessian *hess, const double *scale,
                             sw_err *err)
{
    int64_t k = hess->k_in;

    (void)err;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++)
            out->h[i * k + j] = hess->h[i * k + j] / (scale ? scale[i] * scale[j] : 1.0);
    return SW_OK;
}

sw_code sw_cpu_hessian_fill(sw_hessian *out, const double *h, sw_err *err)
{
    (void)err;
    memcpy(out->h, h, (size_t)(out->k_in * out->k_in) * sizeof *h);
    return SW_OK;
}

sw_code sw_cpu_hessian_read(const double **h, double **own, const sw_hessian *hess, sw_err *err)
{
    (void)own;
    (void)err;
    *h = hess->h;
    return SW_OK;
}

static void add_all(double *into, const double *from, int64_t n)
{
    for (int64_t i = 0; into && from && i < n; i++) into[i] += from[i];
}

sw_code sw_cpu_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    (void)err;
    add_all(into->h, from->h, into->k_in * into->k_in);
    return SW_OK;
}

sw_code sw_cpu_hessian_merge_cross(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    (void)err;
    add_all(into->d, from->d, into->k_in * into->k_in);
    add_all(into->r, from->r, into->n_out_residual * into->k_in);
    return SW_OK;
}

sw_code sw_cpu_hessian_blend(sw_hessian *half, const sw_hessian *all, double own, double every,
                             sw_err *err)
{
    int64_t n = all->k_in * all->k_in;

    (void)err;
    for (int64_t i = 0; i < n; i++)
        half[0].h[i] =
            own * (half[0].h[i] + (half[1].h ? half[1].h[i] : 0.0)) + every * all->h[i];
    return SW_OK;
}
