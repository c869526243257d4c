/* sensitivity.c - see sensitivity.h. */
#include "quant/search/sensitivity.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "quant/search/kl_probe.h"
#include "quant/search/outliers.h"
#include "quant/stats/stats.h"

#define SAMPLE_ROWS 64 /* of each linear: one slab */
/* An expert's own statistics are trusted from this many tokens per input channel. */
#define EXPERT_TOKENS_PER_INPUT 0.25

/* What is known of one linear. */
typedef struct record {
    sw_linear_ref ref;
    char path[256];
    int64_t probe;   /* which probe it was part of */
    double *errors;  /* [n_specs] of the sampled rows; INFINITY: does not fit */
    double error;    /* of the whole linear under the probe's scheme */
} record;

typedef struct run {
    const sw_model *model;
    const sw_sensitivity_options *o;
    const sw_sensitivity_sink *sink;
    sw_streams streams;
    sw_kl_probe probes;
    record *records;
    int64_t n_records, n_probes;
    double *kl;       /* [n_probes] */
    sw_arena arena;
} run;

/* One block at work. */
typedef struct block_run {
    run *all;
    sw_block original, changed;
    record *records; /* of this block, in all->records */
    int64_t n;
    float **values;  /* [n] decoded weights that `changed` borrows while a probe runs */
} block_run;

static void block_run_free(block_run *b)
{
    for (int64_t i = 0; b->values && i < b->n; i++) sw_mem_put(b->values[i]);
    sw_mem_put(b->values);
    sw_block_free(&b->original);
    sw_block_free(&b->changed);
}

/* What measuring one linear needs: the statistics of its inputs, or how large they are. */
typedef struct inputs {
    const sw_factor *factor; /* NULL: too little was seen */
    double mean_square;      /* stands for H then: mean of its diagonal */
} inputs;

/* Rounding error of a weight under inputs that are alike in all channels. */
static sw_code plain_error(double *out, const sw_solve_problem *p, const sw_qtensor *q,
                           double mean_square, sw_err *err)
{
    float *values = NULL;
    double sum = 0;
    sw_code rc = SW_MEM_GET(&values, p->n_out * p->k_in, "decoded weight", err);

    if (rc != SW_OK) return rc;
    sw_qtensor_decode(values, q);
    for (int64_t i = 0; i < p->n_out * p->k_in; i++) {
        double e = (double)p->w[i] - (double)values[i];
        sum += e * e;
    }
    sw_mem_put(values);
    *out = sum * mean_square;
    return SW_OK;
}

/* Solve and measure; *values, unless NULL, gets the decoded weight. */
static sw_code try_spec(double *error, float *values, const sw_solve_problem *p,
                        const inputs *in, bool is_rounding, sw_err *err)
{
    sw_solve_fn solve = is_rounding || !in->factor ? sw_rtn_solve : sw_gptq_solve;
    sw_solve_report report = {0};
    sw_qtensor q = {0};
    sw_code rc = sw_qtensor_alloc(&q, &p->spec, p->n_out, p->k_in, err);

    if (rc != SW_OK) return rc;
    rc = sw_outliers_solve(&q, p, solve, &report, err);
    if (rc == SW_OK && in->factor) *error = report.error * report.power;
    if (rc == SW_OK && !in->factor) rc = plain_error(error, p, &q, in->mean_square, err);
    if (rc == SW_OK && values) sw_qtensor_decode(values, &q);
    sw_qtensor_free(&q);
    return rc;
}

/* Evenly spread rows of w [n_out, k] into out [SAMPLE_ROWS at most, k]; returns how many. */
static int64_t sample_rows(float *out, const float *w, int64_t n_out, int64_t k)
{
    int64_t n = sw_min_i64(n_out, SAMPLE_ROWS);

    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * k, w + (2 * i + 1) * n_out / (2 * n) * k, (size_t)k * sizeof *w);
    return n;
}

static int64_t kept_by(const sw_sensitivity_options *o, int64_t spec, int64_t k_in)
{
    return o->shares ? llround(o->shares[spec] * (double)k_in) : 0;
}

