/* token_config.h - what the small files beside a vocabulary say of its tokens.
 *
 * tokenizer_config.json (class, special tokens, added_tokens_decoder), special_tokens_map.json,
 * added_tokens.json, and the model_type of config.json. Each may be missing.
 */
#ifndef SW_FORMATS_TEXT_FILES_TOKEN_CONFIG_H
#define SW_FORMATS_TEXT_FILES_TOKEN_CONFIG_H

#include "formats/base/json.h"
#include "formats/base/mem.h"

typedef struct sw_added_entry {
    const char *text;
    int64_t id; /* -1: that of the vocabulary; left out when it has none */
    bool single_word, lstrip, rstrip, normalized, special;
} sw_added_entry;

typedef struct sw_token_config {
    cJSON *tokenizer, *map, *added, *model; /* the files; NULL: not there */
    const char *class_name; /* "" when nothing says, without "Fast" at its end */
    const char *model_type; /* "" when nothing says */
    const char *bos, *eos, *unk;      /* texts; NULL */
    sw_added_entry *tokens;           /* of all four files */
    int64_t n_tokens;
    int adds_bos, adds_eos, is_legacy; /* -1: not said */
    bool adds_prefix_space;
    sw_arena arena;
} sw_token_config;

/* SW_E_FORMAT, SW_E_IO with the file's name. */
sw_code sw_token_config_read(sw_token_config *out, const char *dir, sw_err *err) SW_MUST_USE;
/* The same of files that are parsed already: `out` has them, or NULL, and nothing else; it owns
 * them, also on failure. */
sw_code sw_token_config_build(sw_token_config *out, sw_err *err) SW_MUST_USE;
void sw_token_config_free(sw_token_config *config); /* accepts a zeroed one */

#endif
