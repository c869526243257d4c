/* cuda_observe.c - summing what the sites of a block read, of streams on a CUDA device (streams.h).
 */
#include "formats/base/size.h"
#include "quant/backend/cuda/cuda_experts_watch.h"
#include "quant/backend/cuda/cuda_half.h"
#include "quant/backend/cuda/cuda_sizes.h"
#include "quant/backend/cuda/cuda_streams.h"

/* The original stream's last look, if it is one: at the one site that is wanted, whose linear ends
 * the half. */
typedef struct last_look {
    bool is_moving;    /* the stream moves through the half as it is seen, */
    bool from_outputs; /* and what that adds to it is W x0 of the one linear in slot */
    sw_half half;
    sw_site site;
    sw_slot slot;
} last_look;

/* What the original model saw in a batch, kept until the quantized model's turn. */
typedef struct watcher {
    const sw_streams *s;
    sw_site_stats *stats;
    uint16_t *d_x0[SW_SITE_COUNT]; /* [batch tokens, k_in]; then x0 / scale - x */
    float *d_scale[SW_SITE_COUNT]; /* [k_in], or NULL (stats->scale) */
    float *d_r0[SW_SITE_COUNT];    /* [batch tokens, hidden], sites that write the residual */
    uint16_t *d_dr;                /* [batch tokens, hidden] */
    sw_slot weighs[SW_SITE_COUNT]; /* the linear whose W D is summed; SW_SLOT_COUNT: D itself is */
    uint16_t *d_weighed;           /* [batch tokens, hidden] W (x0 - x), or W x0 */
    last_look last;
    uint16_t *d_rounded;           /* [batch tokens, widest], NULL when inputs stay floats */
    sw_cuda_range range[SW_SITE_COUNT];
    sw_cuda_sizes sizes[SW_SITE_COUNT];
    sw_cuda_kv kv;
    sw_cuda_experts experts;
    bool has_original;
    int64_t first_token;           /* of this batch, in the text, */
    int64_t first_here;            /* and among the tokens that are here */
} watcher;

static sw_solver *solver_of(const watcher *o) { return sw_cuda_solver(&o->s->place); }

static sw_device *gpu_of(const watcher *o) { return sw_cuda_gpu(&o->s->place); }

static sw_code take(void *out, sw_device *gpu, int64_t n, int64_t elem_bytes, sw_err *err)
{
    return sw_device_take((void **)out, gpu, n, elem_bytes, "calibration streams", err);
}

static int64_t batch_tokens(const sw_streams *s)
{
    const sw_cuda_streams *on = s->own;

    return on->batch_seqs * s->seq_len;
}

/* What is wanted besides sums. */
static sw_code watch_sizes(watcher *o, sw_err *err)
{
    const sw_site_stats *stats = o->stats;
    sw_solver *solver = solver_of(o);
    int64_t n = batch_tokens(o->s), width = 0;
    sw_code rc = SW_OK;

    o->kv.solver = solver;
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        int64_t k = stats->site[site].k_in;
        if (stats->is_wanted[site] && stats->act[site].scope != SW_ACT_NONE)
            width = sw_max_i64(width, k);
        if (stats->ranges && k) rc = sw_cuda_range_new(&o->range[site], solver, err);
        if (rc == SW_OK && stats->sizes[site].abs_max)
            rc = sw_cuda_sizes_new(&o->sizes[site], solver, k, err);
    }
    return rc == SW_OK && width ? take(&o->d_rounded, gpu_of(o), n * width, 2, err) : rc;
}

/* Let the sums of a site be of W (x0 - x) where that is less. Where the original stream moves
 * anyway, W x0 is there: W D is then what its products with x sum to, less W H. */
static sw_code weigh(watcher *o, sw_site site, sw_err *err)
{
    const sw_streams *s = o->s;
    sw_hessian *seen = &o->stats->site[site], *held = &o->stats->held[site];
    sw_code rc;

    o->weighs[site] = o->last.from_outputs
                          ? o->last.slot
                          : sw_cuda_weighing_slot(s->model, o->stats->layer, site, seen->k_in,
                                                  seen->n_out_residual);
    if (o->weighs[site] == SW_SLOT_COUNT) return SW_OK;
    if ((rc = sw_hessian_weigh(seen, err)) != SW_OK ||
        (rc = sw_hessian_weigh(held, err)) != SW_OK || o->d_weighed)
        return rc;
    return take(&o->d_weighed, gpu_of(o), batch_tokens(s) * s->model->hidden, 2, err);
}

