/* tiles_body.h - Swage tiles against activations, in the words of vec_avx2.h or vec_avx512.h.
 *
 * Included once per instruction set. `bits`, `is_split` (a tile spans two groups), `n_pairs` and
 * `n_tokens` are constants wherever these functions are called, so every loop over them unrolls
 * and the accumulators live in registers.
 *
 * A weight decodes to code * scale - zero * scale with one rounding of an exact result, that is,
 * to exactly the value the checkpoint means.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cpu/ops.h"

static void load_slots(float *scale, float *offset, const sw_tiles *t, int64_t record)
{
    const uint16_t *scales = (const uint16_t *)t->scales + record * SW_TILE_N;
    vec all_zero = v_all((float)-t->spec.num->sym_zero);

    for (int i = 0; i < SW_TILE_N; i += V_LANES) {
        vec s = t->spec.scale_dtype == SW_DTYPE_BF16 ? v_from_bf16(scales + i)
                                                     : v_from_f16(scales + i);
        vec minus_zero = t->zeros ? v_mul(v_from_u8(t->zeros + record * SW_TILE_N + i), v_all(-1))
                                  : all_zero;
        v_store(scale + i, s);
        v_store(offset + i, v_mul(minus_zero, s));
    }
}

static bool is_split_group(const sw_tiles *t) { return t->spec.group_elems % SW_TILE_K != 0; }

static void load_params(sw_strip_params *out, const sw_tiles *t, int64_t n_tile, int64_t k_tile,
                        int64_t n_tiles)
{
    int64_t step = is_split_group(t) ? 1 : 2;

    for (int64_t half = 0; half < 2 * n_tiles; half += step) {
        int64_t k = k_tile * SW_TILE_K + half * 32;
        int64_t group = t->spec.group_elems ? k / t->spec.group_elems : 0;

        group = sw_min_i64(group, t->n_groups - 1); /* of a half tile that is all padding */
        load_slots(out->scale[half], out->offset[half], t, n_tile * t->n_groups + group);
    }
}

V_INLINE channel load_channel(const sw_strip_params *params, int64_t tile, int slot, int bits,
                              bool is_split)
{
    const float *scale = &params->scale[2 * tile][slot], *offset = &params->offset[2 * tile][slot];
    channel c;

    if (is_split) {
        c.scale = v_by_half(scale[0], scale[SW_TILE_N]);
        c.offset = v_by_half(offset[0], offset[SW_TILE_N]);
        return c;
    }
    if (bits == 4) return channel4(scale[0], offset[0]);
    c.scale = v_all(scale[0]);
    c.offset = v_all(offset[0]);
    return c;
}

/* Vector i (0..3) of channel n + 8h out of its words. */
V_INLINE vec value_of(words w, int i, int h, channel c, int bits, bool is_split)
{
    if (bits == 4 && !is_split) return v_value4(w, 2 * i + h, c);
    return v_fma(bits == 4 ? v_code4(w, 2 * i + h) : v_code8(w, i), c.scale, c.offset);
}

/* The words of a pair of channels, lanes from 16u on: equal for both channels with 4 bits. */
V_INLINE void pair_words(words out[2], const uint8_t *tile, int pair, int u, int bits)
{
    const uint8_t *at = tile + 64 * pair + 4 * V_LANES * u;

    out[0] = out[1] = w_load(at);
    if (bits == 8) {
        words upper = w_load(at + 2048);
        words lower = out[0];

        out[0] = w_channel8(lower, upper, 0);
        out[1] = w_channel8(lower, upper, 1);
    }
}

/* n_tiles tiles into the accumulators of n_pairs pairs of channels. Each tile read asks for as
 * many lines of the block that comes next: the reads here stride, so hardware would not see it. */