static sw_code measure(record *r, float *values, const float *w, const inputs *in,
                       const sw_sensitivity_options *o, sw_err *err)
{
    sw_solve_problem p = {.w = w, .n_out = r->ref.n_out, .k_in = r->ref.k_in,
                          .spec = o->specs[o->probe], .factor = in->factor,
                          .n_threads = o->n_threads};
    bool is_rounding = !o->algo->needs_statistics;
    float *sample = NULL;
    sw_code rc;

    p.spec.n_outliers = kept_by(o, o->probe, p.k_in);
    if ((rc = try_spec(&r->error, values, &p, in, is_rounding, err)) != SW_OK) return rc;
    rc = SW_MEM_GET(&sample, SAMPLE_ROWS * p.k_in, "sampled rows", err);
    if (rc != SW_OK) return rc;
    p.n_out = sample_rows(sample, w, p.n_out, p.k_in);
    p.w = sample;
    for (int64_t s = 0; s < o->n_specs && rc == SW_OK; s++) {
        p.spec = o->specs[s];
        p.spec.n_outliers = kept_by(o, s, p.k_in);
        r->errors[s] = (double)INFINITY;
        if (p.spec.group_elems && p.k_in % p.spec.group_elems) continue;
        rc = try_spec(&r->errors[s], NULL, &p, in, is_rounding, err);
    }
    sw_mem_put(sample);
    return rc;
}

static sw_code load_weight(float **out, block_run *b, const record *r, sw_err *err)
{
    const sw_weight *dense = sw_block_weight(&b->original, r->ref.slot, r->ref.expert);
    int64_t n = r->ref.n_out * r->ref.k_in;
    sw_code rc = SW_MEM_GET(out, n, "weight", err);

    if (rc != SW_OK) return rc;
    return sw_float_decode_n(*out, dense->dense, dense->dense_dtype, n, err);
}

static sw_code measure_linear(block_run *b, int64_t at, const inputs *in, sw_err *err)
{
    record *r = &b->records[at];
    float *w = NULL;
    sw_code rc = load_weight(&w, b, r, err);

    if (rc == SW_OK)
        rc = SW_MEM_GET(&b->values[at], r->ref.n_out * r->ref.k_in, "quantized weight", err);
    if (rc == SW_OK) rc = measure(r, b->values[at], w, in, b->all->o, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", r->path);
    sw_mem_put(w);
    return rc;
}

static double mean_diagonal(const sw_hessian *h)
{
    double sum = 0;

    for (int64_t i = 0; i < h->k_in; i++) sum += h->h[i * h->k_in + i];
    return sum / (double)h->k_in;
}

/* Linears that read what `h` is of; floor: the least mean square to reckon with. */
static sw_code measure_sharing(block_run *b, sw_site site, int64_t expert, const sw_hessian *h,
                               double floor, sw_err *err)
{
    sw_factor_options fo = {SW_ORDER_STATIC, 0, b->all->o->damp};
    inputs in = {NULL, fmax(mean_diagonal(h), floor)};
    sw_factor factor = {0};
    sw_err local = {0};
    sw_code rc = SW_OK;

    if ((double)h->n_tokens >= EXPERT_TOKENS_PER_INPUT * (double)h->k_in) {
        rc = sw_factor_new(&factor, h, &fo, &local);
        if (rc != SW_OK && rc != SW_E_FORMAT) return SW_FAIL(err, rc, "%s", local.text);
        if (rc == SW_OK) in.factor = &factor;
        rc = SW_OK;
    }
    for (int64_t i = 0; i < b->n && rc == SW_OK; i++) {
        const sw_linear_ref *ref = &b->records[i].ref;
        if (ref->site == site && ref->expert == expert)
            rc = measure_linear(b, i, &in, err);
    }
    sw_factor_free(&factor);
    return rc;
}

/* What the tokens routed to an expert show it, both halves of the text together. */
static const sw_hessian *routed(sw_site_stats *stats, sw_site site, int64_t expert)
{
    sw_expert_stats *x = &stats->experts[expert];

    return site == SW_SITE_MLP_IN ? &x->in.half[0] : &x->down.half[0];
}

/* An expert that few tokens reach may be reached by more tomorrow: a tenth of the mean expert. */
static sw_code measure_experts(block_run *b, sw_site site, sw_site_stats *stats, sw_err *err)
{
    double sum = 0;
    sw_code rc = SW_OK;

    for (int64_t e = 0; e < stats->n_experts; e++) {
        sw_expert_stats *x = &stats->experts[e];
        sw_hessian *half = site == SW_SITE_MLP_IN ? x->in.half : x->down.half;
        if ((rc = sw_expert_blend(half, half, 0, err)) != SW_OK) return rc;
        sum += mean_diagonal(half);
    }
    for (int64_t e = 0; e < stats->n_experts && rc == SW_OK; e++)
        rc = measure_sharing(b, site, e, routed(stats, site, e),
                             0.1 * sum / (double)stats->n_experts, err);
    if (rc == SW_OK && stats->site[site].h) /* linears beside the experts */
        rc = measure_sharing(b, site, -1, &stats->site[site], 0, err);
    return rc;
}

/* Run the block with the linears of one site quantized. */
static sw_code probe_site(block_run *b, sw_site site, sw_err *err)
{
    run *all = b->all;
    sw_code rc;

    for (int64_t i = 0; i < b->n; i++) {
        const sw_linear_ref *ref = &b->records[i].ref;
        sw_weight *slot = sw_block_weight(&b->changed, ref->slot, ref->expert);
        if (ref->site != site) continue;
        if (!b->values[i])
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: its inputs are not observed, so what it "
                           "loses is unknown", b->records[i].path);
        slot->dense = b->values[i];
        slot->dense_dtype = SW_DTYPE_F32;
        b->records[i].probe = all->n_probes;
    }
    all->n_probes++;
    rc = sw_kl_probe_add(&all->probes, &b->changed, err);
    for (int64_t i = 0; i < b->n; i++) {
        const sw_linear_ref *ref = &b->records[i].ref;
        if (ref->site != site) continue;
        *sw_block_weight(&b->changed, ref->slot, ref->expert) =
            *sw_block_weight(&b->original, ref->slot, ref->expert);
        sw_mem_put(b->values[i]);
        b->values[i] = NULL;
    }
    return rc;
}

