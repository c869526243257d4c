/* cuda_spread.c - a model whose layers lie on several devices. See cuda_lm.h for its parts.
 *
 * A call runs part after part, in the order of events: the host enqueues all of it and waits for
 * nothing. What crosses is what a row is between two blocks: the residual stream, what a token has
 * beside it (inputs of single layers, copies and streams, keys and values that later layers share,
 * chosen keys, the token itself), its position; and rows of a cache that layers behind the cut
 * read.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_lm.h"
#include "kernels/engine/spread/spread_plan.h"

sw_device_lm *sw_device_lm_last(sw_device_lm *lm)
{
    while (lm->next) lm = lm->next;
    return lm;
}

const sw_device_lm *sw_device_lm_part_of(const sw_device_lm *lm, int64_t l)
{
    while (l >= lm->end) lm = lm->next;
    return lm;
}

bool sw_device_lm_keeps(const sw_device_lm *part, int64_t layer)
{
    const sw_model *m = part->e->m;

    if (layer >= part->end || !sw_device_k_width(m, layer)) return false;
    if (layer >= part->first) return true;
    for (int64_t l = part->first; l < m->n_layers; l++)
        if (m->shares_kv[l] == layer + 1) return true;
    return false;
}

/* ---- what it takes ---- */

/* Of a sequence of max_seq tokens: what a layer keeps, of which some goes with another part too. */
static int64_t kept_bytes(const sw_device_engine *e, const sw_kv_form *kv, int64_t layer)
{
    const sw_model *m = e->m;
    const int64_t width = sw_device_k_width(m, layer) + sw_device_v_width(m, layer);

    return e->max_positions * width * sw_device_kv_bytes(kv) +
           sw_device_state_floats(m, layer) * (int64_t)sizeof(float) +
           sw_device_far_elems(m, layer, e->max_positions) * (int64_t)sizeof(sw_bf16);
}

/* What a layer keeps that others read may be on every device. */
static int64_t each_bytes(const sw_device_engine *e, const sw_kv_form *kv)
{
    const sw_model *m = e->m;
    int64_t sum = SW_LM_RESERVE_BYTES + e->max_tokens * m->hidden * (int64_t)sizeof(float) +
                  sw_device_wide_bytes(e, kv);

    for (int64_t l = 0; l < m->n_layers; l++) {
        bool is_read = false;

        for (int64_t by = l + 1; by < m->n_layers; by++)
            is_read = is_read || m->shares_kv[by] == l + 1;
        if (is_read) sum += kept_bytes(e, kv, l);
    }
    return sum;
}

void sw_device_lm_need(struct sw_spread_need *need, const sw_device_engine *e, const sw_lm *lm)
{
    const sw_model *m = e->m;
    const sw_kv_form *kv = &lm->blocks[0].kv;
    const int64_t vocab = lm->head.n_out;

    need->n_layers = m->n_layers;
    for (int64_t l = 0; l < m->n_layers; l++)
        need->layer_bytes[l] = sw_device_block_bytes(e, &lm->blocks[l]) + kept_bytes(e, kv, l);
    need->first_bytes = sw_device_weight_bytes(e, &lm->embed) +
                        sw_device_weight_bytes(e, &lm->positions) + sw_device_side_bytes(e, lm) +
                        e->max_tokens * (1 + m->n_layers * m->side_inputs) * 4;
    need->last_bytes = sw_device_weight_bytes(e, &lm->head) +
                       sw_device_lm_head_rows(e, vocab) *
                           (vocab * (int64_t)sizeof(float) + (int64_t)sizeof(sw_lm_score) +
                            (int64_t)sizeof(uint32_t));
    need->each_bytes = each_bytes(e, kv);
    need->shared_bytes = lm->head.dense == lm->embed.dense && !lm->head.tiles
                             ? sw_device_weight_bytes(e, &lm->embed)
                             : 0;
}

/* ---- making one ---- */

static sw_code check_parts(sw_device_engine *const *engines, const int64_t *ends, int n_parts,
                           sw_err *err)
{
    const sw_device_engine *e = engines[0];

    for (int i = 0; i < n_parts; i++)
        if (ends[i] <= (i ? ends[i - 1] : 0) || engines[i]->m != e->m ||
            engines[i]->max_tokens != e->max_tokens ||
            engines[i]->max_positions != e->max_positions)
            return SW_FAIL(err, SW_E_BUG, "part %d of a model ends at layer %lld", i,
                           (long long)ends[i]);
    if (ends[n_parts - 1] == e->m->n_layers) return SW_OK;
    return SW_FAIL(err, SW_E_BUG, "%lld of %lld layers lie on a device",
                   (long long)ends[n_parts - 1], (long long)e->m->n_layers);
}

