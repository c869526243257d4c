/* quantize_group.h - the outputs that one solve makes, from their beginning to their reading back.
 */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_GROUP_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_GROUP_H

#include "tools/quantize/quantize_job.h"

/* jobs[0..n), n at least 1, all settled, whose linears become the same (sw_quantize_is_alike): make
 * their outputs. What goes wrong with them is in their `failure`; where it is with one alone, the
 * others go on. Returns what ends the run: a stop, SW_E_CANCELLED; and with several ranks what the
 * solve failed at, for they cannot find together again. Of several ranks rank 0 makes the outputs,
 * and the others only help: of them a failure is in what comes back alone. */
sw_code sw_quantize_group_run(sw_quantize_job *const *jobs, int n, sw_err *err) SW_MUST_USE;

/* Before ranks share a run: do they see the same (same_inputs.h)? Every rank calls both, with a
 * settled job: the model; calibration text and everything else that decides the bytes.
 * SW_E_USAGE, at all ranks, names what differs and where. */
sw_code sw_quantize_same_inputs(const sw_quantize_job *job, sw_err *err) SW_MUST_USE;
sw_code sw_quantize_same_settings(const sw_quantize_job *job, sw_err *err) SW_MUST_USE;

/* true when both ask for the same numbers: method, scheme and every linear's form, whatever the
 * format that holds them. */
bool sw_quantize_is_alike(const sw_quantize_job *a, const sw_quantize_job *b);

#endif
