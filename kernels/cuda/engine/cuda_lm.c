/* cuda_lm.c - a whole model on the device: embedding, blocks, head. See device_engine.h. */
#include "kernels/cuda/engine/cuda_lm.h"

#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/attention/attention_wgmma.h"

#define HEAD_BYTES ((int64_t)64 << 20) /* of logits on the device at a time */

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

/* What a session of one sequence will want besides, for the layers of a part. */
static int64_t cache_bytes(const sw_device_lm *part, const sw_kv_form *kv)
{
    const sw_device_engine *e = part->e;
    const sw_model *m = e->m;
    int64_t width = 0, n_state = 0, n_far = 0;

    for (int64_t l = 0; l < part->end; l++) {
        if (sw_device_lm_keeps(part, l))
            width += sw_device_k_width(m, l) + sw_device_v_width(m, l);
        if (l < part->first) continue;
        n_state += sw_device_state_floats(m, l);
        n_far += sw_device_far_elems(m, l, e->max_positions);
    }
    return sw_device_kv_bytes(kv) * e->max_positions * width + n_state * (int64_t)sizeof(float) +
           n_far * (int64_t)sizeof(sw_bf16) + SW_LM_RESERVE_BYTES;
}

/* How many blocks from the part's first on stay: all, or those that leave room for two places in
 * which the others take turns, and for a session. */
static int64_t count_resident(const sw_device_lm *part, const sw_lm *from, int64_t *place_bytes)
{
    const sw_device_engine *e = part->e;
    int64_t left = sw_device_left_bytes(e->gpu) - cache_bytes(part, &from->blocks[0].kv);
    int64_t sum = 0, most = 0, l = part->first;

    for (; l < part->end; l++) {
        const int64_t size_bytes = sw_device_block_bytes(e, &from->blocks[l]);

        sum += size_bytes;
        most = sw_max_i64(most, size_bytes);
    }
    *place_bytes = most;
    if (sum <= left) return part->end - part->first;
    for (left -= 2 * most, l = part->first; l < part->end; l++)
        if ((left -= sw_device_block_bytes(e, &from->blocks[l])) < 0) break;
    return l - part->first;
}

