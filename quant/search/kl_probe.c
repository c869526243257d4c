/* kl_probe.c - see kl_probe.h. */
#include "quant/search/kl_probe.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"

#define SEQ_TOKENS_MAX 256
#define TOKENS_MAX 1024
#define STREAMS_BYTES_MAX ((int64_t)256 << 20)
#define HEAD_ROWS 64 /* rows of logits held at a time */

static int64_t stream_elems(const sw_kl_probe *p)
{
    return p->n_seqs * p->seq_len * p->model->hidden;
}

int64_t sw_kl_probe_windows(int64_t seq_len)
{
    return sw_max_i64(1, TOKENS_MAX / sw_min_i64(seq_len, SEQ_TOKENS_MAX));
}

/* Short pieces of many windows say more than one long one. */
static void choose_tokens(sw_kl_probe *p, const sw_calib *calib, int64_t n_max)
{
    int64_t per_token = (n_max + 1) * p->model->hidden * (int64_t)sizeof(float);
    int64_t n_tokens = sw_min_i64(TOKENS_MAX, STREAMS_BYTES_MAX / per_token);

    p->seq_len = sw_min_i64(calib->seq_len, SEQ_TOKENS_MAX);
    p->n_seqs = sw_max_i64(1, sw_min_i64(calib->n_seqs, n_tokens / p->seq_len));
}

int64_t sw_kl_probe_tokens(const sw_model *model, const sw_calib *calib, int64_t n_max)
{
    sw_kl_probe p = {.model = model};

    choose_tokens(&p, calib, n_max);
    return p.n_seqs * p.seq_len;
}

static sw_code embed(sw_kl_probe *p, const sw_st *st, const sw_calib *calib, sw_err *err)
{
    sw_lm ends;
    sw_code rc;

    memset(&ends, 0, sizeof ends);
    rc = sw_lm_load_tables(&ends, p->model, st, err);
    for (int64_t s = 0; s < p->n_seqs && rc == SW_OK; s++)
        rc = sw_engine_embed(p->engine, &ends, p->base + s * p->seq_len * p->model->hidden,
                             calib->ids + s * calib->seq_len, 1, p->seq_len, 0, err);
    sw_lm_free(&ends);
    return rc;
}

sw_code sw_kl_probe_new(sw_kl_probe *out, const sw_model *model, const sw_st *st,
                        const sw_calib *calib, int64_t n_max, int n_threads, sw_err *err)
{
    sw_kl_probe p = {.model = model, .n_max = n_max};
    sw_code rc;

    choose_tokens(&p, calib, n_max);
    rc = sw_engine_new(&p.engine, model, p.n_seqs * p.seq_len, p.seq_len, n_threads, err);
    if (rc != SW_OK || (rc = SW_MEM_GET(&p.base, stream_elems(&p), "probe", err)) != SW_OK ||
        (rc = SW_MEM_GET(&p.streams, n_max, "probes", err)) != SW_OK ||
        (rc = embed(&p, st, calib, err)) != SW_OK)
        sw_kl_probe_free(&p);
    else
        *out = p;
    return rc;
}

void sw_kl_probe_free(sw_kl_probe *p)
{
    for (int64_t i = 0; i < p->n; i++) sw_mem_put(p->streams[i]);
    sw_mem_put(p->streams);
    sw_mem_put(p->base);
    sw_engine_free(p->engine);
    memset(p, 0, sizeof *p);
}

static sw_code run(sw_kl_probe *p, float *x, const sw_block *block, sw_err *err)
{
    return sw_engine_block(p->engine, block, x, p->n_seqs, p->seq_len, NULL, NULL,
                           (sw_site)SW_RUN_ALL, err);
}

sw_code sw_kl_probe_add(sw_kl_probe *p, const sw_block *changed, sw_err *err)
{
    float *x = NULL;
    sw_code rc;

    if (p->n == p->n_max) return SW_FAIL(err, SW_E_BUG, "more probes than announced");
    if ((rc = SW_MEM_GET(&x, stream_elems(p), "probe", err)) != SW_OK) return rc;
    memcpy(x, p->base, (size_t)stream_elems(p) * sizeof *x);
    p->streams[p->n++] = x;
    return run(p, x, changed, err);
}

sw_code sw_kl_probe_advance(sw_kl_probe *p, const sw_block *original, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < p->n_settled && rc == SW_OK; i++)
        rc = run(p, p->streams[i], original, err);
    p->n_settled = p->n;
    return rc == SW_OK ? run(p, p->base, original, err) : rc;
}

static double log_sum_exp(const float *logits, int64_t n)
{
    double most = (double)logits[0], sum = 0;

    for (int64_t i = 1; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static double divergence(const float *ref, const float *have, int64_t n)
{
    double ref_sum = log_sum_exp(ref, n), have_sum = log_sum_exp(have, n), kl = 0;

    for (int64_t i = 0; i < n; i++) {
        double log_p = (double)ref[i] - ref_sum;
        kl += exp(log_p) * (log_p - ((double)have[i] - have_sum));
    }
    return fmax(kl, 0);
}

/* The same HEAD_ROWS positions of every stream. */
static sw_code compare_rows(double *kl, sw_kl_probe *p, const sw_lm *ends, float *ref, float *have,
                            int64_t row, int64_t n_rows, sw_err *err)
{
    int64_t vocab = ends->head.n_out, at = row * p->model->hidden;
    sw_code rc = sw_engine_head(p->engine, ends, ref, p->base + at, n_rows, err);

    for (int64_t i = 0; i < p->n && rc == SW_OK; i++) {
        rc = sw_engine_head(p->engine, ends, have, p->streams[i] + at, n_rows, err);
        for (int64_t r = 0; r < n_rows && rc == SW_OK; r++)
            kl[i] += divergence(ref + r * vocab, have + r * vocab, vocab);
    }
    return rc;
}

sw_code sw_kl_probe_finish(double *kl, sw_kl_probe *p, const sw_st *st,
                           const sw_linear_source *source, sw_err *err)
{
    int64_t n_rows = p->n_seqs * p->seq_len;
    float *ref = NULL, *have = NULL;
    sw_lm ends;
    sw_code rc;

    memset(&ends, 0, sizeof ends);
    for (int64_t i = 0; i < p->n; i++) kl[i] = 0;
    if ((rc = sw_lm_load_ends(&ends, p->model, st, source, err)) != SW_OK ||
        (rc = SW_MEM_GET(&ref, HEAD_ROWS * ends.head.n_out, "logits", err)) != SW_OK ||
        (rc = SW_MEM_GET(&have, HEAD_ROWS * ends.head.n_out, "logits", err)) != SW_OK)
        goto done;
    for (int64_t row = 0; row < n_rows && rc == SW_OK; row += HEAD_ROWS)
        rc = compare_rows(kl, p, &ends, ref, have, row, sw_min_i64(HEAD_ROWS, n_rows - row), err);
    for (int64_t i = 0; i < p->n; i++) kl[i] /= (double)n_rows;
done:
    sw_lm_free(&ends);
    sw_mem_put(ref);
    sw_mem_put(have);
    return rc;
}
