/* block_solve.c - the solving of a block's linears: what they share, and what an expert gets. See
 * block_job.h; linear_solve.h does one of them.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/lanes.h"
#include "quant/run/linear_solve.h"
#include "quant/run/share.h"
#include "quant/run/weights_ahead.h"
#include "quant/stats/ranges.h"
#include "quant/stats/stats.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

/* Statistics without anything to lean on are trusted from this many tokens per input channel. */
#define TOKENS_PER_INPUT_MIN 0.25

/* Linears that share statistics, as items of lanes. */
typedef struct site_work {
    sw_block_job *job;
    const sw_shared_stats *shared;
    const int64_t *linear; /* which of the job's */
    sw_solved *out;        /* likewise */
} site_work;

static sw_code work_linear(void *self, int64_t item, const sw_place *at, sw_err *err)
{
    site_work *s = self;

    return sw_linear_solve(&s->out[item], s->job, s->linear[item], s->shared, at, err);
}

static sw_code done_linear(void *self, int64_t item, sw_err *err)
{
    site_work *s = self;

    return sw_linear_hand_on(&s->out[item], s->job, s->linear[item], err);
}

/* First every rank solves what is its own of them, since none can wait for another in a lane; then
 * all get all of them, and hand them on in one order. */
static sw_code hand_on_shared(const site_work *s, int64_t n, sw_err *err)
{
    const sw_quant_options *options = s->job->options;
    sw_share_item *items = NULL;
    sw_code rc = SW_MEM_GET(&items, n, "rows of ranks", err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        items[i] = (sw_share_item){s->linear[i], &s->out[i].q, s->out[i].figures,
                                   &s->out[i].report};
    if (rc == SW_OK) rc = sw_share_gather(items, n, s->shared->share, options->team, err);
    sw_mem_put(items);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_linear_finish(&s->out[i], s->job, s->linear[i], options->n_threads);
        rc = sw_linear_hand_on(&s->out[i], s->job, s->linear[i], err);
    }
    return rc;
}

/* Solve linears beside each other and hand them out, in their order. loaded [n_linears], or NULL:
 * weights that were loaded before, which are taken over. */
static sw_code solve_beside(sw_block_job *job, const int64_t *linear, int64_t n,
                            const sw_shared_stats *shared, float **loaded, sw_err *err)
{
    const sw_place at = shared->factor ? shared->factor->place : sw_options_place(job->options);
    sw_shared_stats mine = *shared;
    site_work s = {.job = job, .shared = &mine, .linear = linear};
    sw_lane_work work = {.self = &s, .work = work_linear, .done = done_linear};
    sw_site_cut cut;
    sw_code rc = sw_site_cut_new(&cut, job, linear, n, &at, true, err);

    if (rc == SW_OK) rc = SW_MEM_GET(&s.out, n, "results", err);
    if (cut.linears) {
        mine.share = &cut.share;
        work.done = NULL;
    }

    for (int64_t i = 0; i < n; i++) /* its target */
        work.item_bytes = sw_max_i64(work.item_bytes, 8 * job->linears[linear[i]].n_out *
                                                          job->linears[linear[i]].k_in);

    for (int64_t i = 0; rc == SW_OK && loaded && i < n; i++) {
        s.out[i].w = loaded[linear[i]];
        loaded[linear[i]] = NULL;
        if (!s.out[i].w) s.out[i].w = sw_weights_ahead_take(job, linear[i]);
    }
    if (rc == SW_OK) rc = sw_lanes_run(&at, sw_lanes_for(job), n, &work, err);
    if (rc == SW_OK && cut.linears) rc = hand_on_shared(&s, n, err);
    for (int64_t i = 0; s.out && i < n; i++) sw_solved_free(&s.out[i], job);
    sw_mem_put(s.out);
    sw_site_cut_free(&cut);
    return rc;
}

/* The same of any linears of a site. Where weights use one room in turn, ranks share one linear
 * after the other. */
