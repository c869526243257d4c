/* text_share.h - what of a calibration text ranks have (pieces.h), and which sums of it go between
 * them: for forecast.c. Pure functions.
 */
#ifndef SW_QUANT_RUN_TEXT_SHARE_H
#define SW_QUANT_RUN_TEXT_SHARE_H

#include "formats/model/model.h"
#include "quant/options.h"

/* Pieces that the text is summed in. */
int64_t sw_text_pieces(const sw_model *model, const sw_calib *calib);
/* What of it the busiest rank runs. */
double sw_text_share_most(const sw_model *model, const sw_calib *calib, int n_ranks);
/* How many sums of a site go into the busiest rank and out of it (quant/stats/sums_all.c).
 * with_held: those of tokens that are kept back are apart. */
double sw_text_sums_between(const sw_model *model, const sw_calib *calib, int n_ranks,
                            bool with_held);

#endif
