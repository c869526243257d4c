/* narrow.c - see narrow.h. */
#include "formats/pack/narrow.h"

void sw_tile_narrow(uint8_t *dst, const uint8_t *wide, int bits)
{
    const int warp = SW_TILE_WARP_BYTES;

    for (int i = 0; i < 2 * warp; i++)
        dst[i] = (uint8_t)((wide[i] & 0x33) | (wide[i + 2 * warp] & 0x33) << 2);
    for (int i = 0; bits == 3 && i < warp; i++) {
        int third = 0;

        for (int w = 0; w < 4; w++) third |= (wide[warp * w + i] >> 2 & 0x11) << w;
        dst[2 * warp + i] = (uint8_t)third;
    }
}
