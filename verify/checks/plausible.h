/* plausible.h - can rounding explain the difference between a decoded weight and the original?
 *
 * Checks that need no threshold of taste compare the weight as stored with rival readings of it:
 * with the scales of the neighbouring group or channel, with every zero point one higher or
 * lower, with the codes of a nibble pair swapped. A sound weight fits the original better than
 * any rival; a weight packed wrongly fits one rival better, and the finding names it. Bounds on
 * the error and the cosine catch what no rival explains, plausible.h what is wrong in places,
 * and plausible.h single bits of blocks of GGUF.
 */
#ifndef SW_VERIFY_CHECKS_PLAUSIBLE_H
#define SW_VERIFY_CHECKS_PLAUSIBLE_H

#include <stddef.h>

#include "verify/base/report.h"
#include "verify/decoders/decode_spec.h"
#include "verify/metrics/linear_rows.h"

#define SW_PLAUSIBLE_TEXT_BYTES 480

/* Fill the weight figures of *t (name and output_err are left alone) from the decoded weight and
 * the original, f32 [n_out, k_in]; why[] is empty when plausible, else one sentence.
 * Without an original (NULL) only the scale range is filled. */
sw_code sw_plausible_check(sw_report_tensor *t, char why[SW_PLAUSIBLE_TEXT_BYTES],
                           const sw_spec_weight *w, const float *original,
                           sw_err *err) SW_MUST_USE;
/* The same of an original that is read row by row. Of w the values are only needed where it has
 * outliers. */
sw_code sw_plausible_check_rows(sw_report_tensor *t, char why[SW_PLAUSIBLE_TEXT_BYTES],
                                const sw_spec_weight *w, const sw_linear_rows *original,
                                sw_err *err) SW_MUST_USE;

/* Is the error of a decoded weight that of rounding, everywhere in it?
 *
 * Damage to a small part of a weight hides in figures of the whole. Here the error of every
 * element is held against the noise that rounding leaves at its place: half a step of the grid,
 * and what error compensation carries over from the other inputs of its row, by so much as the
 * other rows show for that input. Sums over windows, from one element to whole rows, then show
 *
 *   excess   the mean of error^2 over noise^2, 1 where all is well
 *   loss     sum(w e) / sum(w^2), the share of the original w that is not there: 0 where all is
 *            well, 1 where codes are constant or belong elsewhere, 2 where signs are turned */

#define SW_RESIDUAL_TEXT_BYTES 320

/* why[] becomes empty when every window is plausible, else one sentence on the worst. Memory: some
 * 20 rows of k_in doubles. */
sw_code sw_residual_check(char why[SW_RESIDUAL_TEXT_BYTES], const sw_spec_weight *w,
                          const sw_linear_rows *original, sw_err *err) SW_MUST_USE;

/* Are blocks of GGUF just what plain rounding makes of the original?
 *
 * Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 have one scale (and offset) a block, in half floats. Their plain
 * rule, that of llama.cpp and of Swage's --plain-rule (of Q8_0 always), takes it from the range of
 * the block: the largest magnitude over 8, 16 or 127, or the width over 15 or 31. Where nearly all
 * blocks of a weight follow that rule, the others do not by accident: a single bit tells them,
 * which is far below what bounds for rounding in general could see. */

/* why[size] becomes empty, or one sentence on the first block or code that the rule does not give.
 * Empty too for weights that were not rounded by it, of other types, or too small to tell. */
sw_code sw_plain_blocks_check(char *why, size_t size, const sw_spec_weight *w,
                              const sw_linear_rows *original, sw_err *err) SW_MUST_USE;

#endif
