/* families_kimi.c - see families.h: Kimi Linear, delta attention and latent attention by turns. */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/families/families_hybrid.h"
#include "formats/model/programs.h"

#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define RANK_MAX ((int64_t)1 << 20)
#define WIDTH_MAX ((int64_t)1 << 22)
#define SHARED_MAX 64
#define TAPS_MAX 16 /* SW_CONV_TAPS_MAX of the engine */

/* Published configs count layers from 1. */
static sw_code read_counted(sw_model *model, const cJSON *linear, sw_err *err)
{
    static const char *const keys[] = {"kda_layers", "full_attn_layers"};
    static const uint8_t kinds[] = {SW_KIND_RECURRENT, SW_KIND_ATTENTION};
    bool is_named[SW_LAYERS_MAX] = {false};
    sw_code rc;

    for (int i = 0; i < 2; i++) {
        const cJSON *list = sw_json_member(linear, keys[i]), *entry;

        if (!cJSON_IsArray(list))
            return SW_FAIL(err, SW_E_FORMAT, "linear_attn_config.%s: not a list", keys[i]);
        cJSON_ArrayForEach(entry, list)
        {
            int64_t layer = 0;

            rc = sw_json_as_int(&layer, entry, 1, model->n_layers, keys[i], err);
            if (rc != SW_OK) return rc;
            model->kind[layer - 1] = kinds[i];
            is_named[layer - 1] = true;
        }
    }
    for (int64_t i = 0; i < model->n_layers; i++)
        if (!is_named[i])
            return SW_FAIL(err, SW_E_FORMAT, "linear_attn_config: layer %lld is in neither "
                           "kda_layers nor full_attn_layers", (long long)i + 1);
    return SW_OK;
}

static sw_code read_delta(sw_model *model, const cJSON *config, sw_err *err)
{
    static const sw_layer_word words[] = {{"linear_attention", SW_KIND_RECURRENT},
                                          {"full_attention", SW_KIND_ATTENTION}};
    const cJSON *linear = sw_json_member(config, "linear_attn_config");
    const bool is_nested = linear != NULL;
    sw_mixer *x = &model->mixer;
    const sw_hybrid_size sizes[] = {
        {&x->n_heads, is_nested ? "num_heads" : "linear_num_heads", 32, HEADS_MAX},
        {&x->d_head, is_nested ? "head_dim" : "linear_head_dim", 128, HEAD_DIM_MAX},
        {&x->n_taps, is_nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 4, TAPS_MAX},
    };
    sw_code rc = sw_hybrid_sizes(sizes, 3, is_nested ? linear : config, err);

    if (rc != SW_OK) return rc;
    x->kind = SW_MIXER_KIMI_DELTA;
    x->n_groups = x->n_heads;
    x->d_state = x->rank = x->d_head;
    x->has_norm = true;
    if ((rc = is_nested ? read_counted(model, linear, err)
                        : sw_hybrid_words(model, config, "layer_types", words, 2, err)) != SW_OK)
        return rc;
    model->other_sizes[0] = (sw_sizes){.n_heads = x->n_heads, .n_kv_heads = x->n_heads,
                                       .head_dim = x->d_head, .v_head_dim = x->d_head,
                                       .intermediate = model->intermediate};
    for (int64_t i = 0; i < model->n_layers; i++)
        model->sizes_of[i] = model->kind[i] == SW_KIND_RECURRENT;
    return SW_OK;
}

/* Keys and values from one latent vector; nothing turns, and a part of the keys is common. */
static sw_code read_latent(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t plain = 0;
    const sw_hybrid_size sizes[] = {
        {&model->kv_rank, "kv_lora_rank", 512, RANK_MAX},
        {&plain, "qk_nope_head_dim", 128, HEAD_DIM_MAX},
        {&model->rope_dim, "qk_rope_head_dim", 64, HEAD_DIM_MAX},
        {&model->v_head_dim, "v_head_dim", 128, HEAD_DIM_MAX},
    };
    sw_code rc;

    if (sw_json_member(config, "q_lora_rank"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "q_lora_rank: only null is supported");
    if ((rc = sw_family_insist(config, "mla_use_nope", true, err)) != SW_OK ||
        (rc = sw_hybrid_sizes(sizes, 4, config, err)) != SW_OK)
        return rc;
    model->head_dim = plain + model->rope_dim;
    model->n_kv_heads = model->n_heads;
    model->rank_norm_eps = 1e-6; /* whatever rms_norm_eps says */
    model->attention_scale = 1.0 / sqrt((double)model->head_dim);
    return SW_OK;
}

static sw_code read_dense_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "mlp_layer_types"), *type;
    int64_t n_dense = 1, every = 1, layer = 0;
    sw_code rc;

    if (types && (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != model->n_layers))
        return SW_FAIL(err, SW_E_FORMAT, "mlp_layer_types: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    cJSON_ArrayForEach(type, types)
        model->is_dense_layer[layer++] = cJSON_IsString(type) &&
                                         !strcmp(type->valuestring, "dense");
    if (types) return SW_OK;
    if ((rc = sw_json_int(&n_dense, config, "first_k_dense_replace", 0, SW_LAYERS_MAX, err)) ||
        (rc = sw_json_int(&every, config, "moe_layer_freq", 1, 1, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < n_dense && i < model->n_layers; i++) model->is_dense_layer[i] = true;
    return SW_OK;
}

static sw_code read_experts(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t n_shared = 1;
    sw_code rc;

    model->router = SW_ROUTER_SIGMOID;
    model->norm_topk = true;
    if ((rc = sw_family_experts(model, config, 256, 1, err)) != SW_OK ||
        (rc = sw_json_int(&model->n_experts_used, config, "num_experts_per_token", 1,
                          model->n_experts, err)) != SW_OK ||
        (rc = sw_json_int(&model->n_expert_groups, config, "num_expert_group", 1,
                          model->n_experts, err)) != SW_OK ||
        (rc = sw_json_int(&model->n_groups_used, config, "topk_group", 1, model->n_expert_groups,
                          err)) != SW_OK ||
        (rc = sw_json_bool(&model->norm_topk, config, "moe_renormalize", err)) != SW_OK ||
        (rc = sw_json_int(&model->moe_intermediate, config, "moe_intermediate_size", 1, WIDTH_MAX,
                          err)) != SW_OK ||
        (rc = sw_json_int(&n_shared, config, "num_shared_experts", 1, SHARED_MAX, err)) != SW_OK ||
        (rc = sw_family_positive(&model->route_scale, config, "routed_scaling_factor", 1e6, err)))
        return rc;
    if (!model->moe_intermediate)
        return SW_FAIL(err, SW_E_FORMAT, "moe_intermediate_size: missing");
    if ((rc = sw_hybrid_check_groups(model, "num_expert_group", err)) != SW_OK) return rc;
    model->shared_intermediate = n_shared * model->moe_intermediate;
    return read_dense_layers(model, config, err);
}

sw_code sw_family_read_kimi_linear(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = read_latent(model, config, err)) != SW_OK ||
        (rc = read_delta(model, config, err)) != SW_OK)
        return rc;
    return read_experts(model, config, err);
}
