/* copies.c - copies of the residual stream: guessed before a layer, corrected after it (AltUp).
 *
 * Baykal et al., Alternating Updates for Efficient Transformers (2023), section 3, as Gemma 3n has
 * it: coefficients come from the active copy, the first, by a small router. The copies lie in the
 * engine's side rows; while a layer runs, the first of them there is what was guessed for X.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/engine/engine_internal.h"

#define FLOOR 1e-5 /* of a mean square that divides */

typedef struct copy_job {
    const sw_run *run;
    const float *coefs; /* [n_tokens, n_coefs] */
    int64_t n_coefs, n, hidden;
} copy_job;

static float *copies_of(const sw_run *run, int64_t t)
{
    const sw_model *m = run->e->m;

    return run->e->side + t * sw_model_side_width(m) + sw_model_side_of_copies(m);
}

/* Coefficients [n_tokens, rows of `slot`] by what X says, in scratch: tanh(router(norm(X) /
 * hidden)) through the linear of the slot. */
static sw_code find_coefs(float **out, sw_run *run, sw_slot slot, sw_err *err)
{
    sw_engine *e = run->e;
    const sw_weight *router = &run->block->linear[SW_SLOT_COPY_ROUTER];
    float *between = e->buf[SW_BUF_R], *modes = e->buf[SW_BUF_T];
    const int64_t n = run->n_tokens * router->n_out;
    sw_code rc;

    sw_norm_rows(e, between, run->x, run->block->norm[SW_SLOT_COPY_NORM], NULL, run->n_tokens,
                 e->m->hidden, e->m->norm_eps);
    e->vec->scale(between, (float)(1.0 / (double)e->m->hidden), run->n_tokens * e->m->hidden);
    if ((rc = sw_run_linear(e, modes, between, run->n_tokens, router, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) modes[i] = tanhf(modes[i]);
    *out = between;
    return sw_run_linear(e, between, modes, run->n_tokens, &run->block->linear[slot], err);
}

/* pred[i] = h[i] + sum over k of C[i][k] h[k], channel by channel. */
static void predict_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const copy_job *job = ctx;
    const int64_t n = job->n, hidden = job->hidden;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *copies = copies_of(job->run, t), *x = job->run->x + t * hidden, old[16];
        const float *c = job->coefs + t * job->n_coefs;

        for (int64_t d = 0; d < hidden; d++) {
            old[0] = x[d];
            for (int64_t i = 1; i < n; i++) old[i] = copies[i * hidden + d];
            for (int64_t i = 0; i < n; i++) {
                float sum = 0.0f;

                for (int64_t k = 0; k < n; k++) sum += c[i * n + k] * old[k];
                copies[i * hidden + d] = old[i] + sum;
            }
        }
        memcpy(x, copies, (size_t)hidden * sizeof *x);
    }
}

static copy_job job_of(const sw_run *run, const float *coefs, int64_t n_coefs)
{
    return (copy_job){.run = run, .coefs = coefs, .n_coefs = n_coefs, .n = run->e->m->n_copies,
                      .hidden = run->e->m->hidden};
}

sw_code sw_op_predict(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t n = run->e->m->n_copies;
    float *coefs = NULL;
    copy_job job;
    sw_code rc = find_coefs(&coefs, run, SW_SLOT_COPY_PREDICT, err);

    (void)op;
    if (rc != SW_OK) return rc;
    job = job_of(run, coefs, n * n);
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, predict_task, &job);
    return SW_OK;
}

/* Every copy moves by its share of what X has gained over the guess. */
static void correct_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const copy_job *job = ctx;
    const int64_t hidden = job->hidden;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *copies = copies_of(job->run, t), *x = job->run->x + t * hidden;
        const float *c = job->coefs + t * job->n_coefs;

        for (int64_t d = 0; d < hidden; d++) {
            const float gain = x[d] - copies[d];

            for (int64_t i = 0; i < job->n; i++)
                copies[i * hidden + d] += (c[i] + 1.0f) * gain;
        }
        memcpy(x, copies, (size_t)hidden * sizeof *x);
    }
}

sw_code sw_op_correct(sw_run *run, const sw_op *op, sw_err *err)
{
    float *coefs = NULL;
    copy_job job;
    sw_code rc = find_coefs(&coefs, run, SW_SLOT_COPY_CORRECT, err);

    (void)op;
    if (rc != SW_OK) return rc;
    job = job_of(run, coefs, run->e->m->n_copies);
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, correct_task, &job);
    return SW_OK;
}

