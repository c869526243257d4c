/* test_plausible_scales.c - scales that are another group's though of like size: each group under
 * one hides among what rounding does to single groups, the sum of all does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/algo.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/plausible_case.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/st_build.h"
#include "verify/checks/plausible.h"

enum { N = 256, K = 256, GROUP = 16 };

static float weight[N * K];

/* Groups whose ranges differ by a third at most. */
static int make_weight(void **state)
{
    test_rng rng = {7};
    double height = 1;

    (void)state;
    for (int64_t i = 0; i < N * K; i++) {
        if (i % GROUP == 0) height = 0.85 + 0.3 * test_uniform(&rng);
        weight[i] = (float)(0.02 * height * (2 * test_uniform(&rng) - 1));
    }
    return 0;
}

static void round_plainly(sw_qtensor *q)
{
    const sw_qspec *spec = &sw_scheme_find("NVFP4A16")->spec;
    sw_solve_problem p = {.w = weight, .n_out = N, .k_in = K, .spec = *spec, .n_threads = 1};
    sw_solve_report report = {0};
    sw_err err = {0};

    assert_int_equal(sw_qtensor_alloc(q, spec, N, K, &err), SW_OK);
    assert_int_equal(sw_rtn_solve(q, &p, &report, &err), SW_OK);
}

static void expect(const sw_qtensor *q, const char *want)
{
    char why[SW_PLAUSIBLE_TEXT_BYTES];
    sw_report_tensor figures;

    plausible_judge(why, &figures, q, "compressed-tensors", weight);
    if (*want ? !strstr(why, want) : *why) fail_msg("have \"%s\", want \"%s\"", why, want);
}

static void scales_that_fit_pass(void **state)
{
    sw_qtensor q;

    (void)state;
    round_plainly(&q);
    expect(&q, "");
    sw_qtensor_free(&q);
}

static void halves_of_scales_swapped_are_named(void **state)
{
    sw_qtensor q;
    int64_t half;

    (void)state;
    round_plainly(&q);
    half = q.n_out * q.n_groups / 2;
    for (int64_t i = 0; i < half; i++) {
        float kept = q.scales[i];

        q.scales[i] = q.scales[i + half];
        q.scales[i + half] = kept;
    }
    expect(&q, "scales are out of order");
    sw_qtensor_free(&q);
}

/* No other order of the scales explains it. */
static void scales_a_fifth_off_are_caught(void **state)
{
    test_rng rng = {3};
    sw_qtensor q;

    (void)state;
    round_plainly(&q);
    for (int64_t i = 0; i < q.n_out * q.n_groups; i++)
        q.scales[i] = sw_num_round_to(q.scales[i] * (test_u64(&rng) >> 40 & 1 ? 1.2f : 0.8f),
                                      q.spec.scale_dtype);
    expect(&q, "scales are of other weights");
    sw_qtensor_free(&q);
}

/* Row 77 as a target made it: some of its groups times `by`. Rounded with noise before, as codes
 * that make good the errors of others have it. */
static void stretch(sw_qtensor *q, int64_t from_group, float by)
{
    static float target[N * K];
    const sw_qspec *spec = &sw_scheme_find("W4A16")->spec;
    test_rng rng = {5};

    for (int64_t i = 0; i < N * K; i++)
        target[i] = weight[i] + (float)(0.0015 * (test_uniform(&rng) - 0.5));
    for (int64_t k = from_group * spec->group_elems; k < K; k++) target[77 * K + k] *= by;
    plausible_solve(q, spec, target, N, K, NULL);
}

/* Targets that make good what was lost upstream move whole rows, not a group of one. */
static void a_row_may_be_further_off_than_one_group(void **state)
{
    static const struct {
        int64_t from_group;
        float by;
        const char *want;
    } cases[] = {
        {0, 1.16f, ""},
        {1, 1.16f, "channel 77, group 1"},
        {0, 0.85f, ""},
        {1, 0.85f, "channel 77, group 1"},
        {0, 1.3f, "channel 77, group"},
        {0, 0.75f, "channel 77, group"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_qtensor q;

        stretch(&q, cases[i].from_group, cases[i].by);
        expect(&q, cases[i].want);
        sw_qtensor_free(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_that_fit_pass),
        cmocka_unit_test(halves_of_scales_swapped_are_named),
        cmocka_unit_test(scales_a_fifth_off_are_caught),
        cmocka_unit_test(a_row_may_be_further_off_than_one_group),
    };
    return cmocka_run_group_tests(tests, make_weight, NULL);
}
