/* gguf_vocab_parts.h - the tokenizer of a GGUF as the files that make JSON of it share it. */
#ifndef SW_FORMATS_GGUF_GGUF_VOCAB_PARTS_H
#define SW_FORMATS_GGUF_GGUF_VOCAB_PARTS_H

#include "formats/gguf/gguf_pre.h"
#include "formats/gguf/gguf_vocab.h"

#define SW_GGUF_VOCAB "tokenizer.ggml."
#define SW_GGUF_SPACE "\xe2\x96\x81" /* U+2581 */

/* How a text becomes tokens; tokenizer.ggml.model. */
typedef enum sw_gguf_scheme {
    SW_GGUF_BYTES,   /* "gpt2": bytes spelled as characters, merges listed */
    SW_GGUF_PIECES,  /* "llama": sentencepiece BPE, pieces merge by their score */
    SW_GGUF_MERGED,  /* "gemma4": pieces whose merges are listed */
    SW_GGUF_UNIGRAM  /* "t5": the pieces whose scores add up to the most */
} sw_gguf_scheme;

typedef struct sw_gguf_piece {
    const char *text;
    uint64_t n_bytes;
    uint32_t id;
    sw_gguf_token type;
    double score;
} sw_gguf_piece;

/* Ids are -1 where there is no such token. */
typedef struct sw_gguf_ids {
    int64_t bos, eos, unk, pad, sep, mask;
} sw_gguf_ids;

typedef struct sw_gguf_vocab {
    const sw_gguf *g;
    sw_gguf_scheme scheme;
    sw_gguf_piece *pieces;        /* [n] by id */
    const sw_gguf_piece *by_text; /* [n_texts]: those with a text, sorted by it */
    int64_t n, n_texts;
    const sw_gguf_pre *pre; /* NULL: pieces without a name */
    bool adds_prefix, adds_bos, adds_eos, merges_blanks, cleans;
    bool strips_after; /* special tokens take the blanks behind them */
    sw_gguf_ids ids;
    sw_arena arena;
    sw_print_buf buf; /* what is being made */
    sw_err *err;
} sw_gguf_vocab;

/* v->g and v->err are set, the rest is zero. Free with sw_gguf_vocab_free in any case. */
sw_code sw_gguf_vocab_read(sw_gguf_vocab *v) SW_MUST_USE;
void sw_gguf_vocab_free(sw_gguf_vocab *v);
const char *sw_gguf_vocab_path(const sw_gguf_vocab *v);
/* NULL: no token has this text. */
const sw_gguf_piece *sw_gguf_vocab_find(const sw_gguf_vocab *v, const char *text,
                                        uint64_t n_bytes);
/* Cut out of the text before anything else looks at it; and left out when it is decoded. */
bool sw_gguf_piece_is_added(const sw_gguf_piece *p);
bool sw_gguf_piece_is_special(const sw_gguf_piece *p);

sw_code sw_gguf_vocab_put(sw_gguf_vocab *v, const char *text) SW_MUST_USE;
sw_code sw_gguf_vocab_put_piece(sw_gguf_vocab *v, const sw_gguf_piece *p) SW_MUST_USE;
/* The members of "merges", without brackets around. */
sw_code sw_gguf_vocab_put_merges(sw_gguf_vocab *v) SW_MUST_USE;

#endif
