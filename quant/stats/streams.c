/* streams.c - see streams.h. */
#include "quant/stats/streams.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/num/act.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"
#include "quant/device/streams_device.h"

#define STRETCHES_MIN 8 /* alternate parts of the text for the halves of experts.h */
#define ALL_TOKENS_PER_INPUT 16 /* rows that a prior is made of, at least */

int64_t sw_streams_chunk_seqs(const sw_calib *calib)
{
    return sw_min_i64(calib->n_seqs, sw_max_i64(1, SW_STREAM_CHUNK_TOKENS / calib->seq_len));
}

bool sw_streams_hold_back(const sw_calib *calib)
{
    return calib->n_seqs > sw_streams_chunk_seqs(calib);
}

static sw_code take_stream(float **out, sw_spill *spill, int64_t n, const char *spill_dir,
                           sw_err *err)
{
    sw_code rc;

    if (!spill_dir) return SW_MEM_GET(out, n, "calibration stream", err);
    rc = sw_spill_open(spill, spill_dir, (size_t)n * sizeof **out, err);
    if (rc == SW_OK) *out = spill->data;
    return rc;
}

/* Done with a chunk of a stream, for now. */
static void release(const sw_streams *s, const sw_spill *spill, const float *x, int64_t seq)
{
    int64_t per_seq = s->seq_len * s->model->hidden;
    int64_t n_seqs = sw_min_i64(s->chunk_seqs, s->n_seqs - seq);

    sw_spill_release(spill, x + seq * per_seq, (size_t)(n_seqs * per_seq) * sizeof *x);
}

/* A chunk of embeddings is in x: where the streams live. */
static sw_code put_chunk(sw_streams *s, const float *x, int64_t seq, sw_err *err)
{
    int64_t n = sw_min_i64(s->chunk_seqs, s->n_seqs - seq) * s->seq_len * s->model->hidden;

    if (s->on) return sw_device_streams_put(s, x, seq, err);
    if (s->x0) {
        memcpy(s->x0 + seq * s->seq_len * s->model->hidden, x, (size_t)n * sizeof *x);
        release(s, &s->spill0, s->x0, seq);
    }
    release(s, &s->spill, s->x, seq);
    return SW_OK;
}

static sw_code embed(sw_streams *s, const sw_st *st, const sw_calib *calib, sw_err *err)
{
    int64_t per_seq = s->seq_len * s->model->hidden;
    sw_lm ends = {0};
    sw_code rc = sw_lm_load_tables(&ends, s->model, st, err);

    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += s->chunk_seqs) {
        int64_t n_seqs = sw_min_i64(s->chunk_seqs, s->n_seqs - seq);
        float *x = s->on ? s->work : s->x + seq * per_seq;
        rc = sw_engine_embed(s->engine, &ends, x, calib->ids + seq * s->seq_len, n_seqs,
                             s->seq_len, 0, err);
        if (rc == SW_OK) rc = put_chunk(s, x, seq, err);
    }
    sw_lm_free(&ends);
    sw_st_forget(st);
    return rc;
}

sw_code sw_streams_new(sw_streams *out, const sw_model *model, const sw_st *st,
                       const sw_calib *calib, bool with_original, const char *spill_dir,
                       int n_threads, sw_err *err)
{
    int64_t n = calib->n_seqs * calib->seq_len * model->hidden, chunk_tokens;
    sw_streams s = {.model = model, .n_seqs = calib->n_seqs, .seq_len = calib->seq_len};
    sw_code rc;

    s.chunk_seqs = sw_streams_chunk_seqs(calib);
    chunk_tokens = s.chunk_seqs * calib->seq_len;
    rc = sw_engine_new(&s.engine, model, chunk_tokens, calib->seq_len, n_threads, err);
    if (rc == SW_OK)
        rc = SW_MEM_GET(&s.work, chunk_tokens * model->hidden, "calibration chunk", err);
    if (rc == SW_OK) rc = take_stream(&s.x, &s.spill, n, spill_dir, err);
    if (rc == SW_OK && with_original) rc = take_stream(&s.x0, &s.spill0, n, spill_dir, err);
    if (rc == SW_OK) rc = embed(&s, st, calib, err);
    if (rc != SW_OK)
        sw_streams_free(&s);
    else
        *out = s;
    return rc;
}

