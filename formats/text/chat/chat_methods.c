/* chat_methods.c - methods of text and of mappings. See chat_run.h. */
#include <string.h>

#include "formats/text/chat/chat_run.h"

typedef sw_code method_fn(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                          const sw_chat_args *args);

/* Check that every argument is a text, except the one in place `count_at`. */
static sw_code check_texts(sw_chat_run *run, const sw_chat_args *args, int64_t n_min,
                           int64_t n_max, int64_t count_at)
{
    sw_code rc = sw_chat_check_args(run, args, n_max, NULL);

    if (rc != SW_OK) return rc;
    if (args->n < n_min) return sw_chat_fail(run, SW_E_FORMAT, "an argument is missing");
    for (int64_t i = 0; i < args->n; i++)
        if (i == count_at ? !sw_chat_is_whole(&args->values[i])
                          : args->values[i].kind != SW_CHAT_TEXT)
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "%s as this argument is not known here",
                                sw_chat_kind_name(args->values[i].kind));
    return SW_OK;
}

static sw_code strip_ends(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                          const sw_chat_args *args, bool at_start, bool at_end)
{
    bool is_all = args->n == 1 && args->values[0].kind == SW_CHAT_NONE;
    sw_code rc = is_all ? SW_OK : check_texts(run, args, 0, 1, -1);

    if (rc != SW_OK || (rc = sw_chat_step(run, self->text.n)) != SW_OK) return rc;
    *out = (sw_chat_value){.kind = SW_CHAT_TEXT};
    out->text = sw_chat_strip(self->text, args->n && !is_all ? &args->values[0].text : NULL,
                              at_start, at_end);
    return SW_OK;
}

static sw_code strip(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                     const sw_chat_args *args)
{
    return strip_ends(out, run, self, args, true, true);
}

static sw_code lstrip(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                      const sw_chat_args *args)
{
    return strip_ends(out, run, self, args, true, false);
}

static sw_code rstrip(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                      const sw_chat_args *args)
{
    return strip_ends(out, run, self, args, false, true);
}

/* Find the next part of the text, and where the one behind it begins: n_bytes + 1 after the
 * last. */
static size_t next_part(sw_chat_text *part, sw_chat_text text, size_t at, sw_chat_text separator)
{
    size_t end = sw_chat_find_text(text, separator, at);

    *part = (sw_chat_text){text.at + at, end - at};
    return end < text.n ? end + separator.n : text.n + 1;
}

static sw_code split_at(sw_chat_value *out, sw_chat_run *run, sw_chat_text text,
                        sw_chat_text separator, int64_t n_max)
{
    sw_chat_list *list = NULL;
    sw_chat_text part;
    int64_t n = 0;
    size_t at;
    sw_code rc;

    for (at = 0; at <= text.n && (n_max < 0 || n < n_max); n++)
        at = next_part(&part, text, at, separator);
    n += at <= text.n;
    if ((rc = sw_chat_step(run, text.n + 32 * (size_t)n)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, n, run->err)) != SW_OK)
        return rc;
    at = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t start = at;
        at = next_part(&part, text, at, separator);
        if (i == n - 1) part = (sw_chat_text){text.at + start, text.n - start};
        list->items[i] = sw_chat_of_text(part.at, part.n);
    }
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .list = list};
    return SW_OK;
}

static sw_code split(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                     const sw_chat_args *args)
{
    sw_code rc = check_texts(run, args, 0, 2, 1);

    if (rc != SW_OK) return rc;
    if (!args->n)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "split without a separator is not known here");
    if (!args->values[0].text.n) return sw_chat_fail(run, SW_E_FORMAT, "an empty separator");
    return split_at(out, run, self->text, args->values[0].text,
                    args->n > 1 ? sw_chat_whole(&args->values[1]) : -1);
}

static sw_code starts_with(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                           const sw_chat_args *args)
{
    sw_code rc = check_texts(run, args, 1, 1, -1);
    sw_chat_text part;

    if (rc != SW_OK) return rc;
    part = args->values[0].text;
    *out = sw_chat_bool(part.n <= self->text.n && !memcmp(self->text.at, part.at, part.n));
    return sw_chat_step(run, part.n);
}

