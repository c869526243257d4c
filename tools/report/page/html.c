/* html.c - see html.h. */
#include "tools/report/page/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"

#define SPEC_BYTES 16

static void add(sw_html *h, const char *bytes, size_t n_bytes)
{
    if (h->err.code == SW_OK) (void)!sw_print_add(&h->text, bytes, n_bytes, &h->err);
}

void sw_html_raw(sw_html *h, const char *markup) { add(h, markup, strlen(markup)); }

static const char *entity_of(char c)
{
    return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;"
         : c == '\'' ? "&#39;" : NULL;
}

/* The code point that begins at p, of well-formed UTF-8, and its bytes. */
static uint32_t decode(const unsigned char *p, size_t *n_bytes)
{
    uint32_t c = p[0];

    *n_bytes = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (*n_bytes > 1) c &= 0x7FU >> *n_bytes;
    for (size_t i = 1; i < *n_bytes; i++) c = c << 6 | (p[i] & 0x3F);
    return c;
}

/* Not to be shown as it is: XML has no such character, or it would change how others are read. */
static bool is_hidden(uint32_t c)
{
    return (c < 0x20 && c != '\n') || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
           (c & 0xFFFE) == 0xFFFE;
}

/* Bytes of well-formed UTF-8. */
static void add_valid(sw_html *h, const char *text, size_t n_bytes)
{
    size_t at = 0, n = 0;

    for (size_t begin = 0; begin < n_bytes; begin = at) {
        const char *entity = NULL;
        char shown[16] = "";
        for (; at < n_bytes; at += n) {
            uint32_t c = decode((const unsigned char *)text + at, &n);
            if (is_hidden(c)) (void)snprintf(shown, sizeof shown, "\\u%04X", (unsigned)c);
            if ((entity = entity_of(text[at])) || shown[0]) break;
        }
        add(h, text + begin, at - begin);
        if (entity || shown[0]) {
            sw_html_raw(h, entity ? entity : shown);
            at += n;
        }
    }
}

void sw_html_text(sw_html *h, const char *text)
{
    size_t left = text ? strlen(text) : 0, bad_at = 0;

    while (left) {
        char shown[8];
        if (sw_utf8_is_valid(text, left, &bad_at)) {
            add_valid(h, text, left);
            return;
        }
        add_valid(h, text, bad_at);
        (void)snprintf(shown, sizeof shown, "\\x%02X", (unsigned)(unsigned char)text[bad_at]);
        sw_html_raw(h, shown);
        text += bad_at + 1;
        left -= bad_at + 1;
    }
}

static void put_real(sw_html *h, const char *spec, double v)
{
    char text[64];

    if (isfinite(v))
        (void)snprintf(text, sizeof text, spec, v);
    else
        (void)snprintf(text, sizeof text, "–");
    sw_html_raw(h, text);
}

static void put_integer(sw_html *h, long long v)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%lld", v);
    sw_html_raw(h, text);
}

/* Length of the conversion at p, which begins with '%'; copied into spec. */
static size_t read_spec(char spec[SPEC_BYTES], const char *p)
{
    size_t n = strcspn(p + 1, "sdgfeu%") + 2;

    (void)snprintf(spec, SPEC_BYTES, "%.*s", (int)n, p);
    return n;
}

void sw_html_put(sw_html *h, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    while (*fmt) {
        char spec[SPEC_BYTES];
        size_t n = strcspn(fmt, "%"), n_spec;
        add(h, fmt, n);
        fmt += n;
        if (!*fmt) break;
        n_spec = read_spec(spec, fmt);
        if (spec[n_spec - 1] == '%') sw_html_raw(h, "%");
        else if (spec[n_spec - 1] == 's') sw_html_text(h, va_arg(args, const char *));
        else if (!strcmp(spec, "%d")) put_integer(h, va_arg(args, int));
        else if (!strcmp(spec, "%lld")) put_integer(h, va_arg(args, long long));
        else if (!strcmp(spec, "%zu")) put_integer(h, (long long)va_arg(args, size_t));
        else put_real(h, spec, va_arg(args, double));
        fmt += n_spec;
    }
    va_end(args);
}

int sw_html_new_id(sw_html *h) { return ++h->n_ids; }

sw_code sw_html_check(const sw_html *h, sw_err *err)
{
    return h->err.code == SW_OK ? SW_OK : SW_FAIL(err, h->err.code, "%s", h->err.text);
}

void sw_html_free(sw_html *h)
{
    sw_mem_put(h->text.at);
    memset(h, 0, sizeof *h);
}
