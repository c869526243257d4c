/* chat_format.c - see chat_format.h. */
#include "formats/text/chat/chat_format.h"

#include <string.h>

#include "formats/text/chat/chat_run.h"

struct sw_chat_format {
    sw_chat_template *template;
    char *tokens; /* a JSON object */
    char sha256[SW_SHA256_HEX_BYTES];
};

static sw_chat_text name_of(const char *name) { return (sw_chat_text){name, strlen(name)}; }

sw_code sw_chat_format_new(sw_chat_format **out, const char *text, size_t n_bytes,
                           const char *what, const char *tokens, sw_err *err)
{
    sw_chat_format *f = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&f, 1, "chat template", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&f->tokens, strlen(tokens) + 1, "special tokens", err)) == SW_OK) {
        memcpy(f->tokens, tokens, strlen(tokens));
        rc = sw_sha256_hex(f->sha256, text, n_bytes, err);
    }
    if (rc == SW_OK) rc = sw_chat_template_open(&f->template, text, n_bytes, what, err);
    if (rc == SW_OK) *out = f;
    else sw_chat_format_free(f);
    return rc;
}

void sw_chat_format_free(sw_chat_format *f)
{
    if (!f) return;
    sw_chat_template_free(f->template);
    sw_mem_put(f->tokens);
    sw_mem_put(f);
}

const char *sw_chat_format_sha256(const sw_chat_format *f) { return f->sha256; }

static sw_code take_text(char **out, size_t *n_out, sw_print_buf *buf, sw_err *err)
{
    sw_code rc = sw_print_add(buf, "", 1, err);

    if (rc != SW_OK) return rc;
    *n_out = buf->n_bytes - 1;
    *out = buf->at;
    buf->at = NULL;
    return SW_OK;
}

/* Render the messages with the special tokens and, unless it is NULL, the list of tools. */
static sw_code render(char **out, size_t *n_out, const sw_chat_format *f,
                      const sw_chat_value *messages, const sw_chat_value *tools, bool opens_turn,
                      const struct tm *now, sw_arena *arena, sw_err *err)
{
    const sw_chat_value opens = sw_chat_bool(opens_turn);
    const struct tm fixed = sw_chat_fixed_date();
    sw_print_buf buf = {0};
    sw_chat_value given;
    sw_code rc = sw_chat_read_json(&given, arena, f->tokens, strlen(f->tokens), err);

    if (rc == SW_OK && given.kind != SW_CHAT_MAP)
        rc = SW_FAIL(err, SW_E_BUG, "special tokens are no object");
    if (rc == SW_OK)
        rc = sw_chat_map_put(given.map, arena, name_of("messages"), messages, err);
    if (rc == SW_OK && tools)
        rc = sw_chat_map_put(given.map, arena, name_of("tools"), tools, err);
    if (rc == SW_OK)
        rc = sw_chat_map_put(given.map, arena, name_of("add_generation_prompt"), &opens, err);
    if (rc == SW_OK)
        rc = sw_chat_render_map(&buf, f->template, given.map, arena, now ? now : &fixed, err);
    if (rc == SW_OK) rc = take_text(out, n_out, &buf, err);
    sw_mem_put(buf.at);
    return rc;
}

/* Check that this is a list of objects, with one at least. */
static sw_code check_messages(const sw_chat_value *messages, sw_err *err)
{
    if (messages->kind != SW_CHAT_LIST || !messages->list->n)
        return SW_FAIL(err, SW_E_FORMAT, "messages are a list of at least one {\"role\": ..., "
                       "\"content\": ...}");
    for (int64_t i = 0; i < messages->list->n; i++)
        if (messages->list->items[i].kind != SW_CHAT_MAP ||
            !sw_chat_map_find(messages->list->items[i].map, name_of("role")))
            return SW_FAIL(err, SW_E_FORMAT, "message %lld has no \"role\"", (long long)i + 1);
    return SW_OK;
}

sw_code sw_chat_format_messages(char **out, size_t *n_out, const sw_chat_format *f,
                                const char *messages, size_t n_bytes, bool opens_turn,
                                const struct tm *now, sw_err *err)
{
    sw_arena arena = {0};
    sw_chat_value list;
    sw_code rc = sw_chat_read_json(&list, &arena, messages, n_bytes, err);

    if (rc == SW_OK) rc = check_messages(&list, err);
    if (rc == SW_OK)
        rc = render(out, n_out, f, &list, NULL, opens_turn, now, &arena, err);
    sw_arena_free(&arena);
    return rc;
}

