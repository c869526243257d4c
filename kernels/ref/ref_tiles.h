/* ref_tiles.h - single elements of tiles by the letter of formats/pack/tiles.h; for references. */
#ifndef SW_KERNELS_REF_REF_TILES_H
#define SW_KERNELS_REF_REF_TILES_H

#include "kernels/kernel.h"

/* Code of channel n, input k of the whole weight. */
static inline int sw_ref_code(const sw_tiles *t, int64_t n, int64_t k)
{
    const uint8_t *tile = t->codes + (n / SW_TILE_N * sw_tiles_k(t->k_in) + k / SW_TILE_K) *
                                         sw_tile_bytes(t->container_bits);
    int r = (int)(n % SW_TILE_N), q = (int)(k % SW_TILE_K);
    int w = r / 16, g = r % 8, h = r % 16 / 8, s = q / 16, in_step = q % 16;
    int c = in_step % 8 / 2, i = 2 * (in_step % 2) + in_step / 8;
    int lane = 4 * g + c;

    if (t->container_bits < 4) { /* narrow.h */
        int at = 16 * lane + 4 * s + i;
        int code = tile[512 * (w % 2) + at] >> (4 * h + 2 * (w / 2)) & 3;

        return t->container_bits == 2 ? code : code | (tile[1024 + at] >> (4 * h + w) & 1) << 2;
    }
    if (t->container_bits == 4) return tile[512 * w + 16 * lane + 4 * s + i] >> (4 * h) & 15;
    return tile[2048 * (s / 2) + 512 * w + 16 * lane + 8 * (s % 2) + 4 * h + i];
}

/* Place of channel n, group g among the scales and zeros. */
static inline int64_t sw_ref_record(const sw_tiles *t, int64_t n, int64_t group)
{
    return (n / SW_TILE_N * t->n_groups + group) * SW_TILE_N + sw_tile_slot((int)(n % SW_TILE_N));
}

static inline float sw_ref_scale(const sw_tiles *t, int64_t n, int64_t group)
{
    const uint8_t *raw = (const uint8_t *)t->scales +
                         sw_ref_record(t, n, group) * (sw_dtype_bits(t->spec.scale_dtype) / 8);
    float scale = 0.0f;

    /* every dtype that tiles hold can be decoded */
    (void)!sw_float_decode_n(&scale, raw, t->spec.scale_dtype, 1, NULL);
    return scale;
}

static inline int sw_ref_zero(const sw_tiles *t, int64_t n, int64_t group)
{
    return t->zeros ? t->zeros[sw_ref_record(t, n, group)] : t->spec.num->sym_zero;
}

#endif
