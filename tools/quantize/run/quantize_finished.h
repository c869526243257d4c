/* quantize_finished.h - is an output that a run would make there already? */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_FINISHED_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_FINISHED_H

#include "tools/quantize/quantize_job.h"

/* `job` is settled and knows its sources. *why is NULL when job->o->out holds what this run would
 * make: its manifest names the same version, settings, digests of the source and calibration, the
 * same form of every linear, and files that are all there in their sizes. Else it says what of it
 * is otherwise. What only the bytes would tell is left to verify. SW_E_IO, SW_E_NOMEM. */
sw_code sw_quantize_find_finished(const char **why, const sw_quantize_job *job,
                                  sw_err *err) SW_MUST_USE;

#endif
