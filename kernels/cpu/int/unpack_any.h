/* unpack_any.h - tiles into panels of words, eight bytes at a time; for machines without AVX-512.
 */
#ifndef SW_KERNELS_CPU_INT_UNPACK_ANY_H
#define SW_KERNELS_CPU_INT_UNPACK_ANY_H

#include <string.h>

#include "kernels/cpu/int/int_ops.h"

/* Word j of two neighbouring slots: channel g of warp w and its partner g + 8. */
static inline uint8_t *panel_at(uint8_t *panel, int word, int w, int g)
{
    return panel + word * SW_PANEL_WORD_BYTES + 64 * w + 8 * g;
}

static inline void unpack_tile8(uint8_t *panel, const uint8_t *tile)
{
    for (int half = 0; half < 2; half++)
        for (int w = 0; w < 4; w++)
            for (int j = 0; j < 8; j++)
                for (int g = 0; g < 8; g++)
                    memcpy(panel_at(panel, 8 * half + j, w, g),
                           tile + 2048 * half + 512 * w + 64 * g + 8 * j, 8);
}

static inline void unpack_tile4(uint8_t *panel, const uint8_t *tile)
{
    for (int w = 0; w < 4; w++)
        for (int c = 0; c < 4; c++)
            for (int s = 0; s < 4; s++)
                for (int g = 0; g < 8; g++) {
                    uint32_t both, pair[2];

                    memcpy(&both, tile + 512 * w + 64 * g + 16 * c + 4 * s, 4);
                    pair[0] = both & 0x0f0f0f0fu;
                    pair[1] = both >> 4 & 0x0f0f0f0fu;
                    memcpy(panel_at(panel, 8 * (s / 2) + 2 * c + s % 2, w, g), pair, 8);
                }
}

static inline void unpack_any(uint8_t *panel, const uint8_t *tiles, int64_t n_tiles,
                              int container_bits)
{
    uint8_t wide[SW_TILE_WIDE_BYTES];

    for (int64_t t = 0; t < n_tiles; t++) {
        const uint8_t *tile = tiles + t * sw_tile_bytes(container_bits);
        uint8_t *to = panel + t * SW_WORDS_PER_TILE * SW_PANEL_WORD_BYTES;

        if (container_bits < 4) {
            sw_tile_widen(wide, tile, container_bits);
            tile = wide;
        }
        if (container_bits <= 4) unpack_tile4(to, tile);
        else unpack_tile8(to, tile);
    }
}

#endif
