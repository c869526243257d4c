/* linear_solve.c - see linear_solve.h. */
#include "quant/run/linear_solve.h"

#include <math.h>
#include <stdio.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/pow2.h"
#include "quant/lanes.h"
#include "quant/method/frame.h"
#include "quant/method/target.h"
#include "quant/method/weight_rows.h"
#include "quant/run/share.h"
#include "quant/search/outliers.h"
#include "quant/team/team.h"

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

/* How rows are solved. */
typedef struct row_solver {
    const sw_algo *algo;
    const char *why_not; /* there is no factor */
    const char *path;
} row_solver;

/* Solve with `algo`; a Hessian that cannot serve falls back to rounding and says so. */
static sw_code solve_rows(sw_qtensor *q, const sw_solve_problem *p, void *self,
                          sw_solve_report *report, sw_err *err)
{
    const row_solver *by = self;
    const sw_span span = sw_span_open("solve");
    sw_code rc;

    report->error = report->error_rtn = -1;
    report->is_fallback = by->algo->needs_statistics && !p->factor;
    if (report->is_fallback)
        (void)snprintf(report->why, sizeof report->why, "%s", by->why_not);
    rc = sw_outliers_solve(q, p, report->is_fallback ? sw_rtn_solve : by->algo->solve, report,
                           err);
    sw_span_close(span, by->path);
    return rc;
}

/* The original weight, as the block has it. */
static const sw_weight *stored(const sw_block_job *job, const sw_linear_ref *ref)
{
    return sw_block_weight((sw_block *)(uintptr_t)&job->original, ref->slot, ref->expert);
}

sw_code sw_linear_load(float *w, const sw_block_job *job, const sw_linear_ref *ref,
                           int n_threads, sw_err *err)
{
    return sw_weight_load(w, stored(job, ref), ref->n_out, ref->k_in, n_threads, err);
}

sw_code sw_linear_load_rows(float *w, const sw_block_job *job, const sw_linear_ref *ref,
                            const sw_row_sample *rows, sw_err *err)
{
    const int64_t n = sw_row_sample_count(rows);
    sw_row_run run;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i += run.n) {
        run = sw_row_sample_run(rows, i, n);
        rc = sw_weight_load_finite_rows(w + run.row * ref->k_in, stored(job, ref), run.row, run.n,
                                        err);
    }
    return rc;
}

/* Room for a weight that stays with the block when it is run on, else for the largest, which all
 * use in turn. */
static sw_code get_room(float **out, const sw_block_job *job, const sw_linear_ref *ref,
                        int n_threads, sw_err *err)
{
    int64_t n = ref->n_out * ref->k_in;

    for (int64_t i = 0; i < job->n_linears && !job->streams; i++)
        n = sw_max_i64(n, job->linears[i].n_out * job->linears[i].k_in);
    return sw_weight_room_take(out, job->rooms, n, n_threads, err);
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

void sw_solved_free(sw_solved *out, const sw_block_job *job)
{
    sw_qtensor_free(&out->q);
    sw_mem_put(out->figures);
    out->figures = NULL;
    sw_weight_room_put(job->rooms, out->w);
    out->w = NULL;
}

/* The factor as a lane uses it. */
sw_factor sw_factor_in(const sw_factor *factor, const sw_place *at)
{
    sw_factor mine = *factor;

    sw_lane_enter(&mine.place, at);
    return mine;
}

/* What these rows should compute instead of the weight, where that was chosen; else NULL. */
static sw_code aim(double **shift, sw_solve_report *report, const sw_solve_problem *p,
                   sw_rows rows, int64_t i, const sw_shared_stats *shared, sw_err *err)
{
    const sw_hessian all = shared->all ? sw_share_hessian(shared->all, rows, p->n_out)
                                       : (sw_hessian){0};
    const int64_t n = rows.end - rows.begin;
    sw_factor cross;
    sw_code rc;

    if (!p->factor || !shared->strengths) return SW_OK;
    cross = sw_factor_in(shared->cross ? shared->cross : shared->factor, &p->place);
    report->input_strength = shared->strengths[i].input;
    report->residual_strength = shared->strengths[i].residual;
    if (!n) return SW_OK;
    if ((rc = sw_target_shift_new(shift, p->factor, n, err)) != SW_OK) return rc;
    return sw_target_shift(*shift, &cross, &all, p->w + rows.begin * p->k_in, n,
                           shared->strengths[i], err);
}

/* For whoever runs the block with what became of it. */
static void decode(sw_solved *out, const sw_block_job *job, int n_threads, const char *path)
{
    const sw_span span = sw_span_open("decode");

    sw_block_job_runs_on(job)->decode(out->w, &out->q, n_threads);
    sw_span_close(span, path);
}

void sw_linear_finish(sw_solved *out, const sw_block_job *job, int64_t i, int n_threads)
{
    const sw_linear_ref *ref = &job->linears[i];
    char path[256];

    (void)sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert);
    scale_range(&out->report, &out->q);
    count_exponents(&out->report, &out->q, out->w);
    if (job->streams) decode(out, job, n_threads, path);
}

