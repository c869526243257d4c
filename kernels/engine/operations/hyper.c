/* hyper.c - several residual streams that are mixed before and after each half of a block.
 *
 * Manifold-constrained hyper-connections (DeepSeek-AI, mHC, 2025, section 4): all streams of a
 * token, flattened and normed, say by one matrix how much of each stream a half reads (n numbers),
 * how much of its output each stream gets (n), and how the streams are mixed among each other (n x
 * n, made doubly stochastic by the iteration of Sinkhorn and Knopp). The first stream is X, the
 * others lie in the side rows where copies of it lie.
 */
#include <math.h>
#include <string.h>

#include <cblas.h>

#include "formats/base/parallel.h"
#include "kernels/engine/engine_internal.h"

#define STREAMS_MAX 16

typedef struct hyper_job {
    const sw_run *run;
    const float *fn, *base, *scale;
    float *coefs;    /* [n_tokens, n + n * n]: shares of the output, then the mixture */
    const float *in; /* [n_tokens, hidden] what the half has made */
    float *out;      /* [n_tokens, hidden] what the half is to read */
    int64_t n, hidden, width, at; /* the other streams begin at `at` of side rows */
} hyper_job;

static hyper_job job_of(const sw_run *run)
{
    const sw_model *m = run->e->m;

    return (hyper_job){.run = run, .coefs = run->e->buf[SW_BUF_R], .n = m->n_copies,
                       .hidden = m->hidden, .width = sw_model_side_width(m),
                       .at = sw_model_side_of_copies(m)};
}

static float *stream(const hyper_job *j, int64_t t, int64_t i)
{
    return i ? j->run->e->side + t * j->width + j->at + i * j->hidden
             : j->run->x + t * j->hidden;
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/* out[n_out] = the streams of a token, as one normed row, times fn. */
static void project(double *out, const hyper_job *j, int64_t t, int64_t n_out)
{
    float sums[STREAMS_MAX * (STREAMS_MAX + 2)];
    double squares = 0.0;

    for (int64_t i = 0; i < j->n; i++) {
        const float *x = stream(j, t, i);

        for (int64_t d = 0; d < j->hidden; d++) squares += (double)x[d] * (double)x[d];
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)n_out, (blasint)j->hidden, 1.0f,
                    j->fn + i * j->hidden, (blasint)(j->n * j->hidden), x, 1, i ? 1.0f : 0.0f,
                    sums, 1);
    }
    squares = squares / (double)(j->n * j->hidden) + j->run->e->m->norm_eps;
    for (int64_t i = 0; i < n_out; i++) out[i] = (double)sums[i] / sqrt(squares);
}

/* Rows of x [n, n] divided by their sums, or columns. */
static void balance(double *x, int64_t n, int64_t step, int64_t next, double eps)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = eps;

        for (int64_t k = 0; k < n; k++) sum += x[i * next + k * step];
        for (int64_t k = 0; k < n; k++) x[i * next + k * step] /= sum;
    }
}

static void make_mixture(double *x, const sw_model *m)
{
    const int64_t n = m->n_copies;

    for (int64_t i = 0; i < n; i++) {
        double top = x[i * n], sum = 0.0;

        for (int64_t k = 1; k < n; k++) top = fmax(top, x[i * n + k]);
        for (int64_t k = 0; k < n; k++) sum += x[i * n + k] = exp(x[i * n + k] - top);
        for (int64_t k = 0; k < n; k++) x[i * n + k] = x[i * n + k] / sum + m->hyper_eps;
    }
    balance(x, n, n, 1, m->hyper_eps);
    for (int64_t i = 1; i < m->hyper_rounds; i++) {
        balance(x, n, 1, n, m->hyper_eps);
        balance(x, n, n, 1, m->hyper_eps);
    }
}

