/* front_matter.h - the metadata at the top of a model card, as the Hub reads it. */
#ifndef SW_TOOLS_CARD_FRONT_MATTER_H
#define SW_TOOLS_CARD_FRONT_MATTER_H

#include "formats/base/print_buf.h"

#define SW_FRONT_VALUE_BYTES 200

/* What a card says of its model that is true of a quantized one as well; "" where it does not. */
typedef struct sw_front_matter {
    char license[SW_FRONT_VALUE_BYTES], license_name[SW_FRONT_VALUE_BYTES],
        license_link[SW_FRONT_VALUE_BYTES], pipeline_tag[SW_FRONT_VALUE_BYTES];
} sw_front_matter;

/* Single values in plain ASCII of `text`, the n_bytes of a README.md; everything else in it is left
 * alone, so that nothing of it can break out of the metadata of another card. */
void sw_front_matter_parse(sw_front_matter *out, const char *text, size_t n_bytes);
/* The same of README.md in `dir`; nothing where there is none. SW_E_IO: it cannot be read. */
sw_code sw_front_matter_read(sw_front_matter *out, const char *dir, sw_err *err) SW_MUST_USE;

/* "key: "value"" on a line of its own, quoted as YAML and JSON both read it; nothing for "". */
sw_code sw_front_matter_put(sw_print_buf *out, const char *key, const char *value,
                            sw_err *err) SW_MUST_USE;

#endif
