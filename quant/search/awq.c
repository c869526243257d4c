/* awq.c - scales that give the channels that matter a finer grid.
 *
 * After "AWQ" (Lin et al., arXiv 2306.00978): s = a^r, or a^r / w^(1-r) with the mean relative
 * size w of the weights reading the channel, r on a grid. What is different here:
 *  - what a channel is worth is asked of the solver. For rounding, a is the channel's rms and an
 *    error costs the Hessian's diagonal; for GPTQ, which repairs most of an error in the columns
 *    that follow, it costs the pivot, what is left of the diagonal once they are accounted for;
 *  - the grid is scored on sampled rows with fitted scales, which is cheap; the best candidates
 *    and identity are then solved in full by the solver that will run, and the output of the
 *    half block that the group is in decides, on windows that the search did not see.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/search/fold.h"
#include "quant/search/transform.h"
#include "quant/team/team.h"

#define ROWS SW_SLAB_ROWS
#define COLUMNS 128 /* that a thread measures at a time */
#define SAMPLES_MAX 12 /* linears that are sampled, one slab of rows each */
#define FINALISTS 3
#define TOKENS_PER_INPUT 0.25 /* fewer than so many say nothing */

/* Trained models want small ones; 0, which is identity for a scale without weights, is on the
 * grid too. */
static const double exponents[] = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0};
#define STEPS (int)(sizeof exponents / sizeof exponents[0])
#define CANDIDATES_MAX (4 * 10 + 1)

/* The kinds of scale on the grid. */
typedef enum kind { BY_RMS, BY_RMS_DUO, BY_PIVOT, BY_PIVOT_DUO, KIND_COUNT } kind;

typedef struct candidate {
    kind kind;
    double exponent;
    double loss; /* on the sample */
} candidate;

typedef struct search {
    const sw_group *g;
    double *rms, *pivot, *worth, *weight_size; /* [k] */
    float *sample;                             /* [n_samples][ROWS, k] */
    int64_t n_samples;
    candidate list[CANDIDATES_MAX]; /* the last is identity */
    int n, first; /* first: of those that this rank scores */
} search;

static void search_free(search *s)
{
    sw_mem_put(s->rms);
    sw_mem_put(s->sample);
}

static void scale_of(double *out, const search *s, const candidate *c)
{
    bool is_duo = c->kind == BY_RMS_DUO || c->kind == BY_PIVOT_DUO;
    const double *a = c->kind == BY_RMS || c->kind == BY_RMS_DUO ? s->rms : s->pivot;

    for (int64_t j = 0; j < s->g->k; j++) {
        out[j] = a[j] > 0 ? pow(a[j], c->exponent) : 0;
        if (is_duo) out[j] /= pow(s->weight_size[j] + 1e-4, 1 - c->exponent);
    }
    sw_fold_tie(out, &s->g->fold, s->g->k);
    sw_scale_normalize(out, s->g->k);
}

typedef struct size_job {
    const sw_group *g;
    int64_t i, group; /* the reader; weights of a quantization group */
    float *top;       /* [rows of the reader, its groups] the largest magnitude of each */
    double *size;
} size_job;

/* Rows [begin, end) of a reader: the largest of each group. */
static void find_tops(void *ctx, int64_t begin, int64_t end, int thread)
{
    const size_job *job = ctx;
    const int64_t k = job->g->k;
    float *top = job->top + begin * sw_ceil_div(k, job->group);

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const float *w = job->g->weights[job->i] + row * k;

        for (int64_t from = 0; from < k; from += job->group) {
            float most = 0;

            for (int64_t j = from; j < sw_min_i64(from + job->group, k); j++) {
                const float size = fabsf(w[j]);
                most = size > most ? size : most;
            }
            *top++ = most;
        }
    }
}

/* Columns [begin, end) of a reader, row after row, so that sums are the same for any threads. */
static void add_sizes(void *ctx, int64_t begin, int64_t end, int thread)
{
    const size_job *job = ctx;
    const int64_t k = job->g->k, n_groups = sw_ceil_div(k, job->group);

    (void)thread;
    for (int64_t row = 0; row < job->g->readers[job->i].n_out; row++) {
        const float *w = job->g->weights[job->i] + row * k, *top = job->top + row * n_groups;

        for (int64_t j = begin; j < end;) {
            const double most = (double)top[j / job->group];
            const int64_t to = sw_min_i64((j / job->group + 1) * job->group, end);

            for (; j < to && most > 0; j++) job->size[j] += fabs((double)w[j]) / most;
            j = to;
        }
    }
}

