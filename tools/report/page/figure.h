/* figure.h - what all charts have: a caption, a drawing that can be read out, marks that can be
 * pointed at and reached by keys, and how numbers are written.
 */
#ifndef SW_TOOLS_REPORT_PAGE_FIGURE_H
#define SW_TOOLS_REPORT_PAGE_FIGURE_H

#include <stdbool.h>

#include "tools/report/page/html.h"

#define SW_HEAT_STEPS 9    /* classes h0 to h8 of the style */
#define SW_SERIES_COLORS 8 /* classes c0 to c7 */
#define SW_COLOR_ORIGINAL 6

/* <figure> with an open <svg> of that many pixels; ends with sw_figure_end. `describe` is read out
 * instead of the drawing and says what is in it. */
void sw_figure_begin(sw_html *h, double width, double height, const char *title,
                     const char *describe);
void sw_figure_end(sw_html *h);

/* A group of shapes that stands for one value: `label` is shown when it is pointed at, and read
 * out; parts of it are separated by "; ". The first mark of a figure can be reached by Tab, the
 * others by the arrow keys. */
void sw_mark_begin(sw_html *h, const char *label);
void sw_mark_end(sw_html *h);

/* Where colours have names: a row of swatches, i-th class "ci". */
void sw_legend(sw_html *h, const char *const *names, int n);

/* Numbers for people. NaN: not known, a dash. Each returns its text. */
#define SW_SHOWN_BYTES 24
const char *sw_show_real(char text[SW_SHOWN_BYTES], double v);    /* 4 digits */
const char *sw_show_percent(char text[SW_SHOWN_BYTES], double v); /* of 1 */
const char *sw_show_count(char text[SW_SHOWN_BYTES], double v);   /* 12,345 */
const char *sw_show_bytes(char text[SW_SHOWN_BYTES], double v);   /* 1.5 GB */

/* A cell of a table that sorts by `v`; NaN sorts last. */
void sw_cell(sw_html *h, const char *text, double v);

#endif