V_INLINE void strip_pairs(float *acc, const uint8_t *tiles, int64_t n_tiles,
                          const sw_strip_params *params, const float *x, int64_t x_stride,
                          int pair0, int bits, bool is_split, int n_pairs, int n_tokens)
{
    int64_t tile_bytes = SW_TILE_N * SW_TILE_K * bits / 8;
    const char *next = (const char *)tiles + n_tiles * tile_bytes + n_tiles * pair0 * 16 * bits;
    vec sum[8][2][SW_STRIP_TOKENS_MAX];

    for (int p = 0; p < n_pairs; p++)
        for (int h = 0; h < 2; h++)
            for (int m = 0; m < n_tokens; m++)
                sum[p][h][m] = v_load(acc + ((2 * (pair0 + p) + h) * n_tokens + m) * V_LANES);
    for (int64_t tile = 0; tile < n_tiles; tile++) {
        for (int p = 0; p < n_pairs; p++) {
            int slot = 2 * (pair0 + p);
            channel low = load_channel(params, tile, slot, bits, is_split);
            channel high = load_channel(params, tile, slot + 1, bits, is_split);

            for (int line = 0; line < bits / 4; line++, next += 64) __builtin_prefetch(next);
            for (int u = 0; u < 16 / V_LANES; u++) {
                words w[2];

                pair_words(w, tiles + tile * tile_bytes, pair0 + p, u, bits);
                for (int i = 0; i < 4; i++) {
                    vec a = value_of(w[0], i, 0, low, bits, is_split);
                    vec b = value_of(w[1], i, 1, high, bits, is_split);

                    for (int m = 0; m < n_tokens; m++) {
                        vec in = v_load(x + m * x_stride + tile * 64 + 16 * i + V_LANES * u);

                        sum[p][0][m] = v_fma(a, in, sum[p][0][m]);
                        sum[p][1][m] = v_fma(b, in, sum[p][1][m]);
                    }
                }
            }
        }
    }
    for (int p = 0; p < n_pairs; p++)
        for (int h = 0; h < 2; h++)
            for (int m = 0; m < n_tokens; m++)
                v_store(acc + ((2 * (pair0 + p) + h) * n_tokens + m) * V_LANES, sum[p][h][m]);
}

/* All 32 pairs of a row of tiles, as many at a time as there are registers for. */
V_INLINE void strip_block(float *acc, const uint8_t *tiles, int64_t n_tiles,
                          const sw_strip_params *params, const float *x, int64_t x_stride, int bits,
                          bool is_split, int n_pairs, int n_tokens)
{
    for (int pair = 0; pair < SW_TILE_N / 2; pair += n_pairs)
        strip_pairs(acc, tiles, n_tiles, params, x, x_stride, pair, bits, is_split, n_pairs,
                    n_tokens);
}

typedef void (*strip_fn)(float *acc, const uint8_t *tiles, int64_t n_tiles,
                         const sw_strip_params *params, const float *x, int64_t x_stride);

#define STRIP(bits, is_split, n_pairs, n_tokens)                                              \
    static void strip_##bits##_##is_split##_##n_tokens(                                       \
        float *acc, const uint8_t *tiles, int64_t n_tiles, const sw_strip_params *params,     \
        const float *x, int64_t x_stride)                                                     \
    {                                                                                         \
        strip_block(acc, tiles, n_tiles, params, x, x_stride, bits, is_split, n_pairs, n_tokens); \
    }
#define STRIPS(n_pairs, n_tokens)  \
    STRIP(4, 0, n_pairs, n_tokens) \
    STRIP(4, 1, n_pairs, n_tokens) \
    STRIP(8, 0, n_pairs, n_tokens) \
    STRIP(8, 1, n_pairs, n_tokens)
