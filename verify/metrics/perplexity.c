/* perplexity.c - see perplexity.h. */
#include "verify/metrics/perplexity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define NOISE_SEED 1

/* What is bootstrapped: the mean over a window of each. */
enum { NLL_HAVE, NLL_REF, NLL_DIFF, KL, METRICS, N_STATS = METRICS + SW_METRIC_COUNT };

typedef struct eval {
    const sw_eval_job *job;
    int64_t vocab, head_rows;
    sw_runner have, ref;
    uint32_t *ids;               /* [batch * length] */
    float *have_logits, *ref_logits; /* [head_rows, vocab] */
    double *scratch;             /* [n_threads, vocab] */
    sw_position *positions;      /* [batch * length], the last of each window unused */
    double *stats[N_STATS];      /* [n_windows] */
    double *kl_all;              /* [n_windows * (length - 1)] */
    sw_lm_score *scores;         /* [batch * length] where the device compares, and */
    uint32_t *targets;           /* the tokens that follow; else NULL */
    int64_t row0;                /* of the logits at hand, in the batch */
} eval;

static void eval_free(eval *e)
{
    sw_runner_free(&e->have);
    sw_runner_free(&e->ref);
    sw_mem_put(e->ids);
    sw_mem_put(e->have_logits);
    sw_mem_put(e->ref_logits);
    sw_mem_put(e->scratch);
    sw_mem_put(e->positions);
    for (int s = 0; s < N_STATS; s++) sw_mem_put(e->stats[s]);
    sw_mem_put(e->kl_all);
    sw_mem_put(e->scores);
    sw_mem_put(e->targets);
    memset(e, 0, sizeof *e);
}

static sw_code runner_new(sw_runner *out, const sw_eval_job *job, const sw_lm *lm, sw_err *err)
{
    if (job->gpu)
        return sw_runner_new_on(out, job->gpu, job->gpus, lm, &job->windows, job->progress, err);
    return sw_runner_new(out, lm, &job->windows, job->n_threads, err);
}

/* Room for logits on the host, or none where they need not leave the device. */
static sw_code take_logits(eval *e, sw_err *err)
{
    const sw_eval_job *job = e->job;
    const int64_t n_tokens = sw_windows_batch(&job->windows) * job->windows.length;
    const int64_t n = e->head_rows * e->vocab;
    sw_code rc;

    if (sw_runner_can_score(&e->have, job->original ? &e->ref : NULL)) {
        rc = SW_MEM_GET(&e->scores, n_tokens, "scores", err);
        return rc == SW_OK ? SW_MEM_GET(&e->targets, n_tokens, "tokens", err) : rc;
    }
    if ((rc = SW_MEM_GET(&e->have_logits, n, "logits", err)) != SW_OK ||
        (rc = SW_MEM_GET(&e->scratch, job->n_threads * e->vocab, "softmax", err)) != SW_OK ||
        !job->original)
        return rc;
    return SW_MEM_GET(&e->ref_logits, n, "logits", err);
}

