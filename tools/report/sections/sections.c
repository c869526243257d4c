/* sections.c - the table of sections.def, and what sections share. */
#include "tools/report/sections/section.h"

#include <string.h>

const sw_section sw_sections[] = {
#define SW_SECTION(id, title) {#id, title, sw_section_##id##_missing, sw_section_##id},
#include "tools/report/sections/sections.def"
#undef SW_SECTION
    {0},
};

bool sw_section_is_same_text(const sw_exhibit *x, int n)
{
    const sw_exhibit_eval *first = NULL;

    for (int i = 0; i < n; i++) {
        if (!x[i].eval.is_measured) continue;
        if (!first) first = &x[i].eval;
        if (strcmp(first->key, x[i].eval.key) != 0) return false;
    }
    return true;
}

int sw_section_color(int i) { return i % SW_COLOR_ORIGINAL; }

void sw_section_name(sw_html *h, const sw_exhibit *x, int n)
{
    if (n > 1) sw_html_put(h, "<h3>%s</h3>\n", x->name);
}

void sw_table_begin(sw_html *h, bool is_sorted, const char *caption, const char *const *headings,
                    int n)
{
    sw_html_put(h, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                "<table class=\"%s\">\n<caption>%s</caption>\n", caption,
                is_sorted ? "sort" : "plain", caption);
    sw_html_raw(h, "<thead><tr>");
    for (int i = 0; i < n; i++) {
        bool is_number = headings[i][0] == '#';
        sw_html_put(h, is_number ? "<th class=\"n\" scope=\"col\">%s</th>"
                                 : "<th scope=\"col\">%s</th>", headings[i] + is_number);
    }
    sw_html_raw(h, "</tr></thead>\n<tbody>\n");
}

void sw_table_end(sw_html *h) { sw_html_raw(h, "</tbody></table></div>\n"); }

void sw_table_fact(sw_html *h, const char *what, const char *value)
{
    sw_html_put(h, "<tr><th scope=\"row\">%s</th><td>%s</td></tr>\n", what, value);
}