static sw_code ends_with(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                         const sw_chat_args *args)
{
    sw_code rc = check_texts(run, args, 1, 1, -1);
    sw_chat_text part;

    if (rc != SW_OK) return rc;
    part = args->values[0].text;
    *out = sw_chat_bool(part.n <= self->text.n &&
                        !memcmp(self->text.at + self->text.n - part.n, part.at, part.n));
    return sw_chat_step(run, part.n);
}

sw_code sw_chat_replace(sw_chat_value *out, sw_chat_run *run, sw_chat_text text, sw_chat_text old,
                        sw_chat_text with, int64_t n_max)
{
    sw_print_buf buf = {0};
    size_t at = 0, found;
    sw_code rc = sw_chat_step(run, text.n);

    if (rc == SW_OK && !old.n)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "replacing empty text is not known here");
    for (int64_t n = 0; rc == SW_OK && at <= text.n; n++) {
        found = n_max >= 0 && n >= n_max ? text.n : sw_chat_find_text(text, old, at);
        rc = sw_print_add(&buf, text.at + at, found - at, run->err);
        at = found + old.n;
        if (found == text.n) break;
        if (rc == SW_OK) rc = sw_print_add(&buf, with.at, with.n, run->err);
        if (rc == SW_OK && buf.n_bytes > SW_CHAT_OUTPUT_BYTES_MAX)
            rc = sw_chat_fail(run, SW_E_FORMAT, "more than %zu bytes of text",
                              SW_CHAT_OUTPUT_BYTES_MAX);
    }
    if (rc == SW_OK) return sw_chat_keep(out, run, &buf);
    sw_mem_put(buf.at);
    return rc;
}

