/* followed.h - the part of a calibration text that the original model is followed through.
 *
 * What a linear should compute (target.h) is learnt from the original model's activations, so
 * these have to be carried along, which costs as much as the quantized model's. Targets are a
 * regression with few degrees of freedom in effect, since their strengths are chosen on windows
 * kept back: of a long text half of the windows tell nearly as much. Which half is fixed by the
 * text's length: every other piece (pieces.h), so that ranks have their share; of few pieces the
 * first half of each.
 *
 * Pure functions of numbers.
 */
#ifndef SW_QUANT_STATS_FOLLOWED_H
#define SW_QUANT_STATS_FOLLOWED_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/options.h"

#define SW_FOLLOW_HALF_TOKENS (INT64_C(1) << 20) /* from so many on half of a text will do */
#define SW_FOLLOW_HALF_CHUNKS 16 /* less cannot be halved so that some is kept back as well */

#define SW_HELD_EVERY 8 /* of the chunks that are followed one in so many is kept back */

/* A text in chunks and pieces, and what of it is followed. */
typedef struct sw_text_cut {
    int64_t n_chunks, n_pieces;
    sw_follow follow; /* not SW_FOLLOW_AUTO */
} sw_text_cut;

/* What `wanted` comes to for a text of so many tokens and chunks. */
sw_follow sw_follow_settled(sw_follow wanted, int64_t n_tokens, int64_t n_chunks);
/* The chunk behind the last one of a piece that is followed, which are its first ones; the piece's
 * first chunk: none is. */
int64_t sw_followed_end(const sw_text_cut *cut, int64_t piece);
bool sw_is_followed(const sw_text_cut *cut, int64_t chunk);
/* Chunks that are followed, of all before this one. */
int64_t sw_followed_before(const sw_text_cut *cut, int64_t chunk);
/* Is the chunk kept back for the choice of strengths? Of those that are followed every eighth, or
 * the last one where there are fewer; none where it is the only one. */
bool sw_is_held(const sw_text_cut *cut, int64_t chunk);

#endif
