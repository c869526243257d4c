/* timeline.h - which step of a run took how long: for the result on stdout and the page, never for
 * the manifest, whose bytes are the same for the same inputs.
 */
#ifndef SW_TOOLS_QUANTIZE_TIMELINE_H
#define SW_TOOLS_QUANTIZE_TIMELINE_H

#include "formats/base/json.h"

/* Begin with sw_timeline_begin; freed by sw_timeline_free. */
typedef struct sw_timeline {
    cJSON *steps; /* owned: [{"step", "begin_s", "end_s"}], seconds of the run */
    double start_s, last_s; /* of the clock: the run's begin, and the last step's end */
} sw_timeline;

sw_code sw_timeline_begin(sw_timeline *out, sw_err *err) SW_MUST_USE;
/* What was done since the last step, or the begin, had this name. One thread at a time. */
sw_code sw_timeline_step(sw_timeline *t, sw_err *err, const char *fmt, ...)
    SW_PRINTF(3, 4) SW_MUST_USE;
double sw_timeline_seconds(const sw_timeline *t); /* since the begin */
void sw_timeline_free(sw_timeline *t);            /* accepts a zeroed one */

#endif
