/* words.c - see words.h. Streams go in bands of 16, so that the transposed orders, too, read
 * and write whole cache lines. */
#include "formats/pack/words.h"

#include <stdbool.h>

#include "formats/base/size.h"

#define BAND 16
#define BLOCK 32 /* codes that fill `bits` words exactly, for every width */

/* Full blocks of 4 and 8 bits whose codes are neighbours: most of what is converted. Eight codes of
 * four bits move at a time, halving the distance between them in each step. */
static bool pack_neighbours(uint8_t *words, int64_t word_step, const uint8_t *codes, int bits)
{
    for (int w = 0; w < bits; w++, words += 4 * word_step) {
        if (bits == 4) {
            uint64_t v = sw_load_le64(codes + 8 * w) & 0x0f0f0f0f0f0f0f0fu;
            v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
            v = (v | v >> 8) & 0x0000ffff0000ffffu;
            sw_store_le32(words, (uint32_t)(v | v >> 16));
        } else if (bits == 8) {
            sw_store_le32(words, sw_load_le32(codes + 4 * w));
        } else {
            return false;
        }
    }
    return true;
}

static bool unpack_neighbours(uint8_t *codes, const uint8_t *words, int64_t word_step, int bits)
{
    for (int w = 0; w < bits; w++, words += 4 * word_step) {
        uint64_t v = sw_load_le32(words);
        if (bits == 4) {
            v = (v | v << 16) & 0x0000ffff0000ffffu;
            v = (v | v << 8) & 0x00ff00ff00ff00ffu;
            v = (v | v << 4) & 0x0f0f0f0f0f0f0f0fu;
            sw_store_le64(codes + 8 * w, v);
        } else if (bits == 8) {
            sw_store_le32(codes + 4 * w, (uint32_t)v);
        } else {
            return false;
        }
    }
    return true;
}

/* The words of n <= 32 codes. */
static void pack_block(uint8_t *words, int64_t word_step, const uint8_t *codes, int64_t code_step,
                       int n, int bits, int bias)
{
    uint32_t mask = (1u << bits) - 1u;
    uint64_t pending = 0;
    int n_pending = 0;

    if (n == BLOCK && code_step == 1 && !bias && pack_neighbours(words, word_step, codes, bits))
        return;

    for (int i = 0; i < n; i++) {
        uint32_t code = ((uint32_t)codes[i * code_step] + (uint32_t)bias) & mask;
        pending |= (uint64_t)code << n_pending;
        n_pending += bits;
        if (n_pending < 32) continue;
        sw_store_le32(words, (uint32_t)pending);
        words += 4 * word_step;
        pending >>= 32;
        n_pending -= 32;
    }
    if (n_pending) sw_store_le32(words, (uint32_t)pending);
}

static void unpack_block(uint8_t *codes, int64_t code_step, const uint8_t *words,
                         int64_t word_step, int n, int bits, int bias)
{
    uint32_t mask = (1u << bits) - 1u;
    uint64_t pending = 0;
    int n_pending = 0;

    if (n == BLOCK && code_step == 1 && !bias && unpack_neighbours(codes, words, word_step, bits))
        return;
    for (int i = 0; i < n; i++) {
        if (n_pending < bits) {
            pending |= (uint64_t)sw_load_le32(words) << n_pending;
            words += 4 * word_step;
            n_pending += 32;
        }
        codes[i * code_step] = (uint8_t)(((uint32_t)pending + (uint32_t)bias) & mask);
        pending >>= bits;
        n_pending -= bits;
    }
}

void sw_words_pack(void *words, const uint8_t *codes, const sw_words *at, int bias)
{
    for (int64_t s0 = 0; s0 < at->n_streams; s0 += BAND)
        for (int64_t i = 0; i < at->n_codes; i += BLOCK)
            for (int64_t s = s0; s < sw_min_i64(s0 + BAND, at->n_streams); s++)
                pack_block((uint8_t *)words + 4 * (s * at->word_stream_step +
                                                   i / BLOCK * at->bits * at->word_step),
                           at->word_step, codes + s * at->code_stream_step + i * at->code_step,
                           at->code_step, (int)sw_min_i64(BLOCK, at->n_codes - i), at->bits, bias);
}

void sw_words_unpack(uint8_t *codes, const void *words, const sw_words *at, int bias)
{
    for (int64_t s0 = 0; s0 < at->n_streams; s0 += BAND)
        for (int64_t i = 0; i < at->n_codes; i += BLOCK)
            for (int64_t s = s0; s < sw_min_i64(s0 + BAND, at->n_streams); s++)
                unpack_block(codes + s * at->code_stream_step + i * at->code_step, at->code_step,
                             (const uint8_t *)words + 4 * (s * at->word_stream_step +
                                                           i / BLOCK * at->bits * at->word_step),
                             at->word_step, (int)sw_min_i64(BLOCK, at->n_codes - i), at->bits,
                             bias);
}

static void layout_k_words(sw_words *out, int64_t rows, int64_t columns, int bits)
{
    sw_words at = {bits, rows, columns, 1, columns, 1, sw_words_count(columns, bits)};
    *out = at;
}

static void layout_k_words_t(sw_words *out, int64_t rows, int64_t columns, int bits)
{
    sw_words at = {bits, rows, columns, 1, columns, rows, 1};
    *out = at;
}

static void layout_n_words(sw_words *out, int64_t rows, int64_t columns, int bits)
{
    sw_words at = {bits, columns, rows, columns, 1, columns, 1};
    *out = at;
}

static void layout_n_words_t(sw_words *out, int64_t rows, int64_t columns, int bits)
{
    sw_words at = {bits, columns, rows, columns, 1, 1, sw_words_count(rows, bits)};
    *out = at;
}

const sw_pack sw_packs[SW_PACK_COUNT] = {
    [SW_PACK_K_WORDS] = {"k_words", "words along k, one row per channel (compressed-tensors)",
                         layout_k_words},
    [SW_PACK_K_WORDS_T] = {"k_words_t", "words along k, channels adjacent (gptq weights)",
                           layout_k_words_t},
    [SW_PACK_N_WORDS] = {"n_words", "words along n, groups adjacent (compressed-tensors zeros)",
                         layout_n_words},
    [SW_PACK_N_WORDS_T] = {"n_words_t", "words along n, one row per group (gptq zeros)",
                           layout_n_words_t},
    [SW_PACK_INTERLEAVE] = {"interleave", "words of eight channels in turns (awq)", NULL},
    [SW_PACK_MARLIN4] = {"marlin4", "16 x 64 tiles in the lane order of Marlin kernels, 4 bits",
                         NULL},
    [SW_PACK_MARLIN8] = {"marlin8", "16 x 64 tiles in the lane order of Marlin kernels, 8 bits",
                         NULL},
    [SW_PACK_TILES4] = {"tiles4", "64 x 64 tiles in tensor-core lane order, 4-bit container",
                        NULL},
    [SW_PACK_TILES8] = {"tiles8", "64 x 64 tiles in tensor-core lane order, 8-bit container",
                        NULL},
};
