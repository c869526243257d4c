/* section_experts.c - did calibration reach every expert, and which came out worst. */
#include <math.h>
#include <stdio.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "tools/report/sections/section.h"

#define CELLS_MAX 4096

static double tokens_of(const sw_exhibit_linear *l) { return l->n_routed; }
static double prior_of(const sw_exhibit_linear *l) { return l->prior_weight; }

typedef struct measure {
    const char *title, *describe;
    double (*of)(const sw_exhibit_linear *l);
    bool is_log, is_percent, is_cool;
} measure;

static const measure measures[] = {
    {"Calibration tokens that reached each expert",
     "Rows are experts, columns are layers. An expert with few tokens rests on the statistics of "
     "all tokens.", tokens_of, false, false, true},
    {"Weight of all tokens' statistics in each expert's",
     "0 % is the expert's own tokens alone, 100 % none of them: own statistics that are noisy, or "
     "like those of all tokens, count less.", prior_of, false, true, true},
    {"Error of each expert, of its worst linear",
     "Error of the outputs where known, else of the weights.", sw_exhibit_cost, true, true, false},
};
#define N_MEASURES (sizeof measures / sizeof measures[0])

typedef struct grid {
    const sw_exhibit *x;
    const measure *m;
    int64_t n_experts, n_cols;
    double *values; /* [n_experts, n_cols] */
    double least, most;
} grid;

static bool is_known(const sw_exhibit *x, const measure *m)
{
    for (int64_t i = 0; i < x->n_linears; i++)
        if (x->linears[i].expert >= 0 && !isnan(m->of(&x->linears[i]))) return true;
    return false;
}

const char *sw_section_experts_missing(const sw_exhibit *x, int n)
{
    bool has_experts = false;

    for (int i = 0; i < n; i++) {
        has_experts |= x[i].ckpt.model.n_experts > 0;
        for (size_t m = 0; m < N_MEASURES; m++)
            if (is_known(&x[i], &measures[m])) return NULL;
    }
    return has_experts ? "figures of experts: a manifest of a method that uses calibration text, "
                         "or a result of `swage verify`"
                       : "experts; the model has none";
}

static sw_code fill(grid *g, sw_err *err)
{
    const sw_exhibit *x = g->x;
    int64_t size = g->n_experts * g->n_cols;
    sw_code rc = SW_MEM_GET(&g->values, size, "cells", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < size; i++) g->values[i] = (double)NAN;
    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        double v = g->m->of(l), *at;
        if (l->expert < 0 || l->expert >= g->n_experts || l->layer >= g->n_cols || isnan(v))
            continue;
        at = &g->values[l->expert * g->n_cols + l->layer];
        if (!(*at >= v)) *at = v;
    }
    g->least = g->most = (double)NAN;
    sw_heat_range(&g->least, &g->most, g->values, size);
    return SW_OK;
}

static void label_cell(char text[SW_LABEL_BYTES], const void *self, int64_t row, int64_t col)
{
    const grid *g = self;
    double v = g->values[row * g->n_cols + col];
    char shown[SW_SHOWN_BYTES];

    (void)snprintf(text, SW_LABEL_BYTES, "layer %lld, expert %lld; %s%s", (long long)col,
                   (long long)row, g->m->is_percent ? sw_show_percent(shown, v)
                                                    : sw_show_count(shown, v),
                   g->m->is_percent ? "" : " tokens");
}

static sw_code draw_map(sw_html *h, const grid *g)
{
    char(*names)[40] = NULL;
    const char **rows = NULL;
    sw_heat heat = {.title = g->m->title, .describe = g->m->describe, .row_what = "expert",
                    .col_what = "layer", .n_rows = g->n_experts, .n_cols = g->n_cols,
                    .values = g->values, .least = g->least, .most = g->most,
                    .is_log = g->m->is_log, .is_percent = g->m->is_percent,
                    .is_cool = g->m->is_cool, .label = label_cell, .self = g};
    sw_code rc = SW_MEM_GET(&names, g->n_experts, "names", &h->err);

    if (rc == SW_OK) rc = SW_MEM_GET(&rows, g->n_experts, "names", &h->err);
    for (int64_t e = 0; e < g->n_experts && rc == SW_OK; e++) {
        (void)snprintf(names[e], sizeof names[e], "expert %lld", (long long)e);
        rows[e] = names[e];
    }
    heat.rows = rows;
    if (rc == SW_OK) sw_heat_draw(h, &heat);
    sw_mem_put(names);
    sw_mem_put(rows);
    return rc;
}

