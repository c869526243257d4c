/* section_verdict.c - did it pass, by what gates, and the figures that people ask for first. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/report/sections/section.h"

#define FINDINGS_SHOWN 50

const char *sw_section_verdict_missing(const sw_exhibit *x, int n)
{
    (void)x;
    (void)n;
    return NULL;
}

static bool has_passed(const sw_exhibit *x)
{
    const char *verdict = sw_exhibit_text(x->verified, "verdict");

    return verdict && !strcmp(verdict, "passed");
}

/* Times scattered too much for a gate on speed. */
static bool is_undecided(const sw_exhibit *x)
{
    const char *verdict = sw_exhibit_text(x->verified, "verdict");

    return verdict && !strcmp(verdict, "undecided");
}

static void put_badge(sw_html *h, const sw_exhibit *x)
{
    if (!x->verified)
        sw_html_raw(h, "<span class=\"badge warn\">not verified</span>");
    else if (has_passed(x))
        sw_html_raw(h, "<span class=\"badge good\">&#10003; passed</span>");
    else if (is_undecided(x))
        sw_html_raw(h, "<span class=\"badge warn\">undecided</span>");
    else
        sw_html_raw(h, "<span class=\"badge bad\">&#10007; failed</span>");
}

/* What the word "passed" stands on. */
static const char *basis_in_short(const sw_exhibit *x)
{
    if (!x->verified) return "–";
    if (!sw_exhibit_text(x->verified, "original"))
        return x->eval.is_measured ? "bytes, text" : "bytes";
    return x->eval.is_measured ? "bytes, original, text" : "bytes, original";
}

static const char *basis(const sw_exhibit *x)
{
    bool has_original = sw_exhibit_text(x->verified, "original") != NULL;

    if (!x->verified)
        return "Nothing is known of its quality. `swage verify` judges it.";
    if (!has_original && !x->eval.is_measured)
        return "Judged: every tensor decodes, and the config says what is stored. There was no "
               "original and no text.";
    if (!has_original)
        return "Judged: what is stored, and perplexity. There was no original to compare with.";
    if (!x->eval.is_measured)
        return "Judged: what is stored, and every weight against the original. There was no text.";
    return "Judged: what is stored, every weight against the original, and what both models "
           "compute on held-out text.";
}

static void put_tile(sw_html *h, const char *value, const char *what)
{
    sw_html_put(h, "<li><b>%s</b><span>%s</span></li>\n", value, what);
}

static void put_tiles(sw_html *h, const sw_exhibit *x)
{
    const sw_exhibit_eval *e = &x->eval;
    char text[SW_SHOWN_BYTES], what[80], part[SW_SHOWN_BYTES];

    sw_html_raw(h, "<ul class=\"tiles\">\n");
    sw_show_percent(part, x->bytes / x->original_bytes);
    (void)snprintf(what, sizeof what, "of tensors%s%s", isfinite(x->original_bytes) ? ", " : "",
                   isfinite(x->original_bytes) ? part : "");
    if (isfinite(x->original_bytes))
        (void)snprintf(what + strlen(what), sizeof what - strlen(what), " of the original");
    put_tile(h, sw_show_bytes(text, x->bytes), what);
    if (x->n_quantized_weights > 0)
        put_tile(h, sw_show_real(text, 8 * x->quantized_bytes / x->n_quantized_weights),
                 "bits per quantized weight");
    if (e->has_original) {
        put_tile(h, sw_show_real(text, e->kl.at), "nats of KL divergence from the original");
        put_tile(h, sw_show_percent(text, e->top1.at), "of positions keep their best token");
        put_tile(h, sw_show_real(text, e->ppl_ratio.at), "times the original's perplexity");
    } else if (e->is_measured) {
        put_tile(h, sw_show_real(text, e->ppl.at), "perplexity");
    }
    sw_html_raw(h, "</ul>\n");
}

static void put_gates(sw_html *h, const sw_exhibit *x)
{
    static const char *const headings[] = {"gate", "#limit", "#measured", "result"};
    const cJSON *gates = sw_json_member(x->verified, "gates"), *gate;

    if (!gates || !gates->child) {
        if (x->eval.has_original)
            sw_html_raw(h, "<p class=\"muted\">No gates were set: nothing that the text shows "
                           "could fail it.</p>\n");
        return;
    }
    sw_table_begin(h, false, "Gates", headings, 4);
    cJSON_ArrayForEach(gate, gates) {
        char limit[SW_SHOWN_BYTES], have[SW_SHOWN_BYTES];
        bool is_met = cJSON_IsTrue(sw_json_member(gate, "passed"));
        double least = sw_exhibit_number(gate, "limit"), at = sw_exhibit_number(gate, "have");
        sw_html_put(h, "<tr><th scope=\"row\">%s</th>", gate->string);
        sw_cell(h, sw_show_real(limit, least), least);
        sw_cell(h, sw_show_real(have, at), at);
        sw_html_raw(h, is_met ? "<td class=\"good\">&#10003; met</td></tr>\n"
                       : cJSON_IsFalse(sw_json_member(gate, "passed"))
                           ? "<td class=\"bad\">&#10007; missed</td></tr>\n"
                           : "<td class=\"warn\">undecided</td></tr>\n");
    }
    sw_table_end(h);
}

