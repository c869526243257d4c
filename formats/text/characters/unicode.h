/* unicode.h - growable text, code points and the few character classes a tokenizer asks for.
 *
 * Text inside the tokenizer is always valid UTF-8: it is checked once at the door, so
 * stepping through it needs no error path. Character data comes from utf8proc.
 */
#ifndef SW_FORMATS_TEXT_CHARACTERS_UNICODE_H
#define SW_FORMATS_TEXT_CHARACTERS_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

/* Growable bytes; zero-initialise, reuse by setting n_bytes = 0, free with sw_text_buf_free. */
typedef struct sw_text_buf {
    char *bytes;
    size_t n_bytes, capacity;
    size_t max_bytes;  /* 0: no limit; else what n_bytes and made_bytes may come to */
    size_t made_bytes; /* what its owner has made before (growth.h) */
} sw_text_buf;

/* SW_E_FORMAT: beyond max_bytes. */

sw_code sw_text_buf_add(sw_text_buf *buf, const char *bytes, size_t n_bytes,
                        sw_err *err) SW_MUST_USE;
sw_code sw_text_buf_add_char(sw_text_buf *buf, uint32_t code_point, sw_err *err) SW_MUST_USE;
void sw_text_buf_free(sw_text_buf *buf);

/* Make room for at least `need` elements by doubling; what is there stays there. */
sw_code sw_text_grow(void **array, size_t *capacity, size_t need, size_t elem_bytes,
                     sw_err *err) SW_MUST_USE;

/* Decode the code point at `at` (below n_bytes) of valid UTF-8; returns the offset behind it. */
size_t sw_utf8_next(uint32_t *code_point, const char *text, size_t at);
/* Offset of the code point that ends at `at` (above 0). */
size_t sw_utf8_back(const char *text, size_t at);
/* Writes 1 to 4 bytes and returns how many. */
size_t sw_utf8_put(char out[4], uint32_t code_point);
static inline bool sw_utf8_is_start(char byte) { return ((unsigned char)byte & 0xC0) != 0x80; }

bool sw_char_is_space(uint32_t code_point);   /* property White_Space */
bool sw_char_is_word(uint32_t code_point);    /* letters, marks, digits, connectors, joiners */
bool sw_char_is_number(uint32_t code_point);  /* categories Nd, Nl, No */
bool sw_char_is_punct(uint32_t code_point);   /* categories P*, and all ASCII punctuation */
/* Full lower case of one character: one or two code points; returns how many. */
int sw_char_lower(uint32_t out[2], uint32_t code_point);

/* Unicode normalization forms (UAX #15). */
typedef struct sw_normal_form sw_normal_form;
const sw_normal_form *sw_normal_form_find(const char *name); /* "NFC" ...; NULL if none */

/* Append the normalized form of n_bytes of valid UTF-8. Linear time for any input, including
 * long runs of combining marks. `scratch` is kept by the caller between calls. */
typedef struct sw_normal_scratch {
    int32_t *points, *sorted;
    size_t points_capacity, sorted_capacity;
} sw_normal_scratch;
sw_code sw_normalize(sw_text_buf *out, const sw_normal_form *form, const char *text,
                     size_t n_bytes, sw_normal_scratch *scratch, sw_err *err) SW_MUST_USE;
void sw_normal_scratch_free(sw_normal_scratch *scratch);

#endif
