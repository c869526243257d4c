/* test_metrics.c - the judge's figures against values worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "verify/base/metrics.h"

static void near(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) fail_msg("have %.17g, want %.17g", have, want);
}

static void relative_error_and_cosine(void **state)
{
    const float want[4] = {3, 0, 4, 0}, have[4] = {3, 1, 4, 2}, zero[4] = {0};
    sw_vec_sums s = {0}, none = {0}, from_zero = {0};

    (void)state;
    sw_vec_add(&s, have, want, 2); /* in two pieces: sums add up */
    sw_vec_add(&s, have + 2, want + 2, 2);
    near(sw_vec_rel_err(&s), sqrt(5.0) / 5.0, 1e-15);
    near(sw_vec_cosine(&s), 25.0 / (5.0 * sqrt(30.0)), 1e-15);
    near(sw_vec_rel_err(&none), 0, 0);
    near(sw_vec_cosine(&none), 1, 0);
    sw_vec_add(&from_zero, have, zero, 4);
    assert_true(isinf(sw_vec_rel_err(&from_zero)));
    near(sw_vec_cosine(&from_zero), 0, 0);
}

static void nll_of_known_odds(void **state)
{
    /* odds 1 : 2 : 5 */
    const float odds[3] = {0.0f, 0.69314718f, 1.60943791f}, far[3] = {-1000, 500, 500};

    (void)state;
    near(sw_nll(odds, 3, 0), log(8.0), 1e-7);
    near(sw_nll(odds, 3, 1), log(4.0), 1e-7);
    near(sw_nll(odds, 3, 2), log(1.6), 1e-7);
    near(sw_nll(far, 3, 1), log(2.0), 1e-12); /* no overflow */
    near(sw_nll(far, 3, 0), 1500 + log(2.0), 1e-9);
}

static void position_compares_two_distributions(void **state)
{
    /* p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = 1/2 log 2 - 1/4 log 2 */
    const float p[3] = {0.69314718f, 0, 0}, q[3] = {7, 7.69314718f, 7};
    double scratch[3];
    sw_position at;

    (void)state;
    sw_position_compare(&at, p, q, 3, 1, scratch);
    near(at.kl, 0.25 * log(2.0), 1e-7);
    near(at.nll_ref, log(4.0), 1e-7);
    near(at.nll_have, log(2.0), 1e-7);
    assert_true(at.metrics[SW_METRIC_TOP1] == 0);
    sw_position_compare(&at, p, p, 3, 0, scratch);
    near(at.kl, 0, 0);
    assert_true(at.metrics[SW_METRIC_TOP1] == 1);
    near(at.nll_ref, sw_nll(p, 3, 0), 1e-15);
}

/* What a device says about a position, in place of its logits. */
static void a_score_makes_a_position(void **state)
{
    const sw_lm_score alike = {.nll = 1, .nll_ref = 2, .kl = 0.5, .sum = 3, .sum_ref = 4, .top = 7,
                               .top_ref = 7};
    sw_lm_score other = alike;
    sw_position at;

    (void)state;
    sw_position_of(&at, &alike);
    assert_true(at.nll_have == 1 && at.nll_ref == 2 && at.kl == 0.5);
    assert_true(at.metrics[SW_METRIC_TOP1] == 1);
    other.top_ref = 8;
    sw_position_of(&at, &other);
    assert_true(at.metrics[SW_METRIC_TOP1] == 0);
    other.sum_ref = (double)NAN; /* a reference that is no number is not left out */
    at.metrics[SW_METRIC_TOP1] = -1;
    sw_position_of(&at, &other);
    assert_true(at.metrics[SW_METRIC_TOP1] == 0);
}

static void ties_go_to_the_lower_id(void **state)
{
    const float a[3] = {1, 2, 2}, b[3] = {0, 5, 5}, c[3] = {0, 4, 5};
    double scratch[3];
    sw_position at;

    (void)state;
    sw_position_compare(&at, a, b, 3, 0, scratch);
    assert_true(at.metrics[SW_METRIC_TOP1] == 1);
    sw_position_compare(&at, a, c, 3, 0, scratch);
    assert_true(at.metrics[SW_METRIC_TOP1] == 0);
}

