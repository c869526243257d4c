/* task_file.c - see task_file.h. */
#include "verify/tasks/task_file.h"

#include <string.h>

#include "formats/base/json.h"
#include "formats/io/file.h"

static const sw_json_caps line_caps = {
    .max_bytes = (size_t)4 << 20, .max_depth = 16, .max_values = 10000};

static const struct {
    const char *name, *first, *second; /* members that tell the kind */
} kinds[SW_TASK_KIND_COUNT] = {
    [SW_TASK_CHOICE] = {"multiple choice", "query", "choices"},
    [SW_TASK_CLOZE] = {"cloze", "context", "continuation"},
    [SW_TASK_GENERATION] = {"generation", "prompt", "answer"},
};

const char *sw_task_kind_name(sw_task_kind kind) { return kinds[kind].name; }

typedef struct reader {
    sw_task *task;
    sw_arena *arena;
    const char *what;
    int64_t line;
    sw_err *err;
} reader;

static sw_code bad(const reader *r, const char *why)
{
    return SW_FAIL(r->err, SW_E_FORMAT, "%s: line %lld: %s", r->what, (long long)r->line, why);
}

/* A text is kept; `what` is what an error calls it. */
static sw_code keep(const char **out, const reader *r, const cJSON *text, bool may_be_empty,
                    const char *what)
{
    char *kept = NULL;
    sw_code rc;

    if (!cJSON_IsString(text))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: line %lld: %s is missing or no text", r->what,
                       (long long)r->line, what);
    if (!may_be_empty && !text->valuestring[0])
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: line %lld: %s is empty", r->what,
                       (long long)r->line, what);
    rc = sw_arena_text(&kept, r->arena, text->valuestring, strlen(text->valuestring), r->err);
    if (rc == SW_OK) *out = kept;
    return rc;
}

static sw_code read_choices(sw_task_item *item, const reader *r, const cJSON *object)
{
    const cJSON *list = sw_json_member(object, "choices"), *choice;
    int n = cJSON_GetArraySize(list), i = 0;
    int64_t gold = -1;
    sw_code rc;

    if (!cJSON_IsArray(list) || n < 2) return bad(r, "choices is no list of two or more");
    if (n > SW_TASK_CHOICES_MAX) return bad(r, "too many choices, at most 64");
    if (!sw_json_member(object, "gold"))
        return bad(r, "gold, the index of the right choice from 0, is missing");
    if ((rc = sw_json_int(&gold, object, "gold", 0, n - 1, r->err)) != SW_OK) {
        sw_err_prefix(r->err, "%s: line %lld", r->what, (long long)r->line);
        return rc;
    }
    if ((rc = SW_ARENA_TAKE(&item->choices, r->arena, n, r->err)) != SW_OK) return rc;
    cJSON_ArrayForEach(choice, list)
        if (rc == SW_OK) rc = keep(&item->choices[i++], r, choice, false, "a choice");
    item->n_choices = n;
    item->gold = (int)gold;
    return rc;
}

/* The kind whose two members are there; SW_TASK_KIND_COUNT: none. */
static sw_task_kind kind_of(const cJSON *object)
{
    int k = 0;

    while (k < SW_TASK_KIND_COUNT && !(sw_json_member(object, kinds[k].first) &&
                                       sw_json_member(object, kinds[k].second)))
        k++;
    return (sw_task_kind)k;
}

static sw_code read_item(sw_task_item *item, const reader *r, const cJSON *object)
{
    sw_task_kind kind = kind_of(object);
    sw_code rc;

    if (kind == SW_TASK_KIND_COUNT)
        return bad(r, "has neither query, choices and gold, nor context and continuation, nor "
                      "prompt and answer");
    if (r->task->n_items && kind != r->task->kind)
        return bad(r, "is of another kind than the first item; give each kind a file of its own");
    r->task->kind = kind;
    rc = keep(&item->query, r, sw_json_member(object, kinds[kind].first), true, kinds[kind].first);
    if (rc != SW_OK || kind == SW_TASK_CHOICE)
        return rc == SW_OK ? read_choices(item, r, object) : rc;
    if ((rc = SW_ARENA_TAKE(&item->choices, r->arena, 1, r->err)) != SW_OK) return rc;
    item->n_choices = 1;
    return keep(&item->choices[0], r, sw_json_member(object, kinds[kind].second), false,
                kinds[kind].second);
}

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", line[i]) || !line[i]) return false;
    return true;
}

static sw_code read_line(const reader *r, const char *line, size_t n)
{
    cJSON *object = NULL;
    sw_code rc;

    if (r->task->n_items == SW_TASK_ITEMS_MAX) return bad(r, "more than a million items");
    if ((rc = sw_json_parse(&object, line, n, &line_caps, "item", r->err)) != SW_OK) {
        sw_err_prefix(r->err, "%s: line %lld", r->what, (long long)r->line);
        return rc;
    }
    rc = read_item(&r->task->items[r->task->n_items], r, object);
    if (rc == SW_OK) r->task->n_items++;
    cJSON_Delete(object);
    return rc;
}

static sw_code name_it(sw_task *task, sw_arena *arena, const char *what, sw_err *err)
{
    const char *slash = strrchr(what, '/'), *base = slash ? slash + 1 : what;
    const char *dot = strrchr(base, '.');
    char *name = NULL;
    sw_code rc = sw_arena_text(&name, arena, base, dot && dot > base ? (size_t)(dot - base)
                                                                     : strlen(base), err);

    task->name = name;
    return rc;
}

sw_code sw_task_parse(sw_task *out, sw_arena *arena, const char *text, size_t n_bytes,
                      const char *what, sw_err *err)
{
    sw_task task = {.name = NULL};
    reader r = {&task, arena, what, 0, err};
    const char *end = text + n_bytes;
    int64_t n_lines = 1;
    sw_code rc;

    if (n_bytes > SW_TASK_FILE_BYTES_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %zu bytes, at most %zu", what, n_bytes,
                       SW_TASK_FILE_BYTES_MAX);
    for (const char *p = text; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++) n_lines++;
    if (n_lines > SW_TASK_ITEMS_MAX + 1) n_lines = SW_TASK_ITEMS_MAX + 1;
    if ((rc = name_it(&task, arena, what, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&task.items, arena, n_lines, err)) != SW_OK)
        return rc;
    while (text < end && rc == SW_OK) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text);

        r.line++;
        if (!is_blank(text, n)) rc = read_line(&r, text, n);
        text += n + 1;
    }
    if (rc == SW_OK && !task.n_items)
        return SW_FAIL(err, SW_E_FORMAT, "%s: holds no item", what);
    if (rc == SW_OK) *out = task;
    return rc;
}

sw_code sw_task_read(sw_task *out, sw_arena *arena, const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc = sw_map_open(&map, path, err);

    if (rc != SW_OK) return rc;
    rc = sw_task_parse(out, arena, (const char *)map.data, map.size_bytes, path, err);
    sw_map_close(&map);
    return rc;
}

sw_code sw_tasks_check(const char *const *paths, int64_t n, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_arena arena = {0};
        sw_task task;

        rc = sw_task_read(&task, &arena, paths[i], err);
        sw_arena_free(&arena);
    }
    return rc;
}
