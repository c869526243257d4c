/* print_buf.h - growing text (or bytes) with JSON quoting, for headers, indexes and made files.
 *
 * Printed here and not by cJSON: offsets are 64-bit integers and must not pass through a double on
 * their way out, and a vocabulary is a million values.
 */
#ifndef SW_FORMATS_BASE_PRINT_BUF_H
#define SW_FORMATS_BASE_PRINT_BUF_H

#include <stdarg.h>
#include <stddef.h>

#include "formats/base/status.h"

/* Zero-initialise; freed by sw_mem_put(buf->at). */
typedef struct sw_print_buf {
    char *at;
    size_t n_bytes, room_bytes;
} sw_print_buf;

sw_code sw_print_add(sw_print_buf *buf, const char *bytes, size_t n_bytes, sw_err *err) SW_MUST_USE;
sw_code sw_print_fmt(sw_print_buf *buf, sw_err *err, const char *fmt, ...)
    SW_PRINTF(3, 4) SW_MUST_USE;
sw_code sw_print_vfmt(sw_print_buf *buf, sw_err *err, const char *fmt, va_list args)
    SW_PRINTF(3, 0) SW_MUST_USE;
/* n_bytes of UTF-8, or all of `value`, as a JSON string, quotes included. */
sw_code sw_print_quote_n(sw_print_buf *buf, const char *value, size_t n_bytes,
                         sw_err *err) SW_MUST_USE;
sw_code sw_print_quote(sw_print_buf *buf, const char *value, sw_err *err) SW_MUST_USE;

#endif
