/* section_engines.c - which engines would refuse or misread a checkpoint, by verify's rules. */
#include "tools/report/sections/section.h"

const char *sw_section_engines_missing(const sw_exhibit *x, int n)
{
    (void)x;
    (void)n;
    return NULL;
}

static const char *const classes[SW_LOAD_EFFECT_COUNT] = {
    [SW_LOAD_REFUSED] = "badge bad", [SW_LOAD_MISREAD] = "badge bad",
    [SW_LOAD_LIMITED] = "badge warn"};

static void put_findings(sw_html *h, const sw_exhibit *x)
{
    static const char *const headings[] = {"engines", "effect", "where", "what happens",
                                           "what helps"};

    sw_table_begin(h, false, "Loading rules that this checkpoint breaks", headings, 5);
    for (int64_t i = 0; i < x->loaders.n; i++) {
        const sw_load_finding *f = &x->loaders.at[i];
        sw_html_put(h, "<tr><th scope=\"row\">%s</th><td><span class=\"%s\">%s</span></td>"
                    "<td><code>%s</code>", f->rule->engines, classes[f->rule->effect],
                    sw_load_effect_name(f->rule->effect), f->subject);
        if (f->n_subjects > 1)
            sw_html_put(h, " and %lld more", (long long)f->n_subjects - 1);
        if (f->detail && f->detail[0]) sw_html_put(h, ": %s", f->detail);
        sw_html_put(h, "</td><td>%s</td><td>%s</td></tr>\n", f->rule->consequence, f->rule->remedy);
    }
    sw_table_end(h);
}

void sw_section_engines(sw_html *h, const sw_exhibit *x, int n)
{
    sw_html_put(h, "<p class=\"lead\">%d rules of how engines load checkpoints were applied to "
                "what is on disk. No engine was run for this report.</p>\n", sw_n_load_rules);
    for (int i = 0; i < n; i++) {
        const sw_dialect *d = x[i].ckpt.dialect;
        sw_section_name(h, &x[i], n);
        if (x[i].ckpt.is_file)
            sw_html_raw(h, "<p>Format <b>gguf</b>: llama.cpp and what is built on it.</p>\n");
        else if (d)
            sw_html_put(h, "<p>Format <b>%s</b>: %s.</p>\n", d->name, d->summary);
        else
            sw_html_raw(h, "<p>Not quantized: a directory of floats.</p>\n");
        if (x[i].loaders.n)
            put_findings(h, &x[i]);
        else
            sw_html_raw(h, "<p><span class=\"badge good\">&#10003; no rule broken</span> None of "
                           "the rules says that an engine would refuse or misread it.</p>\n");
    }
}