sw_code sw_streams_new_device(sw_streams *out, const sw_model *model, const sw_st *st,
                              const sw_calib *calib, bool with_original, sw_solver *solver,
                              sw_err *err)
{
    int64_t chunk_tokens;
    sw_streams s = {.model = model, .n_seqs = calib->n_seqs, .seq_len = calib->seq_len};
    sw_code rc;

    s.chunk_seqs = sw_streams_chunk_seqs(calib);
    chunk_tokens = s.chunk_seqs * calib->seq_len;
    rc = sw_device_streams_new(&s.on, &s, with_original, solver, err);
    if (rc == SW_OK) rc = sw_engine_new(&s.engine, model, chunk_tokens, calib->seq_len, 1, err);
    if (rc == SW_OK)
        rc = SW_MEM_GET(&s.work, chunk_tokens * model->hidden, "calibration chunk", err);
    if (rc == SW_OK) rc = embed(&s, st, calib, err);
    if (rc != SW_OK)
        sw_streams_free(&s);
    else
        *out = s;
    return rc;
}

void sw_streams_forget(sw_streams *s)
{
    if (s->on) sw_device_streams_forget(s->on);
}

bool sw_streams_have_original(const sw_streams *s)
{
    return s->on ? s->on->d_x0 != NULL : s->x0 != NULL;
}

void sw_streams_free(sw_streams *s)
{
    sw_device_streams_free(s->on);
    sw_engine_free(s->engine);
    if (!s->spill.data) sw_mem_put(s->x);
    if (!s->spill0.data) sw_mem_put(s->x0);
    sw_spill_close(&s->spill);
    sw_spill_close(&s->spill0);
    sw_mem_put(s->work);
    memset(s, 0, sizeof *s);
}

/* What the original model saw in this chunk, kept until the quantized model's turn. */
typedef struct observer {
    sw_site_stats *stats;
    int64_t hidden;
    bool has_original;
    bool is_held; /* this chunk is kept back */
    int64_t first_token;      /* of this chunk */
    int64_t stretch;          /* tokens that go to one half of an expert's statistics */
    float *rows;              /* [chunk tokens, k_in] of one expert and half */
    float *x0[SW_SITE_COUNT]; /* [chunk tokens, k_in] */
    float *r0[SW_SITE_COUNT]; /* [chunk tokens, hidden], sites that write the residual */
    float *rounded;           /* [chunk tokens, widest site], NULL when inputs stay floats */
} observer;

static sw_code see_original(void *self, sw_site site, int64_t expert, const float *x,
                            int64_t n_tokens, int64_t k_in, const float *residual,
                            const int32_t *token_ids, sw_err *err)
{
    observer *o = self;

    (void)token_ids;
    (void)err;
    if (expert >= 0 || !o->stats->is_wanted[site] || !o->x0[site]) return SW_OK;
    memcpy(o->x0[site], x, (size_t)(n_tokens * k_in) * sizeof *x);
    if (o->r0[site] && residual)
        memcpy(o->r0[site], residual, (size_t)(n_tokens * o->hidden) * sizeof *x);
    return SW_OK;
}

static void subtract(float *from, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) from[i] -= x[i];
}