/* out = the streams by their shares. */
static void read_streams(float *out, const hyper_job *j, int64_t t, const double *shares)
{
    for (int64_t d = 0; d < j->hidden; d++) {
        float sum = 0.0f;

        for (int64_t i = 0; i < j->n; i++) sum += (float)shares[i] * stream(j, t, i)[d];
        out[d] = sum;
    }
}

static void mix_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const hyper_job *j = ctx;
    const sw_model *m = j->run->e->m;
    const int64_t n = j->n;
    double x[STREAMS_MAX * (STREAMS_MAX + 2)];

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *coefs = j->coefs + t * n * (n + 1);

        project(x, j, t, n * (n + 2));
        for (int64_t i = 0; i < n * (n + 2); i++)
            x[i] = x[i] * (double)j->scale[i < 2 * n ? i / n : 2] + (double)j->base[i];
        for (int64_t i = 0; i < n; i++) x[i] = sigmoid(x[i]) + m->hyper_eps;
        for (int64_t i = n; i < 2 * n; i++) x[i] = 2.0 * sigmoid(x[i]);
        make_mixture(x + 2 * n, m);
        for (int64_t i = 0; i < n * (n + 1); i++) coefs[i] = (float)x[n + i];
        read_streams(j->out + t * j->hidden, j, t, x);
    }
}

sw_code sw_op_mix_streams(sw_run *run, const sw_op *op, sw_err *err)
{
    hyper_job job = job_of(run);

    (void)err;
    job.fn = run->block->norm[op->slot];
    job.base = run->block->norm[op->slot + 1];
    job.scale = run->block->norm[op->slot + 2];
    job.out = sw_run_buf(run, op->dst);
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, mix_task, &job);
    return SW_OK;
}

static void add_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const hyper_job *j = ctx;
    const int64_t n = j->n;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const float *shares = j->coefs + t * n * (n + 1), *mixture = shares + n;
        const float *in = j->in + t * j->hidden;
        float old[STREAMS_MAX];

        for (int64_t d = 0; d < j->hidden; d++) {
            for (int64_t i = 0; i < n; i++) old[i] = stream(j, t, i)[d];
            for (int64_t k = 0; k < n; k++) {
                float sum = shares[k] * in[d];

                for (int64_t i = 0; i < n; i++) sum += mixture[i * n + k] * old[i];
                stream(j, t, k)[d] = sum;
            }
        }
    }
}

sw_code sw_op_add_streams(sw_run *run, const sw_op *op, sw_err *err)
{
    hyper_job job = job_of(run);

    (void)err;
    job.in = sw_run_buf(run, op->src);
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, add_task, &job);
    return SW_OK;
}

static void merge_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const hyper_job *j = ctx;
    double x[STREAMS_MAX];

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        project(x, j, t, j->n);
        for (int64_t i = 0; i < j->n; i++)
            x[i] = sigmoid(x[i] * (double)j->scale[0] + (double)j->base[i]) +
                   j->run->e->m->hyper_eps;
        read_streams(j->run->x + t * j->hidden, j, t, x);
    }
}

/* Behind the last layer alone. */
sw_code sw_op_merge_streams(sw_run *run, const sw_op *op, sw_err *err)
{
    hyper_job job = job_of(run);

    (void)op;
    (void)err;
    if (run->block->layer + 1 != run->e->m->n_layers) return SW_OK;
    job.fn = run->block->merge[0];
    job.base = run->block->merge[1];
    job.scale = run->block->merge[2];
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, merge_task, &job);
    return SW_OK;
}

/* All streams begin as the embedding. */
void sw_streams_embed(sw_engine *e, const float *x, int64_t n)
{
    const int64_t hidden = e->m->hidden, width = sw_model_side_width(e->m);
    float *to = e->side + sw_model_side_of_copies(e->m);

    for (int64_t t = 0; t < n; t++)
        for (int64_t i = 1; i < e->m->n_copies; i++)
            memcpy(to + t * width + i * hidden, x + t * hidden, (size_t)hidden * sizeof *to);
}