static void put_findings(sw_html *h, const sw_exhibit *x)
{
    const cJSON *list = sw_json_member(x->verified, "findings"), *item;
    double n = sw_exhibit_number(x->verified, "n_findings");
    int shown = 0;

    if (!(n > 0)) return;
    sw_html_put(h, "<p class=\"bad\">%.0f findings:</p>\n<ul>\n", n);
    cJSON_ArrayForEach(item, list) {
        if (shown++ == FINDINGS_SHOWN) break;
        sw_html_put(h, "<li><b>%s</b>: %s</li>\n", sw_exhibit_text(item, "what"),
                    sw_exhibit_text(item, "text"));
    }
    sw_html_raw(h, "</ul>\n");
    if (n > FINDINGS_SHOWN)
        sw_html_put(h, "<p class=\"muted\">The first %d; verify's JSON has more.</p>\n",
                    FINDINGS_SHOWN);
}

static void put_remarks(sw_html *h, const sw_exhibit *x)
{
    const cJSON *list = sw_json_member(x->verified, "remarks"), *item;
    const char *note = sw_exhibit_text(x->verified, "note");

    if (note) sw_html_put(h, "<p class=\"warn\">%s</p>\n", note);
    if (!list || !list->child) return;
    sw_html_raw(h, "<details><summary>Remarks, which fail nothing</summary><ul>\n");
    cJSON_ArrayForEach(item, list)
        if (cJSON_IsString(item)) sw_html_put(h, "<li>%s</li>\n", item->valuestring);
    sw_html_raw(h, "</ul></details>\n");
}

static void put_fallbacks(sw_html *h, const sw_exhibit *x)
{
    int64_t n = 0, first = -1;

    for (int64_t i = 0; i < x->n_linears; i++) {
        if (!x->linears[i].fallback) continue;
        if (first < 0) first = i;
        n++;
    }
    if (n)
        sw_html_put(h, "<p class=\"warn\">%lld linears fell back to another method, the first: "
                    "<code>%s</code>: %s</p>\n", (long long)n, x->linears[first].path,
                    x->linears[first].fallback);
}

/* Is there anything to say beyond the row of the table? */
static bool has_more(const sw_exhibit *x)
{
    const cJSON *gates = sw_json_member(x->verified, "gates");
    const cJSON *remarks = sw_json_member(x->verified, "remarks");

    for (int64_t i = 0; i < x->n_linears; i++)
        if (x->linears[i].fallback) return true;
    return x->is_stale || (x->verified && !has_passed(x)) || (gates && gates->child) ||
           (remarks && remarks->child) || sw_exhibit_text(x->verified, "note");
}

static const char *format_of(const sw_exhibit *x)
{
    return x->ckpt.is_file ? "gguf" : x->ckpt.dialect ? x->ckpt.dialect->name : "floats";
}

/* All side by side. */
static void put_table(sw_html *h, const sw_exhibit *x, int n)
{
    static const char *const headings[] = {"checkpoint", "verdict", "judged on", "format", "#size",
                                           "#bits per weight", "#KL, nats", "#top-1 agreement",
                                           "#perplexity ratio"};

    sw_table_begin(h, true, "The checkpoints of this report", headings, 9);
    for (int i = 0; i < n; i++) {
        const sw_exhibit_eval *e = &x[i].eval;
        double bits = 8 * x[i].quantized_bytes / x[i].n_quantized_weights;
        char text[SW_SHOWN_BYTES];
        sw_html_put(h, "<tr><th scope=\"row\">%s</th><td>", x[i].name);
        put_badge(h, &x[i]);
        sw_html_put(h, "</td><td class=\"nb\">%s</td><td class=\"nb\">%s</td>",
                    basis_in_short(&x[i]), format_of(&x[i]));
        sw_cell(h, sw_show_bytes(text, x[i].bytes), x[i].bytes);
        sw_cell(h, sw_show_real(text, bits), bits);
        sw_cell(h, sw_show_real(text, e->kl.at), e->has_original ? e->kl.at : (double)NAN);
        sw_cell(h, sw_show_percent(text, e->top1.at), e->has_original ? e->top1.at : (double)NAN);
        sw_cell(h, sw_show_real(text, e->ppl_ratio.at),
                e->has_original ? e->ppl_ratio.at : (double)NAN);
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
}

void sw_section_verdict(sw_html *h, const sw_exhibit *x, int n)
{
    if (n > 1) put_table(h, x, n);
    for (int i = 0; i < n; i++) {
        const char *reason = sw_exhibit_text(x[i].verified, "reason");
        if (n > 1 && !has_more(&x[i])) continue;
        sw_section_name(h, &x[i], n);
        sw_html_raw(h, "<p>");
        put_badge(h, &x[i]);
        sw_html_put(h, " %s</p>\n", basis(&x[i]));
        if (x[i].is_stale)
            sw_html_raw(h, "<p class=\"warn\">manifest.json tells of other bytes: files were "
                           "changed after it was written. Nothing of it is shown.</p>\n");
        if (reason) sw_html_put(h, "<p class=\"bad\">%s</p>\n", reason);
        if (n == 1) put_tiles(h, &x[i]);
        put_gates(h, &x[i]);
        put_findings(h, &x[i]);
        put_fallbacks(h, &x[i]);
        put_remarks(h, &x[i]);
    }
}
