/* stack.c - bars of parts that add up, all to one scale: bytes, seconds. */
#include <math.h>
#include <stdio.h>

#include "tools/report/page/chart.h"

#define WIDTH 720.0
#define ROW 46.0

static double sum_of(const sw_stack *s, int row)
{
    double sum = 0;

    for (int p = 0; p < s->n_parts; p++) sum += fmax(0, s->values[row * s->n_parts + p]);
    return sum;
}

static void draw_row(sw_html *h, const sw_stack *s, int row, double per_unit)
{
    double x = 0, y = row * ROW, sum = sum_of(s, row);
    char shown[SW_SHOWN_BYTES], share[SW_SHOWN_BYTES], label[SW_LABEL_BYTES];

    sw_html_put(h, "<g aria-hidden=\"true\"><text x=\"0\" y=\"%.1f\">%s <tspan "
                "class=\"strong\">%s</tspan></text></g>\n", y + 14, s->rows[row],
                s->show(shown, sum));
    for (int p = 0; p < s->n_parts; p++) {
        double v = s->values[row * s->n_parts + p], width = v * per_unit;
        if (!(v > 0)) continue;
        (void)snprintf(label, sizeof label, "%.200s; %s; %s; %s of it", s->rows[row], s->parts[p],
                       s->show(shown, v), sw_show_percent(share, v / sum));
        sw_mark_begin(h, label);
        sw_html_put(h, "<rect class=\"c%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                    "height=\"22\"/>", p % SW_SERIES_COLORS, x, y + 20,
                    fmax(width - (width > 3 ? 1 : 0), 0.5));
        sw_mark_end(h);
        x += width;
    }
}

void sw_stack_draw(sw_html *h, const sw_stack *s)
{
    double most = 0;

    for (int r = 0; r < s->n_rows; r++) most = fmax(most, sum_of(s, r));
    sw_figure_begin(h, WIDTH, s->n_rows * ROW + 2, s->title, s->describe);
    for (int r = 0; r < s->n_rows; r++) draw_row(h, s, r, most > 0 ? WIDTH / most : 0);
    sw_figure_end(h);
    sw_legend(h, s->parts, s->n_parts);
}
