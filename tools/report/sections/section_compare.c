/* section_compare.c - what each byte buys: divergence against size, and which checkpoints no other
 * one beats in both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "tools/report/sections/section.h"

#define POINTS_MAX 64

/* Comparable are those that were measured like the first one that was. */
static const char *common_key(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i].eval.has_original) return x[i].eval.key;
    return "";
}

static bool is_point(const sw_exhibit *x, const char *key)
{
    return x->eval.has_original && !strcmp(x->eval.key, key);
}

const char *sw_section_compare_missing(const sw_exhibit *x, int n)
{
    const char *key = common_key(x, n);
    int n_points = 0;

    for (int i = 0; i < n; i++) n_points += is_point(&x[i], key);
    return n_points > 1 ? NULL
                        : "two checkpoints or more that `swage verify` has measured on the same "
                          "text against the same original";
}

static int compare_sizes(const void *a, const void *b)
{
    const sw_xy_point *p = a, *q = b;

    return p->x < q->x ? -1 : p->x > q->x ? 1 : p->y < q->y ? -1 : p->y > q->y;
}

/* Of points sorted by size: those with less divergence than all smaller ones. */
static int find_front(sw_xy_point *front, const sw_xy_point *at, int n)
{
    int n_front = 0;

    for (int i = 0; i < n; i++)
        if (!n_front || at[i].y < front[n_front - 1].y) front[n_front++] = at[i];
    return n_front;
}

static int gather(sw_xy_point *at, char labels[][SW_LABEL_BYTES], const sw_exhibit *x, int n)
{
    const char *key = common_key(x, n);
    char size[SW_SHOWN_BYTES], kl[SW_SHOWN_BYTES], low[SW_SHOWN_BYTES], high[SW_SHOWN_BYTES];
    int n_points = 0;

    for (int i = 0; i < n && n_points < POINTS_MAX; i++) {
        const sw_interval3 *v = &x[i].eval.kl;
        if (!is_point(&x[i], key)) continue;
        (void)snprintf(labels[n_points], SW_LABEL_BYTES, "%.200s; %s; KL %s nats; interval %s "
                       "to %s", x[i].name, sw_show_bytes(size, x[i].bytes), sw_show_real(kl, v->at),
                       sw_show_real(low, v->low), sw_show_real(high, v->high));
        at[n_points] = (sw_xy_point){.x = x[i].bytes / 1e6, .y = v->at, .low = v->low,
                                     .high = v->high, .color = sw_section_color(i),
                                     .name = x[i].name,
                                     .label = labels[n_points]};
        n_points++;
    }
    qsort(at, (size_t)n_points, sizeof *at, compare_sizes);
    return n_points;
}

static void list_front(sw_html *h, const sw_xy_point *front, int n)
{
    sw_html_raw(h, "<p>On the front, no other one being both smaller and closer to the original: ");
    for (int i = 0; i < n; i++)
        sw_html_put(h, "%s<b>%s</b>", i ? ", " : "", front[i].name);
    sw_html_raw(h, ".</p>\n");
}

static void draw(sw_html *h, const sw_xy_point *at, int n_points, const sw_xy_point *front,
                 int n_front)
{
    const sw_xy_series series[] = {
        {.color = 6, .is_line = true, .is_dashed = true, .is_stepped = true, .at = front,
         .n = n_front},
        {.at = at, .n = n_points}};
    const sw_xy chart = {
        .title = "KL divergence against the size of all tensors; lower left is better",
        .describe = "A point per checkpoint with the interval of its divergence; the dashed steps "
                    "join those that no other one beats.",
        .x_name = "MB of tensors", .y_name = "KL, nats per token", .is_log_y = true,
        .series = series, .n_series = 2};

    sw_xy_draw(h, &chart);
}

void sw_section_compare(sw_html *h, const sw_exhibit *x, int n)
{
    char (*labels)[SW_LABEL_BYTES] = NULL;
    sw_xy_point at[POINTS_MAX], front[POINTS_MAX];
    int n_points, n_front;

    if (h->err.code != SW_OK || SW_MEM_GET(&labels, n, "labels", &h->err) != SW_OK) return;
    n_points = gather(at, labels, x, n);
    n_front = find_front(front, at, n_points);
    draw(h, at, n_points, front, n_front);
    sw_mem_put(labels);
    list_front(h, front, n_front);
    if (!sw_section_is_same_text(x, n))
        sw_html_raw(h, "<p class=\"warn\">Checkpoints that were measured on another text, or "
                       "against another original, are not shown here.</p>\n");
}
