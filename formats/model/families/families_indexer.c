/* families_indexer.c - see families.h: what chooses keys in the latent attention of DeepSeek-V3.2
 * and of GLM-5, whose layers may share a choice.
 */
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define TOP_K_MAX ((int64_t)1 << 24)
#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096

/* "full" or "shared" for each layer. */
static sw_code read_types(bool *is_shared, const sw_model *model, const cJSON *types, sw_err *err)
{
    const cJSON *type;
    int64_t layer = 0;

    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) < model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "indexer_types: not a list of num_hidden_layers = %lld",
                       (long long)model->n_layers);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";

        if (layer == model->n_layers) break; /* of a head that predicts further tokens */
        if (strcmp(text, "full") && strcmp(text, "shared"))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "indexer_types: \"%.60s\"; there are full, "
                           "shared", text);
        is_shared[layer++] = !strcmp(text, "shared");
    }
    return SW_OK;
}

/* Older keys: a letter for each layer, or every how many layers keys are chosen. */
static sw_code read_pattern(bool *is_shared, const sw_model *model, const cJSON *config,
                            sw_err *err)
{
    const char *pattern = NULL;
    int64_t every, offset;
    sw_code rc;

    if ((rc = sw_json_text(&pattern, config, "index_topk_pattern", err)) ||
        (rc = sw_family_int(&every, config, "index_topk_freq", 1, 1, SW_LAYERS_MAX, err)) ||
        (rc = sw_family_int(&offset, config, "index_skip_topk_offset", 2, 0, SW_LAYERS_MAX, err)))
        return rc;
    if (pattern && (int64_t)strlen(pattern) < model->n_layers)
        return SW_FAIL(err, SW_E_FORMAT, "index_topk_pattern: fewer letters than "
                       "num_hidden_layers = %lld", (long long)model->n_layers);
    for (int64_t l = 0; l < model->n_layers; l++)
        is_shared[l] = pattern ? pattern[l] == 'S' : l >= offset && (l - offset + 1) % every != 0;
    return SW_OK;
}

static sw_code read_layers(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *types = sw_json_member(config, "indexer_types");
    bool is_shared[SW_LAYERS_MAX] = {false};
    sw_code rc = types ? read_types(is_shared, model, types, err)
                       : read_pattern(is_shared, model, config, err);

    if (rc != SW_OK) return rc;
    if (is_shared[0])
        return SW_FAIL(err, SW_E_FORMAT, "indexer_types: the first layer is shared, with none "
                       "before it");
    for (int64_t l = 0; l < model->n_layers; l++) {
        model->kind[l] = is_shared[l] ? SW_KIND_LATENT_AS_INDEXED : SW_KIND_LATENT_INDEXED;
        model->indexer.is_shared = model->indexer.is_shared || is_shared[l];
    }
    return SW_OK;
}

sw_code sw_family_indexer(sw_model *model, const cJSON *config, sw_err *err)
{
    sw_indexer *x = &model->indexer;
    sw_code rc;

    if ((rc = sw_family_int(&x->top_k, config, "index_topk", 0, 1, TOP_K_MAX, err)) || !x->top_k)
        return rc;
    if (!model->q_rank)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "index_topk: keys are chosen by the low-rank "
                       "queries, and q_lora_rank is null");
    if ((rc = sw_family_int(&x->n_heads, config, "index_n_heads", 64, 1, HEADS_MAX, err)) ||
        (rc = sw_family_int(&x->head_dim, config, "index_head_dim", 128, 1, HEAD_DIM_MAX, err)) ||
        (rc = sw_json_bool(&x->is_paired, config, "indexer_rope_interleave", err)))
        return rc;
    if (x->head_dim < model->rope_dim)
        return SW_FAIL(err, SW_E_FORMAT, "index_head_dim: %lld, less than the qk_rope_head_dim = "
                       "%lld that turn", (long long)x->head_dim, (long long)model->rope_dim);
    return read_layers(model, config, err);
}
