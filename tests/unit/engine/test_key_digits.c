/* test_key_digits.c - keys chosen digit by digit, in pieces as the device goes over them, against
 * the CPU engine's choice: key for key, ties and what is no number among them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/sparse/key_choice.h"
#include "kernels/engine/sparse/key_digits.h"
#include "tests/support/toys/random.h"

enum { KEYS_MAX = 3000, PIECE = 96 };

static float scores[KEYS_MAX];
static uint32_t ranks[KEYS_MAX];
static int32_t have[KEYS_MAX + 8], want[KEYS_MAX + 8];

/* The CPU engine's choice by these scores: key s is the number s, and of two heads one adds what of
 * it lies above zero, the other takes what lies below. */
static void choose_on_cpu(int64_t n, int64_t top_k)
{
    static const float q[2] = {1.0f, -1.0f}, weights[2] = {1.0f, -1.0f};
    sw_key_choice c = {.q = q, .weights = weights, .keys = scores, .chosen = want, .n_seqs = 1,
                       .seq_len = 1, .first = n - 1, .n_keys = n, .tokens_per_key = 1,
                       .n_heads = 2, .head_dim = 1, .top_k = top_k, .n_threads = 1};

    c.scratch = malloc((size_t)sw_key_choice_scratch(2, n, 1) * sizeof(float));
    assert_non_null(c.scratch);
    sw_key_choice_run(&c);
    free(c.scratch);
}

static sw_key_bound next_digit(sw_key_bound bound, int64_t n, int shift)
{
    uint32_t counts[SW_KEY_DIGITS + 1] = {0}, digit = SW_KEY_DIGITS;
    int n_found = 0;

    for (int64_t i = 0; i < n; i++)
        if (sw_key_agrees(ranks[i], bound, shift)) counts[sw_key_digit(ranks[i], shift)]++;
    for (int d = SW_KEY_DIGITS - 1; d >= 0; d--) counts[d] += counts[d + 1];
    for (uint32_t d = 0; d < SW_KEY_DIGITS; d++)
        if (sw_key_is_digit(bound, counts[d], counts[d + 1])) {
            digit = d;
            n_found++;
        }
    assert_int_equal(n_found, 1);
    return sw_key_take_digit(bound, digit, shift, counts[digit + 1]);
}

/* Every key of a piece finds its place from what lies before the piece and before it there. */
static void put_piece(sw_key_bound bound, int64_t at, int64_t n, uint32_t *n_above,
                      uint32_t *n_equal)
{
    for (int64_t i = at; i < n && i < at + PIECE; i++) {
        if (sw_key_is_in(bound, ranks[i], *n_equal))
            have[sw_key_place(bound, *n_above, *n_equal)] = (int32_t)i;
        *n_above += ranks[i] > bound.rank;
        *n_equal += ranks[i] == bound.rank;
    }
}

static void choose_by_digits(int64_t n, int64_t top_k)
{
    sw_key_bound bound = {0, (uint32_t)top_k};
    uint32_t n_above = 0, n_equal = 0;

    for (int64_t i = 0; i < n; i++) ranks[i] = sw_key_rank(scores[i]);
    for (int shift = SW_KEY_FIRST_SHIFT; shift >= 0; shift -= SW_KEY_DIGIT_BITS)
        bound = next_digit(bound, n, shift);
    for (int64_t at = 0; at < n; at += PIECE) put_piece(bound, at, n, &n_above, &n_equal);
    assert_int_equal(n_above + bound.wanted, top_k);
    assert_true(n_equal >= bound.wanted);
}

static void compare(const char *what, int64_t n, int64_t top_k)
{
    memset(have, 0xff, sizeof have);
    choose_on_cpu(n, top_k);
    choose_by_digits(n, top_k);
    for (int64_t i = 0; i < top_k; i++)
        if (have[i] != want[i])
            fail_msg("%s, %d of %d: place %d has %d, not %d", what, (int)top_k, (int)n, (int)i,
                     have[i], want[i]);
}

static void fill(int kind, uint64_t seed)
{
    test_rng rng = {seed};

    for (int i = 0; i < KEYS_MAX; i++) {
        const double x = test_gauss(&rng);

        if (kind == 0) scores[i] = (float)x;
        if (kind == 1) scores[i] = (float)(int)(2 * x); /* many are equal, zeros of both signs */
        if (kind == 2) scores[i] = (float)ldexp(x, (int)(test_uniform(&rng) * 60) - 30);
        if (kind == 3) scores[i] = 1.0f;
    }
}

static void test_as_on_the_cpu(void **state)
{
    static const char *const names[] = {"normal", "integers", "of all sizes", "all equal"};
    static const int64_t sizes[][2] = {{2, 1}, {33, 32}, {97, 1}, {97, 96}, {500, 50},
                                       {KEYS_MAX, 1}, {KEYS_MAX, 17}, {KEYS_MAX, 2048},
                                       {KEYS_MAX, KEYS_MAX - 1}};

    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            fill(kind, 5 + i);
            compare(names[kind], sizes[i][0], sizes[i][1]);
        }
}

/* Both zeros are one, so the earlier wins; infinities and what is no number have a place. */
static void test_odd_scores(void **state)
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, NAN, -1e-40f, 1e-40f, -1.0f, 3e38f};

    (void)state;
    for (int i = 0; i < 400; i++) scores[i] = odd[i * 7 % 8];
    for (int64_t top_k = 1; top_k < 400; top_k += 13) compare("odd", 400, top_k);
    assert_int_equal(sw_key_rank(0.0f), sw_key_rank(-0.0f));
    assert_true(sw_key_rank(1e-40f) > sw_key_rank(0.0f));
    assert_true(sw_key_rank(-1.0f) > sw_key_rank(-INFINITY));
    assert_true(sw_key_share(2.0f, -3.0f) == 0.0f && sw_key_share(-2.0f, 3.0f) == -6.0f);
    assert_true(isnan(sw_key_share(1.0f, NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_on_the_cpu),
        cmocka_unit_test(test_odd_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
