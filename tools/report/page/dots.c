/* dots.c - figures with their intervals, one row each, so that overlaps can be seen. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/report/page/chart.h"
#include "tools/report/page/scale.h"

#define WIDTH 316.0
#define EDGE 22.0
#define ROW 42.0
#define TOP 8.0
#define FOOT 22.0

static void draw_dot(sw_html *h, const sw_dots *d, int i, const sw_scale *s)
{
    const sw_dot *dot = &d->at[i];
    double x = sw_scale_px(s, dot->at), y = TOP + i * ROW + 28;
    char label[SW_LABEL_BYTES], at[SW_SHOWN_BYTES], low[SW_SHOWN_BYTES], high[SW_SHOWN_BYTES];
    const char *(*show)(char *, double) = d->is_percent ? sw_show_percent : sw_show_real;

    (void)snprintf(label, sizeof label, "%.200s; %s; 95 %% interval %s to %s", dot->name,
                   show(at, dot->at), show(low, dot->low), show(high, dot->high));
    sw_mark_begin(h, label);
    sw_html_put(h, "<rect class=\"hit\" x=\"0\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\"/>",
                y - 26, WIDTH, ROW - 2);
    sw_html_put(h, "<text class=\"halo\" x=\"2\" y=\"%.1f\">%s</text>"
                "<text class=\"end strong halo\" x=\"%.1f\" y=\"%.1f\">%s</text>", y - 12,
                dot->name, WIDTH - 2, y - 12, at);
    if (isfinite(dot->low) && isfinite(dot->high)) {
        double a = sw_scale_px(s, dot->low), b = sw_scale_px(s, dot->high);
        sw_html_put(h, "<rect class=\"c%d soft\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                    "height=\"8\"/>", dot->color, a, y - 4, fmax(b - a, 1));
    }
    sw_html_put(h, "<circle class=\"c%d\" cx=\"%.2f\" cy=\"%.1f\" r=\"5\"/>",
                dot->color, x, y);
    sw_mark_end(h);
}

/* A gate, beside the dots alone, so that it crosses no name and no value. */
static void draw_limit(sw_html *h, const sw_dots *d, const sw_scale *s)
{
    const double x = sw_scale_px(s, d->limit);

    sw_html_put(h, "<g role=\"img\" class=\"limit\"><title>%s</title>", d->limit_name);
    for (int i = 0; i < d->n; i++)
        sw_html_put(h, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x,
                    TOP + i * ROW + 20, TOP + (i + 1) * ROW + 2);
    sw_html_raw(h, "</g>\n");
}

static sw_scale scale_of(const sw_dots *d)
{
    double least = d->limit, most = d->limit;

    for (int i = 0; i < d->n; i++) {
        const double v[3] = {d->at[i].at, d->at[i].low, d->at[i].high};
        sw_heat_range(&least, &most, v, 3);
    }
    return sw_scale_over(least, most, false, EDGE, WIDTH - EDGE);
}

void sw_dots_draw(sw_html *h, const sw_dots *d)
{
    sw_scale s = scale_of(d);
    double bottom = TOP + d->n * ROW + 4, ticks[SW_TICKS_MAX];
    int n_ticks = sw_scale_ticks(ticks, &s);

    sw_figure_begin(h, WIDTH, bottom + FOOT, d->title, d->describe);
    sw_html_raw(h, "<g class=\"axis\" aria-hidden=\"true\">");
    for (int i = 0; i < n_ticks; i++) {
        double x = sw_scale_px(&s, ticks[i]);
        sw_html_put(h, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x, TOP,
                    bottom);
        sw_html_put(h, d->is_percent ? "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%.4g %%</text>"
                                     : "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%.4g</text>",
                    x, bottom + 14, d->is_percent ? 100 * ticks[i] : ticks[i]);
    }
    sw_html_raw(h, "</g>\n");
    if (isfinite(d->limit)) draw_limit(h, d, &s);
    for (int i = 0; i < d->n; i++)
        if (isfinite(d->at[i].at)) draw_dot(h, d, i, &s);
    sw_figure_end(h);
}
