/* runner_cpu.c - see runner.h: the CPU engine.
 *
 * Sequences decode together (sw_engine_step) where the model allows it, else one after the other.
 * They hold the same tokens, so that the caches of all are copies of the first one's. A turn begins
 * at the same number of tokens again.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/kernel.h"
#include "verify/speed/runner.h"
#include "verify/speed/speed_data.h"

typedef struct cpu_runner {
    const sw_lm *lm;
    sw_engine *engine;
    int n_threads;
    int64_t max_tokens;
    float *x, *rows, *logits; /* x [max_tokens, hidden]; rows [n, hidden] are what the head reads */
    int64_t n_rows;           /* that rows and logits [n_rows, vocab] hold */
    uint32_t *ids;            /* [max_tokens] */
    int64_t batch, context;   /* of decoding */
    sw_kv *kv;                /* [n_layers, batch], or */
    sw_kv **caches;           /* likewise, addresses */
    sw_session **sessions;    /* [batch] */
    const sw_weight *const *weights; /* of linears */
    int64_t n_weights, m, next;
    float *in, *out;
    sw_scratch scratch;
} cpu_runner;

uint32_t sw_speed_runner_token(const sw_lm *lm, int64_t seq, int64_t t)
{
    return (uint32_t)((t * 7919 + seq * 104729 + 17) % lm->embed.n_out);
}

void sw_speed_runner_free(sw_speed_runner *r)
{
    if (r->close) r->close(r->self);
    memset(r, 0, sizeof *r);
}

static void decode_end(void *self)
{
    cpu_runner *r = self;
    const int64_t n = r->kv ? r->batch * r->lm->model->n_layers : 0;

    for (int64_t i = 0; i < n; i++) sw_kv_free(&r->kv[i]);
    for (int64_t i = 0; r->sessions && i < r->batch; i++) sw_session_free(r->sessions[i]);
    sw_mem_put(r->kv);
    sw_mem_put(r->caches);
    sw_mem_put(r->sessions);
    r->kv = NULL;
    r->caches = NULL;
    r->sessions = NULL;
}

/* One stretch of the first sequence through all blocks, its keys and values into the cache. */
static sw_code feed(cpu_runner *r, int64_t first, int64_t n, sw_err *err)
{
    const int64_t n_layers = r->lm->model->n_layers;
    sw_code rc;

    for (int64_t t = 0; t < n; t++) r->ids[t] = sw_speed_runner_token(r->lm, 0, first + t);
    rc = sw_engine_embed(r->engine, r->lm, r->x, r->ids, 1, n, first, err);
    for (int64_t l = 0; l < n_layers && rc == SW_OK; l++)
        rc = sw_engine_block(r->engine, &r->lm->blocks[l], r->x, 1, n, &r->kv[l * r->batch], NULL,
                             (sw_site)SW_RUN_ALL, err);
    return rc;
}

static void copy_cache(sw_kv *to, const sw_kv *from, const sw_model *m, int64_t layer)
{
    const sw_sizes s = sw_model_sizes(m, layer);
    const size_t k = (size_t)(from->n_cached * s.n_kv_heads * s.head_dim) * sizeof *from->k;
    const size_t v = (size_t)(from->n_cached * s.n_kv_heads * s.v_head_dim) * sizeof *from->v;

    to->n_cached = from->n_cached;
    if (from == to || !from->k) return;
    memcpy(to->k, from->k, k);
    memcpy(to->v, from->v, v);
}

/* Caches of all sequences, side by side for each layer. */
static sw_code begin_together(cpu_runner *r, int64_t n_steps, sw_err *err)
{
    const sw_model *m = r->lm->model;
    sw_code rc = SW_MEM_GET(&r->kv, m->n_layers * r->batch, "caches", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&r->caches, m->n_layers * r->batch, "caches", err);
    for (int64_t i = 0; i < m->n_layers * r->batch && rc == SW_OK; i++) {
        r->caches[i] = &r->kv[i];
        rc = sw_kv_reserve(&r->kv[i], m, i / r->batch, r->context + n_steps, err);
    }
    for (int64_t t = 0; t < r->context && rc == SW_OK; t += r->max_tokens)
        rc = feed(r, t, sw_min_i64(r->max_tokens, r->context - t), err);
    for (int64_t i = 0; i < m->n_layers * r->batch && rc == SW_OK; i++)
        copy_cache(&r->kv[i], &r->kv[i / r->batch * r->batch], m, i / r->batch);
    return rc;
}