/* Rows of an expert, each to the half of the text that its token lies in. */
static sw_code see_expert(observer *o, sw_site site, int64_t expert, const float *x,
                          int64_t n_tokens, int64_t k_in, const int32_t *token_ids, sw_err *err)
{
    sw_expert_stats *stats = &o->stats->experts[expert - o->stats->expert_begin];
    sw_expert_site *own = site == SW_SITE_MLP_IN ? &stats->in : &stats->down;
    sw_hessian *half = own->half;
    sw_code rc = SW_OK;

    if (site == SW_SITE_MLP_IN) stats->n_tokens += n_tokens;
    if (own->sizes.abs_max) sw_channels_add(&own->sizes, x, n_tokens);
    if (o->stats->ranges && site == SW_SITE_DOWN_IN) /* what `in` reads is counted once, for all */
        sw_range_add(&o->stats->ranges[site], x, n_tokens * k_in);
    for (int i = 0; i < 2 && half[i].k_in && rc == SW_OK; i++) {
        int64_t n = 0;
        for (int64_t t = 0; t < n_tokens; t++) {
            if ((o->first_token + token_ids[t]) / o->stretch % 2 != i) continue;
            memcpy(o->rows + n++ * k_in, x + t * k_in, (size_t)k_in * sizeof *x);
        }
        if (n) rc = sw_hessian_add(&half[i], o->rows, NULL, NULL, n, err);
    }
    return rc;
}

/* What the quantized linears will really multiply with. */
static const float *rounded_inputs(observer *o, sw_site site, const float *x, int64_t n_tokens,
                                   int64_t k_in)
{
    const sw_site_stats *stats = o->stats;

    if (!o->rounded || !stats->is_wanted[site] || stats->act[site].scope == SW_ACT_NONE) return x;
    sw_act_round(o->rounded, k_in, x, k_in, n_tokens, k_in, &stats->act[site],
                 stats->input_scale[site]);
    return o->rounded;
}

static void see_kv(void *self, const float *k, int64_t n_k, const float *v, int64_t n_v)
{
    const observer *o = self;

    sw_kv_range_add(o->stats->kv, k, n_k, v, n_v);
}

static sw_code see_all(void *self, int64_t expert, const float *x, int64_t n_tokens, int64_t k_in,
                       sw_err *err)
{
    observer *o = self;

    x = rounded_inputs(o, SW_SITE_DOWN_IN, x, n_tokens, k_in);
    return sw_hessian_add(&o->stats->experts[expert - o->stats->expert_begin].down.all, x, NULL,
                          NULL, n_tokens, err);
}

static sw_code see_quantized(void *self, sw_site site, int64_t expert, const float *x,
                             int64_t n_tokens, int64_t k_in, const float *residual,
                             const int32_t *token_ids, sw_err *err)
{
    observer *o = self;
    const float *dx = NULL, *dr = NULL;

    x = rounded_inputs(o, site, x, n_tokens, k_in);
    if (expert >= 0)
        return o->stats->experts ? see_expert(o, site, expert, x, n_tokens, k_in, token_ids, err)
                                 : SW_OK;
    if (!o->stats->site[site].k_in) return SW_OK;
    if (o->stats->sizes[site].abs_max) sw_channels_add(&o->stats->sizes[site], x, n_tokens);
    if (o->stats->ranges) sw_range_add(&o->stats->ranges[site], x, n_tokens * k_in);
    if (o->has_original && o->x0[site]) {
        subtract(o->x0[site], x, n_tokens * k_in);
        dx = o->x0[site];
    }
    if (o->has_original && o->r0[site] && residual) {
        subtract(o->r0[site], residual, n_tokens * o->hidden);
        dr = o->r0[site];
    }
    return sw_hessian_add(o->is_held ? &o->stats->held[site] : &o->stats->site[site], x, dx, dr,
                          n_tokens, err);
}

int64_t sw_streams_stretch(const sw_streams *s)
{
    return sw_max_i64(1, sw_min_i64(s->seq_len, s->n_seqs * s->seq_len / STRETCHES_MIN));
}

