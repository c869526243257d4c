/* json_diff.c - see json_diff.h. */
#include "verify/checks/json_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"

#define DEPTH_MAX 64

typedef struct walk {
    sw_json_diff *out;
    const char *const *left_out;
    char path[SW_JSON_DIFF_PATH_BYTES];
    sw_err *err;
} walk;

bool sw_json_is_nothing(const cJSON *value)
{
    if (!value || cJSON_IsNull(value) || cJSON_IsFalse(value)) return true;
    if (cJSON_IsString(value)) return !*value->valuestring;
    return (cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child;
}

/* Cut to `size` bytes at the start of a character, with dots where something is gone. */
static void cut(char *to, size_t size, const char *from)
{
    size_t n = strlen(from);

    if (n < size) {
        memcpy(to, from, n + 1);
        return;
    }
    n = size - 4;
    while (n && ((unsigned char)from[n] & 0xc0) == 0x80) n--;
    memcpy(to, from, n);
    memcpy(to + n, "...", 4);
}

void sw_json_brief(char text[SW_JSON_DIFF_TEXT_BYTES], const cJSON *value)
{
    char *printed = value && !cJSON_IsNull(value) ? cJSON_PrintUnformatted(value) : NULL;

    cut(text, SW_JSON_DIFF_TEXT_BYTES, printed ? printed : "absent");
    cJSON_free(printed);
}

static void note(walk *w, const cJSON *have, const cJSON *want)
{
    size_t n = strlen(w->path), good = 0;

    if (w->out->n++) return;
    if (!sw_utf8_is_valid(w->path, n, &good)) n = good; /* cut off in a character */
    memcpy(w->out->path, w->path, n);
    w->out->path[n] = '\0';
    sw_json_brief(w->out->have, have);
    sw_json_brief(w->out->want, want);
}

/* Append to the path; the length to go back to. */
static size_t enter(walk *w, const char *name, int64_t index)
{
    size_t n = strlen(w->path);
    char part[96], number[24];

    if (name) {
        cut(part, sizeof part, name);
        (void)snprintf(w->path + n, sizeof w->path - n, "%s%s", n ? "." : "", part);
    } else {
        (void)snprintf(number, sizeof number, "[%lld]", (long long)index);
        (void)snprintf(w->path + n, sizeof w->path - n, "%s", number);
    }
    return n;
}

/* A pair that is written as one text, the two with a blank between them. */
static bool is_joined(const cJSON *text, const cJSON *pair)
{
    const cJSON *a = pair->child, *b = a ? a->next : NULL;
    size_t n;

    if (!cJSON_IsString(text) || !cJSON_IsArray(pair) || !cJSON_IsString(a) ||
        !cJSON_IsString(b) || b->next)
        return false;
    n = strlen(a->valuestring);
    return !strncmp(text->valuestring, a->valuestring, n) && text->valuestring[n] == ' ' &&
           !strcmp(text->valuestring + n + 1, b->valuestring);
}

static bool is_content(const cJSON *text, const cJSON *object)
{
    const cJSON *content = sw_json_member(object, "content");

    return cJSON_IsString(text) && cJSON_IsObject(object) && cJSON_IsString(content) &&
           !strcmp(text->valuestring, content->valuestring);
}

static bool is_same_leaf(const cJSON *a, const cJSON *b)
{
    if (sw_json_is_nothing(a) && sw_json_is_nothing(b)) return true;
    if (!a || !b) return false;
    if (cJSON_IsNumber(a) && cJSON_IsNumber(b))
        return a->valuedouble >= b->valuedouble && a->valuedouble <= b->valuedouble;
    if (cJSON_IsString(a) && cJSON_IsString(b)) return !strcmp(a->valuestring, b->valuestring);
    if (cJSON_IsBool(a) && cJSON_IsBool(b)) return cJSON_IsTrue(a) == cJSON_IsTrue(b);
    return is_joined(a, b) || is_joined(b, a) || is_content(a, b) || is_content(b, a);
}

static int compare_members(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static sw_code sorted_members(const cJSON ***out, int64_t *n_out, const cJSON *object, sw_err *err)
{
    int64_t n = cJSON_GetArraySize(object), at = 0;
    const cJSON *member;
    sw_code rc = SW_MEM_GET(out, n, "members of JSON", err);

    if (rc != SW_OK) return rc;
    cJSON_ArrayForEach(member, object) (*out)[at++] = member;
    if (n) qsort(*out, (size_t)n, sizeof **out, compare_members);
    *n_out = n;
    return SW_OK;
}

static bool is_left_out(const walk *w, const char *name)
{
    for (const char *const *at = w->left_out; at && *at; at++)
        if (!strcmp(*at, name)) return true;
    return false;
}

static sw_code compare(walk *w, const cJSON *have, const cJSON *want, int depth);

static sw_code compare_objects(walk *w, const cJSON *have, const cJSON *want, int depth)
{
    const cJSON **a = NULL, **b = NULL;
    int64_t n_a = 0, n_b = 0, i = 0, k = 0;
    sw_code rc = sorted_members(&a, &n_a, have, w->err);

    if (rc == SW_OK) rc = sorted_members(&b, &n_b, want, w->err);
    while (rc == SW_OK && (i < n_a || k < n_b)) {
        int order = i == n_a ? 1 : k == n_b ? -1 : compare_members(&a[i], &b[k]);
        const cJSON *x = order <= 0 ? a[i] : NULL, *y = order >= 0 ? b[k] : NULL;
        const char *name = x ? x->string : y->string;
        size_t back = enter(w, name, 0);

        if (!is_left_out(w, name)) rc = compare(w, x, y, depth + 1);
        w->path[back] = '\0';
        i += x != NULL;
        k += y != NULL;
    }
    sw_mem_put(a);
    sw_mem_put(b);
    return rc;
}

static sw_code compare_arrays(walk *w, const cJSON *have, const cJSON *want, int depth)
{
    const cJSON *a = have->child, *b = want->child;
    sw_code rc = SW_OK;

    for (int64_t i = 0; rc == SW_OK && (a || b); i++) {
        size_t back = enter(w, NULL, i);

        if (a && b)
            rc = compare(w, a, b, depth + 1);
        else
            note(w, a, b); /* a list's length counts, whatever the rest of it holds */
        w->path[back] = '\0';
        a = a ? a->next : NULL;
        b = b ? b->next : NULL;
    }
    return rc;
}

static sw_code compare(walk *w, const cJSON *have, const cJSON *want, int depth)
{
    if (depth < DEPTH_MAX && cJSON_IsObject(have) && cJSON_IsObject(want))
        return compare_objects(w, have, want, depth);
    if (depth < DEPTH_MAX && cJSON_IsArray(have) && cJSON_IsArray(want))
        return compare_arrays(w, have, want, depth);
    if (!is_same_leaf(have, want)) note(w, have, want);
    return SW_OK;
}

sw_code sw_json_compare(sw_json_diff *out, const cJSON *have, const cJSON *want,
                        const char *const *left_out, sw_err *err)
{
    sw_json_diff found = {.n = 0};
    walk w = {.out = &found, .left_out = left_out, .err = err};
    sw_code rc = compare(&w, have, want, 0);

    if (rc == SW_OK) *out = found;
    return rc;
}
