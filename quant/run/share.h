/* share.h - what each rank of a team does of solving weights, and how all get what each has done.
 *
 * Rows of a weight are independent given the factor, which every rank has: each solves some, and
 * the codes travel, a byte a weight. What rows have in common is settled before, from the whole
 * weight (frame.h), so a cut changes no byte. A team of NULL is one rank, which does everything.
 */
#ifndef SW_QUANT_RUN_SHARE_H
#define SW_QUANT_RUN_SHARE_H

#include "quant/method/row_share.h"
#include "quant/method/target.h"

struct sw_team;

/* A Hessian whose R begins with these rows of a weight of n_out; borrows the arrays. */
sw_hessian sw_share_hessian(const sw_hessian *hess, sw_rows rows, int64_t n_out);

/* Solves this rank's rows of the problem, gets the others', and adds up the figures. shift: what
 * the problem aims at, of this rank's rows. */
sw_code sw_share_solve(sw_qtensor *q, const sw_solve_problem *p, const double *shift,
                       sw_code (*solve)(sw_qtensor *q, const sw_solve_problem *p, void *self,
                                        sw_solve_report *report, sw_err *err),
                       void *self, sw_solve_report *report, struct sw_team *team,
                       sw_err *err) SW_MUST_USE;
/* How far a weight w's target follows the cross terms (target.h), each rank of its rows. */
sw_code sw_share_strengths(sw_strengths *out, const sw_factor *factor, const sw_hessian *seen,
                           const sw_hessian *held, const float *w, int64_t n_out,
                           sw_strengths cap, struct sw_team *team, sw_err *err) SW_MUST_USE;

/* A tensor, allocated with its spec and shape at every rank, and how it was solved, from one rank
 * to all. `report` may be NULL. */
sw_code sw_share_tensor(sw_qtensor *q, sw_solve_report *report, int from, struct sw_team *team,
                        sw_err *err) SW_MUST_USE;

#endif
