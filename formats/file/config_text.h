/* config_text.h - config.json and its like as text: printed readably, and changed in one place
 * while every other byte stays as it was (10000.0 does not become 10000).
 */
#ifndef SW_FORMATS_FILE_CONFIG_TEXT_H
#define SW_FORMATS_FILE_CONFIG_TEXT_H

#include "formats/base/json.h"

/* The value with an indent of two spaces a level, every line but the first `indent` spaces
 * further in; no newline at the end. Zero-terminated, freed by sw_mem_put. */
sw_code sw_json_pretty(char **out, const cJSON *value, int indent, sw_err *err) SW_MUST_USE;

/* The object in `text` (n_bytes, already parsed once) with its quantization_config, under either
 * of the names in use, removed and `quant_config`, unless it is NULL, as its last member. With a
 * `dtype` ("bfloat16") its top-level torch_dtype or dtype says that instead. Freed by sw_mem_put.
 * SW_E_FORMAT: not an object. */
sw_code sw_config_splice(char **out, const char *text, size_t n_bytes, const cJSON *quant_config,
                         const char *dtype, sw_err *err) SW_MUST_USE;

#endif
