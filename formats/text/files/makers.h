/* makers.h - tokenizer.json out of the other files that a tokenizer comes in. See made.h.
 *
 * Each maker prints what Hugging Face's tokenizers read as the same tokenizer. All are SW_E_FORMAT
 * for what is malformed and SW_E_UNSUPPORTED, with the remedy, for what has no such form; neither
 * names the file, the caller does. `config` outlives the call. *json is freed by sw_mem_put.
 */
#ifndef SW_FORMATS_TEXT_FILES_MAKERS_H
#define SW_FORMATS_TEXT_FILES_MAKERS_H

#include "formats/text/files/token_config.h"

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
