/* families.c - see families.h. Defaults are those of each family's published config class. */
#include "formats/model/families/families.h"

#include <string.h>

#define WINDOW_MAX ((int64_t)1 << 31)
#define EXPERT_WIDTH_MAX ((int64_t)1 << 22)

void sw_family_window_everywhere(sw_model *model)
{
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_window_layer[i] = model->sliding_window > 0;
}

sw_code sw_family_window(int64_t *out, const cJSON *config, int64_t when_absent, sw_err *err)
{
    bool is_present = cJSON_GetObjectItemCaseSensitive(config, "sliding_window") != NULL;
    int64_t window = is_present ? 0 : when_absent;
    sw_code rc = sw_json_int(&window, config, "sliding_window", 1, WINDOW_MAX, err);

    if (rc == SW_OK) *out = window;
    return rc;
}

sw_code sw_family_optional_window(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_used = false;
    sw_code rc = sw_json_bool(&is_used, config, "use_sliding_window", err);

    if (rc != SW_OK || !is_used) return rc;
    return sw_family_window(&model->sliding_window, config, 4096, err);
}

static sw_code read_layer_types(sw_model *model, const cJSON *types, sw_err *err)
{
    const cJSON *type;
    int64_t layer = 0;

    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "layer_types: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        bool is_chunk = model->attention_chunk && !strcmp(text, "chunked_attention");
        bool is_window = is_chunk || !strcmp(text, "sliding_attention");

        if (!is_window && strcmp(text, "full_attention"))
            return SW_FAIL(err, SW_E_UNSUPPORTED,
                           "layer_types: \"%.60s\"; there are full_attention, sliding_attention",
                           text);
        if (is_window && !is_chunk && !model->sliding_window)
            return SW_FAIL(err, SW_E_FORMAT,
                           "layer_types: sliding_attention, but sliding_window is not in use");
        model->is_window_layer[layer++] = is_window;
    }
    return SW_OK;
}

sw_code sw_family_layer_types(sw_model *model, const cJSON *config, int64_t period, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "layer_types");

    if (types) return read_layer_types(model, types, err);
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_window_layer[i] = model->sliding_window > 0 && (i + 1) % period != 0;
    return SW_OK;
}

/* Qwen 2 and 3: layers from max_window_layers on have the window, unless layer_types says. */
static sw_code read_layered_window(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "layer_types");
    int64_t first = 28;
    sw_code rc;

    if ((rc = sw_family_optional_window(model, config, err)) != SW_OK) return rc;
    if ((rc = sw_json_int(&first, config, "max_window_layers", 0, WINDOW_MAX, err)) != SW_OK)
        return rc;
    if (types) return read_layer_types(model, types, err);
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_window_layer[i] = model->sliding_window > 0 && i >= first;
    return SW_OK;
}

sw_code sw_family_attention_bias(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_bias = false;
    sw_code rc = sw_json_bool(&has_bias, config, "attention_bias", err);

    model->has_qkv_bias = has_bias;
    model->has_o_bias = has_bias;
    return rc;
}

sw_code sw_family_dense_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *list = sw_json_member(config, "mlp_only_layers");
    const cJSON *entry;
    sw_code rc;

    if (list && !cJSON_IsArray(list))
        return SW_FAIL(err, SW_E_FORMAT, "mlp_only_layers: not a list");
    cJSON_ArrayForEach(entry, list)
    {
        int64_t layer = 0;

        rc = sw_json_as_int(&layer, entry, 0, SW_LAYERS_MAX - 1, "mlp_only_layers", err);
        if (rc != SW_OK) return rc;
        model->is_dense_layer[layer] = true;
    }
    return SW_OK;
}

sw_code sw_family_experts(sw_model *model, const cJSON *config, int64_t n_default,
                          int64_t used_default, sw_err *err)
{
    static const char *const used[] = {"moe_k", "moe_topk", "top_k_experts",
                                       "num_experts_per_tok"};
    sw_code rc;

    model->n_experts = n_default;
    model->n_experts_used = used_default;
    if ((rc = sw_json_int(&model->n_experts, config, "num_experts", 1, SW_EXPERTS_MAX, err)) ||
        (rc = sw_json_int(&model->n_experts, config, "moe_num_experts", 1, SW_EXPERTS_MAX, err)) ||
        (rc = sw_json_int(&model->n_experts, config, "n_routed_experts", 1, SW_EXPERTS_MAX, err)) ||
        (rc = sw_json_int(&model->n_experts, config, "num_local_experts", 1, SW_EXPERTS_MAX, err)))
        return rc;
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) {
        rc = sw_json_int(&model->n_experts_used, config, used[i], 1, SW_EXPERTS_MAX, err);
        if (rc != SW_OK) return rc;
    }
    if (model->n_experts_used > model->n_experts) /* the default counts as well */
        return SW_FAIL(err, SW_E_FORMAT, "num_experts_per_tok: %lld, but there are %lld experts",
                       (long long)model->n_experts_used, (long long)model->n_experts);
    return SW_OK;
}

sw_code sw_family_read_llama(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = sw_family_attention_bias(model, config, err);

    return rc ? rc : sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err);
}

sw_code sw_family_read_mistral(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = sw_family_window(&model->sliding_window, config, 4096, err);

    sw_family_window_everywhere(model);
    return rc;
}

sw_code sw_family_read_qwen2(sw_model *model, const cJSON *config, sw_err *err)
{
    model->has_qkv_bias = true;
    return read_layered_window(model, config, err);
}

sw_code sw_family_read_qwen3(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = sw_family_attention_bias(model, config, err);

    return rc ? rc : read_layered_window(model, config, err);
}

sw_code sw_family_read_qwen3_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->moe_intermediate = 768;
    if ((rc = sw_family_attention_bias(model, config, err)) != SW_OK) return rc;
    if ((rc = sw_family_optional_window(model, config, err)) != SW_OK) return rc;
    sw_family_window_everywhere(model);
    if ((rc = sw_family_experts(model, config, 128, 8, err)) != SW_OK) return rc;
    if ((rc = sw_json_int(&model->moe_intermediate, config, "moe_intermediate_size", 1,
                          EXPERT_WIDTH_MAX, err)) != SW_OK)
        return rc;
    if ((rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) != SW_OK) return rc;
    if ((rc = sw_json_int(&model->sparse_step, config, "decoder_sparse_step", 1,
                          (int64_t)1 << 31, err)) != SW_OK)
        return rc;
    return sw_family_dense_layers(model, config, err);
}

sw_code sw_family_read_mixtral(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = sw_family_window(&model->sliding_window, config, 0, err);

    if (rc != SW_OK) return rc;
    sw_family_window_everywhere(model);
    model->norm_topk = true;
    model->moe_intermediate = model->intermediate;
    return sw_family_experts(model, config, 8, 2, err);
}
