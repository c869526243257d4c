/* int_avx2.c - the inner loops of the integer rows with AVX2.
 *
 * The byte product of AVX2 saturates its 16-bit pairs (2 * 255 * 127 does not fit), so codes are
 * widened to 16 bits and multiplied there, which cannot overflow.
 */
#include "kernels/rows.h"

#if SW_X86_SIMD
#include "kernels/cpu/int/int_ops.h"
#include "kernels/cpu/int/unpack_any.h"
#include "kernels/cpu/simd/unroll.h"
#include "kernels/cpu/simd/vec_avx2.h"

#define INT_TOKENS 4

static void unpack(uint8_t *panel, const uint8_t *tiles, int64_t n_tiles, int container_bits)
{
    unpack_any(panel, tiles, n_tiles, container_bits);
}

/* 16 slots: two vectors of four codes a lane. */
V_INLINE void dot_slots(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                        int64_t x_stride, bool is_added, int n_tokens)
{
    const __m256i low_byte = _mm256_set1_epi16(255);
    __m256i sum[INT_TOKENS][2];

    UNROLL for (int m = 0; m < n_tokens; m++)
        UNROLL for (int q = 0; q < 2; q++)
            sum[m][q] = is_added ? w_load(sums + m * SW_TILE_N + 8 * q) : _mm256_setzero_si256();
    for (int64_t word = 0; word < n_words; word++) {
        __m256i even[2], odd[2];

        UNROLL for (int q = 0; q < 2; q++) {
            __m256i w = w_load(panel + word * SW_PANEL_WORD_BYTES + 32 * q);

            even[q] = _mm256_and_si256(w, low_byte);
            odd[q] = _mm256_srli_epi16(w, 8);
        }
        UNROLL for (int m = 0; m < n_tokens; m++) {
            int32_t four_codes;
            __m256i in, in_even, in_odd;

            memcpy(&four_codes, x + m * x_stride + 4 * word, sizeof four_codes);
            in = _mm256_set1_epi32(four_codes);
            in_even = _mm256_srai_epi16(_mm256_slli_epi16(in, 8), 8);
            in_odd = _mm256_srai_epi16(in, 8);
            UNROLL for (int q = 0; q < 2; q++) {
                __m256i product = _mm256_add_epi32(_mm256_madd_epi16(even[q], in_even),
                                                   _mm256_madd_epi16(odd[q], in_odd));
                sum[m][q] = _mm256_add_epi32(sum[m][q], product);
            }
        }
    }
    UNROLL for (int m = 0; m < n_tokens; m++)
        UNROLL for (int q = 0; q < 2; q++)
            _mm256_storeu_si256((__m256i *)(void *)(sums + m * SW_TILE_N + 8 * q), sum[m][q]);
}

typedef void (*dot_fn)(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                       int64_t x_stride, bool is_added);
#define DOT(n_tokens)                                                                     \
    static void dot_##n_tokens(int32_t *sums, const uint8_t *panel, int64_t n_words,      \
                               const int8_t *x, int64_t x_stride, bool is_added)          \
    {                                                                                     \
        for (int slot = 0; slot < SW_TILE_N; slot += 16)                                  \
            dot_slots(sums + slot, panel + 4 * slot, n_words, x, x_stride, is_added, n_tokens); \
    }
DOT(1) DOT(2) DOT(3) DOT(4)

static void dot(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                int64_t x_stride, int n_tokens, bool is_added)
{
    static const dot_fn dots[INT_TOKENS] = {dot_1, dot_2, dot_3, dot_4};

    dots[n_tokens - 1](sums, panel, n_words, x, x_stride, is_added);
}

/* the body uses the words, `dot` and `unpack` from above */
#include "kernels/cpu/int/int_body.h"
#endif
