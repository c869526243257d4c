/* task_ids.c - see task_ids.h. */
#include "verify/tasks/task_ids.h"

#include <stdio.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Query and choice as one text; *n_query bytes of it are the query without its last blanks. */
static sw_code join(char **out, size_t *n_query, const sw_task *task, const sw_task_item *item,
                    int choice, sw_arena *arena, sw_err *err)
{
    const char *query = item->query, *text = item->choices[choice];
    size_t n = strlen(query);
    bool has_blank = task->kind != SW_TASK_CHOICE || !n || is_space(query[n - 1]) ||
                     is_space(text[0]);

    *n_query = n;
    while (*n_query && is_space(query[*n_query - 1])) (*n_query)--;
    return sw_arena_print(out, arena, err, "%s%s%s", query, has_blank ? "" : " ", text);
}

/* What stands before the first token: BOS if it is asked for; behind nothing something must. */
static sw_code push_start(sw_ids *ids, const sw_task_encoder *e, bool is_bare, sw_err *err)
{
    int64_t id = e->model->bos_id;

    if (!e->with_bos && !is_bare) return SW_OK;
    if (id < 0 && is_bare) id = e->model->eos_id;
    if (id < 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "the model has no BOS token to put before %s",
                       is_bare ? "an empty query" : "a query");
    return sw_ids_push(ids, (uint32_t)id, err);
}

static sw_code cut(sw_task_sequence *s, sw_task_encoder *e, sw_arena *arena, const sw_ids *ids,
                   sw_err *err)
{
    int64_t most = e->max_tokens - s->max_new;
    int64_t over = ids->n > most ? ids->n - most : 0;
    sw_code rc;

    e->n_cut += over > 0;
    s->n = ids->n - over;
    s->first = s->first > over ? s->first - over : 1;
    if ((rc = SW_ARENA_TAKE(&s->ids, arena, s->n, err)) != SW_OK) return rc;
    memcpy(s->ids, ids->ids + over, (size_t)s->n * sizeof *s->ids);
    return SW_OK;
}

static sw_code check_vocab(const sw_task_encoder *e, const sw_ids *ids, sw_err *err)
{
    for (int64_t i = 0; i < ids->n; i++)
        if ((int64_t)ids->ids[i] >= e->model->vocab)
            return SW_FAIL(err, SW_E_FORMAT, "the tokenizer's id %u is beyond the model's "
                           "vocabulary of %lld", ids->ids[i], (long long)e->model->vocab);
    return SW_OK;
}

static sw_code encode_choice(sw_task_sequence *s, sw_task_encoder *e, const sw_task *task,
                             const sw_task_item *item, int choice, sw_arena *arena, sw_err *err)
{
    sw_arena_mark mark = sw_arena_save(arena);
    sw_ids ids = {0}, query = {0};
    size_t n_query = 0;
    char *text = NULL;
    sw_code rc = join(&text, &n_query, task, item, choice, arena, err);

    if (rc == SW_OK) rc = push_start(&query, e, !n_query, err);
    if (rc == SW_OK) rc = push_start(&ids, e, !n_query, err);
    if (rc == SW_OK && n_query) rc = sw_tokenizer_encode(e->tok, &query, text, n_query, false, err);
    if (rc == SW_OK) rc = sw_tokenizer_encode(e->tok, &ids, text, strlen(text), false, err);
    if (rc == SW_OK) rc = check_vocab(e, &ids, err);
    sw_arena_reset(arena, mark);
    s->first = query.n;
    s->n_bytes = (int64_t)strlen(item->choices[choice]);
    if (rc == SW_OK && (ids.n <= query.n || !query.n))
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "choice %d has no token of its own behind its query",
                     choice);
    if (rc == SW_OK) rc = cut(s, e, arena, &ids, err);
    sw_ids_free(&ids);
    sw_ids_free(&query);
    return rc;
}

static sw_code encode_prompt(sw_task_sequence *s, sw_task_encoder *e, const sw_task_item *item,
                             sw_arena *arena, sw_err *err)
{
    size_t n = strlen(item->query);
    sw_ids ids = {0};
    sw_code rc = sw_tokenizer_encode(e->tok, &ids, item->choices[0], strlen(item->choices[0]),
                                     false, err);

    s->max_new = ids.n + SW_TASK_MORE_TOKENS;
    if (rc == SW_OK && s->max_new >= e->max_tokens)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "an answer of %lld tokens leaves no room for the "
                     "prompt in %lld", (long long)ids.n, (long long)e->max_tokens);
    ids.n = 0;
    if (rc == SW_OK) rc = push_start(&ids, e, !n, err);
    if (rc == SW_OK && n) rc = sw_tokenizer_encode(e->tok, &ids, item->query, n, false, err);
    if (rc == SW_OK) rc = check_vocab(e, &ids, err);
    if (rc == SW_OK && !ids.n) rc = push_start(&ids, e, true, err);
    s->first = ids.n;
    if (rc == SW_OK) rc = cut(s, e, arena, &ids, err);
    sw_ids_free(&ids);
    return rc;
}

/* The last id of a sequence is no input. Choices of one token behind the same query have the same
 * inputs; a choice that begins another has that one's. */
static void find_shared(sw_task_sequence *all, int n)
{
    for (int i = 0; i < n; i++) {
        all[i].run = i;
        for (int j = 0; j < n && all[i].run == i; j++) {
            bool is_longer = all[j].n > all[i].n || (all[j].n == all[i].n && j < i);

            if (is_longer &&
                !memcmp(all[i].ids, all[j].ids, (size_t)(all[i].n - 1) * sizeof *all[i].ids))
                all[i].run = j;
        }
    }
    for (int i = 0; i < n; i++) /* the longest of a chain */
        while (all[all[i].run].run != all[i].run) all[i].run = all[all[i].run].run;
}

sw_code sw_task_encode(sw_task_sequence *out, sw_task_encoder *encoder, const sw_task *task,
                       int64_t item, sw_arena *arena, sw_err *err)
{
    const sw_task_item *it = &task->items[item];
    sw_code rc = SW_OK;

    for (int c = 0; c < it->n_choices && rc == SW_OK; c++)
        rc = task->kind == SW_TASK_GENERATION ? encode_prompt(&out[c], encoder, it, arena, err)
                                              : encode_choice(&out[c], encoder, task, it, c, arena,
                                                              err);
    if (rc == SW_OK)
        find_shared(out, it->n_choices);
    else
        sw_err_prefix(err, "%s: item %lld", task->name, (long long)item + 1);
    return rc;
}
