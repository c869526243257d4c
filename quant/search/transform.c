/* transform.c - see transform.h: which groups, in which order, and what becomes of a proposal. */
#include "quant/search/transform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/lanes.h"
#include "quant/method/row_share.h"
#include "quant/method/slab.h"
#include "quant/method/weight_rows.h"
#include "quant/search/fold.h"
#include "quant/team/team.h"

void sw_proposal_judge(sw_proposal *p, const sw_evidence *evidence, double unit, bool is_found)
{
    sw_verdict v = sw_evidence_judge(evidence);

    p->loss_before = v.before / unit;
    p->loss = v.after / unit;
    p->is_better = is_found && v.is_better;
    if (p->is_better) return;
    (void)snprintf(p->why_not, sizeof p->why_not,
                   "held-out windows do not improve: %.4g, without it %.4g%s", p->loss,
                   p->loss_before, v.after < v.before ? ", too little to be sure" : "");
}

void sw_scale_normalize(double *scale, int64_t k)
{
    double low = (double)INFINITY, high = 0, middle;

    for (int64_t j = 0; j < k; j++) {
        if (!(isfinite(scale[j]) && scale[j] > 0)) continue;
        low = fmin(low, scale[j]);
        high = fmax(high, scale[j]);
    }
    middle = sqrt(low) * sqrt(high);
    for (int64_t j = 0; j < k; j++) {
        bool is_sound = isfinite(scale[j]) && scale[j] > 0;
        scale[j] = is_sound ? scale[j] / middle : 1.0;
    }
}

void sw_group_values_free(float **values, const sw_group *group)
{
    for (int64_t i = 0; values && i < group->n_readers; i++)
        sw_backend_of(&group->place)->put(&group->place, values[i]);
    sw_mem_put(values);
}

sw_code sw_group_values_new(float ***out, const sw_group *group, sw_err *err)
{
    float **values = NULL;
    sw_code rc = SW_MEM_GET(&values, group->n_readers, "trial weights", err);

    for (int64_t i = 0; i < group->n_readers && rc == SW_OK; i++)
        rc = SW_PLACE_TAKE(&values[i], &group->place, sw_group_rows(group, i) * group->k,
                           "trial weights", err);
    if (rc == SW_OK) *out = values;
    else sw_group_values_free(values, group);
    return rc;
}

sw_code sw_group_agree(double *scale, const sw_group *group, sw_err *err)
{
    return sw_team_broadcast(group->options->team, 0, scale, (size_t)group->k * sizeof *scale, err);
}

sw_code sw_trial_block_new(sw_trial_block *out, const sw_group *group, sw_err *err)
{
    sw_trial_block b = {.group = group};
    sw_code rc = sw_backend_of(&group->place)->trial_new(&b, err);

    if (rc == SW_OK) *out = b;
    return rc;
}

void sw_trial_block_free(sw_trial_block *block)
{
    if (block->group) sw_backend_of(&block->group->place)->trial_free(block);
    memset(block, 0, sizeof *block);
}

sw_code sw_trial_block_lend(sw_trial_block *block, float *const *values, sw_err *err)
{
    return sw_backend_of(&block->group->place)->trial_lend(block, values, err);
}

sw_code sw_trial_block_output(float *y, const sw_trial_block *block, sw_block_probe_part part,
                              sw_err *err)
{
    return sw_backend_of(&block->group->place)->trial_output(y, block, part, err);
}

/* The readers of a group, as items of lanes. */
typedef struct reader_work {
    const sw_group *g;
    float *const *values;
    const double *scale;
    const sw_factor *factor;
    const sw_site_share *share;
} reader_work;

/* n rows of values -> their quantized ones, in place. */
static sw_code solve_values(float *values, int64_t n, const sw_group *g, int64_t i,
                            const sw_factor *factor, const sw_place *at, sw_err *err)
{
    const sw_quant_options *o = g->options;
    sw_factor mine = *factor; /* as this lane uses it */
    sw_solve_problem p = {.values = values, .n_out = n, .k_in = g->k,
                          .spec = g->specs[i], .factor = &mine, .place = *at,
                          .refine_rounds = o->refine_rounds, .n_threads = o->n_threads,
                          .is_trial = true};
    sw_solve_report report = {0};

    sw_lane_enter(&mine.place, at);
    return o->algo->solve(NULL, &p, &report, err);
}

