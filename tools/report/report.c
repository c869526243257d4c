/* report.c - see report.h: gathers, then writes one section after the other. */
#include "tools/report/report.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/io/watch.h"
#include "tools/report/data/results.h"
#include "tools/report/page/frame.h"
#include "tools/report/sections/section.h"

typedef struct gathered {
    sw_exhibit *x;
    int n;
} gathered;

sw_code sw_html_report_check(const char *path, bool may_replace, sw_err *err)
{
    if (!may_replace && sw_path_exists(path))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", path);
    return SW_OK;
}

/* Two of the same name are told apart by their whole paths. */
static void name_all(gathered *g)
{
    for (int i = 0; i < g->n; i++)
        for (int j = 0; j < g->n; j++)
            if (i != j && !strcmp(g->x[i].name, g->x[j].name)) {
                g->x[i].name = g->x[i].path;
                g->x[j].name = g->x[j].path;
            }
}

static sw_code add_copy(sw_exhibit *x, const sw_html_request *r, sw_err *err)
{
    cJSON *verified = r->verified ? cJSON_Duplicate(r->verified, true) : NULL;
    cJSON *made = r->made ? cJSON_Duplicate(r->made, true) : NULL;
    sw_code rc = SW_OK;

    if ((r->verified && !verified) || (r->made && !made))
        rc = SW_FAIL(err, SW_E_NOMEM, "no memory for the report");
    if (made) sw_exhibit_add_made(x, made);
    if (rc != SW_OK || !verified) {
        cJSON_Delete(verified);
        return rc;
    }
    return sw_exhibit_add_verified(x, verified, err);
}

static sw_code gather(gathered *g, const sw_html_request *r, sw_err *err)
{
    sw_code rc;

    if (r->n_checkpoints > SW_REPORT_CHECKPOINTS_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d checkpoints; a report holds at most %d",
                       r->n_checkpoints, SW_REPORT_CHECKPOINTS_MAX);
    if (r->n_stats > 1 && r->n_stats != r->n_checkpoints)
        return SW_FAIL(err, SW_E_USAGE, "%d files of statistics for %d checkpoints; give one for "
                       "all, or one for each", r->n_stats, r->n_checkpoints);
    if ((rc = SW_MEM_GET(&g->x, r->n_checkpoints, "report", err)) != SW_OK) return rc;
    for (; g->n < r->n_checkpoints && rc == SW_OK; g->n += rc == SW_OK) {
        sw_progress_step(r->progress, "checkpoints", g->n, r->n_checkpoints);
        rc = sw_exhibit_open(&g->x[g->n], r->checkpoints[g->n], r->n_threads, err);
    }
    for (int i = 0; i < r->n_results && rc == SW_OK; i++)
        if ((rc = sw_progress_check(r->progress, err)) == SW_OK)
            rc = sw_results_add(g->x, g->n, r->results[i], err);
    if (rc == SW_OK) rc = add_copy(&g->x[0], r, err);
    for (int i = 0; i < g->n && rc == SW_OK; i++) {
        if (r->n_stats)
            rc = sw_exhibit_add_stats(&g->x[i], r->stats[r->n_stats > 1 ? i : 0], err);
        sw_progress_step(r->progress, "histograms", i, g->n);
        if (rc == SW_OK) rc = sw_exhibit_look(&g->x[i], err);
    }
    if (rc == SW_OK) name_all(g);
    return rc;
}

static void put_header(sw_html *h, const gathered *g)
{
    const sw_exhibit *x = &g->x[0];
    const sw_model *m = &x->ckpt.model;

    sw_html_raw(h, "<header>\n");
    if (g->n == 1) {
        sw_html_put(h, "<h1>%s</h1>\n<p class=\"muted\">%s, %lld layers, hidden %lld, vocabulary "
                    "%lld", x->name, m->arch->name, (long long)m->n_layers, (long long)m->hidden,
                    (long long)m->vocab);
        if (m->n_experts)
            sw_html_put(h, ", %lld experts of which %lld are used", (long long)m->n_experts,
                        (long long)m->n_experts_used);
        sw_html_put(h, "; %s</p>\n", x->ckpt.dialect ? x->ckpt.dialect->name
                                     : x->ckpt.is_file ? "gguf" : "not quantized");
    } else {
        sw_html_put(h, "<h1>%d checkpoints compared</h1>\n<p class=\"muted\">", g->n);
        for (int i = 0; i < g->n; i++) sw_html_put(h, "%s%s", i ? ", " : "", g->x[i].name);
        sw_html_raw(h, "</p>\n");
    }
    sw_html_raw(h, "<nav aria-label=\"Sections\"><ul>\n");
    for (const sw_section *s = sw_sections; s->id; s++)
        if (!s->missing(g->x, g->n))
            sw_html_put(h, "<li><a href=\"#%s\">%s</a></li>\n", s->id, s->title);
    sw_html_raw(h, "</ul></nav>\n</header>\n");
}

/* What is not there is named, so that nobody takes silence for a good result. */
static void put_missing(sw_html *h, const gathered *g)
{
    bool has_any = false;

    for (const sw_section *s = sw_sections; s->id; s++) {
        const char *why = s->missing(g->x, g->n);
        if (!why) continue;
        if (!has_any)
            sw_html_raw(h, "<section id=\"missing\" aria-labelledby=\"missing-title\">\n<h2 "
                           "id=\"missing-title\">Not in this report</h2>\n<ul>\n");
        has_any = true;
        sw_html_put(h, "<li><b>%s</b> needs %s.</li>\n", s->title, why);
    }
    if (has_any) sw_html_raw(h, "</ul>\n</section>\n");
}

static void put_page(sw_html *h, const gathered *g)
{
    char title[300];

    if (g->n == 1)
        (void)snprintf(title, sizeof title, "%.200s - swage report", g->x[0].name);
    else
        (void)snprintf(title, sizeof title, "%d checkpoints - swage report", g->n);
    sw_page_begin(h, title);
    sw_html_raw(h, "<div class=\"wrap\">\n");
    put_header(h, g);
    sw_html_raw(h, "<main id=\"main\">\n");
    for (const sw_section *s = sw_sections; s->id; s++) {
        if (s->missing(g->x, g->n)) continue;
        sw_html_put(h, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h2 id=\"%s-title\">%s"
                    "</h2>\n", s->id, s->id, s->id, s->title);
        s->draw(h, g->x, g->n);
        sw_html_raw(h, "</section>\n");
    }
    put_missing(h, g);
    sw_html_raw(h, "</main>\n<footer><p>Made by swage " SW_VERSION ". Point at a mark, or reach it "
                   "with Tab and the arrow keys, to see its value; headings of tables sort.</p>"
                   "</footer>\n</div>\n");
    sw_page_end(h);
}

sw_code sw_html_report(const sw_html_request *r, sw_err *err)
{
    gathered g = {0};
    sw_html h = {0};
    sw_code rc = sw_html_report_check(r->out, r->may_replace, err);

    if (rc == SW_OK) rc = gather(&g, r, err);
    if (rc == SW_OK) {
        put_page(&h, &g);
        rc = sw_html_check(&h, err);
    }
    if (rc == SW_OK) rc = sw_watch_check(err);
    if (rc == SW_OK) rc = sw_file_put_new(r->out, h.text.at, h.text.n_bytes, r->may_replace, err);
    for (int i = 0; i < g.n; i++) sw_exhibit_close(&g.x[i]);
    sw_mem_put(g.x);
    sw_html_free(&h);
    return rc;
}
