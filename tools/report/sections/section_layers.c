/* section_layers.c - where in the model the error is: a map of layers and kinds of linears. */
#include <math.h>
#include <stdio.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "tools/report/sections/section.h"

typedef struct metric {
    const char *name, *describe;
    double (*of)(const sw_exhibit_linear *l);
    bool is_percent;
} metric;

static double output_err(const sw_exhibit_linear *l) { return l->output_err; }
static double weight_err(const sw_exhibit_linear *l) { return l->weight_err; }
static double calib_err(const sw_exhibit_linear *l) { return sqrt(l->calib_err); }
static double calib_gain(const sw_exhibit_linear *l)
{
    return sqrt(l->calib_err / l->calib_err_rtn);
}
static double bits_of(const sw_exhibit_linear *l)
{
    return l->is_quantized ? 8 * l->bytes / ((double)l->n_out * (double)l->k_in) : (double)NAN;
}

/* The first that is known is shown at once, the others when asked for. */
static const metric metrics[] = {
    {"Error of the outputs on held-out text",
     "By verify: the norm of what the quantized weight changes, over the norm of the output. What "
     "a linear changes to make good the errors of those before it counts as well.",
     output_err, true},
    {"Error of the outputs on calibration text",
     "By quantize: root of the squared error of the outputs over their square, on the text that "
     "the weights were solved with. It counts from what a linear aims at, which GPTQ moves to make "
     "good what was lost before it.", calib_err, true},
    {"Error left of plain rounding's",
     "By quantize: the error of the outputs over that of rounding to nearest, both from what the "
     "linear aims at. Less than 100 % is what the method gained.", calib_gain, true},
    {"Error of the weights", "By verify: the norm of the difference over the norm of the weight. "
     "Methods that mind the outputs raise it.", weight_err, true},
    {"Bits per weight, with scales", "Stored bits over weights.", bits_of, false},
};
#define N_METRICS (sizeof metrics / sizeof metrics[0])

/* Of the linears of a cell (experts of a layer): their mean, and the worst. */
typedef struct grid {
    const sw_exhibit *x;
    const metric *m;
    int64_t n_cols;
    double *values; /* [n_kinds, n_cols] */
    int64_t *n;     /* of linears behind each */
    const sw_exhibit_linear **worst;
} grid;

static bool is_known(const sw_exhibit *x, const metric *m)
{
    double first = (double)NAN;

    for (int64_t i = 0; i < x->n_linears; i++) {
        double v = m->of(&x->linears[i]);
        if (isnan(v)) continue;
        if (m->is_percent) return true;
        /* the same everywhere: said elsewhere */
        if (!isnan(first) && fabs(v - first) > 0.01 * first) return true;
        if (isnan(first)) first = v;
    }
    return false;
}

const char *sw_section_layers_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        for (size_t m = 0; m < N_METRICS; m++)
            if (metrics[m].is_percent && is_known(&x[i], &metrics[m])) return NULL;
    return "errors per linear: by `swage verify OUT --against MODEL` (with `--text` also of the "
           "outputs), or by a method that uses calibration text";
}

