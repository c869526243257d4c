/* chat_value.c - text, maps, truth and equality. See chat_value.h. */
#include "formats/text/chat/chat_value.h"

#include <string.h>

#include "formats/text/characters/unicode.h"
#include "formats/text/chat/chat_template.h"

bool sw_chat_text_is(sw_chat_text text, const char *word)
{
    return strlen(word) == text.n && !memcmp(text.at, word, text.n);
}

bool sw_chat_same_text(sw_chat_text a, sw_chat_text b)
{
    return a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n));
}

int sw_chat_compare_text(sw_chat_text a, sw_chat_text b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.at, b.at, n) : 0; /* UTF-8 has the order of its code points */

    return order ? order : (a.n > b.n) - (a.n < b.n);
}

size_t sw_chat_find_text(sw_chat_text text, sw_chat_text part, size_t from)
{
    const char *found;

    if (!part.n) return from;
    if (from >= text.n || text.n - from < part.n) return text.n;
    found = memmem(text.at + from, text.n - from, part.at, part.n);
    return found ? (size_t)(found - text.at) : text.n;
}

int64_t sw_chat_n_points(sw_chat_text text)
{
    int64_t n = 0;

    for (size_t i = 0; i < text.n; i++) n += sw_utf8_is_start(text.at[i]);
    return n;
}

sw_chat_text sw_chat_point(sw_chat_text text, int64_t i)
{
    uint32_t point;
    size_t at = 0, end;

    for (; i > 0; i--) at = sw_utf8_next(&point, text.at, at);
    end = sw_utf8_next(&point, text.at, at);
    return (sw_chat_text){text.at + at, end - at};
}

bool sw_chat_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(sw_chat_text point, uint32_t code_point, const sw_chat_text *chars)
{
    if (!chars) return sw_chat_is_space(code_point);
    return chars->n && sw_chat_find_text(*chars, point, 0) < chars->n;
}

sw_chat_text sw_chat_strip(sw_chat_text text, const sw_chat_text *chars, bool at_start, bool at_end)
{
    uint32_t point;

    while (at_start && text.n) {
        size_t end = sw_utf8_next(&point, text.at, 0);
        if (!is_stripped((sw_chat_text){text.at, end}, point, chars)) break;
        text.at += end;
        text.n -= end;
    }
    while (at_end && text.n) {
        size_t start = sw_utf8_back(text.at, text.n);
        (void)sw_utf8_next(&point, text.at, start);
        if (!is_stripped((sw_chat_text){text.at + start, text.n - start}, point, chars)) break;
        text.n = start;
    }
    return text;
}

const char *sw_chat_kind_name(sw_chat_kind kind)
{
    static const char *const names[] = {"undefined", "none", "a truth value", "an integer",
                                        "a number",  "text", "a list",        "a mapping",
                                        "a namespace", "loop", "a macro", "a method", "a function"};
    return names[kind];
}

bool sw_chat_is_true(const sw_chat_value *v)
{
    switch (v->kind) {
    case SW_CHAT_UNDEFINED:
    case SW_CHAT_NONE: return false;
    case SW_CHAT_BOOL: return v->flag;
    case SW_CHAT_INT: return v->integer != 0;
    case SW_CHAT_REAL: return v->real != 0;
    case SW_CHAT_TEXT: return v->text.n > 0;
    case SW_CHAT_LIST: return v->mark == SW_CHAT_STREAM || v->list->n > 0;
    case SW_CHAT_MAP: return v->map->n > 0;
    default: return true;
    }
}

const sw_chat_value *sw_chat_map_find(const sw_chat_map *map, sw_chat_text key)
{
    for (int64_t i = 0; i < map->n; i++)
        if (sw_chat_same_text(map->keys[i], key)) return &map->values[i];
    return NULL;
}

