/* gguf_model.h - a GGUF opened as what a model directory is: config.json, tensors, tokenizer.
 *
 * Tensors have the model's names, shapes and row order. Those that lie in the file as the model
 * means them are views into it; others are made when they are read: blocks are decoded to F32,
 * rows of q and k put back in order, norms made less one again. Norms, biases and routers, which
 * GGUF always stores as F32, have the model's dtype where that loses nothing.
 */
#ifndef SW_FORMATS_DIALECT_GGUF_MODEL_H
#define SW_FORMATS_DIALECT_GGUF_MODEL_H

#include "formats/base/json.h"
#include "formats/file/gguf.h"
#include "formats/file/safetensors.h"

/* SW_E_IO, SW_E_FORMAT: a tensor is missing or shaped otherwise; SW_E_UNSUPPORTED: architecture,
 * type, or a tensor that nothing here knows, named. config is owned by the caller. */
sw_code sw_gguf_model_open(cJSON **config, sw_st **st, const char *path, sw_err *err) SW_MUST_USE;

/* The tokenizer.json that a directory of the same model would have, freed by sw_mem_put.
 * SW_E_UNSUPPORTED: a kind of tokenizer or of pre-tokenizer that is not known here. */
sw_code sw_gguf_tokenizer(char **json, size_t *n_bytes, const sw_gguf *g, sw_err *err) SW_MUST_USE;
/* The same of the file at `path`. */
sw_code sw_gguf_tokenizer_of(char **json, size_t *n_bytes, const char *path,
                             sw_err *err) SW_MUST_USE;
/* tokenizer_config.json with the special tokens and the chat template; freed by sw_mem_put. */
sw_code sw_gguf_tokenizer_config(char **json, const sw_gguf *g, sw_err *err) SW_MUST_USE;

#endif
