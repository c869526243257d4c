/* narrow.h - the 2- and 3-bit containers of Swage tiles: the bytes of a 4-bit tile (tiles.h) folded
 * upon each other, so that one shift and one mask give them back.
 *
 * Codes below 4 and 8 leave bits 2-3 and 6-7, or bits 3 and 7, of every byte of a 4-bit tile idle.
 * With B[512w + j] the byte j = 16t + 4s + i of warp w:
 *
 *   2 bits, 1024 bytes: byte 512v + j, v = 0, 1, holds B[512v + j] and, two bits higher,
 *                       B[512(v + 2) + j];
 *   3 bits, 1536 bytes: the same of the low two bits of every code, then 512 bytes whose byte j has
 *                       the third bit of the low code of warp w in bit w and that of its high code
 *                       in bit 4 + w.
 *
 * Kernels of the CPU and of Hopper read them in this form; those of other devices read 4 bits.
 */
#ifndef SW_FORMATS_PACK_NARROW_H
#define SW_FORMATS_PACK_NARROW_H

#include <string.h>

#include "formats/pack/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_TILE_WARP_BYTES 512 /* of a 4-bit tile */
#define SW_TILE_WIDE_BYTES 2048

/* dst [512] = the bytes of `warp` in the 4-bit tile that a tile of 2 or 3 bits stands for. */
static inline void sw_tile_widen_warp(uint8_t *dst, const uint8_t *tile, int bits, int warp)
{
    const uint8_t *low = tile + SW_TILE_WARP_BYTES * (warp % 2), *third = tile + 1024;
    uint64_t word, bit = 0;

    for (int at = 0; at < SW_TILE_WARP_BYTES; at += 8) { /* no bit leaves its byte */
        memcpy(&word, low + at, 8);
        word = word >> 2 * (warp / 2) & 0x3333333333333333u;
        if (bits == 3) {
            memcpy(&bit, third + at, 8);
            word |= (bit >> warp & 0x1111111111111111u) << 2;
        }
        memcpy(dst + at, &word, 8);
    }
}

static inline void sw_tile_widen(uint8_t *dst, const uint8_t *tile, int bits)
{
    for (int warp = 0; warp < 4; warp++)
        sw_tile_widen_warp(dst + SW_TILE_WARP_BYTES * warp, tile, bits, warp);
}

/* dst [512 * bits] = a 4-bit tile [2048] whose codes fit `bits`, 2 or 3. */
void sw_tile_narrow(uint8_t *dst, const uint8_t *wide, int bits);

#ifdef __cplusplus
}
#endif
#endif
