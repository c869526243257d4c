/* frame.c - see frame.h. */
#include "tools/report/page/frame.h"

#include <string.h>

#include "formats/base/base64.h"
#include "formats/base/hash.h"
#include "formats/base/mem.h"

#define DIGEST_BYTES 32

static unsigned nibble(char hex) { return (unsigned)(hex <= '9' ? hex - '0' : hex - 'a' + 10); }

/* As a Content-Security-Policy names a text: base64 of its SHA-256. */
static void put_digest(sw_html *h, const char *of)
{
    char hex[SW_SHA256_HEX_BYTES];
    unsigned char bytes[DIGEST_BYTES];
    sw_print_buf text = {0};

    if (h->err.code != SW_OK || sw_sha256_hex(hex, of, strlen(of), &h->err) != SW_OK) return;
    for (int i = 0; i < DIGEST_BYTES; i++)
        bytes[i] = (unsigned char)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    if (sw_base64_add(&text, bytes, sizeof bytes, &h->err) == SW_OK &&
        sw_print_add(&text, "", 1, &h->err) == SW_OK)
        sw_html_raw(h, text.at);
    sw_mem_put(text.at);
}

void sw_page_begin(sw_html *h, const char *title)
{
    sw_html_raw(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "style-src 'sha256-");
    put_digest(h, sw_page_style);
    sw_html_raw(h, "'; script-src 'sha256-");
    put_digest(h, sw_page_script);
    sw_html_put(h, "'\"/>\n<meta name=\"viewport\" content=\"width=device-width, "
                "initial-scale=1\"/>\n<meta name=\"generator\" content=\"swage " SW_VERSION
                "\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n"
                "<title>%s</title>\n<style>", title);
    sw_html_raw(h, sw_page_style);
    sw_html_raw(h, "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the "
                   "report</a>\n");
}

void sw_page_end(sw_html *h)
{
    sw_html_raw(h, "<script>");
    sw_html_raw(h, sw_page_script);
    sw_html_raw(h, "</script>\n</body>\n</html>\n");
}
