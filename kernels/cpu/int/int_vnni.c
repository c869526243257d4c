/* int_vnni.c - the inner loops of the integer rows with AVX-512 VNNI: four products a lane. */
#include "kernels/rows.h"

#if SW_X86_SIMD
#include <string.h>

#include "kernels/cpu/int/int_ops.h"
#include "kernels/cpu/simd/unroll.h"
#include "kernels/cpu/simd/vec_avx512.h"
#undef V_NAME
#define V_NAME(name) name##_vnni

#define INT_TOKENS 6

/* Eight lines, one per g, of eight words of two slots each, become eight vectors of one word and
 * sixteen slots: an 8 x 8 transposition of 64-bit elements. */
V_INLINE void put_lines(uint8_t *panel, const __m512i line[8])
{
    __m512i a[8], b[8];

    for (int g = 0; g < 8; g += 2) {
        a[g] = _mm512_unpacklo_epi64(line[g], line[g + 1]);     /* words 0 2 4 6 of g, g + 1 */
        a[g + 1] = _mm512_unpackhi_epi64(line[g], line[g + 1]); /* words 1 3 5 7 */
    }
    for (int odd = 0; odd < 2; odd++)
        for (int upper = 0; upper < 2; upper++) {
            __m512i low = a[4 * upper + odd], high = a[4 * upper + odd + 2];

            b[4 * odd + 2 * upper] = _mm512_shuffle_i64x2(low, high, 0x88);     /* words 0 4 */
            b[4 * odd + 2 * upper + 1] = _mm512_shuffle_i64x2(low, high, 0xdd); /* words 2 6 */
        }
    for (int odd = 0; odd < 2; odd++)
        for (int two = 0; two < 2; two++) {
            __m512i low = b[4 * odd + two], high = b[4 * odd + 2 + two];
            int word = odd + 2 * two;

            _mm512_store_si512(panel + word * SW_PANEL_WORD_BYTES,
                               _mm512_shuffle_i64x2(low, high, 0x88));
            _mm512_store_si512(panel + (word + 4) * SW_PANEL_WORD_BYTES,
                               _mm512_shuffle_i64x2(low, high, 0xdd));
        }
}

static void unpack_tile8(uint8_t *panel, const uint8_t *tile)
{
    for (int half = 0; half < 2; half++)
        for (int w = 0; w < 4; w++) {
            __m512i line[8];

            for (int g = 0; g < 8; g++)
                line[g] = _mm512_loadu_si512(tile + 2048 * half + 512 * w + 64 * g);
            put_lines(panel + 8 * half * SW_PANEL_WORD_BYTES + 64 * w, line);
        }
}

/* A line holds channel g in its low and g + 8 in its high nibbles; word by word beside each other
 * they are the two lines of 8-bit codes. */
static void unpack_tile4(uint8_t *panel, const uint8_t *tile)
{
    const __m512i nibble = _mm512_set1_epi8(15);

    for (int w = 0; w < 4; w++) {
        __m512i first[8], second[8];

        for (int g = 0; g < 8; g++) {
            __m512i both = _mm512_loadu_si512(tile + 512 * w + 64 * g);
            __m512i low = _mm512_and_si512(both, nibble);
            __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);

            first[g] = _mm512_unpacklo_epi32(low, high);
            second[g] = _mm512_unpackhi_epi32(low, high);
        }
        put_lines(panel + 64 * w, first);
        put_lines(panel + 8 * SW_PANEL_WORD_BYTES + 64 * w, second);
    }
}

/* Asks for the panel that comes next, or with few tokens the memory would rest while they run. */
static void unpack(uint8_t *panel, const uint8_t *tiles, int64_t n_tiles, int container_bits)
{
    uint8_t wide[SW_TILE_WIDE_BYTES];

    for (int64_t t = 0; t < n_tiles; t++) {
        const uint8_t *tile = tiles + t * sw_tile_bytes(container_bits);
        uint8_t *to = panel + t * SW_WORDS_PER_TILE * SW_PANEL_WORD_BYTES;

        for (int64_t i = 0; i < sw_tile_bytes(container_bits); i += 64)
            __builtin_prefetch(tile + n_tiles * sw_tile_bytes(container_bits) + i, 0, 2);
        if (container_bits < 4) {
            sw_tile_widen(wide, tile, container_bits);
            tile = wide;
        }
        if (container_bits <= 4) unpack_tile4(to, tile);
        else unpack_tile8(to, tile);
    }
}

V_INLINE void dot_tokens(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                         int64_t x_stride, bool is_added, int n_tokens)
{
    __m512i sum[INT_TOKENS][4];

    UNROLL for (int m = 0; m < n_tokens; m++)
        UNROLL for (int q = 0; q < 4; q++)
            sum[m][q] = is_added ? _mm512_loadu_si512(sums + m * SW_TILE_N + 16 * q)
                                 : _mm512_setzero_si512();
    for (int64_t word = 0; word < n_words; word++) {
        __m512i w[4];

        UNROLL for (int q = 0; q < 4; q++)
            w[q] = _mm512_load_si512(panel + word * SW_PANEL_WORD_BYTES + 64 * q);
        UNROLL for (int m = 0; m < n_tokens; m++) {
            int32_t four_codes;
            __m512i in;

            memcpy(&four_codes, x + m * x_stride + 4 * word, sizeof four_codes);
            in = _mm512_set1_epi32(four_codes);
            UNROLL for (int q = 0; q < 4; q++)
                sum[m][q] = _mm512_dpbusd_epi32(sum[m][q], w[q], in);
        }
    }
    UNROLL for (int m = 0; m < n_tokens; m++)
        UNROLL for (int q = 0; q < 4; q++)
            _mm512_storeu_si512(sums + m * SW_TILE_N + 16 * q, sum[m][q]);
}

typedef void (*dot_fn)(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                       int64_t x_stride, bool is_added);
#define DOT(n_tokens)                                                                         \
    static void dot_##n_tokens(int32_t *sums, const uint8_t *panel, int64_t n_words,          \
                               const int8_t *x, int64_t x_stride, bool is_added)              \
    {                                                                                         \
        dot_tokens(sums, panel, n_words, x, x_stride, is_added, n_tokens);                    \
    }
DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6)

static void dot(int32_t *sums, const uint8_t *panel, int64_t n_words, const int8_t *x,
                int64_t x_stride, int n_tokens, bool is_added)
{
    static const dot_fn dots[INT_TOKENS] = {dot_1, dot_2, dot_3, dot_4, dot_5, dot_6};

    dots[n_tokens - 1](sums, panel, n_words, x, x_stride, is_added);
}

/* the body uses the words, `dot` and `unpack` from above */
#include "kernels/cpu/int/int_body.h"
#endif
