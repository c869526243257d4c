/* chart.h - the kinds of charts. All take plain arrays, draw nothing for what is NaN, and borrow
 * every text.
 */
#ifndef SW_TOOLS_REPORT_PAGE_CHART_H
#define SW_TOOLS_REPORT_PAGE_CHART_H

#include "tools/report/page/figure.h"

#define SW_LABEL_BYTES 600

/* What to say of a value, into `text`; `self` is the caller's. */
typedef void (*sw_label_fn)(char text[SW_LABEL_BYTES], const void *self, int64_t row, int64_t col);

/* Coloured cells, darker for more (heat.c). */
typedef struct sw_heat {
    const char *title, *describe;
    const char *row_what, *col_what; /* "kind of linear", "layer" */
    const char *const *rows;         /* [n_rows] names */
    int64_t n_rows, n_cols;
    const double *values;            /* [n_rows, n_cols] */
    double least, most;              /* of the colours, so that charts can be compared */
    bool is_log;                     /* colours go by the logarithm; 0 has the palest */
    bool is_percent;
    bool is_cool;                    /* more is not worse: another hue */
    sw_label_fn label;
    const void *self;
} sw_heat;
void sw_heat_draw(sw_html *h, const sw_heat *heat);
/* Least and largest of n values into *least and *most, which begin as NaN. */
void sw_heat_range(double *least, double *most, const double *values, int64_t n);

/* Counts over equal steps (bars.c): a histogram. */
typedef struct sw_bars {
    const char *title, *describe;
    const char *unit;                /* "weights" */
    double low, high;                /* of the first bar and beyond the last */
    bool is_log2;                    /* these are exponents of two */
    bool is_whole;                   /* each bar is one whole number */
    int n;
    const int64_t *counts;
    double width, height;            /* pixels of the bars */
} sw_bars;
void sw_bars_draw(sw_html *h, const sw_bars *bars);

/* A value with its interval, a row each (dots.c). */
typedef struct sw_dot {
    const char *name;
    int color;                       /* class */
    double at, low, high;
} sw_dot;
typedef struct sw_dots {
    const char *title, *describe;
    const sw_dot *at;
    int n;
    double limit;                    /* a line, or NaN */
    const char *limit_name;
    bool is_percent;
} sw_dots;
void sw_dots_draw(sw_html *h, const sw_dots *dots);

/* Lines and points over two axes (xy.c). */
typedef struct sw_xy_point {
    double x, y, low, high;          /* low and high NaN: no interval */
    int color;                       /* class of a point */
    const char *name;                /* beside the point, or NULL */
    const char *label;               /* when it is pointed at */
} sw_xy_point;
typedef struct sw_xy_series {
    const char *name;                /* beside the last point of a line, or NULL */
    int color;                       /* class of a line */
    bool is_line, is_dashed, is_stepped; /* is_line false: points */
    const sw_xy_point *at;
    int n;
} sw_xy_series;
typedef struct sw_xy {
    const char *title, *describe, *x_name, *y_name;
    bool is_log_x, is_log_y;
    const sw_xy_series *series;
    int n_series;
} sw_xy;
void sw_xy_draw(sw_html *h, const sw_xy *xy);

/* One bar a row, of parts that add up (stack.c). */
typedef struct sw_stack {
    const char *title, *describe;
    const char *const *rows;         /* [n_rows] */
    const char *const *parts;        /* [n_parts] */
    const double *values;            /* [n_rows, n_parts] */
    int n_rows, n_parts;
    const char *(*show)(char text[SW_SHOWN_BYTES], double v);
} sw_stack;
void sw_stack_draw(sw_html *h, const sw_stack *stack);

#endif
