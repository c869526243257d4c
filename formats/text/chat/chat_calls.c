/* chat_calls.c - functions and macros, and the arguments of both. See chat_run.h. */
#include <string.h>

#include "formats/text/chat/chat_run.h"

typedef enum function {
    RANGE,
    NAMESPACE,
    DICT,
    RAISE,
    STRFTIME_NOW
} function;

static const char *const functions[] = {"range", "namespace", "dict", "raise_exception",
                                        "strftime_now"};

sw_code sw_chat_function(sw_chat_value *out, sw_chat_text name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (sw_chat_text_is(name, functions[i])) {
            *out = (sw_chat_value){.kind = SW_CHAT_FUNCTION, .integer = (int64_t)i};
            return SW_OK;
        }
    return SW_E_USAGE;
}

const sw_chat_value *sw_chat_arg(const sw_chat_args *args, int64_t i, const char *name)
{
    if (i >= 0 && i < args->n && !args->names[i].at) return &args->values[i];
    for (int64_t k = 0; name && k < args->n; k++)
        if (args->names[k].at && sw_chat_text_is(args->names[k], name)) return &args->values[k];
    return NULL;
}

sw_code sw_chat_check_args(sw_chat_run *run, const sw_chat_args *args, int64_t n_max,
                           const char *const *names)
{
    if (args->n > n_max)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "%lld arguments where at most %lld are known",
                            (long long)args->n, (long long)n_max);
    for (int64_t i = 0; i < args->n; i++) {
        bool is_known = !args->names[i].at;
        int64_t place = 0;
        for (; !is_known && names && names[place]; place++)
            is_known = sw_chat_text_is(args->names[i], names[place]);
        if (!is_known)
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "the argument %.*s is not known here",
                                args->names[i].n > 60 ? 60 : (int)args->names[i].n,
                                args->names[i].at);
        if (args->names[i].at && place - 1 < args->n && !args->names[place - 1].at)
            return sw_chat_fail(run, SW_E_FORMAT, "an argument is given twice");
    }
    return SW_OK;
}

#define RANGE_MAX 100000

static sw_code make_range(sw_chat_value *out, sw_chat_run *run, const sw_chat_args *args)
{
    int64_t bounds[3] = {0, 0, 1}, count;
    sw_chat_list *list = NULL;
    sw_code rc = sw_chat_check_args(run, args, 3, NULL);

    if (rc != SW_OK) return rc;
    if (!args->n) return sw_chat_fail(run, SW_E_FORMAT, "range without a bound");
    for (int64_t i = 0; i < args->n; i++) {
        if (!sw_chat_is_whole(&args->values[i]))
            return sw_chat_fail(run, SW_E_FORMAT, "%s as a bound of range",
                                sw_chat_kind_name(args->values[i].kind));
        bounds[args->n == 1 ? 1 : i] = sw_chat_whole(&args->values[i]);
    }
    for (int i = 0; i < 3; i++)
        if (bounds[i] > INT32_MAX || bounds[i] < -INT32_MAX || !bounds[2])
            return sw_chat_fail(run, SW_E_FORMAT, "range with a bound of %lld",
                                (long long)bounds[i]);
    count = bounds[2] > 0 ? (bounds[1] - bounds[0] + bounds[2] - 1) / bounds[2]
                          : (bounds[0] - bounds[1] - bounds[2] - 1) / -bounds[2];
    if (bounds[2] > 0 ? bounds[1] <= bounds[0] : bounds[0] <= bounds[1]) count = 0;
    if (count > RANGE_MAX) /* the limit of Jinja's sandbox */
        return sw_chat_fail(run, SW_E_FORMAT, "range of %lld, at most %d", (long long)count,
                            RANGE_MAX);
    if ((rc = sw_chat_step(run, (size_t)count * 32)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, count, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < count; i++) list->items[i] = sw_chat_int(bounds[0] + i * bounds[2]);
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .mark = SW_CHAT_RANGE, .list = list};
    return SW_OK;
}

static sw_code make_map(sw_chat_value *out, sw_chat_run *run, const sw_chat_args *args,
                        sw_chat_kind kind)
{
    const sw_chat_value *first = sw_chat_arg(args, 0, NULL);
    sw_chat_map *map = NULL;
    sw_code rc = SW_ARENA_TAKE(&map, run->arena, 1, run->err);

    if (rc != SW_OK) return rc;
    if (first && (first->kind != SW_CHAT_MAP || (args->n > 1 && !args->names[1].at)))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "namespace or dict of other than a mapping");
    for (int64_t i = 0; first && i < first->map->n && rc == SW_OK; i++)
        rc = sw_chat_map_put(map, run->arena, first->map->keys[i], &first->map->values[i],
                             run->err);
    for (int64_t i = first ? 1 : 0; i < args->n && rc == SW_OK; i++)
        rc = sw_chat_map_put(map, run->arena, args->names[i], &args->values[i], run->err);
    *out = (sw_chat_value){.kind = kind, .map = map};
    return rc;
}

