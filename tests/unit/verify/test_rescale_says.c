/* test_rescale_says.c - do readers show that they were multiplied by what their norm was divided
 * by? Also where GPTQ, of few tokens and at 3 bits, shrank them by more than the factors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/toys/random.h"
#include "verify/metrics/rescale.h"

enum { N = 256, K = 128 };

/* Factors of all channels, of centre * exp(width * normal noise). */
static void make_factors(double *scale, double centre, double width)
{
    test_rng rng = {11};

    for (int64_t j = 0; j < K; j++) scale[j] = centre * exp(width * test_gauss(&rng));
}

/* The reader is `shrunk` times the original, with the factors or without, and has noise: `share` of
 * the original's in each weight, and `jitter` in all of a column. */
static sw_rescale_says ask(const double *scale, bool has_factors, double shrunk, double share,
                           double jitter)
{
    static float have[N * K], want[N * K];
    sw_linear_rows have_rows, want_rows;
    sw_column_sums sums = {0};
    sw_rescale_says says = {0, 0, 0, 0};
    test_rng rng = {5};
    sw_err err = {0};

    for (int64_t j = 0; j < K; j++) {
        const double column = shrunk + jitter * test_gauss(&rng);

        for (int64_t i = 0; i < N; i++) {
            const double w = test_gauss(&rng);

            want[i * K + j] = (float)(w * scale[j]);
            have[i * K + j] = (float)((column * w + share * test_gauss(&rng)) *
                                      (has_factors ? scale[j] : 1));
        }
    }
    have_rows = sw_linear_rows_of(have, N, K);
    want_rows = sw_linear_rows_of(want, N, K);
    assert_int_equal(sw_column_sums_new(&sums, &have_rows, &want_rows, &err), SW_OK);
    assert_int_equal(sw_rescale_ask(&says, &sums, scale, &err), SW_OK);
    sw_column_sums_free(&sums);
    return says;
}

static const struct {
    double centre, width, shrunk, share, jitter;
} readers[] = {
    {1, 0.30, 1, 0.10, 0.0},    /* 4 bits, plainly rounded */
    {1, 0.05, 1, 0.10, 0.01},   /* 4 bits */
    {1, 0.01, 1, 0.005, 0.0},   /* 8 bits */
    {1, 0.10, 0.94, 0.33, 0.04}, /* 3 bits by GPTQ of 512 tokens: what was measured */
    {1, 0.05, 0.96, 0.26, 0.013},
    {1.005, 0.0132, 0.96, 0.26, 0.004},
};

static void test_readers_tell(void **state)
{
    double scale[K];

    (void)state;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        for (int has = 0; has < 2; has++) {
            sw_rescale_says says;

            make_factors(scale, readers[i].centre, readers[i].width);
            says = ask(scale, has, readers[i].shrunk, readers[i].share, readers[i].jitter);
            if (has ? says.evidence < 25 : says.evidence > -25)
                fail_msg("reader %d, %s factors: evidence %.1f", (int)i, has ? "with" : "without",
                         says.evidence);
            assert_true(says.err2 > 0 && says.want2 > 0);
        }
}

/* Shrinking explains no more than it does: a norm halved for all channels alike is found. */
static void test_one_factor_for_all_tells_too(void **state)
{
    double scale[K];

    (void)state;
    for (int i = 0; i < 4; i++) {
        const double factor = i % 2 ? 2 : 0.5, share = i / 2 ? 0.1 : 0.3;

        for (int64_t j = 0; j < K; j++) scale[j] = factor;
        assert_true(ask(scale, true, 1, share, 0.01).evidence > 25);
        assert_true(ask(scale, false, 1, share, 0.01).evidence < -25);
    }
}

/* Factors far below the noise of columns say nothing for sure. */
static void test_readers_may_not_know(void **state)
{
    double scale[K];

    (void)state;
    make_factors(scale, 1, 0.01);
    for (int has = 0; has < 2; has++)
        assert_true(fabs(ask(scale, has, 0.96, 0.1, 0.05).evidence) < 25);
}

/* Where readers cannot tell, small factors pass: at 3 bits, not at 4. */
static void test_what_is_lost_among_rounding_passes(void **state)
{
    static const struct {
        double evidence, err, shrunk, change;
        bool is_good;
    } rows[] = {
        {30, 0.01, 0, 0.3, true},       /* they say so */
        {24, 0.01, 0, 0.3, false},
        {-40, 0.31, 0.04, 0.02, true},  /* measured: 3 bits by GPTQ of 256 tokens */
        {-40, 0.31, 0.04, 0.05, false}, /* more than they shrank by */
        {-40, 0.31, 0.20, 0.05, false}, /* more than a hundredth of their error */
        {-80, 0.095, 0.0066, 0.006, false}, /* 4 bits */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_rescale_says says = {rows[i].evidence, rows[i].err * rows[i].err * 7, 7,
                                rows[i].shrunk * rows[i].shrunk * 7};
        double scale[4];

        for (int j = 0; j < 4; j++) scale[j] = 1 / (1 + (j % 2 ? 1 : -1) * rows[i].change);
        if (sw_rescale_is_made_good(&says, scale, 4) != rows[i].is_good) fail_msg("row %d", (int)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readers_tell),
        cmocka_unit_test(test_one_factor_for_all_tells_too),
        cmocka_unit_test(test_readers_may_not_know),
        cmocka_unit_test(test_what_is_lost_among_rounding_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
