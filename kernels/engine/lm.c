/* lm.c - whole-model calls: embedding, head, logits of a batch. See engine.h. */
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/engine/engine_internal.h"

typedef struct embed_job {
    const sw_lm *lm;
    float *x;
    const uint32_t *ids;
    const sw_vec *vec;
    int64_t seq_len, first;
} embed_job;

static void decode_row(float *out, const sw_weight *w, int64_t row)
{
    const int64_t row_bytes = w->k_in * sw_dtype_bits(w->dense_dtype) / 8;

    /* the dtype was checked at load */
    (void)!sw_float_decode_n(out, (const char *)w->dense + row * row_bytes, w->dense_dtype,
                             w->k_in, NULL);
}

/* Learned positions, element by element so that a task needs no scratch. */
static void add_position(float *x, const sw_weight *w, int64_t row)
{
    const int64_t elem_bytes = sw_dtype_bits(w->dense_dtype) / 8;
    const char *from = (const char *)w->dense + row * w->k_in * elem_bytes;

    for (int64_t i = 0; i < w->k_in; i++) {
        float one = 0.0f;

        (void)!sw_float_decode_n(&one, from + i * elem_bytes, w->dense_dtype, 1, NULL);
        x[i] += one;
    }
}

static void embed_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const embed_job *job = ctx;
    const sw_model *m = job->lm->model;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *row = job->x + i * m->hidden;

        decode_row(row, &job->lm->embed, (int64_t)job->ids[i]);
        if (m->embed_scale != 1.0) job->vec->scale(row, (float)m->embed_scale, m->hidden);
        if (job->lm->positions.dense)
            add_position(row, &job->lm->positions,
                         m->first_position_row + job->first + i % job->seq_len);
        if (job->lm->embed_norm)
            job->vec->layer_norm(row, row, job->lm->embed_norm, job->lm->embed_norm_bias,
                                 m->hidden, (float)m->norm_eps);
    }
}

bool sw_lm_only_looks_up(const sw_lm *lm)
{
    const sw_model *m = lm->model;

    return !lm->positions.dense && !lm->embed_norm && !m->hyper_rounds && !m->n_copies &&
           !m->keeps_token_ids && !m->side_inputs;
}

/* For layers that ask what token a row is. */
static void keep_ids(sw_engine *e, const uint32_t *ids, int64_t n)
{
    const int64_t at = sw_model_side_of_token(e->m), width = sw_model_side_width(e->m);

    for (int64_t t = 0; t < n; t++) memcpy(e->side + t * width + at, ids + t, sizeof *ids);
}

sw_code sw_engine_embed(sw_engine *e, const sw_lm *lm, float *x, const uint32_t *ids,
                        int64_t n_seqs, int64_t seq_len, int64_t first, sw_err *err)
{
    embed_job job = {lm, x, ids, e->vec, seq_len, first};
    const int64_t n = n_seqs * seq_len, end = first + seq_len;
    sw_code rc;

    if (lm->positions.dense && end > lm->positions.n_out - e->m->first_position_row)
        return SW_FAIL(err, SW_E_USAGE, "position %lld; the model has %lld", (long long)end - 1,
                       (long long)(lm->positions.n_out - e->m->first_position_row));
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= lm->embed.n_out)
            return SW_FAIL(err, SW_E_FORMAT, "token %lld has id %lu, but the vocabulary has %lld",
                           (long long)i, (unsigned long)ids[i], (long long)lm->embed.n_out);
    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, embed_task, &job);
    if (e->m->hyper_rounds) sw_streams_embed(e, x, n);
    if (e->m->keeps_token_ids) keep_ids(e, ids, n);
    if (e->m->n_copies && !e->m->hyper_rounds &&
        (rc = sw_copies_embed(e, lm, x, n, err)) != SW_OK)
        return rc;
    return e->m->side_inputs ? sw_side_embed(e, lm, x, ids, n, err) : SW_OK;
}

sw_code sw_engine_head(sw_engine *e, const sw_lm *lm, float *logits, const float *x, int64_t n,
                       sw_err *err)
{
    const int64_t hidden = e->m->hidden, vocab = lm->head.n_out;
    float *normed = e->buf[SW_BUF_N];
    sw_code rc = SW_OK;

    for (int64_t t = 0; t < n && rc == SW_OK; t += e->max_tokens) {
        const int64_t n_rows = sw_min_i64(e->max_tokens, n - t);

        sw_norm_rows(e, normed, x + t * hidden, lm->final_norm, lm->final_norm_bias, n_rows,
                     hidden, e->m->norm_eps);
        rc = sw_run_linear(e, logits + t * vocab, normed, n_rows, &lm->head, err);
        if (rc == SW_OK && e->m->logits_scale != 1.0)
            e->vec->scale(logits + t * vocab, (float)e->m->logits_scale, n_rows * vocab);
        if (rc == SW_OK && e->m->logits_cap > 0.0)
            e->vec->softcap(logits + t * vocab, (float)e->m->logits_cap, n_rows * vocab);
    }
    return rc;
}

static sw_code logits_of_some(sw_engine *e, const sw_lm *lm, float *logits, const uint32_t *ids,
                              int64_t n_seqs, int64_t seq_len, sw_err *err)
{
    float *x = NULL;
    sw_code rc = sw_engine_hidden(e, &x, err);

    if (rc == SW_OK) rc = sw_engine_embed(e, lm, x, ids, n_seqs, seq_len, 0, err);
    for (int64_t l = 0; l < e->m->n_layers && rc == SW_OK; l++)
        rc = sw_engine_block(e, &lm->blocks[l], x, n_seqs, seq_len, NULL, NULL,
                             (sw_site)SW_RUN_ALL, err);
    return rc == SW_OK ? sw_engine_head(e, lm, logits, x, n_seqs * seq_len, err) : rc;
}

sw_code sw_engine_logits(sw_engine *e, const sw_lm *lm, float *logits, const uint32_t *ids,
                         int64_t n_seqs, int64_t seq_len, sw_err *err)
{
    const int64_t at_once = seq_len > 0 ? e->max_tokens / seq_len : 0;
    sw_code rc = SW_OK;

    if (at_once < 1)
        return SW_FAIL(err, SW_E_USAGE, "a sequence of %lld tokens; 1 to %lld fit",
                       (long long)seq_len, (long long)e->max_tokens);
    for (int64_t s = 0; s < n_seqs && rc == SW_OK; s += at_once)
        rc = logits_of_some(e, lm, logits + s * seq_len * lm->head.n_out, ids + s * seq_len,
                            sw_min_i64(at_once, n_seqs - s), seq_len, err);
    return rc;
}
