/* output_size.h - bytes of all files of an output before it is made: exactly what the writer will
 * declare, and the most that manifest and card can come to.
 */
#ifndef SW_TOOLS_QUANTIZE_OUTPUT_SIZE_H
#define SW_TOOLS_QUANTIZE_OUTPUT_SIZE_H

#include "tools/quantize/quantize_job.h"

/* Of a job that is checked, manifest.json and the card: every number of the manifest counts with as
 * many digits as a number can have. */
sw_code sw_output_size_papers(uint64_t *most, const sw_quantize_job *job, sw_err *err) SW_MUST_USE;

/* All other files, for the selection as it is now. SW_E_UNSUPPORTED: the source is a GGUF. */
sw_code sw_output_size_rest(uint64_t *out, const sw_quantize_job *job, sw_err *err) SW_MUST_USE;

/* Of an output that is there: every file in its directory. SW_E_IO. */
sw_code sw_output_size_written(uint64_t *out, const char *dir, sw_err *err) SW_MUST_USE;

#endif
