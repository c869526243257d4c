/* plausible_case.h - weights for the judge of plausible ones: solved, stored, decoded, judged. */
#ifndef SW_TESTS_SUPPORT_CASES_PLAUSIBLE_CASE_H
#define SW_TESTS_SUPPORT_CASES_PLAUSIBLE_CASE_H

#include "quant/method/algo.h"
#include "verify/checks/plausible.h"

/* w [n_out, k_in] by GPTQ with one round of refinement, or (stats NULL) rounded to the nearest.
 * Freed by sw_qtensor_free. */
void plausible_solve(sw_qtensor *q, const sw_qspec *spec, const float *w, int64_t n_out,
                     int64_t k_in, const sw_hessian *stats);
/* What the judge says of it as `dialect` stores it, and its figures. */
void plausible_judge(char why[SW_PLAUSIBLE_TEXT_BYTES], sw_report_tensor *figures,
                     const sw_qtensor *q, const char *dialect, const float *original);

#endif
