/* target_device.h - target.h where statistics and factor live on a device. For target.c alone. */
#ifndef SW_QUANT_DEVICE_TARGET_DEVICE_H
#define SW_QUANT_DEVICE_TARGET_DEVICE_H

#include "quant/method/target.h"

/* dd, dr, rr, d and r of the held-out error (target.c), over all rows of w [n_out, k_in]. */
sw_code sw_target_form_device(double form[5], const sw_factor *factor, const sw_hessian *seen,
                              const sw_hessian *held, const float *w, int64_t n_out,
                              bool with_residual, sw_err *err) SW_MUST_USE;
/* d_shift [n_out, k_in] */
sw_code sw_target_shift_device(double *d_shift, const sw_factor *factor, const sw_hessian *hess,
                               const float *w, int64_t n_out, sw_strengths strengths,
                               bool with_residual, sw_err *err) SW_MUST_USE;

#endif