static sw_code begin_in_turns(cpu_runner *r, int64_t n_steps, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&r->sessions, r->batch, "sessions", err);

    for (int64_t i = 0; i < r->batch && rc == SW_OK; i++) {
        rc = sw_session_new(&r->sessions[i], r->engine, r->lm, r->context + n_steps, err);
        for (int64_t t = 0; t < r->context && rc == SW_OK; t += r->max_tokens) {
            const int64_t n = sw_min_i64(r->max_tokens, r->context - t);

            for (int64_t j = 0; j < n; j++) r->ids[j] = sw_speed_runner_token(r->lm, i, t + j);
            rc = sw_session_feed_rows(r->sessions[i], r->x, r->ids, n, err);
        }
    }
    return rc;
}

static sw_code grow_logits(cpu_runner *r, int64_t n, sw_err *err)
{
    sw_code rc;

    if (n <= r->n_rows) return SW_OK;
    sw_mem_put(r->logits);
    sw_mem_put(r->rows);
    r->logits = r->rows = NULL;
    r->n_rows = n;
    rc = SW_MEM_GET(&r->logits, n * r->lm->head.n_out, "logits", err);
    return rc == SW_OK ? SW_MEM_GET(&r->rows, n * r->lm->model->hidden, "hidden rows", err) : rc;
}

static sw_code decode_begin(void *self, int64_t batch, int64_t context, int64_t n_steps,
                            sw_err *err)
{
    cpu_runner *r = self;
    sw_code rc;

    r->batch = batch;
    r->context = context;
    if ((rc = grow_logits(r, batch, err)) != SW_OK) return rc;
    return sw_engine_can_step(r->lm->model) ? begin_together(r, n_steps, err)
                                            : begin_in_turns(r, n_steps, err);
}

static sw_code step_together(cpu_runner *r, sw_err *err)
{
    const int64_t at = r->kv[0].n_cached;
    sw_code rc;

    for (int64_t i = 0; i < r->batch; i++) r->ids[i] = sw_speed_runner_token(r->lm, i, at);
    rc = sw_engine_embed(r->engine, r->lm, r->x, r->ids, r->batch, 1, at, err);
    for (int64_t l = 0; l < r->lm->model->n_layers && rc == SW_OK; l++)
        rc = sw_engine_step(r->engine, &r->lm->blocks[l], r->x, r->batch, r->caches + l * r->batch,
                            err);
    return rc == SW_OK ? sw_engine_head(r->engine, r->lm, r->logits, r->x, r->batch, err) : rc;
}

static sw_code step_in_turns(cpu_runner *r, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < r->batch && rc == SW_OK; i++) {
        const uint32_t id = sw_speed_runner_token(r->lm, i, sw_session_length(r->sessions[i]));

        rc = sw_session_feed(r->sessions[i], r->logits, &id, 1, err);
    }
    return rc;
}

static sw_code decode(void *self, int64_t n_steps, sw_err *err)
{
    cpu_runner *r = self;
    sw_code rc = SW_OK;

    for (int64_t i = 0; r->kv && i < r->batch * r->lm->model->n_layers; i++)
        r->kv[i].n_cached = r->context;
    for (int64_t t = 0; t < n_steps && rc == SW_OK; t++)
        rc = r->kv ? step_together(r, err) : step_in_turns(r, err);
    return rc;
}

