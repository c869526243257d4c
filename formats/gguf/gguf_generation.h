/* gguf_generation.h - what the metadata of a GGUF say about generating text. */
#ifndef SW_FORMATS_GGUF_GGUF_GENERATION_H
#define SW_FORMATS_GGUF_GGUF_GENERATION_H

#include "formats/file/gguf.h"

/* The generation_config.json that a directory of the same model would have: the ids of the
 * beginning, of padding and of every end (of the text, of a turn, of a message), and the sampling
 * defaults of general.sampling.*. Ids that are no token and values that are no number are passed
 * over. *json is freed by sw_mem_put; NULL: the file says nothing. SW_E_NOMEM. */
sw_code sw_gguf_generation_config(char **json, const sw_gguf *g, sw_err *err) SW_MUST_USE;

#endif