/* Are scales found from all rows? */
static bool is_whole(const sw_qspec *spec)
{
    return spec->has_global || spec->scale_rows == SW_ROWS_ALL;
}

/* Ranks have each some rows of a reader, but for such. */
static bool is_cut(const sw_qspec *spec)
{
    return !is_whole(spec);
}

/* linears [n_readers]: which rows of its readers each rank has. */
static sw_site_share share_of(sw_share_linear *linears, const sw_group *g)
{
    for (int64_t i = 0; i < g->n_readers; i++)
        linears[i] = (sw_share_linear){
            is_cut(&g->specs[i]) ? sw_group_rows(g, i) : 0,
            sw_share_unit(&g->specs[i], sw_group_rows(g, i), sw_backend_of(&g->place))};
    return sw_site_share_of(linears, g->n_readers, sw_team_size(g->options->team));
}

static sw_rows rows_of(const sw_group *g, int64_t i, const sw_site_share *share, int rank)
{
    return is_cut(&g->specs[i]) ? sw_site_share_rows(share, i, rank)
                                : (sw_rows){0, sw_group_rows(g, i)};
}

/* This rank's rows of a reader. */
static sw_code solve_reader(void *self, int64_t i, const sw_place *at, sw_err *err)
{
    const reader_work *work = self;
    const sw_group *g = work->g;
    const sw_backend *backend = sw_backend_of(at);
    const double *scale = work->scale;
    const sw_rows rows = rows_of(g, i, work->share, sw_team_rank(g->options->team));
    const int64_t n = rows.end - rows.begin, k = g->k;
    float *values = work->values[i] + rows.begin * k;
    sw_code rc;

    if (!n) return SW_OK;
    rc = backend->scale(at, values, g->placed[i] + rows.begin * k, scale, n, k, false, err);
    if (rc == SW_OK) rc = solve_values(values, n, g, i, work->factor, at, err);
    if (rc == SW_OK && scale) rc = backend->scale(at, values, values, scale, n, k, true, err);
    return rc == SW_OK ? backend->finish(at, err) : rc;
}

/* The rows that each rank has solved, to all. */
static sw_code share_values(float *const *values, const sw_group *g, const sw_site_share *share,
                            sw_err *err)
{
    const sw_backend *backend = sw_backend_of(&g->place);
    sw_carrier *carrier = &g->probe->streams->carrier;
    sw_team *team = g->options->team;
    sw_code rc;

    if (sw_team_size(team) == 1) return SW_OK;
    rc = sw_carrier_for(carrier, &g->place, err);
    for (int64_t i = 0; i < g->n_readers; i++)
        for (int rank = 0; is_cut(&g->specs[i]) && rank < sw_team_size(team); rank++) {
            const sw_rows rows = rows_of(g, i, share, rank);
            const int64_t n_bytes = (rows.end - rows.begin) * g->k * (int64_t)sizeof **values;
            float *at = values[i] + rows.begin * g->k;

            if (rc != SW_OK || !n_bytes) continue;
            rc = rank == sw_team_rank(team)
                     ? backend->link_send(carrier->link, at, n_bytes, -1, err)
                     : backend->link_receive(carrier->link, at, n_bytes, rank, true, err);
        }
    return rc;
}

