/* gguf_vocab.h - tokenizers as GGUF metadata: tokens, types, merges or scores, and the name of a
 * pre-tokenizer instead of its rules (gguf_pre.h). Written here; read by gguf_model.h.
 */
#ifndef SW_FORMATS_GGUF_GGUF_VOCAB_H
#define SW_FORMATS_GGUF_GGUF_VOCAB_H

#include "formats/base/json.h"
#include "formats/file/gguf.h"

/* tokenizer.ggml.token_type */
typedef enum sw_gguf_token {
    SW_GGUF_TOKEN_NORMAL = 1, SW_GGUF_TOKEN_UNKNOWN, SW_GGUF_TOKEN_CONTROL,
    SW_GGUF_TOKEN_USER, SW_GGUF_TOKEN_UNUSED, SW_GGUF_TOKEN_BYTE
} sw_gguf_token;

/* What a model directory says about its tokenizer, parsed; config may be NULL. */
typedef struct sw_gguf_vocab_source {
    const cJSON *tokenizer, *config; /* tokenizer.json, tokenizer_config.json */
    const char *chat_template;       /* of a file of its own, or NULL */
    int64_t n_tokens;                /* rows of the embedding */
    int64_t bos_id, eos_id;          /* of config.json; -1: none */
} sw_gguf_vocab_source;

/* All tokenizer.* keys. SW_E_UNSUPPORTED: a rule of the tokenizer that GGUF loaders do not have. */
sw_code sw_gguf_vocab_write(sw_gguf_writer *w, const sw_gguf_vocab_source *source,
                            sw_err *err) SW_MUST_USE;

#endif