/* Mean over the readers' rows of |w| relative to the largest of its quantization group. */
static sw_code measure_weights(double *size, const sw_group *g, sw_err *err)
{
    const int n_threads = g->options->n_threads;
    int64_t n_most = 0, group = g->specs[0].group_elems ? g->specs[0].group_elems : g->k;
    size_job job = {.g = g, .group = group, .size = size};
    double n_rows = 0;
    sw_code rc;

    for (int64_t i = 0; i < g->n_readers; i++) n_most = sw_max_i64(n_most, g->readers[i].n_out);
    rc = SW_MEM_GET(&job.top, n_most * sw_ceil_div(g->k, group), "ranges of groups", err);
    for (job.i = 0; job.i < g->n_readers && rc == SW_OK; job.i++) {
        n_rows += (double)g->readers[job.i].n_out;
        sw_parallel_for(n_threads, g->readers[job.i].n_out, ROWS, find_tops, &job);
        sw_parallel_for(n_threads, g->k, COLUMNS, add_sizes, &job);
    }
    for (int64_t j = 0; j < g->k && rc == SW_OK; j++) size[j] /= n_rows;
    sw_mem_put(job.top);
    return rc;
}

/* Rows at an even distance, of readers at an even distance. */
static void take_sample(search *s)
{
    const sw_group *g = s->g;

    for (int64_t i = 0; i < s->n_samples; i++) {
        int64_t at = i * g->n_readers / s->n_samples, n_out = g->readers[at].n_out;
        int64_t n = sw_min_i64(ROWS, n_out);
        for (int64_t r = 0; r < n; r++)
            memcpy(s->sample + (i * ROWS + r) * g->k, g->weights[at] + r * n_out / n * g->k,
                   (size_t)g->k * sizeof(float));
    }
}

static void list_candidates(search *s)
{
    const sw_algo *algo = s->g->options->algo;

    for (int kind_at = 0; kind_at < KIND_COUNT; kind_at++)
        for (int i = 0; i < STEPS; i++) {
            if (kind_at >= BY_PIVOT && !algo->repairs_errors) continue;
            s->list[s->n++] = (candidate){(kind)kind_at, exponents[i], 0};
        }
    s->list[s->n++] = (candidate){BY_RMS, 0, 0};
}

/* What an error costs by the solver's lights, and how large channels are. */
static sw_code weigh_channels(search *s, const sw_factor *factor, sw_err *err)
{
    const sw_group *g = s->g;
    sw_code rc = sw_hessian_diagonal(s->rms, g->hess, err);

    if (rc == SW_OK) rc = sw_factor_costs(s->worth, s->pivot, factor, err);
    for (int64_t j = 0; j < g->k && rc == SW_OK; j++) {
        s->rms[j] = sqrt(s->rms[j]);
        if (g->options->algo->repairs_errors) s->worth[j] = s->pivot[j];
        s->pivot[j] = sqrt(s->pivot[j]);
    }
    return rc;
}

static sw_code search_new(search *s, const sw_group *g, const sw_factor *factor, sw_err *err)
{
    int64_t k = g->k, n;
    sw_span span;
    sw_code rc;

    s->g = g;
    s->n_samples = sw_min_i64(SAMPLES_MAX, g->n_readers);
    n = s->n_samples * ROWS * k;
    if ((rc = SW_MEM_GET(&s->rms, 4 * k, "scale search", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s->sample, n, "sampled rows", err)) != SW_OK)
        return rc;
    s->pivot = s->rms + k;
    s->worth = s->pivot + k;
    s->weight_size = s->worth + k;
    if ((rc = weigh_channels(s, factor, err)) != SW_OK) return rc;
    span = sw_span_open("search ranges");
    rc = measure_weights(s->weight_size, g, err);
    sw_span_close(span, NULL);
    take_sample(s);
    list_candidates(s);
    return rc;
}

/* For sw_score_job. */
static void scale_at(double *scale, const void *self, int which)
{
    const search *s = self;

    scale_of(scale, s, &s->list[s->first + which]);
}

/* This rank's candidates, from number s->first on. */
static sw_code score_some(double *losses, const search *s, int n, sw_err *err)
{
    const sw_group *g = s->g;
    const sw_qspec *specs[SAMPLES_MAX];
    sw_score_job job = {.sample = s->sample, .specs = specs, .n_samples = s->n_samples, .k = g->k,
                        .worth = s->worth, .self = s, .scale_of = scale_at, .n = n};

    if (!n) return SW_OK;
    for (int64_t i = 0; i < s->n_samples; i++)
        specs[i] = &g->specs[i * g->n_readers / s->n_samples];
    return sw_backend_of(&g->place)->score(losses, &g->place, &job, err);
}

