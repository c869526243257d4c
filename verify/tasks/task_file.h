/* task_file.h - questions with known answers, one JSON object a line, as evaluation harnesses keep
 * them. All lines of a file are of one kind:
 *
 *   {"query": TEXT, "choices": [TEXT, ...], "gold": INDEX}  which choice is the likeliest behind it
 *   {"context": TEXT, "continuation": TEXT}                 is each token of it the likeliest one
 *   {"prompt": TEXT, "answer": TEXT}                        is that what the model goes on with
 *
 * Other members say nothing here. A choice is put behind its query with a blank between them,
 * unless either has one there.
 */
#ifndef SW_VERIFY_TASKS_TASK_FILE_H
#define SW_VERIFY_TASKS_TASK_FILE_H

#include <stdint.h>

#include "formats/base/mem.h"

#define SW_TASK_FILE_BYTES_MAX ((size_t)256 << 20)
#define SW_TASK_ITEMS_MAX 1000000
#define SW_TASK_CHOICES_MAX 64

typedef enum sw_task_kind {
    SW_TASK_CHOICE, SW_TASK_CLOZE, SW_TASK_GENERATION, SW_TASK_KIND_COUNT
} sw_task_kind;
const char *sw_task_kind_name(sw_task_kind kind); /* "multiple choice", ... */

typedef struct sw_task_item {
    const char *query;    /* what comes first: query, context or prompt */
    const char **choices; /* [n_choices]; of the other kinds the one continuation or answer */
    int n_choices, gold;
} sw_task_item;

typedef struct sw_task {
    const char *name; /* the file's, without folders and ending */
    sw_task_kind kind;
    sw_task_item *items; /* in the arena that they were read into, as all texts are */
    int64_t n_items;
} sw_task;

/* SW_E_FORMAT: a line, named, that is no item or one of another kind than the first; no items; more
 * of anything than the caps above. `what` is the path. */
sw_code sw_task_parse(sw_task *out, sw_arena *arena, const char *text, size_t n_bytes,
                      const char *what, sw_err *err) SW_MUST_USE;
sw_code sw_task_read(sw_task *out, sw_arena *arena, const char *path, sw_err *err) SW_MUST_USE;
/* Before hours of work all files of questions are known to be that. */
sw_code sw_tasks_check(const char *const *paths, int64_t n, sw_err *err) SW_MUST_USE;

#endif
