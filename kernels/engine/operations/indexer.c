/* indexer.c - the keys that attention sees, in models that choose them; see sparse/key_choice.h.
 *
 * Up to top_k tokens every key is seen and nothing is chosen, but what keys are chosen by is cached
 * all the same, for the tokens after those. Layers that share a choice find it in the side rows.
 */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/engine/engine_internal.h"
#include "kernels/engine/sparse/key_choice.h"

#define CHOICE_NORM_EPS 1e-6 /* whatever rms_norm_eps says */

void sw_index_scratch_free(sw_index_scratch *index)
{
    sw_mem_put(index->k);
    sw_mem_put(index->q);
    sw_mem_put(index->weights);
    sw_mem_put(index->chosen);
    sw_mem_put(index->scores);
    memset(index, 0, sizeof *index);
}

static int64_t end_of(const sw_run *run) { return run->first + run->seq_len; }
static bool sees_all(const sw_run *run) { return end_of(run) <= run->e->m->indexer.top_k; }

static sw_code take_rows(sw_engine *e, sw_err *err)
{
    const sw_indexer *x = &e->m->indexer;
    sw_index_scratch *s = &e->index;
    sw_code rc = SW_OK;

    if (!s->q) rc = SW_MEM_GET(&s->q, e->max_tokens * x->n_heads * x->head_dim, "indexer", err);
    if (rc == SW_OK && !s->weights)
        rc = SW_MEM_GET(&s->weights, e->max_tokens * x->n_heads, "indexer", err);
    if (rc == SW_OK && !s->chosen)
        rc = SW_MEM_GET(&s->chosen, e->max_tokens * x->top_k, "chosen keys", err);
    return rc;
}

static sw_code take_scores(sw_engine *e, int64_t n_keys, sw_err *err)
{
    sw_index_scratch *s = &e->index;
    float *larger = NULL;
    sw_code rc;

    if (n_keys <= s->n_keys) return SW_OK;
    n_keys *= 2; /* a text that grows by a token asks again */
    rc = SW_MEM_GET(&larger,
                    sw_key_choice_scratch(e->m->indexer.n_heads, n_keys, e->n_threads),
                    "scores of keys", err);
    if (rc != SW_OK) return rc;
    sw_mem_put(s->scores);
    s->scores = larger;
    s->n_keys = n_keys;
    return SW_OK;
}

/* Rows of heads whose first part turns. */
typedef struct turn_job {
    const sw_run *run;
    float *x;
    int64_t n_heads;
} turn_job;

static void turn_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const turn_job *job = ctx;
    const sw_engine *e = job->run->e;
    const sw_indexer *x = &e->m->indexer;
    const int64_t half = e->m->rope_dim / 2, width = job->n_heads * x->head_dim;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t at = (job->run->first + t % job->run->seq_len) * half;
        const float *cos = e->angles.cos + at, *sin = e->angles.sin + at;

        for (int64_t h = 0; h < width; h += x->head_dim)
            (x->is_paired ? e->vec->rotate_pairs : e->vec->rotate)(job->x + t * width + h, cos, sin,
                                                                   half);
    }
}

static void turn(const sw_run *run, float *x, int64_t n_heads)
{
    turn_job job = {run, x, n_heads};

    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, turn_task, &job);
}

/* What the tokens of this call are chosen by, of [n_tokens, head_dim]; and into the cache. */
static sw_code make_keys(sw_run *run, const float *src, sw_err *err)
{
    sw_engine *e = run->e;
    const int64_t dim = e->m->indexer.head_dim;
    sw_code rc = SW_OK;

    if (!e->index.k) rc = SW_MEM_GET(&e->index.k, e->max_tokens * dim, "indexer", err);
    if (rc != SW_OK) return rc;
    if ((rc = sw_run_linear(e, e->index.k, src, run->n_tokens,
                            &run->block->linear[SW_SLOT_INDEX_K], err)) ||
        (rc = sw_angles_fill(&e->angles, e->m, &e->m->rope, run->first, end_of(run), err)))
        return rc;
    sw_norm_rows(e, e->index.k, e->index.k, run->block->norm[SW_SLOT_NORM_INDEX],
                 run->block->norm_bias[SW_SLOT_NORM_INDEX], run->n_tokens, dim, CHOICE_NORM_EPS);
    turn(run, e->index.k, 1);
    if (run->kv)
        memcpy(run->kv->rows + run->first * dim, e->index.k,
               (size_t)(run->n_tokens * dim) * sizeof(float));
    return SW_OK;
}

static sw_code make_queries(sw_run *run, const float *src, sw_err *err)
{
    sw_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    sw_code rc = sw_run_linear(e, e->index.q, e->buf[SW_BUF_Q_A], run->n_tokens,
                               &run->block->linear[SW_SLOT_INDEX_Q], err);

    if (rc == SW_OK)
        rc = sw_run_linear(e, e->index.weights, src, run->n_tokens,
                           &run->block->linear[SW_SLOT_INDEX_WEIGHT], err);
    if (rc == SW_OK) turn(run, e->index.q, x->n_heads);
    return rc;
}

static void keep_choice(const sw_run *run)
{
    const sw_model *m = run->e->m;
    const int64_t at = sw_model_side_of_index(m), width = sw_model_side_width(m);
    const int64_t n = m->indexer.top_k;

    for (int64_t t = 0; t < run->n_tokens && at >= 0; t++)
        memcpy(run->e->side + t * width + at, run->e->index.chosen + t * n,
               (size_t)n * sizeof(float));
}

sw_code sw_op_index(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const float *src = sw_run_buf(run, op->src);
    sw_key_choice choice = {.n_seqs = run->n_seqs, .seq_len = run->seq_len, .first = run->first,
                            .n_keys = end_of(run), .tokens_per_key = 1, .n_heads = x->n_heads,
                            .head_dim = x->head_dim, .top_k = x->top_k,
                            .n_threads = e->n_threads};
    sw_code rc;

    if (sees_all(run) && !run->kv) return SW_OK;
    if ((rc = make_keys(run, src, err)) != SW_OK || sees_all(run)) return rc;
    if ((rc = take_rows(e, err)) || (rc = take_scores(e, end_of(run), err)) ||
        (rc = make_queries(run, src, err)))
        return rc;
    choice.q = e->index.q;
    choice.weights = e->index.weights;
    choice.keys = run->kv ? run->kv->rows : e->index.k;
    choice.chosen = e->index.chosen;
    choice.scratch = e->index.scores;
    sw_key_choice_run(&choice);
    keep_choice(run);
    run->chosen = e->index.chosen;
    return SW_OK;
}

sw_code sw_op_take_index(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const int64_t at = sw_model_side_of_index(m), width = sw_model_side_width(m);
    const int64_t n = m->indexer.top_k;
    sw_code rc;

    (void)op;
    if (sees_all(run)) return SW_OK;
    if ((rc = take_rows(run->e, err)) != SW_OK) return rc;
    for (int64_t t = 0; t < run->n_tokens; t++)
        memcpy(run->e->index.chosen + t * n, run->e->side + t * width + at,
               (size_t)n * sizeof(float));
    run->chosen = run->e->index.chosen;
    return SW_OK;
}
