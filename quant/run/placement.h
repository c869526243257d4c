/* placement.h - what of a run is done on a device, and what in memory. For the pipelines alone. */
#ifndef SW_QUANT_RUN_PLACEMENT_H
#define SW_QUANT_RUN_PLACEMENT_H

#include "quant/run/block_job.h"

/* The options' device, if it can solve all linears that wait for these sites, or NULL. What
 * keeps outliers is solved in memory. */
sw_solver *sw_place_solver(const sw_block_job *job, const bool wanted[SW_SITE_COUNT]);

/* Streams on the options' device where everything can be; in memory otherwise, and `progress` says
 * why. */
sw_code sw_place_streams(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, const sw_progress *progress,
                         sw_err *err) SW_MUST_USE;

#endif
