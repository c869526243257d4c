/* tokenizer.h - BPE and unigram tokenizers from tokenizer.json.
 *
 * The subset of the Hugging Face format that language models use: added tokens, normalizers,
 * pre-tokenizers with PCRE2 split patterns, BPE with ignore_merges and byte fallback, unigram
 * models, template post-processing. What its steps make of a text is bounded (growth.h).
 */
#ifndef SW_FORMATS_TEXT_TOKENIZER_H
#define SW_FORMATS_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/text/unspelled.h"

typedef struct sw_tokenizer sw_tokenizer;

/* Growable list of token ids; zero-initialise, free with sw_ids_free. */
typedef struct sw_ids {
    uint32_t *ids;
    int64_t n, capacity;
} sw_ids;
sw_code sw_ids_push(sw_ids *list, uint32_t id, sw_err *err) SW_MUST_USE;
void sw_ids_free(sw_ids *list);

/* `path` is a tokenizer.json. SW_E_FORMAT, or SW_E_UNSUPPORTED naming the feature.
 * "truncation" and "padding" are not applied: a corpus is encoded whole. */
sw_code sw_tokenizer_open(sw_tokenizer **out, const char *path, sw_err *err) SW_MUST_USE;
sw_code sw_tokenizer_open_bytes(sw_tokenizer **out, const char *json, size_t n_bytes,
                                const char *what, sw_err *err) SW_MUST_USE;
void sw_tokenizer_free(sw_tokenizer *tok); /* accepts NULL */

/* Append the ids of n_bytes of UTF-8. with_template adds what the post-processor adds (BOS ...).
 * A character that the vocabulary cannot spell becomes its unknown token or nothing, and counts.
 * SW_E_FORMAT: invalid UTF-8 (says at which byte), or a step, named, whose expression backtracks
 * without bound on this text or that makes far more of it than was given. `out` is then as it was.
 * One tokenizer may serve one thread at a time. */
sw_code sw_tokenizer_encode(sw_tokenizer *tok, sw_ids *out, const char *text, size_t n_bytes,
                            bool with_template, sw_err *err) SW_MUST_USE;
/* What the last text that was encoded had and the vocabulary has not. */
const sw_unspelled *sw_tokenizer_unspelled(const sw_tokenizer *tok);
/* Text of ids, zero-terminated, owned by the caller (sw_mem_put). skip_special leaves special
 * tokens out. SW_E_FORMAT for an id beyond the vocabulary. */
sw_code sw_tokenizer_decode(const sw_tokenizer *tok, char **out, size_t *out_bytes,
                            const uint32_t *ids, int64_t n, bool skip_special,
                            sw_err *err) SW_MUST_USE;

int64_t sw_tokenizer_vocab(const sw_tokenizer *tok); /* one more than the largest id */
/* true and *id when `content` is a token (added or of the vocabulary). */
bool sw_tokenizer_id(const sw_tokenizer *tok, const char *content, uint32_t *id);

#endif
