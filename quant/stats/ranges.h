/* ranges.h - how large the inputs of linears get: scales that are stored with the weight.
 *
 * A format with one scale for all tokens needs it before the first of them comes. Magnitudes are
 * counted in a histogram of steps of 1/32 octave, over the quantized stream, and then
 *  - an integer's scale minimizes the squared error over a grid of clipped ranges: each value
 *    below the clip errs by step^2 / 12, each above by what is cut off;
 *  - a small float's is the largest magnitude over its top (its error is relative: clipping gains
 *    nothing);
 *  - NVFP4's global input scale maps the largest magnitude onto the largest block scale.
 */
#ifndef SW_QUANT_STATS_RANGES_H
#define SW_QUANT_STATS_RANGES_H

#include "quant/stats/streams.h"

#define SW_RANGE_BINS 2048 /* 64 octaves: 2^-40 to 2^24 */

/* Zero-initialise. */
typedef struct sw_range {
    double amax;
    int64_t counts[SW_RANGE_BINS];
} sw_range;

void sw_range_add(sw_range *range, const float *x, int64_t n);
/* n times the same magnitude, above 0; for amax it does not count. */
void sw_range_add_many(sw_range *range, float magnitude, int64_t n);

/* Counts and maxima of all ranks, which any order gives alike, at all of them. Every rank calls
 * it. */
sw_code sw_ranges_gather(sw_range ranges[SW_SITE_COUNT], struct sw_team *team,
                         sw_err *err) SW_MUST_USE;
/* The ranges of the wanted sites, where the quantized stream is; experts share one. */
sw_code sw_ranges_find(sw_range ranges[SW_SITE_COUNT], sw_streams *streams,
                       const bool is_wanted[SW_SITE_COUNT], const sw_block *block,
                       const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* input_scale of sw_qtensor for what the range saw; 1 when it saw only zeros. */
float sw_range_scale(const sw_range *range, const sw_act *act);

/* How the linears of the wanted sites will round their inputs, into stats->act, and the scales that
 * some store, into stats->input_scale and input_scale [SW_SITE_COUNT]: from the quantized stream
 * where it is, up to the last such site; experts share one. linears and specs [n]. */
sw_code sw_inputs_settle(float *input_scale, sw_site_stats *stats, sw_streams *streams,
                         const sw_linear_ref *linears, const sw_qspec *specs, int64_t n,
                         const sw_block *quantized, const sw_progress *progress,
                         sw_err *err) SW_MUST_USE;

#endif
