/* window_sums.h - what residual.c sums over windows of a weight, for all windows of one length.
 *
 * Windows begin at every half of their length, so those of 2b inputs are sums of two of b inputs:
 * from quads of inputs on, each length costs half of the one before it. Over the inputs of some
 * rows together they come from the sums of these rows.
 */
#ifndef SW_VERIFY_CHECKS_WINDOW_SUMS_H
#define SW_VERIFY_CHECKS_WINDOW_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

/* Over a window of weights w with errors e and noise s: of e^2 / s^2, w e, w^2 and w^2 s^2. */
typedef enum sw_window_sum {
    SW_WINDOW_EXCESS, SW_WINDOW_LOST, SW_WINDOW_POWER, SW_WINDOW_NOISE, SW_WINDOW_SUMS
} sw_window_sum;

#define SW_WINDOW_QUAD 4 /* inputs of the shortest window of several */

typedef struct sw_windows_of {
    double *at[SW_WINDOW_SUMS]; /* [n] each, one block that begins at at[0] */
    int64_t n;
} sw_windows_of;

/* Zeros. Freed by sw_windows_of_free, which accepts a zeroed one. */
sw_code sw_windows_of_new(sw_windows_of *out, int64_t n, sw_err *err) SW_MUST_USE;
void sw_windows_of_free(sw_windows_of *w);
void sw_windows_of_clear(sw_windows_of *w);

/* Of single weights, out->n of them: original[], err[] and noise2[], its squares. An error where
 * there can be none has an excess of `no_noise`. */
void sw_windows_of_row(sw_windows_of *out, const float *original, const double *err,
                       const double *noise2, double no_noise);
/* to += from, of as many. */
void sw_windows_of_add(sw_windows_of *to, const sw_windows_of *from);
/* Quads of single inputs; what is left over belongs to none. */
void sw_windows_of_quads(sw_windows_of *to, const sw_windows_of *inputs);
/* Windows of twice the length, `to->n` of them, that begin at every `step`-th of `from`: 1 for
 * quads, 2 for others. */
void sw_windows_of_doubled(sw_windows_of *to, const sw_windows_of *from, int64_t step);
void sw_windows_of_total(double out[SW_WINDOW_SUMS], const sw_windows_of *inputs);

/* Is any excess beyond `excess_max`, or any lost part of the power beyond `loss_max`? Some that are
 * just below may count. */
bool sw_windows_of_stand_out(const sw_windows_of *w, double excess_max, double loss_max);

#endif
