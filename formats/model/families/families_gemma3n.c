/* families_gemma3n.c - see families.h: Gemma 3n. */
#include <math.h>
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define COPIES_MAX 16
#define WIDTH_MAX ((int64_t)1 << 22)

/* How many deviations above the mean leave out this share of a normal distribution. */
static double deviations_of(double share)
{
    double low = -10.0, high = 10.0;

    for (int i = 0; i < 200; i++) {
        const double middle = 0.5 * (low + high);

        *(0.5 * erfc(-middle / sqrt(2.0)) < share ? &low : &high) = middle;
    }
    return 0.5 * (low + high);
}

/* The share of each layer's gates that is cut off; one number but 0 for all layers that do so. */
static sw_code read_cuts(sw_model *model, const cJSON *config, sw_err *err)
{
    const cJSON *list = sw_json_member(config, "activation_sparsity_pattern");
    double share = 0.0;

    if (list && !cJSON_IsNumber(list) &&
        (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != model->n_layers))
        return SW_FAIL(err, SW_E_FORMAT, "activation_sparsity_pattern: not a list of "
                       "num_hidden_layers = %lld", (long long)model->n_layers);
    for (int64_t l = 0; l < model->n_layers && list; l++) {
        const cJSON *item = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, (int)l) : list;
        const double one = cJSON_IsNumber(item) ? item->valuedouble : -1.0;

        if (!(one >= 0.0 && one < 1.0))
            return SW_FAIL(err, SW_E_FORMAT, "activation_sparsity_pattern: layer %lld, must be in "
                           "[0, 1)", (long long)l);
        if (one > 0.0 && share > 0.0 && one != share)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "activation_sparsity_pattern: %g and %g; one "
                           "number beside 0 is supported", share, one);
        if (one > 0.0) share = one;
        model->is_cut_layer[l] = one > 0.0;
    }
    model->gate_cut = share > 0.0 ? deviations_of(share) : 0.0;
    return SW_OK;
}

static sw_code read_copies(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t active;
    sw_code rc;

    if ((rc = sw_family_int(&model->n_copies, config, "altup_num_inputs", 4, 2, COPIES_MAX, err)) ||
        (rc = sw_family_int(&active, config, "altup_active_idx", 0, 0, COPIES_MAX, err)) ||
        (rc = sw_family_int(&model->low_rank, config, "laurel_rank", 64, 1, model->hidden, err)))
        return rc;
    if (active || model->n_copies * model->n_copies > model->hidden)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "altup_active_idx, altup_num_inputs: %lld, %lld; the "
                       "first copy must be active, and copies few", (long long)active,
                       (long long)model->n_copies);
    return sw_family_insist(config, "altup_correct_scale", true, err);
}

sw_code sw_family_read_gemma3n(sw_model *model, const cJSON *config, sw_err *err)
{
    int64_t n_shared;
    sw_code rc;

    model->embed_scale = (double)(float)sqrt((double)model->hidden);
    model->attention_scale = 1.0;
    if ((rc = sw_family_insist(config, "attention_bias", false, err)) ||
        (rc = sw_family_cap(&model->logits_cap, config, "final_logit_softcapping", 30.0, err)) ||
        (rc = sw_family_window(&model->sliding_window, config, 512, err)) ||
        (rc = sw_family_layer_types(model, config, 5, err)) ||
        (rc = sw_family_local_rope(model, config, err)) ||
        (rc = sw_family_int(&model->side_inputs, config, "hidden_size_per_layer_input", 256, 1,
                            WIDTH_MAX, err)) ||
        (rc = sw_family_int(&n_shared, config, "num_kv_shared_layers", 15, 0, model->n_layers - 1,
                            err)) ||
        (rc = sw_family_share_keys(model, n_shared, err)) || (rc = read_cuts(model, config, err)))
        return rc;
    for (int64_t l = 0; l < model->n_layers; l++)
        model->kind[l] = model->shares_kv[l] ? SW_KIND_SHARED_KV : SW_KIND_OWN_V;
    return read_copies(model, config, err);
}
