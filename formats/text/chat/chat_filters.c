/* chat_filters.c - filters of one value; those over lists are in chat_select.c. See chat_run.h. */
#include <stdlib.h>
#include <string.h>

#include "formats/text/chat/chat_run.h"

typedef sw_code filter_fn(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                          const sw_chat_args *args);

static sw_code trim(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                    const sw_chat_args *args)
{
    const sw_chat_value *chars = sw_chat_arg(args, 0, "chars");
    sw_chat_text text;
    sw_code rc = sw_chat_check_args(run, args, 1, (const char *const[]){"chars", NULL});

    if (rc != SW_OK || (rc = sw_chat_to_text(&text, run, value)) != SW_OK) return rc;
    if (chars && chars->kind == SW_CHAT_NONE) chars = NULL;
    if (chars && chars->kind != SW_CHAT_TEXT)
        return sw_chat_fail(run, SW_E_FORMAT, "%s as characters", sw_chat_kind_name(chars->kind));
    text = sw_chat_strip(text, chars ? &chars->text : NULL, true, true);
    *out = sw_chat_of_text(text.at, text.n);
    return sw_chat_step(run, text.n);
}

static sw_code change(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args, sw_chat_case to)
{
    sw_chat_text text;
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc == SW_OK) rc = sw_chat_to_text(&text, run, value);
    return rc == SW_OK ? sw_chat_change_case(out, run, text, to) : rc;
}

sw_code sw_chat_upper(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    return change(out, run, value, args, SW_CHAT_UPPER);
}

sw_code sw_chat_lower(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    return change(out, run, value, args, SW_CHAT_LOWER);
}

sw_code sw_chat_capitalize(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                           const sw_chat_args *args)
{
    return change(out, run, value, args, SW_CHAT_CAPITAL);
}

static sw_code title(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                     const sw_chat_args *args)
{
    return change(out, run, value, args, SW_CHAT_TITLE);
}

static sw_code length(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK) return rc;
    if (value->kind == SW_CHAT_UNDEFINED) *out = sw_chat_int(0);
    else if (value->kind == SW_CHAT_TEXT) *out = sw_chat_int(sw_chat_n_points(value->text));
    else if (value->kind == SW_CHAT_MAP) *out = sw_chat_int(value->map->n);
    else if (value->kind == SW_CHAT_LIST && value->mark != SW_CHAT_STREAM)
        *out = sw_chat_int(value->list->n);
    else
        return sw_chat_fail(run, SW_E_FORMAT, "%s has no length", sw_chat_kind_name(value->kind));
    return sw_chat_step(run, value->kind == SW_CHAT_TEXT ? value->text.n : 0);
}

static sw_code to_string(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                         const sw_chat_args *args)
{
    sw_chat_text text;
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK || (rc = sw_chat_to_text(&text, run, value)) != SW_OK) return rc;
    *out = sw_chat_of_text(text.at, text.n);
    out->mark = value->kind == SW_CHAT_TEXT ? value->mark : SW_CHAT_PLAIN;
    return SW_OK;
}

static sw_code safe(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                    const sw_chat_args *args)
{
    sw_code rc = to_string(out, run, value, args);

    out->mark = SW_CHAT_SAFE;
    return rc;
}

static sw_code or_default(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                          const sw_chat_args *args)
{
    static const char *const names[] = {"default_value", "boolean", NULL};
    const sw_chat_value *other = sw_chat_arg(args, 0, names[0]);
    const sw_chat_value *also_false = sw_chat_arg(args, 1, names[1]);
    sw_code rc = sw_chat_check_args(run, args, 2, names);

    if (rc != SW_OK) return rc;
    *out = *value;
    if (value->kind == SW_CHAT_UNDEFINED ||
        (also_false && sw_chat_is_true(also_false) && !sw_chat_is_true(value)))
        *out = other ? *other : sw_chat_of_text("", 0);
    return SW_OK;
}

static sw_code replace(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args)
{
    const sw_chat_value *old = sw_chat_arg(args, 0, NULL), *with = sw_chat_arg(args, 1, NULL);
    sw_chat_text text, a, b;
    sw_code rc = sw_chat_check_args(run, args, 2, NULL);

    if (rc != SW_OK) return rc;
    if (!old || !with) return sw_chat_fail(run, SW_E_FORMAT, "replace takes two texts");
    if ((rc = sw_chat_to_text(&text, run, value)) != SW_OK ||
        (rc = sw_chat_to_text(&a, run, old)) != SW_OK ||
        (rc = sw_chat_to_text(&b, run, with)) != SW_OK)
        return rc;
    return sw_chat_replace(out, run, text, a, b, -1);
}

/* Read an optional sign and digits between blanks as a number; a text without digits gives the
 * default. */
