/* device_forecast.c - see device_forecast.h: the streams, and what observes them. */
#include "quant/run/device_forecast.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "kernels/device_sizes.h"
#include "kernels/engine/device_engine.h"
#include "kernels/solver_sizes.h"
#include "quant/run/device_ledger.h"
#include "quant/stats/pieces.h"

const char *const sw_device_part_names[SW_DEVICE_PARTS] = {
    "handles", "activations", "streams", "kept inputs", "weights", "sums", "solving"};

static int64_t total(const sw_device_ledger *l)
{
    int64_t sum = 0;

    for (int i = 0; i < SW_DEVICE_PARTS; i++) sum += l->now[i];
    return sum;
}

void sw_ledger_take(sw_device_ledger *l, sw_device_part part, int64_t n_bytes)
{
    sw_device_forecast *out = l->out;

    l->now[part] += n_bytes;
    if (total(l) <= out->peak_bytes) return;
    out->peak_bytes = total(l);
    out->peak_step = l->step;
    out->peak_layer = l->layer;
    memcpy(out->part_bytes, l->now, sizeof out->part_bytes);
}

void sw_ledger_put(sw_device_ledger *l, sw_device_part part, int64_t n_bytes)
{
    l->now[part] -= n_bytes;
}

void sw_ledger_pass(sw_device_ledger *l, sw_device_part part, int64_t n_bytes)
{
    sw_ledger_take(l, part, n_bytes);
    sw_ledger_put(l, part, n_bytes);
}

int64_t sw_ledger_left(const sw_device_ledger *l)
{
    return sw_max_i64(0, l->out->cap_bytes - total(l));
}

const sw_qspec *sw_ledger_spec(const sw_device_ledger *l, const sw_linear_ref *ref)
{
    char path[256];

    if (!l->r->spec_of ||
        !sw_model_slot_path(path, l->r->model, ref->layer, ref->slot, ref->expert))
        return &l->r->options->spec;
    return l->r->spec_of(l->r->self, ref, path);
}

/* --- sums --- */

static int64_t cross_rows(const sw_sum_size *s)
{
    return !s->with_cross ? 0 : s->is_weighed ? s->n_out_residual : s->k;
}

int64_t sw_sum_live_bytes(const sw_sum_size *s)
{
    return sw_gram_bytes(s->k + cross_rows(s) + s->n_out_residual, s->k);
}

int64_t sw_sum_part_bytes(const sw_sum_size *s)
{
    return sw_gram_part_bytes(s->k + cross_rows(s) + s->n_out_residual, s->k);
}

static bool uses(const sw_device_ledger *l, int site)
{
    for (int64_t i = 0; i < l->n_refs; i++)
        if ((int)l->refs[i].site == site) return true;
    return false;
}

/* Is the site summed as one, not by expert? */
static bool is_summed(const sw_device_ledger *l, int site)
{
    return site != SW_SITE_DOWN_IN || !sw_model_is_sparse(l->r->model, l->layer);
}

static sw_sum_size sum_of(const sw_device_ledger *l, sw_site site)
{
    const sw_model *m = l->r->model;
    sw_sum_size s = {.k = sw_model_site_width(m, l->layer, site), .with_cross = l->with_cross};

    if (l->with_cross && sw_model_site_writes_residual(m, l->layer, site))
        s.n_out_residual = m->hidden;
    return s;
}

/* The sums of an observation and of those beside them: kept back and not. */
static int copies_of(const sw_device_ledger *l) { return l->with_cross ? 2 : 1; }

/* Where blocks run on the device, W D is summed where that is less. */
static bool is_weighed(const sw_device_ledger *l, sw_site site, const sw_sum_size *s)
{
    return l->out->has_streams && s->with_cross &&
           sw_cuda_weighing_slot(l->r->model, l->layer, site, s->k, s->n_out_residual) !=
               SW_SLOT_COUNT;
}

/* --- blocks --- */

static void load_original(sw_device_ledger *l, bool with_experts)
{
    if (!l->with_cross || (l->has_original && (l->has_experts || !with_experts))) return;
    if (l->has_original)
        sw_ledger_put(l, SW_DEVICE_WEIGHTS,
                      sw_device_layer_bytes(l->r->model, l->layer, l->has_experts));
    sw_ledger_take(l, SW_DEVICE_WEIGHTS,
                   sw_device_layer_bytes(l->r->model, l->layer, with_experts));
    l->has_original = true;
    l->has_experts = with_experts;
}

