/* kv_scales.c - see kv_scales.h. */
#include "verify/checks/checks.h"

#include <string.h>

#include "verify/checks/json_diff.h"
#include "verify/decoders/decode_spec_parts.h"

#define RANGES_APART 4.0F /* by two texts, at most; a damaged exponent is beyond */

static const char *const suffixes[2] = {"k_scale", "v_scale"};

bool sw_is_kv_scale(const sw_subject *checkpoint, const char *path, const char *suffix)
{
    char attention[256];

    if (strcmp(suffix, suffixes[0]) != 0 && strcmp(suffix, suffixes[1]) != 0) return false;
    for (int64_t l = 0; l < checkpoint->model.n_layers; l++)
        if (sw_model_attention_path(attention, &checkpoint->model, l) && !strcmp(attention, path))
            return true;
    return false;
}

static const cJSON *scheme_of(const sw_subject *c)
{
    return sw_json_member(sw_json_member(c->config, "quantization_config"), "kv_cache_scheme");
}

/* The largest code of what the scales are for: int8 where the config says so, else E4M3. */
static float top_of(const sw_subject *c)
{
    const cJSON *type = sw_json_member(scheme_of(c), "type");

    return cJSON_IsString(type) && !strcmp(type->valuestring, "int") ? 127.0F : 448.0F;
}

bool sw_kv_scale_is_own(const sw_subject *checkpoint, const sw_subject *original, const char *path,
                        const char *suffix)
{
    const float top = top_of(checkpoint), top_before = top_of(original);
    float scale, before;
    sw_err ignored = {0};

    if (!sw_is_kv_scale(checkpoint, path, suffix)) return false;
    if (!sw_spec_find(checkpoint->st, path, suffix))
        return top_before < top && sw_json_is_nothing(scheme_of(checkpoint));
    if (sw_spec_single(&scale, checkpoint->st, path, suffix, &ignored) != SW_OK ||
        sw_spec_single(&before, original->st, path, suffix, &ignored) != SW_OK)
        return false;
    return scale * top <= RANGES_APART * before * top_before &&
           before * top_before <= RANGES_APART * scale * top;
}

static bool has_any(const sw_subject *c)
{
    char path[256];

    if (scheme_of(c)) return true;
    for (int64_t i = 0; i < 2 * c->model.n_layers; i++)
        if (sw_model_attention_path(path, &c->model, i / 2) &&
            sw_spec_find(c->st, path, suffixes[i % 2]))
            return true;
    return false;
}

sw_code sw_verify_kv_scales(sw_report *report, const sw_subject *checkpoint, sw_err *err)
{
    char path[256];
    float scale;
    sw_code rc = SW_OK;

    if (!has_any(checkpoint)) return SW_OK;
    for (int64_t i = 0; i < 2 * checkpoint->model.n_layers && rc == SW_OK; i++) {
        sw_err why = {0};
        if (!sw_model_attention_path(path, &checkpoint->model, i / 2)) continue;
        if (sw_spec_single(&scale, checkpoint->st, path, suffixes[i % 2], &why) != SW_OK)
            rc = sw_report_find(report, "decode", path, err, "%s", why.text);
    }
    return rc;
}
