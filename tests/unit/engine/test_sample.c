/* test_sample.c - greedy, temperature, top-k and top-p draws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/engine.h"

#define DRAWS 20000

/* How often each of 5 tokens came; logits are ln(1), ln(2), ln(4), ln(2), ln(1) of 10. */
static void count(int64_t seen[5], const sw_sampling *sampling)
{
    const float logits[5] = {0.0f, 0.6931472f, 1.3862944f, 0.6931472f, 0.0f};
    uint64_t state = sampling->seed;
    sw_scratch scratch = {0};

    memset(seen, 0, 5 * sizeof *seen);
    for (int i = 0; i < DRAWS; i++) {
        uint32_t id = 99;

        assert_int_equal(sw_sample(&id, logits, 5, sampling, &state, &scratch, NULL), SW_OK);
        assert_true(id < 5);
        seen[id]++;
    }
    sw_scratch_free(&scratch);
}

static void expect_shares(const sw_sampling *sampling, const double shares[5])
{
    int64_t seen[5];

    count(seen, sampling);
    for (int i = 0; i < 5; i++) {
        const double p = shares[i], sigma = sqrt(p * (1 - p) / DRAWS);

        if (fabs((double)seen[i] / DRAWS - p) > 5 * sigma)
            fail_msg("token %d: share %g, want %g", i, (double)seen[i] / DRAWS, p);
    }
}

static void test_shares(void **state)
{
    (void)state;
    expect_shares(&(sw_sampling){1.0, 0, 1.0, 1}, (double[]){.1, .2, .4, .2, .1});
    /* temperature one half squares the odds: 1 4 16 4 1 of 26 */
    expect_shares(&(sw_sampling){0.5, 0, 1.0, 2},
                  (double[]){1 / 26., 4 / 26., 16 / 26., 4 / 26., 1 / 26.});
    expect_shares(&(sw_sampling){1.0, 3, 1.0, 3}, (double[]){0, .25, .5, .25, 0});
    /* the tie for the second place goes to the lower id */
    expect_shares(&(sw_sampling){1.0, 2, 1.0, 4}, (double[]){0, 1 / 3., 2 / 3., 0, 0});
    expect_shares(&(sw_sampling){1.0, 0, 0.5, 5}, (double[]){0, 1 / 3., 2 / 3., 0, 0});
    expect_shares(&(sw_sampling){1.0, 0, 0.3, 6}, (double[]){0, 0, 1, 0, 0});
    /* top-k first: of 3 tokens 1/4 1/2 1/4, a nucleus of 0.7 holds two */
    expect_shares(&(sw_sampling){1.0, 3, 0.7, 7}, (double[]){0, 1 / 3., 2 / 3., 0, 0});
    expect_shares(&(sw_sampling){0.0, 0, 1.0, 8}, (double[]){0, 0, 1, 0, 0});
}

/* Equal weights make the sums exact: half of four tokens is two of them, not three. */
static void test_nucleus_is_no_larger_than_asked(void **state)
{
    const float logits[4] = {0};
    const sw_sampling half = {1.0, 0, 0.5, 9};
    uint64_t rng = 9;
    int64_t seen[4] = {0};
    sw_scratch scratch = {0};
    uint32_t id;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(sw_sample(&id, logits, 4, &half, &rng, &scratch, NULL), SW_OK);
        seen[id]++;
    }
    assert_true(seen[0] > 400 && seen[1] > 400 && seen[2] == 0 && seen[3] == 0);
    sw_scratch_free(&scratch);
}

static void test_seed_decides(void **state)
{
    const float logits[8] = {0};
    uint32_t first[32], id;
    sw_scratch scratch = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        int n_same = 0;

        for (int round = 0; round < 2; round++) {
            const sw_sampling s = {1.0, 0, 1.0, seed};
            uint64_t rng = s.seed;

            for (int i = 0; i < 32; i++) {
                assert_int_equal(sw_sample(&id, logits, 8, &s, &rng, &scratch, NULL), SW_OK);
                if (seed == 0 && round == 0) first[i] = id;
                n_same += id == first[i];
            }
        }
        assert_true(seed == 0 ? n_same == 64 : n_same < 40);
    }
    /* SplitMix64 from state 0 begins e220a8397b1dcdaf 6e789e6aa1b965f4: eighths 7 and 3 */
    assert_true(first[0] == 7 && first[1] == 3);
    sw_scratch_free(&scratch);
}

static void test_greedy_ties_and_refusals(void **state)
{
    float logits[4] = {1, 3, 3, -INFINITY};
    const sw_sampling greedy = {0, 0, 1, 0}, warm = {1, 0, 1, 0};
    const sw_sampling bad[] = {{-1, 0, 1, 0}, {(double)NAN, 0, 1, 0}, {1, -1, 1, 0}, {1, 0, 0, 0},
                               {1, 0, 1.5, 0}};
    sw_scratch scratch = {0};
    uint64_t rng = 0;
    uint32_t id = 77;

    (void)state;
    assert_int_equal(sw_sample(&id, logits, 4, &greedy, &rng, &scratch, NULL), SW_OK);
    assert_int_equal(id, 1);
    for (int i = 0; i < 200; i++) { /* an impossible token never comes */
        assert_int_equal(sw_sample(&id, logits, 4, &warm, &rng, &scratch, NULL), SW_OK);
        assert_true(id < 3);
    }
    id = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(sw_sample(&id, logits, 4, &bad[i], &rng, &scratch, NULL), SW_E_USAGE);
    logits[2] = NAN;
    assert_int_equal(sw_sample(&id, logits, 4, &greedy, &rng, &scratch, NULL), SW_E_FORMAT);
    logits[2] = INFINITY;
    assert_int_equal(sw_sample(&id, logits, 4, &warm, &rng, &scratch, NULL), SW_E_FORMAT);
    assert_int_equal(id, 77);
    sw_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_nucleus_is_no_larger_than_asked),
        cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_greedy_ties_and_refusals),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
