/* block_solve.c - the solving of a block's linears: what they share, what they aim at, what an
 * expert gets. See block_job.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/pow2.h"
#include "quant/method/frame.h"
#include "quant/method/target.h"
#include "quant/method/weight_rows.h"
#include "quant/run/block_job.h"
#include "quant/search/outliers.h"
#include "quant/stats/ranges.h"
#include "quant/stats/stats.h"

/* Statistics without anything to lean on are trusted from this many tokens per input channel. */
#define TOKENS_PER_INPUT_MIN 0.25

static void scale_range(sw_solve_report *report, const sw_qtensor *q)
{
    report->scale_min = report->scale_max = fabs((double)q->scales[0]);
    for (int64_t i = 1; i < q->n_out * q->n_groups; i++) {
        double s = fabs((double)q->scales[i]);
        if (s < report->scale_min) report->scale_min = s;
        if (s > report->scale_max) report->scale_max = s;
    }
}

/* Where the exponents of a weight in groups lie beside those of the OCP rule. */
static void count_exponents(sw_solve_report *report, const sw_qtensor *q, const float *w)
{
    int64_t k = q->k_in, gs = q->spec.group_elems;

    if (!q->spec.is_pow2_scale || !gs || sw_qspec_rows(&q->spec, q->n_out) > 1) return;
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++) {
        int64_t row = i / q->n_groups, from = i % q->n_groups * gs;
        double amax = sw_weight_amax(w + row * k + from, sw_min_i64(gs, k - from));
        float ocp = sw_pow2_scale_by((float)amax, q->spec.num, SW_POW2_FLOOR);
        report->n_by_ocp[q->scales[i] < ocp ? 0 : q->scales[i] > ocp ? 2 : 1]++;
    }
}

/* Solve with `algo`; a Hessian that cannot serve falls back to rounding and says so. */
static sw_code solve(sw_qtensor *q, const sw_solve_problem *p, const sw_block_job *job,
                     const char *why_not, sw_solve_report *report, sw_err *err)
{
    const sw_algo *algo = job->options->algo;
    sw_code rc;

    report->error = report->error_rtn = -1;
    if (algo->needs_statistics && !p->factor) {
        rc = sw_outliers_solve(q, p, sw_rtn_solve, report, err);
        report->is_fallback = true;
        (void)snprintf(report->why, sizeof report->why, "%s", why_not);
    } else {
        rc = sw_outliers_solve(q, p, algo->solve, report, err);
    }
    if (rc == SW_OK) {
        scale_range(report, q);
        count_exponents(report, q, p->w);
    }
    return rc;
}

/* The statistics that a set of linears shares. */
typedef struct shared_stats {
    sw_hessian *all;         /* every token; NULL: none */
    const sw_factor *factor; /* of `all`; NULL when it cannot serve, and then why */
    const sw_factor *cross;  /* of what the cross terms belong to; NULL: factor */
    const sw_strengths *strengths; /* [n_linears] chosen beforehand, or NULL */
    int64_t n_routed;        /* tokens that reached the expert; -1: no expert */
    double shared_weight;    /* see experts.h */
    char why_not[120];
} shared_stats;

static sw_code load_weight(float *w, const sw_block_job *job, const sw_linear_ref *ref,
                           sw_err *err)
{
    const sw_weight *dense = sw_block_weight((sw_block *)(uintptr_t)&job->original, ref->slot,
                                             ref->expert);

    return sw_weight_load(w, dense, ref->n_out, ref->k_in, job->options->n_threads, err);
}

/* Room for a weight that stays with the block when it is run on, else for the largest. */
static sw_code get_room(float **out, sw_block_job *job, const sw_linear_ref *ref, sw_err *err)
{
    int64_t n = 0;
    sw_code rc;

    if (job->streams) return SW_MEM_GET(out, ref->n_out * ref->k_in, "weight", err);
    for (int64_t i = 0; i < job->n_linears; i++)
        n = sw_max_i64(n, job->linears[i].n_out * job->linears[i].k_in);
    if (!job->spare &&
        (rc = SW_MEM_GET_WIDE(&job->spare, n, "weight", job->options->n_threads, err)) != SW_OK)
        return rc;
    *out = job->spare;
    return SW_OK;
}

