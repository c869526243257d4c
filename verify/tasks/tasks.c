/* tasks.c - see tasks.h: from scores to shares with intervals. */
#include "verify/tasks/tasks.h"

#include <string.h>

#include "formats/base/size.h"
#include "verify/tasks/task_write.h"

#define LENGTH_MAX 65536 /* tokens of a sequence, where the model has more positions */

/* What is bootstrapped over items: 0 or 1, or their difference. */
enum {
    ACC, ACC_NORM, ACC_REF, ACC_NORM_REF, ACC_DIFF, ACC_NORM_DIFF, FLIPS, FLIPS_NORM, N_STATS
};

int sw_task_answer(const sw_task_score *scores, const sw_task_sequence *sequences, int n_choices,
                   bool by_bytes)
{
    double best = 0;
    int answer = 0;

    for (int i = 0; i < n_choices; i++) {
        double v = by_bytes ? scores[i].ll / (double)sequences[i].n_bytes : scores[i].ll;

        if (i && !(v > best)) continue;
        best = v;
        answer = i;
    }
    return answer;
}

typedef struct taken {
    bool is_right, is_right_norm;
    int answer, answer_norm;
    const char *text;
} taken;

/* One model's answer to an item. */
static sw_code take(taken *out, const sw_task_set *set, int64_t item, const sw_task_score *scores,
                    sw_arena *arena, sw_err *err)
{
    const sw_task_item *it = &set->task->items[item];
    int64_t base = set->first_of[item];
    const sw_task_score *s = &scores[base];
    const char *want;
    sw_code rc;

    *out = (taken){.text = ""};
    if (set->task->kind == SW_TASK_CHOICE) {
        out->answer = sw_task_answer(s, &set->sequences[base], it->n_choices, false);
        out->answer_norm = sw_task_answer(s, &set->sequences[base], it->n_choices, true);
        out->is_right = out->answer == it->gold;
        out->is_right_norm = out->answer_norm == it->gold;
    } else if (set->task->kind == SW_TASK_CLOZE) {
        out->answer = s->is_greedy;
        out->is_right = s->is_greedy;
    } else {
        out->text = s->text;
        if ((rc = sw_task_trim(&want, it->choices[0], it->choices[0], arena, err)) != SW_OK)
            return rc;
        out->is_right = !strcmp(s->text, want);
    }
    return SW_OK;
}

static void count(double *const stats[N_STATS], int64_t item, const taken *have, const taken *ref)
{
    stats[ACC][item] = have->is_right;
    stats[ACC_NORM][item] = have->is_right_norm;
    if (!ref) return;
    stats[ACC_REF][item] = ref->is_right;
    stats[ACC_NORM_REF][item] = ref->is_right_norm;
    stats[ACC_DIFF][item] = (double)have->is_right - (double)ref->is_right;
    stats[ACC_NORM_DIFF][item] = (double)have->is_right_norm - (double)ref->is_right_norm;
    stats[FLIPS][item] = have->answer != ref->answer || strcmp(have->text, ref->text) != 0;
    stats[FLIPS_NORM][item] = have->answer_norm != ref->answer_norm;
}

static void put_intervals(sw_report_task *out, const sw_interval at[N_STATS])
{
    out->acc = at[ACC];
    out->acc_norm = at[ACC_NORM];
    out->acc_original = at[ACC_REF];
    out->acc_norm_original = at[ACC_NORM_REF];
    out->acc_diff = at[ACC_DIFF];
    out->acc_norm_diff = at[ACC_NORM_DIFF];
    out->flips = at[FLIPS];
    out->flips_norm = at[FLIPS_NORM];
}

/* ref NULL: there is no original. */
static sw_code judge(sw_report_task *out, const sw_task_set *set, const sw_tasks_job *job,
                     const sw_task_score *have, const sw_task_score *ref, sw_arena *arena,
                     sw_err *err)
{
    int64_t n = set->task->n_items;
    double *stats[N_STATS] = {NULL};
    sw_interval at[N_STATS];
    sw_code rc = SW_OK;

    for (int s = 0; s < N_STATS && rc == SW_OK; s++)
        rc = SW_ARENA_TAKE(&stats[s], arena, n, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        taken a, b;

        rc = take(&a, set, i, have, arena, err);
        if (rc == SW_OK && ref) rc = take(&b, set, i, ref, arena, err);
        if (rc == SW_OK) count(stats, i, &a, ref ? &b : NULL);
    }
    if (rc == SW_OK)
        rc = sw_bootstrap_means(at, (const double *const *)stats, N_STATS, n, &job->bootstrap, err);
    if (rc == SW_OK) put_intervals(out, at);
    return rc;
}