static sw_code list_linears(block_run *b, int64_t layer, sw_err *err)
{
    run *all = b->all;
    int64_t n = sw_model_linears(all->model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    b->records = all->records + all->n_records;
    if (rc == SW_OK) (void)sw_model_linears(all->model, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        record *r = &b->records[b->n];
        r->ref = refs[i];
        if (!sw_model_slot_path(r->path, all->model, layer, refs[i].slot, refs[i].expert) ||
            !all->sink->is_selected(all->sink->self, &refs[i], r->path))
            continue;
        rc = SW_ARENA_TAKE(&r->errors, &all->arena, all->o->n_specs, err);
        b->n++;
    }
    all->n_records += b->n;
    sw_mem_put(refs);
    return rc == SW_OK ? SW_MEM_GET(&b->values, b->n, "quantized values", err) : rc;
}

static sw_code measure_site(block_run *b, sw_site site, sw_site_stats *stats, sw_err *err)
{
    sw_code rc = stats->experts && (site == SW_SITE_MLP_IN || site == SW_SITE_DOWN_IN)
                     ? measure_experts(b, site, stats, err)
                     : measure_sharing(b, site, -1, &stats->site[site], 0, err);

    return rc == SW_OK ? probe_site(b, site, err) : rc;
}

/* All sites of a block in one pass over the text. */
static sw_code measure_observed(block_run *b, const bool wanted[SW_SITE_COUNT],
                                const sw_progress *progress, sw_err *err)
{
    run *all = b->all;
    sw_site_stats stats;
    sw_code rc = sw_site_stats_new(&stats, all->model, b->original.layer, wanted, false,
                                   SW_EXPERTS_ROUTED, &all->streams.place, err);

    if (rc != SW_OK) return rc;
    rc = sw_streams_observe(&all->streams, &stats, &b->original, &b->original, progress, err);
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++)
        if (wanted[site]) rc = measure_site(b, (sw_site)site, &stats, err);
    sw_site_stats_free(&stats);
    return rc;
}

/* One site from the file; its experts' as well. */
static sw_code read_site(sw_site_stats *out, const block_run *b, sw_site site, sw_err *err)
{
    const sw_model *m = b->all->model;
    int64_t layer = b->original.layer;
    sw_quant_options o = {.experts = SW_EXPERTS_ROUTED, .n_threads = b->all->o->n_threads};
    const sw_zpack *file = b->all->o->stats;
    sw_site_stats part;
    sw_code rc = sw_stats_read(out, file, m, layer, site, &o, err);

    if (rc != SW_OK || !sw_model_is_sparse(m, layer) ||
        (site != SW_SITE_MLP_IN && site != SW_SITE_DOWN_IN))
        return rc;
    rc = sw_stats_read_experts(&part, file, m, layer, site, &o, 0, m->n_experts, err);
    if (rc != SW_OK) {
        sw_site_stats_free(out);
        return rc;
    }
    out->experts = part.experts; /* all that it holds */
    out->n_experts = part.n_experts;
    return SW_OK;
}

static sw_code measure_stored(block_run *b, const bool wanted[SW_SITE_COUNT], sw_err *err)
{
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        sw_site_stats stats;
        if (!wanted[site]) continue;
        if ((rc = read_site(&stats, b, (sw_site)site, err)) != SW_OK) break;
        rc = measure_site(b, (sw_site)site, &stats, err);
        sw_site_stats_free(&stats);
    }
    return rc;
}

