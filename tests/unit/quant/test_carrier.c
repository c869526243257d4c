/* test_carrier.c - the link between ranks is made once for all arrays of a place, and ends as the
 * run did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "quant/carrier.h"

static int n_made, n_well, n_unwell;
static bool fails;

static sw_code link_new(void **link, const sw_place *at, struct sw_team *team, sw_err *err)
{
    (void)team;
    *link = NULL;
    if (fails) return SW_FAIL(err, SW_E_NOMEM, "no link");
    n_made++;
    *link = at->device ? at->device : &n_made;
    return SW_OK;
}

static void link_free(void *link, bool is_well)
{
    assert_non_null(link);
    n_well += is_well;
    n_unwell += !is_well;
}

static sw_backend backend;

static int set_up(void **state)
{
    (void)state;
    backend = sw_backend_cpu;
    backend.link_new = link_new;
    backend.link_free = link_free;
    n_made = n_well = n_unwell = 0;
    fails = false;
    return 0;
}

static void test_one_link_for_a_run(void **state)
{
    const sw_place at = {.backend = &backend, .n_threads = 1};
    sw_carrier c = {.team = NULL};

    (void)state;
    for (int i = 0; i < 3; i++) assert_int_equal(sw_carrier_for(&c, &at, NULL), SW_OK);
    assert_int_equal(n_made, 1);
    assert_ptr_equal(c.link, &n_made);
    sw_carrier_end(&c, true);
    assert_int_equal(n_well, 1);
    sw_carrier_end(&c, true);
    assert_int_equal(n_well + n_unwell, 1);
}

/* Ranks part together from a link that has carried all it was to carry. */
static void test_another_place_has_its_own(void **state)
{
    int device;
    const sw_place at = {.backend = &backend}, on = {.backend = &backend, .device = &device};
    const sw_place memory = {.n_threads = 1};
    sw_carrier c = {.team = NULL};

    (void)state;
    assert_int_equal(sw_carrier_for(&c, &at, NULL), SW_OK);
    assert_int_equal(sw_carrier_for(&c, &on, NULL), SW_OK);
    assert_ptr_equal(c.link, &device);
    assert_int_equal(n_well, 1);
    assert_int_equal(sw_carrier_for(&c, &memory, NULL), SW_OK);
    assert_int_equal(n_made, 2);
    assert_int_equal(n_well, 2);
    sw_carrier_end(&c, false);
    assert_int_equal(n_unwell, 0);
}

static void test_failure(void **state)
{
    const sw_place at = {.backend = &backend};
    sw_carrier c = {.team = NULL};
    sw_err err = {0};

    (void)state;
    fails = true;
    assert_int_equal(sw_carrier_for(&c, &at, &err), SW_E_NOMEM);
    sw_carrier_end(&c, true);
    assert_int_equal(n_well + n_unwell, 0);
    fails = false;
    assert_int_equal(sw_carrier_for(&c, &at, &err), SW_OK);
    sw_carrier_end(&c, false);
    assert_int_equal(n_unwell, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_link_for_a_run, set_up),
        cmocka_unit_test_setup(test_another_place_has_its_own, set_up),
        cmocka_unit_test_setup(test_failure, set_up),
    };

    return cmocka_run_group_tests_name("carrier", tests, NULL, NULL);
}
