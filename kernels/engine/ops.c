/* ops.c - the operations that only some families have. See formats/model/program.h.
 *
 * Each task writes rows of its own, in the order of their numbers, so that the bytes do not depend
 * on the thread count.
 */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/engine/engine_internal.h"

typedef struct op_job {
    const sw_run *run;
    float *dst;
    const float *src;
    int64_t width;
} op_job;

static op_job job_of(const sw_run *run, const sw_op *op)
{
    return (op_job){.run = run, .dst = sw_run_buf(run, op->dst), .src = sw_run_buf(run, op->src),
                    .width = run->width[op->dst]};
}

static void for_rows(const op_job *job, void (*task)(void *, int64_t, int64_t, int))
{
    op_job own = *job;

    sw_parallel_for(job->run->e->n_threads, job->run->n_tokens, SW_TOKENS_PER_TASK, task, &own);
}

/* Every head's rows have the next head's weights behind them. */
sw_code sw_op_head_layer_norm(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t dim = run->sizes.head_dim, n = run->width[op->dst] / dim;
    const sw_engine *e = run->e;
    float *x = sw_run_buf(run, op->dst);

    (void)err;
    for (int64_t i = 0; i < run->n_tokens * n; i++)
        e->vec->layer_norm(x + i * dim, x + i * dim, run->block->norm[op->slot] + i % n * dim,
                           run->block->norm_bias[op->slot] + i % n * dim, dim,
                           (float)e->m->norm_eps);
    return SW_OK;
}

static void split_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const op_job *job = ctx;
    const sw_sizes *s = &job->run->sizes;
    const int64_t shared = s->n_heads / s->n_kv_heads * s->head_dim, dim = s->head_dim;
    const size_t bytes = (size_t)dim * sizeof(float);
    float *k = sw_run_buf(job->run, SW_BUF_K), *v = sw_run_buf(job->run, SW_BUF_V);

    (void)thread;
    for (int64_t i = begin * s->n_kv_heads; i < end * s->n_kv_heads; i++) {
        const float *from = job->src + i * (shared + 2 * dim);

        memcpy(job->dst + i * shared, from, (size_t)shared * sizeof(float));
        memcpy(k + i * dim, from + shared, bytes);
        memcpy(v + i * dim, from + shared + dim, bytes);
    }
}

sw_code sw_op_split_groups(sw_run *run, const sw_op *op, sw_err *err)
{
    const op_job job = job_of(run, op);

    (void)err;
    for_rows(&job, split_task);
    return SW_OK;
}

sw_code sw_op_copy(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    memcpy(sw_run_buf(run, op->dst), sw_run_buf(run, op->src),
           (size_t)(run->n_tokens * run->width[op->dst]) * sizeof(float));
    return SW_OK;
}

static void clip_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const op_job *job = ctx;
    const float limit = (float)job->run->e->m->qkv_clip;

    (void)thread;
    for (int64_t i = begin * job->width; i < end * job->width; i++)
        job->dst[i] = fminf(fmaxf(job->dst[i], -limit), limit);
}

sw_code sw_op_clip(sw_run *run, const sw_op *op, sw_err *err)
{
    const op_job job = job_of(run, op);

    (void)err;
    for_rows(&job, clip_task);
    return SW_OK;
}

static void temper_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const op_job *job = ctx;
    const sw_run *run = job->run;
    const sw_model *m = run->e->m;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t position = run->first + t % run->seq_len;
        const double turns = (double)((position + m->temper_shift) / m->temper_every);

        run->e->vec->scale(job->dst + t * job->width,
                           (float)(1.0 + m->temper_beta * log(1.0 + turns)), job->width);
    }
}

sw_code sw_op_temper(sw_run *run, const sw_op *op, sw_err *err)
{
    const op_job job = job_of(run, op);

    (void)err;
    for_rows(&job, temper_task);
    return SW_OK;
}

sw_code sw_op_scale(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    run->e->vec->scale(sw_run_buf(run, op->dst), run->block->norm[op->slot][0],
                       run->n_tokens * run->width[op->dst]);
    return SW_OK;
}

/* The gates of rows stand in the router's scratch, which is free between its uses. */
sw_code sw_op_row_gate(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    float *gates = e->moe.share, *dst = sw_run_buf(run, op->dst);
    sw_code rc = sw_run_linear(e, gates, sw_run_buf(run, op->src), run->n_tokens,
                               &run->block->linear[op->slot], err);

    if (rc != SW_OK) return rc;
    e->vec->sigmoid(gates, run->n_tokens);
    for (int64_t t = 0; t < run->n_tokens; t++)
        e->vec->scale(dst + t * run->width[op->dst], gates[t], run->width[op->dst]);
    return SW_OK;
}

sw_code sw_op_route(sw_run *run, const sw_op *op, sw_err *err)
{
    run->is_routed = true;
    return sw_run_linear(run->e, run->e->moe.probs, sw_run_buf(run, op->src), run->n_tokens,
                         &run->block->linear[SW_SLOT_ROUTER], err);
}
