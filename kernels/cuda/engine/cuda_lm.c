/* cuda_lm.c - a whole model on the device: embedding, blocks, head. See device_engine.h. */
#include "kernels/cuda/engine/cuda_lm.h"

#include <string.h>

#include "formats/base/size.h"

#define HEAD_BYTES ((int64_t)64 << 20) /* of logits on the device at a time */
#define RESERVE_BYTES ((int64_t)8 << 20) /* for workspaces that grow, beside a streamed model */

/* ---- what it takes ---- */

static int64_t block_bytes(const sw_device_engine *e, const sw_block *b)
{
    int64_t sum = sw_device_experts_bytes(e, b, 0) + sw_device_hyper_bytes(e->m, b);

    for (int s = 0; s < SW_SLOT_COUNT; s++) sum += sw_device_weight_bytes(e, &b->linear[s]);
    for (int64_t i = 0; b->copies_out && i < e->m->n_copies - 1; i++)
        sum += sw_device_weight_bytes(e, &b->copies_out[i]);
    return sum;
}

static bool has_own_kv(const sw_model *m, int64_t layer)
{
    return sw_model_has_attention(m, layer) && !m->shares_kv[layer];
}

int64_t sw_device_k_width(const sw_model *m, int64_t layer)
{
    const sw_sizes s = sw_model_sizes(m, layer);

    return has_own_kv(m, layer) ? s.n_kv_heads * s.head_dim : 0;
}

int64_t sw_device_v_width(const sw_model *m, int64_t layer)
{
    const sw_sizes s = sw_model_sizes(m, layer);

    return has_own_kv(m, layer) ? s.n_kv_heads * s.v_head_dim : 0;
}

int64_t sw_device_lm_bytes(const sw_device_engine *e, const sw_lm *lm)
{
    int64_t sum = sw_device_weight_bytes(e, &lm->embed) +
                  sw_device_weight_bytes(e, &lm->positions) + sw_device_side_bytes(e, lm);

    if (lm->head.dense != lm->embed.dense) sum += sw_device_weight_bytes(e, &lm->head);
    for (int64_t l = 0; lm->blocks && l < lm->model->n_layers; l++)
        sum += block_bytes(e, &lm->blocks[l]);
    return sum;
}

int64_t sw_device_lm_expert_bytes(const sw_device_engine *e, const sw_lm *lm)
{
    int64_t sum = 0;

    for (int64_t l = 0; lm->blocks && l < lm->model->n_layers; l++)
        sum += sw_device_experts_bytes(e, &lm->blocks[l], 0);
    return sum;
}

/* What a session of one sequence will want besides. */
static int64_t cache_bytes(const sw_device_engine *e, const sw_kv_form *kv)
{
    const sw_model *m = e->m;
    int64_t width = 0, n_state = 0, n_far = 0;

    for (int64_t l = 0; l < m->n_layers; l++) {
        width += sw_device_k_width(m, l) + sw_device_v_width(m, l);
        n_state += sw_device_state_floats(m, l);
        n_far += sw_device_far_elems(m, l, e->max_positions);
    }
    return sw_device_kv_bytes(kv) * e->max_positions * width + n_state * (int64_t)sizeof(float) +
           n_far * (int64_t)sizeof(sw_bf16) + RESERVE_BYTES;
}

/* How many blocks from the first on stay: all, or those that leave room for two places in which
 * the others take turns, and for a session. */
static int64_t count_resident(const sw_device_engine *e, const sw_lm *from, int64_t *place_bytes)
{
    const int64_t n = from->model->n_layers;
    int64_t left = sw_device_left_bytes(e->gpu) - cache_bytes(e, &from->blocks[0].kv);
    int64_t sum = 0, most = 0, n_stay = 0;

    for (int64_t l = 0; l < n; l++) {
        const int64_t size_bytes = sw_device_block_bytes(e, &from->blocks[l]);

        sum += size_bytes;
        most = sw_max_i64(most, size_bytes);
    }
    *place_bytes = most;
    if (sum <= left) return n;
    for (left -= 2 * most; n_stay < n; n_stay++)
        if ((left -= sw_device_block_bytes(e, &from->blocks[n_stay])) < 0) break;
    return n_stay;
}

static const sw_device_block *block_of(const sw_device_lm *lm, int64_t l)
{
    return l < lm->n_resident ? lm->blocks[l] : sw_device_stream_look(lm->streamed, l);
}

static void count_linear(sw_device_lm_linears *sum, const sw_device_weight *w)
{
    sum->n_coded += w->n_coded;
    sum->n_decoded += w->n_decoded;
    if (w->act.scope != SW_ACT_NONE) sum->n_rounded += w->n_decoded;
}