static sw_code text_to_int(sw_chat_value *out, sw_chat_run *run, sw_chat_text text,
                           const sw_chat_value *otherwise)
{
    sw_chat_text t = sw_chat_strip(text, NULL, true, true);
    char digits[24];
    size_t n_sign = t.n && (t.at[0] == '-' || t.at[0] == '+'), n = n_sign;
    bool has_digit = false;

    for (size_t i = 0; i < t.n; i++)
        if ((t.at[i] >= '0' && t.at[i] <= '9') || (unsigned char)t.at[i] >= 0x80) has_digit = true;
    while (n < t.n && t.at[n] >= '0' && t.at[n] <= '9') n++;
    if (!has_digit) {
        *out = *otherwise;
        if (!memchr(t.n ? t.at : "n", 'n', t.n ? t.n : 1) || !t.n) return SW_OK;
        if (t.n > 9 || t.n < 3) return SW_OK;
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "int of \"%.*s\" is not known here", (int)t.n,
                            t.at); /* the text may say nan or infinity */
    }
    if (n != t.n || n == n_sign || n > 18)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "int of \"%.*s\" is not known here",
                            t.n > 60 ? 60 : (int)t.n, t.at);
    memcpy(digits, t.at, n);
    digits[n] = 0;
    *out = sw_chat_int(strtoll(digits, NULL, 10));
    return SW_OK;
}

static sw_code to_int(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    const sw_chat_value *given = sw_chat_arg(args, 0, "default"), zero = sw_chat_int(0);
    sw_code rc = sw_chat_check_args(run, args, 1, (const char *const[]){"default", NULL});

    if (rc != SW_OK) return rc;
    if (!given) given = &zero;
    *out = *given;
    if (sw_chat_is_whole(value)) *out = sw_chat_int(sw_chat_whole(value));
    else if (value->kind == SW_CHAT_TEXT) return text_to_int(out, run, value->text, given);
    else if (value->kind == SW_CHAT_REAL) {
        if (!(value->real > -0x1p62 && value->real < 0x1p62))
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "an integer beyond 62 bits");
        *out = sw_chat_int((int64_t)value->real);
    } else if (value->kind != SW_CHAT_NONE) {
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "int of %s is not known here",
                            sw_chat_kind_name(value->kind));
    }
    return SW_OK;
}

static sw_code style_of(sw_chat_json_style *style, sw_chat_run *run, const sw_chat_args *args)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
    const sw_chat_value *ascii = sw_chat_arg(args, 0, names[0]);
    const sw_chat_value *indent = sw_chat_arg(args, 1, names[1]);
    const sw_chat_value *separators = sw_chat_arg(args, 2, names[2]);
    const sw_chat_value *sorted = sw_chat_arg(args, 3, names[3]);
    sw_code rc = sw_chat_check_args(run, args, 4, names);

    if (rc != SW_OK) return rc;
    *style = (sw_chat_json_style){.indent = -1, .item_separator = {", ", 2},
                                  .key_separator = {": ", 2}};
    style->is_ascii = ascii && sw_chat_is_true(ascii);
    style->is_sorted = sorted && sw_chat_is_true(sorted);
    if (indent && indent->kind != SW_CHAT_NONE) {
        if (indent->kind != SW_CHAT_INT || indent->integer < 0 || indent->integer > 16)
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "this indent of JSON is not known here");
        style->indent = indent->integer;
        style->item_separator.n = 1;
    }
    if (!separators || separators->kind == SW_CHAT_NONE) return SW_OK;
    if (separators->kind != SW_CHAT_LIST || separators->list->n != 2 ||
        separators->list->items[0].kind != SW_CHAT_TEXT ||
        separators->list->items[1].kind != SW_CHAT_TEXT)
        return sw_chat_fail(run, SW_E_FORMAT, "separators of JSON are two texts");
    style->item_separator = separators->list->items[0].text;
    style->key_separator = separators->list->items[1].text;
    return SW_OK;
}

static sw_code tojson(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    sw_chat_json_style style;
    sw_print_buf buf = {0};
    sw_code rc = style_of(&style, run, args);

    if (rc != SW_OK) return rc;
    rc = sw_chat_at_node(run, sw_chat_print_json(&buf, value, &style, 0, run->err));
    if (rc == SW_OK) return sw_chat_keep(out, run, &buf);
    sw_mem_put(buf.at);
    return rc;
}

/* Jinja has no such filter. Engines that render these templates add it, with the meaning of
 * Python's json.loads. */
static sw_code from_json(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                         const sw_chat_args *args)
{
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK) return rc;
    if (value->kind != SW_CHAT_TEXT)
        return sw_chat_fail(run, SW_E_FORMAT, "from_json of %s", sw_chat_kind_name(value->kind));
    if ((rc = sw_chat_step(run, value->text.n)) != SW_OK) return rc;
    return sw_chat_at_node(
        run, sw_chat_read_json(out, run->arena, value->text.at, value->text.n, run->err));
}

static sw_code to_list(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args)
{
    const sw_chat_list *list = NULL;
    sw_chat_list *own = NULL;
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK || (rc = sw_chat_iterate(&list, run, value)) != SW_OK) return rc;
    if (list->is_spent) { /* make a list that can be iterated again */
        if ((rc = SW_ARENA_TAKE(&own, run->arena, 1, run->err)) != SW_OK) return rc;
        *own = (sw_chat_list){.n = list->n, .items = list->items};
        list = own;
    }
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .list = list};
    return SW_OK;
}

