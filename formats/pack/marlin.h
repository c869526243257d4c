/* marlin.h - the order in which Marlin kernels read 4- and 8-bit codes, their scales and zeros.
 *
 * Codes [n_out, k] become words I32 [k / 16, n_out * 16 * bits / 32]: row kt holds inputs
 * 16 kt .. 16 kt + 15, in tiles of 64 channels. Lane t = 0..31 of a warp owns, of each quarter
 * w = 0..3 of a tile, the channels c = 64 nt + 16 w + t / 4 and c + 8 at the inputs
 *      r = 16 kt + 2 (t % 4) + {0, 1, 8, 9},
 * which is what mma.sync m16n8k16 wants in its B registers.
 *   4 bits: word nt * 128 + 4 t + w; its nibble i holds value {0, 2, 4, 6, 1, 3, 5, 7}[i] of
 *           the eight (four inputs of c, then four of c + 8).
 *   8 bits: word nt * 256 + 8 t + 2 w + h is channel c + 8 h; its byte i holds input
 *           {0, 2, 1, 3}[i] of the four.
 *
 * Scales [groups, n_out] are permuted in chunks of 64 channels, out[8 i + j] = in[i + 8 j]; with
 * one group alone in chunks of 32, out[8 i + j] = in[2 i + {0, 1, 8, 9, 16, 17, 24, 25}[j]]. Both
 * undo themselves. Zero points always go by chunks of 64, then by {0, 2, 4, 6, 1, 3, 5, 7} in each
 * eight (8 bits: {0, 2, 1, 3} in each four), and are packed along the channels:
 * I32 [groups, n_out * bits / 32].
 * Source: the kernels' repacking (IST-DASLab Marlin, 2024, and its successors in vLLM).
 */
#ifndef SW_FORMATS_PACK_MARLIN_H
#define SW_FORMATS_PACK_MARLIN_H

#include <stdint.h>

#define SW_MARLIN_TILE_K 16
#define SW_MARLIN_TILE_N 64

/* bits 4 or 8; n_out a multiple of 64, k of 16. Buffers of n_out * k * bits / 8 bytes. */
void sw_marlin_pack(void *words, const uint8_t *codes, int bits, int64_t n_out, int64_t k);
void sw_marlin_unpack(uint8_t *codes, const void *words, int bits, int64_t n_out, int64_t k);

/* Channel, of [0, n_out), whose scale stands at place `at` of a row; is_single: one group. */
int64_t sw_marlin_scale_channel(int64_t at, int is_single);

/* Zero points [n_out, groups] into words [groups, n_out * bits / 32], and back. */
void sw_marlin_zeros_pack(void *words, const uint8_t *zeros, int bits, int64_t n_out,
                          int64_t n_groups);
void sw_marlin_zeros_unpack(uint8_t *zeros, const void *words, int bits, int64_t n_out,
                            int64_t n_groups);

#endif