static sw_code prefill(void *self, int64_t n_seqs, int64_t n_tokens, sw_err *err)
{
    cpu_runner *r = self;
    const int64_t hidden = r->lm->model->hidden;
    sw_code rc = grow_logits(r, n_seqs, err);

    for (int64_t i = 0; i < n_seqs * n_tokens; i++)
        r->ids[i] = sw_speed_runner_token(r->lm, i / n_tokens, i % n_tokens);
    if (rc == SW_OK)
        rc = sw_engine_embed(r->engine, r->lm, r->x, r->ids, n_seqs, n_tokens, 0, err);
    for (int64_t l = 0; l < r->lm->model->n_layers && rc == SW_OK; l++)
        rc = sw_engine_block(r->engine, &r->lm->blocks[l], r->x, n_seqs, n_tokens, NULL, NULL,
                             (sw_site)SW_RUN_ALL, err);
    for (int64_t i = 0; i < n_seqs && rc == SW_OK; i++)
        memcpy(r->rows + i * hidden, r->x + ((i + 1) * n_tokens - 1) * hidden,
               (size_t)hidden * sizeof *r->x);
    return rc == SW_OK ? sw_engine_head(r->engine, r->lm, r->logits, r->rows, n_seqs, err) : rc;
}

static sw_code linear_begin(void *self, int64_t *per_pass, const sw_weight *const *weights,
                            int64_t n, int64_t m, sw_err *err)
{
    cpu_runner *r = self;
    sw_code rc;

    *per_pass = 1;
    r->weights = weights;
    r->n_weights = n;
    r->m = m;
    r->next = 0;
    if ((rc = SW_MEM_GET(&r->in, m * weights[0]->k_in, "inputs", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->out, m * weights[0]->n_out, "outputs", err)) != SW_OK)
        return rc;
    sw_speed_random_floats(r->in, m * weights[0]->k_in, 6);
    return SW_OK;
}

static sw_gemm product(const cpu_runner *r, const sw_weight *w)
{
    return (sw_gemm){.m = r->m, .x = r->in, .x_stride = w->k_in, .y = r->out,
                     .y_stride = w->n_out, .w = w, .n_threads = r->n_threads};
}

static sw_code linear(void *self, int64_t n_passes, sw_err *err)
{
    cpu_runner *r = self;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n_passes && rc == SW_OK; i++) {
        const sw_gemm p = product(r, r->weights[r->next++ % r->n_weights]);

        rc = sw_gemm_run(&p, &r->scratch, err);
    }
    return rc;
}

static void linear_end(void *self)
{
    cpu_runner *r = self;

    sw_mem_put(r->in);
    sw_mem_put(r->out);
    r->in = r->out = NULL;
}

static const char *kernel(void *self)
{
    const cpu_runner *r = self;
    const sw_gemm p = product(r, r->weights[0]);

    return sw_kernel_select(&p, NULL)->name;
}

static void close_runner(void *self)
{
    cpu_runner *r = self;

    decode_end(r);
    linear_end(r);
    sw_engine_free(r->engine);
    sw_scratch_free(&r->scratch);
    sw_mem_put(r->x);
    sw_mem_put(r->rows);
    sw_mem_put(r->logits);
    sw_mem_put(r->ids);
    sw_mem_put(r);
}

sw_code sw_speed_runner_on_cpu(sw_speed_runner *out, const sw_lm *lm, int64_t max_tokens,
                               int64_t max_seq, int n_threads, sw_err *err)
{
    cpu_runner *r = NULL;
    sw_code rc = SW_MEM_GET(&r, 1, "runner", err);

    if (rc != SW_OK) return rc;
    r->lm = lm;
    r->n_threads = n_threads;
    r->max_tokens = max_tokens;
    if ((rc = SW_MEM_GET(&r->x, max_tokens * lm->model->hidden, "hidden rows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->ids, max_tokens, "tokens", err)) != SW_OK ||
        (rc = sw_engine_new(&r->engine, lm->model, max_tokens, max_seq, n_threads, err)) != SW_OK) {
        close_runner(r);
        return rc;
    }
    *out = (sw_speed_runner){.self = r, .decode_begin = decode_begin, .decode = decode,
                       .decode_end = decode_end, .prefill = prefill, .linear_begin = linear_begin,
                       .linear = linear, .linear_end = linear_end, .kernel = kernel,
                       .close = close_runner, .is_in_turns = !sw_engine_can_step(lm->model),
                               .rewinds = sw_engine_can_step(lm->model),
                       .kv_elem_bytes = sizeof(float)};
    return SW_OK;
}
