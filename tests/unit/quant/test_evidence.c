/* test_evidence.c - what chance alone brings is not taken, what is real is, given enough text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "quant/search/evidence.h"
#include "quant/search/side.h"
#include "tests/support/toys/random.h"

enum { RUNS = 1000 };

/* Pieces as hard as they come, whose errors a change moves by `gain` on average; of every window
 * of WINDOW pieces the first has `loud` times the others' error, and `loud_gain`. */
typedef struct text {
    int64_t n_windows, n_held;
    double gain, loud, loud_gain;
} text;

enum { WINDOW = 32 };

static sw_verdict draw(test_rng *rng, const text *t)
{
    int64_t per_window = WINDOW * SW_EVIDENCE_TOKENS;
    sw_evidence e = {0};
    sw_verdict v;
    sw_err err = {0};

    assert_int_equal(sw_evidence_new(&e, (t->n_windows - t->n_held) * per_window,
                                     t->n_held * per_window, t->n_windows, &err), SW_OK);
    assert_int_equal(e.n, t->n_windows * WINDOW);
    for (int64_t i = 0; i < e.n; i++) {
        double loud = i % WINDOW == 0 ? t->loud : 0;
        e.before[i] = exp(test_gauss(rng)) * (1 + loud); /* few pieces have most of the error */
        e.after[i] = e.before[i] * (1 - (loud > 0 ? t->loud_gain : t->gain) +
                                    0.2 * test_gauss(rng));
    }
    v = sw_evidence_judge(&e);
    sw_evidence_free(&e);
    return v;
}

static int n_taken(text t)
{
    test_rng rng = {3};
    int n = 0;

    for (int i = 0; i < RUNS; i++) n += draw(&rng, &t).is_better;
    return n;
}

static void test_chance_is_not_taken(void **state)
{
    static const int64_t sizes[] = {2, 6, 8, 32};

    (void)state;
    for (int i = 0; i < 4; i++) {
        text none = {sizes[i], 1, 0, 0, 0}, loud = {sizes[i], 1, 0, 100, 0};
        text worse = {sizes[i], 1, -0.05, 0, 0};
        int n = n_taken(none), n_loud = n_taken(loud);
        if (n > 40 || n_loud > 40)
            fail_msg("%lld windows: %d and %d of 1000", (long long)sizes[i], n, n_loud);
        assert_true(n_taken(worse) <= n);
    }
}

static void test_gains_are_taken_once_there_is_text(void **state)
{
    static const text small = {2, 1, 0.01, 0, 0}, same = {64, 8, 0.06, 0, 0};
    static const text large = {2, 1, 0.3, 0, 0}, tiny = {64, 8, -0.002, 0, 0};

    (void)state;
    assert_true(n_taken(small) < 150); /* one of a hundred, by two windows: who knows */
    assert_true(n_taken(same) > 900);
    assert_true(n_taken(large) > 990);
    assert_true(n_taken(tiny) < 50); /* sure or not, it is not worth it */
}

/* A gain that the first tokens of all windows have is one; that of one window alone is none. */
static void test_windows_say_what_pieces_cannot(void **state)
{
    static const text windows = {8, 1, 0, 300, 0.6};
    double before[8 * WINDOW], after[8 * WINDOW];
    sw_evidence e = {before, after, 8 * WINDOW, 7 * WINDOW, 8};
    test_rng rng = {8};

    (void)state;
    assert_true(n_taken(windows) > 300);
    for (int i = 0; i < 8 * WINDOW; i++) {
        before[i] = i % WINDOW ? 1 : 300;
        after[i] = before[i] * (i % WINDOW ? 1 + 0.05 * test_gauss(&rng) : 0.4);
    }
    assert_true(sw_evidence_judge(&e).is_better);
    for (int i = 0; i < 7 * WINDOW; i++) after[i] = before[i];
    assert_true(sw_evidence_judge(&e).after < 0.9 * sw_evidence_judge(&e).before);
    assert_false(sw_evidence_judge(&e).is_better);
}

/* However sure the windows are that it was chosen by. */
static void test_what_is_held_out_must_gain(void **state)
{
    double before[40], after[40];
    sw_evidence e = {before, after, 40, 32, 2};

    (void)state;
    for (int i = 0; i < 40; i++) {
        before[i] = 1;
        after[i] = i < 32 ? 0.5 + 0.01 * i : 0.997;
    }
    assert_true(sw_evidence_judge(&e).standard_errors > 5);
    assert_false(sw_evidence_judge(&e).is_better);
    for (int i = 32; i < 40; i++) after[i] = 0.98;
    assert_true(sw_evidence_judge(&e).is_better);
}

static void test_too_few_pieces(void **state)
{
    double before[5] = {1, 1, 1, 1, 1}, after[5] = {0.5, 0.4, 0.5, 0.4, 0.5};
    sw_evidence e = {before, after, 5, 3, 2};

    (void)state;
    assert_false(sw_evidence_judge(&e).is_better);
}

static void test_pieces_hold_their_tokens(void **state)
{
    enum { N = SW_EVIDENCE_TOKENS + 1, WIDTH = 3 };
    const sw_side side = {.n_threads = 2};
    float have[N * WIDTH], want[N * WIDTH];
    double by_token[N] = {0};
    sw_evidence e = {0};
    sw_err err = {0};

    (void)state;
    for (int i = 0; i < N * WIDTH; i++) {
        have[i] = 1;
        want[i] = -1;
    }
    assert_int_equal(sw_evidence_new(&e, N, 3, 2, &err), SW_OK);
    assert_int_equal(e.n, 3);
    assert_int_equal(e.n_chosen_by, 2);
    assert_int_equal(sw_side_errors(&side, by_token, have, want, N, WIDTH, &err), SW_OK);
    sw_evidence_add(e.before, by_token, N);
    sw_evidence_add(e.before, by_token, N);
    assert_true(fabs(e.before[0] - 2.0 * 4 * WIDTH * SW_EVIDENCE_TOKENS) < 1e-9);
    assert_true(fabs(e.before[1] - 2.0 * 4 * WIDTH) < 1e-9);
    sw_evidence_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chance_is_not_taken),
        cmocka_unit_test(test_gains_are_taken_once_there_is_text),
        cmocka_unit_test(test_windows_say_what_pieces_cannot),
        cmocka_unit_test(test_what_is_held_out_must_gain),
        cmocka_unit_test(test_too_few_pieces),
        cmocka_unit_test(test_pieces_hold_their_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
