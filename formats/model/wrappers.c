/* wrappers.c - see wrappers.h. */
#include "formats/model/wrappers.h"

#include <string.h>

#define DEPTH_MAX 4

static const struct {
    const char *type, *row, *defaults;
} wrappers[] = {
#define SW_WRAPPER(type, row, defaults) {#type, #row, defaults},
#include "formats/model/wrappers.def"
#undef SW_WRAPPER
};
#define N_WRAPPERS (sizeof wrappers / sizeof wrappers[0])

static size_t find(const char *type)
{
    size_t i = 0;

    while (i < N_WRAPPERS && strcmp(wrappers[i].type, type)) i++;
    return i;
}

const char *sw_config_row_name(const char *model_type)
{
    const size_t i = find(model_type);

    return i < N_WRAPPERS ? wrappers[i].row : model_type;
}

/* The object that holds the decoder, or a wrapper in it; NULL: there is none. */
static const cJSON *inner_of(const cJSON *config)
{
    static const char *const keys[] = {"text_config", "llm_config", "language_config",
                                       "thinker_config"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *inner = sw_json_member(config, keys[i]);

        if (cJSON_IsObject(inner) &&
            (sw_json_member(inner, "hidden_size") || sw_json_member(inner, "num_hidden_layers") ||
             inner_of(inner)))
            return inner;
    }
    return NULL;
}

static sw_code add_copy(cJSON *to, const char *key, const cJSON *value, sw_err *err)
{
    cJSON *copy = cJSON_Duplicate(value, true);

    if (copy && cJSON_AddItemToObject(to, key, copy)) return SW_OK;
    cJSON_Delete(copy);
    return SW_FAIL(err, SW_E_NOMEM, "no memory for a copy of %s", key);
}

static bool has(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key) != NULL;
}

/* Keys that are said once, beside the decoder's object, and are meant for it too. Whether the head
 * is the embedding is the wrapper's to say, even where its decoder's object says otherwise. */
static sw_code add_outer(cJSON *to, const cJSON *outer, sw_err *err)
{
    static const char *const keys[] = {"tie_word_embeddings", "dtype", "torch_dtype",
                                       "bos_token_id", "eos_token_id", "model_type"};
    const bool has_dtype = sw_json_member(to, "dtype") || sw_json_member(to, "torch_dtype");
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && rc == SW_OK; i++) {
        const bool is_dtype = strstr(keys[i], "dtype") != NULL; /* of which null leaves it open */

        if (!has(outer, keys[i]) || (is_dtype ? has_dtype : i && has(to, keys[i]))) continue;
        cJSON_DeleteItemFromObjectCaseSensitive(to, keys[i]);
        rc = add_copy(to, keys[i], cJSON_GetObjectItemCaseSensitive(outer, keys[i]), err);
    }
    return rc;
}

/* What the class of a model type assumes of keys that are absent. */
static sw_code add_defaults(cJSON *to, const cJSON *config, sw_err *err)
{
    const cJSON *type = sw_json_member(config, "model_type"), *member;
    const size_t i = cJSON_IsString(type) ? find(sw_arch_family(type->valuestring)) : N_WRAPPERS;
    cJSON *defaults;
    sw_code rc = SW_OK;

    if (i == N_WRAPPERS || !wrappers[i].defaults) return SW_OK;
    if (!(defaults = cJSON_Parse(wrappers[i].defaults)))
        return SW_FAIL(err, SW_E_NOMEM, "no memory for the defaults of %s", wrappers[i].type);
    cJSON_ArrayForEach(member, defaults)
        if (rc == SW_OK && !has(to, member->string))
            rc = add_copy(to, member->string, member, err);
    cJSON_Delete(defaults);
    return rc;
}

sw_code sw_config_unwrap(cJSON **out, const cJSON *config, sw_err *err)
{
    const cJSON *chain[DEPTH_MAX], *inner;
    int n = 1;
    cJSON *text;
    sw_code rc = SW_OK;

    chain[0] = config;
    while ((inner = inner_of(chain[n - 1])) != NULL) {
        if (n == DEPTH_MAX)
            return SW_FAIL(err, SW_E_FORMAT, "text_config: more than %d inside each other",
                           DEPTH_MAX - 1);
        chain[n++] = inner;
    }
    if (!(text = cJSON_Duplicate(chain[n - 1], true)))
        return SW_FAIL(err, SW_E_NOMEM, "no memory for a copy of the configuration");
    for (int i = n - 2; i >= 0 && rc == SW_OK; i--) rc = add_outer(text, chain[i], err);
    for (int i = n - 1; i >= 0 && rc == SW_OK; i--) rc = add_defaults(text, chain[i], err);
    if (rc == SW_OK)
        *out = text;
    else
        cJSON_Delete(text);
    return rc;
}

/* The key that the object names a scheme by; NULL: it names none. */
static const char *scheme_key(const cJSON *object)
{
    static const char *const keys[] = {"quantization_config", "compression_config"};

    for (int i = 0; i < 2; i++)
        if (sw_json_member(object, keys[i])) return keys[i];
    return NULL;
}

sw_code sw_config_lift_scheme(cJSON *config, sw_err *err)
{
    cJSON *inner = config;
    const char *key = NULL;
    sw_code rc;

    if (!cJSON_IsObject(config) || scheme_key(config)) return SW_OK;
    for (int depth = 0; depth < DEPTH_MAX && inner && !key; depth++) {
        inner = (cJSON *)(uintptr_t)inner_of(inner);
        key = inner ? scheme_key(inner) : NULL;
    }
    if (!key) return SW_OK;
    cJSON_DeleteItemFromObjectCaseSensitive(config, key); /* a null */
    rc = add_copy(config, key, sw_json_member(inner, key), err);
    if (rc == SW_OK) cJSON_DeleteItemFromObjectCaseSensitive(inner, key);
    return rc;
}
