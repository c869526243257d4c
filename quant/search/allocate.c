/* allocate.c - see allocate.h. */
#include "quant/search/allocate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"

#define WORK_MAX 500000000 /* hull steps looked at before the best found so far stands */

/* From one point of an item's hull to the next larger: what it costs and what it saves. */
typedef struct step {
    int64_t item;
    int32_t to;      /* option */
    uint64_t bytes;  /* more than the point before */
    double saved;
    double slope;    /* saved / bytes */
} step;

typedef struct solver {
    const sw_choice *choices;
    int64_t n_items, n_options;
    step *steps;       /* all items, by falling slope */
    int64_t n_steps;
    int32_t *cheapest; /* [n_items] smallest option: the first point of the hull */
    int64_t *order;    /* [n_items] items by how much is at stake, most first */
    int64_t *rank;     /* [n_items] position in order: below the depth it is fixed */
    int32_t *now, *best; /* [n_items] */
    double *least_after;   /* [n_items + 1] loss of the items from this depth on, at the least */
    uint64_t *smallest_after; /* [n_items + 1] size of the items from this depth on */
    double best_loss;
    int64_t work;
} solver;

static const sw_choice *choice(const solver *s, int64_t item, int64_t option)
{
    return &s->choices[item * s->n_options + option];
}

