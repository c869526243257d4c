/* row_work.h - a solver's rows, worked on in pieces by several threads.
 *
 * Rows of a weight are independent given the Hessian. A piece is a slab's worth of them; what the
 * pieces cost is added up in row order, so that figures do not depend on the number of threads.
 */
#ifndef SW_QUANT_METHOD_ROW_WORK_H
#define SW_QUANT_METHOD_ROW_WORK_H

#include "quant/method/algo.h"
#include "quant/method/slab.h"

/* Memory of one thread, which all of its pieces use in turn: new memory for each would take longer
 * to be cleared than plain rounding takes. Zeroed at first; what solver needs something of it gets
 * it once; sw_rows_solve frees it. What is in it may depend on the pieces before. */
typedef struct sw_row_space {
    sw_slab slab;
    double *more;
} sw_row_space;

/* Solve rows [row0, row0 + n_rows), at most SW_SLAB_ROWS; out is zeroed. Pieces run at once, so
 * what ctx points to may change in these rows alone. */
typedef sw_code (*sw_rows_fn)(sw_row_figures *out, sw_row_space *space, const void *ctx,
                              int64_t row0, int64_t n_rows, sw_err *err);

/* All n_out rows; *sum is set on success. The first piece's failure is the call's. by_row [n_out]
 * or NULL: what a piece costs, at its first row. */
sw_code sw_rows_solve(sw_row_figures *sum, sw_row_figures *by_row, sw_rows_fn fn, const void *ctx,
                      int64_t n_out, int n_threads, sw_err *err) SW_MUST_USE;

/* Figures of n rows, in their order. */
sw_row_figures sw_rows_sum(const sw_row_figures *by_row, int64_t n);
/* The report's power, error and error_rtn; 0 for a weight that does nothing. */
void sw_rows_report(sw_solve_report *report, const sw_row_figures *sum);

#endif
