/* section_quality.c - divergence, perplexity and agreement on held-out text, with intervals. */
#include <math.h>
#include <stdio.h>

#include "tools/report/sections/section.h"

#define DOTS_MAX 64

const char *sw_section_quality_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i].eval.is_measured) return NULL;
    return "no result of `swage verify OUT --against MODEL --text FILE`; its `--report FILE` is "
           "given to `swage report` by `--results FILE`";
}

typedef struct figure {
    const char *title, *describe, *gate, *gate_name;
    size_t offset;
    bool is_percent, needs_original;
} figure;

#define AT(field) offsetof(sw_exhibit_eval, field)
static const figure figures[] = {
    {"KL from the original, nats per token",
     "Mean KL divergence with its interval, a row per checkpoint. Less is better.", "max_kl",
     "gate: largest KL", AT(kl), false, true},
    {"Positions that keep the original's best token",
     "Top-1 agreement with its interval, a row per checkpoint. More is better.", "min_top1",
     "gate: least agreement", AT(top1), true, true},
    {"Perplexity over the original's, paired",
     "Ratio of perplexities with its interval, a row per checkpoint. One is as good as the "
     "original.", "max_ppl_ratio", "gate: largest ratio", AT(ppl_ratio), false, true},
    {"Perplexity",
     "Perplexity with its interval, a row per checkpoint and one for the original. The intervals "
     "are wide because texts differ; the ratio is paired and says more.", NULL, NULL, AT(ppl),
     false, false},
};

static const sw_interval3 *interval_of(const sw_exhibit_eval *e, size_t offset)
{
    return (const sw_interval3 *)(const void *)((const char *)e + offset);
}

static void add_dot(sw_dot *dots, int *n, const char *name, int color, const sw_interval3 *v)
{
    if (isfinite(v->at) && *n < DOTS_MAX)
        dots[(*n)++] = (sw_dot){.name = name, .color = color, .at = v->at, .low = v->low,
                                .high = v->high};
}

/* Of one checkpoint the gate is shown; those of several may differ. */
static void draw_figure(sw_html *h, const figure *f, const sw_exhibit *x, int n)
{
    sw_dot dots[DOTS_MAX];
    char title[160], limit[SW_SHOWN_BYTES];
    sw_dots chart = {.title = f->title, .describe = f->describe, .at = dots, .limit = (double)NAN,
                     .limit_name = f->gate_name, .is_percent = f->is_percent};

    if (!f->needs_original && x->eval.has_original && sw_section_is_same_text(x, n))
        add_dot(dots, &chart.n, "original", SW_COLOR_ORIGINAL, &x->eval.ppl_original);
    for (int i = 0; i < n; i++)
        add_dot(dots, &chart.n, x[i].name, sw_section_color(i),
                interval_of(&x[i].eval, f->offset));
    if (f->gate && n == 1)
        chart.limit = sw_exhibit_number(
            sw_json_member(sw_json_member(x->verified, "gates"), f->gate), "limit");
    if (isfinite(chart.limit)) {
        (void)(f->is_percent ? sw_show_percent : sw_show_real)(limit, chart.limit);
        (void)snprintf(title, sizeof title, "%s; dashed, %s, %s", f->title, f->gate_name, limit);
        chart.title = title;
    }
    if (chart.n) sw_dots_draw(h, &chart);
}

typedef struct fact {
    const char *name;
    size_t offset;
    bool is_interval, is_percent;
} fact;

static const fact facts[] = {
    {"KL divergence, nats", AT(kl), true, false},
    {"KL, 99th percentile of positions", AT(kl_p99), false, false},
    {"KL, largest", AT(kl_max), false, false},
    {"top-1 agreement", AT(top1), true, true},
    {"perplexity", AT(ppl), true, false},
    {"perplexity of the original", AT(ppl_original), true, false},
    {"perplexity over the original's", AT(ppl_ratio), true, false},
    {"difference in NLL, nats", AT(nll_diff), true, false},
    {"kernel gap: error of logits", AT(gap_logits), false, false},
    {"kernel gap: KL, nats", AT(gap_kl), false, false},
};