/* From what every rank knows, whether it has windows or not. */
static last_look plan_move(const sw_streams *s, const sw_site_stats *stats,
                           const sw_block *quantized)
{
    const sw_model *m = s->model;
    last_look l = {.site = SW_SITE_COUNT};
    const sw_hessian *h;
    int n_wanted = 0;

    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (stats->is_wanted[site]) n_wanted++, l.site = (sw_site)site;
    if (!s->is_last_look || n_wanted != 1 || stats->experts || !stats->site[l.site].d ||
        !sw_cuda_may_keep(m, stats->layer, l.site))
        return l;
    h = &stats->site[l.site];
    l.half = sw_engine_half_of(m, stats->layer, l.site);
    l.is_moving = l.half == SW_HALF_ATTENTION
                      ? s->ahead == SW_HALF_BOTH
                      : l.half == SW_HALF_MLP && s->ahead == SW_HALF_MLP &&
                            !sw_model_is_sparse(m, stats->layer);
    l.slot = sw_cuda_only_slot(m, stats->layer, l.site, h->k_in, h->n_out_residual);
    l.from_outputs = l.is_moving && l.slot != SW_SLOT_COUNT && !quantized->linear[l.slot].bias &&
                     sw_cuda_half_only_adds(m, stats->layer, l.half, l.site);
    return l;
}

/* The scale that a site's inputs are divided by, where they are kept. */
static sw_code send_scale(watcher *o, sw_site site, sw_err *err)
{
    const double *scale = o->stats->scale[site];
    const int64_t k = o->stats->site[site].k_in;
    float *floats = NULL;
    sw_code rc;

    if (!scale || !o->d_x0[site]) return SW_OK;
    if ((rc = SW_MEM_GET(&floats, k, "scales of a site", err)) != SW_OK) return rc;
    for (int64_t j = 0; j < k; j++) floats[j] = (float)scale[j];
    rc = take(&o->d_scale[site], gpu_of(o), k, (int64_t)sizeof *floats, err);
    if (rc == SW_OK)
        rc = sw_device_upload(gpu_of(o), o->d_scale[site], floats, k * (int64_t)sizeof *floats,
                              err);
    sw_mem_put(floats);
    return rc;
}

static sw_code watcher_new(watcher *o, const sw_streams *s, sw_site_stats *stats,
                           const sw_block *quantized, sw_err *err)
{
    int64_t n = batch_tokens(s), hidden = s->model->hidden;
    sw_device *gpu = sw_cuda_gpu(&s->place);
    sw_code rc = SW_OK;

    *o = (watcher){.s = s, .stats = stats, .last = plan_move(s, stats, quantized)};
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        const sw_hessian *h = &stats->site[site];
        if (!h->d) continue;
        o->has_original = true;
        if (!o->last.from_outputs) rc = take(&o->d_x0[site], gpu, n * h->k_in, 2, err);
        if (rc == SW_OK) rc = send_scale(o, (sw_site)site, err);
        if (rc == SW_OK && h->n_out_residual) rc = take(&o->d_r0[site], gpu, n * hidden, 4, err);
        if (rc == SW_OK && h->n_out_residual && !o->d_dr)
            rc = take(&o->d_dr, gpu, n * hidden, 2, err);
        if (rc == SW_OK) rc = weigh(o, (sw_site)site, err);
    }
    if (rc == SW_OK) rc = watch_sizes(o, err);
    return rc == SW_OK && stats->experts ? sw_cuda_experts_new(&o->experts, s, stats, err) : rc;
}

static void watcher_free(watcher *o)
{
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        sw_device_put(gpu_of(o), o->d_x0[site]);
        sw_device_put(gpu_of(o), o->d_scale[site]);
        sw_device_put(gpu_of(o), o->d_r0[site]);
        sw_cuda_range_free(&o->range[site], solver_of(o));
        sw_cuda_sizes_free(&o->sizes[site], solver_of(o));
    }
    sw_cuda_experts_free(&o->experts);
    sw_cuda_kv_free(&o->kv);
    sw_device_put(gpu_of(o), o->d_rounded);
    sw_device_put(gpu_of(o), o->d_dr);
    sw_device_put(gpu_of(o), o->d_weighed);
}

