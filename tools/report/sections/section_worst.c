/* section_worst.c - every linear in a table, and the worst ones looked at: how their weights, codes
 * and scales are distributed. */
#include <math.h>
#include <stdio.h>

#include "formats/base/mem.h"
#include "tools/report/sections/section.h"

#define ROWS_SHOWN 200
#define LOOKS_OPEN 2 /* linears whose histograms are shown without asking */

const char *sw_section_worst_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i].n_quantized) return NULL;
    return "quantized linears; there are none";
}

static bool has_any(const sw_exhibit *x, size_t offset)
{
    for (int64_t i = 0; i < x->n_linears; i++)
        if (!isnan(*(const double *)(const void *)((const char *)&x->linears[i] + offset)))
            return true;
    return false;
}

typedef struct column {
    const char *heading;
    size_t offset;
    const char *(*show)(char text[SW_SHOWN_BYTES], double v);
} column;

#define AT(field) offsetof(sw_exhibit_linear, field)
static const column columns[] = {
    {"#output error", AT(output_err), sw_show_percent},
    {"#weight error", AT(weight_err), sw_show_percent},
    {"#cosine", AT(cosine), sw_show_real},
    {"#error over rounding's", AT(over_rounding), sw_show_real},
    {"#nearest codes", AT(nearest_share), sw_show_percent},
    {"#squared error, calibration", AT(calib_err), sw_show_real},
    {"#of plain rounding", AT(calib_err_rtn), sw_show_real},
    {"#damping", AT(damp), sw_show_real},
    {"#least scale", AT(scale_min), sw_show_real},
    {"#largest scale", AT(scale_max), sw_show_real},
};
#define N_COLUMNS (int)(sizeof columns / sizeof columns[0])

static void put_row(sw_html *h, const sw_exhibit_linear *l, const bool *is_shown)
{
    char text[SW_SHOWN_BYTES];
    double bits = 8 * l->bytes / ((double)l->n_out * (double)l->k_in);

    sw_html_put(h, "<tr><th scope=\"row\" class=\"path\">%s</th><td class=\"wide\">%s</td>"
                "<td>%lld &#215; %lld</td>", l->path, l->scheme, (long long)l->n_out,
                (long long)l->k_in);
    sw_cell(h, sw_show_real(text, bits), bits);
    for (int c = 0; c < N_COLUMNS; c++) {
        double v = *(const double *)(const void *)((const char *)l + columns[c].offset);
        if (is_shown[c]) sw_cell(h, columns[c].show(text, v), v);
    }
    sw_html_raw(h, "</tr>\n");
}

static void put_table(sw_html *h, const sw_exhibit *x, const sw_exhibit_linear *const *order,
                      int64_t n)
{
    const char *headings[4 + N_COLUMNS] = {"linear", "stored as", "outputs \xC3\x97 inputs",
                                           "#bits per weight"};
    bool is_shown[N_COLUMNS];
    int n_headings = 4;
    char caption[160];

    for (int c = 0; c < N_COLUMNS; c++) {
        is_shown[c] = has_any(x, columns[c].offset);
        if (is_shown[c]) headings[n_headings++] = columns[c].heading;
    }
    (void)snprintf(caption, sizeof caption, n > ROWS_SHOWN ? "%d of %lld quantized linears, the "
                   "worst first" : "%d quantized linears, the worst first",
                   (int)(n > ROWS_SHOWN ? ROWS_SHOWN : n), (long long)n);
    sw_html_put(h, "<details><summary>%s</summary>\n", caption);
    sw_table_begin(h, true, caption, headings, n_headings);
    for (int64_t i = 0; i < n && i < ROWS_SHOWN; i++) put_row(h, order[i], is_shown);
    sw_table_end(h);
    sw_html_raw(h, "</details>\n");
}

static void draw_histogram(sw_html *h, const sw_histogram *g, const char *title, const char *unit,
                           bool is_whole)
{
    char describe[300], range[120];
    sw_bars bars = {.title = title, .describe = describe, .unit = unit, .low = g->low,
                    .high = g->high, .is_log2 = g->is_log, .is_whole = is_whole, .n = g->n_bins,
                    .counts = g->n, .width = 288, .height = 96};

    if (!g->what || !g->n_total) return;
    (void)snprintf(range, sizeof range, "from %.4g to %.4g, mean %.4g, rms %.4g", g->min, g->max,
                   g->mean, g->rms);
    (void)snprintf(describe, sizeof describe, "%lld %s %s.", (long long)g->n_total, unit, range);
    sw_html_raw(h, "<div>");
    sw_bars_draw(h, &bars);
    sw_html_put(h, "<p class=\"muted small\">%s</p></div>\n", range);
}

static void draw_look(sw_html *h, const sw_exhibit_linear *l, const sw_tensor_look *look)
{
    char cost[SW_SHOWN_BYTES];
    double v = sw_exhibit_cost(l);

    sw_html_put(h, "<h3><code>%s</code>", l->path);
    if (!isnan(v))
        sw_html_put(h, " <span class=\"muted\">error of the %s %s</span>",
                    isnan(l->output_err) && !isnan(l->weight_err) ? "weights" : "outputs",
                    sw_show_percent(cost, v));
    sw_html_raw(h, "</h3>\n<div class=\"grid even\">\n");
    draw_histogram(h, &look->codes, "Codes", "codes", true);
    draw_histogram(h, &look->fine_scales, "Scales, by powers of two", "scales", false);
    draw_histogram(h, &look->zeros, "Zero points", "zero points", true);
    draw_histogram(h, &look->values, "Decoded weights", "weights", false);
    sw_html_raw(h, "</div>\n");
}

static void draw_checkpoint(sw_html *h, const sw_exhibit *x)
{
    const sw_exhibit_linear **order = NULL;
    int64_t n;

    if (h->err.code != SW_OK ||
        SW_MEM_GET(&order, x->n_linears, "linears", &h->err) != SW_OK)
        return;
    n = sw_exhibit_by_cost(order, x);
    put_table(h, x, order, n);
    sw_mem_put(order);
    if (x->n_looks && isnan(sw_exhibit_cost(x->worst[0])))
        sw_html_raw(h, "<p class=\"muted\">No errors are known; these are the first linears."
                       "</p>\n");
    for (int i = 0; i < x->n_looks; i++) {
        if (i == LOOKS_OPEN)
            sw_html_put(h, "<details><summary>The next %d</summary>\n", x->n_looks - i);
        draw_look(h, x->worst[i], &x->looks[i]);
    }
    if (x->n_looks > LOOKS_OPEN) sw_html_raw(h, "</details>\n");
}

void sw_section_worst(sw_html *h, const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (!x[i].n_quantized) continue;
        if (n > 1)
            sw_html_put(h, "<details class=\"whole\"><summary>%s</summary>\n", x[i].name);
        draw_checkpoint(h, &x[i]);
        if (n > 1) sw_html_raw(h, "</details>\n");
    }
}