/* sw_cuda_hold_quantized: until the streams have passed it. */
static void hold_quantized(sw_device_ledger *l)
{
    if (!l->has_quantized)
        sw_ledger_take(l, SW_DEVICE_WEIGHTS, sw_device_layer_bytes(l->r->model, l->layer, false));
    l->has_quantized = true;
}

/* Those of the block that was observed, then the original's (cuda_ahead.h), where there is room. */
void sw_ledger_keep_experts(sw_device_ledger *l, int64_t k)
{
    const int64_t all = sw_device_layer_bytes(l->r->model, l->layer, true);
    const int64_t held = all - sw_device_layer_bytes(l->r->model, l->layer, false);

    if (!l->out->has_streams || l->staying_bytes || !sw_cuda_may_stay(sw_ledger_left(l), held, k))
        return;
    l->staying_bytes = held;
    if (l->with_cross && sw_cuda_may_stay(sw_ledger_left(l), held + all, k))
        l->staying_bytes += all;
    sw_ledger_take(l, SW_DEVICE_WEIGHTS, l->staying_bytes);
}

static void drop_experts(sw_device_ledger *l)
{
    sw_ledger_put(l, SW_DEVICE_WEIGHTS, l->staying_bytes);
    l->staying_bytes = 0;
}

static void drop_quantized(sw_device_ledger *l)
{
    if (l->has_quantized)
        sw_ledger_put(l, SW_DEVICE_WEIGHTS, sw_device_layer_bytes(l->r->model, l->layer, false));
    l->has_quantized = false;
}

/* sw_cuda_streams_advance */
static void advance(sw_device_ledger *l, sw_half half)
{
    const bool with_experts = half != SW_HALF_ATTENTION;
    const sw_model *m = l->r->model;

    l->step = "moving the streams";
    if (!l->out->has_streams) return;
    drop_experts(l); /* as part of what comes */
    load_original(l, with_experts);
    hold_quantized(l);
    if (with_experts)
        sw_ledger_pass(l, SW_DEVICE_WEIGHTS, sw_device_layer_bytes(m, l->layer, true) -
                                                 sw_device_layer_bytes(m, l->layer, false));
    l->now[SW_DEVICE_KEPT] = 0;
    if (half == SW_HALF_ATTENTION) return;
    if (l->has_original)
        sw_ledger_put(l, SW_DEVICE_WEIGHTS, sw_device_layer_bytes(m, l->layer, l->has_experts));
    l->has_original = false;
    drop_quantized(l);
}

/* --- observing --- */

/* What the watcher of a batch has of a site. */
static int64_t watcher_bytes(const sw_device_ledger *l, sw_site site, const sw_sum_size *s)
{
    const int64_t n = l->batch_tokens, hidden = l->r->model->hidden;
    int64_t bytes = 0;

    if (s->with_cross) bytes += 2 * n * s->k;
    if (s->with_cross && s->n_out_residual) bytes += (4 + 2) * n * hidden;
    if (is_weighed(l, site, s)) bytes += 2 * n * hidden;
    if (l->r->options->spec.act.scope != SW_ACT_NONE) bytes += 2 * (2 * n * s->k); /* and inputs */
    return bytes;
}

/* keep_inputs of cuda_observe.c */
static void keep_inputs(sw_device_ledger *l, sw_site site, int64_t k)
{
    const int64_t seq_len = l->r->calib->seq_len, seq_bytes = 2 * seq_len * k;

    if (!sw_cuda_may_keep(l->r->model, l->layer, site)) return;
    sw_ledger_take(l, SW_DEVICE_KEPT,
                   seq_bytes * sw_cuda_kept_windows(sw_ledger_left(l), l->n_tokens / seq_len,
                                                    seq_bytes, k));
}

/* Without streams on the device: rows of a chunk go there, as floats and as BF16. */
static void send_rows(sw_device_ledger *l, const sw_sum_size *s)
{
    const int64_t width = s->k * (s->with_cross ? 2 : 1) + s->n_out_residual;

    sw_ledger_pass(l, SW_DEVICE_SUMS,
                   2 * l->batch_tokens * width + 4 * l->batch_tokens * s->k);
}

/* The text runs up to the wanted sites: sums of its pieces, as many as live at a time. Leaves those
 * of the whole text. */