static sw_code end_of(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args, bool is_last)
{
    sw_code rc = to_list(out, run, value, args);

    if (rc != SW_OK) return rc;
    if (value->mark == SW_CHAT_STREAM && is_last)
        return sw_chat_fail(run, SW_E_FORMAT, "a lazy list has no last element");
    *out = out->list->n ? out->list->items[is_last ? out->list->n - 1 : 0]
                        : sw_chat_undefined((sw_chat_text){"element", 7});
    return SW_OK;
}

static sw_code first(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                     const sw_chat_args *args)
{
    return end_of(out, run, value, args, false);
}

static sw_code last(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                    const sw_chat_args *args)
{
    return end_of(out, run, value, args, true);
}

static sw_code items(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                     const sw_chat_args *args)
{
    sw_chat_map none = {0};
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK) return rc;
    if (value->kind != SW_CHAT_MAP && value->kind != SW_CHAT_UNDEFINED)
        return sw_chat_fail(run, SW_E_FORMAT, "items of %s", sw_chat_kind_name(value->kind));
    rc = sw_chat_members(out, run, value->kind == SW_CHAT_MAP ? value->map : &none, true, true);
    return rc == SW_OK ? sw_chat_stream(out, run, out->list) : rc;
}

static sw_code join(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                    const sw_chat_args *args)
{
    static const char *const names[] = {"d", NULL};
    const sw_chat_value *between = sw_chat_arg(args, 0, names[0]);
    const sw_chat_list *list = NULL;
    sw_chat_text text, separator = {"", 0};
    sw_print_buf buf = {0};
    sw_code rc = sw_chat_check_args(run, args, 1, names);

    if (rc == SW_OK && between) rc = sw_chat_to_text(&separator, run, between);
    if (rc == SW_OK) rc = sw_chat_iterate(&list, run, value);
    for (int64_t i = 0; rc == SW_OK && i < list->n; i++) {
        if (i) rc = sw_print_add(&buf, separator.at, separator.n, run->err);
        if (rc == SW_OK) rc = sw_chat_to_text(&text, run, &list->items[i]);
        if (rc == SW_OK) rc = sw_print_add(&buf, text.at, text.n, run->err);
        if (rc == SW_OK && buf.n_bytes > SW_CHAT_OUTPUT_BYTES_MAX)
            rc = sw_chat_fail(run, SW_E_FORMAT, "more than %zu bytes of text",
                              SW_CHAT_OUTPUT_BYTES_MAX);
    }
    if (rc == SW_OK) return sw_chat_keep(out, run, &buf);
    sw_mem_put(buf.at);
    return rc;
}

static sw_code reverse(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args)
{
    sw_chat_value back = sw_chat_int(-1);
    sw_code rc = sw_chat_check_args(run, args, 0, NULL);

    if (rc != SW_OK) return rc;
    rc = sw_chat_slice(out, run, value, NULL, NULL, &back);
    return rc == SW_OK && out->kind == SW_CHAT_LIST ? sw_chat_stream(out, run, out->list) : rc;
}

static sw_code selectattr_filter(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                          const sw_chat_args *args)
{
    return sw_chat_select(out, run, value, args, true, true);
}

static sw_code rejectattr_filter(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                          const sw_chat_args *args)
{
    return sw_chat_select(out, run, value, args, true, false);
}

static sw_code select_filter(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    return sw_chat_select(out, run, value, args, false, true);
}

static sw_code reject_filter(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args)
{
    return sw_chat_select(out, run, value, args, false, false);
}

static const struct {
    const char *name;
    filter_fn *apply;
} filters[] = {
    {"trim", trim}, {"upper", sw_chat_upper}, {"lower", sw_chat_lower},
    {"capitalize", sw_chat_capitalize}, {"title", title}, {"length", length}, {"count", length},
    {"string", to_string}, {"safe", safe}, {"default", or_default}, {"d", or_default},
    {"replace", replace}, {"int", to_int}, {"tojson", tojson}, {"list", to_list},
    {"first", first}, {"last", last}, {"items", items}, {"join", join}, {"reverse", reverse},
    {"selectattr", selectattr_filter}, {"rejectattr", rejectattr_filter},
    {"select", select_filter}, {"reject", reject_filter}, {"map", sw_chat_map_filter},
    {"dictsort", sw_chat_dictsort}, {"sort", sw_chat_sort}, {"unique", sw_chat_unique},
    {"from_json", from_json},
};

int sw_chat_filter_index(sw_chat_text name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (sw_chat_text_is(name, filters[i].name)) return (int)i;
    return -1;
}

sw_code sw_chat_filter(sw_chat_value *out, sw_chat_run *run, int index, const sw_chat_value *value,
                       const sw_chat_args *args)
{
    filter_fn *apply = filters[index].apply;

    if (value->kind == SW_CHAT_TEXT && value->mark == SW_CHAT_SAFE && apply != safe &&
        apply != to_string)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "the filter %s of safe text is not known here",
                            filters[index].name);
    return apply(out, run, value, args);
}
