/* cuda_session_new.c - what a session has on each device: caches, rows, states, scratch of a step.
 * See cuda_session.h.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_session.h"

static sw_code take_cache(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    const sw_model *m = s->lm->e->m;
    const int64_t n = s->n_seqs * s->capacity, elem_bytes = sw_device_kv_bytes(&s->lm->kv);
    int64_t width = 0;
    sw_code rc;

    for (int64_t l = 0; l < p->lm->end; l++)
        if (sw_device_lm_keeps(p->lm, l))
            width += sw_device_k_width(m, l) + sw_device_v_width(m, l);
    rc = sw_device_room(p->lm->e->gpu, elem_bytes * n * width, "the cache", err);
    if (rc == SW_OK) rc = SW_ARENA_TAKE(&p->kv, &p->store.arena, m->n_layers, err);
    for (int64_t l = 0; l < p->lm->end && rc == SW_OK; l++) {
        sw_device_kv *kv = &p->kv[l];

        kv->capacity = s->capacity;
        if (!sw_device_lm_keeps(p->lm, l)) continue;
        rc = sw_device_store_take(&kv->d_k, &p->store, n * sw_device_k_width(m, l), elem_bytes,
                                  "key cache", err);
        if (rc == SW_OK)
            rc = sw_device_store_take(&kv->d_v, &p->store, n * sw_device_v_width(m, l), elem_bytes,
                                      "value cache", err);
    }
    return rc;
}

/* Rows of keys and far keys. Products read far keys that are not made yet, and nobody what they
 * give; but it must be memory that somebody has written. */
static sw_code take_far(sw_device_session *s, sw_session_part *p, int64_t layer, sw_err *err)
{
    const sw_device_engine *e = p->lm->e;
    const int64_t n = s->n_seqs * sw_device_far_elems(e->m, layer, s->capacity);
    sw_code rc;

    if (!n) return SW_OK;
    rc = SW_STORE_TAKE(&p->kv[layer].d_far, &p->store, n, "cache of keys", err);
    if (rc != SW_OK) return rc;
    return sw_device_fill(e->gpu, p->kv[layer].d_far, 0, n * (int64_t)sizeof(sw_bf16), err);
}

/* What recurrent mixers remember; nobody reads it before the first token is there. */
static sw_code take_memories(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t l = p->lm->first; l < p->lm->end && rc == SW_OK; l++) {
        const int64_t n = s->n_seqs * sw_device_state_floats(s->lm->e->m, l);

        if (n) rc = SW_STORE_TAKE(&p->kv[l].d_state, &p->store, n, "recurrent state", err);
        if (rc == SW_OK) rc = take_far(s, p, l, err);
    }
    return rc;
}

