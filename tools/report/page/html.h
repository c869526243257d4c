/* html.h - writing HTML and SVG so that no text of a file can become markup.
 *
 * There is one way in: a format whose literal part is markup of ours, and whose %s are texts of
 * anybody, always escaped. What is written is well-formed XML as well: names of tensors may hold
 * any bytes. The first failure is kept, and later calls do nothing, so that callers ask once.
 */
#ifndef SW_TOOLS_REPORT_PAGE_HTML_H
#define SW_TOOLS_REPORT_PAGE_HTML_H

#include <stdint.h>

#include "formats/base/print_buf.h"

/* Zero-initialise; freed by sw_html_free. */
typedef struct sw_html {
    sw_print_buf text;
    sw_err err;
    int n_ids; /* names given out to elements so far */
} sw_html;

/* Markup with %s (escaped; NULL is empty), %d, %lld, %zu, and %g, %f and %e with a precision; a
 * number that is not finite is written as a dash. %% is a percent sign. */
void sw_html_put(sw_html *h, const char *fmt, ...) SW_PRINTF(2, 3);
/* A text as it is, escaped. Bytes that are no UTF-8 become "\xNN"; control characters, and those
 * that turn the direction of writing, become "\u00NN". */
void sw_html_text(sw_html *h, const char *text);
/* Markup as it is: style and script. */
void sw_html_raw(sw_html *h, const char *markup);
/* A number that no other element of the page has, for its id. */
int sw_html_new_id(sw_html *h);
/* SW_OK, or the first failure. */
sw_code sw_html_check(const sw_html *h, sw_err *err) SW_MUST_USE;
void sw_html_free(sw_html *h); /* accepts a zeroed one */

#endif
