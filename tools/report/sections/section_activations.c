/* section_activations.c - how large the inputs of linears get, and the channels that stand out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "tools/report/sections/section.h"

#define NAMES_MAX 16
#define ROWS_SHOWN 400

const char *sw_section_activations_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i].n_sites) return NULL;
    return "statistics of calibration: `swage calibrate MODEL --calib FILE -o STATS` takes them, "
           "`--stats STATS` shows them";
}

/* Sites by name and layer: how far the furthest channel is above the middle one. */
typedef struct grid {
    const sw_exhibit *x;
    const char *names[NAMES_MAX];
    int n_names;
    int64_t n_cols;
    double *values;
    const sw_exhibit_site **sites;
} grid;

static double reach(const sw_exhibit_site *s) { return s->top_most[0] / s->channel_median; }

static int name_index(grid *g, const char *name)
{
    int i = 0;

    while (i < g->n_names && strcmp(g->names[i], name) != 0) i++;
    if (i == g->n_names && i < NAMES_MAX) g->names[g->n_names++] = name;
    return i;
}

static sw_code fill(grid *g, sw_err *err)
{
    const sw_exhibit *x = g->x;
    int64_t size;
    sw_code rc;

    for (int64_t i = 0; i < x->n_sites; i++) {
        (void)name_index(g, x->sites[i].name);
        if (x->sites[i].layer >= g->n_cols) g->n_cols = x->sites[i].layer + 1;
    }
    size = g->n_names * g->n_cols;
    if ((rc = SW_MEM_GET(&g->values, size, "cells", err)) != SW_OK ||
        (rc = SW_MEM_GET(&g->sites, size, "cells", err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < size; i++) g->values[i] = (double)NAN;
    for (int64_t i = 0; i < x->n_sites; i++) {
        int row = name_index(g, x->sites[i].name);
        int64_t at = row * g->n_cols + x->sites[i].layer;
        if (row == NAMES_MAX) continue;
        g->values[at] = reach(&x->sites[i]);
        g->sites[at] = &x->sites[i];
    }
    return SW_OK;
}

static void label_cell(char text[SW_LABEL_BYTES], const void *self, int64_t row, int64_t col)
{
    const grid *g = self;
    const sw_exhibit_site *s = g->sites[row * g->n_cols + col];

    (void)snprintf(text, SW_LABEL_BYTES, "layer %lld, %s; channel %lld reaches %.4g, %.3g times "
                   "the middle channel's %.4g; %lld of %lld channels reach %d times of it",
                   (long long)col, s->name, (long long)s->top[0], s->top_most[0], reach(s),
                   s->channel_median, (long long)s->n_outliers, (long long)s->n_channels,
                   SW_OUTLIER_TIMES);
}

static void put_top(sw_html *h, const sw_exhibit_site *s)
{
    sw_html_raw(h, "<td>");
    for (int i = 0; i < 3 && s->top[i] >= 0; i++)
        sw_html_put(h, "%s%lld (%.3g)", i ? ", " : "", (long long)s->top[i], s->top_most[i]);
    sw_html_raw(h, "</td>");
}

static void put_table(sw_html *h, const sw_exhibit *x)
{
    static const char *const headings[] = {"#layer", "input", "#median |x|", "#99.9 %", "#largest",
                                           "#outlier channels", "channels that reach furthest"};
    char text[SW_SHOWN_BYTES];

    sw_html_raw(h, "<details><summary>All inputs in a table</summary>\n");
    sw_table_begin(h, true, "Magnitudes of inputs; medians and quantiles leave zeros out", headings,
                   7);
    for (int64_t i = 0; i < x->n_sites && i < ROWS_SHOWN; i++) {
        const sw_exhibit_site *s = &x->sites[i];
        bool has_channels = s->top[0] >= 0;
        sw_html_raw(h, "<tr>");
        sw_cell(h, sw_show_count(text, (double)s->layer), (double)s->layer);
        sw_html_put(h, "<th scope=\"row\">%s</th>", s->name);
        sw_cell(h, sw_show_real(text, s->median), s->median);
        sw_cell(h, sw_show_real(text, s->p999), s->p999);
        sw_cell(h, sw_show_real(text, s->most), s->most);
        sw_cell(h, has_channels ? sw_show_count(text, (double)s->n_outliers) : "\xE2\x80\x93",
                has_channels ? (double)s->n_outliers : (double)NAN);
        put_top(h, s);
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
    if (x->n_sites > ROWS_SHOWN)
        sw_html_put(h, "<p class=\"muted\">The first %d of %lld.</p>\n", ROWS_SHOWN,
                    (long long)x->n_sites);
    sw_html_raw(h, "</details>\n");
}

static void draw(sw_html *h, const sw_exhibit *x)
{
    grid g = {.x = x};
    double least = (double)NAN, most = (double)NAN;
    sw_heat heat = {.title = "Largest channel over the middle channel, by layer and input",
                    .describe = "Rows are inputs of linears, columns are layers. A high number "
                                "means that few channels are much larger than the others.",
                    .row_what = "input", .col_what = "layer", .is_log = true, .label = label_cell,
                    .self = &g};

    if (h->err.code == SW_OK && fill(&g, &h->err) == SW_OK) {
        heat.rows = g.names;
        heat.n_rows = g.n_names;
        heat.n_cols = g.n_cols;
        heat.values = g.values;
        sw_heat_range(&least, &most, g.values, g.n_names * g.n_cols);
        heat.least = least;
        heat.most = most;
        sw_heat_draw(h, &heat);
    }
    sw_mem_put(g.values);
    sw_mem_put(g.sites);
}

void sw_section_activations(sw_html *h, const sw_exhibit *x, int n)
{
    sw_html_put(h, "<p class=\"lead\">A channel counts as an outlier when its largest |x| is at "
                "least %d times that of the middle channel. Such channels cost precision where "
                "inputs are quantized, and where weights share scales with theirs.</p>\n",
                SW_OUTLIER_TIMES);
    for (int i = 0; i < n; i++) {
        if (!x[i].n_sites) continue;
        sw_section_name(h, &x[i], n);
        sw_html_put(h, "<p class=\"muted\">%s</p>\n", x[i].stats_relation);
        draw(h, &x[i]);
        put_table(h, &x[i]);
    }
}
