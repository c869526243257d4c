/* model_chat.c - see model_text.h. */
#include "formats/checkpoint/model_text.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/print_buf.h"
#include "formats/checkpoint/model_path.h"
#include "formats/gguf/gguf_generation.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/file_content.h"

#define CONFIG_NAME "tokenizer_config.json"
#define JINJA_NAME "chat_template.jinja"

/* tokenizer_config.json holds every added token and several templates. */
static const sw_json_caps config_caps = {
    .max_bytes = (size_t)32 << 20, .max_depth = 32, .max_values = 2 << 20};

/* A JSON file beside the model, or the same made from the metadata of a GGUF; *out is NULL where
 * there is none. */
static sw_code read_beside(cJSON **out, const char *path, const char *name, bool is_gguf,
                           sw_err *err)
{
    char at[SW_PATH_BYTES], *json = NULL;
    sw_gguf *g = NULL;
    sw_code rc;

    *out = NULL;
    if (!is_gguf) {
        if ((rc = sw_path_join(at, path, name, err)) != SW_OK || !sw_path_exists(at)) return rc;
        return sw_json_read(out, at, &config_caps, err);
    }
    if (strcmp(name, CONFIG_NAME) != 0 && strcmp(name, "generation_config.json") != 0) return SW_OK;
    if ((rc = sw_gguf_open(&g, path, err)) != SW_OK) return rc;
    rc = strcmp(name, CONFIG_NAME) ? sw_gguf_generation_config(&json, g, err)
                                   : sw_gguf_tokenizer_config(&json, g, err);
    if (rc == SW_OK && json) rc = sw_json_parse(out, json, strlen(json), &config_caps, path, err);
    sw_mem_put(json);
    sw_gguf_close(g);
    return rc;
}

static const char *token_text(const cJSON *config, const char *name)
{
    const cJSON *token = sw_json_member(config, name);

    if (cJSON_IsObject(token)) token = sw_json_member(token, "content");
    return cJSON_IsString(token) ? token->valuestring : NULL;
}

/* The named tokens that the configs have, as a JSON object. */
static sw_code print_tokens(sw_print_buf *out, const cJSON *config, const cJSON *map, sw_err *err)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "sep_token", "cls_token", "mask_token"};
    const char *before = "{";
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof names / sizeof *names && rc == SW_OK; i++) {
        const char *text = config ? token_text(config, names[i]) : NULL;
        if (!text && map) text = token_text(map, names[i]);
        if (!text) continue;
        rc = sw_print_fmt(out, err, "%s\"%s\": ", before, names[i]);
        if (rc == SW_OK) rc = sw_print_quote(out, text, err);
        before = ", ";
    }
    if (rc == SW_OK) rc = sw_print_fmt(out, err, "%s", out->n_bytes ? "}" : "{}");
    return rc == SW_OK ? sw_print_add(out, "", 1, err) : rc;
}

/* "chat_template" of a config: text, or a list of {"name", "template"} with a default. */
static sw_code template_of(const char **out, const cJSON *config, const char *where, sw_err *err)
{
    const cJSON *value = config ? sw_json_member(config, "chat_template") : NULL, *row;

    *out = NULL;
    if (!value || cJSON_IsString(value)) {
        *out = value ? value->valuestring : NULL;
        return SW_OK;
    }
    cJSON_ArrayForEach(row, value)
    {
        const cJSON *name = sw_json_member(row, "name"), *text = sw_json_member(row, "template");
        if (cJSON_IsString(name) && cJSON_IsString(text) && !strcmp(name->valuestring, "default"))
            *out = text->valuestring;
    }
    return *out ? SW_OK
                : SW_FAIL(err, SW_E_UNSUPPORTED, "%s: \"chat_template\" has no template named "
                          "default; put the one to use into " JINJA_NAME, where);
}

static sw_code open_jinja(sw_chat_format **out, const char *path, const char *tokens,
                          bool *is_there, sw_err *err)
{
    char at[SW_PATH_BYTES];
    sw_map map = {0};
    sw_code rc = sw_path_join(at, path, JINJA_NAME, err);

    *is_there = rc == SW_OK && sw_path_exists(at);
    if (!*is_there || (rc = sw_map_open(&map, at, err)) != SW_OK) return rc;
    rc = sw_chat_format_new(out, (const char *)map.data, map.size_bytes, at, tokens, err);
    sw_map_close(&map);
    return rc;
}

