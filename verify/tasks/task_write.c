/* task_write.c - see task_write.h. */
#include "verify/tasks/task_write.h"

#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

sw_code sw_task_trim(const char **out, const char *text, const char *answer, sw_arena *arena,
                     sw_err *err)
{
    size_t n_answer = strlen(answer), n;
    bool is_one_line;
    char *kept = NULL;
    sw_code rc;

    while (is_space(*answer)) answer++;
    n_answer = strlen(answer);
    while (n_answer && is_space(answer[n_answer - 1])) n_answer--;
    is_one_line = !n_answer || !memchr(answer, '\n', n_answer);
    while (is_space(*text)) text++;
    n = is_one_line ? strcspn(text, "\n") : strlen(text);
    while (n && is_space(text[n - 1])) n--;
    rc = sw_arena_text(&kept, arena, text, n, err);
    if (rc == SW_OK) *out = kept;
    return rc;
}

static sw_code take(void *self, uint32_t id, sw_err *err)
{
    return sw_ids_push(self, id, err);
}

static sw_code generate(sw_ids *out, const sw_task_sequence *q, const sw_task_runner *runner,
                        sw_runner *model, sw_err *err)
{
    const sw_generate_options g = {.sampling = {0, 0, 1, 0}, .max_new = q->max_new};
    const sw_token_sink sink = {out, take};
    sw_device_session *on_device = NULL;
    sw_session *session = NULL;
    sw_code rc;

    if (runner->gpu) {
        rc = sw_device_session_new(&on_device, model->gpu_lm, 1, q->n + q->max_new, &g.sampling,
                                   err);
        if (rc == SW_OK)
            rc = sw_device_generate(on_device, runner->lm->model, q->ids, q->n, &g, &sink, NULL,
                                    err);
        sw_device_session_free(on_device);
        return rc;
    }
    rc = sw_session_new(&session, model->engine, runner->lm, q->n + q->max_new, err);
    if (rc == SW_OK) rc = sw_generate(session, runner->lm, q->ids, q->n, &g, &sink, NULL, err);
    sw_session_free(session);
    return rc;
}

sw_code sw_task_write(sw_task_score *out, const sw_task_set *set, const sw_task_runner *runner,
                      sw_runner *model, sw_arena *arena, sw_err *err)
{
    sw_ids ids = {0};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < set->task->n_items && rc == SW_OK; i++) {
        char *text = NULL;
        size_t n = 0;

        ids.n = 0;
        if ((rc = sw_progress_check(runner->progress, err)) != SW_OK ||
            (rc = generate(&ids, &set->sequences[i], runner, model, err)) != SW_OK ||
            (rc = sw_tokenizer_decode(set->tok, &text, &n, ids.ids, ids.n, true, err)) != SW_OK)
            break;
        rc = sw_task_trim(&out[i].text, text, set->task->items[i].choices[0], arena, err);
        sw_mem_put(text);
        sw_progress_step(runner->progress, runner->stage, i + 1, set->task->n_items);
    }
    sw_ids_free(&ids);
    return rc;
}
