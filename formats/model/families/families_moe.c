/* families_moe.c - see families.h: sparse decoders with more than a router and its experts. */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define RANK_MAX ((int64_t)1 << 20)
#define HEAD_PART_MAX 2048 /* two parts make a head */
#define EXPERT_WIDTH_MAX ((int64_t)1 << 22)
#define SHARED_MAX 64
#define LIMIT_MAX 1e6
#define ROUTE_SCALE_MAX 1e6

sw_code sw_family_read_gpt_oss(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_bias = true;
    sw_code rc;

    if ((rc = sw_json_bool(&has_bias, config, "attention_bias", err)) != SW_OK) return rc;
    model->has_qkv_bias = model->has_o_bias = has_bias;
    model->has_mlp_bias = model->has_router_bias = true;
    model->norm_topk = true; /* a softmax over the chosen is one over all, renormalized */
    model->act = SW_MLP_SWIGLU_CLAMPED;
    model->act_limit = 7.0;
    model->moe_intermediate = model->intermediate;
    if ((rc = sw_family_positive(&model->act_limit, config, "swiglu_limit", LIMIT_MAX, err)) ||
        (rc = sw_family_experts(model, config, 128, 4, err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 128, err)))
        return rc;
    return sw_family_layer_types(model, config, 2, err);
}

sw_code sw_family_int(int64_t *out, const cJSON *config, const char *key, int64_t when_absent,
                      int64_t min, int64_t max, sw_err *err)
{
    *out = when_absent;
    return sw_json_int(out, config, key, min, max, err);
}

/* Heads of two parts, one of them rotated; keys and values from one latent vector. */
static sw_code read_latent(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t plain;
    sw_code rc;

    /* a present null means that queries have no rank: one linear makes them */
    model->q_rank = cJSON_GetObjectItemCaseSensitive(config, "q_lora_rank") ? 0 : 1536;
    if ((rc = sw_json_int(&model->q_rank, config, "q_lora_rank", 1, RANK_MAX, err)) ||
        (rc = sw_family_int(&model->kv_rank, config, "kv_lora_rank", 512, 1, RANK_MAX, err)) ||
        (rc = sw_family_int(&plain, config, "qk_nope_head_dim", 128, 1, HEAD_PART_MAX, err)) ||
        (rc = sw_family_int(&model->rope_dim, config, "qk_rope_head_dim", 64, 2, HEAD_PART_MAX,
                            err)) ||
        (rc = sw_family_int(&model->v_head_dim, config, "v_head_dim", 128, 1, HEAD_PART_MAX,
                            err)))
        return rc;
    model->head_dim = plain + model->rope_dim;
    if (model->head_dim % 2 || model->rope_dim % 2)
        return SW_FAIL(err, SW_E_FORMAT, "qk_nope_head_dim, qk_rope_head_dim: %lld, %lld, must "
                       "be even", (long long)plain, (long long)model->rope_dim);
    memset(model->kind, model->q_rank ? SW_KIND_LATENT : SW_KIND_LATENT_KV, sizeof model->kind);
    model->n_kv_heads = model->n_heads;
    model->rank_norm_eps = 1e-6; /* whatever rms_norm_eps says */
    model->is_rope_paired = true;
    return sw_json_bool(&model->is_rope_paired, config, "rope_interleave", err);
}

/* yarn sharpens the scores by the square of what it does to cosines and sines elsewhere. */
static sw_code set_scale(sw_model *model, sw_err *err)
{
    const sw_rope *rope = &model->rope;
    double sharpen = 1.0;

    if (rope->kind == SW_ROPE_DYNAMIC || rope->kind == SW_ROPE_LONGROPE ||
        model->has_window_rope)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "rope_type: dynamic, longrope, or one per layer "
                       "type, is not supported with latent attention");
    if (rope->kind != SW_ROPE_DEFAULT && rope->mscale_all_dim > 0.0 && rope->factor > 1.0)
        sharpen = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1.0;
    model->attention_scale = sharpen * sharpen / sqrt((double)model->head_dim);
    return SW_OK;
}

