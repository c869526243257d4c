/* rounding.h - solving the rows of a weight in memory, each method on slabs of rows. */
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

/* The rows of a problem in memory by rtn.c, clip.c and gptq.c. The report gets the errors alone. */
sw_code sw_rtn_rows(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                    sw_err *err) SW_MUST_USE;
sw_code sw_clip_rows(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err) SW_MUST_USE;
sw_code sw_gptq_rows(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err) SW_MUST_USE;
/* Does GPTQ fit the scales of a group when the sweep reaches it? */
bool sw_gptq_refits(const sw_solve_problem *p);

#endif