void sw_device_lm_count(sw_device_lm_linears *out, const sw_device_lm *lm)
{
    const sw_model *m = lm->e->m;

    memset(out, 0, sizeof *out);
    out->n_streamed_blocks = m->n_layers - lm->n_resident;
    for (int64_t l = 0; l < m->n_layers; l++) {
        const sw_device_block *b = block_of(lm, l);

        for (int s = 0; s < SW_SLOT_COUNT; s++) count_linear(out, &b->linear[s]);
        for (int i = 0; i < 3 && b->experts[i]; i++)
            for (int64_t x = 0; x < m->n_experts; x++) count_linear(out, &b->experts[i][x]);
    }
}

/* ---- loading ---- */

static sw_code load_table(sw_device_weight *out, sw_device_lm *lm, const sw_weight *from,
                          sw_err *err)
{
    return sw_device_weight_load(out, lm->e, &lm->store, &from, 1, err);
}

static sw_code load_norm(float **out, sw_device_lm *lm, const float *from, sw_err *err)
{
    void *d = NULL;
    sw_code rc;

    if (!from) return SW_OK;
    rc = sw_device_store_copy(&d, &lm->store, from, lm->e->m->hidden * (int64_t)sizeof *from,
                              "norms", err);
    if (rc == SW_OK) *out = d;
    return rc;
}

static sw_code load_ends(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    sw_device_engine *e = lm->e;
    sw_code rc;

    lm->head_rows = sw_max_i64(1, sw_min_i64(e->max_tokens, HEAD_BYTES / (4 * from->head.n_out)));
    if ((rc = load_table(&lm->embed, lm, &from->embed, err)) != SW_OK) return rc;
    if (from->head.dense == from->embed.dense && !from->head.tiles)
        lm->head = lm->embed;
    else if ((rc = load_table(&lm->head, lm, &from->head, err)) != SW_OK)
        return rc;
    if (from->positions.dense && (rc = load_table(&lm->positions, lm, &from->positions, err)))
        return rc;
    if ((rc = load_norm(&lm->norm, lm, from->final_norm, err)) != SW_OK ||
        (rc = load_norm(&lm->norm_bias, lm, from->final_norm_bias, err)) != SW_OK ||
        (rc = load_norm(&lm->embed_norm, lm, from->embed_norm, err)) != SW_OK ||
        (rc = load_norm(&lm->embed_norm_bias, lm, from->embed_norm_bias, err)) != SW_OK ||
        (rc = sw_device_side_load(lm, from, err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&lm->d_ids, &lm->store, e->max_tokens, "tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&lm->d_x, &lm->store, e->max_tokens * e->m->hidden, "hidden rows",
                            err)) != SW_OK)
        return rc;
    return SW_STORE_TAKE(&lm->d_logits, &lm->store, lm->head_rows * lm->head.n_out, "logits", err);
}

static bool shares_kv(const sw_model *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (m->shares_kv[l]) return true;
    return false;
}

/* One place for all layers, or one for each. */
static sw_code take_passing(sw_device_lm *lm, sw_err *err)
{
    const sw_device_engine *e = lm->e;
    const bool is_each = shares_kv(e->m);
    int64_t k = 0, v = 0;
    sw_code rc;

    if (!lm->kv.is_e4m3) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&lm->passing, &lm->store.arena, e->m->n_layers, err)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < e->m->n_layers; l++) {
        k = sw_max_i64(k, sw_device_k_width(e->m, l));
        v = sw_max_i64(v, sw_device_v_width(e->m, l));
    }
    for (int64_t l = 0; l < e->m->n_layers && rc == SW_OK; l++) {
        sw_device_kv *kv = &lm->passing[l];

        *kv = lm->passing[0];
        if ((l && !is_each) || e->m->shares_kv[l]) continue;
        rc = sw_device_store_take(&kv->d_k, &lm->store, e->max_tokens * k, 1, "keys", err);
        if (rc == SW_OK)
            rc = sw_device_store_take(&kv->d_v, &lm->store, e->max_tokens * v, 1, "values", err);
    }
    return rc;
}