static sw_code take_input_scale(sw_qtensor *q, const sw_block_job *job, const sw_linear_ref *ref,
                                sw_err *err)
{
    if (!sw_act_needs_input_scale(&q->spec.act)) return SW_OK;
    q->input_scale = job->input_scale[ref->site];
    if (q->input_scale > 0.0f) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "inputs under a stored scale need calibration text");
}

/* NULL: none is given, or nothing of this linear. */
static sw_code take_importance(double **out, const sw_block_job *job, const sw_linear_ref *ref,
                               sw_err *err)
{
    const sw_importance *from = job->options->importance;
    bool has = false;
    sw_code rc;

    if (!from) return SW_OK;
    if ((rc = SW_MEM_GET(out, ref->k_in, "importance of inputs", err)) != SW_OK) return rc;
    rc = from->get(from->self, &has, *out, ref, err);
    if (rc == SW_OK && has) return SW_OK;
    sw_mem_put(*out);
    *out = NULL;
    return rc;
}

static sw_code block_amax(double *amax, const sw_block *block, const sw_linear_ref *ref,
                          sw_err *err)
{
    const sw_weight *dense = sw_block_weight((sw_block *)(uintptr_t)block, ref->slot, ref->expert);
    int64_t n = ref->n_out * ref->k_in;
    float *w = NULL;
    sw_code rc = SW_MEM_GET(&w, n, "weight", err);

    if (rc != SW_OK) return rc;
    rc = sw_float_decode_n(w, dense->dense, dense->dense_dtype, n, err);
    if (rc == SW_OK) *amax = fmax(*amax, sw_weight_amax(w, n));
    sw_mem_put(w);
    return rc;
}

/* Largest magnitude of linear i and of those that engines load as one with it (same input, same
 * expert), as the block stores them: for fused_amax. 0: its spec shares nothing. */
static sw_code find_fused_amax(double *out, const sw_block_job *job, int64_t i, sw_err *err)
{
    const sw_linear_ref *linears = job->linears;
    const sw_qspec *spec = &job->specs[i];
    double amax = 0;
    sw_code rc = SW_OK;

    if (spec->has_global || spec->scale_rows == SW_ROWS_ALL)
        for (int64_t j = 0; j < job->n_linears && rc == SW_OK; j++)
            if (linears[j].site == linears[i].site && linears[j].expert == linears[i].expert)
                rc = block_amax(&amax, &job->original, &linears[j], err);
    if (rc == SW_OK) *out = amax;
    return rc;
}

/* One linear: aim, solve, hand out, and let the block use the quantized value. */
static sw_code solve_loaded(sw_block_job *job, int64_t i, const char *path, float *w,
                            const shared_stats *shared, sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    const sw_qspec *spec = &job->specs[i];
    const sw_quant_options *o = job->options;
    sw_solve_problem p = {.w = w, .n_out = ref->n_out, .k_in = ref->k_in, .spec = *spec,
                          .factor = shared->factor, .refine_rounds = o->refine_rounds,
                          .n_threads = o->n_threads, .place = sw_options_place(o)};
    sw_solve_report report = {.n_routed = shared->n_routed, .shared_weight = shared->shared_weight};
    sw_qtensor q = {0};
    double *shift = NULL, *importance = NULL;
    sw_span span;
    sw_code rc;

    if ((rc = sw_qtensor_alloc_wide(&q, spec, ref->n_out, ref->k_in, o->n_threads, err)) != SW_OK ||
        (rc = take_importance(&importance, job, ref, err)) != SW_OK)
        goto done;
    p.importance = importance;
    if ((rc = take_input_scale(&q, job, ref, err)) != SW_OK) goto done;
    rc = find_fused_amax(&p.fused_amax, job, i, err);
    if (rc != SW_OK) goto done;
    if (shared->factor && shared->strengths) {
        rc = sw_target_shift_new(&shift, shared->factor, ref->n_out, err);
        if (rc != SW_OK) goto done;
        report.input_strength = shared->strengths[i].input;
        report.residual_strength = shared->strengths[i].residual;
        rc = sw_target_shift(shift, shared->cross ? shared->cross : shared->factor, shared->all, w,
                             ref->n_out, shared->strengths[i], err);
        if (rc != SW_OK) goto done;
        p.target_shift = shift;
    }
    span = sw_span_open("solve");
    rc = solve(&q, &p, job, shared->why_not, &report, err);
    sw_span_close(span, path);
    if (rc != SW_OK) goto done;
    if (job->streams) { /* nobody else runs the block with what became of it */
        span = sw_span_open("decode");
        sw_block_job_runs_on(job)->decode(w, &q, o->n_threads);
        sw_span_close(span, path);
    }
    span = sw_span_open("hand on");
    rc = job->sink->take ? job->sink->take(job->sink->self, ref, path, &q, &report, err)
                         : job->sink->put(job->sink->self, ref, path, &q, &report, err);
    sw_span_close(span, path);
done:
    sw_qtensor_free(&q);
    sw_mem_put(importance);
    sw_target_shift_free(shift, shared->factor);
    return rc;
}

