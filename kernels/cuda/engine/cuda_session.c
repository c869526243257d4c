/* cuda_session.c - sequences decoded side by side, a step of all as one graph. See device_engine.h.
 *
 * What a step needs lies on the device and is advanced on it: the token drawn last, positions,
 * generator states, the log of tokens. So a step is the same graph whatever it decodes, and the
 * host only counts.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_lm.h"
#include "kernels/cuda/runtime/cuda_check.h"

/* Sequences up to which products take in what stands around them: from two on the products of
 * cuda_gemm.h are as fast (tests/bench/h200-decode.csv). */
#define FUSED_SEQS_MAX 1
#define LOG_CAPACITY 256 /* steps between two looks at what was drawn */
#define TOLD_TOKENS 64   /* feeds of fewer tokens are over before anybody wonders */

struct sw_device_session {
    sw_device_lm *lm;
    int64_t n_seqs, capacity;
    int64_t *n_fed;    /* [n_seqs] */
    sw_sampling sampling;
    sw_device_kv *kv; /* [n_layers] */
    uint32_t *d_ids, *d_log;
    uint32_t *log;     /* [n_seqs, LOG_CAPACITY] on the host */
    int32_t *d_first;  /* [n_seqs] position of the token fed last */
    int32_t *d_chunk_first, *d_n_logged, *d_not_finite;
    uint64_t *d_state;
    float *d_logits, *d_x;
    void *d_decode_scratch;
    sw_decode_chain *chain; /* of steps of one sequence; NULL: kernels of their own */
    cudaGraphExec_t graph;
    int64_t graph_generation; /* of the workspace it was captured with */
    bool is_warm;             /* a step has run outside a graph */
    bool has_graph;           /* or could: nothing in a step waits for the host */
    sw_device_store store;
    const sw_progress *progress; /* or NULL */
};

static sw_code take_cache(sw_device_session *s, sw_err *err)
{
    const sw_model *m = s->lm->e->m;
    const int64_t n = s->n_seqs * s->capacity, elem_bytes = sw_device_kv_bytes(&s->lm->kv);
    int64_t width = 0;
    sw_code rc;

    for (int64_t l = 0; l < m->n_layers; l++)
        width += sw_device_k_width(m, l) + sw_device_v_width(m, l);
    rc = sw_device_room(s->lm->e->gpu, elem_bytes * n * width, "the cache", err);
    if (rc == SW_OK) rc = SW_MEM_GET(&s->kv, m->n_layers, "caches", err);
    for (int64_t l = 0; l < m->n_layers && rc == SW_OK; l++) {
        const int64_t k = sw_device_k_width(m, l), v = sw_device_v_width(m, l);

        s->kv[l].capacity = s->capacity;
        if (!k) continue;
        rc = sw_device_store_take(&s->kv[l].d_k, &s->store, n * k, elem_bytes, "key cache", err);
        if (rc == SW_OK)
            rc = sw_device_store_take(&s->kv[l].d_v, &s->store, n * v, elem_bytes, "value cache",
                                      err);
    }
    return rc;
}

/* Rows of keys and far keys. Products read far keys that are not made yet, and nobody what they
 * give; but it must be memory that somebody has written. */
static sw_code take_far(sw_device_session *s, int64_t layer, sw_err *err)
{
    const int64_t n = s->n_seqs * sw_device_far_elems(s->lm->e->m, layer, s->capacity);
    sw_code rc;

    if (!n) return SW_OK;
    rc = SW_STORE_TAKE(&s->kv[layer].d_far, &s->store, n, "cache of keys", err);
    if (rc != SW_OK) return rc;
    return sw_device_fill(s->lm->e->gpu, s->kv[layer].d_far, 0, n * (int64_t)sizeof(sw_bf16), err);
}

/* What recurrent mixers remember; nobody reads it before the first token is there. */
static sw_code take_memories(sw_device_session *s, sw_err *err)
{
    const sw_model *m = s->lm->e->m;
    sw_code rc = SW_OK;

    for (int64_t l = 0; l < m->n_layers && rc == SW_OK; l++) {
        const int64_t n = s->n_seqs * sw_device_state_floats(m, l);

        if (n) rc = SW_STORE_TAKE(&s->kv[l].d_state, &s->store, n, "recurrent state", err);
        if (rc == SW_OK) rc = take_far(s, l, err);
    }
    return rc;
}

