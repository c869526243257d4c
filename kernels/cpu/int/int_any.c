/* int_any.c - the inner loops of the integer rows for every machine. */
#include "kernels/cpu/int/int_ops.h"
#include "kernels/cpu/int/unpack_any.h"
#include "kernels/cpu/simd/vec_any.h"

#define INT_TOKENS 4

static void unpack(uint8_t *panel, const uint8_t *tiles, int64_t n_tiles, int container_bits)
{
    unpack_any(panel, tiles, n_tiles, container_bits);
}

typedef int16_t halves __attribute__((vector_size(16)));

/* The sum of the two 16-bit products in each lane: 255 * 128 fits, so nothing is lost. */
static inline signed_words sum_of_products(words codes, words x)
{
    words product = (words)((halves)codes * (halves)x);

    return ((signed_words)(product << 16) >> 16) + ((signed_words)product >> 16);
}

/* Codes 0 and 2, or 1 and 3, of a word as two halves of every lane. */
static inline words pair_of(const int8_t *x)
{
    uint32_t pair = (uint16_t)x[0] | (uint32_t)(uint16_t)x[2] << 16;
    words w = {pair, pair, pair, pair};

    return w;
}

static void dot_token(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x)
{
    for (int slot = 0; slot < SW_TILE_N; slot += 16) {
        signed_words sum[4];

        memcpy(sum, sums + slot, sizeof sum);
        for (int64_t word = 0; word < n_words; word++) {
            const uint8_t *at = panel + word * SW_PANEL_WORD_BYTES + 4 * slot;
            words even = pair_of(x + 4 * word), odd = pair_of(x + 4 * word + 1);

            for (int i = 0; i < 4; i++) {
                words w = w_load(at + 16 * i);

                sum[i] += sum_of_products(w & 0x00ff00ffu, even) +
                          sum_of_products(w >> 8 & 0x00ff00ffu, odd);
            }
        }
        memcpy(sums + slot, sum, sizeof sum);
    }
}

static void dot(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                int64_t x_stride, int n_tokens, bool is_added)
{
    if (!is_added) memset(sums, 0, (size_t)(n_tokens * SW_TILE_N) * sizeof *sums);
    for (int m = 0; m < n_tokens; m++)
        dot_token(sums + m * SW_TILE_N, panel, n_words, x + m * x_stride);
}

/* the body uses the words, `dot` and `unpack` from above */
#include "kernels/cpu/int/int_body.h"