sw_code sw_group_solve(float *const *values, const sw_group *group, const double *scale,
                       sw_err *err)
{
    const sw_quant_options *o = group->options;
    sw_factor_options fo = {o->order, group->specs[0].group_elems, o->damp};
    sw_share_linear *linears = NULL;
    sw_site_share share = {0};
    sw_hessian hess = {0};
    sw_factor factor = {0};
    reader_work work = {group, values, scale, &factor, &share};
    const sw_lane_work lanes = {.self = &work, .work = solve_reader};
    const sw_span span = sw_span_open("search solve");
    sw_code rc = SW_MEM_GET(&linears, group->n_readers, "rows of ranks", err);

    if (rc == SW_OK) share = share_of(linears, group);
    if (rc == SW_OK) rc = sw_hessian_scaled(&hess, group->hess, scale, err);
    if (rc == SW_OK) rc = sw_factor_new(&factor, &hess, &fo, err);
    sw_hessian_free(&hess);
    if (rc == SW_OK)
        rc = sw_lanes_run(&group->place, SW_LANES_ANY, group->n_readers, &lanes, err);
    if (rc == SW_OK) rc = share_values(values, group, &share, err);
    sw_factor_free(&factor);
    sw_mem_put(linears);
    sw_span_close(span, NULL);
    return rc;
}

int64_t sw_group_solve_bytes(const sw_transform_need *need)
{
    int64_t k = need->k, one = 2 * need->n_max * k; /* codes and scales of one reader */
    int64_t slabs = need->n_threads * 8 * 10 * SW_SLAB_ROWS * k;

    /* the scaled Hessian beside the factor made from it, then the factor beside a solution */
    return need->is_solved ? sw_max_i64(24 * k * k, 16 * k * k + one + slabs) : one + slabs;
}

/* The selected linears that read a fold's site, with their weights. */
typedef struct readers {
    sw_linear_ref *refs;
    sw_qspec *specs;
    int64_t *n_tried; /* rows of each that trials solve */
    float **weights;
    float **placed;   /* the same, lent to `place` */
    sw_place place;
    int64_t n;
} readers;

static void readers_free(readers *r)
{
    for (int64_t i = 0; r->placed && i < r->n; i++)
        if (r->placed[i]) sw_backend_of(&r->place)->unlend(&r->place, r->placed[i]);
    for (int64_t i = 0; r->weights && i < r->n; i++) sw_mem_put(r->weights[i]);
    sw_mem_put(r->weights);
    sw_mem_put(r->n_tried);
    sw_mem_put(r->placed);
    sw_mem_put(r->refs);
    sw_mem_put(r->specs);
}

int64_t sw_transform_rows(const sw_transform *t, const sw_qspec *spec, int64_t n_out)
{
    const int64_t unit = sw_qspec_rows(spec, n_out);

    if (!t->rows_max || n_out <= t->rows_max || is_whole(spec)) return n_out;
    return sw_max_i64(1, t->rows_max / unit) * unit;
}

/* The rows that trials solve: all, or some at an even distance, in runs of what shares scales. */
static sw_code load_reader(readers *r, int64_t i, const sw_transform_job *job, sw_err *err)
{
    const sw_linear_ref *ref = &r->refs[i];
    const sw_weight *w = sw_block_weight(job->original, ref->slot, ref->expert);
    const int n_threads = job->options->n_threads;
    const int64_t n_out = ref->n_out, k = ref->k_in, unit = sw_qspec_rows(&r->specs[i], n_out);
    const int64_t n_tried = sw_transform_rows(job->options->algo->transform, &r->specs[i], n_out);
    sw_code rc = SW_MEM_GET_WIDE(&r->weights[i], n_tried * k, "weight", n_threads, err);

    r->n_tried[i] = n_tried;
    if (rc == SW_OK && n_tried == n_out)
        return sw_weight_load_finite(r->weights[i], w, n_threads, err);
    for (int64_t at = 0, n = n_tried / unit; at < n && rc == SW_OK; at++)
        rc = sw_weight_load_finite_rows(r->weights[i] + at * unit * k, w,
                                        at * (n_out / unit) / n * unit, unit, err);
    return rc;
}

