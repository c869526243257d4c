/* section.h - the parts of a report, as a table: what each is called, when it has nothing to show,
 * and what it draws.
 */
#ifndef SW_TOOLS_REPORT_SECTIONS_SECTION_H
#define SW_TOOLS_REPORT_SECTIONS_SECTION_H

#include "tools/report/data/exhibit.h"
#include "tools/report/page/chart.h"

typedef struct sw_section {
    const char *id, *title;
    /* NULL when it has something to show of x[0..n); else what is missing and how to get it. */
    const char *(*missing)(const sw_exhibit *x, int n);
    /* Everything below the heading. */
    void (*draw)(sw_html *h, const sw_exhibit *x, int n);
} sw_section;

extern const sw_section sw_sections[]; /* ends with a NULL id */

#define SW_SECTION(id, title)                                         \
    const char *sw_section_##id##_missing(const sw_exhibit *x, int n); \
    void sw_section_##id(sw_html *h, const sw_exhibit *x, int n);
#include "tools/report/sections/sections.def"
#undef SW_SECTION

/* true when all that were measured were so on the same text against the same original. */
bool sw_section_is_same_text(const sw_exhibit *x, int n);
/* The colour of the i-th checkpoint in every chart; none is the original's. */
int sw_section_color(int i);
/* A heading with the name of one of several checkpoints; nothing where there is one alone. */
void sw_section_name(sw_html *h, const sw_exhibit *x, int n);
/* A table that scrolls by itself where it is too wide, with its caption and the headings given;
 * those that begin with '#' stand over numbers. Ends with sw_table_end. */
void sw_table_begin(sw_html *h, bool is_sorted, const char *caption, const char *const *headings,
                    int n);
void sw_table_end(sw_html *h);
/* A row of a table of two columns. */
void sw_table_fact(sw_html *h, const char *what, const char *value);

#endif
