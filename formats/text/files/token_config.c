/* token_config.c - see token_config.h. */
#include "formats/text/files/token_config.h"

#include <string.h>

#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/text/vocab.h"

static const sw_json_caps config_caps = {
    .max_bytes = (size_t)32 << 20, .max_depth = 32, .max_values = 2000000};

static const char *const named[] = {"bos_token", "eos_token",  "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
/* Real lists have some thousand tokens. The limit is low because they are compared with one
 * another. */
#define TOKENS_MAX 16384
#define N_NAMED (sizeof named / sizeof *named)
#define N_LISTS (sizeof lists / sizeof *lists)

static sw_code read_optional(cJSON **out, const char *dir, const char *name, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc = sw_path_join_inside(path, dir, name, err);

    if (rc != SW_OK || !sw_path_exists(path)) return rc;
    if ((rc = sw_json_read(out, path, &config_caps, err)) != SW_OK) return rc;
    return cJSON_IsObject(*out) ? SW_OK
                                : SW_FAIL(err, SW_E_FORMAT, "%s: not a JSON object", path);
}

/* A token is given as a text, or as an object with the text as "content". */
static const char *content_of(const cJSON *token)
{
    const cJSON *content = cJSON_IsObject(token) ? sw_json_member(token, "content") : token;

    return cJSON_IsString(content) && content->valuestring[0] ? content->valuestring : NULL;
}

static sw_code read_flags(sw_added_entry *t, const cJSON *json, sw_err *err)
{
    sw_code rc;

    if (!cJSON_IsObject(json)) return SW_OK;
    if ((rc = sw_json_bool(&t->single_word, json, "single_word", err)) != SW_OK ||
        (rc = sw_json_bool(&t->lstrip, json, "lstrip", err)) != SW_OK ||
        (rc = sw_json_bool(&t->rstrip, json, "rstrip", err)) != SW_OK ||
        (rc = sw_json_bool(&t->normalized, json, "normalized", err)) != SW_OK)
        return rc;
    return sw_json_bool(&t->special, json, "special", err);
}

static bool has_token(const sw_token_config *c, const char *text)
{
    for (int64_t i = 0; i < c->n_tokens; i++)
        if (!strcmp(c->tokens[i].text, text)) return true;
    return false;
}

static sw_code add_special(sw_token_config *c, const cJSON *json, sw_err *err)
{
    sw_added_entry t = {.text = content_of(json), .id = -1, .special = true};
    sw_code rc;

    if (!t.text || has_token(c, t.text)) return SW_OK;
    if ((rc = read_flags(&t, json, err)) != SW_OK) return rc;
    t.special = true;
    c->tokens[c->n_tokens++] = t;
    return SW_OK;
}

/* Read {"7": {"content": ...}, ...}. */
static sw_code add_decoder(sw_token_config *c, const cJSON *decoder, sw_err *err)
{
    const cJSON *json;
    sw_code rc;

    cJSON_ArrayForEach(json, decoder)
    {
        sw_added_entry t = {.text = content_of(json)};
        const char *digits = json->string;
        if (!t.text || !*digits || strspn(digits, "0123456789") != strlen(digits) ||
            strlen(digits) > 9)
            return SW_FAIL(err, SW_E_FORMAT, "added_tokens_decoder \"%.20s\": not an id with a "
                           "\"content\"", digits);
        for (; *digits; digits++) t.id = 10 * t.id + (*digits - '0');
        if (t.id >= SW_TOKEN_ID_LIMIT)
            return SW_FAIL(err, SW_E_FORMAT, "added_tokens_decoder: id %lld", (long long)t.id);
        if ((rc = read_flags(&t, json, err)) != SW_OK) return rc;
        c->tokens[c->n_tokens++] = t;
    }
    return SW_OK;
}

static bool is_named(const sw_token_config *c, const char *text)
{
    const cJSON *files[] = {c->tokenizer, c->map};

    for (size_t f = 0; f < 2; f++) {
        const cJSON *json;
        for (size_t i = 0; i < N_NAMED; i++) {
            const char *name = content_of(sw_json_member(files[f], named[i]));
            if (name && !strcmp(name, text)) return true;
        }
        for (size_t i = 0; i < N_LISTS; i++)
            cJSON_ArrayForEach(json, sw_json_member(files[f], lists[i]))
            {
                const char *name = content_of(json);
                if (name && !strcmp(name, text)) return true;
            }
    }
    return false;
}

/* Read {"<tok>": 32000, ...}, without the tokens that the decoder has listed before. */
static sw_code add_added(sw_token_config *c, bool has_decoder, sw_err *err)
{
    const cJSON *json;
    sw_code rc;

    cJSON_ArrayForEach(json, c->added)
    {
        sw_added_entry t = {.text = json->string, .special = is_named(c, json->string)};
        rc = sw_json_as_int(&t.id, json, 0, SW_TOKEN_ID_LIMIT - 1, "added_tokens.json: id", err);
        if (rc != SW_OK) return rc;
        t.normalized = !t.special;
        if (t.text[0] && !(has_decoder && has_token(c, t.text))) c->tokens[c->n_tokens++] = t;
    }
    return SW_OK;
}

static sw_code add_tokens(sw_token_config *c, sw_err *err)
{
    const cJSON *files[] = {c->tokenizer, c->map}, *json;
    const cJSON *decoder = sw_json_member(c->tokenizer, "added_tokens_decoder");
    int64_t room = cJSON_GetArraySize(decoder) + cJSON_GetArraySize(c->added) + 2 * (int)N_NAMED;
    sw_code rc;

    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < N_LISTS; i++)
            room += cJSON_GetArraySize(sw_json_member(files[f], lists[i]));
    if (room > TOKENS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%lld added tokens", (long long)room);
    if ((rc = SW_ARENA_TAKE(&c->tokens, &c->arena, room, err)) != SW_OK ||
        (rc = add_decoder(c, decoder, err)) != SW_OK ||
        (rc = add_added(c, decoder != NULL, err)) != SW_OK)
        return rc;
    for (size_t f = 0; f < 2; f++) {
        for (size_t i = 0; i < N_NAMED && rc == SW_OK; i++)
            rc = add_special(c, sw_json_member(files[f], named[i]), err);
        for (size_t i = 0; i < N_LISTS && rc == SW_OK; i++)
            cJSON_ArrayForEach(json, sw_json_member(files[f], lists[i]))
                if (rc == SW_OK) rc = add_special(c, json, err);
    }
    return rc;
}

static const char *named_text(const sw_token_config *c, const char *key)
{
    const char *text = content_of(sw_json_member(c->tokenizer, key));

    return text ? text : content_of(sw_json_member(c->map, key));
}

static sw_code read_tri(int *out, const cJSON *json, const char *key, sw_err *err)
{
    bool value = false;
    sw_code rc = sw_json_bool(&value, json, key, err);

    *out = sw_json_member(json, key) ? value : -1;
    return rc;
}

static sw_code read_rules(sw_token_config *c, sw_err *err)
{
    const char *name = "", *type = "";
    char *kept = NULL;
    size_t n;
    sw_code rc;

    c->class_name = c->model_type = "";
    if ((rc = sw_json_text(&name, c->tokenizer, "tokenizer_class", err)) != SW_OK ||
        (rc = sw_json_text(&type, c->model, "model_type", err)) != SW_OK ||
        (rc = read_tri(&c->adds_bos, c->tokenizer, "add_bos_token", err)) != SW_OK ||
        (rc = read_tri(&c->adds_eos, c->tokenizer, "add_eos_token", err)) != SW_OK ||
        (rc = read_tri(&c->is_legacy, c->tokenizer, "legacy", err)) != SW_OK ||
        (rc = sw_json_bool(&c->adds_prefix_space, c->tokenizer, "add_prefix_space", err)) != SW_OK)
        return rc;
    n = strlen(name);
    if (n > 4 && !strcmp(name + n - 4, "Fast")) n -= 4;
    if ((rc = sw_arena_text(&kept, &c->arena, name, n, err)) != SW_OK) return rc;
    c->class_name = kept;
    c->model_type = type;
    c->bos = named_text(c, "bos_token");
    c->eos = named_text(c, "eos_token");
    c->unk = named_text(c, "unk_token");
    return SW_OK;
}

sw_code sw_token_config_build(sw_token_config *out, sw_err *err)
{
    sw_code rc = read_rules(out, err);

    return rc == SW_OK ? add_tokens(out, err) : rc;
}

sw_code sw_token_config_read(sw_token_config *out, const char *dir, sw_err *err)
{
    sw_token_config c = {0};
    sw_code rc;

    if ((rc = read_optional(&c.tokenizer, dir, "tokenizer_config.json", err)) != SW_OK ||
        (rc = read_optional(&c.map, dir, "special_tokens_map.json", err)) != SW_OK ||
        (rc = read_optional(&c.added, dir, "added_tokens.json", err)) != SW_OK ||
        (rc = read_optional(&c.model, dir, "config.json", err)) != SW_OK)
        goto done;
    if ((rc = sw_token_config_build(&c, err)) != SW_OK) {
        sw_err_prefix(err, "%s: tokenizer_config.json or what is beside it", dir);
        goto done;
    }
    *out = c;
    memset(&c, 0, sizeof c);
done:
    sw_token_config_free(&c);
    return rc;
}

void sw_token_config_free(sw_token_config *c)
{
    cJSON_Delete(c->tokenizer);
    cJSON_Delete(c->map);
    cJSON_Delete(c->added);
    cJSON_Delete(c->model);
    sw_arena_free(&c->arena);
    memset(c, 0, sizeof *c);
}
