/* sums.h - the sums of pieces of a text on their way to the sums of all of it (pieces.h).
 *
 * On one rank a sum per run of pieces, each freed when it has joined another; those that are left
 * are settled when the last piece has been summed. Of several ranks somebody gets the runs of all
 * and adds them in the same order: those of an expert its owner, which keeps the result; of a site
 * every rank a stretch, which then goes to all (sums_all.c).
 */
#ifndef SW_QUANT_STATS_SUMS_H
#define SW_QUANT_STATS_SUMS_H

#include "quant/carrier.h"
#include "quant/stats/pieces.h"
#include "quant/stats/site_stats.h"

/* Set stats, n_pieces and, where it is wanted, is_for_all; zero the rest. */
typedef struct sw_sums {
    sw_site_stats *stats; /* new; of the first run, and in the end of all */
    int64_t n_pieces;     /* of the text */
    bool is_for_all;      /* sums of experts go to all ranks too, who keep them */
    int n;                /* runs that are here */
    sw_piece_run runs[SW_PIECES_MAX];
    sw_site_stats *parts[SW_PIECES_MAX]; /* [n] owned but for the first, which is `stats` */
} sw_sums;

/* *part: what the next piece of this rank is to be summed into, lent until sw_sums_end: new, or
 * what the pieces before it were summed into, where its backend adds pieces. */
sw_code sw_sums_begin(sw_site_stats **part, sw_sums *sums, int64_t piece,
                      sw_err *err) SW_MUST_USE;
/* The piece is summed, and ended where it lies (streams_observe) or settled. */
sw_code sw_sums_end(sw_sums *sums, sw_err *err) SW_MUST_USE;
/* All pieces of this rank are: let `stats` be that of the whole text. Every rank of the carrier's
 * team calls it. */
sw_code sw_sums_gather(sw_sums *sums, sw_carrier *carrier, sw_err *err) SW_MUST_USE;
void sw_sums_free(sw_sums *sums); /* all but `stats`; accepts a zeroed one */

/* What is said of a sum before its arrays. */
typedef struct sw_sum_head {
    int64_t n_tokens, is_weighed;
} sw_sum_head;

/* For sums.c: mine [n_mine] are this rank's sums of its runs of the text's n_pieces, settled, which
 * are used up; the first may be `own`, which becomes that of the whole text at every rank. */
sw_code sw_sum_for_all(sw_hessian *own, sw_hessian *const *mine, int n_mine, int64_t n_pieces,
                       const sw_carrier *carrier, sw_err *err) SW_MUST_USE;
/* The same of all sums of experts: each becomes that of the whole text at its owner. */
sw_code sw_sums_for_owners(sw_sums *sums, const sw_carrier *carrier, sw_err *err) SW_MUST_USE;

/* The rank that solves an expert. */
int sw_sums_owner(int64_t expert, int n_ranks);

#endif
