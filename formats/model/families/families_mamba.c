/* families_mamba.c - see families.h: decoders with the state-space mixer of Mamba-2. */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/families/families_hybrid.h"
#include "formats/model/programs.h"

#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define STATE_MAX 4096
#define TAPS_MAX 16 /* SW_CONV_TAPS_MAX of the engine */

/* What a family calls the sizes of its mixer. */
typedef struct ssd_keys {
    const char *n_heads, *d_head, *n_groups, *d_state, *n_taps, *conv_bias, *bias;
} ssd_keys;

static const ssd_keys mamba2_keys = {"num_heads", "head_dim", "n_groups", "state_size",
                                     "conv_kernel", "use_conv_bias", "use_bias"};
static const ssd_keys prefixed_keys = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                       "mamba_d_state", "mamba_d_conv", "mamba_conv_bias",
                                       "mamba_proj_bias"};

/* A number, or what JSON has no number for: transformers writes {"__float__": "Infinity"}. */
static sw_code read_limit(double *out, const cJSON *item, sw_err *err)
{
    const cJSON *word = sw_json_member(item, "__float__");

    if (cJSON_IsNumber(item) && item->valuedouble >= 0.0) {
        *out = item->valuedouble;
        return SW_OK;
    }
    if (cJSON_IsString(word) && !strcmp(word->valuestring, "Infinity")) {
        *out = HUGE_VAL;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_FORMAT, "time_step_limit: must be two numbers of 0 or more");
}

static sw_code read_limits(sw_mixer *x, const cJSON *config, sw_err *err)
{
    const cJSON *list = sw_json_member(config, "time_step_limit");
    sw_code rc;

    x->dt_min = 0.0;
    x->dt_max = HUGE_VAL;
    if (!list) return SW_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2)
        return SW_FAIL(err, SW_E_FORMAT, "time_step_limit: not a list of two");
    if ((rc = read_limit(&x->dt_min, list->child, err)) != SW_OK) return rc;
    return read_limit(&x->dt_max, list->child->next, err);
}

/* Heads are as wide as is said, or share the inner width: `inner`, or hidden times expand_key. */
static sw_code read_head_width(sw_model *model, const cJSON *config, const ssd_keys *keys,
                               int64_t inner, sw_err *err)
{
    sw_mixer *x = &model->mixer;
    const cJSON *said = sw_json_member(config, keys->d_head);
    sw_code rc;

    if (!cJSON_IsString(said) &&
        (rc = sw_json_int(&x->d_head, config, keys->d_head, 1, HEAD_DIM_MAX, err)) != SW_OK)
        return rc;
    if (x->d_head && x->d_head * x->n_heads == inner) return SW_OK;
    if (x->d_head || inner % x->n_heads)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %lld heads do not fill the inner width of %lld",
                       keys->n_heads, (long long)x->n_heads, (long long)inner);
    x->d_head = inner / x->n_heads;
    return SW_OK;
}

static sw_code read_ssd(sw_model *model, const cJSON *config, const ssd_keys *keys,
                        const char *expand_key, int64_t inner, sw_err *err)
{
    sw_mixer *x = &model->mixer;
    int64_t expand = 2;
    const sw_hybrid_size sizes[] = {
        {&x->n_heads, keys->n_heads, 128, HEADS_MAX}, {&x->n_groups, keys->n_groups, 1, HEADS_MAX},
        {&x->d_state, keys->d_state, 128, STATE_MAX}, {&x->n_taps, keys->n_taps, 4, TAPS_MAX},
        {&expand, expand_key, 2, 64},
    };
    sw_code rc;

    x->kind = SW_MIXER_SSD;
    x->has_conv_bias = x->has_norm = true;
    for (int i = 0; i < SW_SSD_SECTIONS; i++) x->section_scale[i] = 1.0;
    if ((rc = sw_hybrid_sizes(sizes, 5, config, err)) != SW_OK ||
        (rc = sw_json_bool(&x->has_conv_bias, config, keys->conv_bias, err)) != SW_OK ||
        (rc = sw_json_bool(&x->has_bias, config, keys->bias, err)) != SW_OK ||
        (rc = read_head_width(model, config, keys, inner ? inner : expand * model->hidden, err)) ||
        (rc = read_limits(x, config, err)) != SW_OK)
        return rc;
    return sw_hybrid_check_heads(model, keys->n_heads, keys->n_groups, err);
}

sw_code sw_family_read_mamba2(sw_model *model, const cJSON *config, sw_err *err)
{
    return read_ssd(model, config, &mamba2_keys, "expand", 0, err);
}

sw_code sw_family_read_bamba(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t rotated = model->rope_dim;
    sw_code rc;

    if ((rc = read_ssd(model, config, &prefixed_keys, "mamba_expand", 0, err)) != SW_OK ||
        (rc = sw_family_attention_bias(model, config, err)) != SW_OK ||
        (rc = sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err)) != SW_OK ||
        (rc = sw_json_int(&rotated, config, "attn_rotary_emb", 2, model->head_dim, err)) != SW_OK)
        return rc;
    model->rope_dim = rotated / 2 * 2;
    return sw_hybrid_attention_list(model, config, "attn_layer_indices", err);
}