static void put_fact(sw_html *h, const fact *f, const sw_exhibit_eval *e)
{
    const char *(*show)(char *, double) = f->is_percent ? sw_show_percent : sw_show_real;
    const sw_interval3 *v = interval_of(e, f->offset);
    char at[SW_SHOWN_BYTES], low[SW_SHOWN_BYTES], high[SW_SHOWN_BYTES];

    if (!e->is_measured) {
        sw_html_raw(h, "<td class=\"n\">–</td>");
        return;
    }
    sw_html_put(h, "<td class=\"n\">%s", show(at, v->at));
    if (f->is_interval && isfinite(v->at))
        sw_html_put(h, " <span class=\"muted\">[%s, %s]</span>", show(low, v->low),
                    show(high, v->high));
    sw_html_raw(h, "</td>");
}

static void put_table(sw_html *h, const sw_exhibit *x, int n)
{
    sw_html_raw(h, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All "
                   "figures\"><table class=\"plain\">\n<caption>All figures; brackets: bootstrap "
                   "intervals over windows</caption>\n<thead><tr><th scope=\"col\">figure</th>");
    for (int i = 0; i < n; i++) sw_html_put(h, "<th class=\"n\" scope=\"col\">%s</th>", x[i].name);
    sw_html_raw(h, "</tr></thead>\n<tbody>\n");
    for (size_t f = 0; f < sizeof facts / sizeof facts[0]; f++) {
        sw_html_put(h, "<tr><th scope=\"row\">%s</th>", facts[f].name);
        for (int i = 0; i < n; i++) put_fact(h, &facts[f], &x[i].eval);
        sw_html_raw(h, "</tr>\n");
    }
    sw_html_raw(h, "<tr><th scope=\"row\">differs from the original</th>");
    for (int i = 0; i < n; i++)
        sw_html_put(h, "<td class=\"n\">%s</td>", !x[i].eval.has_original      ? "–"
                                                : x[i].eval.is_significant ? "significantly"
                                                                           : "not significantly");
    sw_html_raw(h, "</tr>\n");
    sw_table_end(h);
}

/* Said once where it is the same for all. */
static void put_method(sw_html *h, const sw_exhibit *x, bool is_named)
{
    const sw_exhibit_eval *e = &x->eval;
    char predictions[SW_SHOWN_BYTES];

    if (!e->is_measured) return;
    sw_html_raw(h, "<p class=\"muted\">");
    if (is_named) sw_html_put(h, "%s: ", x->name);
    sw_html_put(h, "%s predictions in %.0f windows of %.0f tokens, through the kernels that serve "
                "the format, on %s.", sw_show_count(predictions, e->n_predictions), e->n_windows,
                e->window, e->device ? e->device : "an unknown device");
    if (isfinite(e->level))
        sw_html_put(h, " Intervals hold %.0f %% of resampled windows.", 100 * e->level);
    sw_html_raw(h, "</p>\n");
}

void sw_section_quality(sw_html *h, const sw_exhibit *x, int n)
{
    if (!sw_section_is_same_text(x, n))
        sw_html_raw(h, "<p class=\"warn\">The originals, texts or windows differ: these figures "
                       "cannot be compared with each other.</p>\n");
    sw_html_raw(h, "<div class=\"grid even\">\n");
    for (size_t f = 0; f < sizeof figures / sizeof figures[0]; f++)
        draw_figure(h, &figures[f], x, n);
    sw_html_raw(h, "</div>\n");
    put_table(h, x, n);
    for (int i = 0, is_told = 0; i < n; i++) {
        bool is_same = sw_section_is_same_text(x, n);
        if (is_same && is_told) break;
        put_method(h, &x[i], !is_same);
        is_told |= x[i].eval.is_measured;
    }
}
