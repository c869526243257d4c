/* task_write.h - what a model goes on with behind the prompts of a generation task. */
#ifndef SW_VERIFY_TASKS_TASK_WRITE_H
#define SW_VERIFY_TASKS_TASK_WRITE_H

#include "verify/tasks/task_run.h"

/* Greedily, as many tokens as the answer has and a few more, or up to an end token, or to the end
 * of the line unless the answer has several; without blanks around. Into out[i].text. */
sw_code sw_task_write(sw_task_score *out, const sw_task_set *set, const sw_task_runner *runner,
                      sw_runner *model, sw_arena *arena, sw_err *err) SW_MUST_USE;
/* `text` without blanks around, and without what follows its first line unless `answer` has
 * several. */
sw_code sw_task_trim(const char **out, const char *text, const char *answer, sw_arena *arena,
                     sw_err *err) SW_MUST_USE;

#endif
