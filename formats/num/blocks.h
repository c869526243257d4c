/* blocks.h - what the blocks of GGUF tensors mean, decoded and encoded.
 *
 * A row of weights is cut into blocks of 32 or 256 consecutive inputs; each block brings its own
 * scales. Layouts are drawn in blocks.c and blocks_k.c beside the code. In all of them a nibble
 * pair holds elements half a run apart, never neighbours.
 *
 * Decoding rounds as the engines that read these files do: one float operation after the other,
 * in the order of the formula. Little-endian bytes throughout.
 */
#ifndef SW_FORMATS_NUM_BLOCKS_H
#define SW_FORMATS_NUM_BLOCKS_H

#include "formats/base/block_type.h"
#include "formats/num/num.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_BLOCK_ELEMS_MAX 256

/* dst f32 [n] from n / elems blocks at `src`; n is a multiple of the type's elems. */
void sw_block_decode(float *dst, const void *src, sw_block_type type, int64_t n);

/* How codes are found. PLAIN is the rule of each format's definition, which all writers share: the
 * largest magnitude decides the scale. SEARCH tries scales around it and keeps the one with the
 * least squared error, weighted by `importance`; types without a plain rule always search. */
typedef enum sw_block_how { SW_BLOCK_PLAIN, SW_BLOCK_SEARCH } sw_block_how;

/* n floats into n / elems blocks. `importance` f32 [n], above or equal 0, says how much an error
 * in each element weighs; NULL: evenly, or as the magnitudes suggest where that is the custom of
 * the type. Deterministic. SW_E_UNSUPPORTED: the type is only read. SW_E_FORMAT: not finite. */
sw_code sw_block_encode(void *dst, sw_block_type type, const float *src, const float *importance,
                        int64_t n, sw_block_how how, sw_err *err) SW_MUST_USE;
bool sw_block_can_encode(sw_block_type type);

/* Every scale of the blocks finite. SW_E_FORMAT says which block. */
sw_code sw_block_check(const void *src, sw_block_type type, int64_t n, sw_err *err) SW_MUST_USE;

/* The 6-bit scales and minima of Q4_K and Q5_K, and the 6-bit scales of Q3_K. */
void sw_block_k4_scales(uint8_t scale[8], uint8_t min[8], const uint8_t packed[12]);
void sw_block_k4_pack(uint8_t packed[12], const uint8_t scale[8], const uint8_t min[8]);
void sw_block_k3_scales(uint8_t scale[16], const uint8_t packed[12]);

#ifdef __cplusplus
}
#endif
#endif
