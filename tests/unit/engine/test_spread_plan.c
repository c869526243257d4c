/* test_spread_plan.c - layers cut over devices: known cases, every small case against all cuts that
 * there are, and what is said where they have no room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/spread/spread_plan.h"
#include "tests/support/toys/random.h"

#define GB ((int64_t)1000000000)

enum { LAYERS_MAX = 8, DEVICES_MAX = 4 };

static const struct {
    int64_t n_layers, layer_gb[LAYERS_MAX], first_gb, last_gb, each_gb;
    int n;
    int64_t room_gb[DEVICES_MAX];
    int64_t ends[DEVICES_MAX]; /* wanted */
} cases[] = {
    {4, {10, 10, 10, 10}, 0, 0, 0, 1, {80}, {4}},
    {4, {10, 10, 10, 10}, 0, 0, 0, 2, {80, 80}, {2, 4}},
    {4, {10, 10, 10, 10}, 10, 0, 0, 2, {25, 35}, {1, 4}}, /* the embedding is with the first */
    {4, {10, 10, 10, 10}, 0, 20, 0, 2, {80, 80}, {3, 4}}, /* and the head with the last */
    {4, {10, 10, 10, 10}, 15, 15, 1, 2, {80, 80}, {2, 4}},
    {4, {10, 10, 10, 10}, 0, 0, 0, 2, {40, 20}, {3, 4}}, /* to the same share */
    {4, {10, 10, 10, 10}, 0, 0, 0, 2, {5, 80}, {0, 4}},  /* one that is full takes none */
    {4, {10, 10, 10, 10}, 0, 0, 0, 2, {80, 5}, {4, 4}},
    {2, {10, 10}, 0, 0, 0, 4, {80, 80, 80, 80}, {1, 2, 2, 2}}, /* more devices than layers */
    {3, {30, 1, 1}, 0, 0, 0, 2, {80, 80}, {1, 3}},             /* layers of several sizes */
    {3, {1, 1, 30}, 0, 0, 0, 2, {80, 80}, {2, 3}},
    {6, {5, 5, 5, 5, 5, 5}, 0, 0, 2, 3, {12, 12, 12}, {2, 4, 6}}, /* to the last byte */
};

static sw_spread_need need_of(size_t at, int64_t *bytes)
{
    for (int64_t l = 0; l < cases[at].n_layers; l++) bytes[l] = cases[at].layer_gb[l] * GB;
    return (sw_spread_need){.n_layers = cases[at].n_layers, .layer_bytes = bytes,
                            .first_bytes = cases[at].first_gb * GB,
                            .last_bytes = cases[at].last_gb * GB,
                            .each_bytes = cases[at].each_gb * GB};
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes[LAYERS_MAX], ends[DEVICES_MAX] = {-1, -1, -1, -1};
        const sw_spread_need need = need_of(i, bytes);
        sw_spread_room rooms[DEVICES_MAX];
        sw_err err = {0};

        for (int d = 0; d < cases[i].n; d++)
            rooms[d] = (sw_spread_room){d, cases[i].room_gb[d] * GB};
        if (sw_spread_plan(ends, &need, rooms, cases[i].n, &err) != SW_OK)
            fail_msg("case %zu: %s", i, err.text);
        for (int d = 0; d < cases[i].n; d++)
            if (ends[d] != cases[i].ends[d])
                fail_msg("case %zu: device %d ends at %lld", i, d, (long long)ends[d]);
    }
}

/* The fullest device of a cut, as a share of its room; beyond 1: it does not fit. */
static double fullest(const sw_spread_need *need, const sw_spread_room *rooms, int n,
                      const int64_t *ends)
{
    double most = 0;

    for (int d = 0; d < n; d++) {
        int64_t sum = need->each_bytes;

        for (int64_t l = d ? ends[d - 1] : 0; l < ends[d]; l++)
            sum += need->layer_bytes[l] + (l ? 0 : need->first_bytes) +
                   (l + 1 < need->n_layers ? 0 : need->last_bytes);
        if (ends[d] > (d ? ends[d - 1] : 0) && (double)sum / (double)rooms[d].left_bytes > most)
            most = (double)sum / (double)rooms[d].left_bytes;
    }
    return most;
}