static sw_code eval_new(eval *e, const sw_eval_job *job, sw_err *err)
{
    const sw_windows *w = &job->windows;
    int64_t n_tokens = sw_windows_batch(w) * w->length;
    sw_code rc;

    e->job = job;
    e->vocab = job->checkpoint->model->vocab;
    e->head_rows = sw_runner_head_rows(e->vocab);
    if ((rc = SW_MEM_GET(&e->ids, n_tokens, "windows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&e->positions, n_tokens, "positions", err)) != SW_OK ||
        (rc = runner_new(&e->have, job, job->checkpoint, err)) != SW_OK)
        return rc;
    if (job->noise > 0.0) sw_engine_set_noise(e->have.engine, job->noise, NOISE_SEED);
    for (int s = 0; s < N_STATS; s++)
        if ((rc = SW_MEM_GET(&e->stats[s], w->n, "window means", err)) != SW_OK) return rc;
    if (job->original) {
        rc = SW_MEM_GET(&e->kl_all, w->n * (w->length - 1), "KL of positions", err);
        if (rc != SW_OK || (rc = runner_new(&e->ref, job, job->original, err)) != SW_OK)
            return rc;
    }
    return take_logits(e, err);
}

/* Rows [begin, end) of the logits at hand. */
static void score_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    eval *e = ctx;
    int64_t length = e->job->windows.length;

    for (int64_t i = begin; i < end; i++) {
        int64_t row = e->row0 + i;
        const float *have = e->have_logits + i * e->vocab;
        sw_position *p = &e->positions[row];

        if (row % length == length - 1) continue; /* predicts what lies beyond its window */
        if (e->ref_logits)
            sw_position_compare(p, e->ref_logits + i * e->vocab, have, e->vocab, e->ids[row + 1],
                                e->scratch + thread * e->vocab);
        else
            p->nll_have = sw_nll(have, e->vocab, e->ids[row + 1]);
    }
}

/* All rows of a batch, whose logits stay on the device. */
static sw_code score_there(eval *e, int64_t n_rows, sw_err *err)
{
    const int64_t length = e->job->windows.length;
    sw_code rc;

    for (int64_t i = 0; i < n_rows; i++)
        e->targets[i] = i % length == length - 1 ? 0 : e->ids[i + 1]; /* see score_rows */
    rc = sw_runner_scores(&e->have, e->job->original ? &e->ref : NULL, e->scores, e->targets,
                          n_rows, err);
    for (int64_t i = 0; i < n_rows && rc == SW_OK; i++)
        sw_position_of(&e->positions[i], &e->scores[i]);
    return rc;
}

static sw_code score_batch(eval *e, int64_t n_rows, sw_err *err)
{
    sw_code rc;

    if (e->scores) return score_there(e, n_rows, err);

    for (e->row0 = 0; e->row0 < n_rows; e->row0 += e->head_rows) {
        int64_t n = sw_min_i64(e->head_rows, n_rows - e->row0);

        if ((rc = sw_runner_head(&e->have, e->have_logits, e->row0, n, err)) != SW_OK) return rc;
        if (e->ref_logits &&
            (rc = sw_runner_head(&e->ref, e->ref_logits, e->row0, n, err)) != SW_OK)
            return rc;
        sw_parallel_for(e->job->n_threads, n, 4, score_rows, e);
    }
    return SW_OK;
}

/* Means of one window, in position order. */
static void sum_window(eval *e, const sw_position *p, int64_t window)
{
    int64_t n = e->job->windows.length - 1;
    double sums[N_STATS] = {0};

    for (int64_t i = 0; i < n; i++) {
        sums[NLL_HAVE] += p[i].nll_have;
        if (!e->kl_all) continue;
        sums[NLL_REF] += p[i].nll_ref;
        sums[NLL_DIFF] += p[i].nll_have - p[i].nll_ref;
        sums[KL] += p[i].kl;
        for (int m = 0; m < SW_METRIC_COUNT; m++) sums[METRICS + m] += p[i].metrics[m];
        e->kl_all[window * n + i] = p[i].kl;
    }
    for (int s = 0; s < N_STATS; s++) e->stats[s][window] = sums[s] / (double)n;
}

/* The original over n windows, the batch that begins with window `at`: run, or read. What it made
 * of them is e->ref.x then. */
static sw_code run_original(eval *e, int64_t at, int64_t n, sw_err *err)
{
    const sw_windows *w = &e->job->windows;
    sw_hidden_file *states = e->job->states;
    sw_kept_states *kept = e->job->kept;
    int64_t index = at / sw_windows_batch(w);
    sw_code rc;

    if (kept && sw_kept_states_get(e->ref.x, kept, at, n)) return SW_OK;
    if (states && states->have)
        return sw_hidden_file_get(e->ref.x, states, index, n * w->length, err);
    rc = sw_runner_blocks(&e->ref, e->ids, n, w->length, err);
    if (rc == SW_OK && states)
        rc = sw_hidden_file_put(states, e->ref.x, index, n * w->length, err);
    if (rc == SW_OK && kept) sw_kept_states_put(kept, e->ref.x, at, n);
    return rc;
}

static int64_t first_window(const eval *e, int rank)
{
    return sw_windows_of_rank(&e->job->windows, rank, sw_judge_size(e->job->ranks));
}

static sw_code run_windows(eval *e, sw_err *err)
{
    const sw_windows *w = &e->job->windows;
    const int rank = sw_judge_rank(e->job->ranks);
    const int64_t batch = sw_windows_batch(w);
    const int64_t begin = first_window(e, rank), end = first_window(e, rank + 1);
    sw_code rc = SW_OK;

    for (int64_t at = begin; at < end; at += batch) {
        int64_t n = sw_min_i64(batch, end - at);

        sw_progress_step(e->job->progress, "perplexity", at - begin, end - begin);
        if ((rc = sw_progress_check(e->job->progress, err)) != SW_OK) return rc;
        sw_windows_copy(e->ids, w, at, n);
        if ((rc = sw_runner_blocks(&e->have, e->ids, n, w->length, err)) != SW_OK) return rc;
        if (e->job->original && (rc = run_original(e, at, n, err)) != SW_OK) return rc;
        if ((rc = score_batch(e, n * w->length, err)) != SW_OK) return rc;
        for (int64_t i = 0; i < n; i++) sum_window(e, e->positions + i * w->length, at + i);
    }
    sw_progress_step(e->job->progress, "perplexity", end - begin, end - begin);
    return e->job->states ? sw_hidden_file_commit(e->job->states, err) : SW_OK;
}

/* Rank 0 gets n of the figures at `values` from a rank, or this rank sends its own. */
static sw_code pass(const sw_judge_ranks *ranks, int from, double *values, int64_t n, sw_err *err)
{
    const size_t n_bytes = (size_t)n * sizeof *values;

    if (!values || !n) return SW_OK;
    return ranks->rank ? ranks->send(ranks->self, 0, values, n_bytes, err)
                       : ranks->receive(ranks->self, from, values, n_bytes, err);
}

/* What the windows of every rank gave, at rank 0, each where one process would have put it. */
static sw_code gather(eval *e, sw_err *err)
{
    const sw_judge_ranks *ranks = e->job->ranks;
    const int64_t n_predicted = e->job->windows.length - 1;
    const int size = sw_judge_size(ranks), mine = sw_judge_rank(ranks);
    sw_code rc = SW_OK;

    for (int r = 1; r < size && rc == SW_OK; r++) {
        const int64_t at = first_window(e, r), n = first_window(e, r + 1) - at;

        if (mine && mine != r) continue;
        for (int s = 0; s < N_STATS && rc == SW_OK; s++)
            rc = pass(ranks, r, e->stats[s] + at, n, err);
        if (rc == SW_OK && e->kl_all)
            rc = pass(ranks, r, e->kl_all + at * n_predicted, n * n_predicted, err);
    }
    return rc;
}

static sw_interval exp_of(const sw_interval *i)
{
    sw_interval out = {exp(i->at), exp(i->low), exp(i->high)}; /* monotone: ends map to ends */

    return out;
}

static sw_code summarize(sw_report_eval *out, eval *e, sw_err *err)
{
    const sw_windows *w = &e->job->windows;
    const double *stats[N_STATS];
    sw_interval means[N_STATS];
    sw_code rc;

    for (int s = 0; s < N_STATS; s++) stats[s] = e->stats[s];
    rc = sw_bootstrap_means(means, stats, N_STATS, w->n, &e->job->bootstrap, err);
    if (rc != SW_OK) return rc;
    out->is_measured = true;
    out->window = w->length;
    out->n_windows = w->n;
    out->n_predictions = w->n * (w->length - 1);
    out->vocab = e->vocab;
    out->has_bos = w->has_bos;
    if (e->job->gpu) {
        (void)snprintf(out->device, sizeof out->device, "%s", sw_device_about(e->job->gpu)->name);
        sw_device_lm_count(&out->linears, e->have.gpu_lm);
    }
    out->bootstrap = e->job->bootstrap;
    out->nll = means[NLL_HAVE];
    out->ppl = exp_of(&means[NLL_HAVE]);
    if (!e->kl_all) return SW_OK;
    out->has_original = true;
    out->nll_original = means[NLL_REF];
    out->ppl_original = exp_of(&means[NLL_REF]);
    out->nll_diff = means[NLL_DIFF];
    out->ppl_ratio = exp_of(&means[NLL_DIFF]);
    out->is_significant = !sw_interval_has_zero(&means[NLL_DIFF]);
    out->kl = means[KL];
#define SW_METRIC(id, field, key, line, shown, reads) out->field = means[METRICS + SW_METRIC_##id];
#include "verify/base/metrics.def"
#undef SW_METRIC
    out->kl_p99 = sw_percentile(e->kl_all, out->n_predictions, 0.99);
    out->kl_max = e->kl_all[out->n_predictions - 1]; /* sorted by now */
    return SW_OK;
}

sw_code sw_evaluate(sw_report_eval *out, const sw_eval_job *job, sw_err *err)
{
    sw_report_eval figures = {.n_tokens = out->n_tokens, .gap = out->gap,
                              .unspelled = out->unspelled, .unspelled_in = out->unspelled_in};
    eval e = {.row0 = 0};
    sw_code rc;

    if ((rc = eval_new(&e, job, err)) == SW_OK) rc = run_windows(&e, err);
    if ((rc = sw_judge_meet(job->ranks, rc, err)) != SW_OK || (rc = gather(&e, err)) != SW_OK ||
        sw_judge_rank(job->ranks))
        goto done;
    if ((rc = summarize(&figures, &e, err)) == SW_OK) *out = figures;
done:
    eval_free(&e);
    return rc;
}