/* Room for what rows cost: ranks add that up when they have all of them. */
static sw_code get_figures(sw_solved *out, const sw_solve_problem *p, sw_err *err)
{
    return p->factor ? SW_MEM_GET(&out->figures, p->n_out, "figures of rows", err) : SW_OK;
}

/* Aim and solve. */
static sw_code solve_loaded(sw_solved *out, const sw_block_job *job, int64_t i, const char *path,
                            const sw_shared_stats *shared, const sw_place *at, sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    const sw_factor factor = shared->factor ? sw_factor_in(shared->factor, at) : (sw_factor){0};
    sw_solve_problem p = {.w = out->w, .n_out = ref->n_out, .k_in = ref->k_in,
                          .spec = job->specs[i], .factor = shared->factor ? &factor : NULL,
                          .refine_rounds = job->options->refine_rounds,
                          .n_threads = at->n_threads, .place = *at};
    const sw_rows rows = shared->share ? sw_site_share_rows(shared->share, i,
                                                            sw_team_rank(job->options->team))
                                       : (sw_rows){0, ref->n_out};
    row_solver by = {job->options->algo, shared->why_not, path};
    double *shift = NULL, *importance = NULL;
    sw_code rc;

    out->report = (sw_solve_report){.n_routed = shared->n_routed,
                                    .shared_weight = shared->shared_weight};
    if ((rc = sw_qtensor_alloc_wide(&out->q, &p.spec, ref->n_out, ref->k_in, at->n_threads,
                                    err)) != SW_OK ||
        (rc = take_importance(&importance, job, ref, err)) != SW_OK ||
        (rc = take_input_scale(&out->q, job, ref, err)) != SW_OK ||
        (rc = find_fused_amax(&p.fused_amax, job, i, err)) != SW_OK ||
        (shared->share && (rc = get_figures(out, &p, err)) != SW_OK) ||
        (rc = aim(&shift, &out->report, &p, rows, i, shared, err)) != SW_OK)
        goto done;
    p.importance = importance;
    rc = sw_share_solve(&out->q, &p, rows, out->figures, shift, solve_rows, &by, &out->report, err);
    if (rc == SW_OK && !shared->share) sw_linear_finish(out, job, i, at->n_threads);
done:
    sw_mem_put(importance);
    sw_target_shift_free(shift, p.factor);
    return rc;
}

sw_code sw_linear_solve(sw_solved *out, sw_block_job *job, int64_t i, const sw_shared_stats *shared,
                            const sw_place *at, sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    sw_span span = sw_span_open("load weight");
    char path[256];
    sw_code rc = SW_OK;

    (void)sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert);
    if (!out->w) {
        rc = get_room(&out->w, job, ref, at->n_threads, err);
        if (rc == SW_OK) rc = sw_linear_load(out->w, job, ref, at->n_threads, err);
        sw_span_close(span, path);
    }
    if (rc == SW_OK) rc = solve_loaded(out, job, i, path, shared, at, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    return rc;
}

/* Hand a linear out, and let the block use the quantized value. In the order of linears. */
sw_code sw_linear_hand_on(sw_solved *out, sw_block_job *job, int64_t i, sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    const sw_quant_sink *sink = job->sink;
    sw_span span = sw_span_open("hand on");
    char path[256];
    sw_code rc;

    (void)sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert);
    rc = sink->take ? sink->take(sink->self, ref, path, &out->q, &out->report, err)
                    : sink->put(sink->self, ref, path, &out->q, &out->report, err);
    sw_span_close(span, path);
    if (rc == SW_OK && job->streams) {
        sw_block_job_use(job, i, out->w);
        out->w = NULL;
    }
    if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    sw_solved_free(out, job);
    return rc;
}

