/* words.h - codes in 32-bit words, and the table of physical orders.
 *
 * A word stream is LSB-first: code i of b bits occupies bits [i*b, i*b + b) of the
 * little-endian bit string made of consecutive words; the last word is padded with zeros.
 * With 3 bits, 32 codes fill 3 words and codes 10 and 21 straddle two of them.
 *
 * What differs between ecosystems is the axis a stream runs along and the axis that its
 * words lie along. For codes [n, k] (or zero points [n, groups]):
 *
 *   k_words       one stream per row n, its words adjacent      [n, k_words]   (compressed-tensors)
 *   k_words_t     one stream per row n, its words N apart       [k_words, n]   (gptq weights)
 *   n_words       one stream per column, its words a row apart  [n_words, k]   (compressed-tensors
 *                                                                               zero points)
 *   n_words_t     one stream per column, its words adjacent     [k, n_words]   (gptq zero points)
 *   interleave    words of eight channels, see interleave.h  (awq)
 *   marlin4/8     tiles of 16 x 64, see marlin.h
 *   tiles4/tiles8 Swage tiles, see tiles.h
 *
 * Words are bit patterns; safetensors calls them I32.
 */
#ifndef SW_FORMATS_PACK_WORDS_H
#define SW_FORMATS_PACK_WORDS_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t sw_words_count(int64_t n_codes, int bits)
{
    return (n_codes * bits + 31) / 32;
}

/* n_streams streams of n_codes codes; distances in elements (codes) and in words. */
typedef struct sw_words {
    int bits;
    int64_t n_streams, n_codes;
    int64_t code_step, code_stream_step;
    int64_t word_step, word_stream_step;
} sw_words;

/* Add `bias` to each code modulo 2^bits on the way: gptq v1 stores zero points minus one. */
void sw_words_pack(void *words, const uint8_t *codes, const sw_words *layout, int bias);
/* The inverse: unpack with bias undoes pack with -bias. Padding bits are ignored. */
void sw_words_unpack(uint8_t *codes, const void *words, const sw_words *layout, int bias);

typedef struct sw_pack {
    const char *name;
    const char *summary; /* one line for `swage list` */
    /* Where the words of codes [rows, columns] lie; NULL for an order that is not of words. */
    void (*layout)(sw_words *out, int64_t rows, int64_t columns, int bits);
} sw_pack;

typedef enum sw_pack_id {
    SW_PACK_K_WORDS, SW_PACK_K_WORDS_T, SW_PACK_N_WORDS, SW_PACK_N_WORDS_T,
    SW_PACK_INTERLEAVE, SW_PACK_MARLIN4, SW_PACK_MARLIN8,
    SW_PACK_TILES2, SW_PACK_TILES3, SW_PACK_TILES4, SW_PACK_TILES8, SW_PACK_COUNT
} sw_pack_id;

extern const sw_pack sw_packs[SW_PACK_COUNT];

#endif
