/* text_share.h - what of a calibration text a run follows the original model through (followed.h),
 * what of it ranks have (pieces.h), and which sums of it go between them. Pure functions.
 */
#ifndef SW_QUANT_RUN_TEXT_SHARE_H
#define SW_QUANT_RUN_TEXT_SHARE_H

#include "formats/model/model.h"
#include "quant/options.h"

/* SW_FOLLOW_NONE where the method has no use for the original model, or the text is too short. */
sw_follow sw_text_follow(const sw_quant_options *options, const sw_calib *calib);
/* Pieces that the text is summed in. */
int64_t sw_text_pieces(const sw_model *model, const sw_calib *calib);
/* What of it the busiest rank runs. */
double sw_text_share_most(const sw_model *model, const sw_calib *calib, int n_ranks);
/* How many sums of a site go into the busiest rank and out of it (quant/stats/sums_all.c): those of
 * tokens that are kept back are apart, and of what is not followed none is. */
double sw_text_sums_between(const sw_model *model, const sw_calib *calib, int n_ranks,
                            sw_follow follow);

#endif
