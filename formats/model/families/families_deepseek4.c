/* families_deepseek4.c - see families.h: DeepSeek-V4. */
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define RANK_MAX ((int64_t)1 << 20)
#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define STREAMS_MAX 16 /* of the engine's operations/hyper.c */
#define RATE_MAX ((int64_t)1 << 20)
#define TOP_K_MAX ((int64_t)1 << 24)
#define EXPERT_WIDTH_MAX ((int64_t)1 << 22)
#define SHARED_MAX 64
#define LIMIT_MAX 1e6
#define N_RATES 2

static const char *const rate_names[N_RATES] = {"compressed_sparse_attention",
                                                "heavily_compressed_attention"};

static sw_code set_kind(sw_model *model, int64_t layer, int kind)
{
    model->kind[layer] = (uint8_t)kind;
    model->is_window_layer[layer] = kind == SW_KIND_NEAR;
    return SW_OK;
}

/* How many tokens a key stands for, as published configs have it for every layer: none, 4, or
 * more. */
static sw_code read_ratios(sw_model *model, const cJSON *ratios, sw_err *err)
{
    sw_code rc;

    if (!cJSON_IsArray(ratios) || cJSON_GetArraySize(ratios) < model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "compress_ratios: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    for (int64_t l = 0; l < model->n_layers; l++) {
        int64_t ratio = 0, *known;

        if ((rc = sw_json_as_int(&ratio, cJSON_GetArrayItem(ratios, (int)l), 0, RATE_MAX,
                                 "compress_ratios", err)) != SW_OK)
            return rc;
        (void)set_kind(model, l, !ratio ? SW_KIND_NEAR : ratio <= 4 ? SW_KIND_FAR_CHOSEN
                                                                    : SW_KIND_FAR);
        if (!ratio) continue;
        known = &model->compress_rates[ratio <= 4 ? 0 : 1];
        if (*known && *known != ratio)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "compress_ratios: %lld and %lld; there is one of "
                           "up to 4 and one above", (long long)*known, (long long)ratio);
        *known = ratio;
    }
    return SW_OK;
}

static sw_code read_types(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "layer_types");
    const cJSON *rates = sw_json_member(config, "compress_rates");
    sw_code rc;

    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "layer_types: not a list of num_hidden_layers = %lld, and "
                       "no compress_ratios either", (long long)model->n_layers);
    for (int i = 0; i < N_RATES; i++)
        if ((rc = sw_family_int(&model->compress_rates[i], rates, rate_names[i], i ? 128 : 4, 1,
                                RATE_MAX, err)) != SW_OK)
            return rc;
    for (int64_t l = 0; l < model->n_layers; l++) {
        const cJSON *type = cJSON_GetArrayItem(types, (int)l);
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        const int kind = !strcmp(text, "sliding_attention") ? SW_KIND_NEAR
                         : !strcmp(text, rate_names[0])     ? SW_KIND_FAR_CHOSEN
                                                            : SW_KIND_FAR;

        if (kind == SW_KIND_FAR && strcmp(text, rate_names[1]))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "layer_types: \"%.60s\"; there are "
                           "sliding_attention, %s, %s", text, rate_names[0], rate_names[1]);
        (void)set_kind(model, l, kind);
    }
    return SW_OK;
}

/* Layers whose experts are told by the token's id: the first ones, or those of a list. */
static sw_code read_routing(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "mlp_layer_types");
    int64_t n_first;
    sw_code rc = sw_family_int(&n_first, config, "num_hash_layers", 0, 0, SW_LAYERS_MAX, err);

    if (rc != SW_OK) return rc;
    if (types && (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != model->n_layers))
        return SW_FAIL(err, SW_E_FORMAT, "mlp_layer_types: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    for (int64_t l = 0; l < model->n_layers; l++) {
        const cJSON *type = cJSON_GetArrayItem(types, (int)l);
        const char *text = cJSON_IsString(type) ? type->valuestring : l < n_first ? "hash_moe"
                                                                                  : "moe";

        if (strcmp(text, "hash_moe") && strcmp(text, "moe"))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "mlp_layer_types: \"%.60s\"; there are hash_moe, "
                           "moe", text);
        if (strcmp(text, "hash_moe")) continue;
        model->kind[l] += SW_KIND_BY_TOKEN;
        model->keeps_token_ids = true;
    }
    return SW_OK;
}

