/* cuda_session.c - sequences decoded side by side, a step of all as one graph. See device_engine.h.
 *
 * What a step needs lies on the device and is advanced on it: the token drawn last, positions,
 * generator states, the log of tokens. So a step is the same graph whatever it decodes, and the
 * host only counts.
 *
 * Of a model over several devices a step is a graph a device, with an event and the rows between
 * two: where tokens are drawn one is drawn first, and goes back to where it is fed.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_session.h"
#include "kernels/cuda/runtime/cuda_check.h"

#define TOLD_TOKENS 64 /* feeds of fewer tokens are over before anybody wonders */

void sw_device_session_watch(sw_device_session *s, const sw_progress *progress)
{
    s->progress = progress;
}

/* ---- from part to part ---- */

/* Rows of keys and values that layers behind the cut read, of n tokens of a sequence from position
 * `at` on. */
static sw_code cross_cache(const sw_device_session *s, const sw_session_part *from,
                           const sw_session_part *to, int64_t seq, int64_t at, int64_t n,
                           sw_err *err)
{
    const sw_model *m = s->lm->e->m;
    const int64_t elem_bytes = sw_device_kv_bytes(&s->lm->kv);
    sw_code rc = SW_OK;

    for (int64_t l = 0; l < from->lm->end && rc == SW_OK; l++) {
        const int64_t k = elem_bytes * sw_device_k_width(m, l);
        const int64_t v = elem_bytes * sw_device_v_width(m, l);
        const int64_t row = seq * s->capacity + at;

        if (!sw_device_lm_keeps(to->lm, l)) continue;
        rc = sw_device_hop_copy(from->lm->hop, (char *)to->kv[l].d_k + row * k,
                                (const char *)from->kv[l].d_k + row * k, n * k, err);
        if (rc == SW_OK)
            rc = sw_device_hop_copy(from->lm->hop, (char *)to->kv[l].d_v + row * v,
                                    (const char *)from->kv[l].d_v + row * v, n * v, err);
    }
    return rc;
}

static sw_code fill_angles(const sw_session_part *p, int64_t first, int64_t end, sw_err *err)
{
    sw_code rc = sw_device_use(p->lm->e->gpu, err);

    return rc == SW_OK ? sw_device_angles_fill(p->lm->e, first, end, err) : rc;
}

/* Angles of so many positions in every part, where they do not depend on the length. */
static sw_code prepare(const sw_device_session *s, int64_t end, sw_err *err)
{
    const sw_model *m = s->lm->e->m;
    sw_code rc = SW_OK;

    if (sw_rope_depends_on(m, &m->rope, end) ||
        (m->has_window_rope && sw_rope_depends_on(m, &m->window_rope, end)))
        return SW_OK;
    for (int i = 0; i < s->n_parts && rc == SW_OK; i++)
        rc = fill_angles(&s->parts[i], 0, end, err);
    return rc;
}

/* ---- the prompt ---- */

/* After `at` of n tokens, in blocks. The host is ahead of the device, so it waits for it first. */
static sw_code tell(const sw_device_session *s, int64_t at, int64_t n, sw_err *err)
{
    const sw_device_engine *e = sw_session_last(s)->lm->e;
    const int64_t chunk = e->max_tokens, n_layers = e->m->n_layers;
    sw_code rc;

    if (!s->progress || n < TOLD_TOKENS) return SW_OK;
    if (at && (rc = sw_device_sync(e->gpu, err)) != SW_OK) return rc;
    sw_progress_step(s->progress, "prompt", (at + chunk - 1) / chunk * n_layers,
                     (n + chunk - 1) / chunk * n_layers);
    return sw_progress_check(s->progress, err);
}

static sw_device_run run_of_chunk(const sw_session_part *p, int64_t first, int64_t n)
{
    return (sw_device_run){.d_x = p->lm->d_x, .n_seqs = 1, .seq_len = n, .n_tokens = n,
                           .d_first = p->d_chunk_first, .end = first + n};
}

static sw_code feed_part(sw_device_session *s, int i, int64_t seq, int64_t n, sw_err *err)
{
    sw_session_part *p = &s->parts[i];
    const int64_t first = s->n_fed[seq];
    sw_device_run run = run_of_chunk(p, first, n), next;
    sw_code rc;

    if ((rc = sw_device_angles_fill(p->lm->e, first, first + n, err)) != SW_OK ||
        (rc = sw_device_lm_run(p->lm, &run, p->kv, seq, s->lm->d_ids, err)) != SW_OK ||
        p == sw_session_last(s))
        return rc;
    next = run_of_chunk(p + 1, first, n);
    if ((rc = sw_device_lm_cross(p->lm, &run, &next, err)) != SW_OK ||
        (rc = cross_cache(s, p, p + 1, seq, first, n, err)) != SW_OK)
        return rc;
    return sw_device_hop_end(p->lm->hop, err);
}