static sw_code score_all(search *s, sw_err *err)
{
    sw_team *team = s->g->options->team;
    const int me = sw_team_rank(team), n_ranks = sw_team_size(team);
    double losses[CANDIDATES_MAX];
    size_t *begins = NULL;
    const sw_span span = sw_span_open("search grid");
    sw_code rc = SW_MEM_GET(&begins, n_ranks + 1, "candidates of ranks", err);

    if (rc != SW_OK) return rc;
    for (int rank = 0; rank <= n_ranks; rank++)
        begins[rank] = (size_t)sw_piece_of_rank(s->n, rank, n_ranks) * sizeof *losses;
    s->first = (int)sw_piece_of_rank(s->n, me, n_ranks);
    rc = score_some(losses + s->first, s, (int)sw_piece_of_rank(s->n, me + 1, n_ranks) - s->first,
                    err);
    if (rc == SW_OK) rc = sw_team_gather(team, losses, begins, err);
    for (int i = 0; i < s->n && rc == SW_OK; i++) s->list[i].loss = losses[i];
    sw_mem_put(begins);
    sw_span_close(span, NULL);
    return rc;
}

/* The best of each kind, best first; returns how many. They must beat identity where the readers'
 * outputs add up; what errors of queries and keys do to a block, only the block can say. */
static int choose_finalists(candidate out[KIND_COUNT], const search *s)
{
    const double identity =
        s->g->fold.site == SW_SITE_ATTN_IN ? (double)INFINITY : s->list[s->n - 1].loss;
    int n = 0;

    for (int k = 0; k < KIND_COUNT; k++) {
        const candidate *best = NULL;
        int at;
        for (int i = 0; i < s->n - 1; i++)
            if ((int)s->list[i].kind == k && (!best || s->list[i].loss < best->loss))
                best = &s->list[i];
        if (!best || !(best->loss < identity)) continue;
        for (at = n++; at > 0 && out[at - 1].loss > best->loss; at--) out[at] = out[at - 1];
        out[at] = *best;
    }
    return n < FINALISTS ? n : FINALISTS;
}

/* A run of the half block against the original weights, on the windows of two parts; of several
 * ranks each runs those that are here. */
typedef struct trial {
    const sw_group *g;
    sw_trial_block block;
    float **values;                  /* [n_readers] quantized weights */
    float *want[SW_BLOCK_PROBE_PARTS], *have; /* of tokens that are here */
    sw_evidence evidence;            /* after: of the scale that is best so far */
    double *now;                     /* [evidence.n] of the present one */
    double *by_token;                /* [tokens of either part] of the text */
} trial;

static void trial_free(trial *t)
{
    const sw_place *at;

    if (!t->g) return;
    at = &t->g->place;
    sw_trial_block_free(&t->block);
    sw_group_values_free(t->values, t->g);
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++)
        sw_backend_of(at)->put(at, t->want[part]);
    sw_backend_of(at)->put(at, t->have);
    sw_mem_put(t->now);
    sw_mem_put(t->by_token);
    sw_evidence_free(&t->evidence);
}

/* The larger of the parts that are run. */
static int64_t most_tokens(const sw_group *g,
                           int64_t (*tokens)(const sw_block_probe *probe,
                                             sw_block_probe_part part))
{
    return sw_max_i64(tokens(g->probe, SW_BLOCK_PROBE_TRIAL),
                      tokens(g->probe, SW_BLOCK_PROBE_HELD));
}

/* GPTQ has fitted its codes to the windows searched, the trial windows among them: how well it does
 * there says little, so that for it only what is held out is evidence. */
static sw_code evidence_new(sw_evidence *out, const sw_group *g, sw_err *err)
{
    const bool has_trial = !g->options->algo->repairs_errors;
    const sw_block_probe *p = g->probe;

    return sw_evidence_new(out, has_trial ? sw_block_probe_tokens(p, SW_BLOCK_PROBE_TRIAL) : 0,
                           sw_block_probe_tokens(p, SW_BLOCK_PROBE_HELD),
                           (has_trial ? sw_block_probe_windows(p, SW_BLOCK_PROBE_TRIAL) : 0) +
                               sw_block_probe_windows(p, SW_BLOCK_PROBE_HELD),
                           err);
}