static sw_code readers_new(readers *r, const sw_transform_job *job, const sw_fold *fold,
                           int64_t expert, sw_err *err)
{
    sw_code rc;

    if ((rc = SW_MEM_GET(&r->refs, job->n_linears, "readers", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->specs, job->n_linears, "readers", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->n_tried, job->n_linears, "readers", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->weights, job->n_linears, "readers", err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++) {
        const sw_linear_ref *ref = &job->linears[i];

        if (ref->site != fold->site || (expert >= 0 && ref->expert != expert)) continue;
        r->specs[r->n] = job->specs[i];
        r->refs[r->n++] = *ref;
        rc = load_reader(r, r->n - 1, job, err);
    }
    return rc;
}

static sw_code place_readers(readers *r, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&r->placed, r->n, "readers", err);

    for (int64_t i = 0; i < r->n && rc == SW_OK; i++)
        rc = sw_backend_of(&r->place)->lend(&r->placed[i], &r->place, r->weights[i],
                                            r->n_tried[i] * r->refs[i].k_in, "weights", err);
    return rc;
}

static void report_scale(sw_transform_report *r, const double *scale, int64_t k)
{
    r->scale_min = r->scale_max = scale[0];
    for (int64_t j = 1; j < k; j++) {
        r->scale_min = fmin(r->scale_min, scale[j]);
        r->scale_max = fmax(r->scale_max, scale[j]);
    }
}

static sw_code conclude(const sw_transform_job *job, const sw_group *g, const sw_proposal *p,
                        sw_err *err)
{
    sw_transform_report r = {.method = job->options->algo->transform->name,
                             .is_accepted = p->is_better, .loss_before = p->loss_before,
                             .loss = p->loss};
    sw_code rc = SW_OK;

    r.is_pow2 = sw_fold_needs_pow2(job, &g->fold, g->expert);
    (void)sw_model_slot_path(r.producer, job->model, job->original->layer, g->fold.producer,
                             g->expert);
    (void)snprintf(r.choice, sizeof r.choice, "%s", p->choice);
    (void)snprintf(r.why_not, sizeof r.why_not, "%s", p->why_not);
    report_scale(&r, p->scale, g->k);
    if (p->is_better) {
        const sw_span span = sw_span_open("search fold");

        rc = sw_fold_apply(job, &g->fold, g->expert, p->scale, g->k, err);
        sw_span_close(span, r.producer);
    }
    if (p->is_better && rc == SW_OK && job->scales)
        rc = sw_site_scales_add(job->scales, g->fold.site, g->expert, g->model->n_experts,
                                p->scale, g->k, err);
    if (rc == SW_OK && job->sink->transformed)
        rc = job->sink->transformed(job->sink->self, &r, err);
    return rc;
}

/* One group: propose, bring to what can be stored, judge, apply. */
static sw_code transform_group(const sw_transform_job *job, const sw_block_probe *probe,
                               const sw_fold *fold, int64_t expert, const sw_hessian *hess,
                               sw_err *err)
{
    readers r = {.place = *sw_block_probe_place(probe)};
    sw_proposal p = {0};
    bool can = false;
    sw_span span = sw_span_open("search weights");
    sw_code rc = readers_new(&r, job, fold, expert, err);
    sw_group g = {.model = job->model, .options = job->options, .fold = *fold, .expert = expert,
                  .k = hess->k_in, .readers = r.refs, .specs = r.specs, .n_readers = r.n,
                  .weights = r.weights, .place = r.place, .hess = hess, .probe = probe,
                  .original = job->original, .quantized = job->quantized, .job = job};

    if (rc != SW_OK || !r.n) goto done;
    if ((rc = sw_fold_is_possible(&can, job, fold, expert, err)) != SW_OK || !can) goto done;
    rc = place_readers(&r, err);
    sw_span_close(span, NULL);
    if (rc != SW_OK) goto done;
    g.placed = r.placed;
    g.n_tried = r.n_tried;
    if ((rc = SW_MEM_GET(&p.scale, g.k, "scale", err)) != SW_OK) goto done;
    for (int64_t j = 0; j < g.k; j++) p.scale[j] = 1.0;
    if ((rc = job->options->algo->transform->propose(&p, &g, err)) != SW_OK) goto done;
    rc = conclude(job, &g, &p, err);
done:
    sw_mem_put(p.scale);
    readers_free(&r);
    return rc;
}

/* The groups of experts [begin, end) of a fold, or its one group, with the sums that they are
 * searched by. */
static sw_code transform_groups(const sw_transform_job *job, const sw_block_probe *probe,
                                const sw_fold *fold, const bool wanted[SW_SITE_COUNT],
                                int64_t begin, int64_t end, sw_err *err)
{
    const int64_t layer = job->original->layer;
    const sw_place *at = sw_block_probe_place(probe);
    const sw_span span = sw_span_open("search sums");
    sw_site_stats stats;
    sw_code rc = fold->is_per_expert
                     ? sw_site_stats_new_experts(&stats, job->model, layer, wanted, SW_EXPERTS_ALL,
                                                 begin, end, at, err)
                     : sw_site_stats_new(&stats, job->model, layer, wanted, false,
                                         SW_EXPERTS_COUNT, at, err);

    if (rc != SW_OK) return rc;
    rc = sw_block_probe_hessians(&stats, probe, SW_BLOCK_PROBE_SEARCH, job->original, fold->site,
                                 err);
    sw_span_close(span, NULL);
    for (int64_t e = begin; e < end && rc == SW_OK; e++) {
        const int64_t expert = fold->is_per_expert ? e : -1;

        rc = transform_group(job, probe, fold, expert,
                             sw_block_probe_sum(&stats, fold->site, expert), err);
    }
    sw_block_probe_forget(probe);
    sw_site_stats_free(&stats);
    return rc;
}

/* Of many experts so many at a time as memory may hold. */
static sw_code transform_fold(const sw_transform_job *job, const sw_block_probe *probe,
                              const sw_fold *fold, sw_err *err)
{
    const int64_t n = fold->is_per_expert ? job->model->n_experts : 1;
    bool wanted[SW_SITE_COUNT] = {false}, is_read = false;
    int64_t n_at_a_time = 1;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < job->n_linears; i++)
        is_read = is_read || job->linears[i].site == fold->site;
    if (!is_read) return SW_OK; /* nothing that reads the site is quantized */
    wanted[fold->site] = true;
    if (fold->is_per_expert) {
        n_at_a_time = sw_experts_at_a_time(job->model, job->original->layer, wanted,
                                           SW_EXPERTS_ALL,
                                           sw_streams_sums_alive(job->streams, false),
                                           sw_team_size(job->options->team),
                                           sw_block_probe_place(probe));
        rc = sw_team_least(job->options->team, &n_at_a_time, err); /* all ranks take as many */
    }
    for (int64_t e = 0; e < n && rc == SW_OK; e += n_at_a_time)
        rc = transform_groups(job, probe, fold, wanted, e, sw_min_i64(e + n_at_a_time, n), err);
    return rc;
}