static sw_code read_experts(sw_model *model, const cJSON *config, sw_err *err)
{
    const char *scores = "sqrtsoftplus";
    int64_t n_shared;
    double limit = 0.0;
    sw_code rc;

    model->router = SW_ROUTER_SQRT_SOFTPLUS;
    model->norm_topk = true;
    model->route_scale = 1.5;
    if ((rc = sw_json_text(&scores, config, "scoring_func", err)) ||
        (rc = sw_family_experts(model, config, 256, 6, err)) ||
        (rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 2048, 1,
                            EXPERT_WIDTH_MAX, err)) ||
        (rc = sw_family_int(&n_shared, config, "n_shared_experts", 1, 1, SHARED_MAX, err)) ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) ||
        (rc = sw_family_positive(&model->route_scale, config, "routed_scaling_factor", LIMIT_MAX,
                                 err)) ||
        (rc = sw_family_positive(&limit, config, "swiglu_limit", LIMIT_MAX, err)))
        return rc;
    if (strcmp(scores, "sqrtsoftplus"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "scoring_func: \"%.60s\" is not supported; there is "
                       "sqrtsoftplus", scores);
    model->shared_intermediate = n_shared * model->moe_intermediate;
    if (limit > 0.0) {
        model->act = SW_MLP_SILU_CLAMPED;
        model->act_limit = limit;
    }
    return SW_OK;
}

static sw_code read_streams(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->hyper_eps = 1e-6;
    if ((rc = sw_family_int(&model->n_copies, config, "hc_mult", 4, 2, STREAMS_MAX, err)) ||
        (rc = sw_family_int(&model->hyper_rounds, config, "hc_sinkhorn_iters", 20, 1, 1000,
                            err)) ||
        (rc = sw_family_positive(&model->hyper_eps, config, "hc_eps", 1.0, err)))
        return rc;
    if (model->n_copies * (model->n_copies + 1) > model->hidden)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "hc_mult: %lld streams of %lld channels",
                       (long long)model->n_copies, (long long)model->hidden);
    return SW_OK;
}

/* Layers with compressed keys have a base of their own, and the stretch that older configs name;
 * it leaves the size of cosines alone. */
static sw_code read_bases(sw_model *model, const cJSON *config, sw_err *err)
{
    double theta = 160000.0;
    sw_code rc;

    model->rope.attention_factor = 1.0;
    if (model->has_window_rope) return SW_OK;
    if ((rc = sw_family_positive(&theta, config, "compress_rope_theta", 1e30, err)) != SW_OK)
        return rc;
    if (theta <= 1.0) return SW_FAIL(err, SW_E_FORMAT, "compress_rope_theta: must be above 1");
    model->window_rope = model->rope;
    model->window_rope.kind = SW_ROPE_DEFAULT;
    model->has_window_rope = true;
    model->rope.theta = theta;
    return SW_OK;
}

static sw_code read_attention(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_indexer *x = &model->indexer;
    sw_code rc;

    if ((rc = sw_family_int(&model->q_rank, config, "q_lora_rank", 1024, 1, RANK_MAX, err)) ||
        (rc = sw_family_int(&model->rope_dim, config, "qk_rope_head_dim", 64, 2, model->head_dim,
                            err)) ||
        (rc = sw_family_int(&model->o_groups, config, "o_groups", 8, 1, model->n_heads, err)) ||
        (rc = sw_family_int(&model->o_rank, config, "o_lora_rank", 1024, 1, RANK_MAX, err)) ||
        (rc = sw_family_int(&x->top_k, config, "index_topk", 512, 1, TOP_K_MAX, err)) ||
        (rc = sw_family_int(&x->n_heads, config, "index_n_heads", 64, 1, HEADS_MAX, err)) ||
        (rc = sw_family_int(&x->head_dim, config, "index_head_dim", 128, 1, HEAD_DIM_MAX, err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 128, err)))
        return rc;
    if (model->n_kv_heads != 1 || model->n_heads % model->o_groups || model->rope_dim % 2 ||
        x->head_dim < model->rope_dim || model->sliding_window < 1)
        return SW_FAIL(err, SW_E_FORMAT, "num_key_value_heads, o_groups, qk_rope_head_dim, "
                       "index_head_dim, sliding_window: one head of keys, groups of equal size, "
                       "an even part that turns in both kinds of heads, and a window are needed");
    model->rank_norm_eps = model->norm_eps;
    model->is_rope_paired = model->is_rope_last = true;
    return read_bases(model, config, err);
}

sw_code sw_family_read_deepseek_v4(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *ratios = sw_json_member(config, "compress_ratios");
    sw_code rc;

    if ((rc = sw_family_insist(config, "attention_bias", false, err)) ||
        (rc = read_attention(model, config, err)) ||
        (rc = ratios ? read_ratios(model, ratios, err) : read_types(model, config, err)) ||
        (rc = read_routing(model, config, err)) || (rc = read_streams(model, config, err)))
        return rc;
    return read_experts(model, config, err);
}
