/* conversions.h - which schemes a dialect can take from another, and how well.
 *
 * Every checkpoint passes through the logical form (num.h). A dialect takes a weight exactly when
 * it can hold codes, scales, zero points and group index as they are. Where it cannot, the reason
 * is the dialect's own can_hold, and another scheme may be the nearest that it can hold; getting
 * there means rounding again, which is never done unasked.
 */
#ifndef SW_FORMATS_DIALECT_CONVERSIONS_H
#define SW_FORMATS_DIALECT_CONVERSIONS_H

#include "formats/dialect/dialect.h"

/* The scheme under which `target` holds such a weight with nothing changed: the source's own, or
 * one that says the same in other words (one group of all inputs is one group per channel; scales
 * that fit another dtype as well). *is_conditional: only if the weight's scales and zero points
 * are all of values that the scheme allows, see sw_conversion_check.
 * SW_E_UNSUPPORTED: the reason why not, with a remedy. */
sw_code sw_conversion_exact(sw_qspec *out, bool *is_conditional, const sw_qspec *source,
                            const sw_dialect *target, int64_t n_out, int64_t k_in,
                            sw_err *err) SW_MUST_USE;

/* The same from the *at-th way on, 0 being the first, for a caller whose weight is not one of the
 * conditional answer before; *at becomes the way after this one. */
sw_code sw_conversion_next(sw_qspec *out, bool *is_conditional, int *at, const sw_qspec *source,
                           const sw_dialect *target, int64_t n_out, int64_t k_in,
                           sw_err *err) SW_MUST_USE;

/* Whether the weight, as it is, is one of `spec` that the target takes: scales of its dtype, zero
 * points from its zero_min on, and what check_values asks. SW_E_UNSUPPORTED names the first value
 * that is not. */
sw_code sw_conversion_check(const sw_qtensor *q, const sw_dialect *target, const sw_qspec *spec,
                            sw_err *err) SW_MUST_USE;

/* The scheme nearest to `source` that the target can hold, among n candidates and, for integers,
 * their variations in group size and symmetry. Fewer bits count worst, then other inputs, another
 * kind of number, more bits, coarser groups, lost zero points. Schemes whose inputs need a scale
 * that only calibration can find are left out. SW_E_UNSUPPORTED: it can hold none of them. */
sw_code sw_conversion_nearest(sw_qspec *out, const sw_qspec *source, const sw_dialect *target,
                              const sw_qspec *candidates, int n_candidates, int64_t n_out,
                              int64_t k_in, sw_dtype model_dtype, sw_err *err) SW_MUST_USE;

#endif
