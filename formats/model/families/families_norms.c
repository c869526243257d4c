/* families_norms.c - see families.h: decoders that differ in norms, scores and positions. */
#include <math.h>

#include "formats/model/families/families.h"

#define CAP_MAX 1e6
#define SCALAR_MAX 1e6

sw_code sw_family_positive(double *out, const cJSON *config, const char *key, double max,
                           sw_err *err)
{
    double value = 1.0;
    sw_code rc = sw_json_real(&value, config, key, err);

    if (rc != SW_OK || !sw_json_member(config, key)) return rc;
    if (!(value > 0.0 && value <= max))
        return SW_FAIL(err, SW_E_FORMAT, "%s: %g, must be above 0 and at most %g", key, value, max);
    *out = value;
    return SW_OK;
}

sw_code sw_family_insist(const cJSON *config, const char *key, bool want, sw_err *err)
{
    bool have = want;
    sw_code rc = sw_json_bool(&have, config, key, err);

    if (rc == SW_OK && have != want)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: only %s is supported", key,
                       want ? "true" : "false");
    return rc;
}

sw_code sw_family_read_olmo2(sw_model *model, const cJSON *config, sw_err *err)
{
    return sw_family_attention_bias(model, config, err);
}

/* What both Gemmas share: norms less one, scaled embeddings, scores by a scalar of their own. */
static sw_code read_gemma(sw_model *model, const cJSON *config, int64_t window, int64_t period,
                          sw_err *err)
{
    double scalar = 256.0;
    sw_code rc;

    model->norm_offset = 1.0;
    model->embed_scale = (double)(float)sqrt((double)model->hidden);
    if ((rc = sw_family_attention_bias(model, config, err)) != SW_OK) return rc;
    rc = sw_family_insist(config, "use_bidirectional_attention", false, err);
    if (rc != SW_OK) return rc;
    rc = sw_family_positive(&scalar, config, "query_pre_attn_scalar", SCALAR_MAX, err);
    if (rc != SW_OK) return rc;
    model->attention_scale = 1.0 / sqrt(scalar);
    if ((rc = sw_family_window(&model->sliding_window, config, window, err)) != SW_OK) return rc;
    return sw_family_layer_types(model, config, period, err);
}

/* A present null switches a cap off; an absent key leaves the family's. */
static sw_code read_cap(double *out, const cJSON *config, const char *key, double when_absent,
                        sw_err *err)
{
    *out = cJSON_GetObjectItemCaseSensitive(config, key) ? 0.0 : when_absent;
    return sw_family_positive(out, config, key, CAP_MAX, err);
}

sw_code sw_family_read_gemma2(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = read_cap(&model->attention_cap, config, "attn_logit_softcapping", 50.0, err);

    if (rc != SW_OK) return rc;
    if ((rc = read_cap(&model->logits_cap, config, "final_logit_softcapping", 30.0, err)) != SW_OK)
        return rc;
    return read_gemma(model, config, 4096, 2, err);
}

sw_code sw_family_read_gemma3(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t period = 6;
    double theta = 1e4;
    sw_code rc;

    if ((rc = read_cap(&model->attention_cap, config, "attn_logit_softcapping", 0.0, err)) ||
        (rc = read_cap(&model->logits_cap, config, "final_logit_softcapping", 0.0, err)))
        return rc;
    if ((rc = sw_json_int(&period, config, "_sliding_window_pattern", 1, SW_LAYERS_MAX, err)) ||
        (rc = sw_json_int(&period, config, "sliding_window_pattern", 1, SW_LAYERS_MAX, err)))
        return rc;
    /* Older configs have one rope object, for the global layers, and the local base beside it. */
    if (!model->has_window_rope && !sw_json_member(config, "rope_parameters")) {
        if ((rc = sw_json_real(&theta, config, "rope_local_base_freq", err)) != SW_OK) return rc;
        if (!(theta > 1.0 && theta <= 1e30))
            return SW_FAIL(err, SW_E_FORMAT, "rope_local_base_freq: %g, must be above 1", theta);
        model->has_window_rope = true;
        model->window_rope = (sw_rope){.kind = SW_ROPE_DEFAULT, .theta = theta,
                                       .original_max_positions = model->max_positions};
    }
    return read_gemma(model, config, 4096, period, err);
}

sw_code sw_family_read_phi3(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc = sw_family_window(&model->sliding_window, config, 0, err);

    sw_family_window_everywhere(model);
    return rc;
}

/* Every linear has a bias, every norm too; positions are learned. */
static void has_biases(sw_model *model)
{
    model->has_qkv_bias = model->has_o_bias = model->has_mlp_bias = true;
}

sw_code sw_family_read_opt(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t width = model->hidden;
    sw_code rc;

    has_biases(model);
    model->first_position_row = 2; /* the table starts with two rows for padding */
    model->n_position_rows = model->max_positions + 2;
    if ((rc = sw_family_insist(config, "do_layer_norm_before", true, err)) != SW_OK ||
        (rc = sw_family_insist(config, "enable_bias", true, err)) != SW_OK ||
        (rc = sw_family_insist(config, "layer_norm_elementwise_affine", true, err)) != SW_OK ||
        (rc = sw_family_insist(config, "_remove_final_layer_norm", false, err)) != SW_OK)
        return rc;
    rc = sw_json_int(&width, config, "word_embed_proj_dim", 1, (int64_t)1 << 31, err);
    if (rc == SW_OK && width != model->hidden)
        return SW_FAIL(err, SW_E_UNSUPPORTED,
                       "word_embed_proj_dim: %lld; only hidden_size = %lld is supported",
                       (long long)width, (long long)model->hidden);
    return rc;
}

sw_code sw_family_read_gpt2(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    has_biases(model);
    model->n_position_rows = model->max_positions;
    if ((rc = sw_family_insist(config, "scale_attn_weights", true, err)) != SW_OK ||
        (rc = sw_family_insist(config, "scale_attn_by_inverse_layer_idx", false, err)) != SW_OK)
        return rc;
    return sw_family_insist(config, "add_cross_attention", false, err);
}