#define STRIP_ROW(n_tokens)                                                           \
    {{strip_4_0_##n_tokens, strip_4_1_##n_tokens}, {strip_8_0_##n_tokens, strip_8_1_##n_tokens}}

#if V_LANES == 16
STRIPS(8, 1) STRIPS(4, 2) STRIPS(2, 3) STRIPS(2, 4) STRIPS(2, 5) STRIPS(2, 6) STRIPS(1, 7)
STRIPS(1, 8)
static const strip_fn strips[][2][2] = {STRIP_ROW(1), STRIP_ROW(2), STRIP_ROW(3), STRIP_ROW(4),
                                        STRIP_ROW(5), STRIP_ROW(6), STRIP_ROW(7), STRIP_ROW(8)};
#elif V_LANES == 8
STRIPS(4, 1) STRIPS(2, 2) STRIPS(1, 3) STRIPS(1, 4)
static const strip_fn strips[][2][2] = {STRIP_ROW(1), STRIP_ROW(2), STRIP_ROW(3), STRIP_ROW(4)};
#else
STRIPS(2, 1) STRIPS(1, 2) STRIPS(1, 3) STRIPS(1, 4)
static const strip_fn strips[][2][2] = {STRIP_ROW(1), STRIP_ROW(2), STRIP_ROW(3), STRIP_ROW(4)};
#endif
#define GEMV_TOKENS ((int)(sizeof strips / sizeof *strips))

/* Channel of a slot: tiles.h, read backwards. */
static int channel_of(int slot) { return slot / 16 * 16 + slot % 16 / 2 + slot % 2 * 8; }

static void gemv_tiles(float *sums, const sw_tiles *t, int64_t n_tile, const float *x,
                       int64_t x_stride, int n_tokens, void *scratch)
{
    sw_strip_params *params = (sw_strip_params *)scratch;
    float *acc = (float *)(params + 1);
    int64_t k_tiles = sw_tiles_k(t->k_in), tile_bytes = sw_tile_bytes(t->container_bits);
    const uint8_t *row = t->codes + n_tile * k_tiles * tile_bytes;
    strip_fn strip = strips[n_tokens - 1][t->container_bits == 8][is_split_group(t)];

    memset(acc, 0, (size_t)(SW_TILE_N * n_tokens * V_LANES) * sizeof *acc);
    for (int64_t k = 0; k < k_tiles; k += SW_STRIP_TILES) {
        int64_t n_tiles = sw_min_i64(SW_STRIP_TILES, k_tiles - k);

        load_params(params, t, n_tile, k, n_tiles);
        strip(acc, row + k * tile_bytes, n_tiles, params, x + k * SW_TILE_K, x_stride);
    }
    for (int slot = 0; slot < SW_TILE_N; slot += 4)
        for (int m = 0; m < n_tokens; m++) {
            const float *at = acc + (slot * n_tokens + m) * V_LANES;
            int64_t step = (int64_t)n_tokens * V_LANES;
            four sum = v_sum4(v_load(at), v_load(at + step), v_load(at + 2 * step),
                              v_load(at + 3 * step));

            for (int i = 0; i < 4; i++) sums[m * SW_TILE_N + channel_of(slot + i)] = sum[i];
        }
}

V_INLINE void decode_block(float *panel, int64_t ld, const uint8_t *tiles, int64_t n_tiles,
                           const sw_strip_params *params, int quarter, int bits, bool is_split)
{
    for (int64_t tile = 0; tile < n_tiles; tile++)
        for (int g = 0; g < 8; g++) {
            int pair = 8 * quarter + g;
            const uint8_t *bytes = tiles + tile * SW_TILE_N * SW_TILE_K * bits / 8;
            float *low = panel + g * ld + tile * SW_TILE_K;
            channel a = load_channel(params, tile, 2 * pair, bits, is_split);
            channel b = load_channel(params, tile, 2 * pair + 1, bits, is_split);

            for (int u = 0; u < 16 / V_LANES; u++) {
                words w[2];

                pair_words(w, bytes, pair, u, bits);
                for (int i = 0; i < 4; i++) {
                    float *at = low + 16 * i + V_LANES * u;

                    v_store(at, value_of(w[0], i, 0, a, bits, is_split));
                    v_store(at + 8 * ld, value_of(w[1], i, 1, b, bits, is_split));
                }
            }
        }
}

static void decode_tiles(float *panel, int64_t ld, const sw_tiles *t, int64_t n_tile, int quarter,
                         int64_t k_tile, int64_t n_tiles)
{
    int64_t tile_bytes = sw_tile_bytes(t->container_bits);
    const uint8_t *at = t->codes + (n_tile * sw_tiles_k(t->k_in) + k_tile) * tile_bytes;
    sw_strip_params params;

    for (int64_t k = 0; k < n_tiles; k += SW_STRIP_TILES, at += SW_STRIP_TILES * tile_bytes) {
        int64_t n = sw_min_i64(SW_STRIP_TILES, n_tiles - k);
        float *to = panel + k * SW_TILE_K;

        load_params(&params, t, n_tile, k_tile + k, n);
        if (t->container_bits == 4) {
            if (is_split_group(t)) decode_block(to, ld, at, n, &params, quarter, 4, true);
            else decode_block(to, ld, at, n, &params, quarter, 4, false);
        } else {
            if (is_split_group(t)) decode_block(to, ld, at, n, &params, quarter, 8, true);
            else decode_block(to, ld, at, n, &params, quarter, 8, false);
        }
    }
}

static void to_tile_order(float *dst, const float *x, int64_t n)
{
    float last[SW_TILE_K] = {0};

    for (int64_t k = 0; k < n; k += SW_TILE_K) {
        const float *from = x + k;

        if (n - k < SW_TILE_K) {
            memcpy(last, from, (size_t)(n - k) * sizeof *last);
            from = last;
        }
        v_transpose(dst + k, dst + k + 32, from); /* inputs 0..7: vectors i = 0 and i = 2 */
        v_transpose(dst + k + 16, dst + k + 48, from + 8);
    }
}
