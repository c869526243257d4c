/* gates.h - how much of its state a recurrent mixer keeps from one token to the next.
 *
 * Two steps that all of them share: softplus and the decay exp(-exp(A_log) * step). Both are
 * computed in double and rounded once, so that no C library's float versions reach a result.
 */
#ifndef SW_KERNELS_ENGINE_MIXERS_GATES_H
#define SW_KERNELS_ENGINE_MIXERS_GATES_H

#include <math.h>

#define SW_SOFTPLUS_LINEAR 20.0 /* from here on ln(1 + e^x) is x to float precision */

/* ln(1 + e^x) */
static inline double sw_softplus(double x)
{
    return x > SW_SOFTPLUS_LINEAR ? x : log1p(exp(x));
}

/* exp(-exp(a_log) * step) for a step of 0 or more: between 0 and 1 */
static inline float sw_decay(double a_log, double step)
{
    return (float)exp(-exp(a_log) * step);
}

#endif