static sw_code feed_chunk(sw_device_session *s, int64_t seq, const uint32_t *ids, int64_t n,
                          sw_err *err)
{
    sw_device_lm *lm = s->lm;
    const int32_t first = (int32_t)s->n_fed[seq];
    sw_code rc;

    lm->n_rows = 0;
    if ((rc = sw_device_lm_enter(lm, err)) != SW_OK ||
        (rc = sw_device_upload(lm->e->gpu, lm->d_ids, ids, 4 * n, err)) != SW_OK ||
        (rc = sw_device_upload(lm->e->gpu, s->parts[0].d_chunk_first, &first, 4, err)) != SW_OK)
        return rc;
    for (int i = 0; i < s->n_parts && rc == SW_OK; i++) rc = feed_part(s, i, seq, n, err);
    if (rc == SW_OK) s->n_fed[seq] += n;
    return rc;
}

/* Where tokens are drawn: the position of the last, and what follows it. */
static sw_code end_feed(sw_device_session *s, int64_t seq, int64_t n_rows, sw_err *err)
{
    const sw_session_part *p = sw_session_last(s);
    const int32_t last = (int32_t)s->n_fed[seq] - 1;
    sw_code rc = sw_device_upload(p->lm->e->gpu, p->d_first + seq, &last, 4, err);

    if (rc != SW_OK) return rc;
    return sw_device_lm_logits(p->lm, s->d_logits + seq * p->lm->head.n_out,
                               p->lm->d_x + (n_rows - 1) * p->lm->e->m->hidden, 1, err);
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
    if (rc == SW_OK) rc = prepare(s, s->n_fed[seq] + n, err);
    if (rc == SW_OK) rc = tell(s, 0, n, err);
    for (int64_t at = 0; at < n && rc == SW_OK; at += some) {
        some = sw_min_i64(n - at, lm->e->max_tokens);
        rc = feed_chunk(s, seq, ids + at, some, err);
        if (rc == SW_OK) rc = tell(s, at + some, n, err);
    }
    return rc == SW_OK ? end_feed(s, seq, some, err) : rc;
}

/* ---- steps ---- */

/* Draw from the logits at hand: everything by what lies on the device. */
static sw_code enqueue_pick(sw_device_session *s, sw_err *err)
{
    const sw_session_part *p = sw_session_last(s);
    const sw_pick_args pick = {.logits = s->d_logits, .ids = p->d_ids, .first = p->d_first,
                               .log = s->d_log, .n_logged = s->d_n_logged, .state = s->d_state,
                               .not_finite = s->d_not_finite, .n_seqs = s->n_seqs,
                               .vocab = p->lm->head.n_out, .log_capacity = SW_LOG_CAPACITY,
                               .temperature = (float)s->sampling.temperature,
                               .top_k = s->sampling.top_k, .top_p = s->sampling.top_p};

    return sw_cuda_pick(&pick, p->lm->e->how, err);
}

static sw_device_run run_of_step(const sw_device_session *s, const sw_session_part *p)
{
    return (sw_device_run){.d_x = p->d_x,
                           .n_seqs = s->n_seqs,
                           .seq_len = 1,
                           .n_tokens = s->n_seqs,
                           .d_first = p->d_first,
                           .is_decode = true,
                           .is_fused = s->n_seqs <= SW_FUSED_SEQS_MAX,
                           .d_decode_scratch = p->d_decode_scratch};
}

/* What a part does of a step, from kernels of its device alone. */
static sw_code enqueue_part(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    sw_device_run run = run_of_step(s, p);
    sw_code rc = s->back ? SW_OK : enqueue_pick(s, err);

    if (rc != SW_OK || (rc = sw_device_lm_run(p->lm, &run, p->kv, 0, p->d_ids, err)) != SW_OK ||
        p != sw_session_last(s))
        return rc;
    return sw_device_lm_logits(p->lm, s->d_logits, p->d_x, s->n_seqs, err);
}