sw_code sw_device_lm_new(sw_device_lm **out, sw_device_engine *e, const sw_lm *from, sw_err *err)
{
    const int64_t n_layers = e->m->n_layers;
    int64_t place_bytes;
    sw_device_lm *lm = NULL;
    sw_code rc = SW_MEM_GET(&lm, 1, "model", err);

    if (rc != SW_OK) return rc;
    lm->e = e;
    lm->store.gpu = e->gpu;
    if ((rc = SW_MEM_GET(&lm->blocks, n_layers, "blocks", err)) != SW_OK) goto done;
    lm->kv = from->blocks[0].kv;
    if ((rc = load_ends(lm, from, err)) != SW_OK || (rc = take_passing(lm, err)) != SW_OK)
        goto done;
    lm->n_resident = count_resident(e, from, &place_bytes);
    if (lm->n_resident < n_layers) {
        e->how.overlaps = false; /* kernels would ask for weights before they have been copied */
        rc = sw_device_stream_new(&lm->streamed, e, from->blocks, lm->n_resident, n_layers,
                                  place_bytes, err);
    }
    for (int64_t l = 0; l < lm->n_resident && rc == SW_OK; l++)
        rc = sw_device_block_load(&lm->blocks[l], e, &from->blocks[l], err);
    if (rc == SW_OK) {
        *out = lm;
        lm = NULL;
    }
done:
    sw_device_lm_free(lm);
    return rc;
}

void sw_device_lm_free(sw_device_lm *lm)
{
    if (!lm) return;
    sw_device_stream_free(lm->streamed);
    for (int64_t l = 0; lm->blocks && l < lm->n_resident; l++) sw_device_block_free(lm->blocks[l]);
    sw_mem_put(lm->blocks);
    sw_device_store_free(&lm->store);
    sw_mem_put(lm);
}

/* ---- running ---- */

sw_code sw_device_lm_check_ids(const sw_device_lm *lm, const uint32_t *ids, int64_t n, int64_t end,
                               sw_err *err)
{
    const sw_model *m = lm->e->m;

    if (m->n_position_rows && end > m->n_position_rows - m->first_position_row)
        return SW_FAIL(err, SW_E_USAGE, "position %lld; the model has %lld", (long long)end - 1,
                       (long long)(m->n_position_rows - m->first_position_row));
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= lm->embed.n_out)
            return SW_FAIL(err, SW_E_FORMAT, "token %lld has id %lu, but the vocabulary has %lld",
                           (long long)i, (unsigned long)ids[i], (long long)lm->embed.n_out);
    return SW_OK;
}

static sw_code run_block(sw_device_lm *lm, sw_device_run *run, int64_t l, sw_err *err)
{
    sw_code rc;

    if (l < lm->n_resident) {
        run->block = lm->blocks[l];
        return sw_device_run_block(run, err);
    }
    if ((rc = sw_device_stream_enter(&run->block, lm->streamed, l, err)) != SW_OK ||
        (rc = sw_device_run_block(run, err)) != SW_OK)
        return rc;
    return sw_device_stream_leave(lm->streamed, l, err);
}

static sw_code embed_tokens(sw_device_lm *lm, const sw_device_run *run, const uint32_t *d_ids,
                            sw_err *err)
{
    sw_device_engine *e = lm->e;
    const sw_model *m = e->m;
    const sw_embed_args embed = {.x = run->d_x, .embed = lm->embed.d_dense,
                                 .positions = lm->positions.d_dense, .ids = d_ids,
                                 .first = run->d_first, .n = run->n_tokens, .hidden = m->hidden,
                                 .seq_len = run->seq_len, .first_row = m->first_position_row,
                                 .scale = (float)m->embed_scale};
    sw_code rc = sw_cuda_embed(&embed, e->how, err);

    if (rc == SW_OK && lm->embed_norm)
        rc = sw_cuda_mean_norm(run->d_x, lm->embed_norm, lm->embed_norm_bias, run->n_tokens,
                               m->hidden, (float)m->norm_eps, e->how, err);
    return rc == SW_OK ? sw_device_side_embed(lm, run, d_ids, err) : rc;
}

/* Keys and values of layer l from sequence `seq` on, perhaps an earlier layer's. */
static sw_device_kv kv_of(const sw_device_lm *lm, const sw_device_kv *kv, int64_t seq, int64_t l)
{
    const sw_model *m = lm->e->m;
    const int64_t from = m->shares_kv[l] ? m->shares_kv[l] - 1 : l;
    sw_device_kv layer = kv[from];
    const int64_t n_before = seq * layer.capacity * sw_device_kv_bytes(&lm->kv);

    layer.form = block_of(lm, from)->kv;
    if (layer.d_state) layer.d_state += seq * sw_device_state_floats(m, l);
    if (layer.d_far) layer.d_far += seq * sw_device_far_elems(m, l, layer.capacity);
    if (!layer.d_k) return layer;
    layer.d_k = (char *)layer.d_k + n_before * sw_device_k_width(m, from);
    layer.d_v = (char *)layer.d_v + n_before * sw_device_v_width(m, from);
    return layer;
}