/* By layer: fewest, most, and the mean. */
static void put_table(sw_html *h, const grid *g)
{
    static const char *const headings[] = {"#layer", "#least", "#mean", "#most", "#experts at 0"};

    sw_table_begin(h, true, g->m->title, headings, 5);
    for (int64_t c = 0; c < g->n_cols; c++) {
        double least = (double)NAN, most = (double)NAN, sum = 0;
        int64_t n = 0, n_zero = 0;
        char text[SW_SHOWN_BYTES];
        const char *(*show)(char *, double) = g->m->is_percent ? sw_show_percent : sw_show_count;
        for (int64_t e = 0; e < g->n_experts; e++) {
            double v = g->values[e * g->n_cols + c];
            if (isnan(v)) continue;
            sw_heat_range(&least, &most, &v, 1);
            sum += v;
            n++;
            n_zero += !(v > 0);
        }
        if (!n) continue;
        sw_html_raw(h, "<tr>");
        sw_cell(h, sw_show_count(text, (double)c), (double)c);
        sw_cell(h, show(text, least), least);
        sw_cell(h, show(text, sum / (double)n), sum / (double)n);
        sw_cell(h, show(text, most), most);
        sw_cell(h, sw_show_count(text, (double)n_zero), (double)n_zero);
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
}

static void draw(sw_html *h, const sw_exhibit *x, const measure *m)
{
    grid g = {.x = x, .m = m, .n_experts = x->ckpt.model.n_experts,
              .n_cols = x->ckpt.model.n_layers};

    sw_html_raw(h, "<div>\n");
    if (h->err.code != SW_OK || fill(&g, &h->err) != SW_OK) goto done;
    if (g.n_experts * g.n_cols <= CELLS_MAX && draw_map(h, &g) != SW_OK) goto done;
    sw_html_raw(h, "<details><summary>By layer, in a table</summary>\n");
    put_table(h, &g);
    sw_html_put(h, "</details>\n<p class=\"muted small\">%s</p>\n</div>\n", m->describe);
done:
    sw_mem_put(g.values);
}

static void put_coverage(sw_html *h, const sw_exhibit *x)
{
    const cJSON *seen = sw_json_member(x->verified, "experts");
    int64_t n = 0, n_unreached = 0;

    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        bool is_first = !i || l[-1].expert != l->expert || l[-1].layer != l->layer;
        if (l->expert < 0 || isnan(l->n_routed) || !is_first) continue;
        n++;
        n_unreached += !(l->n_routed > 0);
    }
    if (n)
        sw_html_put(h, "<p class=\"%s\">%lld of %lld experts got no calibration token.</p>\n",
                    n_unreached ? "warn" : "muted", (long long)n_unreached, (long long)n);
    if (seen)
        sw_html_put(h, "<p class=\"muted\">verify measured output errors on %.0f tokens: %.0f of "
                    "%.0f experts got none, the others %.0f to %.0f.</p>\n",
                    sw_exhibit_number(seen, "tokens"), sw_exhibit_number(seen, "unreached"),
                    sw_exhibit_number(seen, "experts"), sw_exhibit_number(seen, "tokens_min"),
                    sw_exhibit_number(seen, "tokens_max"));
}

void sw_section_experts(sw_html *h, const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (!x[i].ckpt.model.n_experts) continue;
        sw_section_name(h, &x[i], n);
        put_coverage(h, &x[i]);
        sw_html_raw(h, "<div class=\"grid\">\n");
        for (size_t m = 0; m < N_MEASURES; m++)
            if (is_known(&x[i], &measures[m])) draw(h, &x[i], &measures[m]);
        sw_html_raw(h, "</div>\n");
    }
}
