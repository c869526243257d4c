/* quantize_many.h - several outputs of one run: every scheme in every format.
 *
 * The source is digested and the calibration text tokenized once. Outputs of one scheme whose
 * formats hold the same numbers share one solve; each other one has a solve of its own, since every
 * block is calibrated on what the quantized blocks before it make of the text. With --stats all
 * read the same statistics, those of the original model.
 */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_MANY_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_MANY_H

#include "tools/quantize/quantize_job.h"

#define SW_QUANTIZE_OUTPUTS_MAX 64

/* Zero-initialise. */
typedef struct sw_quantize_many {
    sw_quantize_job *jobs[SW_QUANTIZE_OUTPUTS_MAX]; /* in the arena of the run */
    int n;
    cJSON *sources; /* owned: digests of what is read of the source */
} sw_quantize_many;

/* Does it ask for more than one scheme or format? */
bool sw_quantize_is_many(const sw_quantize_options *o);

/* The outputs of `base`, whose options and recipe are read: o->out/SCHEME-FORMAT for every pair.
 * Everything that can be refused is refused here, for all of them, and nothing is written but
 * the directory o->out. An output that an earlier run finished with the same settings is kept
 * (is_finished), unless the run is to start again; another one that is there is SW_E_USAGE
 * without --force. Of several ranks every one calls it and the next, and rank 0 alone looks at
 * what is there and writes. */
sw_code sw_quantize_many_check(sw_quantize_many *out, sw_run *run, const sw_quantize_job *base,
                               sw_err *err) SW_MUST_USE;
/* Make those that are not finished. Failures of single outputs are in their jobs, and what is
 * returned then is SW_OK. What ends the run (quantize_group.h) is returned; outputs that were made
 * before stay. */
sw_code sw_quantize_many_run(const sw_quantize_many *many, sw_err *err) SW_MUST_USE;
/* Of an interrupted run: its message says how many outputs are there. */
void sw_quantize_many_say_kept(const sw_quantize_many *many, sw_err *err);
/* The first failure, with the number of those that failed. */
sw_code sw_quantize_many_verdict(const sw_quantize_many *many, sw_err *err) SW_MUST_USE;
void sw_quantize_many_free(sw_quantize_many *many); /* accepts a zeroed one */

#endif