static sw_code observer_new(observer *o, const sw_streams *s, sw_site_stats *stats, sw_err *err)
{
    int64_t n = s->chunk_seqs * s->seq_len, width = 0;
    sw_code rc = SW_OK;

    memset(o, 0, sizeof *o);
    o->stats = stats;
    o->hidden = s->model->hidden;
    o->stretch = sw_streams_stretch(s);
    if (stats->experts)
        rc = SW_MEM_GET(&o->rows, n * sw_max_i64(o->hidden, s->model->moe_intermediate),
                        "expert inputs", err);
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (stats->act[site].scope != SW_ACT_NONE)
            width = sw_max_i64(width, sw_model_site_width(s->model, stats->layer, (sw_site)site));
    if (width && rc == SW_OK) rc = SW_MEM_GET(&o->rounded, n * width, "rounded inputs", err);
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        const sw_hessian *h = &stats->site[site];
        if (!h->d && !h->on_d.d_sum) continue;
        o->has_original = true;
        rc = SW_MEM_GET(&o->x0[site], n * h->k_in, "original inputs", err);
        if (rc == SW_OK && h->n_out_residual)
            rc = SW_MEM_GET(&o->r0[site], n * o->hidden, "original residual", err);
    }
    return rc;
}

static void observer_free(observer *o)
{
    sw_mem_put(o->rows);
    sw_mem_put(o->rounded);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        sw_mem_put(o->x0[site]);
        sw_mem_put(o->r0[site]);
    }
}

static sw_site last_wanted(const sw_site_stats *stats)
{
    int last = 0;

    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (stats->is_wanted[site]) last = site;
    return (sw_site)last;
}

static int64_t chunk_seqs_at(const sw_streams *s, int64_t seq)
{
    return sw_min_i64(s->chunk_seqs, s->n_seqs - seq);
}

static sw_code run_chunk(sw_streams *s, const sw_block *block, const float *from, int64_t seq,
                         const sw_tap *tap, sw_site stop_at, sw_err *err)
{
    int64_t n_seqs = chunk_seqs_at(s, seq), per_seq = s->seq_len * s->model->hidden;

    memcpy(s->work, from + seq * per_seq, (size_t)(n_seqs * per_seq) * sizeof *from);
    return sw_engine_half(s->engine, block, s->work, n_seqs, s->seq_len, s->ahead, tap, stop_at,
                          err);
}

sw_code sw_streams_visit(sw_streams *s, const sw_block *quantized, const sw_tap *tap,
                         const bool is_wanted[SW_SITE_COUNT], const sw_progress *progress,
                         sw_err *err)
{
    sw_site stop_at = (sw_site)0;
    sw_code rc = SW_OK;

    if (s->on) return SW_FAIL(err, SW_E_BUG, "a visit to streams on a card");
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (is_wanted[site]) stop_at = (sw_site)site;
    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += s->chunk_seqs)
        if ((rc = sw_progress_check(progress, err)) == SW_OK)
            rc = run_chunk(s, quantized, s->x, seq, tap, stop_at, err);
    return rc;
}

/* Every eighth chunk, or the last one when there are fewer. */
bool sw_streams_is_held(const sw_streams *s, int64_t seq)
{
    int64_t chunk = seq / s->chunk_seqs, n_chunks = sw_ceil_div(s->n_seqs, s->chunk_seqs);

    if (n_chunks < SW_STREAM_HELD_EVERY) return n_chunks > 1 && chunk == n_chunks - 1;
    return chunk % SW_STREAM_HELD_EVERY == SW_STREAM_HELD_EVERY - 1;
}

/* Every token through every expert costs n_experts / n_experts_used times the layer: for a prior,
 * so many rows as an expert gets on average will do, if they are enough for its inputs. */
int64_t sw_streams_all_every(const sw_streams *s, sw_experts policy)
{
    const sw_model *m = s->model;
    int64_t n = s->n_seqs * s->seq_len;
    int64_t wanted = sw_max_i64(ALL_TOKENS_PER_INPUT * m->moe_intermediate,
                                n / m->n_experts * m->n_experts_used);

    return policy == SW_EXPERTS_ALL ? 1 : sw_max_i64(1, n / wanted);
}

static bool has_any(const sw_site_stats *stats)
{
    bool any = stats->experts != NULL;

    for (int site = 0; site < SW_SITE_COUNT; site++) any = any || stats->site[site].k_in;
    return any;
}

