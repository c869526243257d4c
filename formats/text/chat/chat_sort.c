/* chat_sort.c - filters that compare the elements of a list: sort and unique. See chat_run.h. */
#include <stdlib.h>
#include <string.h>

#include "formats/text/chat/chat_run.h"

#define KEYS_MAX 4 /* attributes to sort by */

typedef struct element {
    sw_chat_value keys[KEYS_MAX];
    sw_chat_value item;
    int64_t at; /* where it was, so that equal elements keep their order */
    int n_keys, direction;
} element;

/* How elements are compared: by which attributes, and whether case counts. */
typedef struct look {
    sw_chat_value names[KEYS_MAX]; /* one of kind NONE stands for the element itself */
    int n_names;
    bool has_case;
} look;

/* Read the arguments case_sensitive and attribute from these places; commas separate attributes. */
static sw_code read_look(look *out, sw_chat_run *run, const sw_chat_args *args, int64_t place,
                         bool may_split)
{
    const sw_chat_value *has_case = sw_chat_arg(args, place, "case_sensitive");
    const sw_chat_value *attribute = sw_chat_arg(args, place + 1, "attribute");
    size_t from = 0;

    *out = (look){.has_case = has_case && sw_chat_is_true(has_case)};
    if (!attribute || attribute->kind == SW_CHAT_NONE) {
        out->names[out->n_names++] = sw_chat_none();
        return SW_OK;
    }
    if (attribute->kind != SW_CHAT_TEXT)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "this attribute of a list is not known here");
    while (from <= attribute->text.n) {
        const char *at = attribute->text.at + from;
        const char *comma = may_split ? memchr(at, ',', attribute->text.n - from) : NULL;
        const size_t n = comma ? (size_t)(comma - at) : attribute->text.n - from;

        if (out->n_names == KEYS_MAX)
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "more than %d attributes", KEYS_MAX);
        out->names[out->n_names++] = sw_chat_of_text(at, n);
        from += n + 1;
    }
    return SW_OK;
}

static sw_code key_of(sw_chat_value *out, sw_chat_run *run, const look *l, int i,
                      const sw_chat_value *item)
{
    sw_code rc = sw_chat_step(run, 0);

    *out = *item;
    if (rc == SW_OK && l->names[i].kind != SW_CHAT_NONE)
        rc = sw_chat_attribute_of(out, run, item, &l->names[i]);
    if (rc == SW_OK && out->kind == SW_CHAT_TEXT && !l->has_case)
        rc = sw_chat_change_case(out, run, out->text, SW_CHAT_LOWER);
    return rc;
}

static int compare_keys(const sw_chat_value *a, const sw_chat_value *b)
{
    if (a->kind == SW_CHAT_TEXT) return sw_chat_compare_text(a->text, b->text);
    if (sw_chat_is_whole(a) && sw_chat_is_whole(b))
        return (sw_chat_whole(a) > sw_chat_whole(b)) - (sw_chat_whole(a) < sw_chat_whole(b));
    return (sw_chat_number(a) > sw_chat_number(b)) - (sw_chat_number(a) < sw_chat_number(b));
}

static int compare_elements(const void *a, const void *b)
{
    const element *x = a, *y = b;
    int order = 0;

    for (int i = 0; i < x->n_keys && !order; i++) order = compare_keys(&x->keys[i], &y->keys[i]);
    return order ? order * x->direction : (x->at > y->at) - (x->at < y->at);
}

/* In Python texts compare with texts and numbers with numbers. Python compares a later attribute
 * only where earlier ones are equal; here all must be comparable. */
static sw_code check_keys(sw_chat_run *run, const element *elements, int64_t n)
{
    for (int64_t i = 0; n > 1 && i < n; i++)
        for (int k = 0; k < elements[i].n_keys; k++) {
            const sw_chat_value *key = &elements[i].keys[k], *first = &elements[0].keys[k];
            const bool is_text = key->kind == SW_CHAT_TEXT && first->kind == SW_CHAT_TEXT;

            if (is_text || (sw_chat_is_number(key) && sw_chat_is_number(first))) continue;
            return sw_chat_fail(run, SW_E_FORMAT, "sort of %s and %s",
                                sw_chat_kind_name(first->kind), sw_chat_kind_name(key->kind));
        }
    return SW_OK;
}

sw_code sw_chat_sort(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                     const sw_chat_args *args)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute", NULL};
    const sw_chat_value *reverse = sw_chat_arg(args, 0, names[0]);
    const sw_chat_list *list = NULL;
    sw_chat_list *sorted = NULL;
    element *elements = NULL;
    look l;
    sw_code rc = sw_chat_check_args(run, args, 3, names);

    if (rc != SW_OK || (rc = read_look(&l, run, args, 1, true)) != SW_OK ||
        (rc = sw_chat_iterate(&list, run, value)) != SW_OK ||
        (rc = sw_chat_step(run, (size_t)list->n * 256)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&elements, run->arena, list->n, run->err)) != SW_OK ||
        (rc = sw_chat_list_new(&sorted, run->arena, list->n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < list->n && rc == SW_OK; i++) {
        elements[i] = (element){.item = list->items[i], .at = i, .n_keys = l.n_names,
                                .direction = reverse && sw_chat_is_true(reverse) ? -1 : 1};
        for (int k = 0; k < l.n_names && rc == SW_OK; k++)
            rc = key_of(&elements[i].keys[k], run, &l, k, &list->items[i]);
    }
    if (rc != SW_OK || (rc = check_keys(run, elements, list->n)) != SW_OK) return rc;
    if (list->n > 1) qsort(elements, (size_t)list->n, sizeof *elements, compare_elements);
    for (int64_t i = 0; i < list->n; i++) sorted->items[i] = elements[i].item;
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .list = sorted};
    return SW_OK;
}

/* Find out whether the key is one of the first n. */
static sw_code is_among(bool *out, sw_chat_run *run, const sw_chat_value *keys, int64_t n,
                        const sw_chat_value *key)
{
    sw_code rc = SW_OK;

    *out = false;
    for (int64_t i = 0; i < n && !*out && rc == SW_OK; i++)
        rc = sw_chat_at_node(run, sw_chat_equal(out, key, &keys[i], 0, &run->n_steps, run->err));
    return rc;
}

sw_code sw_chat_unique(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args)
{
    static const char *const names[] = {"case_sensitive", "attribute", NULL};
    const sw_chat_list *list = NULL;
    sw_chat_list *kept = NULL, *keys = NULL;
    int64_t n = 0;
    look l;
    sw_code rc = sw_chat_check_args(run, args, 2, names);

    if (rc != SW_OK || (rc = read_look(&l, run, args, 0, false)) != SW_OK ||
        (rc = sw_chat_iterate(&list, run, value)) != SW_OK ||
        (rc = sw_chat_list_new(&kept, run->arena, list->n, run->err)) != SW_OK ||
        (rc = sw_chat_list_new(&keys, run->arena, list->n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < list->n; i++) {
        sw_chat_value *key = &keys->items[n];
        bool is_seen = false;

        if ((rc = key_of(key, run, &l, 0, &list->items[i])) != SW_OK) return rc;
        if (key->kind == SW_CHAT_MAP || (key->kind == SW_CHAT_LIST && key->mark != SW_CHAT_TUPLE))
            return sw_chat_fail(run, SW_E_FORMAT, "unique of %s", sw_chat_kind_name(key->kind));
        if ((rc = is_among(&is_seen, run, keys->items, n, key)) != SW_OK) return rc;
        if (!is_seen) kept->items[n++] = list->items[i];
    }
    kept->n = n;
    return sw_chat_stream(out, run, kept);
}
