/* expert_report.c - see expert_report.h. */
#include "tools/expert_report.h"

const char *sw_name_of_experts(int i)
{
    static const char *const names[SW_EXPERTS_COUNT + 1] = {
        [SW_EXPERTS_SHRINK] = "shrink", [SW_EXPERTS_ROUTED] = "routed", [SW_EXPERTS_ALL] = "all"};
    return names[i];
}

static cJSON *object_in(cJSON *parent, const char *key)
{
    cJSON *object = cJSON_GetObjectItemCaseSensitive(parent, key);

    return object ? object : cJSON_AddObjectToObject(parent, key);
}

/* The token list of a layer, begun when this is its first expert. */
static cJSON *tokens_of_layer(cJSON *manifest, sw_experts policy, int64_t layer)
{
    cJSON *experts = object_in(manifest, "experts");
    cJSON *tokens, *list;
    char key[24];

    if (!experts) return NULL;
    if (!cJSON_HasObjectItem(experts, "policy") &&
        !cJSON_AddStringToObject(experts, "policy", sw_name_of_experts((int)policy)))
        return NULL;
    if (!(tokens = object_in(experts, "tokens"))) return NULL;
    (void)snprintf(key, sizeof key, "%lld", (long long)layer);
    list = cJSON_GetObjectItemCaseSensitive(tokens, key);
    return list ? list : cJSON_AddArrayToObject(tokens, key);
}

/* true with *is_new unless memory ran out: an expert is counted with the first of its linears. */
static bool list_tokens(cJSON *list, const sw_linear_ref *ref, int64_t n_tokens, bool *is_new)
{
    *is_new = cJSON_GetArraySize(list) <= ref->expert;
    while (cJSON_GetArraySize(list) <= ref->expert) {
        bool is_it = cJSON_GetArraySize(list) == ref->expert;
        cJSON *item = is_it ? cJSON_CreateNumber((double)n_tokens) : cJSON_CreateNull();
        if (!item || !cJSON_AddItemToArray(list, item)) return false;
    }
    return true;
}

static void count(sw_expert_report *r, int64_t n_tokens)
{
    if (!r->n_experts || n_tokens < r->tokens_min) r->tokens_min = n_tokens;
    if (n_tokens > r->tokens_max) r->tokens_max = n_tokens;
    if (!n_tokens) r->n_unreached++;
    r->n_experts++;
}

sw_code sw_expert_report_add(sw_expert_report *report, cJSON *manifest, cJSON *row,
                             sw_experts policy, const sw_linear_ref *ref,
                             const sw_solve_report *solve, sw_err *err)
{
    double weight = solve->shared_weight;
    cJSON *list;
    bool is_new;

    if (ref->expert < 0 || solve->n_routed < 0) return SW_OK;
    list = tokens_of_layer(manifest, policy, ref->layer);
    if (!list || !list_tokens(list, ref, solve->n_routed, &is_new) ||
        !cJSON_AddNumberToObject(row, "routed_tokens", (double)solve->n_routed) ||
        !cJSON_AddNumberToObject(row, "all_token_weight", weight))
        return sw_cmd_json_added(NULL, err);
    if (!report->n_experts || weight < report->weight_min) report->weight_min = weight;
    if (!report->n_experts || weight > report->weight_max) report->weight_max = weight;
    if (is_new) count(report, solve->n_routed);
    return SW_OK;
}

void sw_expert_report_print(FILE *out, const sw_expert_report *r)
{
    if (!r->n_experts) return;
    (void)fprintf(out,
                  "experts     %lld, %lld to %lld calibration tokens each, %lld without any; "
                  "all-token weight %.2f to %.2f\n",
                  (long long)r->n_experts, (long long)r->tokens_min, (long long)r->tokens_max,
                  (long long)r->n_unreached, r->weight_min, r->weight_max);
}