static sw_code solve_linear(sw_block_job *job, int64_t i, const shared_stats *shared, sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    sw_span span = sw_span_open("load weight");
    float *w = NULL;
    char path[256];
    sw_code rc;

    (void)sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert);
    rc = get_room(&w, job, ref, err);
    if (rc == SW_OK) rc = load_weight(w, job, ref, err);
    sw_span_close(span, path);
    if (rc == SW_OK) rc = solve_loaded(job, i, path, w, shared, err);
    if (rc == SW_OK && job->streams) {
        sw_block_job_use(job, i, w);
        return SW_OK;
    }
    sw_err_prefix(err, "%s", path);
    if (w != job->spare) sw_mem_put(w);
    return rc;
}

static bool shares(const sw_linear_ref *ref, sw_site site, int64_t expert)
{
    return ref->site == site && (expert < 0 || ref->expert == expert);
}

/* GAR keeps groups together in the order of solving, so one order cannot serve two sizes. */
static sw_code shared_group(int64_t *out, const sw_block_job *job, sw_site site, int64_t expert,
                            sw_err *err)
{
    int64_t first = -1;

    for (int64_t i = 0; i < job->n_linears; i++) {
        if (!shares(&job->linears[i], site, expert)) continue;
        if (first < 0) first = i;
        if (job->options->order == SW_ORDER_GAR &&
            job->specs[i].group_elems != job->specs[first].group_elems)
            return SW_FAIL(err, SW_E_UNSUPPORTED,
                           "block %lld: linears that share an input have groups of %lld and of "
                           "%lld; act-order gar wants one size, static takes any",
                           (long long)job->linears[i].layer,
                           (long long)job->specs[first].group_elems,
                           (long long)job->specs[i].group_elems);
    }
    *out = first < 0 ? 0 : job->specs[first].group_elems;
    return SW_OK;
}

/* A factor, or the reason why there is none. */
static sw_code try_factor(sw_factor *factor, bool *can, shared_stats *shared,
                          const sw_hessian *h, const sw_quant_options *o, int64_t group_elems,
                          sw_err *err)
{
    sw_factor_options fo = {o->order, group_elems, o->damp};
    sw_err local = {0};
    sw_code rc;

    *can = false;
    if (!(shared->shared_weight > 0) &&
        (double)h->n_tokens < TOKENS_PER_INPUT_MIN * (double)h->k_in) {
        (void)snprintf(shared->why_not, sizeof shared->why_not,
                       "only %lld calibration tokens for %lld inputs", (long long)h->n_tokens,
                       (long long)h->k_in);
        return SW_OK;
    }
    rc = sw_factor_new(factor, h, &fo, &local);
    if (rc == SW_E_FORMAT) /* indefinite: fall back, loudly */
        (void)snprintf(shared->why_not, sizeof shared->why_not, "%.110s", local.text);
    else if (rc != SW_OK)
        return SW_FAIL(err, rc, "%s", local.text);
    *can = rc == SW_OK;
    return SW_OK;
}

/* Strengths for every linear of a site, before the kept-back tokens join the rest. */
static sw_code choose_strengths(sw_strengths *out, const sw_block_job *job, sw_site site,
                                const sw_factor *factor, const sw_hessian *seen,
                                const sw_hessian *held, sw_err *err)
{
    const sw_span span = sw_span_open("strengths");
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++) {
        const sw_linear_ref *ref = &job->linears[i];
        float *w = NULL;
        char path[256];
        if (!shares(ref, site, -1)) continue;
        rc = SW_MEM_GET(&w, ref->n_out * ref->k_in, "weight", err);
        if (rc == SW_OK) rc = load_weight(w, job, ref, err);
        if (rc == SW_OK)
            rc = sw_target_strengths(&out[i], factor, seen, held, w, ref->n_out, job->options->cap,
                                     err);
        if (rc != SW_OK && sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert))
            sw_err_prefix(err, "%s", path);
        sw_mem_put(w);
    }
    sw_span_close(span, NULL);
    return rc;
}

