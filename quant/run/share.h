/* share.h - what each rank of a team does of solving weights, and how all get what each has done.
 *
 * Rows of a weight are independent given the factor, which every rank has: each solves some
 * (row_share.h), and the codes travel, a byte a weight. What rows have in common is settled before,
 * from the whole weight (frame.h), so a cut changes no byte. First all solve what is theirs of the
 * linears of a site, then they speak to each other.
 */
#ifndef SW_QUANT_RUN_SHARE_H
#define SW_QUANT_RUN_SHARE_H

#include "quant/method/algo.h"
#include "quant/method/row_share.h"
#include "quant/method/target.h"

struct sw_team;

/* A Hessian whose R begins with these rows of a weight of n_out; borrows the arrays. */
sw_hessian sw_share_hessian(const sw_hessian *hess, sw_rows rows, int64_t n_out);

/* Solves these rows of the problem; figures [p->n_out] or NULL: what they cost, each. shift: what
 * the problem aims at, of these rows. */
sw_code sw_share_solve(sw_qtensor *q, const sw_solve_problem *p, sw_rows rows,
                       sw_row_figures *figures, const double *shift,
                       sw_code (*solve)(sw_qtensor *q, const sw_solve_problem *p, void *self,
                                        sw_solve_report *report, sw_err *err),
                       void *self, sw_solve_report *report, sw_err *err) SW_MUST_USE;
/* A linear of a site: its number there, what it is in codes, what its rows cost (or NULL), and how
 * it was solved. */
typedef struct sw_share_item {
    int64_t linear;
    sw_qtensor *q;
    sw_row_figures *figures;
    sw_solve_report *report;
} sw_share_item;
/* What every rank has solved of n linears of a site, to all, with the figures of the whole. Every
 * rank calls it. */
sw_code sw_share_gather(const sw_share_item *items, int64_t n, const sw_site_share *share,
                        struct sw_team *team, sw_err *err) SW_MUST_USE;
/* The forms (target.h) of all ranks' rows of n linears of a site, forms[linear[i]], to all. */
sw_code sw_share_gather_forms(double (*const *forms)[5], const int64_t *linear, int64_t n,
                              const sw_site_share *share, struct sw_team *team,
                              sw_err *err) SW_MUST_USE;

/* A tensor that rank `from` has, and how it was solved (or NULL); allocated with its spec and shape
 * at every rank. */
typedef struct sw_share_whole {
    sw_qtensor *q;
    sw_solve_report *report;
    int from;
} sw_share_whole;
/* n of them to all ranks, in one go. Every rank calls it with the same list. */
sw_code sw_share_tensors(const sw_share_whole *items, int64_t n, struct sw_team *team,
                         sw_err *err) SW_MUST_USE;

#endif
