/* cpu_observe.c - summing what the sites of a block read, of streams in memory (streams.h). */
#include <string.h>

#include "formats/base/size.h"
#include "formats/num/act.h"
#include "quant/backend/cpu/cpu.h"

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

/* Rows of the original, as linears would read them that have taken the scale up. */
static void divide(float *rows, const double *scale, int64_t n, int64_t k)
{
    for (int64_t i = 0; scale && i < n; i++)
        for (int64_t j = 0; j < k; j++) rows[i * k + j] /= (float)scale[j];
}

static sw_code see_original(void *self, sw_site site, int64_t expert, const float *x,
                            int64_t n_tokens, int64_t k_in, const float *residual,
                            const int32_t *token_ids, sw_err *err)
{
    observer *o = self;

    (void)token_ids;
    (void)err;
    if (expert >= 0 || !o->stats->is_wanted[site] || !o->x0[site]) return SW_OK;
    memcpy(o->x0[site], x, (size_t)(n_tokens * k_in) * sizeof *x);
    divide(o->x0[site], o->stats->scale[site], n_tokens, k_in);
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

static sw_code observer_new(observer *o, const sw_streams *s, sw_site_stats *stats, sw_err *err)
{
    int64_t n = s->chunk_seqs * s->seq_len, width = 0;
    sw_code rc = SW_OK;

    memset(o, 0, sizeof *o);
    o->stats = stats;
    o->hidden = s->model->hidden;
    o->stretch = sw_streams_stretch(s);
    if (stats->experts)
        rc = SW_MEM_GET(&o->rows, n * sw_max_i64(s->model->moe_hidden, s->model->moe_intermediate),
                        "expert inputs", err);
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (stats->act[site].scope != SW_ACT_NONE)
            width = sw_max_i64(width, sw_model_site_width(s->model, stats->layer, (sw_site)site));
    if (width && rc == SW_OK) rc = SW_MEM_GET(&o->rounded, n * width, "rounded inputs", err);
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        const sw_hessian *h = &stats->site[site];
        if (!h->d) continue;
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

/* What the quantized stream shows, as far as it is wanted. */
static sw_tap quantized_tap(observer *o, const sw_streams *s)
{
    const sw_site_stats *stats = o->stats;
    sw_tap tap = {.self = o, .see = see_quantized};

    if (stats->experts) {
        tap.expert_begin = stats->expert_begin;
        tap.expert_end = stats->expert_begin + stats->n_experts;
        tap.is_in_only = !stats->is_wanted[SW_SITE_DOWN_IN];
        tap.is_experts_only = !sw_site_stats_has_sites(stats);
    }
    if (stats->kv) tap.see_kv = see_kv;
    if (stats->experts && stats->experts[0].down.all.k_in) {
        tap.see_all = see_all;
        tap.all_every = sw_streams_all_every(s, stats->policy);
    }
    return tap;
}

static sw_code observe_chunks(sw_streams *s, observer *o, const sw_block *quantized,
                              const sw_block *original, const sw_progress *progress, sw_err *err)
{
    const sw_cpu_streams *own = s->own;
    /* what experts read comes after the router */
    sw_site stop_at = o->stats->experts ? SW_SITE_DOWN_IN : last_wanted(o->stats);
    sw_tap tap = {.self = o, .see = see_original}, tap_q = quantized_tap(o, s);
    sw_code rc = SW_OK;

    for (int64_t seq = s->from; seq < s->to && rc == SW_OK; seq += s->chunk_seqs) {
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        o->is_held = o->has_original && sw_streams_is_held(s, seq);
        o->first_token = sw_streams_token_at(s, seq);
        if (own->x0 && o->has_original)
            rc = sw_cpu_run_chunk(s, original, own->x0, seq, &tap, stop_at, err);
        if (rc == SW_OK) rc = sw_cpu_run_chunk(s, quantized, own->x, seq, &tap_q, stop_at, err);
        if (rc == SW_OK) sw_cpu_release_chunk(s, seq);
    }
    return rc;
}

sw_code sw_cpu_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                               const sw_block *original, const sw_progress *progress,
                               sw_err *err)
{
    observer o;
    sw_code rc = observer_new(&o, s, stats, err);

    if (rc == SW_OK) rc = observe_chunks(s, &o, quantized, original, progress, err);
    observer_free(&o);
    return rc;
}
