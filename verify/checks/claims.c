/* claims.c - see claims.h. */
#include "verify/checks/claims.h"

#include <fnmatch.h>
#include <string.h>

#include "verify/decoders/decode_spec_parts.h"

/* A linear and the config that speaks of it. */
typedef struct asked {
    const cJSON *config;
    const char *path;
    bool is_head, is_expert;
    sw_err *err;
} asked;

typedef sw_code (*claim_fn)(sw_claim *out, const char **why, const asked *a);

/* How a dialect matches an entry of a list with a module. */
typedef enum match_kind {
    MATCH_EXACT,   /* the module itself, or "re:" and an expression */
    MATCH_BELOW,   /* the module or one above it, the shell's wildcards allowed */
    MATCH_INSIDE   /* the text anywhere in the module's name */
} match_kind;

static sw_code matches(bool *out, match_kind kind, const char *entry, const char *path, sw_err *err)
{
    size_t n = strlen(entry);

    *out = false;
    if (kind == MATCH_INSIDE) {
        *out = strstr(path, entry) != NULL;
        return SW_OK;
    }
    if (!strncmp(entry, "re:", 3)) return sw_spec_match(out, entry + 3, path, err);
    if (kind == MATCH_EXACT) {
        *out = !strcmp(entry, path);
        return SW_OK;
    }
    if (strpbrk(entry, "*?[")) {
        *out = fnmatch(entry, path, 0) == 0;
        for (const char *dot = strchr(path, '.'); dot && !*out; dot = strchr(dot + 1, '.')) {
            char above[300];

            if ((size_t)(dot - path) >= sizeof above) break;
            memcpy(above, path, (size_t)(dot - path));
            above[dot - path] = '\0';
            *out = fnmatch(entry, above, 0) == 0;
        }
        return SW_OK;
    }
    *out = !strncmp(entry, path, n) && (!path[n] || path[n] == '.');
    return SW_OK;
}

/* The entry of a list that matches; NULL: none does, or there is no list. */
static sw_code listed(const char **entry, match_kind kind, const cJSON *list, const asked *a)
{
    const cJSON *item;
    bool is_match = false;
    sw_code rc = SW_OK;

    *entry = NULL;
    if (list && !cJSON_IsArray(list))
        return SW_FAIL(a->err, SW_E_FORMAT, "the list of modules to leave is not a list");
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item)) continue;
        if ((rc = matches(&is_match, kind, item->valuestring, a->path, a->err)) != SW_OK) return rc;
        if (!is_match) continue;
        *entry = item->valuestring;
        break;
    }
    return rc;
}

/* Floats where the list under `key` names it; what is said of all others. */
static sw_code by_list(sw_claim *out, const char **why, const asked *a, const char *key,
                       match_kind kind, sw_claim otherwise)
{
    const char *entry;
    sw_code rc = listed(&entry, kind, sw_json_member(a->config, key), a);

    *why = entry ? entry : key;
    *out = entry ? SW_CLAIM_FLOATS : otherwise;
    return rc;
}

static sw_code of_ct(sw_claim *out, const char **why, const asked *a)
{
    const cJSON *group;
    sw_code rc = by_list(out, why, a, "ignore", MATCH_EXACT, SW_CLAIM_CODES);

    if (rc != SW_OK || *out == SW_CLAIM_FLOATS) return rc;
    if ((rc = sw_spec_ct_group(&group, a->config, a->path, a->err)) != SW_OK || group) return rc;
    *why = "targets";
    *out = SW_CLAIM_FLOATS;
    return SW_OK;
}

/* "-:pattern" leaves what it matches; a list of lists may name the parts of a block to quantize. */
static sw_code of_gptq(sw_claim *out, const char **why, const asked *a)
{
    const cJSON *entry, *row, *blocks = sw_json_member(a->config, "modules_in_block_to_quantize");
    sw_code rc;

    *why = "lm_head";
    *out = SW_CLAIM_CODES;
    if (a->is_head && !cJSON_IsTrue(sw_json_member(a->config, "lm_head"))) *out = SW_CLAIM_FLOATS;
    if (*out == SW_CLAIM_FLOATS) return SW_OK;
    *why = "dynamic";
    cJSON_ArrayForEach(entry, sw_json_member(a->config, "dynamic"))
    {
        bool is_match = false;

        if (strncmp(entry->string, "-:", 2) != 0) continue;
        rc = sw_spec_match(&is_match, entry->string + 2, a->path, a->err);
        if (rc != SW_OK) return rc;
        if (!is_match) continue;
        *why = entry->string;
        *out = SW_CLAIM_FLOATS;
        return SW_OK;
    }
    if (a->is_head || !cJSON_IsArray(blocks) || !blocks->child) return SW_OK;
    *why = "modules_in_block_to_quantize";
    *out = SW_CLAIM_FLOATS;
    cJSON_ArrayForEach(row, blocks)
    {
        const cJSON *item = cJSON_IsArray(row) ? row->child : row;

        for (; item; item = cJSON_IsArray(row) ? item->next : NULL)
            if (cJSON_IsString(item) && strstr(a->path, item->valuestring)) *out = SW_CLAIM_CODES;
    }
    return SW_OK;
}

static sw_code of_awq(sw_claim *out, const char **why, const asked *a)
{
    *why = "lm_head";
    *out = SW_CLAIM_FLOATS;
    if (a->is_head && !cJSON_IsTrue(sw_json_member(a->config, "lm_head"))) return SW_OK;
    return by_list(out, why, a, "modules_to_not_convert", MATCH_INSIDE, SW_CLAIM_CODES);
}