/* What ranks have solved alone, on its way to all of them. */
typedef struct exchange {
    sw_solved *out; /* [n_linears of the job] */
    sw_block_job *job;
    const sw_solved_by *all;
} exchange;

static bool is_mine(const exchange *e, int64_t i)
{
    return e->all[i].rank == sw_team_rank(e->job->options->team);
}

sw_code sw_linear_await(sw_solved *out, const sw_block_job *job, int64_t i, int n_threads,
                        sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    const sw_span span = sw_span_open("room for codes");
    char path[256] = "";
    sw_code rc = sw_qtensor_alloc_wide(&out->q, &job->specs[i], ref->n_out, ref->k_in, n_threads,
                                       err);

    if (rc == SW_OK && job->streams) rc = get_room(&out->w, job, ref, n_threads, err);
    if (sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert) && rc != SW_OK)
        sw_err_prefix(err, "%s", path);
    sw_span_close(span, path);
    return rc;
}

/* When it is there, its values for whoever runs the block. */
static void decode_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const exchange *e = ctx;
    char path[256];

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const sw_linear_ref *ref = &e->job->linears[e->all[i].linear];

        if (is_mine(e, i)) continue;
        (void)sw_model_slot_path(path, e->job->model, ref->layer, ref->slot, ref->expert);
        decode(&e->out[e->all[i].linear], e->job, 1, path);
    }
}

static sw_code share_all(const exchange *e, int64_t n, sw_err *err)
{
    sw_share_whole *items = NULL;
    sw_code rc = SW_MEM_GET(&items, n, "tensors of ranks", err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_solved *out = &e->out[e->all[i].linear];

        items[i] = (sw_share_whole){&out->q, &out->report, e->all[i].rank};
    }
    if (rc == SW_OK) rc = sw_share_tensors(items, n, e->job->options->team, err);
    sw_mem_put(items);
    return rc;
}

sw_code sw_linears_exchange(sw_solved *out, sw_block_job *job, const sw_solved_by *all, int64_t n,
                            sw_err *err)
{
    const sw_span span = sw_span_open("exchange");
    exchange e = {out, job, all};
    sw_code rc = share_all(&e, n, err);

    if (rc == SW_OK && job->streams)
        sw_parallel_for(job->options->n_threads, n, 1, decode_some, &e);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = sw_linear_hand_on(&out[all[i].linear], job, all[i].linear, err);
    sw_span_close(span, NULL);
    return rc;
}

bool sw_is_of_site(const sw_linear_ref *ref, sw_site site, int64_t expert)
{
    return ref->site == site && (expert < 0 || ref->expert == expert);
}

int sw_lanes_for(const sw_block_job *job)
{
    return job->streams && !job->options->importance ? SW_LANES_ANY : 1;
}

sw_code sw_site_cut_new(sw_site_cut *out, const sw_block_job *job, const int64_t *linear,
                        int64_t n, const sw_place *at, bool is_solved, sw_err *err)
{
    const sw_backend *backend = sw_backend_of(at);
    const int n_ranks = sw_team_size(job->options->team);
    sw_code rc;

    *out = (sw_site_cut){.linears = NULL};
    if (n_ranks == 1) return SW_OK;
    rc = SW_MEM_GET(&out->linears, job->n_linears, "rows of ranks", err);
    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) {
        const sw_linear_ref *ref = &job->linears[linear[i]];
        const sw_row_sample rows = sw_strength_rows(ref->n_out, ref->expert >= 0);

        out->linears[linear[i]] =
            is_solved ? (sw_share_linear){ref->n_out, sw_share_unit(&job->specs[linear[i]],
                                                                    ref->n_out, backend)}
                      : (sw_share_linear){sw_row_sample_count(&rows), backend->rows_together};
    }
    out->share = sw_site_share_of(out->linears, job->n_linears, n_ranks);
    return SW_OK;
}

void sw_site_cut_free(sw_site_cut *cut) { sw_mem_put(cut->linears); }
