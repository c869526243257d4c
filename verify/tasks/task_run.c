/* task_run.c - see task_run.h: log-likelihoods. */
#include "verify/tasks/task_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "verify/tasks/task_write.h"

#define SHARED_WORTH 0.25 /* of all tokens: beyond that what items share runs once */

/* What one row of logits says, whatever the target. */
typedef struct row_look {
    int64_t top;
    double log_sum; /* log sum exp(x - x_top) */
} row_look;

typedef struct run {
    const sw_task_set *set;
    const sw_task_runner *how;
    sw_task_score *scores;
    sw_runner model;
    int64_t head_rows, capacity; /* tokens side by side */
    float *logits;               /* [head_rows, vocab] */
    row_look *looks;             /* [head_rows] */
    int64_t n_done;
} run;

static void look_at_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const run *r = ctx;
    int64_t vocab = r->how->lm->model->vocab;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *x = r->logits + i * vocab;
        row_look *look = &r->looks[i];
        double sum = 0;

        look->top = 0;
        for (int64_t j = 1; j < vocab; j++)
            if (x[j] > x[look->top]) look->top = j;
        for (int64_t j = 0; j < vocab; j++) sum += exp((double)x[j] - (double)x[look->top]);
        look->log_sum = log(sum);
    }
}

/* Rows [0, n) of the logits at hand are those behind inputs at .. at + n of sequence `s`: to every
 * choice of the item that runs as `s`. */
static void add_rows(run *r, int64_t item, int64_t s, int64_t at, int64_t n)
{
    const sw_task_set *set = r->set;
    int64_t base = set->first_of[item], vocab = r->how->lm->model->vocab;

    for (int64_t c = base; c < set->first_of[item + 1]; c++) {
        const sw_task_sequence *q = &set->sequences[c];

        if (base + q->run != s) continue;
        for (int64_t i = sw_max_i64(at, q->first - 1); i < sw_min_i64(at + n, q->n - 1); i++) {
            const float *x = r->logits + (i - at) * vocab;
            const row_look *look = &r->looks[i - at];
            uint32_t target = q->ids[i + 1];

            r->scores[c].ll += (double)x[target] - (double)x[look->top] - look->log_sum;
            if (look->top != (int64_t)target) r->scores[c].is_greedy = false;
        }
    }
}

/* The first input whose logits any choice that runs as `s` is judged by. */
static int64_t first_row(const sw_task_set *set, int64_t item, int64_t s)
{
    int64_t base = set->first_of[item], first = set->sequences[s].first - 1;

    for (int64_t c = base; c < set->first_of[item + 1]; c++)
        if (base + set->sequences[c].run == s)
            first = sw_min_i64(first, set->sequences[c].first - 1);
    return first;
}

/* Inputs at .. end of `s`, whose rows begin at row0 of the model's, or at x. */
static sw_code score(run *r, int64_t item, int64_t s, int64_t at, int64_t end, const float *x,
                     int64_t row0, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = at; i < end && rc == SW_OK; i += r->head_rows) {
        int64_t n = sw_min_i64(r->head_rows, end - i);
        const float *rows = x ? x + (i - at) * r->how->lm->model->hidden : NULL;

        rc = x ? sw_engine_head(r->model.engine, r->how->lm, r->logits, rows, n, err)
               : sw_runner_head(&r->model, r->logits, row0 + (i - at), n, err);
        if (rc != SW_OK) return rc;
        sw_parallel_for(r->how->n_threads, n, 1, look_at_rows, r);
        add_rows(r, item, s, i, n);
    }
    return rc;
}

static sw_code step(run *r, int64_t n, sw_err *err)
{
    r->n_done += n;
    sw_progress_step(r->how->progress, r->how->stage, r->n_done, r->set->task->n_items);
    return sw_progress_check(r->how->progress, err);
}

/* --- whole sequences, side by side --- */

typedef struct piece {
    int64_t item, s, n; /* n inputs */
} piece;

/* Longest first, so that a batch is of like lengths; then by place. */
static int compare_pieces(const void *a, const void *b)
{
    const piece *x = a, *y = b;

    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return (x->s > y->s) - (x->s < y->s);
}

static bool is_run(const sw_task_set *set, int64_t item, int64_t s)
{
    return set->sequences[s].run == s - set->first_of[item];
}

static int64_t gather(piece *out, const sw_task_set *set)
{
    int64_t n = 0;

    for (int64_t item = 0; item < set->task->n_items; item++)
        for (int64_t s = set->first_of[item]; s < set->first_of[item + 1]; s++)
            if (is_run(set, item, s)) out[n++] = (piece){item, s, set->sequences[s].n - 1};
    qsort(out, (size_t)n, sizeof *out, compare_pieces);
    return n;
}