static int64_t observe(sw_device_ledger *l, const bool wanted[SW_SITE_COUNT], int n_wanted)
{
    const bool there = l->out->has_streams;
    int64_t live = 0, part = 0, watchers = 0, unweighed = 0;

    for (int site = 0; site < SW_SITE_COUNT; site++) {
        sw_sum_size s;

        if (!wanted[site] || !is_summed(l, site)) continue;
        s = sum_of(l, (sw_site)site);
        sw_ledger_take(l, SW_DEVICE_SUMS, copies_of(l) * sw_sum_live_bytes(&s));
        unweighed += copies_of(l) * sw_sum_live_bytes(&s);
        watchers += there ? watcher_bytes(l, (sw_site)site, &s) : 0;
        s.is_weighed = is_weighed(l, (sw_site)site, &s);
        live += copies_of(l) * sw_sum_live_bytes(&s);
        part += copies_of(l) * sw_sum_part_bytes(&s);
        if (!there) send_rows(l, &s);
    }
    if (!live) return 0;
    l->now[SW_DEVICE_SUMS] += live - unweighed;
    for (int site = 0; site < SW_SITE_COUNT && there && n_wanted == 1; site++)
        if (wanted[site])
            keep_inputs(l, (sw_site)site, sw_model_site_width(l->r->model, l->layer,
                                                              (sw_site)site));
    if (there) load_original(l, false);
    if (there) hold_quantized(l);
    sw_ledger_take(l, SW_DEVICE_SUMS, (l->out->n_alive - 1) * live + part + watchers);
    sw_ledger_put(l, SW_DEVICE_SUMS, (l->out->n_alive - 1) * live + part + watchers);
    return live;
}

void sw_ledger_observe_experts(sw_device_ledger *l, sw_site site, int64_t n_experts)
{
    const sw_experts policy = l->r->options->experts;
    const bool is_down = site == SW_SITE_DOWN_IN, there = l->out->has_streams;
    const int64_t k = is_down ? sw_model_site_width(l->r->model, l->layer, site)
                              : l->r->model->moe_hidden;
    const int64_t n = n_experts * ((policy != SW_EXPERTS_ALL ? 2 : 0) +
                                   (is_down && policy != SW_EXPERTS_ROUTED ? 1 : 0));
    const int64_t live = n * sw_gram_bytes(k, k);
    const int64_t rows = there ? n * 2 * sw_cuda_expert_rows(k) * k : 0;
    const int64_t weights = there ? sw_device_layer_bytes(l->r->model, l->layer, is_down) : 0;

    l->step = "observing experts";
    sw_ledger_take(l, SW_DEVICE_SUMS, live);
    sw_ledger_take(l, SW_DEVICE_WEIGHTS, weights);
    sw_ledger_pass(l, SW_DEVICE_SUMS,
                   (l->n_experts_alive - 1) * live + n * sw_gram_part_bytes(k, k) + rows);
    sw_ledger_put(l, SW_DEVICE_WEIGHTS, weights);
}

/* --- a layer --- */

static void calibrate(sw_device_ledger *l)
{
    const bool one_pass = l->r->options->sequential == SW_SEQUENTIAL_LAYER;

    l->ahead = SW_HALF_BOTH;
    for (int step = 0; step < (one_pass ? 1 : SW_SITE_COUNT); step++) {
        bool wanted[SW_SITE_COUNT];
        int n_wanted = 0;
        int64_t live;

        for (int site = 0; site < SW_SITE_COUNT; site++) {
            wanted[site] = (one_pass || site == step) && uses(l, site);
            n_wanted += wanted[site];
        }
        if (!n_wanted) continue;
        if (step >= SW_SITE_MLP_IN && l->ahead == SW_HALF_BOTH) {
            advance(l, SW_HALF_ATTENTION);
            l->ahead = SW_HALF_MLP;
        }
        l->step = "observing";
        live = observe(l, wanted, n_wanted);
        for (int site = 0; site < SW_SITE_COUNT; site++)
            if (wanted[site] && is_summed(l, site)) sw_ledger_solve_site(l, (sw_site)site);
            else if (wanted[site]) sw_ledger_solve_experts(l, (sw_site)site, false);
        sw_ledger_put(l, SW_DEVICE_SUMS, live);
    }
}

static sw_code select_linears(sw_device_ledger *l, sw_err *err)
{
    const sw_forecast_request *r = l->r;
    const int64_t n = sw_model_linears(r->model, l->layer, NULL, 0);
    sw_code rc = SW_MEM_GET(&l->refs, n, "linears of a block", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&l->linears, n, "linears of a block", err);
    if (rc != SW_OK) return rc;
    (void)sw_model_linears(r->model, l->layer, l->refs, n);
    l->n_refs = 0;
    for (int64_t i = 0; i < n; i++) {
        char path[256];

        if (sw_model_slot_path(path, r->model, l->layer, l->refs[i].slot, l->refs[i].expert) &&
            r->is_selected(r->self, &l->refs[i], path))
            l->refs[l->n_refs++] = l->refs[i];
    }
    return SW_OK;
}

