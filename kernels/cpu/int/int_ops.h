/* int_ops.h - the inner loops of the integer rows: one table per instruction set.
 *
 * Weights and activations meet as codes: unsigned weight codes times signed activation codes, in
 * 32-bit sums. The zero point comes off once per group, as zero * (sum of the activation codes).
 *
 * Word order. Four codes of one channel that lie together in a tile (tiles.h: inputs
 * 16s + K(c)[0..3]) are a word; a tile has 16 per channel, in the order 8(s / 2) + 2c + s % 2. A
 * panel is [words, 64 slots] of such words, so that a vector holds one word of neighbouring
 * slots and meets the same word of a token, broadcast.
 */
#ifndef SW_KERNELS_CPU_INT_INT_OPS_H
#define SW_KERNELS_CPU_INT_INT_OPS_H

#include "formats/pack/narrow.h"
#include "kernels/rows.h"

#define SW_INT_TOKENS_MAX 6
#define SW_WORDS_PER_TILE 16
#define SW_PANEL_WORD_BYTES (SW_TILE_N * 4)

typedef struct sw_int_ops {
    int tokens; /* that `dot` takes at a time */

    /* panel [16 * n_tiles, 64] words = n_tiles tiles of any container. */
    void (*unpack)(uint8_t *panel, const uint8_t *tiles, int64_t n_tiles, int container_bits);

    /* sums i32 [n_tokens, 64 slots] (+)= panel times x [n_tokens, x_stride] over n_words; wraps. */
    void (*dot)(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                int64_t x_stride, int n_tokens, bool is_added);

    /* Scales and zero points of record `record`, 64 slots each. */
    void (*load_record)(float *scales, int32_t *zeros, const sw_tiles *t, int64_t record);

    /* totals f32 [n_tokens, 64] (+)= scales * (sums - zeros * x_sums[token * x_sums_stride]). */
    void (*add_group)(float *totals, const int32_t *sums, const float *scales,
                      const int32_t *zeros, const int32_t *x_sums, int n_tokens, bool is_added);

    /* dst f32 [64 channels] = the sums of one token over all of k, which had one group. In double,
     * so that nothing is lost before the one rounding: the reference does the same. */
    void (*finish_sums)(float *dst, const int32_t *sums, const float *scales, const int32_t *zeros,
                        int32_t x_sum, float x_scale);

    /* dst f32 [64 channels] = totals [64 slots] * x_scale. */
    void (*finish_totals)(float *dst, const float *totals, float x_scale);

    /* One token: n floats as codes of x / scale in word order, zeros up to the next multiple of 64,
     * and the sums of every 32 of them. The codes are those of sw_act_quantize. */
    void (*encode)(int8_t *codes, int32_t *sums, const float *x, int64_t n, float scale);
    float (*abs_max)(const float *x, int64_t n); /* of all; NaN when there is one */
} sw_int_ops;

extern const sw_int_ops sw_int_ops_any;
#if SW_X86_SIMD
extern const sw_int_ops sw_int_ops_avx2, sw_int_ops_vnni;
#endif

#endif