static sw_code take_state(sw_device_session *s, sw_err *err)
{
    const int64_t n = s->n_seqs, vocab = s->lm->head.n_out, hidden = s->lm->e->m->hidden;
    sw_device_store *store = &s->store;
    sw_code rc;

    if ((rc = SW_MEM_GET(&s->n_fed, n, "sequences", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s->log, n * LOG_CAPACITY, "drawn tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_ids, store, n, "tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_log, store, n * LOG_CAPACITY, "drawn tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_first, store, n, "positions", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_chunk_first, store, 1, "positions", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_n_logged, store, n, "counts", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_not_finite, store, 1, "flag", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_state, store, n, "generators", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&s->d_logits, store, n * vocab, "logits", err)) != SW_OK)
        return rc;
    return SW_STORE_TAKE(&s->d_x, store, n * hidden, "hidden rows", err);
}

static sw_code take_zeros(void **out, sw_device_session *s, int64_t size_bytes, sw_err *err)
{
    sw_code rc = sw_device_store_take(out, &s->store, size_bytes, 1, "attention", err);

    return rc == SW_OK ? sw_device_fill(s->lm->e->gpu, *out, 0, size_bytes, err) : rc;
}

static sw_attn_args shape_of(const sw_device_session *s, int64_t layer)
{
    const sw_device_engine *e = s->lm->e;
    const sw_sizes z = sw_model_sizes(e->m, layer);

    return (sw_attn_args){.n_seqs = s->n_seqs, .capacity = s->capacity, .n_heads = (int)z.n_heads,
                          .n_kv_heads = (int)z.n_kv_heads, .v_head_dim = (int)z.v_head_dim,
                          .n_sms = e->device.n_sms};
}

/* What attention of a step needs, and the chain it may be in: not where blocks come from the host,
 * whose copies go between kernels, nor where layers have heads of several sizes. */
static sw_code take_scratch(sw_device_session *s, sw_err *err)
{
    const sw_device_engine *e = s->lm->e;
    const sw_attn_args shape = shape_of(s, 0);
    bool has_others = false;
    int64_t size_bytes = 0;
    void *d_scratch = NULL;
    sw_code rc;

    for (int64_t l = 0; l < e->m->n_layers; l++) {
        const sw_attn_args its = shape_of(s, l);

        has_others = has_others || e->m->sizes_of[l];
        if (sw_model_has_attention(e->m, l))
            size_bytes = sw_max_i64(size_bytes, sw_cuda_decode_scratch_bytes(&its));
    }
    if (size_bytes && (rc = take_zeros(&s->d_decode_scratch, s, size_bytes, err)) != SW_OK)
        return rc;
    if (has_others || s->n_seqs > FUSED_SEQS_MAX || s->lm->streamed) return SW_OK;
    if ((rc = take_zeros(&d_scratch, s, sw_cuda_chain_scratch_bytes(&shape), err)) != SW_OK)
        return rc;
    return sw_cuda_chain_new(&s->chain, &shape, e->device.sm, d_scratch, err);
}

static sw_code start_state(sw_device_session *s, sw_err *err)
{
    const sw_device_engine *e = s->lm->e;
    uint64_t *seeds = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&seeds, s->n_seqs, "generators", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < s->n_seqs; i++) seeds[i] = s->sampling.seed + (uint64_t)i;
    rc = sw_device_upload(e->gpu, s->d_state, seeds, 8 * s->n_seqs, err);
    sw_mem_put(seeds);
    if (rc != SW_OK || (rc = sw_device_fill(e->gpu, s->d_not_finite, 0, 4, err)) != SW_OK ||
        (rc = sw_device_fill(e->gpu, s->d_log, 0, 4 * s->n_seqs * LOG_CAPACITY, err)) != SW_OK)
        return rc;
    return take_scratch(s, err);
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
    bool can = !lm->streamed;

    for (int64_t l = 0; l < lm->n_resident && can; l++)
        can = sw_device_moe_stays(lm->blocks[l], n_seqs);
    return can;
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
    s->store.gpu = e->gpu;
    if ((rc = take_cache(s, err)) == SW_OK && (rc = take_memories(s, err)) == SW_OK &&
        (rc = take_state(s, err)) == SW_OK && (rc = start_state(s, err)) == SW_OK)
        *out = s;
    else
        sw_device_session_free(s);
    return rc;
}

static void drop_graph(sw_device_session *s)
{
    if (s->graph) (void)cudaGraphExecDestroy(s->graph);
    s->graph = NULL;
}

void sw_device_session_free(sw_device_session *s)
{
    if (!s) return;
    drop_graph(s);
    sw_cuda_chain_free(s->chain);
    sw_device_store_free(&s->store);
    sw_mem_put(s->kv);
    sw_mem_put(s->n_fed);
    sw_mem_put(s->log);
    sw_mem_put(s);
}

void sw_device_session_watch(sw_device_session *s, const sw_progress *progress)
{
    s->progress = progress;
}

/* ---- the prompt ---- */

/* After `at` of n tokens, in blocks. The host is ahead of the device, so it waits for it first. */
static sw_code tell(const sw_device_session *s, int64_t at, int64_t n, sw_err *err)
{
    const sw_device_engine *e = s->lm->e;
    const int64_t chunk = e->max_tokens, n_layers = e->m->n_layers;
    sw_code rc;

    if (!s->progress || n < TOLD_TOKENS) return SW_OK;
    if (at && (rc = sw_device_sync(e->gpu, err)) != SW_OK) return rc;
    sw_progress_step(s->progress, "prompt", (at + chunk - 1) / chunk * n_layers,
                     (n + chunk - 1) / chunk * n_layers);
    return sw_progress_check(s->progress, err);
}

static sw_code feed_chunk(sw_device_session *s, int64_t seq, const uint32_t *ids, int64_t n,
                          sw_err *err)
{
    sw_device_lm *lm = s->lm;
    sw_device *gpu = lm->e->gpu;
    const int32_t first = (int32_t)s->n_fed[seq], last = first + (int32_t)n - 1;
    sw_device_run run = {
        .d_x = lm->d_x, .n_seqs = 1, .seq_len = n, .n_tokens = n, .d_first = s->d_chunk_first,
        .end = first + n};
    sw_code rc;

    lm->n_rows = 0;
    if ((rc = sw_device_angles_fill(lm->e, first, first + n, err)) != SW_OK ||
        (rc = sw_device_upload(gpu, lm->d_ids, ids, 4 * n, err)) != SW_OK ||
        (rc = sw_device_upload(gpu, s->d_chunk_first, &first, 4, err)) != SW_OK ||
        (rc = sw_device_lm_run(lm, &run, s->kv, seq, lm->d_ids, err)) != SW_OK ||
        (rc = sw_device_upload(gpu, s->d_first + seq, &last, 4, err)) != SW_OK)
        return rc;
    s->n_fed[seq] += n;
    return SW_OK;
}

sw_code sw_device_session_feed(sw_device_session *s, int64_t seq, const uint32_t *ids, int64_t n,
                               sw_err *err)
{
    sw_device_lm *lm = s->lm;
    int64_t some = 0;
    sw_code rc;

    if (seq < 0 || seq >= s->n_seqs || n < 1 || n > s->capacity - s->n_fed[seq])
        return SW_FAIL(err, SW_E_USAGE, "%lld more tokens in sequence %lld of %lld; it holds %lld",
                       (long long)n, (long long)seq, (long long)s->n_seqs,
                       (long long)s->capacity);
    rc = sw_device_lm_check_ids(lm, ids, n, s->n_fed[seq] + n, err);
    if (rc == SW_OK) rc = tell(s, 0, n, err);
    for (int64_t at = 0; at < n && rc == SW_OK; at += some) {
        some = sw_min_i64(n - at, lm->e->max_tokens);
        rc = feed_chunk(s, seq, ids + at, some, err);
        if (rc == SW_OK) rc = tell(s, at + some, n, err);
    }
    if (rc != SW_OK) return rc;
    return sw_device_lm_logits(lm, s->d_logits + seq * lm->head.n_out,
                               lm->d_x + (some - 1) * lm->e->m->hidden, 1, err);
}

/* ---- steps ---- */

/* Draw from the logits at hand, feed what was drawn: everything by what lies on the device. */
static sw_code enqueue_step(sw_device_session *s, sw_err *err)
{
    sw_device_lm *lm = s->lm;
    const sw_pick_args pick = {.logits = s->d_logits, .ids = s->d_ids, .first = s->d_first,
                               .log = s->d_log, .n_logged = s->d_n_logged, .state = s->d_state,
                               .not_finite = s->d_not_finite, .n_seqs = s->n_seqs,
                               .vocab = lm->head.n_out, .log_capacity = LOG_CAPACITY,
                               .temperature = (float)s->sampling.temperature,
                               .top_k = s->sampling.top_k, .top_p = s->sampling.top_p};
    sw_device_run run = {.d_x = s->d_x,
                         .n_seqs = s->n_seqs,
                         .seq_len = 1,
                         .n_tokens = s->n_seqs,
                         .d_first = s->d_first,
                         .is_decode = true,
                         .is_fused = s->n_seqs <= FUSED_SEQS_MAX,
                         .d_decode_scratch = s->d_decode_scratch,
                         .chain = s->chain};
    sw_code rc;

    if ((rc = sw_cuda_pick(&pick, lm->e->how, err)) != SW_OK ||
        (rc = sw_device_lm_run(lm, &run, s->kv, 0, s->d_ids, err)) != SW_OK)
        return rc;
    return sw_device_lm_logits(lm, s->d_logits, s->d_x, s->n_seqs, err);
}

static sw_code capture(sw_device_session *s, sw_err *err)
{
    const cudaStream_t stream = s->lm->e->how.stream;
    cudaGraph_t graph = NULL;
    sw_code rc, ended;

    drop_graph(s);
    sw_cublaslt_hold();
    rc = sw_device_check((int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                         "graph", err);
    if (rc == SW_OK) {
        rc = enqueue_step(s, err);
        ended = sw_device_check((int)cudaStreamEndCapture(stream, &graph), "graph", err);
        if (rc == SW_OK) rc = ended;
    }
    sw_cublaslt_release();
    if (rc == SW_OK)
        rc = sw_device_check((int)cudaGraphInstantiate(&s->graph, graph, 0), "graph", err);
    if (graph) (void)cudaGraphDestroy(graph);
    s->graph_generation = s->lm->e->work_generation;
    return rc;
}

static sw_code run_step(sw_device_session *s, sw_err *err)
{
    sw_device_engine *e = s->lm->e;
    sw_code rc = SW_OK;

    if (!s->has_graph || !s->is_warm) {
        s->is_warm = true; /* the first step also sizes the workspaces */
        return enqueue_step(s, err);
    }
    if (!s->graph || s->graph_generation != e->work_generation) rc = capture(s, err);
    if (rc != SW_OK) return rc;
    return sw_device_check((int)cudaGraphLaunch(s->graph, e->how.stream), "graph", err);
}

/* Tokens at hand into ids [n_steps, n_seqs]. */
static sw_code fetch_log(sw_device_session *s, uint32_t *ids, int64_t n_steps, sw_err *err)
{
    int32_t not_finite = 0;
    sw_code rc;

    if ((rc = sw_device_download(s->lm->e->gpu, s->log, s->d_log, 4 * s->n_seqs * LOG_CAPACITY,
                                 err)) != SW_OK ||
        (rc = sw_device_download(s->lm->e->gpu, &not_finite, s->d_not_finite, 4, err)) != SW_OK)
        return rc;
    if (not_finite)
        return SW_FAIL(err, SW_E_FORMAT, "a logit of sequence %d is not finite", not_finite - 1);
    for (int64_t t = 0; t < n_steps; t++)
        for (int64_t i = 0; i < s->n_seqs; i++)
            ids[t * s->n_seqs + i] = s->log[i * LOG_CAPACITY + t];
    return SW_OK;
}

int64_t sw_device_session_room(const sw_device_session *s)
{
    int64_t room = s->capacity;

    for (int64_t i = 0; i < s->n_seqs; i++) room = sw_min_i64(room, s->capacity - s->n_fed[i]);
    return room;
}

/* Rope tables of n_steps to come at once, where they do not depend on the length. */
static sw_code prepare_steps(sw_device_session *s, int64_t n_steps, sw_err *err)
{
    const sw_model *m = s->lm->e->m;
    int64_t end = 0;

    for (int64_t i = 0; i < s->n_seqs; i++) end = sw_max_i64(end, s->n_fed[i] + n_steps);
    if (sw_rope_depends_on(m, &m->rope, end) ||
        (m->has_window_rope && sw_rope_depends_on(m, &m->window_rope, end)))
        return SW_OK;
    return sw_device_angles_fill(s->lm->e, 0, end, err);
}

/* And those of the next one where they do; nothing otherwise. Positions may differ. */
static sw_code prepare_step(sw_device_session *s, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < s->n_seqs && rc == SW_OK; i++) {
        rc = sw_device_angles_fill(s->lm->e, s->n_fed[i], s->n_fed[i] + 1, err);
        s->n_fed[i]++;
    }
    return rc;
}

sw_code sw_device_session_step(sw_device_session *s, uint32_t *ids, int64_t n_steps, sw_err *err)
{
    sw_device *gpu = s->lm->e->gpu;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < s->n_seqs; i++)
        if (!s->n_fed[i])
            return SW_FAIL(err, SW_E_USAGE, "sequence %lld holds nothing yet", (long long)i);
    if (n_steps > sw_device_session_room(s))
        return SW_FAIL(err, SW_E_USAGE, "%lld more tokens; there is room for %lld",
                       (long long)n_steps, (long long)sw_device_session_room(s));
    for (int64_t at = 0; at < n_steps && rc == SW_OK; at += LOG_CAPACITY) {
        const int64_t some = sw_min_i64(LOG_CAPACITY, n_steps - at);

        rc = sw_device_fill(gpu, s->d_n_logged, 0, 4 * s->n_seqs, err);
        if (rc == SW_OK) rc = prepare_steps(s, some, err);
        for (int64_t t = 0; t < some && rc == SW_OK; t++) {
            if ((rc = prepare_step(s, err)) == SW_OK) rc = run_step(s, err);
        }
        if (rc == SW_OK) rc = fetch_log(s, ids + at * s->n_seqs, some, err);
    }
    return rc;
}

sw_code sw_device_session_logits(sw_device_session *s, float *logits, sw_err *err)
{
    return sw_device_download(s->lm->e->gpu, logits, s->d_logits, 4 * s->n_seqs * s->lm->head.n_out,
                              err);
}
