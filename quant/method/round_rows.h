/* round_rows.h - plain rounding to integers, a row at a time as the weight lies in memory.
 *
 * The same numbers as slabs give (grid.h), operation for operation, without turning a weight into
 * columns and back: nothing here looks at more than one group of one row.
 */
#ifndef SW_QUANT_METHOD_ROUND_ROWS_H
#define SW_QUANT_METHOD_ROUND_ROWS_H

#include "quant/method/algo.h"
#include "quant/method/frame.h"

/* Whether it serves: integers with the range of their own group, every input as important as the
 * next, and nobody who asks for output errors. */
bool sw_round_rows_serves(const sw_solve_problem *p, const sw_frame *frame);

/* Codes, scales and zeros of rows [row0, row0 + n_rows) of q from p->w [n_out, k_in]. Allocates
 * nothing; threads may share q if their rows differ. */
void sw_round_rows(sw_qtensor *q, const sw_solve_problem *p, int64_t row0, int64_t n_rows);

#endif
