/* convert_cost.h - what rounding a second time cost a conversion, and what would cost less. */
#ifndef SW_TOOLS_CONVERT_CONVERT_COST_H
#define SW_TOOLS_CONVERT_CONVERT_COST_H

#include "tools/convert/convert_job.h"

/* Of the linears that were rounded again; n is 0 when there are none. */
typedef struct sw_convert_cost {
    int64_t n;
    double mean, worst;             /* |w - q| / |w| against the source's own values */
    const sw_convert_linear *at;    /* the worst */
    const char *wider;              /* a scheme of more bits that the target takes, or NULL */
} sw_convert_cost;

/* Of a job that has run. */
sw_convert_cost sw_convert_cost_of(const sw_convert_job *job);
/* Lines for people; nothing when nothing was rounded again. */
void sw_convert_cost_print(const sw_convert_job *job);
/* {"requantized_error": {...}} with the commands that measure it and that do better. */
bool sw_convert_cost_json(cJSON *root, const sw_convert_job *job);

#endif
