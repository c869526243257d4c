/* side.h - arrays of floats that a search tries things on: in memory, or on the device that the
 * streams are on. The same steps on either; what sums leave in the last digits may differ.
 */
#ifndef SW_QUANT_SEARCH_SIDE_H
#define SW_QUANT_SEARCH_SIDE_H

#include "kernels/kernel.h"
#include "kernels/solver.h"

typedef struct sw_side {
    sw_solver *solver; /* NULL: in memory */
    int n_threads;
} sw_side;

/* n floats there. */
sw_code sw_side_take(float **out, const sw_side *side, int64_t n, const char *what,
                     sw_err *err) SW_MUST_USE;
void sw_side_put(const sw_side *side, float *values); /* accepts NULL */
/* A copy there of n floats in memory. */
sw_code sw_side_copy(float **out, const sw_side *side, const float *from, int64_t n,
                     const char *what, sw_err *err) SW_MUST_USE;

/* to [n, k] = from with column j times (or divided by) scale [k], in memory, as a double; a NULL
 * scale changes nothing. `to` may be `from`. */
sw_code sw_side_scale(const sw_side *side, float *to, const float *from, const double *scale,
                      int64_t n, int64_t k, bool divides, sw_err *err) SW_MUST_USE;
/* by_row [n], in memory, += the squared distance of the rows of have and want [n, width]; want
 * NULL: from 0. */
sw_code sw_side_errors(const sw_side *side, double *by_row, const float *have, const float *want,
                       int64_t n, int64_t width, sw_err *err) SW_MUST_USE;
/* y [n, w->n_out] = x [n, w->k_in] w^T, dense floats, x rounded as w->act says. The scratch is for
 * memory alone. */
sw_code sw_side_multiply(const sw_side *side, float *y, const float *x, int64_t n,
                         const sw_weight *w, sw_scratch *scratch, sw_err *err) SW_MUST_USE;

#endif