static void a_nan_is_never_hidden(void **state)
{
    const float p[2] = {0, 1}, q[2] = {NAN, 1};
    double scratch[2];
    sw_position at;

    (void)state;
    sw_position_compare(&at, p, q, 2, 1, scratch);
    assert_true(isnan(at.kl));
    assert_true(isnan(at.nll_have));
    assert_false(isnan(at.nll_ref));
}

static void percentile_interpolates(void **state)
{
    double v[5] = {40, 10, 50, 20, 30}, one[1] = {7};

    (void)state;
    near(sw_percentile(v, 5, 0), 10, 0);
    near(sw_percentile(v, 5, 1), 50, 0);
    near(sw_percentile(v, 5, 0.5), 30, 0);
    near(sw_percentile(v, 5, 0.99), 49.6, 1e-12);
    near(sw_percentile(one, 1, 0.99), 7, 0);
}

#define N_UNITS 400

/* The interval of a mean is near the normal one, is paired, and follows from the seed alone. */
static void bootstrap_is_right_paired_and_repeatable(void **state)
{
    static double a[N_UNITS], b[N_UNITS], d[N_UNITS];
    const double *stats[3] = {a, b, d};
    sw_bootstrap how = {.seed = 1};
    sw_interval one[3], two[3], other[3];
    double mean = 0, var = 0;
    sw_err err = {0};

    (void)state;
    for (int i = 0; i < N_UNITS; i++) {
        a[i] = (i * 37 % 101) / 10.0;
        b[i] = a[i] + 0.25; /* a constant difference: its interval is a point */
        d[i] = b[i] - a[i];
        mean += a[i] / N_UNITS;
    }
    for (int i = 0; i < N_UNITS; i++) var += (a[i] - mean) * (a[i] - mean) / N_UNITS;
    assert_int_equal(sw_bootstrap_means(one, stats, 3, N_UNITS, &how, &err), SW_OK);
    assert_int_equal(sw_bootstrap_means(two, stats, 3, N_UNITS, &how, &err), SW_OK);
    assert_memory_equal(one, two, sizeof one);
    near(one[0].at, mean, 1e-12);
    near(one[0].high - mean, 1.96 * sqrt(var / N_UNITS), 0.15 * 1.96 * sqrt(var / N_UNITS));
    near(mean - one[0].low, 1.96 * sqrt(var / N_UNITS), 0.15 * 1.96 * sqrt(var / N_UNITS));
    near(one[2].low, 0.25, 1e-12);
    near(one[2].high, 0.25, 1e-12);
    near(one[1].low - one[0].low, 0.25, 1e-12); /* the same draws for every statistic */
    assert_false(sw_interval_has_zero(&one[2]));
    how.seed = 2;
    assert_int_equal(sw_bootstrap_means(other, stats, 3, N_UNITS, &how, &err), SW_OK);
    assert_true(other[0].low < one[0].low || other[0].low > one[0].low);
    assert_int_equal(sw_bootstrap_means(other, stats, 3, 0, &how, &err), SW_E_USAGE);
}

static void significance_is_zero_outside_the_interval(void **state)
{
    const sw_interval in = {0.1, -0.1, 0.3}, out = {0.2, 0.1, 0.3}, below = {-1, -2, -0.5};

    (void)state;
    assert_true(sw_interval_has_zero(&in));
    assert_false(sw_interval_has_zero(&out));
    assert_false(sw_interval_has_zero(&below));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relative_error_and_cosine),
        cmocka_unit_test(nll_of_known_odds),
        cmocka_unit_test(position_compares_two_distributions),
        cmocka_unit_test(a_score_makes_a_position),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(a_nan_is_never_hidden),
        cmocka_unit_test(percentile_interpolates),
        cmocka_unit_test(bootstrap_is_right_paired_and_repeatable),
        cmocka_unit_test(significance_is_zero_outside_the_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