static sw_code trial_new(trial *t, const sw_group *g, sw_err *err)
{
    const int64_t n_most = most_tokens(g, sw_block_probe_tokens_here) * g->model->hidden;
    sw_span span;
    sw_code rc;

    t->g = g;
    if ((rc = sw_group_values_new(&t->values, g, err)) != SW_OK ||
        (rc = SW_PLACE_TAKE(&t->have, &g->place, n_most, "trial outputs", err)) != SW_OK ||
        (rc = evidence_new(&t->evidence, g, err)) != SW_OK ||
        (rc = SW_MEM_GET(&t->now, t->evidence.n, "evidence", err)) != SW_OK ||
        (rc = SW_MEM_GET(&t->by_token, most_tokens(g, sw_block_probe_tokens), "evidence", err)) !=
            SW_OK)
        return rc;
    span = sw_span_open("search originals");
    for (int part = SW_BLOCK_PROBE_TRIAL; part <= SW_BLOCK_PROBE_HELD && rc == SW_OK; part++) {
        rc = SW_PLACE_TAKE(&t->want[part], &g->place, n_most, "trial outputs", err);
        if (rc == SW_OK)
            rc = sw_block_probe_output(t->want[part], g->probe, (sw_block_probe_part)part,
                                       g->original, g->fold.site, err);
    }
    if (rc == SW_OK) rc = sw_trial_block_new(&t->block, g, err);
    sw_span_close(span, NULL);
    return rc;
}

/* Run a part through the half block; its squared errors are added to pieces, their sum is *loss. */
static sw_code run_part(double *loss, double *pieces, trial *t, sw_block_probe_part part,
                        sw_err *err)
{
    const sw_group *g = t->g;
    const int64_t n_tokens = sw_block_probe_tokens(g->probe, part);
    const int64_t n_here = sw_block_probe_tokens_here(g->probe, part);
    double sum = 0, *mine = t->by_token + sw_block_probe_tokens_before(g->probe, part);
    sw_code rc = sw_trial_block_output(t->have, &t->block, part, err);

    memset(t->by_token, 0, (size_t)n_tokens * sizeof *t->by_token);
    if (rc == SW_OK && n_here)
        rc = sw_backend_of(&g->place)->errors(&g->place, mine, t->have, t->want[part], n_here,
                                              g->model->hidden, err);
    if (rc == SW_OK) rc = sw_block_probe_gather(t->by_token, g->probe, part, err);
    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n_tokens; i++) sum += t->by_token[i];
    *loss = sum;
    if (pieces) sw_evidence_add(pieces, t->by_token, n_tokens);
    return SW_OK;
}

/* With this scale (NULL: none), the squared error of the half block's output on the trial windows,
 * and piece by piece as the evidence has them. */
static sw_code run_trial(double *loss, double *pieces, trial *t, const double *scale, sw_err *err)
{
    int64_t n_chosen_by = t->evidence.n_chosen_by;
    double held;
    sw_span span;
    sw_code rc = sw_group_solve(t->values, t->g, scale, err);

    if (rc != SW_OK) return rc;
    span = sw_span_open("search trial");
    memset(pieces, 0, (size_t)t->evidence.n * sizeof *pieces);
    rc = sw_trial_block_lend(&t->block, t->values, err);
    if (rc == SW_OK) rc = run_part(loss, n_chosen_by ? pieces : NULL, t, SW_BLOCK_PROBE_TRIAL, err);
    if (rc == SW_OK) rc = run_part(&held, pieces + n_chosen_by, t, SW_BLOCK_PROBE_HELD, err);
    sw_span_close(span, NULL);
    return rc;
}

_Static_assert(KIND_COUNT * sizeof exponents / sizeof exponents[0] < CANDIDATES_MAX, "grid");

static void describe(sw_proposal *out, const candidate *c)
{
    bool is_duo = c->kind == BY_RMS_DUO || c->kind == BY_PIVOT_DUO;
    const char *base = c->kind == BY_RMS || c->kind == BY_RMS_DUO ? "activations" : "pivots";

    if (is_duo)
        (void)snprintf(out->choice, sizeof out->choice, "%s^%.2f / weights^%.2f", base,
                       c->exponent, 1 - c->exponent);
    else
        (void)snprintf(out->choice, sizeof out->choice, "%s^%.2f", base, c->exponent);
}

static bool is_identity(const double *scale, int64_t k)
{
    for (int64_t j = 0; j < k; j++)
        if (scale[j] != 1.0) return false;
    return true;
}

