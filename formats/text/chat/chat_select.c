/* chat_select.c - filters that go through a list: select, map, dictsort. See chat_run.h. */
#include <stdlib.h>
#include <string.h>

#include "formats/text/chat/chat_run.h"

/* Take the arguments from `from` on; false where one of them has a name. */
static bool rest_of(sw_chat_args *out, const sw_chat_args *args, int64_t from)
{
    *out = (sw_chat_args){0};
    for (int64_t i = 0; i < args->n; i++)
        if (args->names[i].at) return false;
    if (args->n > from)
        *out = (sw_chat_args){args->n - from, args->values + from, args->names + from};
    return true;
}

sw_code sw_chat_attribute_of(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *item,
                             const sw_chat_value *name)
{
    if (name->kind != SW_CHAT_TEXT || memchr(name->text.at, '.', name->text.n) ||
        (name->text.n && name->text.at[0] >= '0' && name->text.at[0] <= '9'))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "this attribute of a list is not known here");
    return sw_chat_index(out, run, item, name); /* Jinja, too, tries the member first here */
}

/* For a value that counts as false, of any kind, Jinja's filters over lists take an empty list. */
static sw_code elements(const sw_chat_list **out, sw_chat_run *run, const sw_chat_value *value)
{
    static const sw_chat_value nothing = {.kind = SW_CHAT_UNDEFINED};

    return sw_chat_iterate(out, run, sw_chat_is_true(value) ? value : &nothing);
}

sw_code sw_chat_select(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args, bool by_attribute, bool keeps)
{
    const sw_chat_value *test = sw_chat_arg(args, by_attribute, NULL);
    const sw_chat_list *list = NULL;
    sw_chat_list *kept = NULL;
    sw_chat_args rest;
    int64_t n = 0;
    int index = -1;
    sw_code rc;

    if (!rest_of(&rest, args, by_attribute + 1) || (by_attribute && !args->n))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "these arguments are not known here");
    if (test && (test->kind != SW_CHAT_TEXT || (index = sw_chat_test_index(test->text)) < 0))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "this test of elements is not known here");
    if ((rc = elements(&list, run, value)) != SW_OK ||
        (rc = sw_chat_list_new(&kept, run->arena, list->n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < list->n && rc == SW_OK; i++) {
        sw_chat_value item = list->items[i];
        bool is_so;
        if ((rc = sw_chat_step(run, 0)) != SW_OK) break;
        if (by_attribute &&
            (rc = sw_chat_attribute_of(&item, run, &list->items[i], &args->values[0])) != SW_OK)
            break;
        is_so = sw_chat_is_true(&item);
        if (test) rc = sw_chat_test(&is_so, run, index, &item, &rest);
        if (rc == SW_OK && is_so == keeps) kept->items[n++] = list->items[i];
    }
    kept->n = n;
    return rc == SW_OK ? sw_chat_stream(out, run, kept) : rc;
}

sw_code sw_chat_map_filter(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                           const sw_chat_args *args)
{
    static const char *const names[] = {"", "attribute", NULL};
    const sw_chat_value *name = sw_chat_arg(args, -1, names[1]);
    const sw_chat_value *filter = sw_chat_arg(args, 0, NULL);
    const sw_chat_list *list = NULL;
    sw_chat_list *made = NULL;
    sw_chat_args rest = {0};
    int index = -1;
    sw_code rc;

    if (filter && filter->kind == SW_CHAT_TEXT) index = sw_chat_filter_index(filter->text);
    if (name ? args->n != 1 : index < 0 || !rest_of(&rest, args, 1))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "map with these arguments is not known here");
    if ((rc = elements(&list, run, value)) != SW_OK ||
        (rc = sw_chat_list_new(&made, run->arena, list->n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < list->n && rc == SW_OK; i++) {
        if ((rc = sw_chat_step(run, 0)) != SW_OK) break;
        rc = name ? sw_chat_attribute_of(&made->items[i], run, &list->items[i], name)
                  : sw_chat_filter(&made->items[i], run, index, &list->items[i], &rest);
    }
    return rc == SW_OK ? sw_chat_stream(out, run, made) : rc;
}

typedef struct pair {
    sw_chat_text folded; /* the key in lower case */
    int64_t at;          /* where it was, so that equal keys keep their order */
    sw_chat_value item;
} pair;

static int compare_pairs(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    int order = sw_chat_compare_text(x->folded, y->folded);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

sw_code sw_chat_dictsort(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                         const sw_chat_args *args)
{
    sw_chat_value members, folded;
    sw_chat_list *list = NULL;
    pair *pairs = NULL;
    int64_t n;
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK) return rc;
    if (value->kind != SW_CHAT_MAP)
        return sw_chat_fail(run, SW_E_FORMAT, "dictsort of %s", sw_chat_kind_name(value->kind));
    n = value->map->n;
    if ((rc = sw_chat_step(run, (size_t)n * 256)) != SW_OK ||
        (rc = sw_chat_members(&members, run, value->map, true, true)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&pairs, run->arena, n, run->err)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        rc = sw_chat_change_case(&folded, run, value->map->keys[i], SW_CHAT_LOWER);
        if (rc == SW_OK) pairs[i] = (pair){folded.text, i, members.list->items[i]};
    }
    if (rc != SW_OK) return rc;
    if (n > 1) qsort(pairs, (size_t)n, sizeof *pairs, compare_pairs);
    for (int64_t i = 0; i < n; i++) list->items[i] = pairs[i].item;
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .list = list};
    return SW_OK;
}
