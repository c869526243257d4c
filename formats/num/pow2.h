/* pow2.h - scales that are powers of two, for a block whose largest magnitude is a.
 *
 *   FLOOR  2^(floor(log2 a) - e), e = floor(log2 top): the largest values saturate
 *          (OCP Microscaling 1.0, section 6.3)
 *   ROUND  as FLOOR, one higher when a has a mantissa >= 1.75: for e2m1, below 7 is cut to 6
 *          (compressed-tensors)
 *   CEIL   the smallest with a / s <= top                 nothing saturates
 *
 * Zero gives 1. Results stay within 2^-126 .. 2^127, normal floats and E8M0 values.
 */
#ifndef SW_FORMATS_NUM_POW2_H
#define SW_FORMATS_NUM_POW2_H

#include "formats/num/num.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_pow2_rule {
    SW_POW2_FLOOR, SW_POW2_ROUND, SW_POW2_CEIL, SW_POW2_COUNT
} sw_pow2_rule;

/* Names, for 1 + rule as in sw_qspec: "best", "ocp", "round", "ceil"; NULL beyond. */
const char *sw_pow2_rule_name(int i);

float sw_pow2_scale_by(float a, const sw_num *num, sw_pow2_rule rule);

/* The rule for activations: ROUND for e2m1, where a little saturation pays; CEIL for the rest. */
float sw_pow2_scale(float a, const sw_num *num);
/* That of a weight: the spec's, or where it leaves that to a search the one above to begin with. */
float sw_pow2_weight_scale(float a, const sw_qspec *spec);

#ifdef __cplusplus
}
#endif
#endif
