/* families_parallel.c - see families.h: decoders with layer norms, some with attention and MLP
 * beside each other.
 */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define FACTOR_MAX 1e6
#define HEADS_MAX 4096

sw_code sw_family_read_cohere2(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t every = 4;
    sw_code rc;

    model->is_rope_paired = true;
    model->has_bare_layer_norms = true;
    model->logits_scale = 0.0625;
    if ((rc = sw_family_attention_bias(model, config, err)) ||
        (rc = sw_family_positive(&model->logits_scale, config, "logit_scale", FACTOR_MAX, err)) ||
        (rc = sw_family_insist(config, "use_qk_norm", false, err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 4096, err)) ||
        (rc = sw_json_int(&every, config, "sliding_window_pattern", 1, SW_LAYERS_MAX, err)) ||
        (rc = sw_family_layer_types(model, config, every, err)))
        return rc;
    sw_family_turn_in_windows(model);
    return SW_OK;
}

sw_code sw_family_read_starcoder2(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_bias = true;
    sw_code rc;

    if ((rc = sw_json_bool(&has_bias, config, "use_bias", err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 0, err)))
        return rc;
    model->has_qkv_bias = model->has_o_bias = model->has_mlp_bias = has_bias;
    sw_family_window_everywhere(model);
    return SW_OK;
}

sw_code sw_family_read_stablelm(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_parallel = false, has_norms = false;
    sw_code rc;

    if ((rc = sw_json_bool(&model->has_qkv_bias, config, "use_qkv_bias", err)) ||
        (rc = sw_json_bool(&is_parallel, config, "use_parallel_residual", err)) ||
        (rc = sw_json_bool(&has_norms, config, "qk_layernorm", err)))
        return rc;
    sw_family_kind_everywhere(model, (is_parallel ? SW_KIND_PARALLEL : SW_KIND_SERIAL) +
                                         (has_norms ? SW_KIND_WITH_HEAD_NORMS : 0));
    return SW_OK;
}

sw_code sw_family_read_gpt_neox(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_parallel = true, has_bias = true;
    sw_code rc;

    if ((rc = sw_json_bool(&is_parallel, config, "use_parallel_residual", err)) ||
        (rc = sw_json_bool(&has_bias, config, "attention_bias", err)))
        return rc;
    model->has_qkv_bias = model->has_o_bias = has_bias;
    model->has_mlp_bias = true;
    sw_family_kind_everywhere(model, is_parallel ? SW_KIND_PARALLEL : SW_KIND_SERIAL);
    return SW_OK;
}

static sw_code read_falcon_heads(sw_model *model, const cJSON *config, bool is_new, sw_err *err)
{
    bool shares_keys = true;
    int64_t n_kv = model->n_heads;
    sw_code rc;

    if ((rc = sw_json_bool(&shares_keys, config, "multi_query", err)) ||
        (rc = sw_json_int(&n_kv, config, "num_kv_heads", 1, HEADS_MAX, err)) ||
        (rc = sw_json_int(&n_kv, config, "n_head_kv", 1, HEADS_MAX, err)))
        return rc;
    model->n_kv_heads = is_new ? n_kv : shares_keys ? 1 : model->n_heads;
    if (model->n_heads % model->n_kv_heads)
        return SW_FAIL(err, SW_E_FORMAT, "num_kv_heads: %lld does not divide the %lld heads",
                       (long long)model->n_kv_heads, (long long)model->n_heads);
    return SW_OK;
}

sw_code sw_family_read_falcon(sw_model *model, const cJSON *config, sw_err *err)
{
    bool is_new = false, is_parallel = true, has_bias = false;
    int64_t n_norms;
    sw_code rc;

    if ((rc = sw_family_insist(config, "alibi", false, err)) ||
        (rc = sw_json_bool(&is_new, config, "new_decoder_architecture", err)) ||
        (rc = sw_json_bool(&is_parallel, config, "parallel_attn", err)) ||
        (rc = sw_json_bool(&has_bias, config, "bias", err)) ||
        (rc = sw_family_int(&n_norms, config, "num_ln_in_parallel_attn", is_new ? 2 : 1, 1, 2,
                            err)) ||
        (rc = read_falcon_heads(model, config, is_new, err)))
        return rc;
    model->has_qkv_bias = model->has_o_bias = model->has_mlp_bias = has_bias;
    sw_family_kind_everywhere(model, is_new && n_norms == 2       ? SW_KIND_PARALLEL_TWO_NORMS
                                     : is_new || is_parallel ? SW_KIND_PARALLEL
                                                             : SW_KIND_SERIAL);
    return SW_OK;
}

sw_code sw_family_read_bloom(sw_model *model, const cJSON *config, sw_err *err)
{
    model->has_qkv_bias = model->has_o_bias = model->has_mlp_bias = true;
    model->has_alibi = model->has_embed_norm = true;
    return sw_family_insist(config, "apply_residual_connection_post_layernorm", false, err);
}
