/* task_run.h - one model over the items of a task: log-likelihoods, or what it writes. */
#ifndef SW_VERIFY_TASKS_TASK_RUN_H
#define SW_VERIFY_TASKS_TASK_RUN_H

#include "formats/base/progress.h"
#include "verify/metrics/windows.h"
#include "verify/tasks/task_ids.h"

/* The items of a task as a model is asked them. */
typedef struct sw_task_set {
    const sw_task *task;
    sw_task_sequence *sequences; /* of all items, one after the other */
    int64_t *first_of;           /* [n_items + 1] into sequences */
    int64_t longest;             /* ids that a model sees of one, and writes */
    sw_tokenizer *tok;           /* borrowed; of generations */
} sw_task_set;

/* What one sequence got: log p(choice | query), the sum over its tokens, natural logarithm; and
 * whether each of them was the likeliest (ties to the lower id). */
typedef struct sw_task_score {
    double ll;
    bool is_greedy;
    const char *text; /* of a generation: what the model wrote; in the arena */
} sw_task_score;

typedef struct sw_task_runner {
    const sw_lm *lm;
    sw_device *gpu; /* NULL: the CPU */
    sw_device_set *gpus; /* as sw_verify_options has them */
    int n_threads;
    const sw_progress *progress;
    const char *stage;  /* what the progress is called */
    bool is_unshared;   /* run every sequence as a whole: for tests, and on a device always */
} sw_task_runner;

/* Scores of all sequences. On the CPU what the choices of an item begin with runs once; on a device
 * each sequence is a row of a batch. Choices of one token behind the same query are one sequence in
 * either case. Errors as sw_engine_block. */
sw_code sw_task_run(sw_task_score *out, const sw_task_set *set, const sw_task_runner *runner,
                    sw_arena *arena, sw_err *err) SW_MUST_USE;

#endif