/* Layer l of a part. */
static const sw_device_block *block_of(const sw_device_lm *part, int64_t l)
{
    const int64_t i = l - part->first;

    return i < part->n_resident ? part->blocks[i] : sw_device_stream_look(part->streamed, l);
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
    for (const sw_device_lm *part = lm; part; part = part->next) {
        out->n_streamed_blocks += part->end - part->first - part->n_resident;
        out->n_devices++;
    }
    for (int64_t l = 0; l < m->n_layers; l++) {
        const sw_device_block *b = block_of(sw_device_lm_part_of(lm, l), l);

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

static bool is_first(const sw_device_lm *part) { return part->first == 0; }

static bool is_last(const sw_device_lm *part) { return part->end == part->e->m->n_layers; }

int64_t sw_device_lm_head_rows(const sw_device_engine *e, int64_t vocab)
{
    return sw_max_i64(1, sw_min_i64(e->max_tokens, HEAD_BYTES / (4 * vocab)));
}

/* What tokens begin with. */
static sw_code load_beginning(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    sw_code rc;

    if ((rc = load_table(&lm->embed, lm, &from->embed, err)) != SW_OK) return rc;
    if (from->positions.dense && (rc = load_table(&lm->positions, lm, &from->positions, err)))
        return rc;
    if ((rc = load_norm(&lm->embed_norm, lm, from->embed_norm, err)) != SW_OK ||
        (rc = load_norm(&lm->embed_norm_bias, lm, from->embed_norm_bias, err)) != SW_OK ||
        (rc = sw_device_side_load(lm, from, err)) != SW_OK)
        return rc;
    return SW_STORE_TAKE(&lm->d_ids, &lm->store, lm->e->max_tokens, "tokens", err);
}

/* And what they end with. A head that is the embedding lies on the device once, or on two. */
static sw_code load_head(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    const bool is_tied = from->head.dense == from->embed.dense && !from->head.tiles;
    sw_code rc;

    lm->head_rows = sw_device_lm_head_rows(lm->e, from->head.n_out);
    if (is_tied && is_first(lm))
        lm->head = lm->embed;
    else if ((rc = load_table(&lm->head, lm, &from->head, err)) != SW_OK)
        return rc;
    if ((rc = load_norm(&lm->norm, lm, from->final_norm, err)) != SW_OK ||
        (rc = load_norm(&lm->norm_bias, lm, from->final_norm_bias, err)) != SW_OK)
        return rc;
    if ((rc = SW_STORE_TAKE(&lm->d_scores, &lm->store, lm->head_rows, "scores", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&lm->d_targets, &lm->store, lm->head_rows, "tokens", err)) != SW_OK)
        return rc;
    return SW_STORE_TAKE(&lm->d_logits, &lm->store, lm->head_rows * lm->head.n_out, "logits", err);
}

static sw_code load_ends(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    const sw_device_engine *e = lm->e;
    sw_code rc = SW_OK;

    if (is_first(lm)) rc = load_beginning(lm, from, err);
    if (rc == SW_OK && is_last(lm)) rc = load_head(lm, from, err);
    if (rc != SW_OK) return rc;
    return SW_STORE_TAKE(&lm->d_x, &lm->store, e->max_tokens * e->m->hidden, "hidden rows", err);
}

static bool shares_kv(const sw_model *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (m->shares_kv[l]) return true;
    return false;
}

int64_t sw_device_wide_bytes(const sw_device_engine *e, const sw_kv_form *kv)
{
    const sw_model *m = e->m;
    int64_t most = 0;

    if (e->d_slopes) return 0;
    for (int64_t l = 0; l < m->n_layers; l++) {
        const sw_sizes s = sw_model_sizes(m, l);
        const sw_attn_args a = {.kv = *kv, .n_seqs = 1,
                                .seq_len = sw_max_i64(e->max_tokens, e->max_positions),
                                .n_kv_heads = (int)s.n_kv_heads, .head_dim = (int)s.head_dim,
                                .v_head_dim = (int)s.v_head_dim, .cap = (float)m->attention_cap,
                                .n_sms = e->device.n_sms, .sm = e->device.sm};

        if (has_own_kv(m, l)) most = sw_max_i64(most, sw_attention_wide_bytes(&a));
    }
    return most;
}

static sw_code take_wide(sw_device_lm *lm, sw_err *err)
{
    lm->wide_bytes = sw_device_wide_bytes(lm->e, &lm->kv);
    if (!lm->wide_bytes) return SW_OK;
    return sw_device_store_take(&lm->d_wide, &lm->store, lm->wide_bytes, 1,
                                "keys and values in BF16", err);
}

/* One place for all layers, or one for each that lies here or is read here. */
static sw_code take_passing(sw_device_lm *lm, sw_err *err)
{
    const sw_device_engine *e = lm->e;
    const bool is_each = shares_kv(e->m);
    int64_t k = 0, v = 0;
    sw_code rc;

    if (!lm->kv.kind) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&lm->passing, &lm->store.arena, e->m->n_layers, err)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < e->m->n_layers; l++) {
        k = sw_max_i64(k, sw_device_k_width(e->m, l));
        v = sw_max_i64(v, sw_device_v_width(e->m, l));
    }
    for (int64_t l = 0; l < lm->end && rc == SW_OK; l++) {
        sw_device_kv *kv = &lm->passing[l];

        if (is_each ? !sw_device_lm_keeps(lm, l) : l < lm->first) continue;
        *kv = lm->passing[lm->first];
        if (!is_each && l > lm->first) continue;
        rc = sw_device_store_take(&kv->d_k, &lm->store, e->max_tokens * k, 1, "keys", err);
        if (rc == SW_OK)
            rc = sw_device_store_take(&kv->d_v, &lm->store, e->max_tokens * v, 1, "values", err);
    }
    return rc;
}

