/* test_apart.c - figures beside limits look different where they are. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "verify/base/apart.h"

static void test_digits(void **state)
{
    static const struct {
        double have, limit;
        int digits;
        const char *as_have, *as_limit;
    } rows[] = {
        {0.051, 0.05, 6, "0.051", "0.05"},
        {0.0512, 0.0508, 2, "0.051", "0.051"}, /* as asked they are alike */
        {0.05000001, 0.05, 4, "0.05000001", "0.05"},
        {1, 1, 4, "1", "1"},
        {0.1 + 0.2, 0.3, 6, "0.30000000000000004", "0.29999999999999999"},
        {1e300, 2, 4, "1e+300", "2"},
        {(double)INFINITY, 2, 4, "inf", "2"},
        {-(double)NAN, -(double)NAN, 4, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_apart a = sw_apart_digits(rows[i].have, rows[i].limit, rows[i].digits);

        if (i == 1) { /* so they get a digit more */
            assert_string_equal(a.have, "0.0512");
            assert_string_equal(a.limit, "0.0508");
        } else if (rows[i].as_have) {
            assert_string_equal(a.have, rows[i].as_have);
            assert_string_equal(a.limit, rows[i].as_limit);
        }
    }
}

static void test_places(void **state)
{
    sw_apart a = sw_apart_places(1.26, 1.35, 1);

    (void)state;
    assert_string_equal(a.have, "1.3");
    assert_string_equal(a.limit, "1.4");
    a = sw_apart_places(1.352, 1.35, 1);
    assert_string_equal(a.have, "1.352");
    assert_string_equal(a.limit, "1.350");
    a = sw_apart_places(25.4, 25.0, 0);
    assert_string_equal(a.have, "25.4");
    assert_string_equal(a.limit, "25.0");
    a = sw_apart_places(2, 2, 1); /* nothing tells them apart */
    assert_string_equal(a.have, "2");
    a = sw_apart_places(1e-20, 2e-20, 2);
    assert_string_not_equal(a.have, a.limit);
    a = sw_apart_places(1e200, DBL_MAX, 2);
    assert_string_equal(a.have, "1e+200");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
