/* kv_scales.c - see kv_scales.h. */
#include "verify/checks/checks.h"

#include <string.h>

#include "verify/decoders/decode_spec_parts.h"

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

static bool has_any(const sw_subject *c)
{
    const cJSON *config = sw_json_member(c->config, "quantization_config");
    char path[256];

    if (sw_json_member(config, "kv_cache_scheme")) return true;
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
