/* weight_rows.h - weights into floats and back, their rows on several threads. */
#ifndef SW_QUANT_METHOD_WEIGHT_ROWS_H
#define SW_QUANT_METHOD_WEIGHT_ROWS_H

#include "kernels/kernel.h"

/* w [n_out, k_in] = the values of a dense weight. SW_E_FORMAT names the first element that is not
 * finite. */
sw_code sw_weight_load(float *w, const sw_weight *dense, int64_t n_out, int64_t k_in,
                       int n_threads, sw_err *err) SW_MUST_USE;
/* The same of all its rows, 0 in the place of what is not finite: for what only looks at weights,
 * and leaves it to the solver to name such an element. */
sw_code sw_weight_load_finite(float *w, const sw_weight *dense, int n_threads,
                              sw_err *err) SW_MUST_USE;
/* Rows [first, first + n) of it alone: w [n, k_in]. */
sw_code sw_weight_load_finite_rows(float *w, const sw_weight *dense, int64_t first, int64_t n,
                                   sw_err *err) SW_MUST_USE;
/* size [k_in] = the largest magnitude of each column that is finite, or what was there if it is
 * larger. */
sw_code sw_weight_column_sizes(double *size, const sw_weight *dense, int n_threads,
                               sw_err *err) SW_MUST_USE;
/* The same as they are stored, row i divided by rows [n_out] or column j times cols [k_in], as
 * doubles and rounded once; the other is NULL. */
sw_code sw_weight_load_scaled(float *w, const sw_weight *dense, const double *rows,
                              const double *cols, int n_threads, sw_err *err) SW_MUST_USE;
/* w [n_out, k_in] = what q's codes mean. */
void sw_weight_decode(float *w, const sw_qtensor *q, int n_threads);
/* The same rounded to BF16, in place: the first half of w's bytes. */
void sw_weight_decode_bf16(float *w, const sw_qtensor *q, int n_threads);

#endif