/* Where rows of this batch are kept until the streams move; NULL: nowhere. */
static uint16_t *kept_rows(const watcher *o, sw_site site, int64_t k_in, int64_t n_tokens)
{
    const sw_cuda_streams *on = o->s->own;
    const bool has_room = o->first_here + n_tokens <= on->n_kept * o->s->seq_len;

    return on->d_kept && on->kept_at == site && has_room ? on->d_kept + o->first_here * k_in : NULL;
}

static sw_code see_original(void *self, sw_site site, int64_t expert, const void *d_x,
                            int64_t n_tokens, int64_t k_in, int64_t stride,
                            const int32_t *token_ids, sw_err *err)
{
    watcher *o = self;
    const sw_cuda_streams *on = o->s->own;
    const int64_t hidden = o->s->model->hidden;
    sw_code rc = SW_OK;

    (void)token_ids;
    if (expert >= 0) return SW_OK;
    if (o->d_x0[site])
        rc = sw_solver_keep(on->solver, o->d_x0[site], NULL, NULL, d_x, stride, n_tokens, k_in,
                            err);
    if (rc != SW_OK || !o->d_r0[site]) return rc;
    return sw_solver_copy(on->solver, o->d_r0[site], on->d_seen, n_tokens * hidden * 4, err);
}

/* Sizes of the inputs, where wanted; and from here on as the linears will round them. */
static sw_code look_at(watcher *o, sw_site site, const void **d_x, int64_t *stride, int64_t n,
                       int64_t k, sw_err *err)
{
    const sw_site_stats *stats = o->stats;
    sw_solver *solver = solver_of(o);
    sw_code rc = SW_OK;

    if (stats->act[site].scope != SW_ACT_NONE) {
        rc = sw_solver_act_round_bf16(solver, o->d_rounded, *d_x, *stride, n, k,
                                      &stats->act[site], stats->input_scale[site], err);
        *d_x = o->d_rounded;
        *stride = k;
    }
    if (rc == SW_OK && o->sizes[site].d_max)
        rc = sw_solver_watch_sizes(solver, o->sizes[site].d_max, o->sizes[site].d_sum, *d_x,
                                   *stride, n, k, err);
    if (rc == SW_OK && o->range[site].d_counts)
        rc = sw_cuda_range_add(&o->range[site], solver, *d_x, *stride, n, k, err);
    return rc;
}

static sw_code see_kv(void *self, const void *d_k, int64_t k_stride, int64_t k_width,
                      const void *d_v, int64_t v_stride, int64_t v_width, int64_t n_tokens,
                      sw_err *err)
{
    watcher *o = self;

    return sw_cuda_kv_see(&o->kv, d_k, k_stride, k_width, d_v, v_stride, v_width, n_tokens, err);
}

static sw_code fetch_sizes(watcher *o, sw_err *err)
{
    sw_site_stats *stats = o->stats;
    sw_solver *solver = solver_of(o);
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        int64_t n_tokens = stats->site[site].n_tokens + stats->held[site].n_tokens;
        if (o->sizes[site].d_max)
            rc = sw_cuda_sizes_fetch(&stats->sizes[site], &o->sizes[site], solver, n_tokens,
                                       err);
        if (rc == SW_OK && o->range[site].d_counts)
            rc = sw_cuda_range_fetch(&stats->ranges[site], &o->range[site], solver, err);
    }
    if (rc == SW_OK && stats->experts) rc = sw_cuda_experts_fetch(&o->experts, err);
    return rc == SW_OK && stats->kv ? sw_cuda_kv_fetch(stats->kv, &o->kv, err) : rc;
}

/* The rows of a batch into the sums, chunk by chunk: some are kept back. */
static sw_code add_chunks(watcher *o, sw_site site, const uint16_t *d_x, int64_t stride,
                          const uint16_t *d_dr, int64_t n_tokens, sw_err *err)
{
    const sw_streams *s = o->s;
    const sw_cuda_streams *on = s->own;
    int64_t step = s->chunk_seqs * s->seq_len, k = o->stats->site[site].k_in, dx_width = k;
    const uint16_t *d_dx = o->d_x0[site];
    sw_code rc = SW_OK;

    if (o->last.from_outputs) {
        d_dx = o->d_weighed;
        dx_width = s->model->hidden;
    } else if (d_dx && o->weighs[site] != SW_SLOT_COUNT) {
        /* by the linear that has taken the scale up; it is not quantized yet */
        rc = sw_device_block_times(on->held, o->weighs[site], o->d_weighed, d_dx, k, n_tokens, err);
        d_dx = o->d_weighed;
        dx_width = s->model->hidden;
    }
    for (int64_t at = 0; at < n_tokens && rc == SW_OK; at += step) {
        bool is_held =
            o->has_original && sw_streams_is_held(s, (o->first_here + at) / s->seq_len);
        rc = sw_cuda_hessian_add_rows(is_held ? &o->stats->held[site] : &o->stats->site[site],
                                      d_x + at * stride, stride,
                                      d_dx ? d_dx + at * dx_width : NULL,
                                      d_dr ? d_dr + at * s->model->hidden : NULL,
                                      sw_min_i64(step, n_tokens - at), err);
    }
    return rc;
}

