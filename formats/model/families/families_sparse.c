/* families_sparse.c - see families.h: decoders with routed experts. */
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define EXPERT_WIDTH_MAX ((int64_t)1 << 22)
#define SHARED_MAX 64
#define CLIP_MAX 1e6
#define FACTOR_MAX 1e6

sw_code sw_family_read_glm4_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_norms = false;
    sw_code rc;

    if ((rc = sw_json_bool(&model->has_qkv_bias, config, "attention_bias", err)) ||
        (rc = sw_json_bool(&has_norms, config, "use_qk_norm", err)) ||
        (rc = sw_family_sigmoid_router(model, config, err)))
        return rc;
    sw_family_kind_everywhere(model, has_norms ? SW_KIND_NORMED : SW_KIND_BARE);
    return sw_family_shared_expert(model, config, err);
}

sw_code sw_family_read_minimax_m2(sw_model *model, const cJSON *config, sw_err *err)
{
    const char *scoring = "sigmoid";
    sw_code rc;

    model->router = SW_ROUTER_SIGMOID;
    model->norm_topk = true;
    model->moe_intermediate = model->intermediate;
    if ((rc = sw_json_text(&scoring, config, "scoring_func", err)) != SW_OK) return rc;
    if (strcmp(scoring, "sigmoid"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "scoring_func: \"%.60s\" is not supported; there is "
                       "sigmoid", scoring);
    return sw_family_experts(model, config, 256, 8, err);
}

sw_code sw_family_read_qwen2_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->has_qkv_bias = true;
    if ((rc = sw_json_bool(&model->has_qkv_bias, config, "qkv_bias", err)) ||
        (rc = sw_family_optional_window(model, config, err)) ||
        (rc = sw_family_layer_types(model, config, SW_LAYERS_MAX + 1, err)) ||
        (rc = sw_family_experts(model, config, 60, 4, err)) ||
        (rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 1408, 1,
                            EXPERT_WIDTH_MAX, err)) ||
        (rc = sw_family_int(&model->shared_intermediate, config, "shared_expert_intermediate_size",
                            5632, 1, EXPERT_WIDTH_MAX, err)) ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) ||
        (rc = sw_json_int(&model->sparse_step, config, "decoder_sparse_step", 1, (int64_t)1 << 31,
                          err)))
        return rc;
    return sw_family_dense_layers(model, config, err);
}

sw_code sw_family_read_olmoe(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->moe_intermediate = model->intermediate;
    if ((rc = sw_family_attention_bias(model, config, err)) ||
        (rc = sw_family_experts(model, config, 64, 8, err)) ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) ||
        (rc = sw_family_positive(&model->qkv_clip, config, "clip_qkv", CLIP_MAX, err)))
        return rc;
    sw_family_kind_everywhere(model, model->qkv_clip > 0.0 ? SW_KIND_CLIPPED : SW_KIND_UNCLIPPED);
    return SW_OK;
}

/* Layers from start to end, each so many, are sparse; -1 is the last. */
static sw_code read_sparse_range(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t start, end, every;
    sw_code rc;

    if ((rc = sw_family_int(&start, config, "moe_layer_start_index", 1, 0, SW_LAYERS_MAX, err)) ||
        (rc = sw_family_int(&end, config, "moe_layer_end_index", -1, -1, SW_LAYERS_MAX, err)) ||
        (rc = sw_family_int(&every, config, "moe_layer_interval", 1, 1, SW_LAYERS_MAX, err)))
        return rc;
    if (end < 0) end = model->n_layers - 1;
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_dense_layer[i] = (i + 1) % every != 0 || i < start || i > end;
    return SW_OK;
}

sw_code sw_family_read_ernie4_5_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t n_shared;
    sw_code rc;

    model->norm_topk = true;
    model->route_floor = 1e-12;
    if ((rc = sw_family_read_ernie4_5(model, config, err)) ||
        (rc = sw_family_experts(model, config, 64, 6, err)) ||
        (rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 1536, 1,
                            EXPERT_WIDTH_MAX, err)) ||
        (rc = sw_family_int(&n_shared, config, "moe_num_shared_experts", 2, 0, SHARED_MAX, err)) ||
        (rc = sw_family_positive(&model->route_floor, config, "moe_norm_min", 1.0, err)))
        return rc;
    model->shared_intermediate = n_shared * model->moe_intermediate;
    sw_family_kind_everywhere(model, n_shared ? SW_KIND_SHARED : SW_KIND_ROUTED);
    return read_sparse_range(model, config, err);
}

