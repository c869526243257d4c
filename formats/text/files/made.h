/* made.h - a tokenizer.json that is made of the files of other kinds of tokenizers.
 *
 * A maker lists the pieces of its vocabulary and the tokens that are cut out of a text first, and
 * prints the parts of the format in order. Every added token is in the model's vocabulary too:
 * readers number anew those that are not, whatever id the file states.
 */
#ifndef SW_FORMATS_TEXT_FILES_MADE_H
#define SW_FORMATS_TEXT_FILES_MADE_H

#include <stdbool.h>

#include "formats/base/print_buf.h"
#include "formats/text/files/token_config.h"

#define SW_PIECE_MAX_BYTES ((size_t)512)
#define SW_PIECES_MAX ((int64_t)1 << 22)

typedef struct sw_piece {
    const char *text;
    size_t n_bytes;
    int64_t id;
    double order;   /* of BPE, lowest merges first; of unigram, the score */
    bool can_merge; /* is spelled out of other pieces */
} sw_piece;

typedef struct sw_made {
    const sw_token_config *config;
    sw_piece *pieces, *sorted; /* as they were added, and by text; [n], of the arena */
    int64_t n, room, n_ids;    /* n_ids: one more than the largest id */
    sw_added_entry *added;     /* in the order of their ids once sealed */
    int64_t n_added, added_room;
    sw_print_buf buf;
    sw_arena arena;
    sw_err *err;
} sw_made;

/* Room for so many pieces and tokens besides those of the config. */
sw_code sw_made_reserve(sw_made *made, int64_t n_pieces, int64_t n_added) SW_MUST_USE;
/* `text` outlives `made`. SW_E_FORMAT: not UTF-8, a NUL, empty, too long, an id out of range. */
sw_code sw_made_piece(sw_made *made, const char *text, size_t n_bytes, int64_t id, double order,
                      bool can_merge) SW_MUST_USE;
/* A token to be cut out first; id -1: that of the piece of its text. The config's came before. */
sw_code sw_made_token(sw_made *made, const sw_added_entry *token) SW_MUST_USE;
/* After all pieces and tokens: make pieces of tokens that are none, drop what is there twice.
 * SW_E_FORMAT: two texts for an id, or two ids for a text. */
sw_code sw_made_seal(sw_made *made) SW_MUST_USE;
const sw_piece *sw_made_find(const sw_made *made, const char *text, size_t n_bytes);

sw_code sw_made_put(sw_made *made, const char *text) SW_MUST_USE;
/* '{"version": ..., "added_tokens": [...],' */
sw_code sw_made_put_head(sw_made *made) SW_MUST_USE;
/* '"post_processor": ...,': tokens by text, NULL for none, around every text; `plain` when there
 * is neither. */
sw_code sw_made_put_template(sw_made *made, const char *bos, const char *eos,
                             const char *plain) SW_MUST_USE;
sw_code sw_made_put_vocab(sw_made *made) SW_MUST_USE;  /* '"vocab":{text: id, ...}' */
/* '"merges":[...]': every way to put a piece together of two others, in the order of the pieces. */
sw_code sw_made_put_merges(sw_made *made) SW_MUST_USE;
/* The text, zero-terminated, to be freed with sw_mem_put. */
sw_code sw_made_take(char **json, size_t *n_bytes, sw_made *made) SW_MUST_USE;
void sw_made_free(sw_made *made);

/* tokenizer.json out of the other files that a tokenizer comes in.
 *
 * Each maker prints what Hugging Face's tokenizers read as the same tokenizer. All are SW_E_FORMAT
 * for what is malformed and SW_E_UNSUPPORTED, with the remedy, for what has no such form; neither
 * names the file, the caller does. `config` outlives the call. *json is freed by sw_mem_put. */

/* vocab.json and merges.txt of byte-level BPE; how words are cut follows from the class. */
sw_code sw_make_from_merges(char **json, size_t *n_bytes, const cJSON *vocab, const char *merges,
                            size_t merges_bytes, const sw_token_config *config,
                            sw_err *err) SW_MUST_USE;
/* A sentencepiece model, BPE or unigram. */
sw_code sw_make_from_spm(char **json, size_t *n_bytes, const unsigned char *model,
                         size_t model_bytes, const sw_token_config *config,
                         sw_err *err) SW_MUST_USE;
/* Mistral's tekken.json. */
sw_code sw_make_from_tekken(char **json, size_t *n_bytes, const cJSON *tekken,
                            const sw_token_config *config, sw_err *err) SW_MUST_USE;

#endif
