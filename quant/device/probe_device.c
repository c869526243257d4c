/* probe_device.c - see probe_device.h. */
#include "quant/device/probe_device.h"

#include <string.h>

#include "formats/base/size.h"
#include "quant/device/streams_device.h"

static sw_half half_of(const sw_streams *s, sw_site site)
{
    return site < SW_SITE_MLP_IN ? SW_HALF_ATTENTION : s->ahead;
}

static void drop_experts(sw_block *block)
{
    for (int i = 0; i < 3; i++) block->experts[i] = NULL;
}

/* Linears of the other half need not be there. */
static void drop_half(sw_block *block, const sw_model *m, sw_half half)
{
    sw_linear_ref refs[SW_SLOT_COUNT];
    int64_t n = sw_min_i64(sw_model_linears(m, block->layer, refs, SW_SLOT_COUNT), SW_SLOT_COUNT);

    if (half == SW_HALF_ATTENTION) drop_experts(block);
    if (half == SW_HALF_BOTH || sw_model_is_sparse(m, block->layer)) return;
    for (int64_t i = 0; i < n; i++)
        if ((refs[i].site < SW_SITE_MLP_IN) != (half == SW_HALF_ATTENTION))
            block->linear[refs[i].slot].n_out = 0;
}

sw_code sw_block_probe_load_there(sw_device_block **out, const sw_block_probe *probe,
                                  const sw_block *block, sw_site site, sw_err *err)
{
    const sw_streams *s = probe->streams;
    sw_block part = *block;

    drop_half(&part, s->model, half_of(s, site));
    return sw_device_block_load(out, s->on->engine, &part, err);
}

/* Windows [at, at + n) of a part through the block; the result stays in the streams' d_work. */
static sw_code run_batch(const sw_block_probe *p, sw_block_probe_part part, int64_t at, int64_t n,
                         const sw_device_block *block, sw_half half, const sw_device_tap *tap,
                         sw_site stop_at, sw_err *err)
{
    const sw_streams *s = p->streams;
    const sw_device_streams *on = s->on;
    int64_t per_seq = s->seq_len * s->model->hidden;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = sw_solver_copy(on->solver, on->d_work + i * per_seq,
                            on->d_x + p->seqs[part][at + i] * per_seq,
                            per_seq * (int64_t)sizeof *on->d_x, err);
    return rc == SW_OK ? sw_device_engine_half(on->engine, block, on->d_work, n, s->seq_len, half,
                                               tap, stop_at, err)
                       : rc;
}

sw_code sw_block_probe_output_there(float *d_y, const sw_block_probe *probe,
                                    sw_block_probe_part part, const sw_device_block *block,
                                    sw_site site, sw_err *err)
{
    const sw_streams *s = probe->streams;
    int64_t step = s->chunk_seqs, per_seq = s->seq_len * s->model->hidden;
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < probe->n_seqs[part] && rc == SW_OK; at += step) {
        int64_t n = sw_min_i64(step, probe->n_seqs[part] - at);

        rc = run_batch(probe, part, at, n, block, half_of(s, site), NULL, (sw_site)SW_RUN_ALL,
                       err);
        if (rc == SW_OK)
            rc = sw_solver_copy(s->on->solver, d_y + at * per_seq, s->on->d_work,
                                n * per_seq * (int64_t)sizeof *d_y, err);
    }
    return rc;
}

/* Show the site to a tap, with the half block loaded for it. */
static sw_code tap_part(const sw_block_probe *probe, sw_block_probe_part part,
                        const sw_block *block, sw_site site, const sw_device_tap *tap, sw_err *err)
{
    const sw_streams *s = probe->streams;
    sw_device_block *loaded = NULL;
    sw_block shown = *block;
    sw_code rc;

    if (site < SW_SITE_DOWN_IN) drop_experts(&shown);
    rc = sw_block_probe_load_there(&loaded, probe, &shown, site, err);

    for (int64_t at = 0; at < probe->n_seqs[part] && rc == SW_OK; at += s->chunk_seqs)
        rc = run_batch(probe, part, at, sw_min_i64(s->chunk_seqs, probe->n_seqs[part] - at),
                       loaded, half_of(s, site), tap, site, err);
    sw_device_block_free(loaded);
    return rc;
}

