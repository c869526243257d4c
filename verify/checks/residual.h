/* residual.h - is the error of a decoded weight that of rounding, everywhere in it?
 *
 * Damage to a small part of a weight hides in figures of the whole. Here the error of every
 * element is held against the noise that rounding leaves at its place: half a step of the grid,
 * and what error compensation carries over from the other inputs of its row, by so much as the
 * other rows show for that input. Sums over windows, from one element to whole rows, then show
 *
 *   excess   the mean of error^2 over noise^2, 1 where all is well
 *   loss     sum(w e) / sum(w^2), the share of the original w that is not there: 0 where all is
 *            well, 1 where codes are constant or belong elsewhere, 2 where signs are turned
 */
#ifndef SW_VERIFY_CHECKS_RESIDUAL_H
#define SW_VERIFY_CHECKS_RESIDUAL_H

#include "verify/decoders/decode_spec.h"

#define SW_RESIDUAL_TEXT_BYTES 320

/* why[] becomes empty when every window is plausible, else one sentence on the worst. `original`
 * is f32 [n_out, k_in], as are the values of w. Memory: some 100 rows of k_in doubles. */
sw_code sw_residual_check(char why[SW_RESIDUAL_TEXT_BYTES], const sw_spec_weight *w,
                          const float *original, sw_err *err) SW_MUST_USE;

#endif
