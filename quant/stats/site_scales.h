/* site_scales.h - what the inputs of a block were divided by since their statistics were taken.
 *
 * A fold (transform.h) divides the channels of a site by a scale. Statistics that were stored
 * before it still serve: H of x / s is H_ij / (s_i s_j), and the largest |x_j / s_j| is a
 * division as well, both exact.
 */
#ifndef SW_QUANT_STATS_SITE_SCALES_H
#define SW_QUANT_STATS_SITE_SCALES_H

#include "quant/stats/streams.h"

/* Zero-initialise: nothing is divided. */
typedef struct sw_site_scales {
    double *scale[SW_SITE_COUNT]; /* [n, k], or NULL */
    int64_t n[SW_SITE_COUNT], k[SW_SITE_COUNT]; /* n: experts with scales of their own, or 1 */
} sw_site_scales;

/* Divide the inputs of a site by scale [k] too: of one expert of n_experts, or (-1) of all. */
sw_code sw_site_scales_add(sw_site_scales *scales, sw_site site, int64_t expert, int64_t n_experts,
                           const double *scale, int64_t k, sw_err *err) SW_MUST_USE;
void sw_site_scales_free(sw_site_scales *scales); /* accepts a zeroed one */

/* [k] of an expert's inputs (-1: of what is not an expert's); NULL: not divided. */
const double *sw_site_scales_of(const sw_site_scales *scales, sw_site site, int64_t expert);

/* Bring finished Hessians, of the sites and experts that `stats` holds, to the divided inputs. */
void sw_site_scales_apply(sw_site_stats *stats, const sw_site_scales *scales);

#endif