static sw_code solve_linears(sw_block_job *job, const int64_t *linear, int64_t n,
                             const sw_shared_stats *shared, float **loaded, sw_err *err)
{
    const bool is_beside = job->streams || sw_team_size(job->options->team) == 1;
    const int64_t step = is_beside ? n : 1;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i += step)
        rc = solve_beside(job, linear + i, step, shared, loaded, err);
    return rc;
}

/* GAR keeps groups together in the order of solving, so one order cannot serve two sizes. */
static sw_code shared_group(int64_t *out, const sw_block_job *job, sw_site site, int64_t expert,
                            sw_err *err)
{
    int64_t first = -1;

    for (int64_t i = 0; i < job->n_linears; i++) {
        if (!sw_is_of_site(&job->linears[i], site, expert)) continue;
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

/* The experts of a part, as items of lanes. */
typedef struct expert_work {
    sw_block_job *job;
    sw_site site;
    sw_site_stats *stats, *part;
    const sw_shared_stats *shared;
    const sw_place *at;     /* where sums are */
    sw_solved *out;         /* [n_linears] */
} expert_work;

/* Factorize what an expert is solved by: own statistics, all-token ones, or both, as the options
 * say. `mine` gets what its linears share. */
static sw_code factor_expert(sw_factor *factor, sw_shared_stats *mine, const expert_work *x,
                             int64_t expert, const sw_place *at, sw_err *err)
{
    sw_experts policy = x->job->options->experts;
    sw_expert_stats *e = &x->part->experts[expert - x->part->expert_begin];
    bool is_in = x->site == SW_SITE_MLP_IN, can = false;
    sw_expert_site *own = is_in ? &e->in : &e->down;
    const sw_hessian *all = is_in ? &x->stats->site[x->site]
                                  : own->all.k_in ? &own->all : &own->half[0];
    sw_hessian h = *all;
    int64_t group_elems = 0;
    sw_code rc;

    mine->n_routed = e->n_tokens;
    mine->shared_weight = policy == SW_EXPERTS_SHRINK ? own->weight : policy == SW_EXPERTS_ALL;
    if (policy != SW_EXPERTS_ALL) {
        for (int i = 0; i < 2; i++) sw_lane_enter(&own->half[i].place, at);
        if ((rc = sw_expert_blend(own->half, all, mine->shared_weight, err)) != SW_OK) return rc;
        h = own->half[0];
    }
    sw_lane_enter(&h.place, at);
    if ((rc = shared_group(&group_elems, x->job, x->site, expert, err)) != SW_OK) return rc;
    rc = try_factor(factor, &can, mine, &h, x->job->options, group_elems, err);
    mine->factor = can ? factor : NULL;
    return rc;
}

/* The rank that has an expert's sums, and solves it alone. */
static int owner_of(const expert_work *x, int64_t item)
{
    return sw_sums_owner(x->part->expert_begin + item, sw_team_size(x->job->options->team));
}

/* Room for what another rank makes of an expert, while this one solves others: memory that is new
 * to the process takes as long as its codes are on their way. */
static sw_code await_expert(const expert_work *x, int64_t item, const sw_place *at, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < x->job->n_linears && rc == SW_OK; i++)
        if (sw_is_of_site(&x->job->linears[i], x->site, x->part->expert_begin + item))
            rc = sw_linear_await(&x->out[i], x->job, i, at->n_threads, err);
    return rc;
}

static sw_code work_expert(void *self, int64_t item, const sw_place *at, sw_err *err)
{
    expert_work *x = self;
    int64_t expert = x->part->expert_begin + item;
    sw_shared_stats mine = *x->shared;
    sw_factor factor = {0};
    sw_code rc;

    if (owner_of(x, item) != sw_team_rank(x->job->options->team))
        return await_expert(x, item, at, err);
    rc = sw_expert_stats_move(&x->part->experts[item], x->at, err);
    if (rc == SW_OK) rc = factor_expert(&factor, &mine, x, expert, at, err);
    for (int64_t i = 0; i < x->job->n_linears && rc == SW_OK; i++) {
        if (!sw_is_of_site(&x->job->linears[i], x->site, expert)) continue;
        x->out[i].w = sw_weights_ahead_take(x->job, i);
        rc = sw_linear_solve(&x->out[i], x->job, i, &mine, at, err);
    }
    sw_factor_free(&factor);
    return rc;
}

static sw_code hand_on_expert(const expert_work *x, int64_t item, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < x->job->n_linears && rc == SW_OK; i++)
        if (sw_is_of_site(&x->job->linears[i], x->site, x->part->expert_begin + item))
            rc = sw_linear_hand_on(&x->out[i], x->job, i, err);
    return rc;
}

