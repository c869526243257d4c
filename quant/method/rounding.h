/* rounding.h - solving by rounding to nearest, with scales fitted in whatever way. */
#ifndef SW_QUANT_METHOD_ROUNDING_H
#define SW_QUANT_METHOD_ROUNDING_H

#include "quant/method/algo.h"
#include "quant/method/slab.h"

/* Sets scales and zeros of a slab whose target is loaded and that was rounded plainly. */
typedef sw_code (*sw_fit_fn)(sw_slab *slab, const sw_solve_problem *p, sw_err *err);

/* Fit (NULL: plainly) and round slab by slab. With a factor the report holds the output error of
 * the result and of plain rounding, otherwise -1. */
sw_code sw_round_solve(sw_qtensor *q, const sw_solve_problem *p, sw_fit_fn fit,
                       sw_solve_report *report, sw_err *err) SW_MUST_USE;

#endif