/* One expert: own statistics, all-token ones, or both, as the options say. */
static sw_code solve_expert(sw_block_job *job, sw_site site, int64_t expert, sw_expert_site *own,
                            const sw_hessian *all, shared_stats shared, sw_err *err)
{
    sw_experts policy = job->options->experts;
    sw_factor factor = {0};
    sw_hessian h = *all;
    int64_t group_elems = 0;
    bool can = false;
    sw_code rc;

    shared.shared_weight = policy == SW_EXPERTS_SHRINK ? own->weight : policy == SW_EXPERTS_ALL;
    if (policy != SW_EXPERTS_ALL) {
        if ((rc = sw_expert_blend(own->half, all, shared.shared_weight, err)) != SW_OK) return rc;
        h = own->half[0];
    }
    if ((rc = shared_group(&group_elems, job, site, expert, err)) != SW_OK) return rc;
    rc = try_factor(&factor, &can, &shared, &h, job->options, group_elems, err);
    if (rc != SW_OK) return rc;
    shared.factor = can ? &factor : NULL;
    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
        if (shares(&job->linears[i], site, expert)) rc = solve_linear(job, i, &shared, err);
    sw_factor_free(&factor);
    return rc;
}

/* Where an expert's statistics of a site are: beside what all experts share, if they do. */
static sw_place place_of_experts(const sw_block_job *job, sw_site site,
                                 const sw_site_stats *stats)
{
    bool wanted[SW_SITE_COUNT] = {false};

    wanted[site] = true;
    return site == SW_SITE_MLP_IN ? stats->site[site].place : sw_place_sites(job, wanted);
}

/* The experts of `part`: gate and up, which all read tokens of one site, or down. */
static sw_code solve_group(sw_block_job *job, sw_site site, sw_site_stats *stats,
                           sw_site_stats *part, const shared_stats *shared, sw_err *err)
{
    bool is_in = site == SW_SITE_MLP_IN;
    const sw_place at = place_of_experts(job, site, stats);
    sw_code rc = SW_OK;

    if (job->options->experts == SW_EXPERTS_SHRINK && !part->is_weighed)
        rc = sw_experts_weigh(part->experts, part->n_experts, &stats->site[SW_SITE_MLP_IN],
                              err);
    for (int64_t e = 0; e < part->n_experts && rc == SW_OK; e++) {
        sw_expert_stats *x = &part->experts[e];
        sw_expert_site *own = is_in ? &x->in : &x->down;
        shared_stats mine = *shared;
        mine.n_routed = x->n_tokens;
        if ((rc = sw_expert_stats_move(x, &at, err)) != SW_OK) break;
        rc = solve_expert(job, site, part->expert_begin + e, own,
                          is_in ? &stats->site[site] : own->all.k_in ? &own->all : &own->half[0],
                          mine, err);
        sw_expert_stats_free(x);
    }
    return rc;
}

/* In memory for now: solve_group moves one expert at a time. */
static sw_code read_experts(sw_site_stats *out, const sw_block_job *job, sw_site site,
                            int64_t begin, int64_t end, sw_err *err)
{
    sw_code rc = sw_stats_read_experts(out, job->stats_file, job->model, job->original.layer, site,
                                       job->options, begin, end, err);

    if (rc == SW_OK) sw_site_scales_apply(out, &job->scales);
    return rc;
}

/* Statistics of some experts, from where they come from. */
static sw_code experts_of(sw_site_stats *out, const sw_block_job *job, sw_site site,
                          const sw_site_stats *stats, int64_t begin, int64_t end, sw_err *err)
{
    const sw_quant_options *o = job->options;
    int64_t layer = job->original.layer;
    const sw_place at = place_of_experts(job, site, stats);
    bool wanted[SW_SITE_COUNT] = {false};
    sw_code rc;

    if (job->stats_file)
        return read_experts(out, job, site, begin, end, err);
    wanted[site] = true;
    rc = sw_site_stats_new_experts(out, job->model, layer, wanted, o->experts, begin, end,
                                   &at, err);
    if (rc != SW_OK) return rc;
    out->act[site] = stats->act[site];
    out->input_scale[site] = stats->input_scale[site];
    rc = sw_streams_observe(job->streams, out, &job->quantized, &job->original, job->progress, err);
    if (rc != SW_OK) sw_site_stats_free(out);
    return rc;
}

