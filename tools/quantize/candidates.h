/* candidates.h - the schemes that a linear may become when they are chosen by what they cost.
 *
 * For a size (--target-bits): widths, group sizes and symmetries. For outliers by themselves
 * (--outliers auto): the scheme asked for with several shares of its inputs kept, and beside it
 * what bytes buy elsewhere, the next width and groups half as long, which set the price.
 */
#ifndef SW_TOOLS_QUANTIZE_CANDIDATES_H
#define SW_TOOLS_QUANTIZE_CANDIDATES_H

#include <stdbool.h>

#include "formats/num/num.h"

#define SW_CANDIDATES_MAX 32

typedef struct sw_candidates {
    sw_qspec specs[SW_CANDIDATES_MAX];
    double shares[SW_CANDIDATES_MAX]; /* of the inputs, kept as outliers */
    bool is_price[SW_CANDIDATES_MAX]; /* measured, not to be chosen */
    int64_t n;
} sw_candidates;

/* `share` of the inputs is kept whatever else is chosen; with_shares: few of low-bit weights' too,
 * where that serves better than the same bytes elsewhere. */
void sw_candidates_of_sizes(sw_candidates *out, const sw_qspec *base, bool keep_group,
                            bool keep_symmetry, double share, bool with_shares);
/* The first is the scheme asked for, without any outlier. */
void sw_candidates_of_shares(sw_candidates *out, const sw_qspec *base);

/* What a linear with k_in inputs becomes. */
sw_qspec sw_candidate_spec(const sw_candidates *c, int64_t at, int64_t k_in);

#endif
