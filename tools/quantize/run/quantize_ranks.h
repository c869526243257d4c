/* quantize_ranks.h - before ranks share a run: do they see the same?
 *
 * Ranks of several hosts may have other files under the same names. What one of them computes from
 * another model, text or setting would end up in rows of the others' output.
 */
#ifndef SW_TOOLS_QUANTIZE_RUN_QUANTIZE_RANKS_H
#define SW_TOOLS_QUANTIZE_RUN_QUANTIZE_RANKS_H

#include "tools/quantize/quantize_job.h"

/* Every rank calls it, with a settled job. SW_E_USAGE, at all ranks, names what differs and where.
 * Of weights, names, types, shapes and some bytes of every tensor are compared, since a digest of
 * everything would take as long as reading the model once more. */
sw_code sw_quantize_ranks_check(const sw_quantize_job *job, sw_err *err) SW_MUST_USE;

#endif
