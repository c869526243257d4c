/* chat_template.c - from text to tree, and from a tree to text. See chat_template.h. */
#include "formats/text/chat/chat_template.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/chat/chat_run.h"

struct sw_chat_template {
    sw_arena arena;
    sw_chat_tree tree;
};

struct tm sw_chat_fixed_date(void)
{
    return (struct tm){.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 12, .tm_wday = 5,
                       .tm_yday = 207};
}

/* Copy the source with \n for every line break, and without the last one. */
static sw_code copy_source(sw_chat_template *t, const char *text, size_t n_bytes, const char *what,
                           sw_err *err)
{
    sw_chat_source *s = &t->tree.source;
    char *copy = NULL, *name = NULL;
    size_t n = 0;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&copy, &t->arena, n_bytes + 1, err)) != SW_OK ||
        (rc = sw_arena_text(&name, &t->arena, what, strlen(what), err)) != SW_OK)
        return rc;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == '\r' && i + 1 < n_bytes && text[i + 1] == '\n') continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n && copy[n - 1] == '\n') n--;
    copy[n] = 0;
    *s = (sw_chat_source){name, copy, n};
    return SW_OK;
}

sw_code sw_chat_template_open(sw_chat_template **out, const char *text, size_t n_bytes,
                              const char *what, sw_err *err)
{
    sw_chat_template *t = NULL;
    size_t bad_at = 0;
    sw_code rc;

    if (n_bytes > SW_CHAT_TEMPLATE_BYTES_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%s: a chat template of %zu bytes, at most %zu", what,
                       n_bytes, SW_CHAT_TEMPLATE_BYTES_MAX);
    if (!sw_utf8_is_valid(text, n_bytes, &bad_at) || (n_bytes && memchr(text, 0, n_bytes)))
        return SW_FAIL(err, SW_E_FORMAT, "%s: the chat template is no UTF-8 text", what);
    if ((rc = SW_MEM_GET(&t, 1, "chat template", err)) != SW_OK) return rc;
    if ((rc = copy_source(t, text, n_bytes, what, err)) == SW_OK)
        rc = sw_chat_parse(&t->tree, &t->arena, err);
    if (rc == SW_OK) *out = t;
    else sw_chat_template_free(t);
    return rc;
}

void sw_chat_template_free(sw_chat_template *t)
{
    if (t) sw_arena_free(&t->arena);
    sw_mem_put(t);
}

sw_code sw_chat_fail(sw_chat_run *run, sw_code code, const char *fmt, ...)
{
    char text[300];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sw_chat_fail_at(&run->tree->source, run->at, code, run->err, "%s", text);
}

sw_code sw_chat_at_node(sw_chat_run *run, sw_code rc)
{
    const sw_chat_source *s = &run->tree->source;
    long long line = 1, column = 1;

    if (rc != SW_E_FORMAT && rc != SW_E_UNSUPPORTED) return rc;
    for (uint32_t i = 0; i < run->at; i++) {
        column = s->text[i] == '\n' ? 1 : column + (((unsigned char)s->text[i] & 0xC0) != 0x80);
        line += s->text[i] == '\n';
    }
    sw_err_prefix(run->err, "%s, line %lld, column %lld", s->what, line, column);
    return rc;
}

#define STEP_BYTES 32 /* bytes of text that count as a step */

sw_code sw_chat_step(sw_chat_run *run, size_t n_bytes)
{
    run->n_steps += 1 + (int64_t)(n_bytes / STEP_BYTES);
    if (run->n_steps > SW_CHAT_STEPS_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "more than %d steps", SW_CHAT_STEPS_MAX);
    if (run->arena->taken_bytes > SW_CHAT_VALUES_BYTES_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "more than %zu bytes of values",
                            SW_CHAT_VALUES_BYTES_MAX);
    return SW_OK;
}

static sw_code add_defaults(sw_chat_map *map, sw_arena *arena, sw_err *err)
{
    static const char *const names[] = {"tools", "documents"};
    const sw_chat_value none = sw_chat_none();
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof names / sizeof *names && rc == SW_OK; i++) {
        sw_chat_text name = {names[i], strlen(names[i])};
        if (!sw_chat_map_find(map, name)) rc = sw_chat_map_put(map, arena, name, &none, err);
    }
    return rc;
}

sw_code sw_chat_render_map(sw_print_buf *out, const sw_chat_template *t, sw_chat_map *given,
                           sw_arena *arena, const struct tm *now, sw_err *err)
{
    sw_chat_frame root = {0};
    sw_chat_flow flow = SW_CHAT_GOES_ON;
    sw_chat_run run = {.tree = &t->tree, .arena = arena, .err = err, .now = now, .frame = &root,
                       .root = &root, .out = out, .given = given};
    sw_code rc = add_defaults(given, arena, err);

    return rc == SW_OK ? sw_chat_exec(&flow, &run, t->tree.body) : rc;
}

sw_code sw_chat_template_render(char **out, size_t *n_out, const sw_chat_template *t,
                                const char *variables, size_t n_bytes, const struct tm *now,
                                sw_err *err)
{
    sw_print_buf buf = {0};
    sw_chat_value given;
    sw_arena arena = {0};
    sw_code rc;

    if ((rc = sw_chat_read_json(&given, &arena, variables, n_bytes, err)) == SW_OK &&
        given.kind != SW_CHAT_MAP)
        rc = SW_FAIL(err, SW_E_FORMAT, "the variables of a chat template are no JSON object");
    if (rc == SW_OK) rc = sw_chat_render_map(&buf, t, given.map, &arena, now, err);
    if (rc == SW_OK) rc = sw_print_add(&buf, "", 1, err);
    if (rc == SW_OK) {
        *out = buf.at;
        *n_out = buf.n_bytes - 1;
        buf.at = NULL;
    }
    sw_mem_put(buf.at);
    sw_arena_free(&arena);
    return rc;
}
