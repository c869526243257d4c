/* model_tokenizer.h - the tokenizer of a model, wherever its container keeps it: tokenizer.json of
 * a directory, or the metadata of a GGUF. */
#ifndef SW_FORMATS_CHECKPOINT_MODEL_TOKENIZER_H
#define SW_FORMATS_CHECKPOINT_MODEL_TOKENIZER_H

#include "formats/text/tokenizer.h"

/* true when the model at `path` has one. */
bool sw_model_has_tokenizer(const char *path);
/* As sw_tokenizer_open, with the path in messages. */
sw_code sw_model_tokenizer(sw_tokenizer **out, const char *path, sw_err *err) SW_MUST_USE;

#endif
