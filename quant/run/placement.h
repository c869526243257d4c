/* placement.h - where the parts of a run are done: what the options' backend lacks falls back here.
 * For the pipelines alone.
 */
#ifndef SW_QUANT_RUN_PLACEMENT_H
#define SW_QUANT_RUN_PLACEMENT_H

#include "quant/run/block_job.h"

/* Where the linears that wait for these sites are solved: at the options' place, or where that
 * falls back to when its backend cannot solve one of them. */
sw_place sw_place_sites(const sw_block_job *job, const bool wanted[SW_SITE_COUNT]);

/* Streams at the options' place where everything can be; where that falls back to otherwise, and
 * `progress` says why. */
sw_code sw_place_streams(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, const sw_progress *progress,
                         sw_err *err) SW_MUST_USE;

#endif
