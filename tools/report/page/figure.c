/* figure.c - see figure.h. */
#include "tools/report/page/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/term.h"

#define FITS_WIDTH 520.0 /* pixels that a phone can show smaller and still be read */

void sw_figure_begin(sw_html *h, double width, double height, const char *title,
                     const char *describe)
{
    int id = sw_html_new_id(h);

    sw_html_put(h, "<figure>\n<figcaption>%s</figcaption>\n<div class=\"scroll\">", title);
    sw_html_put(h,
                "<svg class=\"chart%s\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                "role=\"group\" aria-labelledby=\"t%d d%d\">\n"
                "<title id=\"t%d\">%s</title><desc id=\"d%d\">%s</desc>\n",
                width <= FITS_WIDTH ? " fits" : "", width, height, width, height, id, id, id,
                title, id, describe);
}

void sw_figure_end(sw_html *h) { sw_html_raw(h, "</svg></div>\n</figure>\n"); }

/* Whether Tab reaches a mark is settled by the script; without it all can be pointed at. */
void sw_mark_begin(sw_html *h, const char *label)
{
    sw_html_put(h, "<g class=\"m\" role=\"img\" tabindex=\"-1\"><title>%s</title>", label);
}

void sw_mark_end(sw_html *h) { sw_html_raw(h, "</g>\n"); }

void sw_legend(sw_html *h, const char *const *names, int n)
{
    sw_html_raw(h, "<ul class=\"legend\">");
    for (int i = 0; i < n; i++)
        sw_html_put(h, "<li><span class=\"swatch c%d\"></span>%s</li>", i % SW_SERIES_COLORS,
                    names[i]);
    sw_html_raw(h, "</ul>\n");
}

static const char *dash(char text[SW_SHOWN_BYTES])
{
    (void)snprintf(text, SW_SHOWN_BYTES, "–");
    return text;
}

const char *sw_show_real(char text[SW_SHOWN_BYTES], double v)
{
    if (!isfinite(v)) return dash(text);
    (void)snprintf(text, SW_SHOWN_BYTES, "%.4g", v);
    return text;
}

const char *sw_show_percent(char text[SW_SHOWN_BYTES], double v)
{
    if (!isfinite(100 * v)) return dash(text);
    (void)snprintf(text, SW_SHOWN_BYTES, fabs(v) < 0.001 && v != 0 ? "%.2g %%" : "%.2f %%",
                   100 * v);
    return text;
}

const char *sw_show_count(char text[SW_SHOWN_BYTES], double v)
{
    char plain[SW_SHOWN_BYTES];
    size_t n, at = 0;

    if (!isfinite(v) || fabs(v) >= 1e15) return sw_show_real(text, v);
    (void)snprintf(plain, sizeof plain, "%.0f", v);
    n = strlen(plain);
    for (size_t i = 0; i < n && at + 2 < SW_SHOWN_BYTES; i++) {
        if (i && (n - i) % 3 == 0 && plain[i - 1] != '-') text[at++] = ',';
        text[at++] = plain[i];
    }
    text[at] = '\0';
    return text;
}

const char *sw_show_bytes(char text[SW_SHOWN_BYTES], double v)
{
    char shown[16];

    if (!isfinite(v)) return dash(text);
    sw_term_bytes(shown, v);
    (void)snprintf(text, SW_SHOWN_BYTES, "%s", shown);
    return text;
}

void sw_cell(sw_html *h, const char *text, double v)
{
    if (isfinite(v))
        sw_html_put(h, "<td class=\"n\" data-v=\"%.9g\">%s</td>", v, text);
    else
        sw_html_put(h, "<td class=\"n\">%s</td>", text);
}
