/* bpe.h - byte-pair encoding of one word: characters to symbols, symbols merged by rank.
 *
 * The result is that of the plain rule "merge the adjacent pair of lowest rank, leftmost
 * first, until none is left" (Sennrich et al. 2016), in O(n log n) for a word of n symbols.
 */
#ifndef SW_FORMATS_TEXT_BPE_H
#define SW_FORMATS_TEXT_BPE_H

#include "formats/text/characters/unicode.h"
#include "formats/text/tokenizer.h"
#include "formats/text/unspelled.h"
#include "formats/text/vocab.h"

typedef struct sw_bpe_cache_entry sw_bpe_cache_entry;
typedef struct sw_bpe_symbol sw_bpe_symbol;
typedef struct sw_bpe_candidate sw_bpe_candidate;

typedef struct sw_bpe {
    sw_vocab vocab;
    uint32_t unk_id; /* SW_NO_TOKEN: none */
    bool fuse_unk, byte_fallback, ignore_merges;
    bool map_bytes; /* the word is raw bytes, to be spelled in the byte-level alphabet */
    const char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; "" for none */
    size_t prefix_bytes, suffix_bytes;
    uint32_t byte_ids[256];  /* "<0xHH>" tokens; SW_NO_TOKEN where the vocabulary has none */
    uint32_t ascii_ids[128]; /* single-character tokens */
    bool can_drop;       /* a character may become nothing: no unk, not all byte tokens */
    bool may_cut_blocks; /* words may be encoded in pieces that begin with U+2581 */
    uint32_t block_bloom[128]; /* characters that some merge joins to a following U+2581 */
    sw_bpe_cache_entry *cache;
    sw_bpe_symbol *symbols;
    size_t symbols_capacity;
    sw_bpe_candidate *heap;
    size_t heap_capacity;
    sw_text_buf mapped, decorated;
    sw_unspelled unspelled; /* since the owner cleared it */
} sw_bpe;

/* After vocab and flags are set. */
sw_code sw_bpe_prepare(sw_bpe *bpe, sw_err *err) SW_MUST_USE;
void sw_bpe_free(sw_bpe *bpe);

/* Append the ids of one word of valid UTF-8. A character that neither the vocabulary nor byte
 * tokens can spell becomes unk, or nothing when there is none; it is counted either way. */
sw_code sw_bpe_encode(sw_bpe *bpe, sw_ids *out, const char *word, size_t n_bytes,
                      sw_err *err) SW_MUST_USE;

/* The byte-level alphabet: 188 bytes stand for themselves, the others for U+0100 and on. */
uint32_t sw_byte_to_char(unsigned char byte);
int sw_char_to_byte(uint32_t code_point); /* -1 outside the alphabet */
sw_code sw_bytes_to_chars(sw_text_buf *out, const char *text, size_t n_bytes,
                          sw_err *err) SW_MUST_USE;

/* The merging half of bpe.h, on symbols already in place. */

struct sw_bpe_symbol {
    uint32_t id;
    int32_t previous, next; /* indices of neighbours, -1 at the ends */
    bool is_dead;           /* merged into its left neighbour */
};

struct sw_bpe_candidate {
    uint64_t order; /* rank << 32 | position: lowest first */
    uint32_t merged;
};

/* Merge bpe->symbols[0, *n) until no pair merges; the survivors move to the front and *n
 * becomes their count. SW_E_UNSUPPORTED: a word of more than 2^31 - 1 symbols. */
sw_code sw_bpe_merge(sw_bpe *bpe, size_t *n, sw_err *err) SW_MUST_USE;

/* The two ways it is done, for tests: quadratic on short words, a heap on long ones. */
void sw_bpe_merge_short(const sw_bpe *bpe, size_t *n); /* at most SW_BPE_SHORT_SYMBOLS */
sw_code sw_bpe_merge_long(sw_bpe *bpe, size_t *n, sw_err *err) SW_MUST_USE;
#define SW_BPE_SHORT_SYMBOLS 32

#endif
