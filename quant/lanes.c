/* lanes.c - see lanes.h. */
#include "quant/lanes.h"

#include <pthread.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"

/* Items beyond the one whose turn it is that may be worked on, for each lane: a slow one holds
 * nobody up, and no more wait for it than so many. */
#define AHEAD_PER_LANE 4

/* An item that has been worked on and waits for its turn. */
typedef struct outcome {
    bool is_there;
    sw_code rc;
    sw_err err;
} outcome;

typedef struct lanes {
    const sw_place *at;
    const sw_lane_work *work;
    int64_t n_items, next; /* that nobody has taken */
    int64_t turn;          /* item that is done next */
    outcome *of;           /* [n_items] */
    bool is_taking_turns;  /* somebody does what has its turn */
    int n;
    bool is_at_place;      /* nobody leaves it */
    bool has_failed;
    sw_err failed;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* the turn */
} lanes;

typedef struct lane {
    lanes *all;
    int i;
    bool has_thread;
    pthread_t thread;
} lane;

/* -1: there is nothing left to do. */
static int64_t take_item(lanes *l)
{
    int64_t item = -1;

    (void)pthread_mutex_lock(&l->mutex);
    while (!l->has_failed && l->next < l->n_items && l->next - l->turn >= AHEAD_PER_LANE * l->n)
        (void)pthread_cond_wait(&l->changed, &l->mutex);
    if (!l->has_failed && l->next < l->n_items) item = l->next++;
    (void)pthread_mutex_unlock(&l->mutex);
    return item;
}

/* With the mutex held, which others get meanwhile. */
static void take_turn(lanes *l)
{
    outcome *o = &l->of[l->turn];

    if (!l->has_failed) {
        (void)pthread_mutex_unlock(&l->mutex); /* nobody else's turn comes meanwhile */
        if (o->rc == SW_OK && l->work->done)
            o->rc = l->work->done(l->work->self, l->turn, &o->err);
        (void)pthread_mutex_lock(&l->mutex);
        if (o->rc != SW_OK) {
            l->has_failed = true;
            l->failed = o->err;
        }
    }
    l->turn++;
    (void)pthread_cond_broadcast(&l->changed);
}

/* Whoever finishes the item whose turn it is does those too that have waited for it; the others go
 * on. */
static void finish(lanes *l, int64_t item, sw_code rc, const sw_err *err)
{
    (void)pthread_mutex_lock(&l->mutex);
    l->of[item] = (outcome){true, rc, *err};
    if (!l->is_taking_turns) {
        l->is_taking_turns = true;
        while (l->turn < l->n_items && l->of[l->turn].is_there) take_turn(l);
        l->is_taking_turns = false;
    }
    (void)pthread_mutex_unlock(&l->mutex);
}

static void *run_lane(void *self)
{
    const lane *one = self;
    lanes *l = one->all;
    sw_err no_lane = {0};
    sw_place at = *l->at;
    const sw_code rc_lane = l->is_at_place ? SW_OK
                                           : sw_backend_of(l->at)->lane(&at, l->at, one->i,
                                                                        &no_lane);

    at.n_threads = at.n_threads > l->n ? at.n_threads / l->n : 1;
    for (int64_t item = take_item(l); item >= 0; item = take_item(l)) {
        sw_err err = no_lane;
        const sw_code rc =
            rc_lane == SW_OK ? l->work->work(l->work->self, item, &at, &err) : rc_lane;

        finish(l, item, rc, &err);
    }
    return NULL;
}

/* The calling thread is the first lane; where a thread cannot be had, the others do its share. */
static void run_all(lanes *l, lane *lane_of)
{
    for (int i = 0; i < l->n; i++) {
        lane_of[i] = (lane){.all = l, .i = i};
        if (i > 0)
            lane_of[i].has_thread =
                pthread_create(&lane_of[i].thread, NULL, run_lane, &lane_of[i]) == 0;
    }
    (void)run_lane(&lane_of[0]);
    for (int i = 1; i < l->n; i++)
        if (lane_of[i].has_thread) (void)pthread_join(lane_of[i].thread, NULL);
}

sw_code sw_lanes_run(const sw_place *at, int lanes_max, int64_t n_items, const sw_lane_work *work,
                     sw_err *err)
{
    int64_t there = sw_backend_of(at)->n_lanes(at, work->item_bytes);
    int64_t n = sw_min_i64(sw_min_i64(there, lanes_max), n_items);
    lanes l = {.at = at, .work = work, .n_items = n_items, .n = (int)sw_max_i64(1, n),
               .is_at_place = n_items == 1 || lanes_max == 1};
    lane *lane_of = NULL;
    sw_code rc = SW_MEM_GET(&lane_of, l.n, "lanes", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&l.of, n_items, "items of lanes", err);
    if (rc != SW_OK) {
        sw_mem_put(lane_of);
        return rc;
    }
    (void)pthread_mutex_init(&l.mutex, NULL);
    (void)pthread_cond_init(&l.changed, NULL);
    run_all(&l, lane_of);
    (void)pthread_cond_destroy(&l.changed);
    (void)pthread_mutex_destroy(&l.mutex);
    sw_mem_put(l.of);
    sw_mem_put(lane_of);
    return l.has_failed ? SW_FAIL(err, l.failed.code, "%s", l.failed.text) : SW_OK;
}
