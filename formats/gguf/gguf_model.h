/* gguf_model.h - a GGUF opened as what a model directory is: config.json, tensors, tokenizer.
 *
 * Tensors have the model's names, shapes and row order. Those that lie in the file as the model
 * means them are views into it; others are made when they are read: blocks are decoded to F32,
 * rows of q and k put back in order, norms made less one again, NVFP4 weights multiplied by the
 * factor that lies beside them ("blk.0.attn_q.scale"). Norms, biases and routers, which GGUF
 * always stores as F32, have the model's dtype where that loses nothing (gguf_dtype.h).
 */
#ifndef SW_FORMATS_GGUF_GGUF_MODEL_H
#define SW_FORMATS_GGUF_GGUF_MODEL_H

#include "formats/base/json.h"
#include "formats/file/gguf.h"
#include "formats/file/safetensors.h"
#include "formats/model/model.h"

/* How weights in blocks are given. */
typedef enum sw_gguf_view {
    SW_GGUF_FLOATS, /* "P.weight", F32 */
    SW_GGUF_CODES,  /* linears that are a logical weight as "P.Q4_0" and so on (dialect_gguf.h)
                       instead of "P.weight", with "P.NVFP4_scale", F32 [1], where the file has
                       one; the others as floats */
    SW_GGUF_BLOCKS  /* as floats, and besides all that lie in blocks as they are: "P.Q4_K", U8
                       [n_out, bytes of a row], rows in the model's order, and that scale */
} sw_gguf_view;

/* SW_E_IO, SW_E_FORMAT: a tensor is missing or shaped otherwise; SW_E_UNSUPPORTED: architecture,
 * type, or a tensor that nothing here knows, named. config is owned by the caller. */
sw_code sw_gguf_model_open(cJSON **config, sw_st **st, const char *path, sw_gguf_view view,
                           sw_err *err) SW_MUST_USE;
/* The same under the names of `like`, a model of this family in a checkpoint that may call the
 * decoder otherwise ("model.language_model.layers"); NULL: as above. */
sw_code sw_gguf_model_open_like(cJSON **config, sw_st **st, const char *path, sw_gguf_view view,
                                const sw_model *like, sw_err *err) SW_MUST_USE;
/* The type of the blocks that such a tensor of floats is decoded from; false: it is stored in
 * floats, or is of no GGUF. */
bool sw_gguf_decoded_type(sw_block_type *out, const sw_st_tensor *t);
/* A weight (of a linear, the embedding or the head) of a model in half floats that is F32 here
 * because the file has it in blocks or in F32. A checkpoint has it in the dtype of the model. */
bool sw_gguf_is_widened(const sw_st_tensor *t);
/* Bytes of the file that such a tensor takes, whatever it is made into; of other tensors their
 * own. */
uint64_t sw_gguf_stored_bytes(const sw_st_tensor *t);
/* The tokenizer.json that a directory of the same model would have, freed by sw_mem_put.
 * SW_E_UNSUPPORTED: a kind of tokenizer or of pre-tokenizer that is not known here. */
sw_code sw_gguf_tokenizer(char **json, size_t *n_bytes, const sw_gguf *g, sw_err *err) SW_MUST_USE;
/* The same of the file at `path`. */
sw_code sw_gguf_tokenizer_of(char **json, size_t *n_bytes, const char *path,
                             sw_err *err) SW_MUST_USE;
/* tokenizer_config.json with the special tokens and the chat templates, and
 * special_tokens_map.json; freed by sw_mem_put. */
sw_code sw_gguf_tokenizer_config(char **json, const sw_gguf *g, sw_err *err) SW_MUST_USE;
sw_code sw_gguf_special_tokens(char **json, const sw_gguf *g, sw_err *err) SW_MUST_USE;

#endif
