/* st_text.c - growing text with JSON quoting, for headers and indexes.
 *
 * Printed here and not by cJSON: offsets are 64-bit integers and must not pass through a
 * double on their way out.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/file/st_internal.h"

#define TEXT_FIRST_BYTES ((size_t)4096)

static sw_code make_room(sw_st_text *text, size_t n_bytes, sw_err *err)
{
    size_t room = text->room_bytes ? text->room_bytes : TEXT_FIRST_BYTES;
    char *grown = NULL;
    sw_code rc;

    if (n_bytes <= text->room_bytes - text->n_bytes) return SW_OK;
    while (room - text->n_bytes < n_bytes) room *= 2;
    if ((rc = SW_MEM_GET(&grown, room, "header text", err)) != SW_OK) return rc;
    if (text->n_bytes) memcpy(grown, text->at, text->n_bytes);
    sw_mem_put(text->at);
    text->at = grown;
    text->room_bytes = room;
    return SW_OK;
}

sw_code sw_st_text_add(sw_st_text *text, const char *bytes, size_t n_bytes, sw_err *err)
{
    sw_code rc = make_room(text, n_bytes, err);

    if (rc != SW_OK) return rc;
    memcpy(text->at + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    return SW_OK;
}

sw_code sw_st_text_print(sw_st_text *text, sw_err *err, const char *fmt, ...)
{
    char piece[512];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(piece, sizeof piece, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof piece)
        return SW_FAIL(err, SW_E_BUG, "text of %d bytes does not fit a piece", n);
    return sw_st_text_add(text, piece, (size_t)n, err);
}

sw_code sw_st_text_quote(sw_st_text *text, const char *value, sw_err *err)
{
    sw_code rc = sw_st_text_add(text, "\"", 1, err);

    while (rc == SW_OK && *value) {
        size_t plain = 0;
        while ((unsigned char)value[plain] >= 0x20 && value[plain] != '"' && value[plain] != '\\')
            plain++;
        if (plain) {
            rc = sw_st_text_add(text, value, plain, err);
            value += plain;
        } else if (*value == '"' || *value == '\\') {
            rc = sw_st_text_print(text, err, "\\%c", *value++);
        } else {
            rc = sw_st_text_print(text, err, "\\u%04x", (unsigned)(unsigned char)*value++);
        }
    }
    return rc == SW_OK ? sw_st_text_add(text, "\"", 1, err) : rc;
}
