/* families_dense.c - see families.h: decoders with one MLP, each a few steps from Llama. */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define FACTOR_MAX 1e6

sw_code sw_family_real(double *out, const cJSON *config, const char *key, double max, sw_err *err)
{
    double value = *out;
    sw_code rc = sw_json_real(&value, config, key, err);

    if (rc != SW_OK) return rc;
    if (!(fabs(value) <= max))
        return SW_FAIL(err, SW_E_FORMAT, "%s: %g, must be within +-%g", key, value, max);
    *out = value;
    return SW_OK;
}

void sw_family_kind_everywhere(sw_model *model, int kind)
{
    memset(model->kind, kind, (size_t)model->n_layers);
}

sw_code sw_family_read_glm4(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_bias = false;
    sw_code rc = sw_json_bool(&has_bias, config, "attention_bias", err);

    model->has_qkv_bias = has_bias;
    model->is_rope_paired = true;
    return rc;
}

sw_code sw_family_read_olmo3(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_attention_bias(model, config, err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 4096, err)) ||
        (rc = sw_family_layer_types(model, config, 4, err)))
        return rc;
    /* Published configs have one rope object; window layers turn by its base alone. */
    if (model->has_window_rope || sw_json_member(config, "rope_parameters")) return SW_OK;
    model->has_window_rope = true;
    model->window_rope = (sw_rope){.kind = SW_ROPE_DEFAULT, .theta = model->rope.theta,
                                   .original_max_positions = model->max_positions};
    return SW_OK;
}

/* no_rope_layers has 1 where positions turn; without it every so many layers they do not. */
sw_code sw_family_unturned_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *list = sw_json_member(config, "no_rope_layers"), *entry;
    int64_t every, layer = 0;
    sw_code rc = sw_family_int(&every, config, "no_rope_layer_interval", 4, 1, SW_LAYERS_MAX, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < model->n_layers; i++)
        model->kind[i] = (i + 1) % every ? SW_KIND_TURNED : SW_KIND_UNTURNED;
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list)) return SW_OK;
    if (cJSON_GetArraySize(list) != model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "no_rope_layers: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    cJSON_ArrayForEach(entry, list)
    {
        int64_t turns = 0;

        if ((rc = sw_json_as_int(&turns, entry, 0, 1, "no_rope_layers", err)) != SW_OK) return rc;
        model->kind[layer++] = turns ? SW_KIND_TURNED : SW_KIND_UNTURNED;
    }
    return SW_OK;
}

sw_code sw_family_read_smollm3(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_attention_bias(model, config, err)) ||
        (rc = sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err)) ||
        (rc = sw_family_optional_window(model, config, err)) ||
        (rc = sw_family_layer_types(model, config, SW_LAYERS_MAX + 1, err)))
        return rc;
    return sw_family_unturned_layers(model, config, err);
}

sw_code sw_family_read_ernie4_5(sw_model *model, const cJSON *config, sw_err *err)
{
    bool has_bias = false;
    sw_code rc = sw_json_bool(&has_bias, config, "use_bias", err);

    model->has_qkv_bias = model->has_o_bias = model->has_mlp_bias = has_bias;
    model->is_rope_paired = true;
    return rc;
}

/* Window layers turn; the others do not, in models that have windows at all. */
static sw_code read_pattern(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *pattern = sw_json_member(config, "sliding_window_pattern");
    const char *letters = cJSON_IsString(pattern) ? pattern->valuestring : NULL;
    int64_t every = 4;
    sw_code rc;

    if (letters && !*letters)
        return SW_FAIL(err, SW_E_FORMAT, "sliding_window_pattern: is empty");
    if (!letters && (rc = sw_json_int(&every, config, "sliding_window_pattern", 1, SW_LAYERS_MAX,
                                      err)) != SW_OK)
        return rc;
    if (!letters || sw_json_member(config, "layer_types"))
        return sw_family_layer_types(model, config, every, err);
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_window_layer[i] = model->sliding_window > 0 && i + 1 < model->n_layers &&
                                    letters[(size_t)i % strlen(letters)] == 'L';
    return SW_OK;
}

void sw_family_turn_in_windows(sw_model *model)
{
    for (int64_t i = 0; i < model->n_layers; i++)
        model->kind[i] = model->is_window_layer[i] ? SW_KIND_TURNED : SW_KIND_UNTURNED;
}

sw_code sw_family_read_exaone4(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_window(&model->sliding_window, config, 4096, err)) ||
        (rc = read_pattern(model, config, err)))
        return rc;
    if (model->sliding_window) sw_family_turn_in_windows(model);
    return SW_OK;
}

sw_code sw_family_read_hunyuan(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = sw_family_attention_bias(model, config, err);

    return rc ? rc : sw_family_insist(config, "use_cla", false, err);
}

sw_code sw_family_read_seed_oss(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    model->has_qkv_bias = true;
    rc = sw_json_bool(&model->has_qkv_bias, config, "attention_bias", err);
    if (rc == SW_OK) rc = sw_json_bool(&model->has_o_bias, config, "attention_out_bias", err);
    return rc ? rc : sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err);
}

/* Factors on embeddings, on what is added to the residual stream, on scores and on logits. */
sw_code sw_family_multipliers(sw_model *model, const cJSON *config, sw_err *err)
{
    double logits = 1.0;
    sw_code rc;

    model->attention_scale = 1.0;
    if ((rc = sw_family_positive(&model->embed_scale, config, "embedding_multiplier", FACTOR_MAX,
                                 err)) ||
        (rc = sw_family_positive(&model->residual_scale, config, "residual_multiplier",
                                 FACTOR_MAX, err)) ||
        (rc = sw_family_positive(&model->attention_scale, config, "attention_multiplier",
                                 FACTOR_MAX, err)) ||
        (rc = sw_family_positive(&logits, config, "logits_scaling", FACTOR_MAX, err)))
        return rc;
    model->logits_scale = 1.0 / logits;
    return SW_OK;
}

sw_code sw_family_read_granite(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_attention_bias(model, config, err)) ||
        (rc = sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err)))
        return rc;
    return sw_family_multipliers(model, config, err);
}

/* Queries grow with the position, where the rope object says so. */
sw_code sw_family_read_ministral3(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *rope = sw_json_member(config, "rope_parameters");
    sw_code rc;

    if (!rope) rope = sw_json_member(config, "rope_scaling");
    if ((rc = sw_family_window(&model->sliding_window, config, 0, err)) != SW_OK) return rc;
    sw_family_window_everywhere(model);
    if (!cJSON_IsObject(rope) || !sw_json_member(rope, "llama_4_scaling_beta")) return SW_OK;
    if ((rc = sw_family_real(&model->temper_beta, rope, "llama_4_scaling_beta", FACTOR_MAX, err)))
        return rc;
    model->temper_every = model->rope.original_max_positions;
    sw_family_kind_everywhere(model, SW_KIND_TEMPERED);
    return SW_OK;
}
