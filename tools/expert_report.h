/* expert_report.h - how calibration reached the experts: for manifest.json and for the last lines.
 *
 * manifest.json gets "experts": {"policy": NAME, "tokens": {"LAYER": [tokens of expert 0, ...]}};
 * an expert that was left as it is has null there. Models without experts get nothing.
 */
#ifndef SW_TOOLS_EXPERT_REPORT_H
#define SW_TOOLS_EXPERT_REPORT_H

#include "quant/pipeline.h"
#include "tools/cmd.h"

typedef struct sw_expert_report {
    int64_t n_experts, n_unreached, tokens_min, tokens_max;
    double weight_min, weight_max; /* of the all-token statistics, over the linears */
} sw_expert_report;

const char *sw_name_of_experts(int i); /* of sw_experts, NULL beyond */

/* One solved linear of an expert, in block order; adds to the manifest and to the linear's row. */
sw_code sw_expert_report_add(sw_expert_report *report, cJSON *manifest, cJSON *row,
                             sw_experts policy, const sw_linear_ref *ref,
                             const sw_solve_report *solve, sw_err *err) SW_MUST_USE;

/* One line, or nothing when there were no experts. */
void sw_expert_report_print(FILE *out, const sw_expert_report *report);

#endif
