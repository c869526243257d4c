/* scale.h - from values to pixels, and where an axis has its ticks. */
#ifndef SW_TOOLS_REPORT_PAGE_SCALE_H
#define SW_TOOLS_REPORT_PAGE_SCALE_H

#include <stdbool.h>

#include "tools/report/page/html.h"

#define SW_TICKS_MAX 12

typedef struct sw_scale {
    double low, high;     /* low below high; above 0 where is_log */
    double at_low, at_high; /* pixels */
    bool is_log;
} sw_scale;

/* A scale over what was seen, with some room at both ends; of one value, or of none, too.
 * is_log is dropped where a value is not above 0. */
sw_scale sw_scale_over(double least, double most, bool is_log, double at_low, double at_high);
double sw_scale_px(const sw_scale *s, double v);
/* Round values within the scale, rising; returns how many. */
int sw_scale_ticks(double out[SW_TICKS_MAX], const sw_scale *s);

/* Lines and labels of an axis: along the bottom at y, lines up to y_top; along the left at x, lines
 * to x_right. `name` stands at its end. */
void sw_axis_bottom(sw_html *h, const sw_scale *s, double y, double y_top, const char *name);
void sw_axis_left(sw_html *h, const sw_scale *s, double x, double x_right, const char *name);

#endif