sw_code sw_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                           const sw_block *original, const sw_progress *progress, sw_err *err)
{
    sw_site stop_at = last_wanted(stats);
    observer o;
    sw_tap tap = {.self = &o, .see = see_original};
    sw_tap tap_q = {.self = &o, .see = see_quantized};
    sw_code rc;

    if (!has_any(stats)) return SW_OK;
    if (s->on) return sw_device_streams_observe(s, stats, quantized, original, progress, err);
    if (stats->experts) { /* what they read comes after the router */
        stop_at = SW_SITE_DOWN_IN;
        tap_q.expert_begin = stats->expert_begin;
        tap_q.expert_end = stats->expert_begin + stats->n_experts;
        tap_q.is_in_only = !stats->is_wanted[SW_SITE_DOWN_IN];
    }
    if (stats->kv) tap_q.see_kv = see_kv;
    if (stats->experts && stats->experts[0].down.all.k_in) {
        tap_q.see_all = see_all;
        tap_q.all_every = sw_streams_all_every(s, stats->policy);
    }
    if ((rc = observer_new(&o, s, stats, err)) != SW_OK) goto done;
    for (int64_t seq = 0; seq < s->n_seqs; seq += s->chunk_seqs) {
        if ((rc = sw_progress_check(progress, err)) != SW_OK) goto done;
        o.is_held = o.has_original && sw_streams_is_held(s, seq);
        o.first_token = seq * s->seq_len;
        if (s->x0 && o.has_original &&
            (rc = run_chunk(s, original, s->x0, seq, &tap, stop_at, err)) != SW_OK)
            goto done;
        if ((rc = run_chunk(s, quantized, s->x, seq, &tap_q, stop_at, err)) != SW_OK) goto done;
        release(s, &s->spill, s->x, seq);
        if (s->x0) release(s, &s->spill0, s->x0, seq);
    }
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (stats->site[site].k_in) rc = sw_hessian_settle(&stats->site[site], err);
        if (rc == SW_OK && stats->held[site].k_in) rc = sw_hessian_settle(&stats->held[site], err);
    }
    for (int64_t e = 0; e < stats->n_experts && rc == SW_OK; e++)
        rc = sw_expert_stats_settle(&stats->experts[e], err);
done:
    observer_free(&o);
    return rc;
}

static sw_code advance_one(sw_streams *s, float *x, const sw_block *block, int64_t seq,
                           sw_half half, sw_err *err)
{
    int64_t per_seq = s->seq_len * s->model->hidden;

    return sw_engine_half(s->engine, block, x + seq * per_seq, chunk_seqs_at(s, seq), s->seq_len,
                          half, NULL, (sw_site)SW_RUN_ALL, err);
}

sw_code sw_streams_advance(sw_streams *s, const sw_block *quantized, const sw_block *original,
                           sw_half to, const sw_progress *progress, sw_err *err)
{
    sw_half half = to == SW_HALF_ATTENTION ? to : s->ahead;
    sw_code rc;

    if (s->on) {
        rc = sw_device_streams_advance(s, quantized, original, half, progress, err);
        if (rc != SW_OK) return rc;
        s->ahead = to == SW_HALF_ATTENTION ? SW_HALF_MLP : SW_HALF_BOTH;
        return SW_OK;
    }
    for (int64_t seq = 0; seq < s->n_seqs; seq += s->chunk_seqs) {
        if ((rc = sw_progress_check(progress, err)) != SW_OK) return rc;
        if ((rc = advance_one(s, s->x, quantized, seq, half, err)) != SW_OK) return rc;
        if (s->x0 && (rc = advance_one(s, s->x0, original, seq, half, err)) != SW_OK) return rc;
        release(s, &s->spill, s->x, seq);
        if (s->x0) release(s, &s->spill0, s->x0, seq);
    }
    s->ahead = to == SW_HALF_ATTENTION ? SW_HALF_MLP : SW_HALF_BOTH;
    return SW_OK;
}
