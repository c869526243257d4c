/* families_hybrid.c - see families.h: decoders with recurrent mixers (mixer.h). */
#include "formats/model/families/families_hybrid.h"

#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define WIDTH_MAX ((int64_t)1 << 22)
#define TAPS_MAX 16 /* SW_CONV_TAPS_MAX of the engine */

sw_code sw_hybrid_words(sw_model *model, const cJSON *config, const char *key,
                        const sw_layer_word *words, int n_words, sw_err *err)
{
    const cJSON *types = sw_json_member(config, key), *type;
    int64_t layer = 0;

    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "%s: not a list of num_hidden_layers = %lld", key,
                       (long long)model->n_layers);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        int i = 0;

        while (i < n_words && strcmp(words[i].word, text)) i++;
        if (i == n_words)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: \"%.60s\" of layer %lld; %s has no such "
                           "layers", key, text, (long long)layer, model->arch->name);
        model->kind[layer++] = words[i].kind;
    }
    return SW_OK;
}

sw_code sw_hybrid_check_heads(const sw_model *model, const char *heads_key, const char *groups_key,
                              sw_err *err)
{
    const sw_mixer *x = &model->mixer;

    if (x->n_heads % x->n_groups == 0) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: %lld does not divide %s = %lld", groups_key,
                   (long long)x->n_groups, heads_key, (long long)x->n_heads);
}

sw_code sw_hybrid_sizes(const sw_hybrid_size *sizes, int n, const cJSON *config, sw_err *err)
{
    for (int i = 0; i < n; i++) {
        sw_code rc;

        *sizes[i].out = sizes[i].when_absent;
        rc = sw_json_int(sizes[i].out, config, sizes[i].key, 1, sizes[i].max, err);
        if (rc != SW_OK) return rc;
        if (!*sizes[i].out) return SW_FAIL(err, SW_E_FORMAT, "%s: missing", sizes[i].key);
    }
    return SW_OK;
}

sw_code sw_hybrid_check_groups(const sw_model *model, const char *key, sw_err *err)
{
    const int64_t n = model->n_expert_groups, size = model->n_experts / n;

    if (model->n_experts % n == 0 && (n == 1 || size > 1) &&
        model->n_experts_used <= model->n_groups_used * size)
        return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: %lld groups of %lld experts, of which %lld hold the %lld "
                   "of a token; groups must be equal, of 2 or more", key, (long long)n,
                   (long long)model->n_experts, (long long)model->n_groups_used,
                   (long long)model->n_experts_used);
}

static const sw_layer_word qwen_words[] = {
    {"linear_attention", SW_KIND_RECURRENT}, {"full_attention", SW_KIND_ATTENTION}};

/* layer_types, or every full_attention_interval-th layer has attention. */
static sw_code read_qwen_kinds(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t interval = 4;
    sw_code rc;

    if (sw_json_member(config, "layer_types"))
        return sw_hybrid_words(model, config, "layer_types", qwen_words, 2, err);
    rc = sw_json_int(&interval, config, "full_attention_interval", 1, SW_LAYERS_MAX, err);
    for (int64_t i = 0; i < model->n_layers && rc == SW_OK; i++)
        model->kind[i] = (i + 1) % interval ? SW_KIND_RECURRENT : SW_KIND_ATTENTION;
    return rc;
}

static sw_code read_delta(sw_model *model, const cJSON *config, sw_mixer_kind kind, sw_err *err)
{
    sw_mixer *x = &model->mixer;
    const sw_hybrid_size sizes[] = {
        {&x->n_heads, "linear_num_value_heads", 32, HEADS_MAX},
        {&x->n_groups, "linear_num_key_heads", 16, HEADS_MAX},
        {&x->d_head, "linear_value_head_dim", 128, HEAD_DIM_MAX},
        {&x->d_state, "linear_key_head_dim", 128, HEAD_DIM_MAX},
        {&x->n_taps, "linear_conv_kernel_dim", 4, TAPS_MAX},
    };
    sw_code rc;

    x->kind = kind;
    x->has_norm = true;
    if ((rc = sw_hybrid_sizes(sizes, 5, config, err)) != SW_OK) return rc;
    return sw_hybrid_check_heads(model, "linear_num_value_heads", "linear_num_key_heads", err);
}

/* What Qwen3-Next and Qwen 3.5 share: norms less one, gates on attention, three layers in four
 * with a gated delta net. */
static sw_code read_qwen_hybrid(sw_model *model, const cJSON *config, sw_mixer_kind kind,
                                sw_err *err)
{
    sw_code rc;

    model->norm_offset = 1.0;
    model->has_query_gate = true;
    if (!sw_json_member(config, "partial_rotary_factor") &&
        !sw_json_member(sw_json_member(config, "rope_parameters"), "partial_rotary_factor"))
        model->rope_dim = model->head_dim / 4;
    if ((rc = sw_family_attention_bias(model, config, err)) != SW_OK ||
        (rc = sw_family_insist(config, "attn_output_gate", true, err)) != SW_OK ||
        (rc = read_delta(model, config, kind, err)) != SW_OK)
        return rc;
    return read_qwen_kinds(model, config, err);
}

sw_code sw_family_read_qwen3_5(sw_model *model, const cJSON *config, sw_err *err)
{
    return read_qwen_hybrid(model, config, SW_MIXER_DELTA, err);
}

