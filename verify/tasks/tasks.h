/* tasks.h - how well a checkpoint answers questions, and whether its answers are the original's. */
#ifndef SW_VERIFY_TASKS_TASKS_H
#define SW_VERIFY_TASKS_TASKS_H

#include "formats/base/progress.h"
#include "verify/base/report.h"
#include "verify/tasks/task_run.h"

typedef struct sw_tasks_job {
    const char *const *paths; /* task files (task_file.h) */
    int64_t n_paths;
    sw_tokenizer *tok;
    const sw_lm *checkpoint, *original; /* original NULL: none */
    sw_device *gpu;                     /* NULL: the CPU */
    sw_device_set *gpus;                /* as sw_verify_options has them */
    int n_threads;
    bool with_bos;
    int64_t window;          /* tokens of a sequence; 0: the model's positions */
    sw_bootstrap bootstrap;
    const sw_progress *progress; /* stages "tasks" and "tasks, original" */
} sw_tasks_job;

/* All files into report->tasks. SW_E_FORMAT, SW_E_UNSUPPORTED name file and line or item. */
sw_code sw_tasks_measure(sw_report *report, const sw_tasks_job *job, sw_err *err) SW_MUST_USE;

/* The answer of an item by its scores: the index of the likeliest choice (by_bytes: per byte of
 * it), ties to the lower one. */
int sw_task_answer(const sw_task_score *scores, const sw_task_sequence *sequences, int n_choices,
                   bool by_bytes);

#endif
