/* chat_access.c - attributes, indexes, slices and iteration. See chat_run.h. */
#include <string.h>

#include "formats/text/characters/unicode.h"
#include "formats/text/chat/chat_run.h"

sw_code sw_chat_keep(sw_chat_value *out, sw_chat_run *run, sw_print_buf *buf)
{
    char *copy = NULL;
    sw_code rc = sw_chat_step(run, buf->n_bytes);

    if (rc == SW_OK)
        rc = sw_arena_text(&copy, run->arena, buf->n_bytes ? buf->at : "", buf->n_bytes, run->err);
    if (rc == SW_OK) *out = sw_chat_of_text(copy, buf->n_bytes);
    sw_mem_put(buf->at);
    *buf = (sw_print_buf){0};
    return rc;
}

sw_code sw_chat_to_text(sw_chat_text *out, sw_chat_run *run, const sw_chat_value *value)
{
    sw_print_buf buf = {0};
    sw_chat_value text;
    sw_code rc;

    if (value->kind == SW_CHAT_TEXT) {
        *out = value->text;
        return SW_OK;
    }
    rc = sw_chat_at_node(run, sw_chat_print(&buf, value, false, 0, run->err));
    if (rc == SW_OK) rc = sw_chat_keep(&text, run, &buf);
    else sw_mem_put(buf.at);
    if (rc == SW_OK) *out = text.text;
    return rc;
}

static sw_code undefined_member(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                                sw_chat_text name)
{
    int n = name.n > 60 ? 60 : (int)name.n;

    if (object->kind == SW_CHAT_UNDEFINED)
        return sw_chat_fail(run, SW_E_FORMAT, "%.*s is undefined, so it has no \"%.*s\"",
                            object->text.n > 60 ? 60 : (int)object->text.n, object->text.at, n,
                            name.at);
    *out = sw_chat_undefined(name);
    return SW_OK;
}

static sw_code loop_attribute(sw_chat_value *out, sw_chat_run *run, const sw_chat_loop *l,
                              sw_chat_text name)
{
    int64_t at = l->at, n = l->list->n;
    const struct {
        const char *name;
        sw_chat_value value;
    } known[] = {{"index", sw_chat_int(at + 1)},     {"index0", sw_chat_int(at)},
                 {"revindex", sw_chat_int(n - at)},  {"revindex0", sw_chat_int(n - at - 1)},
                 {"first", sw_chat_bool(!at)},       {"last", sw_chat_bool(at == n - 1)},
                 {"length", sw_chat_int(n)},         {"depth", sw_chat_int(1)},
                 {"depth0", sw_chat_int(0)}}; /* depths of recursive loops, which are refused */

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (sw_chat_text_is(name, known[i].name)) {
            *out = known[i].value;
            return SW_OK;
        }
    *out = sw_chat_undefined(name);
    if (sw_chat_text_is(name, "previtem")) {
        if (at > 0) *out = l->list->items[at - 1];
        return SW_OK;
    }
    if (sw_chat_text_is(name, "nextitem")) {
        if (at + 1 < n) *out = l->list->items[at + 1];
        return SW_OK;
    }
    return sw_chat_fail(run, SW_E_UNSUPPORTED, "loop.%.*s is not known here",
                        name.n > 60 ? 60 : (int)name.n, name.at);
}

static sw_code bind(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                    sw_chat_text name)
{
    sw_chat_method *method = NULL;
    sw_code rc = SW_ARENA_TAKE(&method, run->arena, 1, run->err);

    if (rc != SW_OK) return rc;
    *method = (sw_chat_method){*object, name};
    *out = (sw_chat_value){.kind = SW_CHAT_METHOD, .method = method};
    return SW_OK;
}

