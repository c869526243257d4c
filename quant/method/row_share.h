/* row_share.h - which rows of weights each of several ranks solves.
 *
 * Rows are independent given the factor, which every rank has, so a cut changes no byte as long as
 * it keeps together what shares scales and what a backend solves together: a piece. Linears that
 * read one site are solved side by side, and a row of each costs the same, for they have as many
 * inputs. So their pieces are laid in one row, linear after linear, and every rank has a stretch of
 * it. No stretch is longer than has to be for so many ranks: the least that is enough is searched
 * for, and filled from the front. Where a part of every linear makes no rank busier than that, each
 * has such parts instead: linears of a rank are solved beside each other, and hide what each of
 * them waits for. Pure functions.
 */
#ifndef SW_QUANT_METHOD_ROW_SHARE_H
#define SW_QUANT_METHOD_ROW_SHARE_H

#include "quant/backend.h"

/* Rows [begin, end) of a weight; may be none. */
typedef struct sw_rows {
    int64_t begin, end;
} sw_rows;

/* A linear of a site: its rows, cut at multiples of `unit`. */
typedef struct sw_share_linear {
    int64_t n_out, unit; /* the former may be 0: it is not of the site */
} sw_share_linear;

/* Rows that are cut together: those of the backend, those that share scales, or all. */
int64_t sw_share_unit(const sw_qspec *spec, int64_t n_out, const sw_backend *backend);

/* The cut of a site; zeroed: of one rank. */
typedef struct sw_site_share {
    const sw_share_linear *linears; /* [n] borrowed */
    int64_t n;
    int n_ranks;
    bool is_by_linear; /* every rank has a part of each linear, */
    int64_t most;      /* else a stretch of all; rows of the rank that has most */
} sw_site_share;

sw_site_share sw_site_share_of(const sw_share_linear *linears, int64_t n, int n_ranks);
/* Rows of linear i that are a rank's. */
sw_rows sw_site_share_rows(const sw_site_share *share, int64_t i, int rank);
/* The first rank that has rows of linear i. */
int sw_site_share_first(const sw_site_share *share, int64_t i);
/* What the rank with most rows has of all of them: 1 / n_ranks at best. */
double sw_site_share_busiest(const sw_site_share *share);

#endif
