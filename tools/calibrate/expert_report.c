/* expert_report.c - see expert_report.h. */
#include "tools/calibrate/expert_report.h"

const char *sw_name_of_experts(int i)
{
    static const char *const names[SW_EXPERTS_COUNT + 1] = {
        [SW_EXPERTS_SHRINK] = "shrink", [SW_EXPERTS_ROUTED] = "routed", [SW_EXPERTS_ALL] = "all"};
    return names[i];
}

static double number_in(const cJSON *object, const char *key)
{
    const cJSON *item = sw_json_member(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

static bool is_listed(const cJSON *list, const sw_linear_ref *ref)
{
    for (const cJSON *item = list->child ? list->child->prev : NULL; item; item = item->prev) {
        if (number_in(item, "layer") != (double)ref->layer) return false;
        if (number_in(item, "expert") == (double)ref->expert) return true;
        if (item == list->child) return false;
    }
    return false;
}

static bool add_expert(cJSON *list, const sw_linear_ref *ref, int64_t n_tokens)
{
    cJSON *item = cJSON_CreateObject();

    return item && cJSON_AddItemToArray(list, item) &&
           cJSON_AddNumberToObject(item, "layer", (double)ref->layer) &&
           cJSON_AddNumberToObject(item, "expert", (double)ref->expert) &&
           cJSON_AddNumberToObject(item, "tokens", (double)n_tokens);
}

sw_code sw_expert_report_add(cJSON *manifest, cJSON *row, const sw_linear_ref *ref,
                             const sw_solve_report *solve, sw_err *err)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(manifest, "experts");
    bool ok;

    if (ref->expert < 0 || solve->n_routed < 0) return SW_OK;
    if (!list) list = cJSON_AddArrayToObject(manifest, "experts");
    ok = list && (is_listed(list, ref) || add_expert(list, ref, solve->n_routed)) &&
         cJSON_AddNumberToObject(row, "routed_tokens", (double)solve->n_routed) &&
         cJSON_AddNumberToObject(row, "all_token_weight", solve->shared_weight);
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}

/* Least and largest of a key over the items that have it; false when none has. */
static bool range_of(double *least, double *most, const cJSON *list, const char *key)
{
    bool has_any = false;
    const cJSON *item;

    cJSON_ArrayForEach(item, list) {
        double v = number_in(item, key);
        if (v < 0) continue;
        if (!has_any || v < *least) *least = v;
        if (!has_any || v > *most) *most = v;
        has_any = true;
    }
    return has_any;
}

void sw_expert_report_print(FILE *out, const cJSON *manifest)
{
    const cJSON *list = sw_json_member(manifest, "experts"), *item;
    double least = 0, most = 0, weight_least = 0, weight_most = 0;
    int n_unreached = 0;

    if (!range_of(&least, &most, list, "tokens")) return;
    (void)range_of(&weight_least, &weight_most, sw_json_member(manifest, "tensors"),
                   "all_token_weight");
    cJSON_ArrayForEach(item, list) n_unreached += number_in(item, "tokens") == 0;
    (void)fprintf(out,
                  "experts     %d, %.0f to %.0f calibration tokens each, %d without any; "
                  "all-token weight %.2f to %.2f\n",
                  cJSON_GetArraySize(list), least, most, n_unreached, weight_least, weight_most);
}