sw_code sw_device_lm_spread(sw_device_lm **out, sw_device_engine *const *engines,
                            const int64_t *ends, int n_parts, const sw_lm *from, sw_err *err)
{
    sw_device_lm *lm = NULL, *before = NULL;
    sw_code rc = check_parts(engines, ends, n_parts, err);

    for (int i = 0; i < n_parts && rc == SW_OK; i++) {
        sw_device_lm **at = before ? &before->next : &lm;

        rc = sw_device_lm_part_new(at, engines[i], from, i ? ends[i - 1] : 0, ends[i], err);
        if (rc == SW_OK && before)
            rc = sw_device_hop_new(&before->hop, before->e->gpu, engines[i]->gpu, err);
        before = *at;
    }
    if (rc == SW_OK)
        *out = lm;
    else
        sw_device_lm_free(lm);
    return rc;
}

/* ---- running it ---- */

sw_code sw_device_lm_enter(sw_device_lm *part, sw_err *err)
{
    sw_code rc = sw_device_use(part->e->gpu, err);

    return rc == SW_OK && part->hop ? sw_device_hop_await(part->hop, err) : rc;
}

sw_code sw_device_lm_cross(sw_device_lm *part, const sw_device_run *from, const sw_device_run *to,
                           sw_err *err)
{
    const sw_device_engine *e = part->e, *next = part->next->e;
    const int64_t n = from->n_tokens;
    const int64_t side_bytes = n * sw_model_side_width(e->m) * (int64_t)sizeof *e->d_side;
    sw_code rc;

    if ((rc = sw_device_lm_enter(part->next, err)) != SW_OK ||
        (rc = sw_device_hop_begin(part->hop, err)) != SW_OK ||
        (rc = sw_device_hop_copy(part->hop, to->d_x, from->d_x,
                                 n * e->m->hidden * (int64_t)sizeof *to->d_x, err)) != SW_OK)
        return rc;
    if (side_bytes) rc = sw_device_hop_copy(part->hop, next->d_side, e->d_side, side_bytes, err);
    if (rc != SW_OK || !from->d_first) return rc;
    return sw_device_hop_copy(part->hop, (int32_t *)(uintptr_t)to->d_first, from->d_first,
                              from->n_seqs * (int64_t)sizeof *to->d_first, err);
}

/* Keys and values of n tokens of whole sequences that layers behind the cut read. */
static sw_code cross_passing(sw_device_lm *part, int64_t n, sw_err *err)
{
    const sw_device_lm *next = part->next;
    const sw_model *m = part->e->m;
    sw_code rc = SW_OK;

    for (int64_t l = 0; l < part->end && next->passing && rc == SW_OK; l++) {
        const sw_device_kv *from = &part->passing[l], *to = &next->passing[l];

        if (!sw_device_lm_keeps(next, l)) continue;
        rc = sw_device_hop_copy(part->hop, to->d_k, from->d_k, n * sw_device_k_width(m, l), err);
        if (rc == SW_OK)
            rc = sw_device_hop_copy(part->hop, to->d_v, from->d_v, n * sw_device_v_width(m, l),
                                    err);
    }
    return rc;
}

static sw_code run_forward(sw_device_lm *part, sw_device_run *run, const uint32_t *d_ids,
                           sw_err *err)
{
    sw_code rc = sw_device_angles_fill(part->e, 0, run->seq_len, err);

    run->d_x = part->d_x;
    for (int64_t l = 0; part->passing && l < part->end; l++)
        part->passing[l].capacity = run->seq_len;
    return rc == SW_OK ? sw_device_lm_run(part, run, NULL, 0, d_ids, err) : rc;
}

sw_code sw_device_lm_forward(sw_device_lm *lm, const uint32_t *ids, int64_t n_seqs, int64_t seq_len,
                             sw_err *err)
{
    const sw_device_engine *e = lm->e;
    sw_device_run run = {.n_seqs = n_seqs, .seq_len = seq_len, .n_tokens = n_seqs * seq_len};
    sw_code rc;

    if (n_seqs < 1 || seq_len < 1 || seq_len > e->max_tokens / n_seqs)
        return SW_FAIL(err, SW_E_USAGE, "%lld sequences of %lld tokens; at most %lld tokens fit",
                       (long long)n_seqs, (long long)seq_len, (long long)e->max_tokens);
    lm->n_rows = 0;
    if ((rc = sw_device_lm_check_ids(lm, ids, run.n_tokens, seq_len, err)) != SW_OK ||
        (rc = sw_device_lm_enter(lm, err)) != SW_OK ||
        (rc = sw_device_upload(e->gpu, lm->d_ids, ids, 4 * run.n_tokens, err)) != SW_OK)
        return rc;
    for (sw_device_lm *part = lm; part && rc == SW_OK; part = part->next) {
        rc = run_forward(part, &run, lm->d_ids, err);
        if (rc == SW_OK && part->next) {
            const sw_device_run to = {.d_x = part->next->d_x};

            if ((rc = sw_device_lm_cross(part, &run, &to, err)) == SW_OK &&
                (rc = cross_passing(part, run.n_tokens, err)) == SW_OK)
                rc = sw_device_hop_end(part->hop, err);
        }
    }
    if (rc == SW_OK) lm->n_rows = run.n_tokens;
    return rc;
}