sw_code sw_device_lm_run(sw_device_lm *lm, sw_device_run *run, const sw_device_kv *kv, int64_t seq,
                         const uint32_t *d_ids, sw_err *err)
{
    sw_device_engine *e = lm->e;
    const int64_t n_layers = e->m->n_layers;
    sw_code rc = embed_tokens(lm, run, d_ids, err);

    if (!kv) kv = lm->passing;
    run->e = e;
    run->stop_at = (sw_site)SW_RUN_ALL;
    for (int64_t l = 0; l < n_layers && rc == SW_OK; l++) {
        const sw_device_kv layer = kv ? kv_of(lm, kv, seq, l) : (sw_device_kv){0};

        run->kv = layer.d_k || layer.d_state || layer.d_far ? &layer : NULL;
        run->may_leave_sum = l + 1 < n_layers;
        rc = run_block(lm, run, l, err);
        run->kv = NULL;
    }
    if (rc == SW_OK) return sw_cuda_chain_run(run->chain, e->how, err);
    sw_cuda_chain_clear(run->chain);
    return rc;
}

sw_code sw_device_lm_forward(sw_device_lm *lm, const uint32_t *ids, int64_t n_seqs, int64_t seq_len,
                             sw_err *err)
{
    sw_device_engine *e = lm->e;
    sw_device_run run = {.d_x = lm->d_x,
                         .n_seqs = n_seqs,
                         .seq_len = seq_len,
                         .n_tokens = n_seqs * seq_len};
    sw_code rc;

    if (n_seqs < 1 || seq_len < 1 || seq_len > e->max_tokens / n_seqs)
        return SW_FAIL(err, SW_E_USAGE, "%lld sequences of %lld tokens; at most %lld tokens fit",
                       (long long)n_seqs, (long long)seq_len, (long long)e->max_tokens);
    lm->n_rows = 0;
    for (int64_t l = 0; lm->passing && l < e->m->n_layers; l++)
        lm->passing[l].capacity = seq_len;
    if ((rc = sw_device_lm_check_ids(lm, ids, run.n_tokens, seq_len, err)) != SW_OK ||
        (rc = sw_device_angles_fill(e, 0, seq_len, err)) != SW_OK ||
        (rc = sw_device_upload(e->gpu, lm->d_ids, ids, 4 * run.n_tokens, err)) != SW_OK ||
        (rc = sw_device_lm_run(lm, &run, NULL, 0, lm->d_ids, err)) != SW_OK)
        return rc;
    lm->n_rows = run.n_tokens;
    return SW_OK;
}

sw_code sw_device_lm_logits(sw_device_lm *lm, float *d_logits, const float *d_x, int64_t n,
                            sw_err *err)
{
    sw_device_engine *e = lm->e;
    const sw_model *m = e->m;
    const int64_t vocab = lm->head.n_out;
    const sw_bf16_rows normed = e->buf[SW_BUF_N];
    const sw_norm_args norm = {.dst = normed, .x = (float *)(uintptr_t)d_x, .weight = lm->norm,
                               .bias = lm->norm_bias, .n = n, .width = m->hidden,
                               .eps = (float)m->norm_eps};
    sw_code rc;

    if ((rc = sw_cuda_norm(&norm, e->how, err)) != SW_OK ||
        (rc = sw_device_linear(e, d_logits, vocab, true, normed, n, &lm->head, err)) != SW_OK)
        return rc;
    if (m->logits_scale != 1.0 &&
        (rc = sw_cuda_scale_f32(d_logits, (float)m->logits_scale, NULL, n * vocab, e->how, err)))
        return rc;
    if (m->logits_cap <= 0.0) return SW_OK;
    return sw_cuda_softcap(d_logits, (float)m->logits_cap, n * vocab, e->how, err);
}

sw_code sw_device_lm_head(sw_device_lm *lm, float *logits, int64_t row0, int64_t n, sw_err *err)
{
    const int64_t vocab = lm->head.n_out, hidden = lm->e->m->hidden;
    sw_code rc = SW_OK;

    if (row0 < 0 || n < 0 || n > lm->n_rows - row0)
        return SW_FAIL(err, SW_E_BUG, "rows %lld to %lld of %lld", (long long)row0,
                       (long long)(row0 + n), (long long)lm->n_rows);
    for (int64_t at = 0; at < n && rc == SW_OK; at += lm->head_rows) {
        const int64_t some = sw_min_i64(lm->head_rows, n - at);

        rc = sw_device_lm_logits(lm, lm->d_logits, lm->d_x + (row0 + at) * hidden, some, err);
        if (rc == SW_OK)
            rc = sw_device_download(lm->e->gpu, logits + at * vocab, lm->d_logits, 4 * some * vocab,
                                    err);
    }
    return rc;
}
