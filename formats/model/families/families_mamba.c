/* families_mamba.c - see families.h: decoders with the state-space mixer of Mamba-2. */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/families/families_hybrid.h"
#include "formats/model/programs.h"

#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define STATE_MAX 4096
#define WIDTH_MAX ((int64_t)1 << 22)
#define FACTOR_MAX 1e6
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

/* Heads make the inner width, and steps have a least size. */
sw_code sw_hybrid_nemotron_mixer(sw_model *model, const cJSON *config, sw_err *err)
{
    static const ssd_keys keys = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                  "ssm_state_size", "conv_kernel", "use_conv_bias", "use_bias"};
    int64_t n_heads, d_head;
    double least = 0.001;
    sw_code rc;

    if ((rc = sw_family_int(&n_heads, config, keys.n_heads, 128, 1, HEADS_MAX, err)) != SW_OK ||
        (rc = sw_family_int(&d_head, config, keys.d_head, 64, 1, HEAD_DIM_MAX, err)) != SW_OK ||
        (rc = read_ssd(model, config, &keys, "expand", n_heads * d_head, err)) != SW_OK ||
        (rc = sw_family_positive(&least, config, "time_step_min", FACTOR_MAX, err)) != SW_OK)
        return rc;
    model->mixer.norms_groups = true;
    model->mixer.dt_min = fmax(model->mixer.dt_min, least);
    return SW_OK;
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

/* Layers by either spelling; attention turns or not, as position_embedding_type says. */
static sw_code read_granite_kinds(sw_model *model, const cJSON *config, sw_err *err)
{
    const char *positions = "nope";
    sw_code rc = sw_json_text(&positions, config, "position_embedding_type", err);
    const uint8_t kind = strcmp(positions, "rope") ? SW_KIND_STILL_ATTENTION : SW_KIND_ATTENTION;
    const sw_layer_word words[] = {{"mamba", SW_KIND_RECURRENT},
                                   {"linear_attention", SW_KIND_RECURRENT},
                                   {"attention", kind}, {"full_attention", kind}};

    if (rc != SW_OK) return rc;
    if (strcmp(positions, "rope") && strcmp(positions, "nope"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "position_embedding_type: \"%.60s\"; there are rope "
                       "and nope", positions);
    return sw_hybrid_words(model, config,
                           sw_json_member(config, "layers_block_type") ? "layers_block_type"
                                                                       : "layer_types",
                           words, 4, err);
}

static sw_code read_granite_experts(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *n_experts = sw_json_member(config, "num_local_experts");
    sw_code rc = sw_family_int(&model->shared_intermediate, config, "shared_intermediate_size",
                               1024, 1, WIDTH_MAX, err);

    if (rc != SW_OK || (cJSON_IsNumber(n_experts) && n_experts->valueint == 0)) return rc;
    model->norm_topk = true; /* a softmax over the chosen is one over all, renormalized */
    model->moe_intermediate = model->intermediate;
    return sw_family_experts(model, config, 8, 2, err);
}

sw_code sw_family_read_granite_hybrid(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_multipliers(model, config, err)) != SW_OK ||
        (rc = sw_family_attention_bias(model, config, err)) != SW_OK ||
        (rc = read_ssd(model, config, &prefixed_keys, "mamba_expand", 0, err)) != SW_OK ||
        (rc = read_granite_kinds(model, config, err)) != SW_OK)
        return rc;
    return read_granite_experts(model, config, err);
}

/* Factors of Falcon-H1, each on what one operation puts out. */
static sw_code read_factors(sw_model *model, const cJSON *config, sw_err *err)
{
    const struct {
        const char *key;
        double *out;
    } factors[] = {
        {"embedding_multiplier", &model->embed_scale},
        {"lm_head_multiplier", &model->logits_scale},
        {"attention_in_multiplier", &model->factor[SW_BUF_ATTN_N]},
        {"attention_out_multiplier", &model->factor[SW_BUF_M]},
        {"key_multiplier", &model->factor[SW_BUF_K]},
        {"ssm_in_multiplier", &model->factor[SW_BUF_MIX_N]},
        {"ssm_out_multiplier", &model->factor[SW_BUF_MIX_T]},
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof factors / sizeof factors[0] && rc == SW_OK; i++) {
        *factors[i].out = 1.0;
        rc = sw_family_real(factors[i].out, config, factors[i].key, FACTOR_MAX, err);
    }
    return rc;
}

/* A list of n numbers, or ones where there is none. */
static sw_code read_list(double *const out[], int n, const cJSON *config, const char *key,
                         sw_err *err)
{
    const cJSON *list = sw_json_member(config, key), *item = list ? list->child : NULL;

    for (int i = 0; i < n; i++) *out[i] = 1.0;
    if (!list) return SW_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n)
        return SW_FAIL(err, SW_E_FORMAT, "%s: not a list of %d numbers", key, n);
    for (int i = 0; i < n; i++, item = item->next) {
        if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= FACTOR_MAX))
            return SW_FAIL(err, SW_E_FORMAT, "%s: not a list of %d numbers", key, n);
        *out[i] = item->valuedouble;
    }
    return SW_OK;
}

static sw_code read_falcon_mixer(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_mixer *x = &model->mixer;
    double *sections[SW_SSD_SECTIONS];
    double *mlp[] = {&model->factor[SW_BUF_G], &model->factor[SW_BUF_T]};
    int64_t inner = 0;
    sw_code rc;

    for (int i = 0; i < SW_SSD_SECTIONS; i++) sections[i] = &x->section_scale[i];
    if ((rc = sw_json_int(&inner, config, "mamba_d_ssm", 1, WIDTH_MAX, err)) != SW_OK ||
        (rc = read_ssd(model, config, &prefixed_keys, "mamba_expand", inner, err)) != SW_OK ||
        (rc = read_list(sections, SW_SSD_SECTIONS, config, "ssm_multipliers", err)) != SW_OK ||
        (rc = read_list(mlp, 2, config, "mlp_multipliers", err)) != SW_OK ||
        (rc = sw_family_insist(config, "projectors_bias", x->has_bias, err)) != SW_OK)
        return rc;
    x->has_norm = false;
    x->norms_groups = x->norms_first = true;
    rc = sw_json_bool(&x->has_norm, config, "mamba_rms_norm", err);
    return rc ? rc : sw_json_bool(&x->norms_first, config, "mamba_norm_before_gate", err);
}

sw_code sw_family_read_falcon_h1(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_attention_bias(model, config, err)) != SW_OK ||
        (rc = sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err)) != SW_OK ||
        (rc = read_factors(model, config, err)) != SW_OK)
        return rc;
    return read_falcon_mixer(model, config, err);
}