static sw_code fill(grid *g, sw_err *err)
{
    const sw_exhibit *x = g->x;
    int64_t size = x->n_kinds * g->n_cols;
    sw_code rc;

    if ((rc = SW_MEM_GET(&g->values, size, "cells", err)) != SW_OK ||
        (rc = SW_MEM_GET(&g->n, size, "cells", err)) != SW_OK ||
        (rc = SW_MEM_GET(&g->worst, size, "cells", err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        int64_t at = l->kind * g->n_cols + l->layer;
        double v = g->m->of(l);
        if (isnan(v) || l->kind < 0) continue;
        g->values[at] += v;
        g->n[at]++;
        if (!g->worst[at] || v > g->m->of(g->worst[at])) g->worst[at] = l;
    }
    for (int64_t i = 0; i < size; i++)
        g->values[i] = g->n[i] ? g->values[i] / (double)g->n[i] : (double)NAN;
    return SW_OK;
}

static const char *show(char text[SW_SHOWN_BYTES], const metric *m, double v)
{
    return m->is_percent ? sw_show_percent(text, v) : sw_show_real(text, v);
}

static void label_cell(char text[SW_LABEL_BYTES], const void *self, int64_t row, int64_t col)
{
    const grid *g = self;
    int64_t at = row * g->n_cols + col;
    const sw_exhibit_linear *worst = g->worst[at];
    char value[SW_SHOWN_BYTES], most[SW_SHOWN_BYTES];

    if (g->n[at] == 1)
        (void)snprintf(text, SW_LABEL_BYTES, "%.250s; %s; %.120s; %lld outputs, %lld inputs",
                       worst->path, show(value, g->m, g->values[at]), worst->scheme,
                       (long long)worst->n_out, (long long)worst->k_in);
    else
        (void)snprintf(text, SW_LABEL_BYTES, "layer %lld, %.120s; %s, mean of %lld; largest %s in "
                       "%.250s", (long long)col, g->x->kinds[row], show(value, g->m, g->values[at]),
                       (long long)g->n[at], show(most, g->m, g->m->of(worst)), worst->path);
}

static void draw(sw_html *h, grid *g, const char *title, double least, double most)
{
    sw_heat heat = {.title = title, .describe = g->m->describe, .row_what = "kind of linear",
                    .col_what = "layer", .rows = g->x->kinds, .n_rows = g->x->n_kinds,
                    .n_cols = g->n_cols, .values = g->values, .least = least, .most = most,
                    .is_log = true, .is_percent = g->m->is_percent, .is_cool = !g->m->is_percent,
                    .label = label_cell, .self = g};

    sw_heat_draw(h, &heat);
}

static void free_grid(grid *g)
{
    sw_mem_put(g->values);
    sw_mem_put(g->n);
    sw_mem_put(g->worst);
}

static void draw_metric(sw_html *h, const sw_exhibit *x, const metric *m, const char *title,
                        double least, double most)
{
    const sw_exhibit_linear *last = x->n_linears ? &x->linears[x->n_linears - 1] : NULL;
    grid g = {.x = x, .m = m, .n_cols = x->ckpt.model.n_layers};

    if (last && last->layer == g.n_cols && !isnan(m->of(last))) g.n_cols++; /* the head */
    if (h->err.code == SW_OK && fill(&g, &h->err) == SW_OK) draw(h, &g, title, least, most);
    free_grid(&g);
}

/* One metric of all checkpoints, to one scale of colours. */
static void draw_all(sw_html *h, const sw_exhibit *x, int n, const metric *m)
{
    double least = (double)NAN, most = (double)NAN;

    for (int i = 0; i < n; i++)
        for (int64_t l = 0; l < x[i].n_linears; l++) {
            double v = m->of(&x[i].linears[l]);
            if (v > 0) sw_heat_range(&least, &most, &v, 1);
        }
    sw_html_put(h, "<p class=\"muted\">%s</p>\n<div class=\"grid\">\n", m->describe);
    for (int i = 0; i < n; i++)
        if (is_known(&x[i], m))
            draw_metric(h, &x[i], m, n > 1 ? x[i].name : m->name, least, most);
    sw_html_raw(h, "</div>\n");
}

void sw_section_layers(sw_html *h, const sw_exhibit *x, int n)
{
    bool is_first = true;

    for (size_t m = 0; m < N_METRICS; m++) {
        bool is_any = false;
        for (int i = 0; i < n; i++) is_any |= is_known(&x[i], &metrics[m]);
        if (!is_any) continue;
        if (is_first) sw_html_put(h, "<h3>%s</h3>\n", metrics[m].name);
        else sw_html_put(h, "<details><summary>%s</summary>\n", metrics[m].name);
        draw_all(h, x, n, &metrics[m]);
        if (!is_first) sw_html_raw(h, "</details>\n");
        is_first = false;
    }
    for (int i = 0; i < n; i++) {
        bool is_any = false;
        for (size_t m = 0; m < N_METRICS; m++) is_any |= is_known(&x[i], &metrics[m]);
        if (!is_any) sw_html_put(h, "<p class=\"muted\">%s: no errors are known.</p>\n", x[i].name);
    }
}
