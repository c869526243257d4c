/* experts_device.h - experts.h where the sums live on a device. For experts.c alone. */
#ifndef SW_QUANT_DEVICE_EXPERTS_DEVICE_H
#define SW_QUANT_DEVICE_EXPERTS_DEVICE_H

#include "quant/stats/experts.h"

/* Of the mean diagonal: directions that calibration never saw count little. */
#define SW_PRIOR_DAMP 0.01

/* What a prior without a factor fails with. */
sw_code sw_prior_indefinite(sw_err *err) SW_MUST_USE;
sw_code sw_prior_new_there(sw_prior *out, const sw_hessian *all, sw_err *err) SW_MUST_USE;
/* |A|^2, |B|^2 and <A, B> of the halves' differences from the prior, where the prior is the
 * identity, all times one number. */
sw_code sw_prior_compare_there(double form[3], const sw_prior *prior, const sw_hessian half[2],
                               sw_err *err) SW_MUST_USE;
/* half[0] <- own (half[0] + half[1]) + every all */
sw_code sw_expert_blend_there(sw_hessian half[2], const sw_hessian *all, double own, double every,
                              sw_err *err) SW_MUST_USE;

#endif
