/* families_gemma4.c - see families.h: Gemma 4, whose layers differ in the size of their heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define HEAD_DIM_MAX (2 * SW_ROPE_PAIRS_MAX)
#define HEADS_MAX 4096
#define WIDTH_MAX ((int64_t)1 << 22)

/* What layers that see all tokens have instead of the sizes in the model. */
typedef struct global_sizes {
    int64_t head_dim, n_kv_heads;
} global_sizes;

static sw_code read_global(global_sizes *out, const sw_model *model, const cJSON *config,
                           sw_err *err)
{
    const bool has_layers = cJSON_IsObject(sw_json_member(config, "per_layer_config"));
    sw_code rc;

    *out = (global_sizes){has_layers ? model->head_dim : 512, model->n_kv_heads};
    rc = sw_json_int(&out->head_dim, config, "global_head_dim", 1, HEAD_DIM_MAX, err);
    return rc ? rc : sw_json_int(&out->n_kv_heads, config, "num_global_key_value_heads", 1,
                                 HEADS_MAX, err);
}

/* The sizes of one layer, by what its kind has and what the config says of it alone. */
static sw_code layer_sizes(sw_sizes *out, const sw_model *model, const cJSON *config,
                           const global_sizes *all, int64_t layer, sw_err *err)
{
    const cJSON *layers = sw_json_member(config, "per_layer_config"), *own;
    char number[24];
    sw_code rc;

    *out = sw_model_sizes(model, layer);
    if (!model->is_window_layer[layer]) {
        out->head_dim = all->head_dim;
        out->n_kv_heads = all->n_kv_heads;
    }
    (void)snprintf(number, sizeof number, "%lld", (long long)layer);
    own = cJSON_IsObject(layers) ? sw_json_member(layers, number) : NULL;
    if ((rc = sw_json_int(&out->head_dim, own, "head_dim", 1, HEAD_DIM_MAX, err)) ||
        (rc = sw_json_int(&out->n_kv_heads, own, "num_key_value_heads", 1, HEADS_MAX, err)))
        return rc;
    if (out->head_dim % 2 || out->head_dim > HEAD_DIM_MAX || out->n_heads % out->n_kv_heads)
        return SW_FAIL(err, SW_E_FORMAT, "layer %s: heads of %lld and %lld of keys; must be even, "
                       "at most %d, and divide the %lld heads", number, (long long)out->head_dim,
                       (long long)out->n_kv_heads, HEAD_DIM_MAX, (long long)out->n_heads);
    out->v_head_dim = out->rope_dim = out->head_dim;
    return SW_OK;
}

static sw_code use_sizes(sw_model *model, int64_t layer, const sw_sizes *sizes, sw_err *err)
{
    const sw_sizes common = sw_model_sizes(model, model->n_layers);
    int i = 0;

    if (!memcmp(sizes, &common, sizeof common)) return SW_OK;
    while (i < SW_SIZES_MAX && model->other_sizes[i].n_heads &&
           memcmp(&model->other_sizes[i], sizes, sizeof *sizes))
        i++;
    if (i == SW_SIZES_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "per_layer_config: more than %d sizes of layers",
                       SW_SIZES_MAX);
    model->other_sizes[i] = *sizes;
    model->sizes_of[layer] = (uint8_t)(i + 1);
    return SW_OK;
}

sw_code sw_family_share_keys(sw_model *model, int64_t n_shared, sw_err *err)
{
    const int64_t first = model->n_layers - n_shared;

    for (int64_t l = first; l < model->n_layers; l++) {
        int64_t source = first - 1;

        while (source >= 0 && model->is_window_layer[source] != model->is_window_layer[l]) source--;
        if (source < 0)
            return SW_FAIL(err, SW_E_FORMAT, "num_kv_shared_layers: %lld leaves layer %lld none of "
                           "its type to share with", (long long)n_shared, (long long)l);
        model->shares_kv[l] = (int16_t)(source + 1);
    }
    return SW_OK;
}