static sw_code copy_forms(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    const int64_t n_layers = lm->e->m->n_layers;
    sw_code rc = SW_ARENA_TAKE(&lm->forms, &lm->store.arena, n_layers, err);

    for (int64_t l = 0; l < n_layers && rc == SW_OK; l++) lm->forms[l] = from->blocks[l].kv;
    return rc;
}

static sw_code load_blocks(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    const int64_t n_blocks = lm->end - lm->first;
    int64_t place_bytes;
    sw_code rc = SW_OK;

    lm->n_resident = count_resident(lm, from, &place_bytes);
    if (lm->n_resident < n_blocks) {
        lm->e->how.overlaps = false; /* kernels would ask for weights not copied yet */
        rc = sw_device_stream_new(&lm->streamed, lm->e, from->blocks, lm->first + lm->n_resident,
                                  lm->end, place_bytes, err);
    }
    for (int64_t i = 0; i < lm->n_resident && rc == SW_OK; i++)
        rc = sw_device_block_load(&lm->blocks[i], lm->e, &from->blocks[lm->first + i], err);
    return rc;
}

sw_code sw_device_lm_part_new(sw_device_lm **out, sw_device_engine *e, const sw_lm *from,
                              int64_t first, int64_t end, sw_err *err)
{
    sw_device_lm *lm = NULL;
    sw_code rc = SW_MEM_GET(&lm, 1, "model", err);

    if (rc != SW_OK) return rc;
    lm->e = e;
    lm->first = first;
    lm->end = end;
    lm->store.gpu = e->gpu;
    lm->kv = from->blocks[0].kv;
    if ((rc = sw_device_use(e->gpu, err)) == SW_OK &&
        (rc = SW_MEM_GET(&lm->blocks, end - first, "blocks", err)) == SW_OK &&
        (rc = copy_forms(lm, from, err)) == SW_OK && (rc = load_ends(lm, from, err)) == SW_OK &&
        (rc = take_passing(lm, err)) == SW_OK && (rc = take_wide(lm, err)) == SW_OK)
        rc = load_blocks(lm, from, err);
    if (rc == SW_OK)
        *out = lm;
    else
        sw_device_lm_free(lm);
    return rc;
}

sw_code sw_device_lm_new(sw_device_lm **out, sw_device_engine *e, const sw_lm *from, sw_err *err)
{
    return sw_device_lm_part_new(out, e, from, 0, e->m->n_layers, err);
}

static void part_free(sw_device_lm *lm)
{
    sw_err ignored = {0};

    (void)!sw_device_use(lm->e->gpu, &ignored);
    sw_device_hop_free(lm->hop);
    sw_device_stream_free(lm->streamed);
    for (int64_t l = 0; lm->blocks && l < lm->n_resident; l++) sw_device_block_free(lm->blocks[l]);
    sw_mem_put(lm->blocks);
    sw_device_store_free(&lm->store);
    sw_mem_put(lm);
}

