/* vocab.h - tokens by text and by id, and which pair of tokens merges into which.
 *
 * Filled once from an untrusted file, read-only afterwards. Both tables are open-addressed
 * and refuse input that makes probes long, so that a crafted file cannot make loading slow.
 */
#ifndef SW_FORMATS_TEXT_VOCAB_H
#define SW_FORMATS_TEXT_VOCAB_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/mem.h"

/* Ids beyond this are refused: tables are indexed by id, and an id is untrusted. */
#define SW_TOKEN_ID_LIMIT ((int64_t)1 << 22)
#define SW_NO_TOKEN UINT32_MAX

typedef struct sw_token_text {
    const char *text; /* NULL: no token has this id */
    uint32_t n_bytes;
    uint32_t is_extra; /* an added token that the model itself does not know */
} sw_token_text;

typedef struct sw_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank_plus_one; /* 0: free slot */
    uint32_t merged;
} sw_merge;

typedef struct sw_vocab {
    sw_arena arena;
    sw_token_text *by_id; /* [n_ids] */
    int64_t n_ids;        /* one more than the largest id */
    uint64_t *slots;      /* hash high half, id + 1 low half; 0: free */
    size_t slot_mask;
    sw_merge *merges;
    size_t merge_mask;
} sw_vocab;

/* `vocab` {text: id} and `extra` tokens beyond it (added tokens; text that the vocabulary has
 * keeps the vocabulary's id). `merges` ["a b" | ["a","b"]]; `prefix` is dropped from the right
 * side of a merge.
 * SW_E_FORMAT: duplicate, negative, huge or non-integer ids, merges of unknown tokens. */
typedef struct sw_extra_token {
    const char *text;
    int64_t id;
} sw_extra_token;
sw_code sw_vocab_build(sw_vocab *out, const cJSON *vocab, const cJSON *merges, const char *prefix,
                       const sw_extra_token *extra, int64_t n_extra, sw_err *err) SW_MUST_USE;
/* `pieces` [[text, score], ...] of a unigram model, whose ids count them; no merges. */
sw_code sw_vocab_build_pieces(sw_vocab *out, const cJSON *pieces, const sw_extra_token *extra,
                              int64_t n_extra, sw_err *err) SW_MUST_USE;
void sw_vocab_free(sw_vocab *vocab); /* accepts a zeroed one */

/* SW_NO_TOKEN when there is none. The second finds only what the model knows. */
uint32_t sw_vocab_find(const sw_vocab *vocab, const char *text, size_t n_bytes);
uint32_t sw_vocab_find_model(const sw_vocab *vocab, const char *text, size_t n_bytes);
/* NULL when the pair does not merge. */
const sw_merge *sw_vocab_merge(const sw_vocab *vocab, uint32_t left, uint32_t right);

uint64_t sw_text_hash(const char *text, size_t n_bytes);

#endif
