/* print_buf.c - see print_buf.h. */
#include "formats/base/print_buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"

#define TEXT_FIRST_BYTES ((size_t)4096)

static sw_code make_room(sw_print_buf *text, size_t n_bytes, sw_err *err)
{
    size_t room = text->room_bytes ? text->room_bytes : TEXT_FIRST_BYTES;
    char *grown = NULL;
    sw_code rc;

    if (n_bytes <= text->room_bytes - text->n_bytes) return SW_OK;
    while (room - text->n_bytes < n_bytes) room *= 2;
    if ((rc = SW_MEM_GET(&grown, room, "growing text", err)) != SW_OK) return rc;
    if (text->n_bytes) memcpy(grown, text->at, text->n_bytes);
    sw_mem_put(text->at);
    text->at = grown;
    text->room_bytes = room;
    return SW_OK;
}

sw_code sw_print_add(sw_print_buf *text, const char *bytes, size_t n_bytes, sw_err *err)
{
    sw_code rc = make_room(text, n_bytes, err);

    if (rc != SW_OK) return rc;
    if (n_bytes) memcpy(text->at + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    return SW_OK;
}

sw_code sw_print_vfmt(sw_print_buf *text, sw_err *err, const char *fmt, va_list args)
{
    char piece[512];
    int n = vsnprintf(piece, sizeof piece, fmt, args);

    if (n < 0 || (size_t)n >= sizeof piece)
        return SW_FAIL(err, SW_E_BUG, "text of %d bytes does not fit a piece", n);
    return sw_print_add(text, piece, (size_t)n, err);
}

sw_code sw_print_fmt(sw_print_buf *text, sw_err *err, const char *fmt, ...)
{
    va_list args;
    sw_code rc;

    va_start(args, fmt);
    rc = sw_print_vfmt(text, err, fmt, args);
    va_end(args);
    return rc;
}

sw_code sw_print_quote_n(sw_print_buf *text, const char *value, size_t n_bytes, sw_err *err)
{
    const char *end = value + n_bytes;
    sw_code rc = sw_print_add(text, "\"", 1, err);

    while (rc == SW_OK && value < end) {
        size_t plain = 0;
        while (value + plain < end && (unsigned char)value[plain] >= 0x20 &&
               value[plain] != '"' && value[plain] != '\\')
            plain++;
        if (plain) {
            rc = sw_print_add(text, value, plain, err);
            value += plain;
        } else if (*value == '"' || *value == '\\') {
            rc = sw_print_fmt(text, err, "\\%c", *value++);
        } else {
            rc = sw_print_fmt(text, err, "\\u%04x", (unsigned)(unsigned char)*value++);
        }
    }
    return rc == SW_OK ? sw_print_add(text, "\"", 1, err) : rc;
}

sw_code sw_print_quote(sw_print_buf *text, const char *value, sw_err *err)
{
    return sw_print_quote_n(text, value, strlen(value), err);
}