static sw_code judge(sw_proposal *out, const search *s, const candidate *list, int n, sw_err *err)
{
    double identity = 0, loss = 0, best = (double)INFINITY;
    const sw_group *g = s->g;
    double *scale = NULL;
    trial t = {0};
    sw_code rc;

    if ((rc = SW_MEM_GET(&scale, g->k, "scale", err)) != SW_OK ||
        (rc = trial_new(&t, g, err)) != SW_OK ||
        (rc = run_trial(&identity, t.evidence.before, &t, NULL, err)) != SW_OK)
        goto done;
    for (int i = 0; i < n; i++) {
        scale_of(scale, s, &list[i]);
        if ((rc = sw_fold_round(scale, g->job, &g->fold, g->expert, g->k, err)) != SW_OK ||
            (rc = sw_group_agree(scale, g, err)) != SW_OK)
            goto done;
        if (is_identity(scale, g->k)) continue;
        if ((rc = run_trial(&loss, t.now, &t, scale, err)) != SW_OK) goto done;
        if (!(loss < best)) continue;
        best = loss;
        memcpy(t.evidence.after, t.now, (size_t)t.evidence.n * sizeof *t.now);
        memcpy(out->scale, scale, (size_t)g->k * sizeof *scale);
        describe(out, &list[i]);
    }
    if (isfinite(best))
        sw_proposal_judge(out, &t.evidence,
                          (double)(sw_block_probe_tokens(g->probe, SW_BLOCK_PROBE_HELD) *
                                   g->model->hidden),
                          best < identity);
    else
        (void)snprintf(out->why_not, sizeof out->why_not,
                       "of the scales found nothing can be stored");
done:
    sw_mem_put(scale);
    trial_free(&t);
    return rc;
}

static sw_code search_group(sw_proposal *out, const sw_group *g, const sw_factor *factor,
                            sw_err *err)
{
    candidate finalists[KIND_COUNT];
    search s = {0};
    int n;
    sw_code rc;

    if ((rc = search_new(&s, g, factor, err)) != SW_OK || (rc = score_all(&s, err)) != SW_OK)
        goto done;
    n = choose_finalists(finalists, &s);
    if (n)
        rc = judge(out, &s, finalists, n, err);
    else
        (void)snprintf(out->why_not, sizeof out->why_not, "no scale on the grid beats none");
done:
    search_free(&s);
    return rc;
}

static sw_code propose(sw_proposal *out, const sw_group *g, sw_err *err)
{
    const sw_quant_options *o = g->options;
    sw_factor_options fo = {o->order, g->specs[0].group_elems, o->damp};
    sw_factor factor = {0};
    sw_err local = {0};
    sw_code rc;

    if (!sw_block_probe_windows(g->probe, SW_BLOCK_PROBE_HELD)) {
        (void)snprintf(out->why_not, sizeof out->why_not,
                       "a single calibration window leaves none to hold out");
        return SW_OK;
    }
    if ((double)g->hess->n_tokens < TOKENS_PER_INPUT * (double)g->k) {
        (void)snprintf(out->why_not, sizeof out->why_not, "only %lld tokens for %lld channels",
                       (long long)g->hess->n_tokens, (long long)g->k);
        return SW_OK;
    }
    rc = sw_factor_new(&factor, g->hess, &fo, &local);
    if (rc == SW_E_FORMAT) {
        (void)snprintf(out->why_not, sizeof out->why_not, "%.110s", local.text);
        return SW_OK;
    }
    if (rc != SW_OK) return SW_FAIL(err, rc, "%s", local.text);
    rc = search_group(out, g, &factor, err);
    sw_factor_free(&factor);
    return rc;
}

/* A factor for the search, sampled rows, and the trial: quantized readers, and what the half block
 * puts out with them and should. */
static int64_t bytes(const sw_transform_need *need)
{
    int64_t n_samples = sw_min_i64(SAMPLES_MAX, need->n_readers);

    return 16 * need->k * need->k + 4 * n_samples * ROWS * need->k +
           4 * need->n_outputs * need->k + 3 * 4 * need->probe_elems +
           sw_group_solve_bytes(need);
}

/* The whole grid on sampled rows; identity and the finalists in full, beside the original. */
static sw_transform_work work(const sw_transform_need *need)
{
    double n_samples = (double)sw_min_i64(SAMPLES_MAX, need->n_readers);

    return (sw_transform_work){.factors = 2 + FINALISTS, .solves = 1 + FINALISTS,
                               .fit_weights = (CANDIDATES_MAX)*n_samples * ROWS * (double)need->k,
                               .told_weights =
                                   (1 + FINALISTS) * (double)(need->n_outputs * need->k),
                               .half_runs = 2 + FINALISTS};
}

/* Half a block is run by whole weights. */
const sw_transform sw_transform_awq = {"awq", true, false, 0, propose, bytes, work};
