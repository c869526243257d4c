/* unspelled.c - see unspelled.h. */
#include "formats/text/unspelled.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/text/bpe.h"
#include "formats/text/characters/unicode.h"

void sw_unspelled_add(sw_unspelled *all, const char *text, size_t n_bytes, bool is_mapped,
                      bool is_dropped)
{
    all->n_dropped += is_dropped;
    if (all->n++) return;
    all->is_bytes = is_mapped;
    all->first_bytes = (uint32_t)(n_bytes < 4 ? n_bytes : 4);
    memcpy(all->first, text, all->first_bytes);
    if (is_mapped) {
        uint32_t c;
        (void)sw_utf8_next(&c, text, 0);
        all->first[0] = (unsigned char)sw_char_to_byte(c);
        all->first_bytes = 1;
    }
}

void sw_unspelled_join(sw_unspelled *all, const sw_unspelled *more)
{
    int64_t n = all->n + more->n, n_dropped = all->n_dropped + more->n_dropped;

    if (!all->n) *all = *more;
    all->n = n;
    all->n_dropped = n_dropped;
}

void sw_unspelled_first(char out[16], const sw_unspelled *all)
{
    uint32_t c = all->first[0];

    if (all->first_bytes > 1) (void)sw_utf8_next(&c, (const char *)all->first, 0);
    (void)snprintf(out, 16, all->is_bytes || c < 0x80 ? "0x%02X" : "U+%04X", c);
}

void sw_unspelled_note(char out[SW_UNSPELLED_NOTE_BYTES], const sw_unspelled *all)
{
    const char *what = all->is_bytes ? "byte" : "character", *s = all->n == 1 ? "" : "s";
    char first[16], fate[96];

    out[0] = '\0';
    if (!all->n) return;
    sw_unspelled_first(first, all);
    if (!all->n_dropped) (void)snprintf(fate, sizeof fate, "became its unknown token");
    else if (all->n_dropped == all->n)
        (void)snprintf(fate, sizeof fate, "%s left out", all->n == 1 ? "was" : "were");
    else (void)snprintf(fate, sizeof fate, "are unknown to it, %" PRId64 " of them left out",
                        all->n_dropped);
    (void)snprintf(out, SW_UNSPELLED_NOTE_BYTES, "%" PRId64 " %s%s that the tokenizer has no token "
                   "for %s; the first is %s%s %s offset %" PRIu64, all->n, what, s, fate,
                   first[0] == '0' ? "byte " : "", first, all->is_exact ? "at" : "at or behind",
                   all->first_at);
}

bool sw_unspelled_json(cJSON *object, const sw_unspelled *all, const char *file)
{
    cJSON *o = cJSON_AddObjectToObject(object, "unspelled");
    char first[16];

    sw_unspelled_first(first, all);
    return o && cJSON_AddNumberToObject(o, all->is_bytes ? "bytes" : "characters",
                                        (double)all->n) &&
           cJSON_AddNumberToObject(o, "left_out", (double)all->n_dropped) &&
           cJSON_AddStringToObject(o, "first", first) &&
           cJSON_AddNumberToObject(o, "offset", (double)all->first_at) &&
           cJSON_AddBoolToObject(o, "is_exact", all->is_exact) &&
           (!file || cJSON_AddStringToObject(o, "file", file));
}