static sw_code read_gated_experts(sw_model *model, const cJSON *config, int64_t n_default,
                                  int64_t used_default, sw_err *err)
{
    sw_code rc;

    model->norm_topk = true;
    if ((rc = sw_family_experts(model, config, n_default, used_default, err)) != SW_OK) return rc;
    rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 512, 1,
                       WIDTH_MAX, err);
    return rc ? rc : sw_family_int(&model->shared_intermediate, config,
                                   "shared_expert_intermediate_size", 512, 1, WIDTH_MAX, err);
}

sw_code sw_family_read_qwen3_5_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = read_qwen_hybrid(model, config, SW_MIXER_DELTA, err);

    return rc ? rc : read_gated_experts(model, config, 256, 8, err);
}

sw_code sw_family_read_qwen3_next(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = read_qwen_hybrid(model, config, SW_MIXER_DELTA_GROUPED, err)) != SW_OK ||
        (rc = read_gated_experts(model, config, 512, 10, err)) != SW_OK ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) != SW_OK ||
        (rc = sw_json_int(&model->sparse_step, config, "decoder_sparse_step", 1,
                          (int64_t)1 << 31, err)) != SW_OK)
        return rc;
    return sw_family_dense_layers(model, config, err);
}

static const sw_layer_word lfm2_words[] = {
    {"conv", SW_KIND_RECURRENT}, {"full_attention", SW_KIND_ATTENTION}};

sw_code sw_hybrid_attention_list(sw_model *model, const cJSON *config, const char *key,
                                 sw_err *err)
{
    const cJSON *list = sw_json_member(config, key), *entry;

    if (!cJSON_IsArray(list)) return SW_FAIL(err, SW_E_FORMAT, "%s: not a list of layers", key);
    for (int64_t i = 0; i < model->n_layers; i++) model->kind[i] = SW_KIND_RECURRENT;
    cJSON_ArrayForEach(entry, list)
    {
        int64_t layer = 0;
        sw_code rc = sw_json_as_int(&layer, entry, 0, model->n_layers - 1, key, err);

        if (rc != SW_OK) return rc;
        model->kind[layer] = SW_KIND_ATTENTION;
    }
    return SW_OK;
}

static sw_code read_short_conv(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_mixer *x = &model->mixer;
    const sw_hybrid_size taps[] = {{&x->n_taps, "conv_L_cache", 3, TAPS_MAX}};
    sw_code rc;

    x->kind = SW_MIXER_SHORT_CONV;
    x->n_heads = 1;
    x->d_head = model->hidden;
    if ((rc = sw_hybrid_sizes(taps, 1, config, err)) != SW_OK ||
        (rc = sw_json_bool(&x->has_bias, config, "conv_bias", err)) != SW_OK)
        return rc;
    x->has_conv_bias = x->has_bias;
    if (sw_json_member(config, "layer_types"))
        return sw_hybrid_words(model, config, "layer_types", lfm2_words, 2, err);
    return sw_hybrid_attention_list(model, config, "full_attn_idxs", err);
}

/* The width of the MLP is that of the config, or two thirds of it times a factor, rounded up. */
sw_code sw_family_read_lfm2(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_adjusted = true;
    double factor = 1.0;
    int64_t multiple = 256, width = model->intermediate;
    sw_code rc;

    if ((rc = read_short_conv(model, config, err)) != SW_OK ||
        (rc = sw_json_int(&width, config, "block_ff_dim", 1, WIDTH_MAX, err)) ||
        (rc = sw_json_bool(&is_adjusted, config, "block_auto_adjust_ff_dim", err)) != SW_OK ||
        (rc = sw_family_positive(&factor, config, "block_ffn_dim_multiplier", 64.0, err)) ||
        (rc = sw_json_int(&multiple, config, "block_multiple_of", 1, WIDTH_MAX, err)))
        return rc;
    if (is_adjusted) {
        width = (int64_t)(factor * (double)(2 * width / 3));
        width = (width + multiple - 1) / multiple * multiple;
    }
    model->intermediate = width;
    return SW_OK;
}

sw_code sw_family_read_lfm2_moe(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t n_dense = 2;
    sw_code rc;

    model->router = SW_ROUTER_SIGMOID;
    model->norm_topk = true;
    model->route_floor = 1e-6; /* added to the sum, which is far above it */
    if ((rc = read_short_conv(model, config, err)) != SW_OK ||
        (rc = sw_family_insist(config, "use_expert_bias", true, err)) != SW_OK ||
        (rc = sw_family_experts(model, config, 32, 4, err)) != SW_OK ||
        (rc = sw_json_int(&model->moe_intermediate, config, "moe_intermediate_size", 1,
                          WIDTH_MAX, err)) != SW_OK ||
        (rc = sw_json_int(&n_dense, config, "num_dense_layers", 0, SW_LAYERS_MAX, err)) ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) != SW_OK)
        return rc;
    if (!model->moe_intermediate)
        return SW_FAIL(err, SW_E_FORMAT, "moe_intermediate_size: missing");
    for (int64_t i = 0; i < n_dense && i < model->n_layers; i++) model->is_dense_layer[i] = true;
    return sw_family_positive(&model->route_scale, config, "routed_scaling_factor", 1e6, err);
}