/* A fold is settled at the first site that it touches: rows are scaled before they are solved. */
static bool is_due(const sw_transform_job *job, const sw_fold *fold,
                   const bool is_wanted[SW_SITE_COUNT])
{
    sw_site at = fold->kind == SW_FOLD_ROWS ? fold->producer_site : fold->site;

    if (fold->kind == SW_FOLD_ROWS && !job->options->algo->transform->is_for_rows) return false;
    return is_wanted[at];
}

sw_code sw_transform_sites(const sw_transform_job *job, const bool is_wanted[SW_SITE_COUNT],
                           sw_err *err)
{
    sw_fold folds[SW_FOLDS_MAX];
    int n = sw_model_folds(folds, job->model, job->original->layer);
    sw_block_probe probe = {0};
    sw_code rc;

    if ((rc = sw_block_probe_new(&probe, job->streams, err)) != SW_OK) return rc;
    for (int i = 0; i < n && rc == SW_OK; i++)
        if (is_due(job, &folds[i], is_wanted)) rc = transform_fold(job, &probe, &folds[i], err);
    sw_streams_forget(job->streams);
    sw_block_probe_free(&probe);
    return rc;
}

sw_code sw_score_scale(double **out, const sw_score_job *job, int which, sw_err *err)
{
    int64_t k = job->k;
    double *scale = NULL;
    sw_code rc = SW_MEM_GET(&scale, 2 * k, "scale", err);

    if (rc != SW_OK) return rc;
    job->scale_of(scale, job->self, which);
    for (int64_t j = 0; j < k; j++) scale[k + j] = job->worth[j] / (scale[j] * scale[j]);
    *out = scale;
    return SW_OK;
}
