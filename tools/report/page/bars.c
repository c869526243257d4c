/* bars.c - a histogram: one bar a step, from the bottom line up. */
#include <math.h>
#include <stdio.h>

#include "tools/report/page/chart.h"

#define FOOT 20.0

/* From where to where a bar counts. */
static void range_text(char text[80], const sw_bars *b, int i)
{
    double step = (b->high - b->low) / b->n, from = b->low + i * step;

    if (b->is_whole && step <= 1)
        (void)snprintf(text, 80, "%.0f", from);
    else if (b->is_whole)
        (void)snprintf(text, 80, "%.0f to %.0f", from, from + step - 1);
    else
        (void)snprintf(text, 80, b->is_log2 ? "2^%.3g to 2^%.3g" : "%.4g to %.4g", from,
                       from + step);
}

static void draw_bar(sw_html *h, const sw_bars *b, int i, double most, double total)
{
    double width = b->width / b->n, height = (double)b->counts[i] / most * b->height;
    char label[SW_LABEL_BYTES], range[80], count[SW_SHOWN_BYTES], share[SW_SHOWN_BYTES];

    if (!b->counts[i]) return;
    range_text(range, b, i);
    (void)snprintf(label, sizeof label, "%s; %s %s; %s", range,
                   sw_show_count(count, (double)b->counts[i]), b->unit,
                   sw_show_percent(share, (double)b->counts[i] / total));
    sw_mark_begin(h, label);
    /* the whole column can be pointed at, however low its bar is */
    sw_html_put(h, "<rect class=\"hit\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"%.1f\"/>"
                "<rect class=\"c0\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>",
                i * width, width, b->height, i * width + 0.5, b->height - fmax(height, 1),
                fmax(width - 1, 0.5), fmax(height, 1));
    sw_mark_end(h);
}

static void end_text(char text[32], const sw_bars *b, double v)
{
    (void)snprintf(text, 32, b->is_log2 ? "2^%.3g" : "%.3g", v);
}

void sw_bars_draw(sw_html *h, const sw_bars *b)
{
    double most = 1, total = 0;
    char low[32], high[32];

    for (int i = 0; i < b->n; i++) {
        most = fmax(most, (double)b->counts[i]);
        total += (double)b->counts[i];
    }
    end_text(low, b, b->low);
    end_text(high, b, b->is_whole ? b->high - 1 : b->high);
    sw_figure_begin(h, b->width, b->height + FOOT, b->title, b->describe);
    for (int i = 0; i < b->n; i++) draw_bar(h, b, i, most, total);
    sw_html_put(h, "<g class=\"axis\" aria-hidden=\"true\"><line x1=\"0\" x2=\"%.1f\" y1=\"%.1f\" "
                "y2=\"%.1f\"/><text x=\"0\" y=\"%.1f\">%s</text>"
                "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text></g>\n",
                b->width, b->height, b->height, b->height + 14, low, b->width, b->height + 14,
                high);
    sw_figure_end(h);
}
