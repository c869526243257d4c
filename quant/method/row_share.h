/* row_share.h - which rows of a weight each of several ranks solves.
 *
 * Rows are independent given the factor, which every rank has, so a cut changes no byte as long as
 * it keeps together what shares scales and what a backend solves together. Pure functions.
 */
#ifndef SW_QUANT_METHOD_ROW_SHARE_H
#define SW_QUANT_METHOD_ROW_SHARE_H

#include "quant/method/algo.h"

/* Rows [begin, end) of a weight; may be none. */
typedef struct sw_rows {
    int64_t begin, end;
} sw_rows;

/* Those of the problem that are a rank's. Rank 0 has some, and all where they depend on others. */
sw_rows sw_share_rows(const sw_solve_problem *p, int rank, int n_ranks);
/* The same of n_out rows that are cut at multiples of `unit`. */
sw_rows sw_share_rows_by(int64_t unit, int64_t n_out, int rank, int n_ranks);

#endif