static sw_code encode_all(sw_task_set *set, const sw_tasks_job *job, int64_t *n_cut,
                          sw_arena *arena, sw_err *err)
{
    const sw_task *task = set->task;
    const sw_model *m = job->checkpoint->model;
    int64_t most = sw_min_i64(m->max_positions, LENGTH_MAX);
    sw_task_encoder e = {.tok = job->tok, .model = m, .with_bos = job->with_bos};
    sw_code rc = SW_ARENA_TAKE(&set->first_of, arena, task->n_items + 1, err);

    if (rc != SW_OK) return rc;
    if (job->window > most)
        return SW_FAIL(err, SW_E_USAGE, "a window of %lld tokens; the model has %lld positions",
                       (long long)job->window, (long long)most);
    e.max_tokens = (job->window ? job->window : most) + (task->kind != SW_TASK_GENERATION);
    for (int64_t i = 0; i < task->n_items; i++)
        set->first_of[i + 1] = set->first_of[i] + task->items[i].n_choices;
    rc = SW_ARENA_TAKE(&set->sequences, arena, set->first_of[task->n_items], err);
    set->longest = 2;
    for (int64_t i = 0; i < task->n_items && rc == SW_OK; i++) {
        sw_task_sequence *s = &set->sequences[set->first_of[i]];

        rc = sw_task_encode(s, &e, task, i, arena, err);
        for (int c = 0; c < task->items[i].n_choices && rc == SW_OK; c++)
            set->longest = sw_max_i64(set->longest, s[c].n + s[c].max_new);
    }
    *n_cut = e.n_cut;
    return rc;
}

static sw_code measure(sw_report_task *out, const sw_tasks_job *job, const char *path,
                       sw_arena *arena, sw_err *err)
{
    sw_task task;
    sw_task_set set = {.task = &task, .tok = job->tok};
    sw_task_score *have = NULL, *ref = NULL;
    sw_task_runner runner = {.lm = job->checkpoint, .gpu = job->gpu, .gpus = job->gpus,
                             .n_threads = job->n_threads, .progress = job->progress,
                             .stage = "tasks"};
    sw_code rc;

    if ((rc = sw_task_read(&task, arena, path, err)) != SW_OK ||
        (rc = encode_all(&set, job, &out->n_cut, arena, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&have, arena, set.first_of[task.n_items], err)) != SW_OK ||
        (rc = sw_task_run(have, &set, &runner, arena, err)) != SW_OK)
        return rc;
    if (job->original) {
        runner.lm = job->original;
        runner.stage = "tasks, original";
        if ((rc = SW_ARENA_TAKE(&ref, arena, set.first_of[task.n_items], err)) != SW_OK ||
            (rc = sw_task_run(ref, &set, &runner, arena, err)) != SW_OK)
            return rc;
    }
    out->name = task.name;
    out->kind = sw_task_kind_name(task.kind);
    out->n_items = task.n_items;
    out->has_original = job->original != NULL;
    out->has_norm = task.kind == SW_TASK_CHOICE;
    return judge(out, &set, job, have, ref, arena, err);
}

static sw_code keep_name(sw_report_task *task, sw_report *report, sw_err *err)
{
    char *kept = NULL;
    sw_code rc = sw_arena_text(&kept, &report->arena, task->name, strlen(task->name), err);

    task->name = kept;
    return rc;
}

sw_code sw_tasks_measure(sw_report *report, const sw_tasks_job *job, sw_err *err)
{
    sw_report_task *tasks = NULL;
    sw_code rc = SW_ARENA_TAKE(&tasks, &report->arena, job->n_paths, err);

    for (int64_t i = 0; i < job->n_paths && rc == SW_OK; i++) {
        sw_arena arena = {0};

        rc = measure(&tasks[i], job, job->paths[i], &arena, err);
        if (rc == SW_OK) rc = keep_name(&tasks[i], report, err);
        sw_arena_free(&arena);
    }
    if (rc != SW_OK) return rc;
    report->tasks = tasks;
    report->n_tasks = job->n_paths;
    return SW_OK;
}
