/* base64.c - see base64.h. */
#include "formats/base/base64.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

sw_code sw_base64_decode(unsigned char *out, size_t *n_bytes, const char *text, size_t n_chars,
                         sw_err *err)
{
    size_t n = 0, n_pad = 0;

    if (n_chars % 4) return SW_FAIL(err, SW_E_FORMAT, "base64 of %zu characters", n_chars);
    while (n_pad < 2 && n_pad < n_chars && text[n_chars - 1 - n_pad] == '=') n_pad++;
    for (size_t at = 0; at < n_chars; at += 4) {
        const size_t used = at + 4 == n_chars ? 4 - n_pad : 4;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int value = k < used ? value_of(text[at + k]) : 0;
            if (value < 0)
                return SW_FAIL(err, SW_E_FORMAT, "no base64 at character %zu", at + k);
            bits = bits << 6 | (uint32_t)value;
        }
        if (used < 4 && bits & (used == 3 ? 0xFFu : 0xFFFFu))
            return SW_FAIL(err, SW_E_FORMAT, "base64 with bits behind its last byte");
        for (size_t k = 0; k + 1 < used; k++) out[n++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    *n_bytes = n;
    return SW_OK;
}

sw_code sw_base64_add(sw_print_buf *out, const unsigned char *bytes, size_t n_bytes, sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t at = 0; at < n_bytes && rc == SW_OK; at += 3) {
        const size_t n = n_bytes - at < 3 ? n_bytes - at : 3;
        uint32_t bits = 0;
        char text[4];
        for (size_t k = 0; k < 3; k++) bits = bits << 8 | (k < n ? bytes[at + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            text[k] = k <= n ? alphabet[bits >> (18 - 6 * k) & 63u] : '=';
        rc = sw_print_add(out, text, sizeof text, err);
    }
    return rc;
}