/* Over all cuts: every ends[0] <= ends[1] <= ... */
static double best_of_all(const sw_spread_need *need, const sw_spread_room *rooms, int n,
                          int64_t *ends, int device)
{
    const int64_t first = device ? ends[device - 1] : 0;
    double best = 1e9;

    if (device == n - 1) {
        ends[device] = need->n_layers;
        return fullest(need, rooms, n, ends);
    }
    for (ends[device] = first; ends[device] <= need->n_layers; ends[device]++) {
        const double one = best_of_all(need, rooms, n, ends, device + 1);

        if (one < best) best = one;
    }
    return best;
}

static void test_against_all_cuts(void **state)
{
    test_rng r = {11};
    int n_refused = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        int64_t bytes[LAYERS_MAX], ends[DEVICES_MAX], tried[DEVICES_MAX];
        const int n = 1 + (int)(test_u64(&r) % DEVICES_MAX);
        sw_spread_need need = {.n_layers = 1 + (int64_t)(test_u64(&r) % LAYERS_MAX),
                               .layer_bytes = bytes,
                               .first_bytes = (int64_t)(test_u64(&r) % (2 * GB)),
                               .last_bytes = (int64_t)(test_u64(&r) % (2 * GB)),
                               .each_bytes = (int64_t)(test_u64(&r) % GB)};
        sw_spread_room rooms[DEVICES_MAX];
        sw_err err = {0};
        sw_code rc;
        double best;

        for (int64_t l = 0; l < need.n_layers; l++)
            bytes[l] = 1 + (int64_t)(test_u64(&r) % (4 * GB));
        for (int d = 0; d < n; d++)
            rooms[d] = (sw_spread_room){d, 1 + (int64_t)(test_u64(&r) % (12 * GB))};
        best = best_of_all(&need, rooms, n, tried, 0);
        rc = sw_spread_plan(ends, &need, rooms, n, &err);
        n_refused += rc != SW_OK;
        if ((rc == SW_OK) != (best <= 1)) fail_msg("case %d: %d, %g", i, (int)rc, best);
        if (rc == SW_OK && fullest(&need, rooms, n, ends) > best + 1.0 / 4096 + 1e-6)
            fail_msg("case %d: %g of %g", i, fullest(&need, rooms, n, ends), best);
    }
    assert_in_range(n_refused, 200, 1800); /* both kinds are among them */
}

static void test_no_room(void **state)
{
    int64_t bytes[2] = {70 * GB, 70 * GB};
    const sw_spread_need need = {.n_layers = 2, .layer_bytes = bytes, .first_bytes = GB,
                                 .last_bytes = 2 * GB, .each_bytes = GB / 2};
    const sw_spread_room rooms[2] = {{0, 60 * GB}, {2, 61 * GB}};
    int64_t ends[2];
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_spread_plan(ends, &need, rooms, 2, &err), SW_E_NOMEM);
    assert_string_equal(err.text,
                        "needs 144.0 GB over 2 devices that have 121.0 GB left (cuda:0 60.0 GB, "
                        "cuda:2 61.0 GB), the largest layer with its end 72.0 GB: take more "
                        "devices, a larger --device-memory, one device (cuda:0), where blocks "
                        "wait in host memory, or --device cpu");
}

/* An embedding that is the head too is on one device once, on two twice. */
static void test_tied(void **state)
{
    int64_t bytes[2] = {10, 10};
    const sw_spread_need need = {.n_layers = 2, .layer_bytes = bytes, .first_bytes = 7,
                                 .last_bytes = 9, .each_bytes = 3, .shared_bytes = 7};

    (void)state;
    assert_int_equal(sw_spread_whole_bytes(&need), 10 + 10 + 9 + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases), cmocka_unit_test(test_against_all_cuts),
        cmocka_unit_test(test_no_room), cmocka_unit_test(test_tied),
    };

    return cmocka_run_group_tests_name("layers over devices", tests, NULL, NULL);
}
