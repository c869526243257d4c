/* chat_print.c - values as Python prints them: str(), repr() and json.dumps(). See chat_value.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/text/characters/unicode.h"
#include "formats/text/chat/chat_template.h"
#include "formats/text/chat/chat_value.h"

static sw_code put(sw_print_buf *out, const char *text, sw_err *err)
{
    return sw_print_add(out, text, strlen(text), err);
}

static sw_code put_text(sw_print_buf *out, sw_chat_text text, sw_err *err)
{
    if (out->n_bytes + text.n > SW_CHAT_OUTPUT_BYTES_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "more than %zu bytes of text", SW_CHAT_OUTPUT_BYTES_MAX);
    return sw_print_add(out, text.at, text.n, err);
}

/* Write the fewest digits that read back as x, in the form of Python: below 1e-4 and from 1e16 on
 * with an exponent, otherwise with a point. */
static sw_code put_real(sw_print_buf *out, double x, sw_err *err)
{
    char text[40], digits[24];
    int exponent, n = 0, precision = 0;

    if (!isfinite(x)) return SW_FAIL(err, SW_E_UNSUPPORTED, "a number that is not finite");
    do (void)snprintf(text, sizeof text, "%.*e", precision, x);
    while (strtod(text, NULL) != x && ++precision < 17);
    exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    for (const char *p = text; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    digits[n] = 0;
    if (exponent < -4 || exponent >= 16)
        (void)snprintf(text, sizeof text, "%s%c%s%se%c%02d", signbit(x) ? "-" : "", digits[0],
                       n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    else
        (void)snprintf(text, sizeof text, "%.*f", n - 1 - exponent > 1 ? n - 1 - exponent : 1, x);
    return put(out, text, err);
}

static sw_code put_scalar(sw_print_buf *out, const sw_chat_value *v, sw_err *err)
{
    if (v->kind == SW_CHAT_INT) return sw_print_fmt(out, err, "%lld", (long long)v->integer);
    return put_real(out, v->real, err);
}

static bool is_printable(uint32_t point)
{
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return point == ' ';
    default: return true;
    }
}

static sw_code put_repr_point(sw_print_buf *out, sw_chat_text as, uint32_t c, char quote,
                              sw_err *err)
{
    if (c == (uint32_t)quote || c == '\\')
        return sw_print_fmt(out, err, "\\%c", (char)c);
    if (c == '\n' || c == '\r' || c == '\t')
        return put(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", err);
    if (is_printable(c)) return put_text(out, as, err);
    return sw_print_fmt(out, err, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

static sw_code put_repr(sw_print_buf *out, sw_chat_text text, sw_err *err)
{
    bool has_single = text.n && memchr(text.at, '\'', text.n);
    char quote[2] = {has_single && !memchr(text.at, '"', text.n) ? '"' : '\'', 0};
    sw_code rc = put(out, quote, err);
    uint32_t point;

    for (size_t at = 0, end; at < text.n && rc == SW_OK; at = end) {
        end = sw_utf8_next(&point, text.at, at);
        rc = put_repr_point(out, (sw_chat_text){text.at + at, end - at}, point, quote[0], err);
    }
    return rc == SW_OK ? put(out, quote, err) : rc;
}

static sw_code print_list(sw_print_buf *out, const sw_chat_value *v, int depth, sw_err *err)
{
    bool is_tuple = v->mark == SW_CHAT_TUPLE;
    sw_code rc;

    if (v->mark > SW_CHAT_TUPLE)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "text of a range, a view or a lazy list");
    rc = put(out, is_tuple ? "(" : "[", err);
    for (int64_t i = 0; i < v->list->n && rc == SW_OK; i++) {
        if (i) rc = put(out, ", ", err);
        if (rc == SW_OK) rc = sw_chat_print(out, &v->list->items[i], true, depth + 1, err);
    }
    if (rc == SW_OK && is_tuple && v->list->n == 1) rc = put(out, ",", err);
    return rc == SW_OK ? put(out, is_tuple ? ")" : "]", err) : rc;
}

static sw_code print_map(sw_print_buf *out, const sw_chat_map *map, int depth, sw_err *err)
{
    sw_code rc = put(out, "{", err);

    for (int64_t i = 0; i < map->n && rc == SW_OK; i++) {
        if (i) rc = put(out, ", ", err);
        if (rc == SW_OK) rc = put_repr(out, map->keys[i], err);
        if (rc == SW_OK) rc = put(out, ": ", err);
        if (rc == SW_OK) rc = sw_chat_print(out, &map->values[i], true, depth + 1, err);
    }
    return rc == SW_OK ? put(out, "}", err) : rc;
}

static sw_code check_room(const sw_print_buf *out, int depth, sw_err *err)
{
    if (depth > SW_CHAT_VALUE_DEPTH_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "values nested deeper than %d", SW_CHAT_VALUE_DEPTH_MAX);
    if (out->n_bytes > SW_CHAT_OUTPUT_BYTES_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "more than %zu bytes of text", SW_CHAT_OUTPUT_BYTES_MAX);
    return SW_OK;
}

sw_code sw_chat_print(sw_print_buf *out, const sw_chat_value *v, bool is_quoted, int depth,
                      sw_err *err)
{
    sw_code rc = check_room(out, depth, err);

    if (rc != SW_OK) return rc;
    switch (v->kind) {
    case SW_CHAT_UNDEFINED: return put(out, is_quoted ? "Undefined" : "", err);
    case SW_CHAT_NONE: return put(out, "None", err);
    case SW_CHAT_BOOL: return put(out, v->flag ? "True" : "False", err);
    case SW_CHAT_INT:
    case SW_CHAT_REAL: return put_scalar(out, v, err);
    case SW_CHAT_TEXT:
        if (is_quoted && v->mark == SW_CHAT_SAFE)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "safe text within a list");
        return is_quoted ? put_repr(out, v->text, err) : put_text(out, v->text, err);
    case SW_CHAT_LIST: return print_list(out, v, depth, err);
    case SW_CHAT_MAP: return print_map(out, v->map, depth, err);
    default: return SW_FAIL(err, SW_E_UNSUPPORTED, "text of %s", sw_chat_kind_name(v->kind));
    }
}

static sw_code put_json_point(sw_print_buf *out, sw_chat_text as, uint32_t c, bool is_ascii,
                              sw_err *err)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = c && c < 0x80 ? strchr(escaped, (int)c) : NULL;

    if (found) return sw_print_fmt(out, err, "\\%c", letters[found - escaped]);
    if (c < 0x20) return sw_print_fmt(out, err, "\\u%04x", c);
    if (!is_ascii || c < 0x80) return put_text(out, as, err);
    if (c < 0x10000) return sw_print_fmt(out, err, "\\u%04x", c);
    return sw_print_fmt(out, err, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                        0xDC00 + ((c - 0x10000) & 0x3FF));
}

static sw_code put_json_text(sw_print_buf *out, sw_chat_text text, bool is_ascii, sw_err *err)
{
    sw_code rc = put(out, "\"", err);
    uint32_t point;

    for (size_t at = 0, end; at < text.n && rc == SW_OK; at = end) {
        end = sw_utf8_next(&point, text.at, at);
        rc = put_json_point(out, (sw_chat_text){text.at + at, end - at}, point, is_ascii, err);
    }
    return rc == SW_OK ? put(out, "\"", err) : rc;
}

/* Begin a line at the indentation of the depth, where the style has lines. */
static sw_code put_line(sw_print_buf *out, const sw_chat_json_style *style, int depth, sw_err *err)
{
    return style->indent < 0
               ? SW_OK
               : sw_print_fmt(out, err, "\n%*s", (int)(style->indent * depth), "");
}

static sw_code json_list(sw_print_buf *out, const sw_chat_list *list,
                         const sw_chat_json_style *style, int depth, sw_err *err)
{
    sw_code rc;

    if (!list->n) return put(out, "[]", err);
    rc = put(out, "[", err);
    for (int64_t i = 0; i < list->n && rc == SW_OK; i++) {
        if (i) rc = put_text(out, style->item_separator, err);
        if (rc == SW_OK) rc = put_line(out, style, depth + 1, err);
        if (rc == SW_OK) rc = sw_chat_print_json(out, &list->items[i], style, depth + 1, err);
    }
    if (rc == SW_OK) rc = put_line(out, style, depth, err);
    return rc == SW_OK ? put(out, "]", err) : rc;
}

/* Return the member that follows `last` in the order of keys, or -1 at the end. `last` < 0 asks for
 * the first. */
static int64_t next_sorted(const sw_chat_map *map, int64_t last)
{
    int64_t best = -1;

    for (int64_t i = 0; i < map->n; i++)
        if ((last < 0 || sw_chat_compare_text(map->keys[i], map->keys[last]) > 0) &&
            (best < 0 || sw_chat_compare_text(map->keys[i], map->keys[best]) < 0))
            best = i;
    return best;
}

#define SORTED_KEYS_MAX 1000 /* each key is found by a search of all */

static sw_code json_map(sw_print_buf *out, const sw_chat_map *map, const sw_chat_json_style *style,
                        int depth, sw_err *err)
{
    int64_t last = -1;
    sw_code rc;

    if (!map->n) return put(out, "{}", err);
    if (style->is_sorted && map->n > SORTED_KEYS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "sorting more than %d keys", SORTED_KEYS_MAX);
    rc = put(out, "{", err);
    for (int64_t i = 0; i < map->n && rc == SW_OK; i++) {
        last = style->is_sorted ? next_sorted(map, last) : i;
        if (i) rc = put_text(out, style->item_separator, err);
        if (rc == SW_OK) rc = put_line(out, style, depth + 1, err);
        if (rc == SW_OK) rc = put_json_text(out, map->keys[last], style->is_ascii, err);
        if (rc == SW_OK) rc = put_text(out, style->key_separator, err);
        if (rc == SW_OK) rc = sw_chat_print_json(out, &map->values[last], style, depth + 1, err);
    }
    if (rc == SW_OK) rc = put_line(out, style, depth, err);
    return rc == SW_OK ? put(out, "}", err) : rc;
}

sw_code sw_chat_print_json(sw_print_buf *out, const sw_chat_value *v,
                           const sw_chat_json_style *style, int depth, sw_err *err)
{
    sw_code rc = check_room(out, depth, err);

    if (rc != SW_OK) return rc;
    switch (v->kind) {
    case SW_CHAT_NONE: return put(out, "null", err);
    case SW_CHAT_BOOL: return put(out, v->flag ? "true" : "false", err);
    case SW_CHAT_INT:
    case SW_CHAT_REAL: return put_scalar(out, v, err);
    case SW_CHAT_TEXT: return put_json_text(out, v->text, style->is_ascii, err);
    case SW_CHAT_LIST:
        if (v->mark <= SW_CHAT_TUPLE) return json_list(out, v->list, style, depth, err);
        return SW_FAIL(err, SW_E_FORMAT, "a range, a view or a lazy list has no JSON");
    case SW_CHAT_MAP: return json_map(out, v->map, style, depth, err);
    default: return SW_FAIL(err, SW_E_FORMAT, "%s has no JSON", sw_chat_kind_name(v->kind));
    }
}
