/* machete.h - the order in which Machete, a Hopper kernel for 16-bit inputs, reads 4- and 8-bit
 * codes.
 *
 * Codes [n_out, k] go by blocks of 128 channels x 64 inputs, all blocks of the first 64 inputs
 * before those of the next 64. In a block thread t = 0..255, that is 128 w + 32 v + l of warpgroup
 * w, warp v, lane l, owns 32 codes that lie together: of the four steps s of 16 inputs the values
 *      i = 0..7 at channel 64 w + 16 v + l / 4 + 8 (i / 2 % 2), input 16 s + 2 (l % 4) + i % 2
 *                                                                + 8 (i / 4),
 * which is what wgmma m64k16 wants of its left operand in registers. So the code of (t, s, i) is
 * the one at 8 (4 t + s) + p of the block, with p = i, and at 4 bits p = 4 (i % 2) + i / 2, so that
 * neighbouring inputs are 16 bits apart. 4 bits: the low half of a byte comes first.
 *      Source: machete_prepacked_layout.cuh and machete_interleaving_utils.cuh of vLLM; the order
 * was also computed by CUTLASS from the layout algebra in them, for F16 and BF16, all 8192 places.
 * Scales stay as they are, [groups, n_out].
 */
#ifndef SW_FORMATS_PACK_MACHETE_H
#define SW_FORMATS_PACK_MACHETE_H

#include <stdint.h>

#define SW_MACHETE_TILE_N 128
#define SW_MACHETE_TILE_K 64

/* bits 4 or 8; n_out a multiple of 128, k of 64. Buffers of n_out * k * bits / 8 bytes. */
void sw_machete_pack(void *bytes, const uint8_t *codes, int bits, int64_t n_out, int64_t k);
void sw_machete_unpack(uint8_t *codes, const void *bytes, int bits, int64_t n_out, int64_t k);

#endif
