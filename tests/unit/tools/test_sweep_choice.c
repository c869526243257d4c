/* test_sweep_choice.c - the front and the recommendation of a sweep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/sweep/sweep_choice.h"

#define N(list) (int)(sizeof(list) / sizeof(list)[0])

/* By falling size; the third is beaten by the fourth, the fifth is not sound. */
static const sw_sweep_point some[] = {{900, 0.001, true, false}, {700, 0.01, true, false},
                                      {650, 0.09, true, false},  {600, 0.05, true, false},
                                      {100, 0.0, false, false},  {400, 0.4, true, false}};

static void front_is_what_nothing_beats(void **state)
{
    static const bool want[] = {true, true, false, true, false, true};
    sw_sweep_point points[N(some)];

    (void)state;
    for (int i = 0; i < N(some); i++) points[i] = some[i];
    sw_sweep_find_front(points, N(some));
    for (int i = 0; i < N(some); i++) assert_int_equal(points[i].is_on_front, want[i]);
}

static void of_equal_points_the_first_is_on_the_front(void **state)
{
    sw_sweep_point points[] = {{500, 0.1, true, false}, {500, 0.1, true, false},
                               {500, 0.2, true, false}, {501, 0.1, true, false}};

    (void)state;
    sw_sweep_find_front(points, N(points));
    assert_true(points[0].is_on_front);
    for (int i = 1; i < N(points); i++) assert_false(points[i].is_on_front);
}

static void choice_keeps_the_limits(void **state)
{
    static const struct {
        sw_sweep_limits limits;
        int want, nearest;
    } cases[] = {
        {{-1, 0}, 0, 0},       /* nothing asked: the closest to the original */
        {{0.05, 0}, 3, 0},     /* the limit itself is within */
        {{0.0499, 0}, 1, 0},   {{0.0005, 0}, -1, 0},
        {{-1, 899}, 1, 1},     {{-1, 900}, 0, 0},
        {{-1, 399}, -1, 5},    /* nothing so small: the smallest there is */
        {{0.05, 650}, 3, 3},   {{0.02, 650}, -1, 3},
    };

    (void)state;
    for (int i = 0; i < N(cases); i++) {
        assert_int_equal(sw_sweep_choose(some, N(some), &cases[i].limits), cases[i].want);
        assert_int_equal(sw_sweep_nearest(some, N(some), &cases[i].limits), cases[i].nearest);
    }
}

static void ties_go_to_the_other_measure(void **state)
{
    static const sw_sweep_point points[] = {{500, 0.2, true, false}, {500, 0.1, true, false},
                                            {600, 0.1, true, false}, {500, 0.1, true, false}};
    static const sw_sweep_limits by_kl = {1, 0}, by_size = {-1, 1000};

    (void)state;
    assert_int_equal(sw_sweep_choose(points, N(points), &by_kl), 1);
    assert_int_equal(sw_sweep_choose(points, N(points), &by_size), 1);
}

static void nothing_sound_is_nothing_to_choose(void **state)
{
    static const sw_sweep_point broken[] = {{500, 0.2, false, false}};
    static const sw_sweep_limits any = {-1, 0};

    (void)state;
    assert_int_equal(sw_sweep_choose(broken, 1, &any), -1);
    assert_int_equal(sw_sweep_nearest(broken, 1, &any), -1);
    assert_int_equal(sw_sweep_choose(broken, 0, &any), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(front_is_what_nothing_beats),
        cmocka_unit_test(of_equal_points_the_first_is_on_the_front),
        cmocka_unit_test(choice_keeps_the_limits),
        cmocka_unit_test(ties_go_to_the_other_measure),
        cmocka_unit_test(nothing_sound_is_nothing_to_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
