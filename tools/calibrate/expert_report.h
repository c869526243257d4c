/* expert_report.h - how calibration reached the experts: for manifest.json and for the last lines.
 *
 * manifest.json gets "experts", a list of {"layer", "expert", "tokens"} in block order; models
 * without experts get none.
 */
#ifndef SW_TOOLS_CALIBRATE_EXPERT_REPORT_H
#define SW_TOOLS_CALIBRATE_EXPERT_REPORT_H

#include "quant/run/pipeline.h"
#include "tools/cli/cmd.h"

const char *sw_name_of_experts(int i); /* of sw_experts, NULL beyond */

/* One solved linear, in block order; if it is an expert's, its figures go into its row, and with
 * the first linear of an expert into the list. */
sw_code sw_expert_report_add(cJSON *manifest, cJSON *row, const sw_linear_ref *ref,
                             const sw_solve_report *solve, sw_err *err) SW_MUST_USE;

/* One line, or nothing when there were no experts. */
void sw_expert_report_print(FILE *out, const cJSON *manifest);

#endif
