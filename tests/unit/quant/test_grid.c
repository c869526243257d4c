/* test_grid.c - rounding to the values of small floats is what its definition says, bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/grid.h"
#include "tests/support/toys/random.h"

enum { ROWS = SW_SLAB_ROWS };

/* In steps of the binade, by division; nothing above the largest value. */
static double nearest(double v, const sw_num *num)
{
    const double a = fabs(v), normal = (double)num->normal, top = (double)num->top;
    const double binade = a > normal ? ldexp(1.0, ilogb(a)) : normal;
    const double quantum = ldexp(binade, -num->mantissa_bits);
    double r = rint(a / quantum) * quantum;

    r = r > top ? top : r;
    return v < 0 ? -r : r;
}

static void compare(const double *v, const double *scale, const sw_num *num)
{
    const double zero[ROWS] = {0};
    double codes[ROWS];

    sw_grid_codes(codes, v, scale, zero, num);
    for (int r = 0; r < ROWS; r++) {
        const double want = nearest(v[r] / scale[r], num);
        if (memcmp(&codes[r], &want, sizeof want) != 0)
            fail_msg("%s: %a / %a: have %a, want %a", num->name, v[r], scale[r], codes[r], want);
    }
}

/* Around every value and every middle of two, in doubles next to each other. */
static void near_values(const sw_num *num)
{
    double scale[ROWS], v[ROWS];

    for (int r = 0; r < ROWS; r++) scale[r] = 1;
    for (int code = 0; code < 1 << (num->bits - 1); code++) {
        const double at = (double)num->values[code];
        const double next = code + 1 < 1 << (num->bits - 1) ? (double)num->values[code + 1] : at;
        if (!isfinite(at) || !isfinite(next)) continue;
        for (int r = 0; r < ROWS; r++) {
            double x = r & 1 ? at : (at + next) / 2;
            for (int i = 0; i < (r >> 1) % 8; i++) x = nextafter(x, r & 32 ? INFINITY : -INFINITY);
            v[r] = r & 16 ? -x : x;
        }
        compare(v, scale, num);
    }
}

static void far_and_wide(const sw_num *num)
{
    static const double odd[] = {0.0, -0.0, 0x1p-1074, -0x1p-1022, 0x1p-149, 0x1p127, -0x1p127,
                                 0x1.fep127, 1e-30};
    test_rng rng = {3};

    for (int i = 0; i < 4000; i++) {
        double scale[ROWS], v[ROWS];
        for (int r = 0; r < ROWS; r++) {
            scale[r] = ldexp(1 + test_uniform(&rng), (int)(test_u64(&rng) % 40) - 30);
            v[r] = i < 3 && r < 9 ? odd[r] : test_gauss(&rng) * ldexp(1, (int)(r % 24) - 16);
        }
        if (i == 1)
            for (int r = 0; r < ROWS; r++) scale[r] = 0x1p-149;
        compare(v, scale, num);
    }
}

static void test_small_floats(void **state)
{
    int n = 0;

    (void)state;
    for (int i = 0; i < SW_NUM_COUNT; i++) {
        if (!sw_nums[i].values) continue;
        near_values(&sw_nums[i]);
        far_and_wide(&sw_nums[i]);
        n++;
    }
    assert_true(n >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_floats)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
