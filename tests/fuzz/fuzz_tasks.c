/* fuzz_tasks.c - any bytes as a file of questions: refused with a message, or items that hold what
 * a judge of them relies on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "verify/tasks/task_file.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const sw_task *task)
{
    MUST(task->n_items >= 1 && task->n_items <= SW_TASK_ITEMS_MAX);
    MUST((int)task->kind >= 0 && task->kind < SW_TASK_KIND_COUNT && task->name);
    for (int64_t i = 0; i < task->n_items; i++) {
        const sw_task_item *it = &task->items[i];

        MUST(it->query && it->n_choices >= 1 && it->n_choices <= SW_TASK_CHOICES_MAX);
        MUST(task->kind != SW_TASK_CHOICE || it->n_choices >= 2);
        MUST(it->gold >= 0 && it->gold < it->n_choices);
        for (int c = 0; c < it->n_choices; c++) MUST(it->choices[c] && it->choices[c][0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_arena arena = {0};
    sw_task task;
    sw_err err = {0};
    sw_code rc = sw_task_parse(&task, &arena, (const char *)data, size, "dir/x.jsonl", &err);

    if (rc == SW_OK)
        check(&task);
    else
        MUST(rc == SW_E_FORMAT && err.code == rc && err.text[0]);
    sw_arena_free(&arena);
    return 0;
}