static sw_code run_block(run *all, const sw_st *st, int64_t layer, const sw_progress *progress,
                         sw_err *err)
{
    block_run b = {.all = all};
    bool wanted[SW_SITE_COUNT] = {false};
    sw_code rc;

    if ((rc = list_linears(&b, layer, err)) != SW_OK ||
        (rc = sw_block_load_from(&b.original, all->model, st, all->o->source, layer, err)) !=
            SW_OK ||
        (rc = sw_block_load_from(&b.changed, all->model, st, all->o->source, layer, err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < b.n; i++) wanted[b.records[i].ref.site] = true;
    if (b.n)
        rc = all->o->stats ? measure_stored(&b, wanted, err)
                           : measure_observed(&b, wanted, progress, err);
    if (rc != SW_OK || (rc = sw_kl_probe_advance(&all->probes, &b.original, err)) != SW_OK)
        goto done;
    if (!all->o->stats && layer + 1 < all->model->n_layers)
        rc = sw_streams_advance(&all->streams, &b.original, &b.original, SW_HALF_BOTH, progress,
                                err);
done:
    block_run_free(&b);
    return rc;
}

/* The divergence of a site falls to its linears by their errors, and to a scheme by the error of
 * the sampled rows. */
static sw_code hand_out(run *all, sw_err *err)
{
    const sw_sensitivity_options *o = all->o;
    double *site_error = NULL, *loss = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&site_error, all->n_probes, "site errors", err)) != SW_OK ||
        (rc = SW_MEM_GET(&loss, o->n_specs, "losses", err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < all->n_records; i++)
        site_error[all->records[i].probe] += all->records[i].error;
    for (int64_t i = 0; i < all->n_records && rc == SW_OK; i++) {
        const record *r = &all->records[i];
        double sampled = r->errors[o->probe], total = site_error[r->probe];
        double own = total > 0 ? all->kl[r->probe] * r->error / total : 0;
        for (int64_t s = 0; s < o->n_specs; s++)
            loss[s] = !isfinite(r->errors[s]) ? r->errors[s]
                      : sampled > 0           ? own * r->errors[s] / sampled
                                              : 0;
        rc = all->sink->put(all->sink->self, &r->ref, r->path, loss, err);
    }
done:
    sw_mem_put(site_error);
    sw_mem_put(loss);
    return rc;
}

static sw_code start(run *all, const sw_st *st, const sw_calib *calib, sw_err *err)
{
    const sw_place memory = sw_place_cpu(all->o->n_threads);
    int64_t n_linears = 0, n_probes = all->model->n_layers * SW_SITE_COUNT;
    sw_code rc;

    for (int64_t l = 0; l < all->model->n_layers; l++)
        n_linears += sw_model_linears(all->model, l, NULL, 0);
    if ((rc = SW_ARENA_TAKE(&all->records, &all->arena, n_linears + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&all->kl, &all->arena, n_probes, err)) != SW_OK ||
        (rc = sw_kl_probe_new(&all->probes, all->model, st, calib, n_probes, all->o->n_threads,
                              err)) != SW_OK ||
        all->o->stats)
        return rc;
    return sw_streams_new(&all->streams, &memory, all->model, st, calib, false, NULL, err);
}

sw_code sw_sensitivity_run(const sw_model *model, const sw_st *st, const sw_calib *calib,
                           const sw_sensitivity_options *options, const sw_sensitivity_sink *sink,
                           const sw_progress *progress, sw_err *err)
{
    run all = {.model = model, .o = options, .sink = sink};
    sw_code rc = start(&all, st, calib, err);

    for (int64_t layer = 0; layer < model->n_layers && rc == SW_OK; layer++) {
        sw_progress_step(progress, "sensitivity", layer, model->n_layers);
        if ((rc = sw_progress_check(progress, err)) == SW_OK)
            rc = run_block(&all, st, layer, progress, err);
        sw_st_forget(st);
    }
    if (rc == SW_OK) rc = sw_kl_probe_finish(all.kl, &all.probes, st, options->source, err);
    if (rc == SW_OK) sw_progress_step(progress, "sensitivity", model->n_layers, model->n_layers);
    if (rc == SW_OK) rc = hand_out(&all, err);
    sw_streams_free(&all.streams);
    sw_kl_probe_free(&all.probes);
    sw_arena_free(&all.arena);
    return rc;
}