sw_code sw_chat_attribute(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                          sw_chat_text name)
{
    const sw_chat_value *member = NULL;

    switch (object->kind) {
    case SW_CHAT_LOOP: return loop_attribute(out, run, object->loop, name);
    case SW_CHAT_SPACE:
        if (run->in_loop_filter)
            return sw_chat_fail(run, SW_E_UNSUPPORTED,
                                "a namespace in the condition of a loop is not known here");
        member = sw_chat_map_find(object->map, name);
        break;
    case SW_CHAT_MACRO:
    case SW_CHAT_METHOD:
    case SW_CHAT_FUNCTION:
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "attributes of %s are not known here",
                            sw_chat_kind_name(object->kind));
    default: /* in Python, too, a method hides a member of its name */
        if (sw_chat_has_method(object->kind, name)) return bind(out, run, object, name);
        if (object->kind == SW_CHAT_MAP) member = sw_chat_map_find(object->map, name);
    }
    if (!member) return undefined_member(out, run, object, name);
    *out = *member;
    return SW_OK;
}

static sw_code element(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                       int64_t i)
{
    int64_t n = object->kind == SW_CHAT_LIST ? object->list->n : sw_chat_n_points(object->text);
    sw_code rc;

    if (object->kind == SW_CHAT_TEXT && (rc = sw_chat_step(run, object->text.n)) != SW_OK)
        return rc;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return undefined_member(out, run, object, (sw_chat_text){"element", 7});
    if (object->kind == SW_CHAT_LIST) *out = object->list->items[i];
    else *out = (sw_chat_value){.kind = SW_CHAT_TEXT, .text = sw_chat_point(object->text, i)};
    return SW_OK;
}

static bool has_indexes(const sw_chat_value *v)
{
    return v->kind == SW_CHAT_TEXT || (v->kind == SW_CHAT_LIST && v->mark <= SW_CHAT_RANGE);
}

sw_code sw_chat_index(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                      const sw_chat_value *index)
{
    const sw_chat_value *member;

    if (object->kind == SW_CHAT_LIST && !has_indexes(object))
        return sw_chat_fail(run, SW_E_FORMAT, "an index into a view or a lazy list");
    if (has_indexes(object) && sw_chat_is_whole(index))
        return element(out, run, object, sw_chat_whole(index));
    if (index->kind == SW_CHAT_TEXT) {
        if (object->kind == SW_CHAT_MAP) {
            member = sw_chat_map_find(object->map, index->text);
            if (member) {
                *out = *member;
                return SW_OK;
            }
        }
        return sw_chat_attribute(out, run, object, index->text);
    }
    if (object->kind > SW_CHAT_MAP)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "an index into %s is not known here",
                            sw_chat_kind_name(object->kind));
    return undefined_member(out, run, object, (sw_chat_text){"element", 7});
}

/* Python limits a bound to 0..n, and to -1..n-1 where steps go backwards. */
static int64_t clamp(int64_t bound, int64_t n, bool is_backwards)
{
    if (bound < 0) bound += n;
    if (bound < 0) return is_backwards ? -1 : 0;
    if (bound >= n) return is_backwards ? n - 1 : n;
    return bound;
}

static sw_code slice_text(sw_chat_value *out, sw_chat_run *run, sw_chat_text text, int64_t start,
                          int64_t step, int64_t count)
{
    uint32_t *offsets = NULL, point;
    char *made = NULL;
    size_t n = 0;
    int64_t i = 0;
    sw_code rc;

    if ((rc = sw_chat_step(run, text.n)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&offsets, run->arena, text.n + 1, run->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&made, run->arena, text.n, run->err)) != SW_OK)
        return rc;
    for (size_t at = 0; at < text.n; at = sw_utf8_next(&point, text.at, at))
        offsets[i++] = (uint32_t)at;
    offsets[i] = (uint32_t)text.n;
    for (i = 0; i < count; i++) {
        int64_t at = start + i * step;
        size_t n_char = offsets[at + 1] - offsets[at];
        memcpy(made + n, text.at + offsets[at], n_char);
        n += n_char;
    }
    *out = sw_chat_of_text(made, n);
    return SW_OK;
}

