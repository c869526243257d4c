/* block_solve.c - the solving of a block's linears: what they share, what they aim at, what an
 * expert gets. See block_job.h.
 */
#include <stdio.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/run/linear_solve.h"
#include "quant/run/share.h"
#include "quant/stats/ranges.h"
#include "quant/stats/stats.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

/* Statistics without anything to lean on are trusted from this many tokens per input channel. */
#define TOKENS_PER_INPUT_MIN 0.25

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
static sw_code try_factor(sw_factor *factor, bool *can, sw_shared_stats *shared,
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
        if (rc == SW_OK) rc = sw_linear_load(w, job, ref, err);
        if (rc == SW_OK)
            rc = sw_share_strengths(&out[i], factor, seen, held, w, ref->n_out, job->options->cap,
                                    job->options->team, err);
        if (rc != SW_OK && sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert))
            sw_err_prefix(err, "%s", path);
        sw_mem_put(w);
    }
    sw_span_close(span, NULL);
    return rc;
}

/* One expert: own statistics, all-token ones, or both, as the options say. kept [n_linears]: what
 * becomes of its linears stays there; NULL: it is handed on. */
static sw_code solve_expert(sw_block_job *job, sw_site site, int64_t expert, sw_expert_site *own,
                            const sw_hessian *all, sw_shared_stats shared, sw_solution *kept,
                            sw_err *err)
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
        if (shares(&job->linears[i], site, expert))
            rc = kept ? sw_linear_keep(&kept[i], job, i, &shared, err)
                      : sw_linear_solve(job, i, &shared, err);
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

/* The experts of `part` that this rank owns: gate and up, which all read tokens of one site, or
 * down. */
static sw_code solve_owned(sw_solution *kept, sw_block_job *job, sw_site site,
                           sw_site_stats *stats, sw_site_stats *part,
                           const sw_shared_stats *shared, sw_err *err)
{
    bool is_in = site == SW_SITE_MLP_IN;
    const sw_place at = place_of_experts(job, site, stats);
    const sw_team *team = job->options->team;
    sw_code rc = SW_OK;

    for (int64_t e = 0; e < part->n_experts && rc == SW_OK; e++) {
        sw_expert_stats *x = &part->experts[e];
        sw_expert_site *own = is_in ? &x->in : &x->down;
        sw_shared_stats mine = *shared;
        mine.n_routed = x->n_tokens;
        mine.team = NULL;
        if (sw_sums_owner(part->expert_begin + e, sw_team_size(team)) != sw_team_rank(team))
            continue;
        if ((rc = sw_expert_stats_move(x, &at, err)) != SW_OK) break;
        rc = solve_expert(job, site, part->expert_begin + e, own,
                          is_in ? &stats->site[site] : own->all.k_in ? &own->all : &own->half[0],
                          mine, kept, err);
        sw_expert_stats_free(x);
    }
    return rc;
}

/* All experts of `part`. Of several ranks each solves its own first. */
static sw_code solve_group(sw_block_job *job, sw_site site, sw_site_stats *stats,
                           sw_site_stats *part, const sw_shared_stats *shared, sw_err *err)
{
    const int n_ranks = sw_team_size(job->options->team);
    sw_solution *kept = NULL;
    sw_code rc = SW_OK;

    if (job->options->experts == SW_EXPERTS_SHRINK && !part->is_weighed)
        rc = sw_experts_weigh(part->experts, part->n_experts, &stats->site[SW_SITE_MLP_IN],
                              err);
    if (rc == SW_OK && n_ranks > 1)
        rc = SW_MEM_GET(&kept, job->n_linears, "solved experts", err);
    if (rc == SW_OK) rc = solve_owned(kept, job, site, stats, part, shared, err);
    for (int64_t e = 0; e < part->n_experts && kept && rc == SW_OK; e++)
        for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
            if (shares(&job->linears[i], site, part->expert_begin + e))
                rc = sw_linear_exchange(&kept[i], job, i,
                                        sw_sums_owner(part->expert_begin + e, n_ranks), err);
    for (int64_t i = 0; i < job->n_linears && kept; i++) sw_qtensor_free(&kept[i].q);
    sw_mem_put(kept);
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
                             const sw_shared_stats *shared, sw_err *err)
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
    sw_shared_stats shared = {.all = hess, .n_routed = -1, .team = job->options->team};
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
            rc = sw_linear_solve(job, i, &shared, err); /* the shared expert's among them */
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
    const sw_shared_stats none = {.n_routed = -1, .team = job->options->team};
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
    const sw_shared_stats none = {.n_routed = -1, .team = job->options->team};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
        rc = sw_linear_solve(job, i, &none, err);
    return rc;
}
