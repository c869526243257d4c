/* gguf_pre.h - the pre-tokenizers of byte-level BPE that GGUF files name (tokenizer.ggml.pre).
 *
 * A name stands for expressions that cut the text one after the other, each what the one before
 * left, every match on its own. What a name stands for is written in one table, for both ways:
 * reading turns a name into the "pre_tokenizer" of tokenizer.json, writing finds the name of one.
 */
#ifndef SW_FORMATS_GGUF_GGUF_PRE_H
#define SW_FORMATS_GGUF_GGUF_PRE_H

#include "formats/base/json.h"
#include "formats/base/print_buf.h"

typedef enum sw_gguf_pre_flag {
    SW_GGUF_PRE_NFC = 1,    /* text is normalized first */
    SW_GGUF_PRE_WHOLE = 2,  /* ignore_merges: a word that is a token is not merged again */
    SW_GGUF_PRE_BOS = 4,    /* begins with BOS, when tokenizer.ggml.add_bos_token does not say */
    SW_GGUF_PRE_CLEAN = 8,  /* decoding takes blanks away from before punctuation */
    SW_GGUF_PRE_PIECES = 16 /* no bytes: blanks are U+2581, unknown characters are <0xHH> */
} sw_gguf_pre_flag;

/* A name may have several rows: reading takes the first, writing any. */
typedef struct sw_gguf_pre {
    const char *name;          /* tokenizer.ggml.pre */
    const char *const *splits; /* expressions, up to NULL */
    unsigned flags;            /* of sw_gguf_pre_flag */
} sw_gguf_pre;

extern const sw_gguf_pre sw_gguf_pres[];
extern const int sw_gguf_n_pres;

const sw_gguf_pre *sw_gguf_pre_find(const char *name); /* NULL: unknown */
/* The value of "pre_tokenizer". */
sw_code sw_gguf_pre_print(sw_print_buf *buf, const sw_gguf_pre *pre, sw_err *err) SW_MUST_USE;
/* The row that does what this tokenizer.json does; of several that do, the first whose
 * SW_GGUF_PRE_CLEAN is `cleans` if there is one (-1: it does not matter). SW_E_UNSUPPORTED says
 * what has no name. */
sw_code sw_gguf_pre_match(const sw_gguf_pre **out, const cJSON *tokenizer, int cleans,
                          sw_err *err) SW_MUST_USE;

#endif
