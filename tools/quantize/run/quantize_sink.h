/* quantize_sink.h - one solve, and every output that its results go into.
 *
 * Outputs of one solve differ in format alone: the same codes and scales, packed in several ways.
 * One whose writing fails is left behind with its failure, and the others go on. One that an
 * earlier run brought further than the others waits for them.
 */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_SINK_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_SINK_H

#include "tools/quantize/quantize_job.h"

/* jobs[0..n), n at least 1, settled and open (quantize_output.h), those that have not failed: solve
 * by the first one's settings and put the results into all; jobs of a rank other than 0 need no
 * output, and get none. Failures of single outputs are in
 * job->failure; what comes back is that of the solve, or the first of them when all have failed. */
sw_code sw_quantize_solve(sw_quantize_job *const *jobs, int n, sw_err *err) SW_MUST_USE;

#endif
