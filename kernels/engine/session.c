/* session.c - key/value caches and the incremental decoding of one sequence. See engine.h. */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/engine/attention.h"
#include "kernels/engine/engine_internal.h"

#define KV_FIRST_TOKENS 256
#define TOLD_TOKENS 64 /* feeds of fewer tokens are over before anybody wonders */

const sw_num *sw_kv_num(sw_kv_kind kind)
{
    static const sw_num *const nums[] = {[SW_KV_E4M3] = &sw_nums[SW_NUM_E4M3],
                                         [SW_KV_INT8] = &sw_nums[SW_NUM_INT8]};

    return nums[kind];
}

/* Zeros, which is what a mixer remembers before the first token. */
static sw_code reserve_state(sw_kv *kv, const sw_model *m, int64_t layer, sw_err *err)
{
    const int64_t n = sw_model_state_elems(m, layer);

    return kv->state || !n ? SW_OK : SW_MEM_GET(&kv->state, n, "recurrent state", err);
}

/* One of a layer's caches, of `capacity` rows. */
static sw_code grow(float **out, int64_t capacity, int64_t width, sw_err *err)
{
    if (width && capacity > INT64_MAX / 2 / width)
        return SW_FAIL(err, SW_E_NOMEM, "a cache of %lld tokens", (long long)capacity);
    return SW_MEM_GET(out, capacity * width, "cache", err);
}

sw_code sw_kv_reserve(sw_kv *kv, const sw_model *m, int64_t layer, int64_t n_tokens, sw_err *err)
{
    const sw_sizes s = sw_model_sizes(m, layer);
    const int64_t n_heads = sw_model_has_attention(m, layer) ? s.n_kv_heads : 0;
    const int64_t widths[] = {n_heads * s.head_dim, n_heads * s.v_head_dim,
                              sw_model_cache_width(m, layer)};
    float **const caches[] = {&kv->k, &kv->v, &kv->rows};
    float *larger[3] = {NULL};
    int64_t capacity = sw_max_i64(kv->capacity, KV_FIRST_TOKENS);
    sw_code rc;

    if ((rc = reserve_state(kv, m, layer, err)) != SW_OK) return rc;
    if (n_tokens <= kv->capacity) return SW_OK;
    if (n_tokens > INT64_MAX / 4)
        return SW_FAIL(err, SW_E_NOMEM, "a cache of %lld tokens", (long long)n_tokens);
    while (capacity < n_tokens) capacity *= 2;
    for (int i = 0; i < 3 && rc == SW_OK; i++) rc = grow(&larger[i], capacity, widths[i], err);
    for (int i = 0; i < 3; i++) {
        if (rc == SW_OK && kv->n_cached && widths[i])
            memcpy(larger[i], *caches[i], (size_t)(kv->n_cached * widths[i]) * sizeof(float));
        sw_mem_put(rc == SW_OK ? *caches[i] : larger[i]);
        if (rc == SW_OK) *caches[i] = larger[i];
    }
    if (rc == SW_OK) kv->capacity = capacity;
    return rc;
}

void sw_kv_free(sw_kv *kv)
{
    sw_mem_put(kv->k);
    sw_mem_put(kv->v);
    sw_mem_put(kv->rows);
    sw_mem_put(kv->state);
    memset(kv, 0, sizeof *kv);
}

/* Keys and values of one sequence of this call into its cache. */
static void remember(const sw_run *run, const sw_kv *kv, int64_t seq)
{
    const int64_t k_width = run->width[SW_BUF_K], v_width = run->width[SW_BUF_V];
    const int64_t row = seq * run->seq_len;

    memcpy(kv->k + run->first * k_width, run->e->buf[SW_BUF_K] + row * k_width,
           (size_t)(run->seq_len * k_width) * sizeof(float));
    memcpy(kv->v + run->first * v_width, run->e->buf[SW_BUF_V] + row * v_width,
           (size_t)(run->seq_len * v_width) * sizeof(float));
}

