/* linear_counts.h - how many linears of a model's layers become codes, and why others do not. */
#ifndef SW_TOOLS_RECIPE_LINEAR_COUNTS_H
#define SW_TOOLS_RECIPE_LINEAR_COUNTS_H

#include "tools/recipe/selection.h"

typedef struct sw_linear_counts {
    int64_t n_quantized;
    int64_t n_by_rule;    /* left as engines keep them in floats: routers, the head, indexers */
    int64_t n_by_pattern; /* left by --ignore or by the recipe */
    int64_t n_unknown;    /* matrices within layers that no slot of the family names: copied */
    char first_unknown[256]; /* of the latter, "" when there is none */
} sw_linear_counts;

void sw_linear_counts_find(sw_linear_counts *out, const sw_checkpoint *source,
                           const sw_selection *selection);
/* Two lines at most, for the report at the end. */
void sw_linear_counts_print(const sw_linear_counts *counts);
/* "linear_counts": {"quantized", "left_by_rule", "left_by_pattern", "unknown"}. SW_E_NOMEM. */
sw_code sw_linear_counts_add_json(cJSON *root, const sw_linear_counts *counts,
                                  sw_err *err) SW_MUST_USE;

#endif
