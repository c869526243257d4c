/* chat_prompt.c - see chat_prompt.h. */
#include "tools/run/chat_prompt.h"

#include <string.h>
#include <time.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/base/print_buf.h"
#include "formats/checkpoint/model_text.h"
#include "formats/io/file.h"

static const sw_json_caps line_caps = {
    .max_bytes = (size_t)16 << 20, .max_depth = 40, .max_values = 1 << 20};

static sw_code add_message(sw_print_buf *out, const char *role, const char *content, sw_err *err)
{
    sw_code rc = sw_print_fmt(out, err, "%s{\"role\": \"%s\", \"content\": ",
                              out->n_bytes > 1 ? ",\n" : "", role);

    if (rc == SW_OK) rc = sw_print_quote(out, content, err);
    return rc == SW_OK ? sw_print_add(out, "}", 1, err) : rc;
}

static sw_code add_line(sw_print_buf *out, const char *line, size_t n_bytes, sw_err *err)
{
    cJSON *message = NULL;
    const char *role = NULL;
    sw_code rc = sw_json_parse(&message, line, n_bytes, &line_caps, "the message", err);

    if (rc == SW_OK) rc = sw_json_text(&role, message, "role", err);
    if (rc == SW_OK && !role)
        rc = SW_FAIL(err, SW_E_FORMAT, "no message; each line is one {\"role\": \"user\", "
                     "\"content\": \"...\"}");
    if (rc == SW_OK && out->n_bytes > 1) rc = sw_print_add(out, ",\n", 2, err);
    if (rc == SW_OK) rc = sw_print_add(out, line, n_bytes, err);
    cJSON_Delete(message);
    return rc;
}

static sw_code add_file(sw_print_buf *out, const char *path, sw_err *err)
{
    sw_map map = {0};
    const char *at, *end;
    sw_code rc = sw_map_open(&map, path, err);

    if (rc != SW_OK) return rc;
    at = (const char *)map.data;
    end = at + map.size_bytes;
    for (long long line = 1; at < end && rc == SW_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        if (n && at[n - 1] == '\r') n--;
        if (n) rc = add_line(out, at, n, err);
        if (rc != SW_OK) sw_err_prefix(err, "%s: line %lld", path, line);
        at = stop ? stop + 1 : end;
    }
    sw_map_close(&map);
    return rc;
}

static sw_code print_messages(sw_print_buf *out, const char *system, const char *path,
                              const char *user, sw_err *err)
{
    sw_code rc = sw_print_add(out, "[", 1, err);

    if (rc == SW_OK && system) rc = add_message(out, "system", system, err);
    if (rc == SW_OK && path) rc = add_file(out, path, err);
    if (rc == SW_OK && user[0]) rc = add_message(out, "user", user, err);
    if (rc == SW_OK && out->n_bytes == 1)
        rc = SW_FAIL(err, SW_E_USAGE, "a chat without a message; give --prompt or --messages");
    return rc == SW_OK ? sw_print_add(out, "]", 1, err) : rc;
}

sw_code sw_chat_prompt(sw_ids *prompt, sw_ids *ends, sw_tokenizer *tok, const char *model_dir,
                       const char *system, const char *path, const char *user, sw_err *err)
{
    sw_chat_format *chat = NULL;
    sw_print_buf messages = {0};
    time_t now = time(NULL);
    struct tm date = {0};
    char *text = NULL;
    size_t n = 0;
    sw_code rc = sw_model_chat(&chat, model_dir, err);

    if (rc == SW_OK && !chat)
        rc = SW_FAIL(err, SW_E_USAGE, "%s has no chat template; put a chat_template.jinja there, "
                     "or give a plain --prompt without --chat", model_dir);
    (void)localtime_r(&now, &date);
    if (rc != SW_OK || (rc = print_messages(&messages, system, path, user, err)) != SW_OK ||
        (rc = sw_chat_format_messages(&text, &n, chat, messages.at, messages.n_bytes, true, &date,
                                      err)) != SW_OK ||
        (rc = sw_tokenizer_encode(tok, prompt, text, n, false, err)) != SW_OK)
        goto done;
    rc = sw_model_chat_ends(ends, model_dir, chat, tok, err);
done:
    sw_mem_put(text);
    sw_mem_put(messages.at);
    sw_chat_format_free(chat);
    return rc;
}