typedef struct hessian_tap {
    sw_hessian *hess;
    sw_site site;
    bool wants_experts;
} hessian_tap;

static sw_code add_rows(void *self, sw_site site, int64_t expert, const void *d_x,
                        int64_t n_tokens, int64_t k_in, int64_t stride,
                        const int32_t *token_ids, sw_err *err)
{
    const hessian_tap *tap = self;

    (void)k_in;
    (void)token_ids;
    if (site != tap->site || (expert >= 0) != tap->wants_experts) return SW_OK;
    return sw_hessian_add_device(&tap->hess[expert < 0 ? 0 : expert], d_x, stride, NULL, NULL,
                                 n_tokens, err);
}

sw_code sw_block_probe_hessians_there(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                                      sw_block_probe_part part, const sw_block *block, sw_site site,
                                      sw_err *err)
{
    const sw_model *m = probe->streams->model;
    hessian_tap seen = {hess, site,
                        site == SW_SITE_DOWN_IN && sw_model_is_sparse(m, block->layer)};
    sw_device_tap tap = {.self = &seen, .see = add_rows};
    sw_code rc = tap_part(probe, part, block, site, &tap, err);

    for (int64_t i = 0; i < n_hess && rc == SW_OK; i++) rc = sw_hessian_settle(&hess[i], err);
    return rc;
}

typedef struct resume {
    sw_solver *solver;
    sw_site site;
    int64_t expert;
    float *d_amax, *d_rows;
    int64_t n_seen, every, n_rows, n_max;
} resume;

static sw_code keep(void *self, sw_site site, int64_t expert, const void *d_x, int64_t n_tokens,
                    int64_t k_in, int64_t stride, const int32_t *token_ids, sw_err *err)
{
    resume *k = self;
    int64_t first = (k->every - k->n_seen % k->every) % k->every, n;
    sw_code rc;

    (void)token_ids;
    if (site != k->site || expert != k->expert) return SW_OK;
    n = first < n_tokens ? (n_tokens - first - 1) / k->every + 1 : 0;
    n = sw_min_i64(n, k->n_max - k->n_rows);
    rc = sw_solver_watch_sizes(k->solver, k->d_amax, NULL, d_x, stride, n_tokens, k_in, err);
    if (rc == SW_OK)
        rc = sw_solver_watch_take(k->solver, k->d_rows + k->n_rows * k_in, d_x, stride, first,
                                  k->every, n, k_in, err);
    k->n_rows += n;
    k->n_seen += n_tokens;
    return rc;
}

sw_code sw_block_probe_keep_there(float *amax, float *d_rows, int64_t *n_rows, int64_t n_max,
                                  int64_t every, const sw_block_probe *probe,
                                  sw_block_probe_part part, const sw_block *block, sw_site site,
                                  int64_t expert, sw_err *err)
{
    const sw_streams *s = probe->streams;
    int64_t k_in = sw_model_site_width(s->model, block->layer, site);
    int64_t n_bytes = k_in * (int64_t)sizeof *amax;
    sw_device *gpu = s->on->gpu;
    resume kept = {.solver = s->on->solver,
                   .site = site,
                   .expert = expert,
                   .d_rows = d_rows,
                   .every = every,
                   .n_max = n_max};
    sw_device_tap tap = {.self = &kept,
                         .see = keep,
                         .expert_begin = sw_max_i64(0, expert),
                         .expert_end = expert + 1};
    sw_code rc = sw_device_take((void **)&kept.d_amax, gpu, n_bytes, 1, "input ranges", err);

    if (rc == SW_OK) rc = sw_device_fill(gpu, kept.d_amax, 0, n_bytes, err);
    if (rc == SW_OK) rc = tap_part(probe, part, block, site, &tap, err);
    if (rc == SW_OK) rc = sw_device_download(gpu, amax, kept.d_amax, n_bytes, err);
    sw_device_put(gpu, kept.d_amax);
    if (rc == SW_OK) *n_rows = kept.n_rows;
    return rc;
}
