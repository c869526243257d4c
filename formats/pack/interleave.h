/* interleave.h - 4-bit codes in the order of AutoAWQ's "gemm" kernel.
 *
 * Codes [n_out, k] become words I32 [k, n_out / 8]: eight neighbouring channels of one input share
 * a word, and its nibble p (from the low end) holds channel 8c + {0, 2, 4, 6, 1, 3, 5, 7}[p], so
 * that a mask of every other nibble gives neighbours. Zero points [n_out, groups] lie alike.
 */
#ifndef SW_FORMATS_PACK_INTERLEAVE_H
#define SW_FORMATS_PACK_INTERLEAVE_H

#include <stdint.h>

#define SW_INTERLEAVE_CODES 8 /* in a word; n_out is a multiple of it */

/* Channel of a word's nibble p. */
extern const uint8_t sw_interleave_order[SW_INTERLEAVE_CODES];

void sw_interleave_pack(void *words, const uint8_t *codes, int64_t n_out, int64_t k);
void sw_interleave_unpack(uint8_t *codes, const void *words, int64_t n_out, int64_t k);

#endif