static void drop_linears(sw_device_ledger *l)
{
    sw_mem_put(l->refs);
    sw_mem_put(l->linears);
    l->refs = NULL;
    l->linears = NULL;
}

static sw_code take_layer(sw_device_ledger *l, int64_t n_layers, sw_err *err)
{
    sw_code rc = select_linears(l, err);

    if (rc != SW_OK) {
        drop_linears(l);
        return rc;
    }
    l->passes = 0;
    if (l->r->calib && !l->r->has_stats) {
        calibrate(l);
        l->out->n_passes = sw_max_i64(l->out->n_passes, l->passes);
        if (l->layer + 1 < n_layers) advance(l, SW_HALF_BOTH);
        else if (l->has_original) /* freed with the streams */
            sw_ledger_put(l, SW_DEVICE_WEIGHTS,
                          sw_device_layer_bytes(l->r->model, l->layer, l->has_experts));
        l->has_original = false;
        drop_quantized(l);
        drop_experts(l);
    } else {
        sw_ledger_round(l);
    }
    drop_linears(l);
    return SW_OK;
}

/* --- the run --- */

/* As placement.c asks: can all linears be solved there? */
static sw_code find_solvable(sw_device_ledger *l, int64_t n_layers, sw_err *err)
{
    sw_code rc = SW_OK;

    l->out->solves = true;
    for (l->layer = 0; l->layer < n_layers && rc == SW_OK; l->layer++) {
        rc = select_linears(l, err);
        for (int64_t i = 0; i < l->n_refs && rc == SW_OK; i++)
            if (!sw_solver_can(sw_ledger_spec(l, &l->refs[i]))) l->out->solves = false;
        drop_linears(l);
    }
    return rc;
}

/* sw_cuda_streams_new; what does not fit stays where it is. */
static void open_streams(sw_device_ledger *l)
{
    const sw_forecast_request *r = l->r;
    const sw_model *m = r->model;
    const int64_t seq_len = r->calib->seq_len, chunk_seqs = sw_streams_chunk_seqs(r->calib);
    const int64_t n_seqs = l->n_tokens / seq_len;
    const int64_t batch = sw_cuda_batch_seqs(m, chunk_seqs, seq_len, n_seqs, l->out->cap_bytes);
    const int64_t engine = sw_device_scratch_bytes(m, batch * seq_len, seq_len);
    const int64_t work = 4 * batch * seq_len * m->hidden;
    const int64_t streams =
        4 * l->n_tokens * (m->hidden + sw_model_side_width(m)) * copies_of(l);
    sw_err err = {0};

    l->batch_tokens = chunk_seqs * seq_len;
    if (sw_device_supports(m, &err) != SW_OK)
        (void)snprintf(l->out->why, sizeof l->out->why, "%.150s", err.text);
    else if (r->options->spill_dir)
        (void)snprintf(l->out->why, sizeof l->out->why, "activations go to disk to keep to "
                       "--memory");
    else if (!l->out->solves)
        (void)snprintf(l->out->why, sizeof l->out->why, "the scheme keeps outliers");
    else if (engine + work + streams > sw_ledger_left(l))
        (void)snprintf(l->out->why, sizeof l->out->why, "the streams of %lld windows take %lld MB",
                       (long long)n_seqs, (long long)((engine + work + streams) / 1000000));
    if (l->out->why[0]) return;
    l->out->has_streams = true;
    l->batch_tokens = batch * seq_len;
    sw_ledger_take(l, SW_DEVICE_ENGINE, engine + work);
    sw_ledger_take(l, SW_DEVICE_STREAMS, streams);
    if (sw_cuda_looks_up(sw_ledger_left(l), m->vocab, m->hidden, l->n_tokens))
        sw_ledger_pass(l, SW_DEVICE_STREAMS,
                       sw_cuda_look_up_bytes(m->vocab, m->hidden, l->n_tokens));
}