/* Some configs of this family have a list with a value for each layer. */
static sw_code read_first(int64_t *out, const cJSON *config, const char *key, int64_t when_absent,
                          int64_t max, sw_err *err)
{
    const cJSON *list = sw_json_member(config, key), *item;
    sw_code rc;

    if (!cJSON_IsArray(list)) return sw_family_int(out, config, key, when_absent, 1, max, err);
    *out = when_absent;
    cJSON_ArrayForEach(item, list)
    {
        int64_t value = 0;

        if ((rc = sw_json_as_int(&value, item, 1, max, key, err)) != SW_OK) return rc;
        if (item != list->child && value != *out)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: differs between layers", key);
        *out = value;
    }
    return SW_OK;
}

sw_code sw_family_read_hunyuan_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t n_shared;
    sw_code rc;

    model->norm_topk = true;
    if ((rc = sw_family_read_hunyuan(model, config, err)) ||
        (rc = read_first(&model->n_experts, config, "num_experts", 1, SW_EXPERTS_MAX, err)) ||
        (rc = read_first(&model->n_experts_used, config, "moe_topk", 1, SW_EXPERTS_MAX, err)) ||
        (rc = read_first(&n_shared, config, "num_shared_expert", 1, SHARED_MAX, err)) ||
        (rc = read_first(&model->moe_intermediate, config, "moe_intermediate_size",
                         model->intermediate, EXPERT_WIDTH_MAX, err)))
        return rc;
    if (model->n_experts_used > model->n_experts)
        return SW_FAIL(err, SW_E_FORMAT, "moe_topk: %lld, but there are %lld experts",
                       (long long)model->n_experts_used, (long long)model->n_experts);
    model->shared_intermediate = n_shared * model->intermediate;
    return SW_OK;
}

static sw_code read_moe_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *list = sw_json_member(config, "moe_layers"), *entry;
    int64_t every;
    sw_code rc = sw_family_int(&every, config, "interleave_moe_layer_step", 1, 1, SW_LAYERS_MAX,
                               err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_dense_layer[i] = list || (i + 1) % every != 0;
    if (list && !cJSON_IsArray(list)) return SW_FAIL(err, SW_E_FORMAT, "moe_layers: not a list");
    cJSON_ArrayForEach(entry, list)
    {
        int64_t layer = 0;

        rc = sw_json_as_int(&layer, entry, 0, model->n_layers - 1, "moe_layers", err);
        if (rc != SW_OK) return rc;
        model->is_dense_layer[layer] = false;
    }
    return SW_OK;
}

/* Layers that turn see chunks; those that do not see all, with queries that grow. */
static sw_code read_llama4_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_norms = true, grows = true;
    sw_code rc;

    if ((rc = sw_family_int(&model->attention_chunk, config, "attention_chunk_size", 8192, 1,
                            (int64_t)1 << 31, err)) ||
        (rc = sw_family_unturned_layers(model, config, err)) ||
        (rc = sw_json_bool(&has_norms, config, "use_qk_norm", err)) ||
        (rc = sw_json_bool(&grows, config, "attn_temperature_tuning", err)) ||
        (rc = sw_family_int(&model->temper_every, config, "floor_scale", 8192, 1,
                            (int64_t)1 << 31, err)))
        return rc;
    model->temper_beta = 0.1;
    if ((rc = sw_family_real(&model->temper_beta, config, "attn_scale", FACTOR_MAX, err)))
        return rc;
    model->temper_shift = 1;
    for (int64_t i = 0; i < model->n_layers; i++) {
        const bool turns = model->kind[i] == SW_KIND_TURNED;

        model->is_window_layer[i] = turns;
        model->kind[i] = turns ? (has_norms ? SW_KIND_CHUNK_NORMED : SW_KIND_CHUNK)
                               : (grows ? SW_KIND_ALL_TEMPERED : SW_KIND_ALL);
    }
    return sw_json_member(config, "layer_types") ? sw_family_layer_types(model, config, 4, err)
                                                 : SW_OK;
}

sw_code sw_family_read_llama4(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->is_rope_paired = true;
    model->router = SW_ROUTER_INPUT;
    model->moe_intermediate = model->shared_intermediate = model->intermediate;
    if ((rc = sw_family_attention_bias(model, config, err)) ||
        (rc = sw_json_int(&model->intermediate, config, "intermediate_size_mlp", 1,
                          EXPERT_WIDTH_MAX, err)) ||
        (rc = sw_family_experts(model, config, 16, 1, err)) ||
        (rc = read_moe_layers(model, config, err)))
        return rc;
    return read_llama4_layers(model, config, err);
}
