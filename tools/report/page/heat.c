/* heat.c - cells whose colour says how much: rows are kinds, columns are layers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "tools/report/page/chart.h"

#define CELLS_WIDTH 760.0
#define CELL_MOST 58.0
#define CELL_LEAST 7.0
#define CELL_HEIGHT 26.0
#define CHAR_WIDTH 7.0
#define TEXT_NEEDS 42.0 /* pixels of a cell with a number in it */
#define HEADER 34.0
#define RAMP 18.0

typedef struct grid {
    const sw_heat *heat;
    double left, cell;
} grid;

void sw_heat_range(double *least, double *most, const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) continue;
        if (!(*least <= values[i])) *least = values[i];
        if (!(*most >= values[i])) *most = values[i];
    }
}

/* 0 to SW_HEAT_STEPS - 1. */
static int step_of(const sw_heat *heat, double v)
{
    bool is_log = heat->is_log && heat->least > 0;
    double a = is_log ? log(heat->least) : heat->least, b = is_log ? log(heat->most) : heat->most;
    double part = is_log && !(v > 0) ? 0 : ((is_log ? log(v) : v) - a) / (b - a);

    if (!(b > a)) return SW_HEAT_STEPS / 2;
    return (int)fmin(fmax(part * SW_HEAT_STEPS, 0), SW_HEAT_STEPS - 1);
}

static void value_text(char text[SW_SHOWN_BYTES], const sw_heat *heat, double v)
{
    if (heat->is_percent)
        (void)snprintf(text, SW_SHOWN_BYTES, 100 * v >= 9.995 ? "%.1f%%" : "%.2f%%", 100 * v);
    else if (v >= 9999.5)
        (void)snprintf(text, SW_SHOWN_BYTES, "%.3gk", v / 1000);
    else
        (void)snprintf(text, SW_SHOWN_BYTES, "%.4g", v);
}

static void draw_cell(sw_html *h, const grid *g, int64_t row, int64_t col)
{
    const sw_heat *heat = g->heat;
    double v = heat->values[row * heat->n_cols + col];
    double x = g->left + (double)col * g->cell, y = HEADER + (double)row * CELL_HEIGHT;
    char label[SW_LABEL_BYTES], text[SW_SHOWN_BYTES];
    int step;

    if (!isfinite(v)) return;
    step = step_of(heat, v);
    heat->label(label, heat->self, row, col);
    sw_mark_begin(h, label);
    sw_html_put(h, "<rect class=\"h%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                step, x + 0.5, y + 0.5, g->cell - 1, CELL_HEIGHT - 1);
    if (g->cell >= TEXT_NEEDS) {
        value_text(text, heat, v);
        sw_html_put(h, "<text class=\"mid k%d\" x=\"%.1f\" y=\"%.1f\">%s</text>", step,
                    x + g->cell / 2, y + CELL_HEIGHT / 2 + 4, text);
    }
    sw_mark_end(h);
}

static void draw_names(sw_html *h, const grid *g)
{
    const sw_heat *heat = g->heat;
    int64_t every = 1;

    while ((double)every * g->cell < 22) every *= every == 2 ? 5 : 2;
    sw_html_raw(h, "<g aria-hidden=\"true\">");
    for (int64_t r = 0; r < heat->n_rows; r++)
        sw_html_put(h, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", g->left - 6,
                    HEADER + ((double)r + 0.5) * CELL_HEIGHT + 4, heat->rows[r]);
    for (int64_t c = 0; c < heat->n_cols; c += every)
        sw_html_put(h, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%lld</text>",
                    g->left + ((double)c + 0.5) * g->cell, HEADER - 6, (long long)c);
    sw_html_put(h, "<text class=\"name\" x=\"%.1f\" y=\"12\">%s</text></g>\n", g->left,
                heat->col_what);
}

/* What the colours stand for. */
static void draw_ramp(sw_html *h, const grid *g)
{
    const sw_heat *heat = g->heat;
    double y = HEADER + (double)heat->n_rows * CELL_HEIGHT + 12;
    char least[SW_SHOWN_BYTES], most[SW_SHOWN_BYTES];

    if (!isfinite(heat->least) || !isfinite(heat->most)) return;
    value_text(least, heat, heat->least);
    value_text(most, heat, heat->most);
    sw_html_put(h, "<g aria-hidden=\"true\"><text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>",
                g->left - 6, y + 12, least);
    for (int i = 0; i < SW_HEAT_STEPS; i++)
        sw_html_put(h, "<rect class=\"h%d\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\"/>", i,
                    g->left + 14 * i, y);
    sw_html_put(h, "<text x=\"%.1f\" y=\"%.1f\">%s%s</text></g>\n",
                g->left + 14 * SW_HEAT_STEPS + 6, y + 12, most,
                heat->is_log && heat->least > 0 ? ", by the logarithm" : "");
}

void sw_heat_draw(sw_html *h, const sw_heat *heat)
{
    grid g = {.heat = heat, .left = 40};
    double width;

    for (int64_t r = 0; r < heat->n_rows; r++)
        g.left = fmax(g.left, CHAR_WIDTH * (double)strlen(heat->rows[r]) + 10);
    g.left = fmin(g.left, 220);
    g.cell = CELLS_WIDTH / (double)sw_max_i64(1, heat->n_cols);
    g.cell = fmin(CELL_MOST, fmax(CELL_LEAST, g.cell));
    width = g.left + fmax((double)heat->n_cols * g.cell, 14 * SW_HEAT_STEPS + 160) + 2;
    sw_figure_begin(h, width, HEADER + (double)heat->n_rows * CELL_HEIGHT + RAMP + 12, heat->title,
                    heat->describe);
    sw_html_raw(h, heat->is_cool ? "<g class=\"cool\">" : "<g class=\"warm\">");
    draw_names(h, &g);
    for (int64_t r = 0; r < heat->n_rows; r++)
        for (int64_t c = 0; c < heat->n_cols; c++) draw_cell(h, &g, r, c);
    draw_ramp(h, &g);
    sw_html_raw(h, "</g>");
    sw_figure_end(h);
}
