/* words.c - see words.h. Streams go in bands of 16, so that the transposed orders, too, read
 * and write whole cache lines. */
#include "formats/pack/words.h"

#include <stdbool.h>
#include <string.h>

#include "formats/base/size.h"

#define BAND 16
#define BLOCK 32 /* codes that fill `bits` words exactly, for every width */

/* The words of n <= 32 codes. */
static void pack_block(uint8_t *words, int64_t word_step, const uint8_t *codes, int64_t code_step,
                       int n, int bits, int bias)
{
    uint32_t mask = (1u << bits) - 1u;
    uint64_t pending = 0;
    int n_pending = 0;

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

/* --- 4 and 8 bits whose codes are neighbours: most of what is converted --- */

/* Words of a run: enough for a loop to become vector instructions, few enough for the first
 * cache. */
#define RUN_WORDS 64
#define RUN_BYTES (4 * RUN_WORDS)

static void pack_run(uint8_t *bytes, const uint8_t *codes, int64_t n_bytes, int bits)
{
    if (bits == 8) {
        memcpy(bytes, codes, (size_t)n_bytes);
        return;
    }
    for (int64_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)((codes[2 * i] & 15) | codes[2 * i + 1] << 4);
}

static void unpack_run(uint8_t *codes, const uint8_t *bytes, int64_t n_bytes, int bits)
{
    if (bits == 8) {
        memcpy(codes, bytes, (size_t)n_bytes);
        return;
    }
    for (int64_t i = 0; i < n_bytes; i++) {
        codes[2 * i] = bytes[i] & 15;
        codes[2 * i + 1] = bytes[i] >> 4;
    }
}

/* A band of streams and a run of words of each: n_streams x n_words words of the tensor to and from
 * runs that lie side by side. */
typedef struct patch {
    uint8_t *words; /* of the first stream */
    int64_t word_step, stream_step, n_streams, n_words;
} patch;

static void gather_words(uint8_t runs[BAND][RUN_BYTES], const patch *p)
{
    for (int64_t w = 0; w < p->n_words; w++)
        for (int64_t s = 0; s < p->n_streams; s++)
            memcpy(runs[s] + 4 * w, p->words + 4 * (s * p->stream_step + w * p->word_step), 4);
}

static void scatter_words(const patch *p, uint8_t runs[BAND][RUN_BYTES])
{
    for (int64_t w = 0; w < p->n_words; w++)
        for (int64_t s = 0; s < p->n_streams; s++)
            memcpy(p->words + 4 * (s * p->stream_step + w * p->word_step), runs[s] + 4 * w, 4);
}

static void move_patch(const patch *p, uint8_t *codes, int64_t code_stream_step, int bits,
                       bool is_unpacking)
{
    uint8_t runs[BAND][RUN_BYTES];

    if (is_unpacking) gather_words(runs, p);
    for (int64_t s = 0; s < p->n_streams; s++) {
        if (is_unpacking) unpack_run(codes + s * code_stream_step, runs[s], 4 * p->n_words, bits);
        else pack_run(runs[s], codes + s * code_stream_step, 4 * p->n_words, bits);
    }
    if (!is_unpacking) scatter_words(p, runs);
}

/* All whole blocks; returns how many codes of each stream that were, 0 where the streams are not
 * of this kind. */
static int64_t move_neighbours(uint8_t *words, uint8_t *codes, const sw_words *at, int bias,
                               bool is_unpacking)
{
    int64_t n_codes = at->n_codes / BLOCK * BLOCK, n_words = n_codes * at->bits / 32;

    if (bias || at->code_step != 1 || (at->bits != 4 && at->bits != 8)) return 0;
    for (int64_t s = 0; s < at->n_streams; s += BAND)
        for (int64_t w = 0; w < n_words; w += RUN_WORDS) {
            const patch p = {words + 4 * (s * at->word_stream_step + w * at->word_step),
                             at->word_step, at->word_stream_step,
                             sw_min_i64(BAND, at->n_streams - s),
                             sw_min_i64(RUN_WORDS, n_words - w)};
            move_patch(&p, codes + s * at->code_stream_step + w * 32 / at->bits,
                       at->code_stream_step, at->bits, is_unpacking);
        }
    return n_codes;
}

void sw_words_pack(void *words, const uint8_t *codes, const sw_words *at, int bias)
{
    int64_t done = move_neighbours(words, (uint8_t *)(uintptr_t)codes, at, bias, false);

    for (int64_t s0 = 0; s0 < at->n_streams; s0 += BAND)
        for (int64_t i = done; i < at->n_codes; i += BLOCK)
            for (int64_t s = s0; s < sw_min_i64(s0 + BAND, at->n_streams); s++)
                pack_block((uint8_t *)words + 4 * (s * at->word_stream_step +
                                                   i / BLOCK * at->bits * at->word_step),
                           at->word_step, codes + s * at->code_stream_step + i * at->code_step,
                           at->code_step, (int)sw_min_i64(BLOCK, at->n_codes - i), at->bits, bias);
}

void sw_words_unpack(uint8_t *codes, const void *words, const sw_words *at, int bias)
{
    int64_t done = move_neighbours((uint8_t *)(uintptr_t)words, codes, at, bias, true);

    for (int64_t s0 = 0; s0 < at->n_streams; s0 += BAND)
        for (int64_t i = done; i < at->n_codes; i += BLOCK)
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
    [SW_PACK_TILES2] = {"tiles2", "the same tiles folded into a 2-bit container", NULL},
    [SW_PACK_TILES3] = {"tiles3", "the same tiles folded into a 3-bit container", NULL},
    [SW_PACK_TILES4] = {"tiles4", "64 x 64 tiles in tensor-core lane order, 4-bit container",
                        NULL},
    [SW_PACK_TILES8] = {"tiles8", "64 x 64 tiles in tensor-core lane order, 8-bit container",
                        NULL},
};