/* Turn an entry in the form of ShareGPT into a message. */
static sw_code turn_message(sw_chat_value *out, sw_arena *arena, const sw_chat_value *turn,
                            sw_err *err)
{
    static const char *const roles[][2] = {
        {"human", "user"},       {"user", "user"}, {"gpt", "assistant"}, {"assistant", "assistant"},
        {"model", "assistant"}, {"system", "system"}, {"tool", "tool"}, {"observation", "tool"}};
    const sw_chat_value *from = NULL, *value = NULL;
    sw_chat_map *map = NULL;
    sw_chat_value role;
    sw_code rc;

    if (turn->kind == SW_CHAT_MAP) {
        from = sw_chat_map_find(turn->map, name_of("from"));
        value = sw_chat_map_find(turn->map, name_of("value"));
    }
    if (!from || from->kind != SW_CHAT_TEXT || !value || value->kind != SW_CHAT_TEXT)
        return SW_FAIL(err, SW_E_FORMAT, "a turn of \"conversations\" is {\"from\": text, "
                       "\"value\": text}");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!sw_chat_text_is(from->text, roles[i][0])) continue;
        role = sw_chat_of_text(roles[i][1], strlen(roles[i][1]));
        if ((rc = SW_ARENA_TAKE(&map, arena, 1, err)) != SW_OK ||
            (rc = sw_chat_map_put(map, arena, name_of("role"), &role, err)) != SW_OK ||
            (rc = sw_chat_map_put(map, arena, name_of("content"), value, err)) != SW_OK)
            return rc;
        *out = (sw_chat_value){.kind = SW_CHAT_MAP, .map = map};
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_FORMAT, "a turn from \"%.*s\"; known are human, user, gpt, "
                   "assistant, model, system, tool and observation",
                   from->text.n > 40 ? 40 : (int)from->text.n, from->text.at);
}

static sw_code turns_messages(sw_chat_value *out, sw_arena *arena, const sw_chat_value *turns,
                              sw_err *err)
{
    sw_chat_list *list = NULL;
    sw_code rc;

    if (turns->kind != SW_CHAT_LIST || !turns->list->n)
        return SW_FAIL(err, SW_E_FORMAT, "\"conversations\" is a list of at least one turn");
    rc = sw_chat_list_new(&list, arena, turns->list->n, err);
    for (int64_t i = 0; rc == SW_OK && i < turns->list->n; i++)
        rc = turn_message(&list->items[i], arena, &turns->list->items[i], err);
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .list = list};
    return rc;
}

static sw_code line_text(char **out, size_t *n_out, const sw_chat_format *f, const char *line,
                         size_t n_bytes, sw_arena *arena, sw_err *err)
{
    const sw_chat_value *messages, *turns, *text;
    sw_chat_value root, made;
    sw_print_buf buf = {0};
    sw_code rc = sw_chat_read_json(&root, arena, line, n_bytes, err);

    if (rc != SW_OK) return rc;
    messages = root.kind == SW_CHAT_MAP ? sw_chat_map_find(root.map, name_of("messages")) : NULL;
    turns = root.kind == SW_CHAT_MAP ? sw_chat_map_find(root.map, name_of("conversations")) : NULL;
    text = root.kind == SW_CHAT_MAP ? sw_chat_map_find(root.map, name_of("text")) : NULL;
    if (!messages && !turns && text && text->kind == SW_CHAT_TEXT) {
        rc = sw_print_add(&buf, text->text.at, text->text.n, err);
        if (rc == SW_OK) rc = take_text(out, n_out, &buf, err);
        sw_mem_put(buf.at);
        return rc;
    }
    if (!messages && !turns)
        return SW_FAIL(err, SW_E_FORMAT, "a line is an object with \"messages\", "
                       "\"conversations\" or \"text\"");
    if (!f)
        return SW_FAIL(err, SW_E_USAGE, "the model has no chat template to render messages by; "
                       "put a chat_template.jinja beside it, or give lines of {\"text\": ...}");
    if (!messages) {
        if ((rc = turns_messages(&made, arena, turns, err)) != SW_OK) return rc;
        messages = &made;
    }
    if ((rc = check_messages(messages, err)) != SW_OK) return rc;
    return render(out, n_out, f, messages, sw_chat_map_find(root.map, name_of("tools")), false,
                  NULL, arena, err);
}

sw_code sw_chat_format_line(char **out, size_t *n_out, const sw_chat_format *f, const char *line,
                            size_t n_bytes, sw_err *err)
{
    sw_arena arena = {0};
    sw_code rc = line_text(out, n_out, f, line, n_bytes, &arena, err);

    sw_arena_free(&arena);
    return rc;
}
