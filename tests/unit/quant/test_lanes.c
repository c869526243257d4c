/* test_lanes.c - items worked on in several threads: what is done in order, and what a failure
 * leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "quant/lanes.h"

#define ITEMS 200
#define LANES 5

/* A place with several lanes, which counts them. */
static atomic_int lanes_asked_for;

static int n_lanes(const sw_place *at, int64_t item_bytes)
{
    (void)at;
    return item_bytes ? 1 : LANES;
}

static sw_code lane(sw_place *out, const sw_place *at, int i, sw_err *err)
{
    (void)err;
    *out = *at;
    out->device = &lanes_asked_for;
    atomic_fetch_or(&lanes_asked_for, 1 << i);
    return SW_OK;
}

static const sw_backend several = {.name = "several", .n_lanes = n_lanes, .lane = lane};

typedef struct work_state {
    int n_done;
    atomic_int worked[ITEMS];
    int64_t fails_at[2]; /* in work and in done; -1: nowhere */
    bool is_in_lanes;
    int64_t item_bytes;
} work_state;

static sw_code work(void *self, int64_t item, const sw_place *at, sw_err *err)
{
    work_state *s = self;
    volatile int64_t spent = 0;

    for (int64_t i = 0; i < item * 7919 % 5000; i++) spent += i; /* lanes overtake each other */
    if ((at->device == &lanes_asked_for) != s->is_in_lanes) return SW_FAIL(err, SW_E_BUG, "place");
    if (at->n_threads < 1) return SW_FAIL(err, SW_E_BUG, "no thread");
    atomic_fetch_add(&s->worked[item], 1);
    if (item >= s->fails_at[0] && s->fails_at[0] >= 0)
        return SW_FAIL(err, SW_E_FORMAT, "item %lld", (long long)item);
    return SW_OK;
}

static sw_code done(void *self, int64_t item, sw_err *err)
{
    work_state *s = self;

    if (item == s->fails_at[1]) return SW_FAIL(err, SW_E_IO, "done %lld", (long long)item);
    assert_int_equal(item, s->n_done);
    s->n_done++;
    return SW_OK;
}

static sw_code run(work_state *s, const sw_place *at, int lanes_max, int64_t n_items, sw_err *err)
{
    const sw_lane_work w = {.self = s, .item_bytes = s->item_bytes, .work = work, .done = done};

    return sw_lanes_run(at, lanes_max, n_items, &w, err);
}

static const sw_place there = {.backend = &several, .n_threads = 3};

static void results_come_in_order(void **state)
{
    work_state s = {.fails_at = {-1, -1}, .is_in_lanes = true};
    sw_err err = {0};

    (void)state;
    for (int round = 0; round < 20; round++) {
        s.n_done = 0;
        assert_int_equal(run(&s, &there, SW_LANES_ANY, ITEMS, &err), SW_OK);
        assert_int_equal(s.n_done, ITEMS);
        for (int i = 0; i < ITEMS; i++) assert_int_equal(s.worked[i], round + 1);
    }
    assert_int_equal(lanes_asked_for, (1 << LANES) - 1);
}

/* The first failure in the order of items, whichever comes first in time. */
static void the_first_failure_counts(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        work_state s = {.fails_at = {60, -1}, .is_in_lanes = true};
        sw_err err = {0};

        assert_int_equal(run(&s, &there, SW_LANES_ANY, ITEMS, &err), SW_E_FORMAT);
        assert_string_equal(err.text, "item 60");
        assert_int_equal(s.n_done, 60);
        s = (work_state){.fails_at = {90, 41}, .is_in_lanes = true};
        err = (sw_err){0};
        assert_int_equal(run(&s, &there, SW_LANES_ANY, ITEMS, &err), SW_E_IO);
        assert_string_equal(err.text, "done 41");
        assert_int_equal(s.n_done, 41);
    }
}

/* The first item waits for items that other lanes reach only if none of them waits for its turn;
 * and no lane gets so far ahead that everything would wait for it. */
typedef struct slow_first {
    atomic_int n_worked, n_done, furthest;
} slow_first;

enum { WAITED_FOR = 3 * LANES };

static sw_code work_slowly(void *self, int64_t item, const sw_place *at, sw_err *err)
{
    slow_first *s = self;

    (void)at;
    if (item > s->furthest) s->furthest = (int)item;
    atomic_fetch_add(&s->n_worked, 1);
    for (int i = 0; item == 0 && s->n_worked <= WAITED_FOR; i++) {
        const struct timespec ms = {0, 1000000};

        if (i == 5000) return SW_FAIL(err, SW_E_BUG, "other lanes wait for this one");
        (void)nanosleep(&ms, NULL);
    }
    return SW_OK;
}

static sw_code done_slowly(void *self, int64_t item, sw_err *err)
{
    slow_first *s = self;

    (void)err;
    assert_int_equal(item, s->n_done);
    if (item == 0) assert_true(s->furthest < 4 * LANES);
    s->n_done++;
    return SW_OK;
}

static void nobody_waits_for_a_slow_item(void **state)
{
    slow_first s = {.n_worked = 0};
    const sw_lane_work w = {.self = &s, .work = work_slowly, .done = done_slowly};
    sw_err err = {0};

    (void)state;
    if (sw_lanes_run(&there, SW_LANES_ANY, ITEMS, &w, &err) != SW_OK) fail_msg("%s", err.text);
    assert_int_equal(s.n_done, ITEMS);
    assert_int_equal(s.n_worked, ITEMS);
}

/* Where there is room for one item at a time there is one lane. */
static void items_that_take_room_share_a_lane(void **state)
{
    work_state s = {.fails_at = {-1, -1}, .is_in_lanes = true, .item_bytes = 1};
    sw_err err = {0};

    (void)state;
    lanes_asked_for = 0;
    assert_int_equal(run(&s, &there, SW_LANES_ANY, ITEMS, &err), SW_OK);
    assert_int_equal(s.n_done, ITEMS);
    assert_int_equal(lanes_asked_for, 1);
}

/* One item, or one lane, stays at the place itself; so does the CPU, with all threads. */
static void alone_it_stays_at_the_place(void **state)
{
    const sw_place cpu = sw_place_cpu(4);
    work_state s = {.fails_at = {-1, -1}};
    sw_err err = {0};

    (void)state;
    assert_int_equal(run(&s, &there, SW_LANES_ANY, 1, &err), SW_OK);
    s.n_done = 0;
    assert_int_equal(run(&s, &there, 1, ITEMS, &err), SW_OK);
    s.n_done = 0;
    assert_int_equal(run(&s, &cpu, SW_LANES_ANY, ITEMS, &err), SW_OK);
    assert_int_equal(s.n_done, ITEMS);
    s.n_done = 0;
    assert_int_equal(run(&s, &cpu, SW_LANES_ANY, 0, &err), SW_OK);
    assert_int_equal(s.n_done, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_come_in_order),
        cmocka_unit_test(the_first_failure_counts),
        cmocka_unit_test(nobody_waits_for_a_slow_item),
        cmocka_unit_test(items_that_take_room_share_a_lane),
        cmocka_unit_test(alone_it_stays_at_the_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
