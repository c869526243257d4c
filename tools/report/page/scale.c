/* scale.c - see scale.h. */
#include "tools/report/page/scale.h"

#include <math.h>
#include <stdio.h>

#define ROOM 0.08       /* of the range, at both ends */
#define TICKS_WANTED 5

static double on(const sw_scale *s, double v) { return s->is_log ? log10(v) : v; }

static double back(const sw_scale *s, double t) { return s->is_log ? pow(10, t) : t; }

sw_scale sw_scale_over(double least, double most, bool is_log, double at_low, double at_high)
{
    sw_scale s = {.at_low = at_low, .at_high = at_high, .is_log = is_log && least > 0};
    double a, b, room;

    if (!isfinite(least) || !isfinite(most)) least = 0, most = 1, s.is_log = false;
    a = on(&s, least);
    b = on(&s, most);
    room = b > a ? ROOM * (b - a) : s.is_log ? 0.3 : fabs(a) > 0 ? fabs(a) / 4 : 1;
    s.low = back(&s, a - room);
    s.high = back(&s, b + room);
    return s;
}

double sw_scale_px(const sw_scale *s, double v)
{
    double low = on(s, s->low), part = (on(s, v) - low) / (on(s, s->high) - low);

    return s->at_low + part * (s->at_high - s->at_low);
}

/* 1, 2 or 5 times a power of ten. */
static double round_step(double step)
{
    double unit = pow(10, floor(log10(step))), times = step / unit;

    return unit * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static int linear_ticks(double out[SW_TICKS_MAX], const sw_scale *s)
{
    double step = round_step((s->high - s->low) / TICKS_WANTED);
    double first = ceil(s->low / step);
    int n = 0;

    for (; n < SW_TICKS_MAX && (first + n) * step <= s->high; n++) out[n] = (first + n) * step;
    return n;
}

int sw_scale_ticks(double out[SW_TICKS_MAX], const sw_scale *s)
{
    static const double few[] = {1}, some[] = {1, 3}, many[] = {1, 2, 5};
    double octaves = log10(s->high / s->low);
    const double *times = octaves > 4 ? few : octaves > 2 ? some : many;
    int n_times = octaves > 4 ? 1 : octaves > 2 ? 2 : 3, n = 0;

    if (!s->is_log || octaves < 0.5) return linear_ticks(out, s);
    for (int e = (int)floor(log10(s->low)); e <= (int)ceil(log10(s->high)); e++)
        for (int i = 0; i < n_times; i++) {
            double v = times[i] * pow(10, e);
            if (v >= s->low && v <= s->high && n < SW_TICKS_MAX) out[n++] = v;
        }
    return n;
}

/* 20000 is "20k": axes have little room. */
static void tick_text(char text[32], double v)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int u = 0;

    while (fabs(v) >= 9999.5 && u < 4) v /= 1000, u++;
    if (u && fabs(v) >= 1000) v /= 1000, u++;
    (void)snprintf(text, 32, "%.4g%s", v, units[u > 4 ? 4 : u]);
}

/* An axis but for its name: at each tick a line from `from` to `to` across it, and a number. */
static void put_ticks(sw_html *h, const sw_scale *s, bool is_bottom, double from, double to)
{
    double ticks[SW_TICKS_MAX];
    int n = sw_scale_ticks(ticks, s);
    char text[32];

    sw_html_raw(h, "<g class=\"axis\" aria-hidden=\"true\">");
    for (int i = 0; i < n; i++) {
        double at = sw_scale_px(s, ticks[i]);
        tick_text(text, ticks[i]);
        sw_html_put(h, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>",
                    is_bottom ? at : from, is_bottom ? at : to, is_bottom ? from : at,
                    is_bottom ? to : at, is_bottom ? at : from - 6, is_bottom ? from + 15 : at + 4,
                    is_bottom ? "mid" : "end", text);
    }
}

void sw_axis_bottom(sw_html *h, const sw_scale *s, double y, double y_top, const char *name)
{
    put_ticks(h, s, true, y, y_top);
    sw_html_put(h, "<text x=\"%.1f\" y=\"%.1f\" class=\"end name\">%s</text></g>\n", s->at_high,
                y + 31, name);
}

void sw_axis_left(sw_html *h, const sw_scale *s, double x, double x_right, const char *name)
{
    put_ticks(h, s, false, x, x_right);
    sw_html_put(h, "<text x=\"2\" y=\"%.1f\" class=\"name\">%s</text></g>\n", s->at_high - 10,
                name);
}