static sw_code see_quantized(void *self, sw_site site, int64_t expert, const void *d_x,
                             int64_t n_tokens, int64_t k_in, int64_t stride,
                             const int32_t *token_ids, sw_err *err)
{
    watcher *o = self;
    const sw_cuda_streams *on = o->s->own;
    uint16_t *d_dr = NULL, *d_to = kept_rows(o, site, k_in, n_tokens);
    sw_code rc = SW_OK;

    if (expert >= 0 && o->stats->experts)
        return sw_cuda_experts_see(&o->experts, site, expert, d_x, n_tokens, k_in, stride,
                                    token_ids, o->first_token, err);
    if (expert >= 0 || !o->stats->site[site].k_in) return SW_OK;
    if (d_to) rc = sw_solver_keep(on->solver, d_to, NULL, NULL, d_x, stride, n_tokens, k_in, err);
    if (rc == SW_OK) rc = look_at(o, site, &d_x, &stride, n_tokens, k_in, err);
    if (rc == SW_OK && o->d_x0[site])
        rc = sw_solver_keep(on->solver, o->d_x0[site], o->d_x0[site], o->d_scale[site], d_x,
                            stride, n_tokens, k_in, err);
    if (rc == SW_OK && o->d_r0[site]) {
        d_dr = o->d_dr;
        rc = sw_solver_to_bf16(on->solver, d_dr, o->d_r0[site], on->d_seen,
                               n_tokens * o->s->model->hidden, err);
    }
    return rc == SW_OK ? add_chunks(o, site, d_x, stride, d_dr, n_tokens, err) : rc;
}

static sw_code see_all(void *self, int64_t expert, const void *d_x, int64_t n_tokens, int64_t k_in,
                       int64_t stride, sw_err *err)
{
    watcher *o = self;

    return sw_cuda_experts_all(&o->experts, expert, d_x, n_tokens, k_in, stride, err);
}

/* The original model's turn: up to the site, or with its stream to the end of the half. */
static sw_code run_original(sw_streams *s, watcher *o, int64_t seq, const sw_device_tap *tap,
                            sw_site stop_at, sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    const int64_t n = sw_cuda_batch_at(s, seq) * sw_cuda_row_elems(s);
    sw_code rc;

    if (!o->last.is_moving)
        return sw_cuda_run_up_to(s, on->original, o->stats->layer, on->d_x0, seq, tap, stop_at,
                                 err);
    rc = sw_cuda_move(s, on->d_x0, on->original, seq, o->last.half, tap, err);
    if (rc != SW_OK || !o->last.from_outputs) return rc;
    return sw_solver_to_bf16(on->solver, o->d_weighed, on->d_x0 + seq * sw_cuda_row_elems(s),
                             o->d_r0[stop_at], n, err);
}

static sw_code observe_chunks(sw_streams *s, watcher *o, const sw_device_block *quantized,
                              sw_site stop_at, const sw_progress *progress, sw_err *err)
{
    sw_device_tap tap = {.self = o, .see = see_original};
    sw_device_tap tap_q = {.self = o, .see = see_quantized, .see_kv = o->stats->kv ? see_kv : NULL};
    const sw_cuda_streams *on = s->own;
    sw_code rc = SW_OK;

    if (o->stats->experts) sw_cuda_experts_ask(&tap_q, &o->experts, see_all);

    for (int64_t seq = s->from; seq < s->to && rc == SW_OK; seq += sw_cuda_batch_at(s, seq)) {
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        o->first_here = seq * s->seq_len;
        o->first_token = tap_q.first_token = sw_streams_token_at(s, seq);
        if (o->has_original)
            rc = run_original(s, o, seq, &tap, stop_at, err);
        if (rc == SW_OK)
            rc = sw_cuda_run_up_to(s, quantized, o->stats->layer, on->d_x, seq, &tap_q, stop_at,
                                   err);
    }
    return rc;
}