static sw_code open_config(sw_chat_format **out, const char *path, const char *name,
                           const cJSON *config, const char *tokens, sw_err *err)
{
    const char *text = NULL;
    char where[SW_PATH_BYTES + 64];
    sw_code rc;

    (void)snprintf(where, sizeof where, "%s/%s", path, name);
    if ((rc = template_of(&text, config, where, err)) != SW_OK || !text) return rc;
    return sw_chat_format_new(out, text, strlen(text), where, tokens, err);
}

sw_code sw_model_chat(sw_chat_format **out, const char *path, sw_err *err)
{
    cJSON *config = NULL, *map = NULL, *other = NULL;
    char file[SW_PATH_BYTES];
    bool is_gguf = sw_gguf_locate(file, path), has_jinja = false;
    const char *at = is_gguf ? file : path;
    sw_print_buf tokens = {0};
    sw_code rc;

    *out = NULL;
    if ((rc = read_beside(&config, at, CONFIG_NAME, is_gguf, err)) != SW_OK ||
        (rc = read_beside(&map, at, "special_tokens_map.json", is_gguf, err)) != SW_OK ||
        (rc = read_beside(&other, at, "chat_template.json", is_gguf, err)) != SW_OK ||
        (rc = print_tokens(&tokens, config, map, err)) != SW_OK)
        goto done;
    if (!is_gguf) rc = open_jinja(out, at, tokens.at, &has_jinja, err);
    if (rc == SW_OK && !has_jinja)
        rc = open_config(out, at, "chat_template.json", other, tokens.at, err);
    if (rc == SW_OK && !has_jinja && !*out)
        rc = open_config(out, at, is_gguf ? "tokenizer.chat_template" : CONFIG_NAME, config,
                         tokens.at, err);
done:
    sw_mem_put(tokens.at);
    cJSON_Delete(config);
    cJSON_Delete(map);
    cJSON_Delete(other);
    return rc;
}

static sw_code add_id(sw_ids *out, const cJSON *number, sw_err *err)
{
    int64_t id = 0;
    sw_code rc = sw_json_as_int(&id, number, 0, UINT32_MAX, "eos_token_id", err);

    return rc == SW_OK ? sw_ids_push(out, (uint32_t)id, err) : rc;
}

static sw_code add_generation_ends(sw_ids *out, const char *path, sw_err *err)
{
    char file[SW_PATH_BYTES];
    bool is_gguf = sw_gguf_locate(file, path);
    const cJSON *ends, *one;
    cJSON *config = NULL;
    sw_code rc =
        read_beside(&config, is_gguf ? file : path, "generation_config.json", is_gguf, err);

    ends = config ? sw_json_member(config, "eos_token_id") : NULL;
    if (rc == SW_OK && cJSON_IsNumber(ends)) rc = add_id(out, ends, err);
    cJSON_ArrayForEach(one, ends)
        if (rc == SW_OK) rc = add_id(out, one, err);
    cJSON_Delete(config);
    return rc;
}

/* The first token behind the answer, where it is a special one: decoded without special tokens, it
 * leaves nothing. */
static sw_code add_turn_end(sw_ids *out, const char *tail, sw_tokenizer *tok, sw_err *err)
{
    sw_ids ids = {0};
    char *text = NULL;
    size_t n = 0;
    sw_code rc = sw_tokenizer_encode(tok, &ids, tail, strlen(tail), false, err);

    if (rc == SW_OK && ids.n) rc = sw_tokenizer_decode(tok, &text, &n, ids.ids, 1, true, err);
    if (rc == SW_OK && ids.n && !n) rc = sw_ids_push(out, ids.ids[0], err);
    sw_mem_put(text);
    sw_ids_free(&ids);
    return rc;
}

sw_code sw_model_chat_ends(sw_ids *out, const char *path, const sw_chat_format *f,
                           sw_tokenizer *tok, sw_err *err)
{
    static const char answer[] = "b7f3", probe[] =
        "[{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"b7f3\"}]";
    char *text = NULL, *tail;
    sw_err ignored = {0};
    size_t n = 0;
    sw_code rc = add_generation_ends(out, path, err);

    if (rc != SW_OK) return rc;
    /* A template that refuses the probe has said nothing, which is no fault. */
    if (sw_chat_format_messages(&text, &n, f, probe, sizeof probe - 1, false, NULL, &ignored) !=
        SW_OK)
        return SW_OK;
    tail = strstr(text, answer);
    if (tail) {
        tail += strlen(answer);
        tail += strspn(tail, " \n");
        rc = add_turn_end(out, tail, tok, err);
    }
    sw_mem_put(text);
    return rc;
}