static sw_code replace(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                       const sw_chat_args *args)
{
    sw_code rc = check_texts(run, args, 2, 3, 2);

    if (rc != SW_OK) return rc;
    return sw_chat_replace(out, run, self->text, args->values[0].text, args->values[1].text,
                           args->n > 2 ? sw_chat_whole(&args->values[2]) : -1);
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

sw_code sw_chat_change_case(sw_chat_value *out, sw_chat_run *run, sw_chat_text text,
                            sw_chat_case to)
{
    char *made = NULL;
    bool starts = true;
    sw_code rc;

    if ((rc = sw_chat_step(run, text.n)) != SW_OK ||
        (rc = sw_arena_text(&made, run->arena, text.at, text.n, run->err)) != SW_OK)
        return rc;
    for (size_t i = 0; i < text.n; i++) {
        bool is_upper = to == SW_CHAT_UPPER || (to >= SW_CHAT_CAPITAL && starts);
        if ((unsigned char)made[i] >= 0x80)
            return sw_chat_fail(run, SW_E_UNSUPPORTED,
                                "the case of a letter beyond ASCII is not known here");
        /* The filter title begins a word behind these characters. The method does not. */
        starts = to == SW_CHAT_TITLE && strchr("- ({[<\t\n\r\f\v\x1c\x1d\x1e\x1f", made[i]) != NULL;
        if (is_letter(made[i])) made[i] = (char)(is_upper ? made[i] & ~0x20 : made[i] | 0x20);
    }
    *out = sw_chat_of_text(made, text.n);
    return SW_OK;
}

static sw_code find(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                    const sw_chat_args *args)
{
    sw_code rc = check_texts(run, args, 1, 1, -1);
    size_t at;

    if (rc != SW_OK || (rc = sw_chat_step(run, self->text.n)) != SW_OK) return rc;
    at = sw_chat_find_text(self->text, args->values[0].text, 0);
    *out = sw_chat_int(at == self->text.n && args->values[0].text.n
                           ? -1
                           : sw_chat_n_points((sw_chat_text){self->text.at, at}));
    return SW_OK;
}

sw_code sw_chat_members(sw_chat_value *out, sw_chat_run *run, const sw_chat_map *map,
                        bool with_keys, bool with_values)
{
    sw_chat_list *list = NULL, *pair = NULL;
    sw_code rc;

    if ((rc = sw_chat_step(run, (size_t)map->n * 32)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, map->n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < map->n; i++) {
        sw_chat_value key = sw_chat_of_text(map->keys[i].at, map->keys[i].n);
        list->items[i] = with_keys ? key : map->values[i];
        if (!with_keys || !with_values) continue;
        if ((rc = sw_chat_list_new(&pair, run->arena, 2, run->err)) != SW_OK) return rc;
        pair->items[0] = key;
        pair->items[1] = map->values[i];
        list->items[i] =
            (sw_chat_value){.kind = SW_CHAT_LIST, .mark = SW_CHAT_TUPLE, .list = pair};
    }
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .mark = SW_CHAT_VIEW, .list = list};
    return SW_OK;
}

static sw_code view(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                    const sw_chat_args *args, bool with_keys, bool with_values)
{
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    return rc == SW_OK ? sw_chat_members(out, run, self->map, with_keys, with_values) : rc;
}

static sw_code items(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                     const sw_chat_args *args)
{
    return view(out, run, self, args, true, true);
}

static sw_code keys(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                    const sw_chat_args *args)
{
    return view(out, run, self, args, true, false);
}

static sw_code values(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                      const sw_chat_args *args)
{
    return view(out, run, self, args, false, true);
}

static sw_code get(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *self,
                   const sw_chat_args *args)
{
    const sw_chat_value *member;
    sw_code rc = sw_chat_check_args(run, args, 2, NULL);

    if (rc != SW_OK) return rc;
    if (!args->n || args->values[0].kind == SW_CHAT_LIST || args->values[0].kind == SW_CHAT_MAP)
        return sw_chat_fail(run, SW_E_FORMAT, "get without a key");
    member = args->values[0].kind == SW_CHAT_TEXT
                 ? sw_chat_map_find(self->map, args->values[0].text)
                 : NULL;
    *out = member ? *member : args->n > 1 ? args->values[1] : sw_chat_none();
    return SW_OK;
}

/* A row without a function is a method of Python that is not known here. It is listed because it
 * hides a member of its name. */
static const struct {
    sw_chat_kind kind;
    const char *name;
    method_fn *call;
} methods[] = {
    {SW_CHAT_TEXT, "strip", strip}, {SW_CHAT_TEXT, "lstrip", lstrip},
    {SW_CHAT_TEXT, "rstrip", rstrip}, {SW_CHAT_TEXT, "split", split},
    {SW_CHAT_TEXT, "startswith", starts_with}, {SW_CHAT_TEXT, "endswith", ends_with},
    {SW_CHAT_TEXT, "replace", replace}, {SW_CHAT_TEXT, "upper", sw_chat_upper},
    {SW_CHAT_TEXT, "lower", sw_chat_lower}, {SW_CHAT_TEXT, "capitalize", sw_chat_capitalize},
    {SW_CHAT_TEXT, "find", find}, {SW_CHAT_TEXT, "casefold", NULL}, {SW_CHAT_TEXT, "center", NULL},
    {SW_CHAT_TEXT, "count", NULL}, {SW_CHAT_TEXT, "encode", NULL},
    {SW_CHAT_TEXT, "expandtabs", NULL}, {SW_CHAT_TEXT, "format", NULL},
    {SW_CHAT_TEXT, "format_map", NULL}, {SW_CHAT_TEXT, "index", NULL},
    {SW_CHAT_TEXT, "isalnum", NULL}, {SW_CHAT_TEXT, "isalpha", NULL},
    {SW_CHAT_TEXT, "isascii", NULL}, {SW_CHAT_TEXT, "isdecimal", NULL},
    {SW_CHAT_TEXT, "isdigit", NULL}, {SW_CHAT_TEXT, "isidentifier", NULL},
    {SW_CHAT_TEXT, "islower", NULL}, {SW_CHAT_TEXT, "isnumeric", NULL},
    {SW_CHAT_TEXT, "isprintable", NULL}, {SW_CHAT_TEXT, "isspace", NULL},
    {SW_CHAT_TEXT, "istitle", NULL}, {SW_CHAT_TEXT, "isupper", NULL}, {SW_CHAT_TEXT, "join", NULL},
    {SW_CHAT_TEXT, "ljust", NULL}, {SW_CHAT_TEXT, "maketrans", NULL},
    {SW_CHAT_TEXT, "partition", NULL}, {SW_CHAT_TEXT, "removeprefix", NULL},
    {SW_CHAT_TEXT, "removesuffix", NULL}, {SW_CHAT_TEXT, "rfind", NULL},
    {SW_CHAT_TEXT, "rindex", NULL}, {SW_CHAT_TEXT, "rjust", NULL},
    {SW_CHAT_TEXT, "rpartition", NULL}, {SW_CHAT_TEXT, "rsplit", NULL},
    {SW_CHAT_TEXT, "splitlines", NULL}, {SW_CHAT_TEXT, "swapcase", NULL},
    {SW_CHAT_TEXT, "title", NULL}, {SW_CHAT_TEXT, "translate", NULL}, {SW_CHAT_TEXT, "zfill", NULL},
    {SW_CHAT_MAP, "items", items}, {SW_CHAT_MAP, "keys", keys}, {SW_CHAT_MAP, "values", values},
    {SW_CHAT_MAP, "get", get}, {SW_CHAT_MAP, "clear", NULL}, {SW_CHAT_MAP, "copy", NULL},
    {SW_CHAT_MAP, "fromkeys", NULL}, {SW_CHAT_MAP, "pop", NULL}, {SW_CHAT_MAP, "popitem", NULL},
    {SW_CHAT_MAP, "setdefault", NULL}, {SW_CHAT_MAP, "update", NULL},
    {SW_CHAT_LIST, "append", NULL}, {SW_CHAT_LIST, "clear", NULL}, {SW_CHAT_LIST, "copy", NULL},
    {SW_CHAT_LIST, "count", NULL}, {SW_CHAT_LIST, "extend", NULL}, {SW_CHAT_LIST, "index", NULL},
    {SW_CHAT_LIST, "insert", NULL}, {SW_CHAT_LIST, "pop", NULL}, {SW_CHAT_LIST, "remove", NULL},
    {SW_CHAT_LIST, "reverse", NULL}, {SW_CHAT_LIST, "sort", NULL}, {SW_CHAT_LIST, "start", NULL},
    {SW_CHAT_LIST, "stop", NULL}, {SW_CHAT_LIST, "step", NULL}, {SW_CHAT_LIST, "mapping", NULL},
    {SW_CHAT_LIST, "isdisjoint", NULL}, {SW_CHAT_INT, "real", NULL}, {SW_CHAT_INT, "imag", NULL},
    {SW_CHAT_INT, "numerator", NULL}, {SW_CHAT_INT, "denominator", NULL},
    {SW_CHAT_INT, "conjugate", NULL}, {SW_CHAT_INT, "bit_length", NULL},
    {SW_CHAT_INT, "bit_count", NULL}, {SW_CHAT_INT, "to_bytes", NULL},
    {SW_CHAT_INT, "from_bytes", NULL}, {SW_CHAT_INT, "as_integer_ratio", NULL},
    {SW_CHAT_INT, "is_integer", NULL}, {SW_CHAT_INT, "hex", NULL}, {SW_CHAT_INT, "fromhex", NULL},
};

static int64_t find_method(sw_chat_kind kind, sw_chat_text name)
{
    if (kind == SW_CHAT_BOOL || kind == SW_CHAT_REAL) kind = SW_CHAT_INT;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == kind && sw_chat_text_is(name, methods[i].name)) return (int64_t)i;
    return -1;
}

bool sw_chat_has_method(sw_chat_kind kind, sw_chat_text name)
{
    return find_method(kind, name) >= 0;
}

sw_code sw_chat_call_method(sw_chat_value *out, sw_chat_run *run, const sw_chat_method *method,
                            const sw_chat_args *args)
{
    int64_t i = find_method(method->self.kind, method->name);

    if (method->self.mark == SW_CHAT_SAFE)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "a method of safe text is not known here");
    if (i < 0 || !methods[i].call)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "the method %.*s of %s is not known here",
                            method->name.n > 60 ? 60 : (int)method->name.n, method->name.at,
                            sw_chat_kind_name(method->self.kind));
    return methods[i].call(out, run, &method->self, args);
}