void sw_device_lm_free(sw_device_lm *lm)
{
    sw_err ignored = {0};

    for (sw_device_lm *part = lm; part && lm->next; part = part->next)
        (void)!sw_device_sync(part->e->gpu, &ignored); /* the next one may still read of it */
    while (lm) {
        sw_device_lm *next = lm->next;

        part_free(lm);
        lm = next;
    }
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

    if (l - lm->first < lm->n_resident) {
        run->block = lm->blocks[l - lm->first];
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

/* Keys and values of layer l from sequence `seq` on, perhaps an earlier layer's, which may lie in
 * another part. */
static sw_device_kv kv_of(const sw_device_lm *lm, const sw_device_kv *kv, int64_t seq, int64_t l)
{
    const sw_model *m = lm->e->m;
    const int64_t from = m->shares_kv[l] ? m->shares_kv[l] - 1 : l;
    sw_device_kv layer = kv[from];
    const int64_t n_before = seq * layer.capacity * sw_device_kv_bytes(&lm->kv);

    layer.form = lm->forms[from];
    if (layer.d_state) layer.d_state += seq * sw_device_state_floats(m, l);
    if (layer.d_far) layer.d_far += seq * sw_device_far_elems(m, l, layer.capacity);
    if (!layer.d_k) return layer;
    layer.d_k = (char *)layer.d_k + n_before * sw_device_k_width(m, from);
    layer.d_v = (char *)layer.d_v + n_before * sw_device_v_width(m, from);
    return layer;
}

sw_code sw_device_lm_run(sw_device_lm *part, sw_device_run *run, const sw_device_kv *kv,
                         int64_t seq, const uint32_t *d_ids, sw_err *err)
{
    sw_device_engine *e = part->e;
    sw_code rc = is_first(part) ? embed_tokens(part, run, d_ids, err) : SW_OK;

    if (!kv) kv = part->passing;
    run->e = e;
    run->follows_embedding = is_first(part);
    run->d_wide = part->d_wide;
    run->wide_bytes = part->wide_bytes;
    run->stop_at = (sw_site)SW_RUN_ALL;
    for (int64_t l = part->first; l < part->end && rc == SW_OK; l++) {
        const sw_device_kv layer = kv ? kv_of(part, kv, seq, l) : (sw_device_kv){0};

        run->kv = layer.d_k || layer.d_state || layer.d_far ? &layer : NULL;
        run->may_leave_sum = l + 1 < part->end;
        rc = run_block(part, run, l, err);
        run->kv = NULL;
    }
    return rc;
}

/* Logits before scales and caps, of the stream. */
static sw_code run_head(sw_device_lm *lm, float *d_logits, const float *d_x, int64_t n,
                        sw_err *err)
{
    sw_device_engine *e = lm->e;
    const sw_bf16_rows normed = e->buf[SW_BUF_N];
    const sw_norm_args norm = {.dst = normed, .x = (float *)(uintptr_t)d_x, .weight = lm->norm,
                               .bias = lm->norm_bias, .n = n, .width = e->m->hidden,
                               .eps = (float)e->m->norm_eps};
    sw_dense_args few = sw_device_dense_args(e, normed, n, &lm->head);
    const sw_code rc = sw_cuda_norm(&norm, e->how, err);

    if (rc != SW_OK) return rc;
    few.y = d_logits;
    few.y_stride = few.n_out;
    few.y_is_f32 = true;
    if (lm->head.act.scope == SW_ACT_NONE && sw_cuda_dense_can(&few))
        return sw_cuda_dense(&few, e->how, err);
    return sw_device_linear(e, d_logits, few.n_out, true, normed, n, &lm->head, err);
}

sw_code sw_device_lm_logits(sw_device_lm *lm, float *d_logits, const float *d_x, int64_t n,
                            sw_err *err)
{
    sw_device_engine *e = lm->e;
    const sw_model *m = e->m;
    const int64_t vocab = lm->head.n_out;
    sw_code rc = run_head(lm, d_logits, d_x, n, err);

    if (rc != SW_OK) return rc;
    if (m->logits_scale != 1.0 &&
        (rc = sw_cuda_scale_f32(d_logits, (float)m->logits_scale, NULL, n * vocab, e->how, err)))
        return rc;
    if (m->logits_cap <= 0.0) return SW_OK;
    return sw_cuda_softcap(d_logits, (float)m->logits_cap, n * vocab, e->how, err);
}

sw_code sw_device_lm_head(sw_device_lm *lm, float *logits, int64_t row0, int64_t n, sw_err *err)
{
    sw_device_lm *last = sw_device_lm_last(lm);
    const int64_t vocab = last->head.n_out, hidden = lm->e->m->hidden;
    sw_code rc = sw_device_use(last->e->gpu, err);

    if (rc != SW_OK) return rc;
    if (row0 < 0 || n < 0 || n > lm->n_rows - row0)
        return SW_FAIL(err, SW_E_BUG, "rows %lld to %lld of %lld", (long long)row0,
                       (long long)(row0 + n), (long long)lm->n_rows);
    for (int64_t at = 0; at < n && rc == SW_OK; at += last->head_rows) {
        const int64_t some = sw_min_i64(last->head_rows, n - at);

        rc = sw_device_lm_logits(last, last->d_logits, last->d_x + (row0 + at) * hidden, some,
                                 err);
        if (rc == SW_OK)
            rc = sw_device_download(last->e->gpu, logits + at * vocab, last->d_logits,
                                    4 * some * vocab, err);
    }
    return rc;
}

bool sw_device_lm_scores_with(sw_device_lm *lm, sw_device_lm *ref)
{
    const sw_device_lm *a = sw_device_lm_last(lm), *b = sw_device_lm_last(ref);

    return a->e->gpu == b->e->gpu && a->head.n_out == b->head.n_out;
}

static sw_code check_scored(sw_device_lm *lm, sw_device_lm *ref, const uint32_t *targets,
                            int64_t row0, int64_t n, sw_err *err)
{
    const int64_t n_rows = ref ? sw_min_i64(lm->n_rows, ref->n_rows) : lm->n_rows;
    const int64_t vocab = sw_device_lm_last(lm)->head.n_out;

    if (row0 < 0 || n < 0 || n > n_rows - row0)
        return SW_FAIL(err, SW_E_BUG, "rows %lld to %lld of %lld", (long long)row0,
                       (long long)(row0 + n), (long long)n_rows);
    if (ref && !sw_device_lm_scores_with(lm, ref))
        return SW_FAIL(err, SW_E_BUG, "models that are not compared on one device");
    for (int64_t i = 0; i < n; i++)
        if (targets[i] >= vocab)
            return SW_FAIL(err, SW_E_BUG, "token %lu of %lld", (unsigned long)targets[i],
                           (long long)vocab);
    return SW_OK;
}

sw_code sw_device_lm_scores(sw_device_lm *lm, sw_device_lm *ref, sw_lm_score *scores,
                            const uint32_t *targets, int64_t row0, int64_t n, sw_err *err)
{
    sw_device_lm *a = sw_device_lm_last(lm), *b = ref ? sw_device_lm_last(ref) : NULL;
    const int64_t vocab = a->head.n_out, hidden = lm->e->m->hidden;
    const int64_t step = b ? sw_min_i64(a->head_rows, b->head_rows) : a->head_rows;
    sw_device *gpu = a->e->gpu;
    sw_code rc = check_scored(lm, ref, targets, row0, n, err);

    if (rc == SW_OK) rc = sw_device_use(gpu, err);
    for (int64_t at = 0; at < n && rc == SW_OK; at += step) {
        const int64_t some = sw_min_i64(step, n - at), row = row0 + at;

        if ((rc = sw_device_upload(gpu, a->d_targets, targets + at, 4 * some, err)) != SW_OK ||
            (rc = sw_device_lm_logits(a, a->d_logits, a->d_x + row * hidden, some, err)) != SW_OK)
            break;
        if (b) rc = sw_device_lm_logits(b, b->d_logits, b->d_x + row * b->e->m->hidden, some, err);
        if (rc == SW_OK)
            rc = sw_cuda_score_logits(a->d_scores, a->d_logits, b ? b->d_logits : NULL,
                                      a->d_targets, some, vocab, a->e->how, err);
        if (rc == SW_OK)
            rc = sw_device_download(gpu, scores + at, a->d_scores,
                                    some * (int64_t)sizeof *scores, err);
    }
    return rc;
}
