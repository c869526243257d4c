/* sweep_choice.c - see sweep_choice.h. */
#include "tools/sweep/sweep_choice.h"

/* -1, 0, 1 as `a` is smaller than, equal to or larger than `b`. */
static int by_size(const sw_sweep_point *a, const sw_sweep_point *b)
{
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_kl(const sw_sweep_point *a, const sw_sweep_point *b)
{
    return (a->kl > b->kl) - (a->kl < b->kl);
}

void sw_sweep_find_front(sw_sweep_point *points, int n)
{
    for (int i = 0; i < n; i++) {
        sw_sweep_point *p = &points[i];
        p->is_on_front = p->is_sound;
        for (int k = 0; k < n && p->is_on_front; k++) {
            const sw_sweep_point *q = &points[k];
            bool is_equal = !by_size(q, p) && !by_kl(q, p);
            if (k == i || !q->is_sound || by_size(q, p) > 0 || by_kl(q, p) > 0) continue;
            if (!is_equal || k < i) p->is_on_front = false;
        }
    }
}

static bool keeps_size(const sw_sweep_point *p, const sw_sweep_limits *limits)
{
    return p->is_sound && (!limits->max_bytes || p->bytes <= limits->max_bytes);
}

static bool keeps(const sw_sweep_point *p, const sw_sweep_limits *limits)
{
    return keeps_size(p, limits) && (limits->max_kl < 0 || p->kl <= limits->max_kl);
}

static bool is_better(const sw_sweep_point *a, const sw_sweep_point *b, bool by_size_first)
{
    int first = by_size_first ? by_size(a, b) : by_kl(a, b);

    return first < 0 || (first == 0 && (by_size_first ? by_kl(a, b) : by_size(a, b)) < 0);
}

int sw_sweep_choose(const sw_sweep_point *points, int n, const sw_sweep_limits *limits)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (keeps(&points[i], limits) &&
            (best < 0 || is_better(&points[i], &points[best], limits->max_kl >= 0)))
            best = i;
    return best;
}

int sw_sweep_nearest(const sw_sweep_point *points, int n, const sw_sweep_limits *limits)
{
    int best = -1, smallest = -1;

    for (int i = 0; i < n; i++) {
        if (!points[i].is_sound) continue;
        if (smallest < 0 || is_better(&points[i], &points[smallest], true)) smallest = i;
        if (keeps_size(&points[i], limits) &&
            (best < 0 || is_better(&points[i], &points[best], false)))
            best = i;
    }
    return best >= 0 ? best : smallest;
}