static sw_code grow(sw_chat_map *map, sw_arena *arena, sw_err *err)
{
    int64_t room = map->room ? 2 * map->room : 8;
    sw_chat_value *values;
    sw_chat_text *keys;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&keys, arena, room, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&values, arena, room, err)) != SW_OK)
        return rc;
    if (map->n) {
        memcpy(keys, map->keys, (size_t)map->n * sizeof *keys);
        memcpy(values, map->values, (size_t)map->n * sizeof *values);
    }
    map->keys = keys;
    map->values = values;
    map->room = room;
    return SW_OK;
}

sw_code sw_chat_map_put(sw_chat_map *map, sw_arena *arena, sw_chat_text key,
                        const sw_chat_value *value, sw_err *err)
{
    const sw_chat_value *there = sw_chat_map_find(map, key);
    sw_code rc;

    if (there) {
        map->values[there - map->values] = *value;
        return SW_OK;
    }
    if (map->n == map->room && (rc = grow(map, arena, err)) != SW_OK) return rc;
    map->keys[map->n] = key;
    map->values[map->n++] = *value;
    return SW_OK;
}

sw_code sw_chat_list_new(sw_chat_list **out, sw_arena *arena, int64_t n, sw_err *err)
{
    sw_chat_list *list = NULL;
    sw_code rc = SW_ARENA_TAKE(&list, arena, 1, err);

    if (rc == SW_OK) rc = SW_ARENA_TAKE(&list->items, arena, n, err);
    if (rc != SW_OK) return rc;
    list->n = n;
    *out = list;
    return SW_OK;
}

static sw_code equal_lists(bool *out, const sw_chat_value *a, const sw_chat_value *b, int depth,
                           int64_t *n_steps, sw_err *err)
{
    sw_code rc = SW_OK;

    if (a->mark > SW_CHAT_TUPLE || b->mark > SW_CHAT_TUPLE)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "comparing what is no plain list");
    *out = a->mark == b->mark && a->list->n == b->list->n;
    for (int64_t i = 0; i < a->list->n && *out && rc == SW_OK; i++)
        rc = sw_chat_equal(out, &a->list->items[i], &b->list->items[i], depth + 1, n_steps, err);
    return rc;
}

static sw_code equal_maps(bool *out, const sw_chat_map *a, const sw_chat_map *b, int depth,
                          int64_t *n_steps, sw_err *err)
{
    sw_code rc = SW_OK;

    *out = a->n == b->n;
    for (int64_t i = 0; i < a->n && *out && rc == SW_OK; i++) {
        const sw_chat_value *other = sw_chat_map_find(b, a->keys[i]);
        if (!other) *out = false;
        else rc = sw_chat_equal(out, &a->values[i], other, depth + 1, n_steps, err);
    }
    return rc;
}

sw_code sw_chat_equal(bool *out, const sw_chat_value *a, const sw_chat_value *b, int depth,
                      int64_t *n_steps, sw_err *err)
{
    if (depth > SW_CHAT_VALUE_DEPTH_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "values nested deeper than %d", SW_CHAT_VALUE_DEPTH_MAX);
    if (++*n_steps > SW_CHAT_STEPS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "more than %d steps", SW_CHAT_STEPS_MAX);
    *out = false;
    if (a->kind > SW_CHAT_MAP || b->kind > SW_CHAT_MAP)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "comparing %s with %s", sw_chat_kind_name(a->kind),
                       sw_chat_kind_name(b->kind));
    if (sw_chat_is_number(a) && sw_chat_is_number(b)) {
        *out = sw_chat_is_whole(a) && sw_chat_is_whole(b) ? sw_chat_whole(a) == sw_chat_whole(b)
                                                         : sw_chat_number(a) == sw_chat_number(b);
        return SW_OK;
    }
    if (a->kind != b->kind) return SW_OK;
    switch (a->kind) {
    case SW_CHAT_TEXT: *out = sw_chat_same_text(a->text, b->text); return SW_OK;
    case SW_CHAT_LIST: return equal_lists(out, a, b, depth, n_steps, err);
    case SW_CHAT_MAP: return equal_maps(out, a->map, b->map, depth, n_steps, err);
    default: *out = true; return SW_OK; /* none or undefined, both */
    }
}