static sw_code take_rows(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    const int64_t n = s->n_seqs;
    sw_code rc;

    if ((rc = SW_STORE_TAKE(&p->d_ids, &p->store, n, "tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&p->d_first, &p->store, n, "positions", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&p->d_chunk_first, &p->store, 1, "positions", err)) != SW_OK)
        return rc;
    return SW_STORE_TAKE(&p->d_x, &p->store, n * s->lm->e->m->hidden, "hidden rows", err);
}

/* Where tokens are drawn. */
static sw_code take_state(sw_device_session *s, sw_err *err)
{
    sw_session_part *p = sw_session_last(s);
    const int64_t n = s->n_seqs, vocab = p->lm->head.n_out;
    sw_device_store *store = &p->store;
    sw_code rc;

    if ((rc = sw_device_use(p->lm->e->gpu, err)) != SW_OK ||
        (rc = SW_MEM_GET(&s->n_fed, n, "sequences", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s->log, n * SW_LOG_CAPACITY, "drawn tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_log, store, n * SW_LOG_CAPACITY, "drawn tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_n_logged, store, n, "counts", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_not_finite, store, 1, "flag", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_state, store, n, "generators", err)) != SW_OK)
        return rc;
    return SW_STORE_TAKE(&s->d_logits, store, n * vocab, "logits", err);
}

static sw_code take_zeros(void **out, sw_session_part *p, int64_t size_bytes, sw_err *err)
{
    sw_code rc = sw_device_store_take(out, &p->store, size_bytes, 1, "attention", err);

    return rc == SW_OK ? sw_device_fill(p->lm->e->gpu, *out, 0, size_bytes, err) : rc;
}

static sw_attn_args shape_of(const sw_device_session *s, const sw_device_engine *e, int64_t layer)
{
    const sw_sizes z = sw_model_sizes(e->m, layer);

    return (sw_attn_args){.n_seqs = s->n_seqs, .capacity = s->capacity, .n_heads = (int)z.n_heads,
                          .n_kv_heads = (int)z.n_kv_heads, .v_head_dim = (int)z.v_head_dim,
                          .n_sms = e->device.n_sms};
}

/* What attention of a step needs. */
static sw_code take_scratch(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    const sw_device_engine *e = p->lm->e;
    int64_t size_bytes = 0;

    for (int64_t l = 0; l < e->m->n_layers; l++) {
        const sw_attn_args its = shape_of(s, e, l);

        if (sw_model_has_attention(e->m, l))
            size_bytes = sw_max_i64(size_bytes, sw_cuda_decode_scratch_bytes(&its));
    }
    return size_bytes ? take_zeros(&p->d_decode_scratch, p, size_bytes, err) : SW_OK;
}

static sw_code start_state(sw_device_session *s, sw_err *err)
{
    sw_device *gpu = sw_session_last(s)->lm->e->gpu;
    uint64_t *seeds = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&seeds, s->n_seqs, "generators", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < s->n_seqs; i++) seeds[i] = s->sampling.seed + (uint64_t)i;
    rc = sw_device_upload(gpu, s->d_state, seeds, 8 * s->n_seqs, err);
    sw_mem_put(seeds);
    if (rc != SW_OK || (rc = sw_device_fill(gpu, s->d_not_finite, 0, 4, err)) != SW_OK)
        return rc;
    return sw_device_fill(gpu, s->d_log, 0, 4 * s->n_seqs * SW_LOG_CAPACITY, err);
}

static sw_code check_sampling(const sw_sampling *p, sw_err *err)
{
    if (p->temperature >= 0.0 && p->top_k >= 0 && p->top_p > 0.0 && p->top_p <= 1.0) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "temperature %g, top-k %lld, top-p %g: need at least 0, at "
                   "least 0, and above 0 up to 1", p->temperature, (long long)p->top_k, p->top_p);
}

/* Experts that are listed on the host cannot be in a graph, nor does it know which copy of a
 * streamed block its place holds. */
static bool can_capture(const sw_device_lm *lm, int64_t n_seqs)
{
    bool can = true;

    for (const sw_device_lm *part = lm; part && can; part = part->next) {
        can = !part->streamed;
        for (int64_t l = 0; l < part->n_resident && can; l++)
            can = sw_device_moe_stays(part->blocks[l], n_seqs);
    }
    return can;
}

static sw_code make_part(sw_device_session *s, sw_session_part *p, sw_device_lm *lm, sw_err *err)
{
    sw_code rc;

    p->lm = lm;
    p->store.gpu = lm->e->gpu;
    if ((rc = sw_device_use(lm->e->gpu, err)) != SW_OK || (rc = take_cache(s, p, err)) != SW_OK ||
        (rc = take_memories(s, p, err)) != SW_OK || (rc = take_rows(s, p, err)) != SW_OK)
        return rc;
    return take_scratch(s, p, err);
}

static sw_code make_parts(sw_device_session *s, sw_err *err)
{
    int n = 0;
    sw_code rc;

    for (const sw_device_lm *part = s->lm; part; part = part->next) n++;
    if ((rc = SW_MEM_GET(&s->parts, n, "parts of a session", err)) != SW_OK) return rc;
    for (sw_device_lm *part = s->lm; part && rc == SW_OK; part = part->next)
        rc = make_part(s, &s->parts[s->n_parts++], part, err);
    if (rc != SW_OK || (rc = take_state(s, err)) != SW_OK || (rc = start_state(s, err)) != SW_OK ||
        n == 1)
        return rc;
    return sw_device_hop_new(&s->back, sw_session_last(s)->lm->e->gpu, s->lm->e->gpu, err);
}

sw_code sw_device_session_new(sw_device_session **out, sw_device_lm *lm, int64_t n_seqs,
                              int64_t capacity, const sw_sampling *sampling, sw_err *err)
{
    const sw_device_engine *e = lm->e;
    sw_device_session *s = NULL;
    sw_code rc;

    if (capacity < 1 || capacity > e->max_positions || n_seqs < 1 || n_seqs > e->max_tokens)
        return SW_FAIL(err, SW_E_USAGE, "%lld sequences of %lld tokens; the engine takes %lld of "
                       "%lld", (long long)n_seqs, (long long)capacity, (long long)e->max_tokens,
                       (long long)e->max_positions);
    if ((rc = check_sampling(sampling, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&s, 1, "session", err)) != SW_OK) return rc;
    s->lm = lm;
    s->n_seqs = n_seqs;
    s->capacity = capacity;
    s->sampling = *sampling;
    s->has_graph = can_capture(lm, n_seqs);
    if ((rc = make_parts(s, err)) == SW_OK)
        *out = s;
    else
        sw_device_session_free(s);
    return rc;
}

void sw_session_drop_graph(sw_session_part *p)
{
    if (p->graph) (void)cudaGraphExecDestroy(p->graph);
    p->graph = NULL;
}

void sw_device_session_free(sw_device_session *s)
{
    sw_err ignored = {0};

    if (!s) return;
    for (int i = 0; i < s->n_parts && s->n_parts > 1; i++) /* the next part may still read of it */
        (void)!sw_device_sync(s->parts[i].lm->e->gpu, &ignored);
    for (int i = 0; i < s->n_parts; i++) {
        (void)!sw_device_use(s->parts[i].lm->e->gpu, &ignored);
        sw_session_drop_graph(&s->parts[i]);
        sw_device_store_free(&s->parts[i].store);
    }
    sw_device_hop_free(s->back);
    sw_mem_put(s->parts);
    sw_mem_put(s->n_fed);
    sw_mem_put(s->log);
    sw_mem_put(s);
}
