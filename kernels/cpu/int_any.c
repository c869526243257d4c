/* int_any.c - the inner loops of the integer rows for every machine. */
#include "kernels/cpu/int_ops.h"
#include "kernels/cpu/unpack_any.h"
#include "kernels/cpu/vec_any.h"

#define INT_TOKENS 4

static void unpack(uint8_t *panel, const uint8_t *tiles, int64_t n_tiles, int container_bits)
{
    unpack_any(panel, tiles, n_tiles, container_bits);
}

static void dot(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                int64_t x_stride, int n_tokens, bool is_added)
{
    if (!is_added) memset(sums, 0, (size_t)(n_tokens * SW_TILE_N) * sizeof *sums);
    for (int64_t word = 0; word < n_words; word++, panel += SW_PANEL_WORD_BYTES)
        for (int m = 0; m < n_tokens; m++) {
            const int8_t *in = x + m * x_stride + 4 * word;
            int32_t a = in[0], b = in[1], c = in[2], d = in[3], *to = sums + m * SW_TILE_N;

            for (int i = 0; i < SW_TILE_N; i++) {
                const uint8_t *w = panel + 4 * i;
                to[i] = (int32_t)((uint32_t)to[i] + (uint32_t)(a * w[0] + b * w[1] + c * w[2] +
                                                               d * w[3]));
            }
        }
}

/* the body uses the words, `dot` and `unpack` from above */
#include "kernels/cpu/int_body.h"