static sw_code slice_list(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                          int64_t start, int64_t step, int64_t count)
{
    sw_chat_list *list = NULL;
    sw_code rc;

    if ((rc = sw_chat_step(run, (size_t)count * sizeof *list->items)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, count, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < count; i++) list->items[i] = object->list->items[start + i * step];
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .mark = object->mark, .list = list};
    return SW_OK;
}

sw_code sw_chat_slice(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                      const sw_chat_value *start, const sw_chat_value *stop,
                      const sw_chat_value *step)
{
    const sw_chat_value *bounds[] = {start, stop, step};
    int64_t by = step && sw_chat_is_whole(step) ? sw_chat_whole(step) : 1, from, to, n, count;

    for (int i = 0; i < 3; i++)
        if (bounds[i] && !sw_chat_is_whole(bounds[i]))
            return sw_chat_fail(run, SW_E_FORMAT, "%s as a bound of a slice",
                                sw_chat_kind_name(bounds[i]->kind));
    if (object->kind == SW_CHAT_UNDEFINED)
        return undefined_member(out, run, object, (sw_chat_text){"slice", 5});
    if (!has_indexes(object))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "a slice of %s is not known here",
                            sw_chat_kind_name(object->kind));
    if (!by || by > INT32_MAX || by < -INT32_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "a slice with steps of %lld", (long long)by);
    n = object->kind == SW_CHAT_TEXT ? sw_chat_n_points(object->text) : object->list->n;
    from = start ? clamp(sw_chat_whole(start), n, by < 0) : by > 0 ? 0 : n - 1;
    to = stop ? clamp(sw_chat_whole(stop), n, by < 0) : by > 0 ? n : -1;
    count = by > 0 ? (to - from + by - 1) / by : (from - to - by - 1) / -by;
    if (by > 0 ? to <= from : from <= to) count = 0;
    return object->kind == SW_CHAT_TEXT ? slice_text(out, run, object->text, from, by, count)
                                        : slice_list(out, run, object, from, by, count);
}

sw_code sw_chat_stream(sw_chat_value *out, sw_chat_run *run, const sw_chat_list *list)
{
    sw_chat_list *once = NULL;
    bool *is_spent = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&once, run->arena, 1, run->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&is_spent, run->arena, 1, run->err)) != SW_OK)
        return rc;
    *once = (sw_chat_list){list->n, list->items, is_spent};
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .mark = SW_CHAT_STREAM, .list = once};
    return SW_OK;
}

static sw_code pass_once(const sw_chat_list **out, sw_chat_run *run, const sw_chat_list *list)
{
    if (list->is_spent && *list->is_spent)
        return sw_chat_fail(run, SW_E_UNSUPPORTED,
                            "what a lazy filter gave, for the second time, is not known here");
    if (list->is_spent) *list->is_spent = true;
    *out = list;
    return SW_OK;
}

sw_code sw_chat_iterate(const sw_chat_list **out, sw_chat_run *run, const sw_chat_value *value)
{
    sw_chat_list *list = NULL;
    sw_chat_value keys;
    uint32_t point;
    int64_t i = 0;
    sw_code rc;

    switch (value->kind) {
    case SW_CHAT_LIST: return pass_once(out, run, value->list);
    case SW_CHAT_UNDEFINED:
        rc = sw_chat_list_new(&list, run->arena, 0, run->err);
        *out = list;
        return rc;
    case SW_CHAT_MAP:
        if ((rc = sw_chat_members(&keys, run, value->map, true, false)) == SW_OK) *out = keys.list;
        return rc;
    case SW_CHAT_TEXT: break;
    default:
        return sw_chat_fail(run, SW_E_FORMAT, "%s cannot be passed through",
                            sw_chat_kind_name(value->kind));
    }
    if ((rc = sw_chat_step(run, 32 * value->text.n)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, sw_chat_n_points(value->text), run->err)) !=
            SW_OK)
        return rc;
    for (size_t at = 0, end; at < value->text.n; at = end) {
        end = sw_utf8_next(&point, value->text.at, at);
        list->items[i++] = sw_chat_of_text(value->text.at + at, end - at);
    }
    *out = list;
    return SW_OK;
}
