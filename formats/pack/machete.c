/* machete.c - see machete.h. */
#include "formats/pack/machete.h"

#include <string.h>

#define BLOCK_CODES (SW_MACHETE_TILE_N * SW_MACHETE_TILE_K)

/* Where the code of channel n, input k lies, counted in codes. */
static int64_t place_of(int64_t n, int64_t k, int bits, int64_t n_out)
{
    int64_t block = k / SW_MACHETE_TILE_K * (n_out / SW_MACHETE_TILE_N) + n / SW_MACHETE_TILE_N;
    int64_t row = n % SW_MACHETE_TILE_N, column = k % SW_MACHETE_TILE_K;
    int64_t lane = row % 8 * 4 + column % 8 / 2;
    int64_t thread = row / 16 * 32 + lane; /* warps and warpgroups follow the channels */
    int64_t step = column / 16, i = column % 2 + row % 16 / 8 * 2 + column % 16 / 8 * 4;

    if (bits == 4) i = i % 2 * 4 + i / 2;
    return block * BLOCK_CODES + (thread * 4 + step) * 8 + i;
}

void sw_machete_pack(void *bytes, const uint8_t *codes, int bits, int64_t n_out, int64_t k)
{
    uint8_t *to = bytes;

    memset(to, 0, (size_t)(n_out * k * bits / 8));
    for (int64_t n = 0; n < n_out; n++)
        for (int64_t i = 0; i < k; i++) {
            int64_t at = place_of(n, i, bits, n_out);
            uint8_t code = codes[n * k + i];
            if (bits == 8) to[at] = code;
            else to[at / 2] |= (uint8_t)(code << (at % 2 ? 4 : 0));
        }
}

void sw_machete_unpack(uint8_t *codes, const void *bytes, int bits, int64_t n_out, int64_t k)
{
    const uint8_t *from = bytes;

    for (int64_t n = 0; n < n_out; n++)
        for (int64_t i = 0; i < k; i++) {
            int64_t at = place_of(n, i, bits, n_out);
            codes[n * k + i] = (uint8_t)(bits == 8 ? from[at]
                                                   : from[at / 2] >> (at % 2 ? 4 : 0) & 15);
        }
}