/* What the last linear of a half reads need not be made again when the streams move, as far as
 * there is room for it beside what solving will take. All before it is settled when it is seen
 * alone. */
static void keep_inputs(sw_streams *s, const sw_site_stats *stats, int64_t layer, sw_err *err)
{
    sw_cuda_streams *on = s->own;
    int n_wanted = 0;

    sw_cuda_drop_kept(on);
    for (int site = 0; site < SW_SITE_COUNT; site++) n_wanted += stats->is_wanted[site];
    for (int site = 0; n_wanted == 1 && site < SW_SITE_COUNT; site++) {
        int64_t k = stats->site[site].k_in, seq_bytes = 2 * s->seq_len * k;

        if (!k || !sw_cuda_may_keep(s->model, layer, (sw_site)site)) continue;
        on->n_kept = sw_cuda_kept_windows(sw_device_left_bytes(on->gpu), s->n_seqs, seq_bytes, k);
        if (!on->n_kept) return;
        on->kept_at = (sw_site)site;
        on->kept_width = k;
        if (take(&on->d_kept, on->gpu, on->n_kept * seq_bytes, 1, err) != SW_OK)
            sw_cuda_drop_kept(on);
    }
}

/* What experts read comes after the router, whichever of it is wanted. */
static int last_shown(const sw_site_stats *stats)
{
    int last = 0;

    if (stats->experts) return SW_SITE_DOWN_IN;
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (stats->site[site].k_in) last = site;
    return last;
}

/* W D of sums of W x0 with x: less W H, which is one product for the whole text. W x0 is the same
 * whether a scale has gone from x0 into W or not; H is of inputs that it has gone from. */
sw_code sw_cuda_streams_observed(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                                 sw_err *err)
{
    const last_look l = plan_move(s, stats, quantized);
    const sw_cuda_streams *on = s->own;
    sw_hessian *sums[2];
    sw_code rc;

    if (!l.from_outputs) return SW_OK;
    rc = sw_cuda_hold_quantized(s, quantized, false, err); /* a rank without windows has not */
    sums[0] = &stats->site[l.site];
    sums[1] = &stats->held[l.site];
    for (int i = 0; i < 2 && rc == SW_OK; i++)
        if (sums[i]->n_tokens)
            rc = sw_solver_take_product(on->solver, sums[i]->d,
                                        sw_device_block_values(on->held, l.slot), sums[i]->h,
                                        sums[i]->n_out_residual, sums[i]->k_in, err);
    return rc;
}

/* What is in floats joins the sums. */
static sw_code end_piece(sw_site_stats *stats, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_site_stats_n_sums(stats) && rc == SW_OK; i++) {
        sw_hessian *h = sw_site_stats_sum(stats, i);
        if (h->k_in) rc = sw_cuda_hessian_end_piece(h, err);
    }
    return rc;
}

sw_code sw_cuda_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                                const sw_block *original, const sw_progress *progress,
                                sw_err *err)
{
    bool with_downs = stats->experts && stats->is_wanted[SW_SITE_DOWN_IN];
    int stop_at = last_shown(stats);
    sw_cuda_streams *on = s->own;
    sw_err no_room = {0};
    watcher o;
    sw_code rc = watcher_new(&o, s, stats, quantized, err);

    if (s->from == 0) keep_inputs(s, stats, quantized->layer, &no_room);
    if (rc == SW_OK && o.has_original) rc = sw_cuda_load_original(s, original, false, err);
    if (rc == SW_OK && (s->from == 0 || !on->held)) /* else it was there for the piece before */
        rc = sw_cuda_hold_quantized(s, quantized, with_downs, err);
    if (rc == SW_OK) rc = observe_chunks(s, &o, on->held, (sw_site)stop_at, progress, err);
    if (rc == SW_OK) rc = fetch_sizes(&o, err);
    if (rc == SW_OK) rc = end_piece(stats, err);
    if (o.last.is_moving) on->is_original_ahead = true;
    if (on->held_has_experts &&
        (rc != SW_OK || (s->to == s->n_seqs && !sw_cuda_may_stay(sw_device_left_bytes(on->gpu), 0,
                                                                 s->model->moe_intermediate))))
        sw_cuda_drop_held(on);
    watcher_free(&o);
    return rc;
}