static sw_code capture(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    const cudaStream_t stream = p->lm->e->how.stream;
    cudaGraph_t graph = NULL;
    sw_code rc, ended;

    sw_session_drop_graph(p);
    sw_cublaslt_hold();
    rc = sw_device_check((int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                         "graph", err);
    if (rc == SW_OK) {
        rc = enqueue_part(s, p, err);
        ended = sw_device_check((int)cudaStreamEndCapture(stream, &graph), "graph", err);
        if (rc == SW_OK) rc = ended;
    }
    sw_cublaslt_release();
    if (rc == SW_OK)
        rc = sw_device_check((int)cudaGraphInstantiate(&p->graph, graph, 0), "graph", err);
    if (graph) (void)cudaGraphDestroy(graph);
    p->graph_generation = p->lm->e->work_generation;
    return rc;
}

static sw_code run_part(sw_device_session *s, sw_session_part *p, sw_err *err)
{
    const sw_device_engine *e = p->lm->e;
    sw_code rc = SW_OK;

    if (!s->has_graph || !s->is_warm) return enqueue_part(s, p, err);
    if (!p->graph || p->graph_generation != e->work_generation) rc = capture(s, p, err);
    if (rc != SW_OK) return rc;
    return sw_device_check((int)cudaGraphLaunch(p->graph, e->how.stream), "graph", err);
}

/* What has been drawn goes to where it is fed. What is drawn next comes after all of this step. */
static sw_code bring_back(sw_device_session *s, sw_err *err)
{
    const sw_session_part *from = sw_session_last(s), *to = &s->parts[0];
    sw_code rc;

    if (!s->back) return SW_OK;
    if ((rc = sw_device_use(from->lm->e->gpu, err)) != SW_OK ||
        (rc = enqueue_pick(s, err)) != SW_OK || (rc = sw_device_hop_begin(s->back, err)) != SW_OK ||
        (rc = sw_device_hop_copy(s->back, to->d_ids, from->d_ids, 4 * s->n_seqs, err)) != SW_OK)
        return rc;
    return sw_device_hop_copy(s->back, to->d_first, from->d_first, 4 * s->n_seqs, err);
}

static sw_code cross_step(sw_device_session *s, const sw_session_part *p, sw_err *err)
{
    const sw_device_run run = run_of_step(s, p), next = run_of_step(s, p + 1);
    sw_code rc = sw_device_lm_cross(p->lm, &run, &next, err);

    for (int64_t i = 0; i < s->n_seqs && rc == SW_OK; i++)
        rc = cross_cache(s, p, p + 1, i, s->n_fed[i] - 1, 1, err);
    return rc == SW_OK ? sw_device_hop_end(p->lm->hop, err) : rc;
}

/* The first step also sizes the workspaces, before there are graphs. */
static sw_code run_step(sw_device_session *s, sw_err *err)
{
    sw_code rc = bring_back(s, err);

    for (int i = 0; i < s->n_parts && rc == SW_OK; i++) {
        rc = run_part(s, &s->parts[i], err);
        if (rc == SW_OK && i + 1 < s->n_parts) rc = cross_step(s, &s->parts[i], err);
    }
    s->is_warm = true;
    return rc;
}

/* Tokens at hand into ids [n_steps, n_seqs]. */
static sw_code fetch_log(sw_device_session *s, uint32_t *ids, int64_t n_steps, sw_err *err)
{
    sw_device *gpu = sw_session_last(s)->lm->e->gpu;
    int32_t not_finite = 0;
    sw_code rc;

    if ((rc = sw_device_download(gpu, s->log, s->d_log, 4 * s->n_seqs * SW_LOG_CAPACITY, err)) !=
            SW_OK ||
        (rc = sw_device_download(gpu, &not_finite, s->d_not_finite, 4, err)) != SW_OK)
        return rc;
    if (not_finite)
        return SW_FAIL(err, SW_E_FORMAT, "a logit of sequence %d is not finite", not_finite - 1);
    for (int64_t t = 0; t < n_steps; t++)
        for (int64_t i = 0; i < s->n_seqs; i++)
            ids[t * s->n_seqs + i] = s->log[i * SW_LOG_CAPACITY + t];
    return SW_OK;
}

int64_t sw_device_session_room(const sw_device_session *s)
{
    int64_t room = s->capacity;

    for (int64_t i = 0; i < s->n_seqs; i++) room = sw_min_i64(room, s->capacity - s->n_fed[i]);
    return room;
}

/* Angles of n_steps to come at once. */
static sw_code prepare_steps(sw_device_session *s, int64_t n_steps, sw_err *err)
{
    int64_t end = 0;

    for (int64_t i = 0; i < s->n_seqs; i++) end = sw_max_i64(end, s->n_fed[i] + n_steps);
    return prepare(s, end, err);
}

/* And those of the next one where they depend on the length; nothing otherwise. Positions may
 * differ. */
static sw_code prepare_step(sw_device_session *s, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < s->n_seqs && rc == SW_OK; i++) {
        for (int p = 0; p < s->n_parts && rc == SW_OK; p++)
            rc = fill_angles(&s->parts[p], s->n_fed[i], s->n_fed[i] + 1, err);
        s->n_fed[i]++;
    }
    return rc;
}

sw_code sw_device_session_step(sw_device_session *s, uint32_t *ids, int64_t n_steps, sw_err *err)
{
    sw_device *gpu = sw_session_last(s)->lm->e->gpu;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < s->n_seqs; i++)
        if (!s->n_fed[i])
            return SW_FAIL(err, SW_E_USAGE, "sequence %lld holds nothing yet", (long long)i);
    if (n_steps > sw_device_session_room(s))
        return SW_FAIL(err, SW_E_USAGE, "%lld more tokens; there is room for %lld",
                       (long long)n_steps, (long long)sw_device_session_room(s));
    for (int64_t at = 0; at < n_steps && rc == SW_OK; at += SW_LOG_CAPACITY) {
        const int64_t some = sw_min_i64(SW_LOG_CAPACITY, n_steps - at);

        if ((rc = sw_device_use(gpu, err)) == SW_OK)
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
    const sw_session_part *p = sw_session_last(s);

    return sw_device_download(p->lm->e->gpu, logits, s->d_logits,
                              4 * s->n_seqs * p->lm->head.n_out, err);
}
