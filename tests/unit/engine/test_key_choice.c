/* test_key_choice.c - chosen keys against a sort of all scores in double, and attention that sees
 * chosen keys against attention over those alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/attention.h"
#include "kernels/engine/sparse/key_choice.h"
#include "tests/support/toys/random.h"

enum { HEADS = 3, DIM = 8, SEQS = 2, LEN = 40, FIRST = 700, KEYS = FIRST + LEN, TOP = 50 };

static double score_of(const sw_key_choice *c, int64_t row, int64_t key)
{
    double sum = 0.0;

    for (int64_t h = 0; h < c->n_heads; h++) {
        double product = 0.0;

        for (int64_t d = 0; d < c->head_dim; d++)
            product += (double)c->q[(row * c->n_heads + h) * c->head_dim + d] *
                       (double)c->keys[(row / c->seq_len * c->n_keys + key) * c->head_dim + d];
        sum += (double)c->weights[row * c->n_heads + h] * fmax(product, 0.0);
    }
    return sum;
}

/* No key that was left has more than one that was taken, but for rounding; all are in order. */
static void check_row(const sw_key_choice *c, int64_t row)
{
    const int64_t n = (c->first + row % c->seq_len + 1) / c->tokens_per_key;
    const int32_t *chosen = c->chosen + row * c->top_k;
    double least = INFINITY, most_left = -INFINITY;
    int64_t at = 0;

    for (int64_t key = 0; key < n; key++) {
        const double score = score_of(c, row, key);

        if (at < c->top_k && chosen[at] == key) {
            at++;
            least = fmin(least, score);
        } else {
            most_left = fmax(most_left, score);
        }
    }
    assert_int_equal(at, n < c->top_k ? n : c->top_k);
    for (; at < c->top_k; at++) assert_int_equal(chosen[at], -1);
    if (!(most_left <= least + 1e-4))
        fail_msg("row %d: %g left, %g taken", (int)row, most_left, least);
}

static float *randoms(int64_t n, uint64_t seed)
{
    test_rng rng = {seed};
    float *x = malloc((size_t)n * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(test_uniform(&rng) * 2.0 - 1.0);
    return x;
}

static sw_key_choice make_case(int64_t first, int64_t tokens_per_key, int n_threads)
{
    sw_key_choice c = {.n_seqs = SEQS, .seq_len = LEN, .first = first,
                       .n_keys = (first + LEN) / tokens_per_key,
                       .tokens_per_key = tokens_per_key, .n_heads = HEADS, .head_dim = DIM,
                       .top_k = TOP, .n_threads = n_threads};

    c.q = randoms(SEQS * LEN * HEADS * DIM, 1);
    c.weights = randoms(SEQS * LEN * HEADS, 2);
    c.keys = randoms(SEQS * c.n_keys * DIM, 3);
    c.chosen = malloc(SEQS * LEN * TOP * sizeof *c.chosen);
    c.scratch = malloc((size_t)sw_key_choice_scratch(HEADS, c.n_keys, n_threads) * sizeof(float));
    assert_non_null(c.chosen);
    assert_non_null(c.scratch);
    return c;
}

static void free_case(sw_key_choice *c)
{
    free((void *)(uintptr_t)c->q);
    free((void *)(uintptr_t)c->weights);
    free((void *)(uintptr_t)c->keys);
    free(c->chosen);
    free(c->scratch);
}

static void test_largest_win(void **state)
{
    static const struct {
        int64_t first, tokens_per_key;
    } rows[] = {{FIRST, 1}, {0, 1}, {FIRST, 4}, {2, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sw_key_choice c = make_case(rows[i].first, rows[i].tokens_per_key, 2);

        sw_key_choice_run(&c);
        for (int64_t row = 0; row < SEQS * LEN; row++) check_row(&c, row);
        free_case(&c);
    }
}

/* Equal scores: the first keys. Something that is no number: a full row all the same. */
static void test_ties_and_nans(void **state)
{
    sw_key_choice c = make_case(FIRST, 1, 1);

    (void)state;
    memset((float *)(uintptr_t)c.weights, 0, SEQS * LEN * HEADS * sizeof(float));
    sw_key_choice_run(&c);
    for (int64_t i = 0; i < SEQS * LEN * TOP; i++) assert_int_equal(c.chosen[i], i % TOP);
    for (int64_t i = 0; i < SEQS * LEN * HEADS; i++)
        ((float *)(uintptr_t)c.weights)[i] = i % 2 ? NAN : -1.0f;
    sw_key_choice_run(&c);
    for (int64_t i = 0; i < SEQS * LEN * TOP; i++) {
        assert_true(c.chosen[i] >= 0 && c.chosen[i] < KEYS);
        assert_true(i % TOP == 0 || c.chosen[i] > c.chosen[i - 1]);
    }
    free_case(&c);
}

/* What attention makes of chosen keys is what it makes of a text that has no others. */
static void test_attention_of_chosen(void **state)
{
    enum { D = 16, N = 4 };
    float *q = randoms(HEADS * D, 4), *k = randoms(KEYS * D, 5), *v = randoms(KEYS * D, 6);
    float few_k[N * D], few_v[N * D], have[HEADS * D], want[HEADS * D];
    static const int32_t chosen[N + 2] = {3, 511, 512, 700, -1, -1};
    float *scratch = malloc(sw_attention_scratch_bytes(1));
    sw_attention a = {.q = q, .k = k, .v = v, .out = have, .n_seqs = 1, .seq_len = 1,
                      .first = KEYS - 1, .n_heads = HEADS, .n_kv_heads = 1, .head_dim = D,
                      .v_head_dim = D, .scale = 1.0, .chosen = chosen, .n_chosen = N + 2,
                      .vec = sw_vec_best(), .scratch = scratch, .n_threads = 1};

    (void)state;
    for (int i = 0; i < N; i++) {
        memcpy(few_k + i * D, k + chosen[i] * D, D * sizeof(float));
        memcpy(few_v + i * D, v + chosen[i] * D, D * sizeof(float));
    }
    sw_attention_run(&a);
    a.k = few_k;
    a.v = few_v;
    a.out = want;
    a.first = N - 1;
    a.chosen = NULL;
    sw_attention_run(&a);
    for (int i = 0; i < HEADS * D; i++) assert_true(fabsf(have[i] - want[i]) < 1e-6f);
    free(q);
    free(k);
    free(v);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_win),
        cmocka_unit_test(test_ties_and_nans),
        cmocka_unit_test(test_attention_of_chosen),
    };
    return cmocka_run_group_tests_name("key_choice", tests, NULL, NULL);
}
