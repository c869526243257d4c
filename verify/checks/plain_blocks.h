/* plain_blocks.h - are blocks of GGUF just what plain rounding makes of the original?
 *
 * Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 have one scale (and offset) a block, in half floats. Their plain
 * rule, that of llama.cpp and of Swage's --plain-rule (of Q8_0 always), takes it from the range of
 * the block: the largest magnitude over 8, 16 or 127, or the width over 15 or 31. Where nearly all
 * blocks of a weight follow that rule, the others do not by accident: a single bit tells them,
 * which is far below what bounds for rounding in general could see.
 */
#ifndef SW_VERIFY_CHECKS_PLAIN_BLOCKS_H
#define SW_VERIFY_CHECKS_PLAIN_BLOCKS_H

#include <stddef.h>

#include "verify/decoders/decode_spec.h"

/* why[size] becomes empty, or one sentence on the first block or code that the rule does not give.
 * Empty too for weights that were not rounded by it, of other types, or too small to tell.
 * `original` is f32 [n_out, k_in]. */
void sw_plain_blocks_check(char *why, size_t size, const sw_spec_weight *w, const float *original);

#endif