/* Loaders that pack by themselves leave the head, whatever the list says. */
static sw_code of_fp8(sw_claim *out, const char **why, const asked *a)
{
    const sw_claim otherwise = a->is_head ? SW_CLAIM_UNKNOWN : SW_CLAIM_CODES;
    sw_code rc = by_list(out, why, a, "ignored_layers", MATCH_BELOW, otherwise);

    if (rc != SW_OK || *out == SW_CLAIM_FLOATS) return rc;
    return by_list(out, why, a, "modules_to_not_convert", MATCH_BELOW, otherwise);
}

static sw_code of_kernel_layout(sw_claim *out, const char **why, const asked *a)
{
    return by_list(out, why, a, "modules_to_not_convert", MATCH_BELOW,
                   a->is_head ? SW_CLAIM_UNKNOWN : SW_CLAIM_CODES);
}

static sw_code of_modelopt(sw_claim *out, const char **why, const asked *a)
{
    const cJSON *inner = sw_json_member(a->config, "quantization"), *layers, *entry;
    asked b = *a;
    sw_code rc;

    if (cJSON_IsObject(inner)) b.config = inner;
    rc = by_list(out, why, &b, "exclude_modules", MATCH_BELOW, SW_CLAIM_CODES);
    if (rc == SW_OK && *out != SW_CLAIM_FLOATS)
        rc = by_list(out, why, &b, "ignore", MATCH_BELOW, SW_CLAIM_CODES);
    layers = sw_json_member(b.config, "quantized_layers");
    if (rc != SW_OK || *out == SW_CLAIM_FLOATS || !cJSON_IsObject(layers)) return rc;
    *why = "quantized_layers";
    *out = SW_CLAIM_FLOATS;
    cJSON_ArrayForEach(entry, layers)
    {
        bool is_match = false;

        if ((rc = matches(&is_match, MATCH_BELOW, entry->string, a->path, a->err)) != SW_OK)
            return rc;
        if (is_match) *out = SW_CLAIM_CODES;
    }
    return SW_OK;
}

/* Its readers know that experts are meant and nothing else. */
static sw_code of_mxfp4(sw_claim *out, const char **why, const asked *a)
{
    *why = "mxfp4";
    *out = SW_CLAIM_FLOATS;
    if (!a->is_expert) return SW_OK;
    return by_list(out, why, a, "modules_to_not_convert", MATCH_BELOW, SW_CLAIM_CODES);
}

static sw_code of_swage(sw_claim *out, const char **why, const asked *a)
{
    return by_list(out, why, a, "ignore", MATCH_EXACT,
                   a->is_head ? SW_CLAIM_UNKNOWN : SW_CLAIM_CODES);
}

static const struct {
    const char *dialect;
    claim_fn claim;
} rows[] = {
    {"compressed-tensors", of_ct}, {"gptq", of_gptq},           {"gptq_v2", of_gptq},
    {"awq", of_awq},               {"awq_gemv", of_awq},        {"fp8", of_fp8},
    {"fp8_hf", of_fp8},            {"marlin", of_kernel_layout}, {"machete", of_kernel_layout},
    {"modelopt", of_modelopt},     {"mxfp4", of_mxfp4},         {"swage", of_swage},
};

static asked ask(const sw_subject *s, const sw_subject_linear *l, sw_err *err)
{
    return (asked){.config = sw_json_member(s->config, "quantization_config"), .path = l->path,
                   .is_head = l->ref.slot == SW_SLOT_HEAD, .is_expert = l->ref.expert >= 0,
                   .err = err};
}

sw_code sw_claim_of(sw_claim *out, const char **why, const sw_subject *s,
                    const sw_subject_linear *l, sw_err *err)
{
    const asked a = ask(s, l, err);

    *out = SW_CLAIM_UNKNOWN;
    *why = "quantization_config";
    for (size_t i = 0; a.config && s->scheme.reader && i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].dialect, s->scheme.reader->name)) return rows[i].claim(out, why, &a);
    return SW_OK;
}

sw_code sw_claim_wrong_format(const char **out, const sw_subject *s, const sw_subject_linear *l,
                              sw_err *err)
{
    static const struct {
        const char *format, *suffix;
        sw_dtype dtype;
    } layouts[] = {
        {"pack-quantized", "weight_packed", SW_DTYPE_I32},
        {"int-quantized", "weight", SW_DTYPE_I8},
        {"float-quantized", "weight", SW_DTYPE_F8_E4M3},
        {"mxfp8-quantized", "weight", SW_DTYPE_F8_E4M3},
        {"nvfp4-pack-quantized", "weight_packed", SW_DTYPE_U8},
        {"mxfp4-pack-quantized", "weight_packed", SW_DTYPE_U8},
    };
    const asked a = ask(s, l, err);
    const cJSON *group, *format;
    sw_code rc;

    *out = NULL;
    if (s->scheme.reader != &sw_spec_ct) return SW_OK;
    if ((rc = sw_spec_ct_group(&group, a.config, a.path, a.err)) != SW_OK || !group) return rc;
    if (!(format = sw_json_member(group, "format"))) format = sw_json_member(a.config, "format");
    for (size_t i = 0; cJSON_IsString(format) && i < sizeof layouts / sizeof *layouts; i++) {
        const sw_st_tensor *t = sw_spec_find(s->st, l->path, layouts[i].suffix);

        if (strcmp(layouts[i].format, format->valuestring) != 0) continue;
        if (!t || t->view.dtype != layouts[i].dtype) *out = format->valuestring;
    }
    return SW_OK;
}
