/* growth.h - how much text and search the steps of a tokenizer may spend on one text.
 *
 * A tokenizer.json is untrusted: a few Replace steps can turn seven characters into terabytes.
 * Real steps make at most 11 bytes of one (U+FDFA under NFKC), times 3 (a blank as U+2581), times
 * 2 (the byte-level alphabet), so that each step may make SW_GROWTH_FACTOR bytes of every byte of
 * the text that came in, and a little for short texts.
 */
#ifndef SW_FORMATS_TEXT_CHARACTERS_GROWTH_H
#define SW_FORMATS_TEXT_CHARACTERS_GROWTH_H

#include "formats/text/characters/unicode.h"

#define SW_GROWTH_FACTOR ((size_t)64)
#define SW_GROWTH_BASE_BYTES ((size_t)4096)
#define SW_SEARCH_FACTOR ((size_t)512)
#define SW_SEARCH_BASE ((size_t)1 << 20)

typedef struct sw_growth {
    size_t given_bytes;   /* of the text that came in */
    size_t allowed_bytes; /* that any one step may make of it, all pieces together */
    size_t search_left;   /* bytes that searches for tokens may still look at */
} sw_growth;

void sw_growth_start(sw_growth *growth, size_t given_bytes);

/* Empty `out` and let it take what a step that has made made_bytes may still make. */
void sw_growth_open(const sw_growth *growth, sw_text_buf *out, size_t made_bytes);

/* Take n_bytes off what searches may look at. SW_E_FORMAT: there is no more. */
sw_code sw_growth_search(sw_growth *growth, size_t n_bytes, sw_err *err) SW_MUST_USE;

#endif
