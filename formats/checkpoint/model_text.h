/* model_text.h - tokenizer and chat template of a model, wherever its container keeps them. */
#ifndef SW_FORMATS_CHECKPOINT_MODEL_TEXT_H
#define SW_FORMATS_CHECKPOINT_MODEL_TEXT_H

#include "formats/text/chat/chat_format.h"
#include "formats/text/tokenizer.h"

/* The tokenizer of a model, wherever its container keeps it: tokenizer.json of
 * a directory, or the metadata of a GGUF. */

/* true when the model at `path` has one. */
bool sw_model_has_tokenizer(const char *path);
/* As sw_tokenizer_open, with the path in messages. */
sw_code sw_model_tokenizer(sw_tokenizer **out, const char *path, sw_err *err) SW_MUST_USE;

/* The chat template of a model, wherever its container keeps it, and the tokens that
 * end its turns. */

/* Of a directory chat_template.jinja, else chat_template.json, else tokenizer_config.json; of a
 * GGUF its metadata. Of several by name, "default". *out is NULL where the model has none, and
 * freed by sw_chat_format_free otherwise. SW_E_UNSUPPORTED: the template is beyond the subset of
 * Jinja that is known here, with file, line and column. */
sw_code sw_model_chat(sw_chat_format **out, const char *path, sw_err *err) SW_MUST_USE;

/* Append the ids that end a turn: those of generation_config.json, and the special token that the
 * template puts behind an answer. */
sw_code sw_model_chat_ends(sw_ids *out, const char *path, const sw_chat_format *f,
                           sw_tokenizer *tok, sw_err *err) SW_MUST_USE;

#endif
