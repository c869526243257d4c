/* test_allocate.c - the allocation against trying everything, on instances small enough for it,
 * and what must hold on large ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "quant/search/allocate.h"
#include "tests/support/toys/random.h"

#define ITEMS_MAX 6
#define OPTIONS_MAX 4

typedef struct instance {
    sw_choice choices[ITEMS_MAX * OPTIONS_MAX];
    int64_t n_items, n_options;
    uint64_t budget;
} instance;

/* Sizes collide and losses tie now and then, and some options are not allowed. */
static void draw(instance *x, test_rng *seed)
{
    uint64_t least, most = 0;

    x->n_items = 1 + (int64_t)(test_u64(seed) % ITEMS_MAX);
    x->n_options = 1 + (int64_t)(test_u64(seed) % OPTIONS_MAX);
    for (int64_t i = 0; i < x->n_items; i++)
        for (int64_t o = 0; o < x->n_options; o++) {
            sw_choice *c = &x->choices[i * x->n_options + o];
            c->size = 1 + test_u64(seed) % 20;
            c->loss = (double)(test_u64(seed) % 50) / (double)(1 + c->size);
            if (o > 0 && test_u64(seed) % 8 == 0) c->loss = (double)INFINITY;
            if (isfinite(c->loss) && c->size > most) most = c->size;
        }
    least = sw_allocate_least(x->choices, x->n_items, x->n_options);
    x->budget = least + test_u64(seed) % (most * (uint64_t)x->n_items - least + 1);
}

static double brute_force(const instance *x, int64_t item, uint64_t room)
{
    double best = (double)INFINITY;

    if (item == x->n_items) return 0;
    for (int64_t o = 0; o < x->n_options; o++) {
        const sw_choice *c = &x->choices[item * x->n_options + o];
        if (!isfinite(c->loss) || c->size > room) continue;
        double loss = c->loss + brute_force(x, item + 1, room - c->size);
        if (loss < best) best = loss;
    }
    return best;
}

static double add_up(uint64_t *size, const sw_choice *choices, int64_t n_items, int64_t n_options,
                     const int32_t *taken)
{
    double loss = 0;

    *size = 0;
    for (int64_t i = 0; i < n_items; i++) {
        const sw_choice *c = &choices[i * n_options + taken[i]];
        *size += c->size;
        loss += c->loss;
    }
    return loss;
}

static void it_is_the_best_there_is(void **state)
{
    test_rng seed = {1};

    (void)state;
    for (int run = 0; run < 3000; run++) {
        instance x;
        int32_t taken[ITEMS_MAX];
        uint64_t size;
        sw_err err = {0};
        draw(&x, &seed);
        assert_int_equal(sw_allocate(taken, x.choices, x.n_items, x.n_options, x.budget, &err),
                         SW_OK);
        double have = add_up(&size, x.choices, x.n_items, x.n_options, taken);
        double want = brute_force(&x, 0, x.budget);
        if (size > x.budget || have > want + 1e-9)
            fail_msg("run %d: have %g in %llu, want %g in %llu", run, have,
                     (unsigned long long)size, want, (unsigned long long)x.budget);
    }
}

/* Twenty-odd layers: the budget is kept and used, more room never hurts, and it ends. */
static void large_instances_keep_the_budget(void **state)
{
    enum { N = 120, O = 6 };
    static sw_choice choices[N * O];
    static int32_t taken[N], again[N];
    test_rng seed = {7};
    uint64_t least, size;
    double last = (double)INFINITY;

    (void)state;
    for (int i = 0; i < N; i++) {
        double weight = exp((double)(test_u64(&seed) % 1000) / 150);
        uint64_t n = 1000 + test_u64(&seed) % 9000;
        for (int o = 0; o < O; o++)
            choices[i * O + o] = (sw_choice){n * (uint64_t)(2 + o), weight * pow(0.27, o)};
    }
    least = sw_allocate_least(choices, N, O);
    for (uint64_t budget = least; budget < 4 * least; budget += least / 7) {
        sw_err err = {0};
        assert_int_equal(sw_allocate(taken, choices, N, O, budget, &err), SW_OK);
        assert_int_equal(sw_allocate(again, choices, N, O, budget, &err), SW_OK);
        assert_memory_equal(taken, again, sizeof taken);
        double loss = add_up(&size, choices, N, O, taken);
        assert_true(size <= budget);
        assert_true(loss <= last * (1 + 1e-9));
        last = loss;
    }
}

static void too_small_a_budget_is_refused(void **state)
{
    const sw_choice choices[4] = {{5, 1}, {9, 0}, {7, (double)INFINITY}, {8, 3}};
    int32_t taken[2] = {-7, -7};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_allocate_least(choices, 2, 2), 13);
    assert_int_equal(sw_allocate(taken, choices, 2, 2, 12, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "13"));
    assert_int_equal(taken[0], -7);
    assert_int_equal(sw_allocate(taken, choices, 2, 2, 13, &err), SW_OK);
    assert_int_equal(taken[0], 0);
    assert_int_equal(taken[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_best_there_is),
        cmocka_unit_test(large_instances_keep_the_budget),
        cmocka_unit_test(too_small_a_budget_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