/* Sequences with a cache each, one after the other. */
void sw_attend_caches(const sw_run *run, const sw_attention *all)
{
    const int64_t q_width = all->n_heads * all->head_dim, out = all->n_heads * all->v_head_dim;

    for (int64_t i = 0; i < run->n_seqs; i++) {
        const sw_kv *kv = run->caches ? run->caches[i] : run->kv;
        sw_attention a = *all;

        if (!run->is_kv_taken) remember(run, kv, i);
        a.n_seqs = 1;
        a.q += i * run->seq_len * q_width;
        a.out += i * run->seq_len * out;
        a.k = kv->k;
        a.v = kv->v;
        sw_attention_run(&a);
    }
}

bool sw_engine_can_step(const sw_model *m)
{
    bool can = !sw_model_side_width(m);

    for (int64_t l = 0; l < m->n_layers && can; l++)
        can = !m->shares_kv[l] && !sw_model_state_elems(m, l) && !sw_model_cache_width(m, l);
    return can;
}

sw_code sw_engine_step(sw_engine *e, const sw_block *block, float *x, int64_t n_seqs,
                       sw_kv *const *kv, sw_err *err)
{
    sw_run run = {.e = e, .block = block, .x = x, .n_seqs = n_seqs, .seq_len = 1,
                  .n_tokens = n_seqs, .first = kv[0]->n_cached, .kv = kv[0], .caches = kv,
                  .stop_at = (sw_site)SW_RUN_ALL};
    sw_code rc;

    if (!sw_engine_can_step(e->m))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a step of several sequences: layers of this model "
                       "remember more than keys and values");
    for (int64_t i = 1; i < n_seqs; i++)
        if (kv[i]->n_cached != run.first || kv[i]->capacity <= run.first)
            return SW_FAIL(err, SW_E_USAGE, "sequence %lld holds %lld tokens of %lld, the first "
                           "%lld", (long long)i, (long long)kv[i]->n_cached,
                           (long long)kv[i]->capacity, (long long)run.first);
    if ((rc = sw_engine_run_step(&run, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n_seqs; i++) kv[i]->n_cached++;
    return SW_OK;
}

struct sw_session {
    sw_engine *e;
    const sw_lm *lm;
    sw_kv *kv; /* [n_layers] */
    float *states; /* of all layers, one after the other, as they were before the last call */
    int64_t n_fed, capacity;
    int64_t n_before; /* fed before the last call */
    const sw_progress *progress; /* or NULL */
};

sw_code sw_session_new(sw_session **out, sw_engine *e, const sw_lm *lm, int64_t capacity,
                       sw_err *err)
{
    sw_session *s = NULL;
    int64_t n_states = 0;
    sw_code rc;

    if (capacity < 1 || capacity > e->max_positions)
        return SW_FAIL(err, SW_E_USAGE, "a session of %lld tokens; the model has %lld positions",
                       (long long)capacity, (long long)e->max_positions);
    if ((rc = SW_MEM_GET(&s, 1, "session", err)) != SW_OK) return rc;
    s->e = e;
    s->lm = lm;
    s->capacity = capacity;
    rc = SW_MEM_GET(&s->kv, e->m->n_layers, "caches", err);
    for (int64_t l = 0; l < e->m->n_layers && rc == SW_OK; l++) {
        n_states += sw_model_state_elems(e->m, l);
        rc = reserve_state(&s->kv[l], e->m, l, err);
    }
    if (rc == SW_OK) rc = SW_MEM_GET(&s->states, n_states, "recurrent states", err);
    if (rc == SW_OK)
        *out = s;
    else
        sw_session_free(s);
    return rc;
}

void sw_session_free(sw_session *s)
{
    if (!s) return;
    for (int64_t l = 0; s->kv && l < s->e->m->n_layers; l++) sw_kv_free(&s->kv[l]);
    sw_mem_put(s->kv);
    sw_mem_put(s->states);
    sw_mem_put(s);
}

void sw_session_watch(sw_session *s, const sw_progress *progress) { s->progress = progress; }
int64_t sw_session_length(const sw_session *s) { return s->n_fed; }
int64_t sw_session_room(const sw_session *s) { return s->capacity - s->n_fed; }

/* A layer that reads the cache of another, which has run on these tokens before. */
static sw_code feed_sharing(sw_session *s, float *x, int64_t layer, int64_t n, sw_err *err)
{
    sw_kv seen = s->kv[s->e->m->shares_kv[layer] - 1];

    seen.n_cached = s->n_fed;
    return sw_engine_block(s->e, &s->lm->blocks[layer], x, 1, n, &seen, NULL,
                           (sw_site)SW_RUN_ALL, err);
}

/* Keys of tokens that did not count are written over; a state has to be put back. */
static void keep_states(sw_session *s)
{
    float *to = s->states;

    for (int64_t l = 0; l < s->e->m->n_layers; l++) {
        const int64_t n = sw_model_state_elems(s->e->m, l);

        if (n) memcpy(to, s->kv[l].state, (size_t)n * sizeof *to);
        to += n;
    }
}

static void go_back(sw_session *s, int64_t n_fed)
{
    const float *from = s->states;

    s->n_fed = n_fed;
    for (int64_t l = 0; l < s->e->m->n_layers; l++) {
        const int64_t n = sw_model_state_elems(s->e->m, l);

        s->kv[l].n_cached = n_fed;
        if (n) memcpy(s->kv[l].state, from, (size_t)n * sizeof *from);
        from += n;
    }
}

static sw_code tell(const sw_session *s, int64_t layer, int64_t n, sw_err *err)
{
    if (n < TOLD_TOKENS) return SW_OK;
    sw_progress_step(s->progress, "prompt", layer, s->e->m->n_layers);
    return sw_progress_check(s->progress, err);
}

/* After a failure every cache goes back to what was fed before, so the call may be repeated. */
static sw_code feed_chunk(sw_session *s, float *x, const uint32_t *ids, int64_t n, sw_err *err)
{
    sw_code rc = sw_engine_embed(s->e, s->lm, x, ids, 1, n, s->n_fed, err);

    for (int64_t l = 0; l < s->e->m->n_layers && rc == SW_OK; l++) {
        if ((rc = tell(s, l, n, err)) != SW_OK) break;
        if (s->e->m->shares_kv[l]) {
            rc = feed_sharing(s, x, l, n, err);
            continue;
        }
        rc = sw_kv_reserve(&s->kv[l], s->e->m, l, s->n_fed + n, err);
        if (rc == SW_OK)
            rc = sw_engine_block(s->e, &s->lm->blocks[l], x, 1, n, &s->kv[l], NULL,
                                 (sw_site)SW_RUN_ALL, err);
    }
    return rc == SW_OK ? tell(s, s->e->m->n_layers, n, err) : rc;
}

sw_code sw_session_feed_rows(sw_session *s, float *x, const uint32_t *ids, int64_t n, sw_err *err)
{
    sw_code rc;

    if (n < 1 || n > s->capacity - s->n_fed || n > s->e->max_tokens)
        return SW_FAIL(err, SW_E_USAGE, "%lld more tokens after %lld; the session holds %lld, the "
                       "engine takes %lld at a time", (long long)n, (long long)s->n_fed,
                       (long long)s->capacity, (long long)s->e->max_tokens);
    keep_states(s);
    s->n_before = s->n_fed;
    if ((rc = feed_chunk(s, x, ids, n, err)) == SW_OK)
        s->n_fed += n;
    else
        go_back(s, s->n_before);
    return rc;
}

void sw_session_take_back(sw_session *s) { go_back(s, s->n_before); }

sw_code sw_session_feed(sw_session *s, float *logits, const uint32_t *ids, int64_t n, sw_err *err)
{
    const int64_t n_before = s->n_fed, hidden = s->e->m->hidden;
    int64_t n_last = 0;
    float *x = NULL;
    sw_code rc;

    if (n < 1 || n > s->capacity - s->n_fed)
        return SW_FAIL(err, SW_E_USAGE, "%lld more tokens after %lld; the session holds %lld",
                       (long long)n, (long long)s->n_fed, (long long)s->capacity);
    if ((rc = sw_engine_hidden(s->e, &x, err)) != SW_OK) return rc;
    keep_states(s);
    s->n_before = n_before;
    for (int64_t t = 0; t < n && rc == SW_OK; t += n_last) {
        n_last = sw_min_i64(n - t, s->e->max_tokens);
        rc = feed_chunk(s, x, ids + t, n_last, err);
        if (rc == SW_OK) s->n_fed += n_last;
    }
    if (rc == SW_OK)
        rc = sw_engine_head(s->e, s->lm, logits, x + (n_last - 1) * hidden, 1, err);
    if (rc != SW_OK) go_back(s, n_before);
    return rc;
}
