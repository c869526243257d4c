/* unspelled.h - what a vocabulary had no token for: how much, what came first, and where. */
#ifndef SW_FORMATS_TEXT_UNSPELLED_H
#define SW_FORMATS_TEXT_UNSPELLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/json.h"

/* Such a character becomes the unknown token where the model has one, and nothing where it has
 * none: that is what Hugging Face's tokenizers do. Those that byte tokens spell do not count. */
typedef struct sw_unspelled {
    int64_t n;         /* characters, or bytes where the vocabulary is one of bytes */
    int64_t n_dropped; /* of them, those that became nothing */
    bool is_bytes;
    unsigned char first[4]; /* UTF-8, or one byte */
    uint32_t first_bytes;
    uint64_t first_at; /* offset in the text */
    bool is_exact;     /* false: a normalizer made it, of something at first_at or behind it */
} sw_unspelled;

/* One of n_bytes at `text`. is_mapped: it is a byte in the byte-level alphabet. */
void sw_unspelled_add(sw_unspelled *all, const char *text, size_t n_bytes, bool is_mapped,
                      bool is_dropped);
/* Add what a later text had; its offsets count from the start of that text. */
void sw_unspelled_join(sw_unspelled *all, const sw_unspelled *more);

#define SW_UNSPELLED_NOTE_BYTES 256
/* One sentence, without the file's name. Nothing when n is 0. */
void sw_unspelled_note(char out[SW_UNSPELLED_NOTE_BYTES], const sw_unspelled *all);
/* As a member "unspelled" of `object`; `file` may be NULL. false: no memory. */
bool sw_unspelled_json(cJSON *object, const sw_unspelled *all, const char *file);
/* "0x16" or "U+1F600": the first one. */
void sw_unspelled_first(char out[16], const sw_unspelled *all);

#endif
