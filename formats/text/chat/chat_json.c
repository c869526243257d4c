/* chat_json.c - JSON as values of a template.
 *
 * cJSON holds every number as a double, but Python prints 1 and 1.0 differently; so the text, once
 * it is checked, is read here. See chat_value.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/characters/unicode.h"
#include "formats/text/chat/chat_value.h"

static const sw_json_caps caps = {
    .max_bytes = (size_t)64 << 20, .max_depth = 48, .max_values = 1 << 20};

typedef struct reader {
    const char *at; /* the text was checked before, so that every value is complete */
    sw_arena *arena;
    sw_err *err;
} reader;

static sw_code read_value(sw_chat_value *out, reader *r);

static void skip_blanks(reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r') r->at++;
}

static uint32_t read_hex(const char *at)
{
    char digits[5] = {at[0], at[1], at[2], at[3], 0};

    return (uint32_t)strtoul(digits, NULL, 16);
}

/* Decode the escape behind a backslash, and return how many bytes it became. */
static size_t read_escape(char out[4], reader *r)
{
    static const char named[] = "bfnrt", meant[] = "\b\f\n\r\t";
    const char c = *r->at++, *found = strchr(named, c);
    uint32_t point;

    if (c != 'u') {
        out[0] = found ? meant[found - named] : c;
        return 1;
    }
    point = read_hex(r->at);
    r->at += 4;
    if (point >= 0xD800 && point < 0xDC00) { /* the text was checked: the low half follows */
        point = 0x10000 + ((point - 0xD800) << 10) + (read_hex(r->at + 2) - 0xDC00);
        r->at += 6;
    }
    return sw_utf8_put(out, point);
}

static sw_code read_text(sw_chat_text *out, reader *r)
{
    const char *start = ++r->at, *end = start;
    bool has_escapes = false;
    char *copy = NULL;
    sw_code rc;

    while (*end != '"') {
        if (*end == '\\') has_escapes = true;
        end += *end == '\\' ? 2 : 1;
    }
    out->at = start;
    out->n = (size_t)(end - start);
    if (!has_escapes) {
        r->at = end + 1;
        return SW_OK;
    }
    if ((rc = SW_ARENA_TAKE(&copy, r->arena, out->n, r->err)) != SW_OK) return rc;
    out->at = copy;
    out->n = 0;
    while (r->at < end) {
        if (*r->at != '\\') {
            copy[out->n++] = *r->at++;
            continue;
        }
        r->at++;
        out->n += read_escape(copy + out->n, r); /* never more than the escape itself */
    }
    r->at = end + 1;
    return SW_OK;
}

static sw_code read_number(sw_chat_value *out, reader *r)
{
    size_t n = strspn(r->at, "+-0123456789.eE");
    char text[400], *end;

    if (n >= sizeof text)
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "a number of %zu characters", n);
    memcpy(text, r->at, n);
    text[n] = 0;
    r->at += n;
    if (strpbrk(text, ".eE")) {
        *out = sw_chat_real(strtod(text, &end));
        return SW_OK;
    }
    errno = 0;
    *out = sw_chat_int(strtoll(text, &end, 10));
    return errno ? SW_FAIL(r->err, SW_E_UNSUPPORTED, "the integer %.40s is beyond 64 bits", text)
                 : SW_OK;
}

/* Read elements into a list that grows by doubling. */
static sw_code read_list(sw_chat_value *out, reader *r)
{
    sw_chat_list *list = NULL, *larger;
    int64_t n = 0;
    sw_code rc = sw_chat_list_new(&list, r->arena, 4, r->err);

    r->at++;
    skip_blanks(r);
    while (rc == SW_OK && *r->at != ']') {
        if (n == list->n) {
            if ((rc = sw_chat_list_new(&larger, r->arena, 2 * n, r->err)) != SW_OK) break;
            memcpy(larger->items, list->items, (size_t)n * sizeof *list->items);
            list = larger;
        }
        if ((rc = read_value(&list->items[n++], r)) != SW_OK) break;
        skip_blanks(r);
        if (*r->at == ',') r->at++;
        skip_blanks(r);
    }
    if (rc != SW_OK) return rc;
    r->at++;
    list->n = n;
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .list = list};
    return SW_OK;
}

static sw_code read_map(sw_chat_value *out, reader *r)
{
    sw_chat_map *map = NULL;
    sw_code rc = SW_ARENA_TAKE(&map, r->arena, 1, r->err);

    r->at++;
    skip_blanks(r);
    while (rc == SW_OK && *r->at != '}') {
        sw_chat_value value;
        sw_chat_text key;
        if ((rc = read_text(&key, r)) != SW_OK) break;
        skip_blanks(r);
        r->at++; /* past the colon */
        if ((rc = read_value(&value, r)) != SW_OK) break;
        if (sw_chat_map_find(map, key))
            return SW_FAIL(r->err, SW_E_FORMAT, "the key \"%.*s\" is there twice",
                           key.n > 60 ? 60 : (int)key.n, key.at);
        if ((rc = sw_chat_map_put(map, r->arena, key, &value, r->err)) != SW_OK) break;
        skip_blanks(r);
        if (*r->at == ',') r->at++;
        skip_blanks(r);
    }
    if (rc != SW_OK) return rc;
    r->at++;
    *out = (sw_chat_value){.kind = SW_CHAT_MAP, .map = map};
    return SW_OK;
}

static sw_code read_value(sw_chat_value *out, reader *r)
{
    skip_blanks(r);
    switch (*r->at) {
    case '{': return read_map(out, r);
    case '[': return read_list(out, r);
    case '"': out->kind = SW_CHAT_TEXT; out->mark = SW_CHAT_PLAIN; return read_text(&out->text, r);
    case 't': *out = sw_chat_bool(true); r->at += 4; return SW_OK;
    case 'f': *out = sw_chat_bool(false); r->at += 5; return SW_OK;
    case 'n': *out = sw_chat_none(); r->at += 4; return SW_OK;
    default: return read_number(out, r);
    }
}

sw_code sw_chat_read_json(sw_chat_value *out, sw_arena *arena, const char *json, size_t n_bytes,
                          sw_err *err)
{
    reader r = {.arena = arena, .err = err};
    char *copy = NULL;
    sw_code rc = sw_json_check(json, n_bytes, &caps, "JSON", err);

    /* The copy ends with a zero, so that reading a number at its end stops there. */
    if (rc == SW_OK) rc = sw_arena_text(&copy, arena, json, n_bytes, err);
    if (rc != SW_OK) return rc;
    r.at = copy;
    return read_value(out, &r);
}
