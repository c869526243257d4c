/* xy.c - lines and points over two axes. */
#include <math.h>
#include <string.h>

#include "tools/report/page/chart.h"
#include "tools/report/page/scale.h"

#define WIDTH 500.0
#define HEIGHT 340.0
#define LEFT 58.0
#define RIGHT 58.0
#define TOP 26.0
#define FOOT 44.0
#define CHAR_WIDTH 7.0

typedef struct plane {
    sw_scale x, y;
} plane;

static plane plane_of(const sw_xy *xy)
{
    double x_least = (double)NAN, x_most = (double)NAN, y_least = (double)NAN, y_most = (double)NAN;
    plane p;

    for (int s = 0; s < xy->n_series; s++)
        for (int i = 0; i < xy->series[s].n; i++) {
            const sw_xy_point *at = &xy->series[s].at[i];
            const double y[3] = {at->y, at->low, at->high};
            sw_heat_range(&x_least, &x_most, &at->x, 1);
            sw_heat_range(&y_least, &y_most, y, 3);
        }
    p.x = sw_scale_over(x_least, x_most, xy->is_log_x, LEFT, WIDTH - RIGHT);
    p.y = sw_scale_over(y_least, y_most, xy->is_log_y, HEIGHT - FOOT, TOP);
    return p;
}

static void draw_line(sw_html *h, const sw_xy_series *s, const plane *p)
{
    const sw_xy_point *last = s->n ? &s->at[s->n - 1] : NULL;

    sw_html_put(h, "<path class=\"c%d line%s\" d=\"", s->color, s->is_dashed ? " dashed" : "");
    for (int i = 0; i < s->n; i++) {
        double x = sw_scale_px(&p->x, s->at[i].x), y = sw_scale_px(&p->y, s->at[i].y);
        if (s->is_stepped && i) sw_html_put(h, "H%.1f", x);
        sw_html_put(h, "%s%.1f %.1f", i ? "L" : "M", x, y);
    }
    sw_html_raw(h, "\"/>\n");
    if (last && s->name)
        sw_html_put(h, "<text class=\"k-c%d\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", s->color,
                    sw_scale_px(&p->x, last->x) + 5, sw_scale_px(&p->y, last->y) + 4, s->name);
}

/* The name goes to the side that has room. */
static void draw_name(sw_html *h, const char *name, double x, double y)
{
    bool is_left = x + CHAR_WIDTH * (double)strlen(name) + 12 > WIDTH;

    sw_html_put(h, "<text class=\"%s strong\" x=\"%.1f\" y=\"%.1f\">%s</text>",
                is_left ? "end" : "start", is_left ? x - 10 : x + 10, y - 8, name);
}

static void draw_point(sw_html *h, const sw_xy_point *at, const plane *p)
{
    double x = sw_scale_px(&p->x, at->x), y = sw_scale_px(&p->y, at->y);

    sw_mark_begin(h, at->label);
    if (isfinite(at->low) && isfinite(at->high))
        sw_html_put(h, "<line class=\"c%d line\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
                    "y2=\"%.1f\"/>", at->color, x, x, sw_scale_px(&p->y, at->low),
                    sw_scale_px(&p->y, at->high));
    sw_html_put(h, "<circle class=\"hit\" cx=\"%.1f\" cy=\"%.1f\" r=\"12\"/>"
                "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"5.5\"/>", x, y, at->color, x, y);
    if (at->name) draw_name(h, at->name, x, y);
    sw_mark_end(h);
}

void sw_xy_draw(sw_html *h, const sw_xy *xy)
{
    plane p = plane_of(xy);

    sw_figure_begin(h, WIDTH, HEIGHT, xy->title, xy->describe);
    sw_axis_bottom(h, &p.x, HEIGHT - FOOT, TOP, xy->x_name);
    sw_axis_left(h, &p.y, LEFT, WIDTH - RIGHT, xy->y_name);
    for (int s = 0; s < xy->n_series; s++)
        if (xy->series[s].is_line) draw_line(h, &xy->series[s], &p);
    for (int s = 0; s < xy->n_series; s++)
        for (int i = 0; i < xy->series[s].n && !xy->series[s].is_line; i++)
            if (isfinite(xy->series[s].at[i].x) && isfinite(xy->series[s].at[i].y))
                draw_point(h, &xy->series[s].at[i], &p);
    sw_figure_end(h);
}
