/* quantize_many_report.h - what a run of several outputs says at its end. */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_MANY_REPORT_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_MANY_REPORT_H

#include "tools/quantize/run/quantize_many.h"

/* On stdout: for each output the lines of a run of its own, that it was finished already, or what
 * went wrong; or one object with all of that. */
sw_code sw_quantize_many_print(sw_run *run, const sw_quantize_many *many, sw_err *err) SW_MUST_USE;

#endif
