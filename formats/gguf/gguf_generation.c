/* gguf_generation.c - see gguf_generation.h. */
#include "formats/gguf/gguf_generation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/json.h"
#include "formats/file/config_text.h"

#define TOKENS "tokenizer.ggml.tokens"
#define SAMPLING "general.sampling."

static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
#define N_ENDS (sizeof end_keys / sizeof *end_keys)

/* Each row is a key of the file and what generation_config.json calls it. */
static const struct {
    const char *key, *name;
    bool is_int;
} samplings[] = {
    {SAMPLING "temp", "temperature", false},  {SAMPLING "top_k", "top_k", true},
    {SAMPLING "top_p", "top_p", false},       {SAMPLING "min_p", "min_p", false},
    {SAMPLING "penalty_repeat", "repetition_penalty", false},
};

static sw_code added(const cJSON *item, sw_err *err)
{
    return item ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for generation_config.json");
}

/* Return -1 where the file names no id of a token: engines ignore an id that is none. */
static int64_t read_id(const sw_gguf *g, const char *key)
{
    const sw_gguf_value *tokens = sw_gguf_key(g, TOKENS);
    sw_err ignored = {0};
    int64_t id = -1;

    if (sw_gguf_int(&id, g, key, 0, INT32_MAX, &ignored) != SW_OK) return -1;
    return tokens && (uint64_t)id >= tokens->n ? -1 : id;
}

static sw_code add_id(cJSON *config, const sw_gguf *g, const char *key, const char *name,
                      sw_err *err)
{
    const int64_t id = read_id(g, key);

    return id < 0 ? SW_OK : added(cJSON_AddNumberToObject(config, name, (double)id), err);
}

/* generation_config.json has a number for one id, and a list for several. */
static sw_code add_ends(cJSON *config, const sw_gguf *g, sw_err *err)
{
    int64_t ids[N_ENDS];
    cJSON *list;
    int n = 0;

    for (size_t i = 0; i < N_ENDS; i++) {
        bool is_new = (ids[n] = read_id(g, end_keys[i])) >= 0;

        for (int k = 0; k < n; k++) is_new = is_new && ids[k] != ids[n];
        n += is_new;
    }
    if (n == 0) return SW_OK;
    if (n == 1)
        return added(cJSON_AddNumberToObject(config, "eos_token_id", (double)ids[0]), err);
    if (!(list = cJSON_AddArrayToObject(config, "eos_token_id"))) return added(NULL, err);
    for (int k = 0; k < n; k++) {
        cJSON *id = cJSON_CreateNumber((double)ids[k]);
        if (!id || !cJSON_AddItemToArray(list, id)) return added(NULL, err);
    }
    return SW_OK;
}

/* 0.95 is stored as a float, which is another number as a double: return what somebody would
 * type. */
static double as_typed(double v)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.7g", v);
    return strtod(text, NULL);
}

/* Return NaN where the file has no such number. */
static double read_sampling(const sw_gguf *g, const char *key, bool is_int)
{
    sw_err ignored = {0};
    int64_t whole = -1;
    double v = (double)NAN;

    if (!sw_gguf_key(g, key)) return v;
    if (!is_int) return sw_gguf_real(&v, g, key, &ignored) == SW_OK ? v : (double)NAN;
    return sw_gguf_int(&whole, g, key, 0, INT32_MAX, &ignored) == SW_OK ? (double)whole
                                                                        : (double)NAN;
}

static sw_code add_sampling(cJSON *config, const sw_gguf *g, sw_err *err)
{
    const bool is_greedy = read_sampling(g, samplings[0].key, false) <= 0.0;
    bool has_any = false;
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof samplings / sizeof *samplings && rc == SW_OK; i++) {
        const double v = read_sampling(g, samplings[i].key, samplings[i].is_int);

        if (!isfinite(v)) continue;
        has_any = true;
        if (i == 0 && is_greedy) continue; /* do_sample says that */
        rc = added(cJSON_AddNumberToObject(config, samplings[i].name, as_typed(v)), err);
    }
    if (rc != SW_OK || !has_any) return rc;
    return added(cJSON_AddBoolToObject(config, "do_sample", !is_greedy), err);
}

sw_code sw_gguf_generation_config(char **json, const sw_gguf *g, sw_err *err)
{
    cJSON *config = cJSON_CreateObject();
    sw_code rc = added(config, err);

    *json = NULL;
    if (rc == SW_OK)
        rc = add_id(config, g, "tokenizer.ggml.bos_token_id", "bos_token_id", err);
    if (rc == SW_OK) rc = add_ends(config, g, err);
    if (rc == SW_OK)
        rc = add_id(config, g, "tokenizer.ggml.padding_token_id", "pad_token_id", err);
    if (rc == SW_OK) rc = add_sampling(config, g, err);
    if (rc == SW_OK && config->child) rc = sw_json_pretty(json, config, 0, err);
    cJSON_Delete(config);
    return rc;
}
