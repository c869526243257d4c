/* base64.h - RFC 4648, the standard alphabet with padding. */
#ifndef SW_FORMATS_BASE_BASE64_H
#define SW_FORMATS_BASE_BASE64_H

#include <stddef.h>

#include "formats/base/print_buf.h"

/* Bytes that n_chars characters can decode to, at most. */
#define SW_BASE64_BYTES(n_chars) ((n_chars) / 4 * 3)

/* `out` has room for SW_BASE64_BYTES(n_chars). SW_E_FORMAT: another character, padding that is
 * missing or in the middle, or bits behind the last byte. */
sw_code sw_base64_decode(unsigned char *out, size_t *n_bytes, const char *text, size_t n_chars,
                         sw_err *err) SW_MUST_USE;
sw_code sw_base64_add(sw_print_buf *out, const unsigned char *bytes, size_t n_bytes,
                      sw_err *err) SW_MUST_USE;

#endif
