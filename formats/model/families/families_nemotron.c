/* families_nemotron.c - see families.h: Nemotron-H, whose layers are one mixer or one MLP each. */
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/families/families_hybrid.h"
#include "formats/model/programs.h"

#define WIDTH_MAX ((int64_t)1 << 22)
#define FACTOR_MAX 1e6

/* One letter a layer: M, *, -, E. */
static sw_code read_pattern(sw_model *model, const char *pattern, sw_err *err)
{
    static const char letters[] = "M*-E";
    static const uint8_t kinds[] = {SW_KIND_RECURRENT, SW_KIND_STILL_ATTENTION, SW_KIND_MLP,
                                    SW_KIND_EXPERTS};

    if ((int64_t)strlen(pattern) != model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "hybrid_override_pattern: %zu letters for "
                       "num_hidden_layers = %lld", strlen(pattern), (long long)model->n_layers);
    for (int64_t i = 0; i < model->n_layers; i++) {
        const char *at = strchr(letters, pattern[i]);

        if (!at)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "hybrid_override_pattern: \"%c\" of layer %lld; "
                           "there are M, *, - and E", pattern[i], (long long)i);
        model->kind[i] = kinds[at - letters];
    }
    return SW_OK;
}

static sw_code read_kinds(sw_model *model, const cJSON *config, sw_err *err)
{
    static const sw_layer_word words[] = {
        {"linear_attention", SW_KIND_RECURRENT}, {"mamba", SW_KIND_RECURRENT},
        {"full_attention", SW_KIND_STILL_ATTENTION}, {"attention", SW_KIND_STILL_ATTENTION},
        {"mlp", SW_KIND_MLP}, {"moe", SW_KIND_EXPERTS}};
    const char *pattern = NULL;
    sw_code rc = sw_json_text(&pattern, config, "hybrid_override_pattern", err);

    if (rc != SW_OK) return rc;
    if (sw_json_member(config, "layers_block_type") || !pattern)
        rc = sw_hybrid_words(model, config, "layers_block_type", words, 6, err);
    else
        rc = read_pattern(model, pattern, err);
    for (int64_t i = 0; i < model->n_layers; i++)
        model->is_dense_layer[i] = model->kind[i] != SW_KIND_EXPERTS;
    return rc;
}

static sw_code read_experts(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t latent = 0;
    sw_code rc;

    model->router = SW_ROUTER_SIGMOID;
    model->norm_topk = true;
    if ((rc = sw_family_experts(model, config, 8, 2, err)) != SW_OK ||
        (rc = sw_json_int(&model->n_expert_groups, config, "n_group", 1, model->n_experts, err)) ||
        (rc = sw_json_int(&model->n_groups_used, config, "topk_group", 1, model->n_expert_groups,
                          err)) != SW_OK ||
        (rc = sw_hybrid_check_groups(model, "n_group", err)) != SW_OK ||
        (rc = sw_json_bool(&model->norm_topk, config, "norm_topk_prob", err)) != SW_OK ||
        (rc = sw_family_positive(&model->route_scale, config, "routed_scaling_factor", FACTOR_MAX,
                                 err)) != SW_OK ||
        (rc = sw_family_int(&model->moe_intermediate, config, "moe_intermediate_size", 7688, 1,
                            WIDTH_MAX, err)) != SW_OK ||
        (rc = sw_family_int(&model->shared_intermediate, config,
                            "moe_shared_expert_intermediate_size", 7688, 1, WIDTH_MAX, err)) ||
        (rc = sw_json_int(&latent, config, "moe_latent_size", 1, WIDTH_MAX, err)) != SW_OK)
        return rc;
    if (!latent) return SW_OK;
    model->moe_hidden = latent;
    for (int64_t i = 0; i < model->n_layers; i++)
        if (model->kind[i] == SW_KIND_EXPERTS) model->kind[i] = SW_KIND_LATENT_EXPERTS;
    return SW_OK;
}

sw_code sw_family_read_nemotron_h(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_family_attention_bias(model, config, err)) != SW_OK ||
        (rc = sw_json_bool(&model->has_mlp_bias, config, "mlp_bias", err)) != SW_OK ||
        (rc = sw_hybrid_nemotron_mixer(model, config, err)) != SW_OK ||
        (rc = read_kinds(model, config, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < model->n_layers; i++)
        if (!model->is_dense_layer[i]) return read_experts(model, config, err);
    return SW_OK;
}