sw_code sw_op_add_copies(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const float *src = sw_run_buf(run, op->src);

    (void)err;
    for (int64_t t = 0; t < run->n_tokens; t++)
        for (int64_t i = 1; i < m->n_copies; i++)
            run->e->vec->add(copies_of(run, t) + i * m->hidden, src + t * m->hidden, m->hidden);
    return SW_OK;
}

static double mean_square(const float *x, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum / (double)n;
}

/* Rows y as large as rows x. */
static void match_size(const sw_engine *e, float *y, const float *x, int64_t n_rows, int64_t width)
{
    for (int64_t t = 0; t < n_rows; t++) {
        const double want = mean_square(x + t * width, width);
        const double have = fmax(mean_square(y + t * width, width), FLOOR);

        e->vec->scale(y + t * width, (float)sqrt(want / have), width);
    }
}

/* The mean of the copies, each through a linear of its own and as large as the first. */
sw_code sw_op_merge(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    const int64_t n = e->m->n_copies, hidden = e->m->hidden;
    float *from = e->buf[SW_BUF_R], *made = e->buf[SW_BUF_T], *sum = e->buf[SW_BUF_N];
    sw_code rc;

    (void)op;
    if (run->block->layer + 1 != e->m->n_layers) return SW_OK;
    memcpy(sum, run->x, (size_t)(run->n_tokens * hidden) * sizeof *sum);
    for (int64_t i = 1; i < n; i++) {
        for (int64_t t = 0; t < run->n_tokens; t++)
            memcpy(from + t * hidden, copies_of(run, t) + i * hidden,
                   (size_t)hidden * sizeof *from);
        rc = sw_run_linear(e, made, from, run->n_tokens, &run->block->copies_out[i - 1], err);
        if (rc != SW_OK) return rc;
        match_size(e, made, run->x, run->n_tokens, hidden);
        e->vec->add(sum, made, run->n_tokens * hidden);
    }
    e->vec->scale(sum, 1.0f / (float)n, run->n_tokens * hidden);
    memcpy(run->x, sum, (size_t)(run->n_tokens * hidden) * sizeof *sum);
    return SW_OK;
}

/* What the copies are at first. */
sw_code sw_copies_embed(sw_engine *e, const sw_lm *lm, const float *x, int64_t n, sw_err *err)
{
    const int64_t hidden = e->m->hidden, width = sw_model_side_width(e->m);
    float *made = e->buf[SW_BUF_T];
    sw_code rc = SW_OK;

    for (int64_t i = 1; i < e->m->n_copies && rc == SW_OK; i++) {
        float *to = e->side + sw_model_side_of_copies(e->m) + i * hidden;

        if ((rc = sw_run_linear(e, made, x, n, &lm->copies_in[i - 1], err)) != SW_OK) return rc;
        match_size(e, made, x, n, hidden);
        for (int64_t t = 0; t < n; t++)
            memcpy(to + t * width, made + t * hidden, (size_t)hidden * sizeof *to);
    }
    return rc;
}

sw_code sw_op_low_rank(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    float *between = e->buf[SW_BUF_R];
    sw_code rc = sw_run_linear(e, between, sw_run_buf(run, op->src), run->n_tokens,
                               &run->block->linear[SW_SLOT_LOW_RANK_A], err);

    if (rc != SW_OK) return rc;
    return sw_run_linear(e, sw_run_buf(run, op->dst), between, run->n_tokens,
                         &run->block->linear[SW_SLOT_LOW_RANK_B], err);
}

static void cut_row(const sw_model *m, float *x, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    float least;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    sum /= (double)n;
    for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - sum) * ((double)x[i] - sum);
    least = (float)(sum + m->gate_cut * sqrt(squares / (double)n));
    for (int64_t i = 0; i < n; i++) x[i] = fmaxf(x[i] - least, 0.0f);
}

sw_code sw_op_cut(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t width = run->width[op->dst];
    float *x = sw_run_buf(run, op->dst);

    (void)err;
    if (!run->e->m->is_cut_layer[run->block->layer]) return SW_OK;
    for (int64_t t = 0; t < run->n_tokens; t++) cut_row(run->e->m, x + t * width, width);
    return SW_OK;
}
