/* nearest.h - was a weight rounded to the nearest codes, all but some of them?
 *
 * Compensation (GPTQ, a descent of codes) takes a further code where that repairs errors made
 * elsewhere in the row. Whether a weight was compensated is told by weights that lie far from
 * every code: there a small push decides. One that lies on a code, as most do where the original
 * came out of codes itself, takes that code by any method, so it is no sign of plain rounding.
 *
 *   told     weights more than a quarter of a step from the nearest code. Of a plainly rounded
 *            weight at least 98.4 % have the nearest one (all, unless scales were rounded after the
 *            codes were chosen), of a compensated one at most 90 %, whatever its original was.
 *   exact    channels in which every weight lies on a code. Rounding leaves nothing to repair
 *            there; only what a method makes good for linears before it moves a code, by a step.
 */
#ifndef SW_VERIFY_CHECKS_NEAREST_H
#define SW_VERIFY_CHECKS_NEAREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many codes are further away than rounding to the nearest leaves, and the first of them. */
typedef struct sw_nearest_far {
    int64_t n, at_n, at_k; /* channel, input */
} sw_nearest_far;

/* Begins as zeros; weights are added channel by channel. */
typedef struct sw_nearest {
    int64_t n, n_nearest;
    int64_t n_told, n_told_nearest;
    sw_nearest_far outliers;            /* in all channels */
    int64_t n_exact, n_exact_nearest;   /* weights in exact channels */
    sw_nearest_far strays;              /* in exact channels, by more than a step */
    int64_t row_n, row_nearest;         /* of the channel so far */
    bool row_is_inexact;
    sw_nearest_far row_strays;
} sw_nearest;

/* A weight of channel n, input k, `steps` of its code's grid from the code that it has. `slack`:
 * steps by which `steps` may be wrong (an original that was rescaled); is_clipped: at an end of
 * the grid, with no code nearer. */
void sw_nearest_add(sw_nearest *t, int64_t n, int64_t k, double steps, double slack,
                    bool is_clipped);

/* The same of inputs k to k + n_inputs of a channel. levels[]: the codes', in steps of their scale;
 * sizes[]: of the steps about them; an input's slack is `slack` times their quotient. */
typedef struct sw_nearest_run {
    const double *steps, *sizes;
    const float *levels;
    float lowest, highest; /* levels of the ends of the grid */
    double slack;
    int64_t n_inputs;
} sw_nearest_run;
void sw_nearest_add_run(sw_nearest *t, int64_t n, int64_t k, const sw_nearest_run *run);

void sw_nearest_end_row(sw_nearest *t);

/* why[size] becomes empty, or one sentence on the first code that the rest of a plainly rounded
 * weight, or of exact channels, leaves no reason for. */
void sw_nearest_check(char *why, size_t size, const sw_nearest *t);

#endif
