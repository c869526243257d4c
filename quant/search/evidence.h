/* evidence.h - whether a change is better, or only looked better on the text it was judged by.
 *
 * Text is cut into pieces of a few tokens, and each piece's squared error is taken with and
 * without the change. Both saw the same tokens, so what a piece is hard by cancels in the
 * difference, and the differences' standard error tells how far their mean can be chance. A gain
 * must exceed a multiple of it, and what the change was not chosen by must gain on its own.
 *
 * Differences are taken piece by piece, and window by window: many pieces tell small gains from
 * none; but where most of a gain is in the one token of a window that all others attend to, only
 * windows are alike. Either will do.
 */
#ifndef SW_QUANT_SEARCH_EVIDENCE_H
#define SW_QUANT_SEARCH_EVIDENCE_H

#include <stdbool.h>

#include "formats/base/mem.h"

#define SW_EVIDENCE_TOKENS 8 /* of a piece: neighbours share much of what they attend to */

/* Windows that the change was chosen by come first, those held out after them. */
typedef struct sw_evidence {
    double *before, *after; /* [n] sums of squared errors of each piece */
    int64_t n, n_chosen_by; /* n_chosen_by: pieces that are not held out */
    int64_t n_windows;      /* that the pieces are of, in order and about evenly */
} sw_evidence;

typedef struct sw_verdict {
    bool is_better;
    double before, after;   /* sums over the pieces held out */
    double standard_errors; /* the gain of all in units of its standard error; 0 without a spread */
} sw_verdict;

/* Zeroed pieces for so many tokens. */
sw_code sw_evidence_new(sw_evidence *out, int64_t n_tokens_chosen_by, int64_t n_tokens_held,
                        int64_t n_windows, sw_err *err) SW_MUST_USE;
void sw_evidence_free(sw_evidence *e); /* accepts a zeroed one */

/* Add to pieces the squared error of each token, in the text's order. */
void sw_evidence_add(double *pieces, const double *by_token, int64_t n_tokens);

sw_verdict sw_evidence_judge(const sw_evidence *e);

#endif
