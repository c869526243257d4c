/* charsmap.h - the precompiled character map of a sentencepiece normalizer.
 *
 * A size, a double-array trie of 32-bit units (darts-clone), then texts that end in a zero byte: a
 * key's value is where its text begins. All of it is untrusted. Hugging Face's "Precompiled" looks
 * up a grapheme cluster of less than six bytes as a whole, else its characters one by one, and
 * takes the shortest key that the cluster begins with; ids must match, so that this does the same.
 */
#ifndef SW_FORMATS_TEXT_CHARACTERS_CHARSMAP_H
#define SW_FORMATS_TEXT_CHARACTERS_CHARSMAP_H

#include "formats/base/mem.h"
#include "formats/text/characters/unicode.h"

typedef struct sw_charsmap {
    const unsigned char *units; /* little-endian, borrowed */
    size_t n_units;
    const char *texts; /* UTF-8, zeros between */
    size_t n_texts_bytes;
} sw_charsmap;

/* `blob` outlives the map. SW_E_FORMAT: cut off, a size that is none, texts that are not UTF-8. */
sw_code sw_charsmap_open(sw_charsmap *out, const unsigned char *blob, size_t n_bytes,
                         sw_err *err) SW_MUST_USE;
/* The same of base64, decoded into the arena. */
sw_code sw_charsmap_parse(sw_charsmap *out, const char *base64, sw_arena *arena,
                          sw_err *err) SW_MUST_USE;

/* Append n_bytes of valid UTF-8, mapped. */
sw_code sw_charsmap_run(const sw_charsmap *map, sw_text_buf *out, const char *text, size_t n_bytes,
                        sw_err *err) SW_MUST_USE;

#endif
