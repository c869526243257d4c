/* quantize_output.h - one checkpoint in the making: opened, continued, finished and read back. */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_OUTPUT_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_OUTPUT_H

#include "tools/quantize/quantize_job.h"

/* Everything that the bytes of the output depend on but for the source, as the manifest says it;
 * the caller deletes it. */
sw_code sw_quantize_output_key(cJSON **out, const sw_quantize_job *job, sw_err *err) SW_MUST_USE;
/* The job's writer, with what an earlier run finished taken up; `job` is settled. */
sw_code sw_quantize_output_open(sw_quantize_job *job, sw_err *err) SW_MUST_USE;
/* All linears are put: copy the rest, and publish the directory. */
sw_code sw_quantize_output_commit(sw_quantize_job *job, sw_err *err) SW_MUST_USE;
/* Integrity of what was written, by the second decoder, into job->verified: no original, no text.
 * It is there also when it says that something is wrong, which is a failure. */
sw_code sw_quantize_output_read_back(sw_quantize_job *job, sw_err *err) SW_MUST_USE;
/* After a failure: what is finished stays for the next run, and the message says so. Bad input
 * stays bad: its work goes. */
void sw_quantize_output_keep(sw_quantize_job *job, sw_err *err);

/* What stdout and the page say of a finished output. */
sw_code sw_quantize_output_outcome(sw_quantize_outcome *out, const sw_quantize_job *job,
                                   sw_err *err) SW_MUST_USE;
/* SW_E_GATE: linears fell back to another method, and nobody allowed it. */
sw_code sw_quantize_output_fallbacks(const sw_quantize_job *job, sw_err *err) SW_MUST_USE;

/* manifest["made_by"], which says every option that the output depends on. */
sw_code sw_quantize_output_command(cJSON *manifest, const sw_quantize_job *job,
                                   sw_err *err) SW_MUST_USE;

#endif