/* All experts of a layer, so many at a time as memory may hold. */
static sw_code solve_experts(sw_block_job *job, sw_site site, sw_site_stats *stats,
                             const shared_stats *shared, sw_err *err)
{
    const sw_place memory = sw_place_cpu(job->options->n_threads);
    const sw_place at = job->stats_file ? memory : place_of_experts(job, site, stats);
    bool wanted[SW_SITE_COUNT] = {false};
    int64_t n = job->model->n_experts, n_at_a_time;
    sw_code rc = SW_OK;

    wanted[site] = true;
    n_at_a_time = sw_experts_at_a_time(job->model, job->original.layer, wanted,
                                       job->options->experts, &at);
    for (int64_t begin = 0; begin < n && rc == SW_OK; begin += n_at_a_time) {
        sw_site_stats part;
        rc = experts_of(&part, job, site, stats, begin, sw_min_i64(begin + n_at_a_time, n), err);
        if (rc != SW_OK) break;
        rc = solve_group(job, site, stats, &part, shared, err);
        sw_site_stats_free(&part);
    }
    return rc;
}

static bool is_by_expert(const sw_block_job *job, sw_site site)
{
    if (!sw_model_is_sparse(job->model, job->original.layer)) return false;
    return site == SW_SITE_DOWN_IN ||
           (site == SW_SITE_MLP_IN && job->options->experts != SW_EXPERTS_ALL);
}

/* Factorize what the linears of a site share, and solve them. The tokens kept back are merged
 * for the factor; cross terms meet only after the choice. */
static sw_code solve_site(sw_block_job *job, sw_site site, sw_site_stats *stats, sw_err *err)
{
    sw_hessian *hess = &stats->site[site];
    const sw_hessian *held = &stats->held[site];
    bool with_cross = hess->d && held->n_tokens > 0, can = false;
    bool by_expert = is_by_expert(job, site);
    sw_hessian seen = *hess;
    shared_stats shared = {.all = hess, .n_routed = -1};
    sw_strengths *strengths = NULL;
    sw_factor factor = {0};
    int64_t group_elems = 0;
    sw_code rc = shared_group(&group_elems, job, site, -1, err);

    if (rc != SW_OK) return rc;
    if (with_cross) {
        rc = SW_MEM_GET(&strengths, job->n_linears, "strengths", err);
        if (rc != SW_OK) goto done;
        if ((rc = sw_hessian_merge_inputs(hess, held, err)) != SW_OK) goto done;
    }
    rc = try_factor(&factor, &can, &shared, hess, job->options, group_elems, err);
    if (rc != SW_OK) goto done;
    if (can && with_cross) {
        rc = choose_strengths(strengths, job, site, &factor, &seen, held, err);
        if (rc != SW_OK) goto done;
        if ((rc = sw_hessian_merge_cross(hess, held, err)) != SW_OK) goto done;
        shared.strengths = strengths;
    }
    if (can) shared.factor = &factor;
    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
        if (job->linears[i].site == site && !(by_expert && job->linears[i].expert >= 0))
            rc = solve_linear(job, i, &shared, err); /* the shared expert's among them */
    if (by_expert && rc == SW_OK) {
        shared.cross = shared.factor;
        rc = solve_experts(job, site, stats, &shared, err);
    }
done:
    sw_mem_put(strengths);
    sw_factor_free(&factor);
    return rc;
}

sw_code sw_solve_sites(sw_block_job *job, sw_site_stats *stats, sw_err *err)
{
    const shared_stats none = {.n_routed = -1};
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (!stats->is_wanted[site]) continue;
        if (site == SW_SITE_DOWN_IN && is_by_expert(job, SW_SITE_DOWN_IN))
            rc = solve_experts(job, SW_SITE_DOWN_IN, stats, &none, err);
        else
            rc = solve_site(job, (sw_site)site, stats, err);
    }
    return rc;
}

sw_code sw_solve_without_stats(sw_block_job *job, sw_err *err)
{
    const shared_stats none = {.n_routed = -1};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
        rc = solve_linear(job, i, &none, err);
    return rc;
}