static int by_falling_slope(const void *a, const void *b)
{
    const step *x = a, *y = b;

    if (x->slope > y->slope) return -1;
    if (x->slope < y->slope) return 1;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* The smallest option of an item; of several the one with the least loss. */
static int32_t smallest(const solver *s, int64_t item)
{
    int32_t at = -1;

    for (int32_t o = 0; o < s->n_options; o++) {
        const sw_choice *c = choice(s, item, o), *best = at < 0 ? NULL : choice(s, item, at);
        if (!isfinite(c->loss)) continue;
        if (!best || c->size < best->size || (c->size <= best->size && c->loss < best->loss))
            at = o;
    }
    return at;
}

/* Walk the lower convex hull of an item: from each point the steepest way to a larger one. */
static void add_hull(solver *s, int64_t item)
{
    int32_t at = s->cheapest[item];

    for (;;) {
        step next = {.to = -1, .slope = 0};
        const sw_choice *from = choice(s, item, at);
        for (int32_t o = 0; o < s->n_options; o++) {
            const sw_choice *to = choice(s, item, o);
            double saved = from->loss - to->loss, slope;
            if (!isfinite(to->loss) || to->size <= from->size || !(saved > 0)) continue;
            slope = saved / (double)(to->size - from->size);
            if (slope < next.slope ||
                (slope <= next.slope && next.to >= 0 && to->size - from->size <= next.bytes))
                continue;
            next = (step){item, o, to->size - from->size, saved, slope};
        }
        if (next.to < 0) return;
        s->steps[s->n_steps++] = next;
        at = next.to;
    }
}

/* Least loss that the items from `depth` on can have within `room` above their smallest sizes,
 * options taken in parts allowed; never above the true one. */
static double bound(const solver *s, int64_t depth, uint64_t room)
{
    double loss = s->least_after[depth];

    for (int64_t i = 0; i < s->n_steps; i++) {
        const step *t = &s->steps[i];
        if (s->rank[t->item] < depth) continue;
        if (t->bytes > room) return loss - t->slope * (double)room;
        room -= t->bytes;
        loss -= t->saved;
    }
    return loss;
}

/* Fill *now from `depth` on by whole steps in order of slope; steps of an item come in order, so
 * one that does not fit closes the item. Returns the loss of these items. */
static double greedy(solver *s, int64_t depth, uint64_t room, bool *is_closed)
{
    double loss = s->least_after[depth];

    for (int64_t d = depth; d < s->n_items; d++) {
        s->now[s->order[d]] = s->cheapest[s->order[d]];
        is_closed[s->order[d]] = false;
    }
    for (int64_t i = 0; i < s->n_steps; i++) {
        const step *t = &s->steps[i];
        if (s->rank[t->item] < depth || is_closed[t->item]) continue;
        if (t->bytes > room) {
            is_closed[t->item] = true;
            continue;
        }
        room -= t->bytes;
        loss -= t->saved;
        s->now[t->item] = t->to;
    }
    return loss;
}

static void keep_if_better(solver *s, double loss)
{
    if (!(loss < s->best_loss)) return;
    s->best_loss = loss;
    memcpy(s->best, s->now, (size_t)s->n_items * sizeof *s->best);
}

/* Options of the item at `depth` in turn; `room` is what is left for it and all after it. */
static void branch(solver *s, int64_t depth, uint64_t room, double loss, bool *is_closed)
{
    int64_t item;

    if ((s->work += 2 * s->n_steps + 1) > WORK_MAX) return;
    if (room < s->smallest_after[depth]) return;
    room -= s->smallest_after[depth];
    if (!(loss + bound(s, depth, room) < s->best_loss * (1 - 1e-12))) return;
    keep_if_better(s, loss + greedy(s, depth, room, is_closed));
    if (depth == s->n_items) return;
    room += s->smallest_after[depth];
    item = s->order[depth];
    for (int32_t o = 0; o < s->n_options; o++) {
        const sw_choice *c = choice(s, item, o);
        if (!isfinite(c->loss) || c->size > room) continue;
        s->now[item] = o;
        branch(s, depth + 1, room - c->size, loss + c->loss, is_closed);
    }
}

typedef struct stake {
    double loss;
    int64_t item;
} stake;

static int by_falling_stake(const void *a, const void *b)
{
    const stake *x = a, *y = b;

    if (x->loss > y->loss) return -1;
    if (x->loss < y->loss) return 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static sw_code prepare(solver *s, sw_err *err)
{
    stake *stakes = NULL;
    int64_t n = s->n_items;
    sw_code rc = SW_MEM_GET(&stakes, n, "allocation", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) {
        s->cheapest[i] = smallest(s, i);
        if (s->cheapest[i] < 0) {
            rc = SW_FAIL(err, SW_E_BUG, "item %lld has no option", (long long)i);
            goto done;
        }
        add_hull(s, i);
        stakes[i] = (stake){choice(s, i, s->cheapest[i])->loss, i};
    }
    if (s->n_steps) qsort(s->steps, (size_t)s->n_steps, sizeof *s->steps, by_falling_slope);
    if (n) qsort(stakes, (size_t)n, sizeof *stakes, by_falling_stake);
    for (int64_t d = n - 1; d >= 0; d--) {
        const sw_choice *c = choice(s, stakes[d].item, s->cheapest[stakes[d].item]);
        s->order[d] = stakes[d].item;
        s->rank[stakes[d].item] = d;
        s->least_after[d] = s->least_after[d + 1] + c->loss;
        s->smallest_after[d] = s->smallest_after[d + 1] + c->size;
    }
done:
    sw_mem_put(stakes);
    return rc;
}

uint64_t sw_allocate_least(const sw_choice *choices, int64_t n_items, int64_t n_options)
{
    solver s = {.choices = choices, .n_items = n_items, .n_options = n_options};
    uint64_t sum = 0;

    for (int64_t i = 0; i < n_items; i++) {
        int32_t at = smallest(&s, i);
        if (at >= 0) sum += choice(&s, i, at)->size;
    }
    return sum;
}

static sw_code take_room(solver *s, sw_arena *arena, bool **is_closed, sw_err *err)
{
    int64_t n = s->n_items;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&s->steps, arena, n * s->n_options, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->cheapest, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->order, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->rank, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->now, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->best, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->least_after, arena, n + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->smallest_after, arena, n + 1, err)) != SW_OK)
        return rc;
    return SW_ARENA_TAKE(is_closed, arena, n, err);
}

sw_code sw_allocate(int32_t *taken, const sw_choice *choices, int64_t n_items, int64_t n_options,
                    uint64_t budget, sw_err *err)
{
    solver s = {.choices = choices, .n_items = n_items, .n_options = n_options,
                .best_loss = (double)INFINITY};
    bool *is_closed = NULL;
    sw_arena arena = {0};
    sw_code rc;

    if ((rc = take_room(&s, &arena, &is_closed, err)) != SW_OK ||
        (rc = prepare(&s, err)) != SW_OK)
        goto done;
    if (s.smallest_after[0] > budget) {
        rc = SW_FAIL(err, SW_E_USAGE, "at least %llu bytes are needed, %llu are given",
                     (unsigned long long)s.smallest_after[0], (unsigned long long)budget);
        goto done;
    }
    branch(&s, 0, budget, 0, is_closed);
    if (n_items) memcpy(taken, s.best, (size_t)n_items * sizeof *taken);
done:
    sw_arena_free(&arena);
    return rc;
}
