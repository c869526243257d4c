/* outliers.h - the few input channels that rounding hurts most, kept as half floats.
 *
 * Which: those with the largest H_kk |w_k - Q(w_k)|^2, the second-order cost of rounding a whole
 * column alone (OWQ, Lee et al., arXiv 2306.02272, section 3; SpQR, Dettmers et al., arXiv
 * 2306.03078, keeps single weights by the same measure). Whole columns cost one index each and
 * run as a small dense product.
 *
 * The other columns are solved with these taken out: codes of the kept stay at the zero point,
 * their error is none, and nothing is spread from or to them. Afterwards they make good what the
 * others leave: with e the error of the others, their values move by -inv(H_oo) H_oq e, the
 * least-squares optimum, before they are rounded to F16. The others know that beforehand, since
 * they are solved under what is then left of H, the Schur complement of the kept columns.
 */
#ifndef SW_QUANT_SEARCH_OUTLIERS_H
#define SW_QUANT_SEARCH_OUTLIERS_H

#include "quant/method/algo.h"

typedef sw_code (*sw_solve_fn)(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                               sw_err *err);

/* Solve with p->spec.n_outliers columns kept, or just solve when that is 0; q is allocated with
 * that spec. The report's figures are of the whole weight, error_rtn without any column kept.
 * Without a factor the columns of the largest rounding error stay as they are. Errors as `solve`;
 * SW_E_FORMAT for a weight beyond half precision. */
sw_code sw_outliers_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_fn solve,
                          sw_solve_report *report, sw_err *err) SW_MUST_USE;

#endif