/* Shorter ones are filled up behind their end, which no token before it sees. */
static sw_code run_batch(run *r, const piece *pieces, int64_t n, uint32_t *ids, sw_err *err)
{
    int64_t length = pieces[0].n;
    sw_code rc;

    memset(ids, 0, (size_t)(n * length) * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        memcpy(ids + i * length, r->set->sequences[pieces[i].s].ids,
               (size_t)pieces[i].n * sizeof *ids);
    rc = sw_runner_blocks(&r->model, ids, n, length, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        int64_t first = first_row(r->set, pieces[i].item, pieces[i].s);

        rc = score(r, pieces[i].item, pieces[i].s, first, pieces[i].n, NULL, i * length + first,
                   err);
    }
    return rc;
}

static sw_code run_batches(run *r, sw_err *err)
{
    int64_t n_sequences = r->set->first_of[r->set->task->n_items], n, n_batch;
    piece *pieces = NULL;
    uint32_t *ids = NULL;
    sw_code rc = SW_MEM_GET(&pieces, n_sequences, "order of sequences", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&ids, r->capacity, "token ids", err);
    n = rc == SW_OK ? gather(pieces, r->set) : 0;
    for (int64_t at = 0; at < n && rc == SW_OK; at += n_batch) {
        n_batch = sw_min_i64(n - at, sw_max_i64(1, r->capacity / pieces[at].n));
        rc = run_batch(r, pieces + at, n_batch, ids, err);
        /* items are done in parts here: the share of the sequences stands for theirs */
        r->n_done = (at + n_batch) * r->set->task->n_items / n;
        if (rc == SW_OK) rc = step(r, 0, err);
    }
    sw_mem_put(pieces);
    sw_mem_put(ids);
    return rc;
}

/* --- what the choices of an item begin with, once --- */

/* Inputs that all runs of an item begin with, up to the first that any choice is judged by. */
static int64_t shared(const sw_task_set *set, int64_t item)
{
    int64_t base = set->first_of[item], n = INT64_MAX;
    const sw_task_sequence *first = &set->sequences[base];

    for (int64_t s = base; s < set->first_of[item + 1]; s++) {
        const sw_task_sequence *q = &set->sequences[s];
        int64_t same = 0, most = sw_min_i64(n, q->first - 1);

        while (same < most && q->ids[same] == first->ids[same]) same++;
        n = same;
    }
    return n;
}

static bool is_worth_sharing(const sw_task_set *set)
{
    int64_t n_all = 0, n_saved = 0;

    for (int64_t item = 0; item < set->task->n_items; item++) {
        int64_t n_runs = 0;

        for (int64_t s = set->first_of[item]; s < set->first_of[item + 1]; s++) {
            n_runs += is_run(set, item, s);
            n_all += is_run(set, item, s) ? set->sequences[s].n - 1 : 0;
        }
        n_saved += (n_runs - 1) * shared(set, item);
    }
    return (double)n_saved > SHARED_WORTH * (double)n_all;
}

static sw_code run_item(run *r, int64_t item, sw_session *session, sw_err *err)
{
    const sw_task_set *set = r->set;
    int64_t n = shared(set, item);
    float *x = r->model.x;
    sw_code rc = SW_OK;

    if (n) rc = sw_session_feed_rows(session, x, set->sequences[set->first_of[item]].ids, n, err);
    for (int64_t s = set->first_of[item]; s < set->first_of[item + 1] && rc == SW_OK; s++) {
        const sw_task_sequence *q = &set->sequences[s];
        int64_t first = first_row(set, item, s);

        if (!is_run(set, item, s)) continue;
        rc = sw_session_feed_rows(session, x, q->ids + n, q->n - 1 - n, err);
        if (rc == SW_OK)
            rc = score(r, item, s, first, q->n - 1,
                       x + (first - n) * r->how->lm->model->hidden, 0, err);
        if (rc == SW_OK) sw_session_take_back(session);
    }
    return rc;
}

static sw_code run_items(run *r, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t item = 0; item < r->set->task->n_items && rc == SW_OK; item++) {
        sw_session *session = NULL;

        rc = sw_session_new(&session, r->model.engine, r->how->lm, r->set->longest, err);
        if (rc == SW_OK) rc = run_item(r, item, session, err);
        sw_session_free(session);
        if (rc == SW_OK) rc = step(r, 1, err);
    }
    return rc;
}

/* --- the whole --- */

static sw_code open_run(run *r, sw_err *err)
{
    const sw_task_runner *how = r->how;
    sw_windows room = {.n = INT64_MAX, .length = r->set->longest};
    int64_t vocab = how->lm->model->vocab;
    sw_code rc;

    r->head_rows = sw_runner_head_rows(vocab);
    r->capacity = sw_windows_batch(&room) * room.length;
    if ((rc = SW_MEM_GET(&r->logits, r->head_rows * vocab, "logits", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->looks, r->head_rows, "sums of logits", err)) != SW_OK)
        return rc;
    return how->gpu ? sw_runner_new_on(&r->model, how->gpu, how->gpus, how->lm, &room,
                                       how->progress, err)
                    : sw_runner_new(&r->model, how->lm, &room, how->n_threads, err);
}

sw_code sw_task_run(sw_task_score *out, const sw_task_set *set, const sw_task_runner *runner,
                    sw_arena *arena, sw_err *err)
{
    run r = {.set = set, .how = runner, .scores = out};
    bool shares = !runner->gpu && !runner->is_unshared;
    sw_code rc = open_run(&r, err);

    for (int64_t i = 0; i < set->first_of[set->task->n_items]; i++)
        out[i] = (sw_task_score){0, true, NULL};
    sw_progress_step(runner->progress, runner->stage, 0, set->task->n_items);
    if (rc == SW_OK && set->task->kind == SW_TASK_GENERATION)
        rc = sw_task_write(out, set, runner, &r.model, arena, err);
    else if (rc == SW_OK)
        rc = shares && is_worth_sharing(set) ? run_items(&r, err) : run_batches(&r, err);
    sw_runner_free(&r.model);
    sw_mem_put(r.logits);
    sw_mem_put(r.looks);
    return rc;
}
