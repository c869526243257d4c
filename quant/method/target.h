/* target.h - what a linear of the quantized model should compute instead of its own weight.
 *
 * Fed with the quantized model's inputs x, W x repeats every error made upstream. The target
 * W + S does better: S = (a W D + b R) inv(H) lands, in the least-squares sense, as near as a
 * linear map of x can to what the original model computed (a; D relates its inputs to ours) and
 * makes good the error in the residual stream that the linear writes to (b; R relates that
 * error to x). The first term is GPTAQ's correction (Li et al., arXiv 2504.02692) solved
 * exactly; the second is ours. Both are regressions and can overfit, so a and b are not
 * settings: they minimize the error on calibration windows that the sums did not see.
 */
#ifndef SW_QUANT_METHOD_TARGET_H
#define SW_QUANT_METHOD_TARGET_H

#include "quant/method/factor.h"
#include "quant/method/row_sample.h"

/* The a and b, each in [0, cap], that minimize the held-out error of W + S, with S from `seen`
 * and the factor of seen + held, by every row. w [n_out, k_in]. R counts when it has n_out rows. */
sw_code sw_target_strengths(sw_strengths *out, const sw_factor *factor, const sw_hessian *seen,
                            const sw_hessian *held, const float *w, int64_t n_out,
                            sw_strengths cap, sw_err *err) SW_MUST_USE;

/* Rows that strengths are chosen by, of a linear that has more, and of one of many experts. Both
 * are regressions over rows, and two numbers come of them: figures of more rows only take time. */
#ifndef SW_STRENGTH_ROWS
#define SW_STRENGTH_ROWS 1024
#endif
#ifndef SW_STRENGTH_EXPERT_ROWS
#define SW_STRENGTH_EXPERT_ROWS 256
#endif

/* Those rows. */
sw_row_sample sw_strength_rows(int64_t n_out, bool is_expert);

/* The same in two steps: what each row of a sample adds to the held-out error, into by_row [rows of
 * the sample], zeroed, where of w [n_out, k_in] only the sample's rows have to be there; and the
 * choice, from n rows in their order. */
sw_code sw_target_forms(double (*by_row)[5], const sw_factor *factor, const sw_hessian *seen,
                        const sw_hessian *held, const float *w, const sw_row_sample *rows,
                        sw_strengths cap, sw_err *err) SW_MUST_USE;
sw_strengths sw_target_choose(double (*by_row)[5], int64_t n, const sw_hessian *seen,
                              const sw_hessian *held, sw_strengths cap);

/* Room for S at the place where the factor is. */
sw_code sw_target_shift_new(double **out, const sw_factor *factor, int64_t n_out,
                            sw_err *err) SW_MUST_USE;
void sw_target_shift_free(double *shift, const sw_factor *factor); /* accepts NULL */
/* shift [n_out, k_in] = S for these strengths; terms that `hess` does not hold count as zero. */
sw_code sw_target_shift(double *shift, const sw_factor *factor, const sw_hessian *hess,
                        const float *w, int64_t n_out, sw_strengths strengths,
                        sw_err *err) SW_MUST_USE;

#endif