static sw_code read_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_wide = false;
    int64_t n_shared;
    global_sizes all;
    sw_code rc;

    if ((rc = sw_json_bool(&is_wide, config, "use_double_wide_mlp", err)) ||
        (rc = sw_family_int(&n_shared, config, "num_kv_shared_layers", 0, 0, model->n_layers - 1,
                            err)) ||
        (rc = read_global(&all, model, config, err)) ||
        (rc = sw_family_share_keys(model, n_shared, err)))
        return rc;
    for (int64_t l = 0; l < model->n_layers && rc == SW_OK; l++) {
        sw_sizes sizes;

        if ((rc = layer_sizes(&sizes, model, config, &all, l, err)) != SW_OK) return rc;
        if (is_wide && model->shares_kv[l]) sizes.intermediate *= 2;
        rc = use_sizes(model, l, &sizes, err);
    }
    return rc;
}

/* Both ropes count whole heads; how much of them turns is the rope's to say. */
static sw_code fit_ropes(sw_model *model, sw_err *err)
{
    int64_t full = model->n_layers;

    for (int64_t l = 0; l < model->n_layers; l++) {
        const int64_t dim = sw_model_sizes(model, l).head_dim;

        if (model->is_window_layer[l] && dim != model->head_dim)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "head_dim: window layers of several sizes");
        if (!model->is_window_layer[l] && full < model->n_layers &&
            dim != sw_model_sizes(model, full).head_dim)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "global_head_dim: differs between layers");
        if (!model->is_window_layer[l]) full = l;
    }
    model->rope.dim = sw_model_sizes(model, full).head_dim;
    model->window_rope.dim = model->head_dim;
    if (!model->has_window_rope && model->rope.dim != model->head_dim)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "rope_parameters: one rope for heads of two sizes");
    return SW_OK;
}

static sw_code read_mixture(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_sparse = false;
    sw_code rc = sw_json_bool(&is_sparse, config, "enable_moe_block", err);

    if (rc != SW_OK || !is_sparse) return rc;
    model->norm_topk = true;
    model->router_scale = 1.0 / sqrt((double)model->hidden);
    model->shared_intermediate = model->intermediate;
    rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 704, 1,
                       WIDTH_MAX, err);
    return rc ? rc : sw_family_experts(model, config, 128, 8, err);
}

static void choose_kinds(sw_model *model, bool has_keys_as_values)
{
    for (int64_t l = 0; l < model->n_layers; l++) {
        const int keys = model->shares_kv[l] ? SW_KIND_SHARED_KV
                         : has_keys_as_values && !model->is_window_layer[l] ? SW_KIND_K_AS_V
                                                                            : SW_KIND_OWN_V;

        model->kind[l] = (uint8_t)(keys + (model->side_inputs ? SW_KIND_WITH_SIDE : 0));
    }
}

/* "vision": tokens of pictures see each other both ways, and text does not. */
static sw_code check_direction(const cJSON *config, sw_err *err)
{
    const cJSON *member = sw_json_member(config, "use_bidirectional_attention");

    if (cJSON_IsString(member) && !strcmp(member->valuestring, "vision")) return SW_OK;
    return sw_family_insist(config, "use_bidirectional_attention", false, err);
}

sw_code sw_family_read_gemma4(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_keys_as_values = false;
    sw_code rc;

    model->embed_scale = (double)(float)sqrt((double)model->hidden);
    model->attention_scale = 1.0;
    if (model->rope_dim != model->head_dim && model->rope.kind != SW_ROPE_PROPORTIONAL)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "partial_rotary_factor: is supported with rope_type "
                       "proportional, and not with %s", sw_rope_kind_name(model->rope.kind));
    model->rope_dim = model->head_dim; /* whole heads count; see fit_ropes */
    if ((rc = check_direction(config, err)) ||
        (rc = sw_family_insist(config, "attention_bias", false, err)) ||
        (rc = sw_family_cap(&model->logits_cap, config, "final_logit_softcapping", 0.0, err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 512, err)) ||
        (rc = sw_family_layer_types(model, config, 6, err)) ||
        (rc = sw_json_bool(&has_keys_as_values, config, "attention_k_eq_v", err)) ||
        (rc = sw_json_int(&model->side_inputs, config, "hidden_size_per_layer_input", 0, WIDTH_MAX,
                          err)) ||
        (rc = read_layers(model, config, err)) || (rc = fit_ropes(model, err)) ||
        (rc = read_mixture(model, config, err)))
        return rc;
    choose_kinds(model, has_keys_as_values);
    return SW_OK;
}