static sw_code tell_time(sw_chat_value *out, sw_chat_run *run, const sw_chat_args *args)
{
    char format[128], text[512], *copy = NULL;
    sw_chat_text given;
    size_t n;
    sw_code rc = sw_chat_check_args(run, args, 1, NULL);

    if (rc != SW_OK) return rc;
    if (args->n != 1 || args->values[0].kind != SW_CHAT_TEXT)
        return sw_chat_fail(run, SW_E_FORMAT, "strftime_now takes a format");
    given = args->values[0].text;
    if (given.n >= sizeof format - 1)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "a date format of %zu bytes", given.n);
    for (size_t i = 0; i < given.n; i++) {
        if (given.at[i] != '%') continue;
        i += i + 1 < given.n && given.at[i + 1] == '-' ? 2 : 1;
        if (i >= given.n || !strchr("YmdbBHMSAayjpI%", given.at[i]))
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "this date format is not known here");
    }
    memcpy(format, given.at, given.n);
    format[given.n] = ' '; /* strftime returns 0 for an empty result as well as for a long one */
    format[given.n + 1] = 0;
    n = strftime(text, sizeof text, format, run->now);
    if (!n) return sw_chat_fail(run, SW_E_FORMAT, "a date that is too long");
    rc = sw_arena_text(&copy, run->arena, text, n - 1, run->err);
    *out = sw_chat_of_text(copy, n - 1);
    return rc;
}

static sw_code raise(sw_chat_run *run, const sw_chat_args *args)
{
    sw_chat_text text = {"raise_exception", 15};
    sw_code rc = sw_chat_check_args(run, args, 1, (const char *const[]){"message", NULL});

    if (rc == SW_OK && args->n) rc = sw_chat_to_text(&text, run, &args->values[0]);
    if (rc != SW_OK) return rc;
    return sw_chat_fail(run, SW_E_FORMAT, "the template refuses this conversation: %.*s",
                        text.n > 200 ? 200 : (int)text.n, text.at);
}

/* Set the parameters of a macro as variables of its frame. */
static sw_code bind_parameters(sw_chat_run *run, sw_chat_frame *frame, const sw_chat_node *macro,
                               const sw_chat_args *args)
{
    const sw_chat_node *nodes = run->tree->nodes;
    int64_t place = 0, n_used = 0;
    sw_code rc = SW_OK;

    for (int32_t at = macro->a; at && rc == SW_OK; at = nodes[at].next, place++) {
        const sw_chat_value *given = sw_chat_arg(args, place, NULL);
        sw_chat_value value = sw_chat_undefined(nodes[at].text);
        for (int64_t i = 0; i < args->n && !given; i++)
            if (args->names[i].at && sw_chat_same_text(args->names[i], nodes[at].text))
                given = &args->values[i];
        n_used += given != NULL;
        if (given) value = *given;
        else if (nodes[at].a) rc = sw_chat_eval(&value, run, nodes[at].a);
        if (rc == SW_OK) rc = sw_chat_set(run, frame, nodes[at].text, &value);
    }
    if (rc == SW_OK && n_used != args->n)
        return sw_chat_fail(run, SW_E_FORMAT, "the macro %.*s has no such argument",
                            macro->text.n > 60 ? 60 : (int)macro->text.n, macro->text.at);
    return rc;
}

static sw_code call_macro(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *macro,
                          const sw_chat_args *args)
{
    sw_chat_frame frame = {.outer = run->root}, *outer = run->frame;
    sw_code rc;

    run->frame = &frame;
    rc = bind_parameters(run, &frame, macro, args);
    run->frame = outer;
    if (rc == SW_OK) rc = sw_chat_exec_inner(out, run, macro->b, &frame);
    return rc;
}

sw_code sw_chat_call(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *callee,
                     const sw_chat_args *args)
{
    switch (callee->kind) {
    case SW_CHAT_METHOD: return sw_chat_call_method(out, run, callee->method, args);
    case SW_CHAT_MACRO:
        return call_macro(out, run, &run->tree->nodes[callee->integer], args);
    case SW_CHAT_FUNCTION: break;
    case SW_CHAT_UNDEFINED:
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "the function %.*s is not known here",
                            callee->text.n > 60 ? 60 : (int)callee->text.n, callee->text.at);
    default:
        return sw_chat_fail(run, SW_E_FORMAT, "%s is called like a function",
                            sw_chat_kind_name(callee->kind));
    }
    switch ((function)callee->integer) {
    case RANGE: return make_range(out, run, args);
    case NAMESPACE: return make_map(out, run, args, SW_CHAT_SPACE);
    case DICT: return make_map(out, run, args, SW_CHAT_MAP);
    case RAISE: return raise(run, args);
    case STRFTIME_NOW: return tell_time(out, run, args);
    default: return sw_chat_fail(run, SW_E_BUG, "no function");
    }
}
