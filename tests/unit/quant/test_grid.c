/* test_grid.c - rounding to the values of small floats is what its definition says, bit by bit, and
 * what a row's fit finds does not depend on the rows beside it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/grid.h"
#include "tests/support/toys/random.h"

enum { ROWS = SW_SLAB_ROWS, FITTED = 40 };

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

/* Candidates are given up where they are lost in all rows: of 64 alike a row's own are. */
static void each_alone(const sw_qspec *spec, const double *w, const double *weight)
{
    double scale[ROWS], zero[ROWS], own_scale[ROWS], own_zero[ROWS], own[FITTED * ROWS];

    sw_grid_fit(scale, zero, w, weight, FITTED, spec);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < FITTED * ROWS; i++) own[i] = w[i - i % ROWS + r];
        sw_grid_fit(own_scale, own_zero, own, weight, FITTED, spec);
        for (int i = 0; i < ROWS; i++)
            if (own_scale[i] != scale[r] || own_zero[i] != zero[r])
                fail_msg("%s, row %d: have %a and %g, want %a and %g", spec->num->name, r, scale[r],
                         zero[r], own_scale[i], own_zero[i]);
    }
}

static void test_rows_are_fitted_alone(void **state)
{
    static const sw_qspec specs[] = {
        {.is_symmetric = true, .is_sign_free = true, .scale_dtype = SW_DTYPE_F16},
        {.scale_dtype = SW_DTYPE_F16}, {.is_symmetric = true, .scale_dtype = SW_DTYPE_F32}};
    static const int bits[] = {4, 4, 8};
    double w[FITTED * ROWS], weight[FITTED];
    test_rng rng = {5};

    (void)state;
    for (int j = 0; j < FITTED; j++) weight[j] = 1e-3 + test_uniform(&rng);
    for (int i = 0; i < FITTED * ROWS; i++) /* some rows with a weight far from the others */
        w[i] = test_gauss(&rng) * ldexp(1, i % ROWS % 9) * (i / ROWS == 7 && i % 3 == 0 ? 9 : 1);
    for (int i = 0; i < 3; i++) {
        sw_qspec spec = specs[i];

        spec.num = sw_num_by_bits(bits[i]);
        each_alone(&spec, w, weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_floats),
                                       cmocka_unit_test(test_rows_are_fitted_alone)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