/* Pieces of the text, and how many of its tokens the first rank has. */
static void cut_text(sw_device_ledger *l)
{
    const sw_calib *calib = l->r->calib;
    const int64_t chunk_seqs = sw_streams_chunk_seqs(calib);
    const int64_t n_chunks = sw_ceil_div(calib->n_seqs, chunk_seqs);
    const int64_t n_pieces = sw_pieces_of(n_chunks, sw_streams_k_max(l->r->model));
    const int n_ranks = l->r->n_ranks > 1 ? l->r->n_ranks : 1;
    const int64_t end = sw_piece_of_rank(n_pieces, 1, n_ranks);

    l->out->n_pieces = n_pieces;
    l->out->n_alive = sw_pieces_alive_at(n_pieces, 0, n_ranks, false);
    l->n_experts_alive = sw_pieces_alive_at(n_pieces, 0, n_ranks,
                                            sw_experts_go_on(l->r->options->experts,
                                                             &sw_backend_cuda));
    l->n_tokens = sw_min_i64(calib->n_seqs, sw_piece_chunk(n_chunks, n_pieces, end) * chunk_seqs) *
                  calib->seq_len;
}

static sw_code run(sw_device_forecast *out, const sw_forecast_request *r, int64_t cap_bytes,
                   sw_err *err)
{
    const sw_quant_options *o = r->options;
    sw_device_ledger l = {.r = r, .out = out, .step = "opening", .n_experts_alive = 1};
    int64_t n_layers = r->model->n_layers + 1;
    sw_linear_ref head;
    char path[256];
    sw_code rc = SW_OK;

    *out = (sw_device_forecast){.cap_bytes = cap_bytes, .n_alive = 1};
    if (sw_model_linears(r->model, r->model->n_layers, &head, 1) != 1 ||
        !sw_model_slot_path(path, r->model, head.layer, head.slot, head.expert) ||
        !r->is_selected(r->self, &head, path))
        n_layers--;
    sw_ledger_take(&l, SW_DEVICE_HANDLES, SW_SOLVER_HANDLE_BYTES);
    if ((rc = find_solvable(&l, n_layers, err)) != SW_OK) return rc;
    if (r->calib && !r->has_stats) {
        l.with_cross = (o->cap.input > 0 || o->cap.residual > 0) && o->algo->repairs_errors &&
                       sw_streams_hold_back(r->calib);
        cut_text(&l);
        open_streams(&l);
    }
    for (l.layer = 0; l.layer < n_layers && out->solves && rc == SW_OK; l.layer++)
        rc = take_layer(&l, n_layers, err);
    return rc;
}

static bool is_well(const sw_device_forecast *f)
{
    return f->has_streams && sw_device_forecast_fits(f);
}

/* Would so many windows and ranks do? */
static sw_code try_with(bool *fits, const sw_forecast_request *request, int64_t n_seqs, int n_ranks,
                        int64_t cap_bytes, sw_err *err)
{
    sw_calib calib = *request->calib;
    sw_forecast_request r = *request;
    sw_device_forecast f;
    sw_code rc;

    calib.n_seqs = n_seqs;
    r.calib = &calib;
    r.n_ranks = n_ranks;
    rc = run(&f, &r, cap_bytes, err);
    *fits = rc == SW_OK && is_well(&f);
    return rc;
}

/* The most windows with which blocks run on the device, and all fits; or the fewest ranks. */
static sw_code find_remedies(sw_device_forecast *out, const sw_forecast_request *request,
                             int64_t cap_bytes, sw_err *err)
{
    int64_t few = 0, too_many = request->calib->n_seqs;
    bool fits = false;
    sw_code rc = SW_OK;

    while (too_many - few > 1 && rc == SW_OK) {
        const int64_t n = (few + too_many) / 2;

        rc = try_with(&fits, request, n, request->n_ranks, cap_bytes, err);
        *(fits ? &few : &too_many) = n;
    }
    out->samples_fit = few;
    fits = request->options->algo->transform != NULL; /* ranks are refused then */
    for (int n = request->n_ranks > 1 ? request->n_ranks + 1 : 2;
         n <= SW_PIECES_MAX && !fits && rc == SW_OK; n++) {
        rc = try_with(&fits, request, request->calib->n_seqs, n, cap_bytes, err);
        if (fits) out->ranks_fit = n;
    }
    return rc;
}

sw_code sw_device_forecast_new(sw_device_forecast *out, const sw_forecast_request *request,
                               int64_t cap_bytes, sw_err *err)
{
    sw_device_forecast f;
    sw_code rc = run(&f, request, cap_bytes, err);

    if (rc == SW_OK && request->calib && !request->has_stats &&
        !request->options->spill_dir && f.solves && !is_well(&f))
        rc = find_remedies(&f, request, cap_bytes, err);
    if (rc == SW_OK) *out = f;
    return rc;
}
