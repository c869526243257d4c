/* decode.c - see decode.h. Plain C for every machine.
 *
 * Tiles are walked in the order of their bytes, so that each is read once; the layout is
 * formats/pack/tiles.h. Code minus zero is a small integer and times the scale exact in float.
 */
#include "kernels/cpu/decode.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/num/half.h"

/* Scales and zeros of one tile: two groups when group_elems is 32, by half tile. */
typedef struct tile_params {
    float scale[2][SW_TILE_N]; /* [half, slot] */
    int zero[2][SW_TILE_N];
} tile_params;

static void load_params(tile_params *out, const sw_tiles *t, int64_t n_tile, int64_t k0)
{
    for (int half = 0; half < 2; half++) {
        int64_t group = t->spec.group_elems ? (k0 + 32 * half) / t->spec.group_elems : 0;
        int64_t record = (n_tile * t->n_groups + sw_min_i64(group, t->n_groups - 1)) * SW_TILE_N;

        for (int i = 0; i < SW_TILE_N; i++) {
            uint16_t raw = t->scales[record + i];

            out->scale[half][i] = t->spec.scale_dtype == SW_DTYPE_BF16 ? sw_bf16_decode(raw)
                                                                       : sw_f16_decode(raw);
            out->zero[half][i] = t->zeros ? t->zeros[record + i] : t->spec.num->sym_zero;
        }
    }
}

/* Input of byte i of a lane's word: K(c)[i] of tiles.h. */
static int k_of(int c, int i) { return 2 * c + (i >> 1) + 8 * (i & 1); }

static void decode_tile4(float *dst, int64_t ld, const uint8_t *tile, const tile_params *params)
{
    for (int block = 0; block < SW_TILE_N / 2; block++) { /* 8w + g: channels n and n + 8 */
        float *low = dst + (16 * (block / 8) + block % 8) * ld, *high = low + 8 * ld;

        for (int at = 0; at < 64; at++) {
            int c = at / 16, s = at % 16 / 4, i = at % 4, half = s / 2;
            int k = 16 * s + k_of(c, i), byte = tile[64 * block + at];

            low[k] = params->scale[half][2 * block] *
                     (float)((byte & 15) - params->zero[half][2 * block]);
            high[k] = params->scale[half][2 * block + 1] *
                      (float)((byte >> 4) - params->zero[half][2 * block + 1]);
        }
    }
}

static void decode_tile8(float *dst, int64_t ld, const uint8_t *tile, const tile_params *params)
{
    for (int at = 0; at < 4096; at++) {
        int half = at / 2048, block = at % 2048 / 64, c = at % 64 / 16;
        int s = 2 * half + at % 16 / 8, h = at % 8 / 4, slot = 2 * block + h;
        int n = 16 * (block / 8) + block % 8 + 8 * h;

        dst[n * ld + 16 * s + k_of(c, at % 4)] =
            params->scale[half][slot] * (float)(tile[at] - params->zero[half][slot]);
    }
}

static void decode_tiles(float *dst, int64_t ld, const sw_tiles *t, int64_t n0, int64_t n_rows,
                         int64_t k0, int64_t n_k)
{
    int64_t k_tiles = sw_tiles_k(t->k_in), tile_bytes = sw_tile_bytes(t->container_bits);
    tile_params params;

    for (int64_t n = 0; n < n_rows; n += SW_TILE_N) {
        int64_t n_tile = (n0 + n) / SW_TILE_N;

        for (int64_t k = 0; k < n_k; k += SW_TILE_K) {
            const uint8_t *tile =
                t->codes + (n_tile * k_tiles + (k0 + k) / SW_TILE_K) * tile_bytes;

            load_params(&params, t, n_tile, k0 + k);
            if (t->container_bits == 4) decode_tile4(dst + n * ld + k, ld, tile, &params);
            else decode_tile8(dst + n * ld + k, ld, tile, &params);
        }
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
