/* side.c - what a token has beside its row of the residual stream. See engine.h.
 *
 * An input of a layer for itself (Gemma 3n and 4): (norm(projection of the embedding) + row of a
 * table of its own) / sqrt(2), used as a gate in the layer. And keys and values that later layers
 * read instead of making any.
 */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/engine/engine_internal.h"

typedef struct side_job {
    sw_engine *e;
    const sw_lm *lm;
    const uint32_t *ids;
    float *projected; /* [n, n_layers * inputs] */
    float *side;
    int64_t width;    /* of side */
} side_job;

/* Ids beyond the table have its first row: they stand for what is no text. */
static void table_row(float *out, const sw_weight *table, uint32_t id)
{
    const int64_t row = id < table->n_out ? (int64_t)id : 0;
    const int64_t bytes = table->k_in * sw_dtype_bits(table->dense_dtype) / 8;

    /* the dtype was checked at load */
    (void)!sw_float_decode_n(out, (const char *)table->dense + row * bytes, table->dense_dtype,
                             table->k_in, NULL);
}

static void embed_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const side_job *job = ctx;
    const sw_model *m = job->e->m;
    const int64_t p = m->side_inputs, n = m->n_layers * p;
    const float scale = (float)sqrt((double)p), half = (float)(1.0 / sqrt(2.0));

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *side = job->side + t * job->width, *made = job->projected + t * n;

        table_row(side, &job->lm->side_table, job->ids[t]);
        job->e->vec->scale(made, (float)(1.0 / sqrt((double)m->hidden)), n);
        for (int64_t l = 0; l < m->n_layers; l++)
            job->e->vec->rms_norm(made + l * p, made + l * p, job->lm->side_norm, p,
                                  (float)m->norm_eps);
        job->e->vec->scale(side, scale, n);
        job->e->vec->add(side, made, n);
        job->e->vec->scale(side, half, n);
    }
}

sw_code sw_side_embed(sw_engine *e, const sw_lm *lm, const float *x, const uint32_t *ids, int64_t n,
                      sw_err *err)
{
    const int64_t wide = e->m->n_layers * e->m->side_inputs;
    side_job job = {.e = e, .lm = lm, .ids = ids, .side = e->side,
                    .width = sw_model_side_width(e->m)};
    sw_code rc = SW_MEM_GET(&job.projected, n * wide, "inputs of layers", err);

    if (rc == SW_OK) rc = sw_run_linear(e, job.projected, x, n, &lm->side_projection, err);
    if (rc == SW_OK) sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, embed_task, &job);
    sw_mem_put(job.projected);
    return rc;
}

/* With a cache the layers find each other's there. */
sw_code sw_op_keep_kv(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t at = sw_model_side_of_kv(run->e->m, run->block->layer);
    const int64_t width = sw_model_side_width(run->e->m);
    const int64_t k = run->width[SW_BUF_K], v = run->width[SW_BUF_V];

    (void)op;
    (void)err;
    if (at < 0 || run->kv) return SW_OK;
    for (int64_t t = 0; t < run->n_tokens; t++) {
        float *to = run->e->side + t * width + at;

        memcpy(to, run->e->buf[SW_BUF_K] + t * k, (size_t)k * sizeof *to);
        memcpy(to + k, run->e->buf[SW_BUF_V] + t * v, (size_t)v * sizeof *to);
    }
    return SW_OK;
}

sw_code sw_op_take_kv(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const int64_t at = sw_model_side_of_kv(m, m->shares_kv[run->block->layer] - 1);
    const int64_t width = sw_model_side_width(m);
    const int64_t k = run->width[SW_BUF_K], v = run->width[SW_BUF_V];

    (void)op;
    (void)err;
    run->is_kv_taken = true;
    for (int64_t t = 0; t < run->n_tokens && !run->kv; t++) {
        const float *from = run->e->side + t * width + at;

        memcpy(run->e->buf[SW_BUF_K] + t * k, from, (size_t)k * sizeof *from);
        memcpy(run->e->buf[SW_BUF_V] + t * v, from + k, (size_t)v * sizeof *from);
    }
    return SW_OK;
}

sw_code sw_op_side_input(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    const int64_t p = e->m->side_inputs, width = sw_model_side_width(e->m);
    const int64_t at = sw_model_side_of_input(e->m, run->block->layer);
    float *gate = e->buf[SW_BUF_SIDE];
    sw_code rc = sw_run_linear(e, gate, sw_run_buf(run, op->src), run->n_tokens,
                               &run->block->linear[SW_SLOT_SIDE_GATE], err);

    if (rc != SW_OK) return rc;
    sw_act_rows(e, gate, NULL, run->n_tokens, p);
    for (int64_t t = 0; t < run->n_tokens; t++)
        e->vec->mul(gate + t * p, e->side + t * width + at, p);
    return sw_run_linear(e, sw_run_buf(run, op->dst), gate, run->n_tokens,
                         &run->block->linear[SW_SLOT_SIDE_OUT], err);
}