static sw_code check_word(const cJSON *config, const char *key, const char *want, sw_err *err)
{
    const char *have = want;
    sw_code rc = sw_json_text(&have, config, key, err);

    if (rc == SW_OK && strcmp(have, want))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: \"%.60s\" is not supported; there is %s", key,
                       have, want);
    return rc;
}

static sw_code read_groups(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t *n = &model->n_expert_groups, *n_used = &model->n_groups_used, size;
    sw_code rc;

    if ((rc = sw_family_int(n, config, "n_group", 8, 1, model->n_experts, err)) ||
        (rc = sw_family_int(n_used, config, "topk_group", 4, 1, SW_EXPERTS_MAX, err)))
        return rc;
    size = model->n_experts / *n;
    if (model->n_experts % *n || (*n > 1 && size < 2))
        return SW_FAIL(err, SW_E_FORMAT, "n_group: %lld groups of %lld experts; groups must be "
                       "equal, of 2 or more", (long long)*n, (long long)model->n_experts);
    if (*n_used > *n || model->n_experts_used > *n_used * size)
        return SW_FAIL(err, SW_E_FORMAT, "topk_group: %lld of %lld groups do not hold the %lld "
                       "experts of num_experts_per_tok", (long long)*n_used, (long long)*n,
                       (long long)model->n_experts_used);
    return SW_OK;
}

sw_code sw_family_sigmoid_router(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->router = SW_ROUTER_SIGMOID;
    model->norm_topk = true;
    model->route_scale = 2.5;
    if ((rc = check_word(config, "scoring_func", "sigmoid", err)) ||
        (rc = check_word(config, "topk_method", "noaux_tc", err)) ||
        (rc = sw_family_experts(model, config, 256, 8, err)) ||
        (rc = read_groups(model, config, err)) ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)))
        return rc;
    return sw_family_positive(&model->route_scale, config, "routed_scaling_factor",
                              ROUTE_SCALE_MAX, err);
}

/* "dense" or "sparse" for each layer, where the config has the list. */
static sw_code read_mlp_types(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "mlp_layer_types"), *type;
    int64_t layer = 0;

    if (!types) return SW_OK;
    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "mlp_layer_types: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";

        if (strcmp(text, "dense") && strcmp(text, "sparse"))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "mlp_layer_types: \"%.60s\"; there are dense, "
                           "sparse", text);
        model->is_dense_layer[layer++] = !strcmp(text, "dense");
    }
    return SW_OK;
}

sw_code sw_family_shared_expert(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t n_shared, n_dense, every;
    sw_code rc;

    if ((rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 2048, 1,
                            EXPERT_WIDTH_MAX, err)) ||
        (rc = sw_family_int(&n_shared, config, "n_shared_experts", 1, 1, SHARED_MAX, err)) ||
        (rc = sw_family_int(&n_dense, config, "first_k_dense_replace", 3, 0, SW_LAYERS_MAX,
                            err)) ||
        (rc = sw_family_int(&every, config, "moe_layer_freq", 1, 1, 1, err)))
        return rc;
    model->shared_intermediate = n_shared * model->moe_intermediate;
    for (int64_t i = 0; i < n_dense && i < model->n_layers; i++) model->is_dense_layer[i] = true;
    return read_mlp_types(model, config, err);
}

sw_code sw_family_read_deepseek_v3(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_insist(config, "attention_bias", false, err)) ||
        (rc = read_latent(model, config, err)) || (rc = set_scale(model, err)) ||
        (rc = sw_family_sigmoid_router(model, config, err)))
        return rc;
    if ((rc = sw_family_indexer(model, config, err)) != SW_OK) return rc;
    return sw_family_shared_expert(model, config, err);
}
