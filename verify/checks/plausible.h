/* plausible.h - can rounding explain the difference between a decoded weight and the original?
 *
 * Checks that need no threshold of taste compare the weight as stored with rival readings of it:
 * with the scales of the neighbouring group or channel, with every zero point one higher or
 * lower, with the codes of a nibble pair swapped. A sound weight fits the original better than
 * any rival; a weight packed wrongly fits one rival better, and the finding names it. Bounds on
 * the error and the cosine catch what no rival explains, residual.h what is wrong in places,
 * and plain_blocks.h single bits of blocks of GGUF.
 */
#ifndef SW_VERIFY_CHECKS_PLAUSIBLE_H
#define SW_VERIFY_CHECKS_PLAUSIBLE_H

#include "verify/decoders/decode_spec.h"
#include "verify/base/report.h"

#define SW_PLAUSIBLE_TEXT_BYTES 480

/* Fill the weight figures of *t (name and output_err are left alone) from the decoded weight and
 * the original, f32 [n_out, k_in]; why[] is empty when plausible, else one sentence.
 * Without an original (NULL) only the scale range is filled. */
sw_code sw_plausible_check(sw_report_tensor *t, char why[SW_PLAUSIBLE_TEXT_BYTES],
                           const sw_spec_weight *w, const float *original,
                           sw_err *err) SW_MUST_USE;

#endif