/* Of several ranks, when each has solved its own experts: all hear of all of them, and hand them on
 * in one order. */
static sw_code exchange_experts(const expert_work *x, sw_err *err)
{
    const sw_block_job *job = x->job;
    sw_solved_by *all = NULL;
    int64_t n = 0;
    sw_code rc = SW_MEM_GET(&all, job->n_linears, "experts of ranks", err);

    for (int64_t item = 0; item < x->part->n_experts && rc == SW_OK; item++)
        for (int64_t i = 0; i < job->n_linears; i++)
            if (sw_is_of_site(&job->linears[i], x->site, x->part->expert_begin + item))
                all[n++] = (sw_solved_by){i, owner_of(x, item)};
    if (rc == SW_OK) rc = sw_linears_exchange(x->out, x->job, all, n, err);
    sw_mem_put(all);
    return rc;
}

static sw_code done_expert(void *self, int64_t item, sw_err *err)
{
    const expert_work *x = self;
    sw_code rc = SW_OK;

    if (sw_team_size(x->job->options->team) == 1) rc = hand_on_expert(x, item, err);
    sw_expert_stats_free(&x->part->experts[item]);
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

/* The experts of `part`: gate and up, which all read tokens of one site, or down. Once they are
 * weighed their weights are wanted; the last of a layer want no prior any more. */
static sw_code solve_group(sw_block_job *job, sw_site site, sw_site_stats *stats,
                           sw_site_stats *part, const sw_shared_stats *shared, sw_prior *prior,
                           sw_weights_ahead *ahead, sw_err *err)
{
    const sw_place at = place_of_experts(job, site, stats);
    expert_work x = {.job = job, .site = site, .stats = stats, .part = part, .shared = shared,
                     .at = &at};
    int64_t k = sw_model_site_width(job->model, job->original.layer, site);
    const sw_lane_work work = {.self = &x, .item_bytes = 8 * SW_SOLVED_MATRICES * k * k,
                               .work = work_expert, .done = done_expert};
    sw_code rc = SW_MEM_GET(&x.out, job->n_linears, "results", err);

    if (rc == SW_OK && job->options->experts == SW_EXPERTS_SHRINK && !part->is_weighed)
        rc = sw_experts_weigh(part->experts, part->n_experts, &stats->site[SW_SITE_MLP_IN],
                              prior, err);
    if (part->expert_begin + part->n_experts >= job->model->n_experts) sw_prior_free(prior);
    sw_weights_ahead_stop(ahead);
    if (rc == SW_OK) rc = sw_lanes_run(&at, sw_lanes_for(job), part->n_experts, &work, err);
    if (rc == SW_OK && sw_team_size(job->options->team) > 1) rc = exchange_experts(&x, err);
    for (int64_t i = 0; x.out && i < job->n_linears; i++) sw_solved_free(&x.out[i], job);
    sw_mem_put(x.out);
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
    sw_span span;
    sw_code rc;

    if (job->stats_file)
        return read_experts(out, job, site, begin, end, err);
    wanted[site] = true;
    span = sw_span_open("room for sums");
    rc = sw_site_stats_new_experts(out, job->model, layer, wanted, o->experts, begin, end,
                                   &at, err);
    sw_span_close(span, NULL);
    if (rc != SW_OK) return rc;
    out->act[site] = stats->act[site];
    out->input_scale[site] = stats->input_scale[site];
    rc = sw_streams_observe(job->streams, out, &job->quantized, sw_block_job_original(job),
                            job->progress, err);
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
    sw_prior prior = {0};
    const bool goes_on = sw_experts_go_on(job->options->experts, sw_backend_of(&at));
    int64_t n = job->model->n_experts, n_at_a_time;
    sw_code rc = SW_OK;

    wanted[site] = true;
    n_at_a_time = sw_experts_at_a_time(job->model, job->original.layer, wanted,
                                       job->options->experts,
                                       job->streams ? sw_streams_sums_alive(job->streams, goes_on)
                                                    : 1,
                                       sw_team_size(job->options->team), &at);
    rc = sw_team_least(job->options->team, &n_at_a_time, err); /* all ranks take as many */
    for (int64_t begin = 0; begin < n && rc == SW_OK; begin += n_at_a_time) {
        const int64_t end = sw_min_i64(begin + n_at_a_time, n);
        sw_weights_ahead ahead = {.job = NULL};
        sw_site_stats part;

        if (job->streams) sw_weights_ahead_begin_experts(&ahead, job, wanted, begin, end);
        rc = experts_of(&part, job, site, stats, begin, end, err);
        if (rc == SW_OK && site == SW_SITE_DOWN_IN && end >= n) sw_block_job_is_seen(job);
        if (rc == SW_OK) {
            rc = solve_group(job, site, stats, &part, shared, &prior, &ahead, err);
            sw_site_stats_free(&part);
        }
        sw_weights_ahead_stop(&ahead);
    }
    sw_prior_free(&prior);
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
    sw_shared_stats shared = {.all = hess, .n_routed = -1};
    sw_strengths *strengths = NULL;
    sw_factor factor = {0};
    int64_t group_elems = 0, *linear = NULL, n = 0;
    float **loaded = NULL;
    sw_code rc = shared_group(&group_elems, job, site, -1, err);

    if (rc != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&linear, job->n_linears, "linears of a site", err)) != SW_OK ||
        (rc = SW_MEM_GET(&loaded, job->n_linears, "linears of a site", err)) != SW_OK)
        goto done;
    if (with_cross) {
        rc = SW_MEM_GET(&strengths, job->n_linears, "strengths", err);
        if (rc != SW_OK) goto done;
        if ((rc = sw_hessian_merge_inputs(hess, held, err)) != SW_OK) goto done;
    }
    rc = try_factor(&factor, &can, &shared, hess, job->options, group_elems, err);
    if (rc != SW_OK) goto done;
    if (can && with_cross) {
        rc = sw_strengths_find(strengths, loaded, job, site, &factor, &seen, held, err);
        if (rc != SW_OK) goto done;
        if ((rc = sw_hessian_merge_cross(hess, held, err)) != SW_OK) goto done;
        shared.strengths = strengths;
    }
    if (can) shared.factor = &factor;
    for (int64_t i = 0; i < job->n_linears; i++)
        if (job->linears[i].site == site && !(by_expert && job->linears[i].expert >= 0))
            linear[n++] = i; /* the shared expert's among them */
    rc = solve_linears(job, linear, n, &shared, loaded, err);
    if (by_expert && rc == SW_OK) {
        shared.cross = shared.factor;
        rc = solve_experts(job, site, stats, &shared, err);
    }
done:
    for (int64_t i = 0; loaded && i < job->n_linears; i++)
        sw_weight_room_put(job->rooms, loaded[i]);
    sw_mem_put(loaded);
    sw_mem_put(linear);
    sw_mem_put(strengths);
    sw_factor_free(&factor);
    return rc;
}

sw_code sw_solve_sites(sw_block_job *job, sw_site_stats *stats, sw_err *err)
{
    const sw_shared_stats none = {.n_routed = -1};
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
    const sw_shared_stats none = {.n_routed = -1};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
        rc = solve_linears(job, &i, 1, &none, NULL, err);
    return rc;
}
