/* utf8.c - strict UTF-8 validation (Unicode 15, table 3-7). */
#include <string.h>

#include "formats/base/json.h"

/* Bytes of the sequence that starts at p, or 0 when it is ill-formed. */
static size_t sequence_bytes(const unsigned char *p, size_t n)
{
    unsigned char low = 0x80, high = 0xBF;
    size_t need;

    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    need = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (n < need) return 0;
    if (p[0] == 0xE0) low = 0xA0;  /* overlong */
    if (p[0] == 0xED) high = 0x9F; /* surrogates */
    if (p[0] == 0xF0) low = 0x90;  /* overlong */
    if (p[0] == 0xF4) high = 0x8F; /* beyond U+10FFFF */
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < need; i++)
        if (p[i] < 0x80 || p[i] > 0xBF) return 0;
    return need;
}

bool sw_utf8_is_valid(const char *text, size_t n_bytes, size_t *bad_at)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t at = 0;

    while (at < n_bytes) {
        uint64_t word;
        size_t step;
        if (n_bytes - at >= 8) { /* eight ASCII bytes at a time */
            memcpy(&word, p + at, 8);
            if (!(word & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        step = sequence_bytes(p + at, n_bytes - at);
        if (!step) {
            *bad_at = at;
            return false;
        }
        at += step;
    }
    return true;
}
