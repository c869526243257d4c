/* decode.c - see decode.h. For every machine. */
#include "kernels/cpu/decode.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/num/half.h"
#include "kernels/cpu/ops.h"

#define ROWS 16 /* what decode_tiles decodes at a time */

/* A row of tiles in tile order comes from the common inner loop; here it is only put in order.
 * Position 16i + 4c + s of 64 is input 16s + K(c)[i], K(c) = {2c, 2c + 8, 2c + 1, 2c + 9}. */
static void put_in_order(float *dst, const float *tile)
{
    for (int i = 0; i < 4; i++)
        for (int c = 0; c < 4; c++)
            for (int s = 0; s < 4; s++)
                dst[16 * s + 2 * c + (i >> 1) + 8 * (i & 1)] = tile[16 * i + 4 * c + s];
}

static void decode_tiles(float *dst, int64_t ld, const sw_tiles *t, int64_t n0, int64_t n_rows,
                         int64_t k0, int64_t n_k)
{
    float rows[ROWS][SW_STRIP_TILES * SW_TILE_K];
    int64_t n_tiles = sw_tiles_k(n_k);

    for (int64_t n = 0; n < n_rows; n += ROWS)
        for (int64_t tile = 0; tile < n_tiles; tile += SW_STRIP_TILES) {
            int64_t n_now = sw_min_i64(SW_STRIP_TILES, n_tiles - tile);

            sw_cpu_ops_any.decode_tiles(rows[0], SW_STRIP_TILES * SW_TILE_K, t,
                                        (n0 + n) / SW_TILE_N, (int)((n0 + n) % SW_TILE_N / ROWS),
                                        k0 / SW_TILE_K + tile, n_now);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t k = 0; k < n_now * SW_TILE_K; k += SW_TILE_K)
                    put_in_order(dst + (n + r) * ld + tile * SW_TILE_K + k, rows[r] + k);
        }
}

void sw_decode_block(float *dst, int64_t ld, const sw_weight *w, int64_t n0, int64_t n_rows,
                     int64_t k0, int64_t n_k)
{
    if (w->tiles) {
        decode_tiles(dst, ld, w->tiles, n0, n_rows, k0, n_k);
        return;
    }
    for (int64_t n = 0; n < n_rows; n++) {
        int64_t at = (n0 + n) * w->k_in + k0;
        float *row = dst + n * ld;

        if (w->dense_dtype == SW_DTYPE_F32)
            memcpy(row, (const float *)w->dense + at, (size_t)n_k * sizeof *row);
        else if (w->dense_dtype == SW_DTYPE_BF16)
            sw_bf16_decode_n(row, (const uint16_t *)w->dense + at, (size_t)n_k);
        else
            sw_f16_decode_n(row, (const uint16_t *)w->dense + at, (size_t)n_k);
    }
}
