/* block_probe.c - see block_probe.h. */
#include "quant/search/block_probe.h"

#include <string.h>

#include "formats/base/size.h"
#include "quant/device/probe_device.h"
#include "quant/device/streams_device.h"

#define HELD_EVERY 8

static bool is_held(int64_t seq, int64_t n_seqs)
{
    if (n_seqs < HELD_EVERY) return n_seqs > 1 && seq == n_seqs - 1;
    return seq % HELD_EVERY == HELD_EVERY - 1;
}

/* At most `cap` of the windows of a part, evenly spread. */
static void pick(uint8_t *parts, sw_block_probe_part part, int64_t n_seqs, int64_t cap)
{
    int64_t n_all = 0, at = 0, n_kept = 0;

    for (int64_t i = 0; i < n_seqs; i++)
        n_all += is_held(i, n_seqs) == (part == SW_BLOCK_PROBE_HELD);
    for (int64_t i = 0; i < n_seqs; i++) {
        if (is_held(i, n_seqs) != (part == SW_BLOCK_PROBE_HELD)) continue;
        if (at * cap / n_all >= n_kept && n_kept < cap) {
            parts[i] |= (uint8_t)(1 << part);
            n_kept++;
        }
        at++;
    }
}

static const int64_t tokens_max[SW_BLOCK_PROBE_PARTS] = {
    [SW_BLOCK_PROBE_SEARCH] = 16384, [SW_BLOCK_PROBE_TRIAL] = 4096, [SW_BLOCK_PROBE_HELD] = 4096};

int64_t sw_block_probe_trial_tokens(int64_t n_seqs, int64_t seq_len)
{
    int64_t cap = sw_max_i64(1, tokens_max[SW_BLOCK_PROBE_TRIAL] / seq_len);

    return seq_len * sw_min_i64(n_seqs, cap);
}

void sw_block_probe_parts(uint8_t *parts, int64_t n_seqs, int64_t seq_len)
{

    memset(parts, 0, (size_t)n_seqs);
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++)
        pick(parts, (sw_block_probe_part)part, n_seqs, sw_max_i64(1, tokens_max[part] / seq_len));
}

sw_code sw_block_probe_new(sw_block_probe *out, sw_streams *streams, sw_err *err)
{
    const uint8_t *parts = streams->parts;
    uint8_t *own = NULL;
    sw_block_probe p = {.streams = streams};
    sw_code rc = SW_OK;

    if (!parts && (rc = SW_MEM_GET(&own, streams->n_seqs, "probe windows", err)) == SW_OK) {
        sw_block_probe_parts(own, streams->n_seqs, streams->seq_len);
        parts = own;
    }
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS && rc == SW_OK; part++) {
        rc = SW_MEM_GET(&p.seqs[part], streams->n_seqs, "probe windows", err);
        for (int64_t i = 0; i < streams->n_seqs && rc == SW_OK; i++)
            if (parts[i] >> part & 1) p.seqs[part][p.n_seqs[part]++] = i;
    }
    sw_mem_put(own);
    if (rc == SW_OK)
        *out = p;
    else
        sw_block_probe_free(&p);
    return rc;
}

void sw_block_probe_free(sw_block_probe *probe)
{
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++) sw_mem_put(probe->seqs[part]);
    memset(probe, 0, sizeof *probe);
}

sw_side sw_block_probe_side(const sw_block_probe *probe, int n_threads)
{
    const sw_device_streams *on = probe->streams->on;

    return (sw_side){on ? on->solver : NULL, n_threads};
}

int64_t sw_block_probe_tokens(const sw_block_probe *probe, sw_block_probe_part part)
{
    return probe->n_seqs[part] * probe->streams->seq_len;
}

/* Windows [at, at + n) of a part through the block; the result stays in streams->work. */
static sw_code run_batch(const sw_block_probe *p, sw_block_probe_part part, int64_t at, int64_t n,
                         const sw_block *block, sw_half half, const sw_tap *tap, sw_site stop_at,
                         sw_err *err)
{
    sw_streams *s = p->streams;
    int64_t per_seq = s->seq_len * s->model->hidden;

    for (int64_t i = 0; i < n; i++)
        memcpy(s->work + i * per_seq, s->x + p->seqs[part][at + i] * per_seq,
               (size_t)per_seq * sizeof *s->x);
    return sw_engine_half(s->engine, block, s->work, n, s->seq_len, half, tap, stop_at, err);
}

static sw_half half_of(const sw_streams *s, const sw_block *block, sw_site site)
{
    const sw_half half = sw_engine_half_of(s->model, block->layer, site);

    return half == SW_HALF_MLP || half == SW_HALF_BOTH ? s->ahead : half;
}

sw_code sw_block_probe_tap(const sw_block_probe *probe, sw_block_probe_part part,
                           const sw_block *block, sw_site site, const sw_tap *tap, sw_err *err)
{
    int64_t step = probe->streams->chunk_seqs;
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < probe->n_seqs[part] && rc == SW_OK; at += step)
        rc = run_batch(probe, part, at, sw_min_i64(step, probe->n_seqs[part] - at), block,
                       half_of(probe->streams, block, site), tap, site, err);
    return rc;
}

static sw_code output_there(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                            const sw_block *block, sw_site site, sw_err *err)
{
    sw_device_block *loaded = NULL;
    sw_code rc = sw_block_probe_load_there(&loaded, probe, block, site, err);

    if (rc == SW_OK) rc = sw_block_probe_output_there(y, probe, part, loaded, site, err);
    sw_device_block_free(loaded);
    return rc;
}

sw_code sw_block_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err)
{
    const sw_streams *s = probe->streams;
    int64_t step = s->chunk_seqs, per_seq = s->seq_len * s->model->hidden;
    sw_code rc = SW_OK;

    if (s->on) return output_there(y, probe, part, block, site, err);

    for (int64_t at = 0; at < probe->n_seqs[part] && rc == SW_OK; at += step) {
        int64_t n = sw_min_i64(step, probe->n_seqs[part] - at);

        rc = run_batch(probe, part, at, n, block, half_of(s, block, site), NULL,
                       (sw_site)SW_RUN_ALL, err);
        if (rc == SW_OK) memcpy(y + at * per_seq, s->work, (size_t)(n * per_seq) * sizeof *y);
    }
    return rc;
}

typedef struct hessian_tap {
    sw_hessian *hess;
    int64_t n_hess;
    sw_site site;
    bool wants_experts;
} hessian_tap;

static sw_code add_rows(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                        int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    const hessian_tap *tap = self;

    (void)k_in;
    (void)residual;
    (void)token_ids;
    if (site != tap->site || (expert >= 0) != tap->wants_experts) return SW_OK;
    return sw_hessian_add(&tap->hess[expert < 0 ? 0 : expert], x, NULL, NULL, n_tokens, err);
}

sw_code sw_block_probe_hessians(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                                sw_block_probe_part part, const sw_block *block, sw_site site,
                                sw_err *err)
{
    hessian_tap seen = {hess, n_hess, site, false};
    sw_tap tap = {.self = &seen, .see = add_rows};
    sw_code rc;

    if (probe->streams->on)
        return sw_block_probe_hessians_there(hess, n_hess, probe, part, block, site, err);
    seen.wants_experts =
        site == SW_SITE_DOWN_IN && sw_model_is_sparse(probe->streams->model, block->layer);
    rc = sw_block_probe_tap(probe, part, block, site, &tap, err);
    for (int64_t i = 0; i < n_hess && rc == SW_OK; i++) sw_hessian_finish(&hess[i]);
    return rc;
}
