/* test_row_sample.c - rows that stand for a weight's: where they lie, that sums over them take the
 * weight's and the residual's own rows in any cut, and that strengths chosen by them are those of
 * all rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/target.h"
#include "tests/support/toys/random.h"

enum { BLOCK = SW_SAMPLE_BLOCK_ROWS };

/* --- which rows --- */

/* Runs cover the sample, in order, inside the weight, and never a row twice. */
static int64_t walk(const sw_row_sample *s, int64_t n_most, int64_t next)
{
    const int64_t n = sw_row_sample_count(s);
    sw_row_run run;

    for (int64_t i = 0; i < n; i += run.n) {
        run = sw_row_sample_run(s, i, n_most);
        assert_in_range(run.n, 1, n_most);
        assert_true(i + run.n <= n);
        assert_true(run.row >= next && run.row + run.n <= s->n_out);
        next = run.row + run.n;
    }
    return next;
}

static void test_few_rows_are_all(void **state)
{
    (void)state;
    for (int64_t n_out = 1; n_out <= 256; n_out += 17) {
        const sw_row_sample s = sw_row_sample_of(n_out, 256);
        const sw_row_run run = sw_row_sample_run(&s, 0, n_out);

        assert_int_equal(sw_row_sample_count(&s), n_out);
        assert_true(run.row == 0 && run.n == n_out);
    }
}

static void test_blocks_are_spread(void **state)
{
    static const int64_t sizes[] = {257, 300, 1000, 1024, 4096, 5120, 28672, 151936};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const sw_row_sample s = sw_row_sample_of(sizes[i], 256);
        const int64_t stretch = sizes[i] / 4;

        assert_int_equal(sw_row_sample_count(&s), 256);
        walk(&s, sizes[i], 0);
        for (int64_t b = 0; b < 4; b++) { /* in the middle of each fourth */
            const sw_row_run run = sw_row_sample_run(&s, b * BLOCK, BLOCK);
            const int64_t middle = b * sizes[i] / 4 + stretch / 2;

            assert_int_equal(run.n, BLOCK);
            assert_in_range(run.row + BLOCK / 2, middle - 1, middle + 1);
        }
    }
}

static void test_parts_are_the_whole(void **state)
{
    const sw_row_sample whole[] = {sw_row_sample_of(5000, 512), sw_row_sample_all(700)};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t n = sw_row_sample_count(&whole[i]);
        int64_t next = 0, n_seen = 0;

        for (int64_t begin = 0; begin < n; begin += 2 * BLOCK) {
            const int64_t end = begin + 2 * BLOCK < n ? begin + 2 * BLOCK : n;
            const sw_row_sample part = sw_row_sample_part(&whole[i], begin, end);
            const sw_row_run one = sw_row_sample_run(&whole[i], begin, 1);

            assert_int_equal(sw_row_sample_run(&part, 0, 1).row, one.row);
            next = walk(&part, 50, next);
            n_seen += sw_row_sample_count(&part);
        }
        assert_int_equal(n_seen, n);
    }
}

static void test_experts_have_fewer(void **state)
{
    const sw_row_sample one = sw_strength_rows(4096, false), expert = sw_strength_rows(4096, true);

    (void)state;
    assert_int_equal(sw_row_sample_count(&one), SW_STRENGTH_ROWS);
    assert_int_equal(sw_row_sample_count(&expert), SW_STRENGTH_EXPERT_ROWS);
}

/* --- sums over them --- */

enum { K = 48, OUT = 700, TOKENS = 1200, SEEN = 900 };

typedef struct sums {
    sw_hessian seen, held;
    sw_factor factor;
    float w[OUT * K];
} sums;

/* A weight whose rows differ in size, inputs that are off by a tenth, and a residual of which a
 * third follows from them. */
static sums *make_sums(void)
{
    const sw_factor_options o = {SW_ORDER_STATIC, 16, 0.01};
    sums *s = calloc(1, sizeof *s);
    float *x = malloc(TOKENS * K * sizeof *x), *dx = malloc(TOKENS * K * sizeof *dx);
    float *dr = malloc(TOKENS * OUT * sizeof *dr);
    test_rng rng = {23};
    sw_err err = {0};

    for (int i = 0; i < OUT * K; i++)
        s->w[i] = (float)(0.1 * test_gauss(&rng) * (1 + i / K % 128 / 32));
    for (int i = 0; i < TOKENS * K; i++) {
        x[i] = (float)test_gauss(&rng);
        dx[i] = 0.1f * x[i] + (float)(0.3 * test_gauss(&rng));
    }
    for (int i = 0; i < TOKENS * OUT; i++)
        dr[i] = 0.3f * x[i / OUT * K + i % OUT % K] + (float)test_gauss(&rng);
    assert_int_equal(sw_hessian_new(&s->seen, K, true, OUT, 2, &err), SW_OK);
    assert_int_equal(sw_hessian_new(&s->held, K, true, OUT, 2, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&s->seen, x, dx, dr, SEEN, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&s->held, x + SEEN * K, dx + SEEN * K, dr + SEEN * OUT,
                                    TOKENS - SEEN, &err),
                     SW_OK);
    sw_hessian_finish(&s->seen);
    sw_hessian_finish(&s->held);
    assert_int_equal(sw_hessian_merge_inputs(&s->seen, &s->held, &err), SW_OK);
    assert_int_equal(sw_factor_new(&s->factor, &s->seen, &o, &err), SW_OK);
    s->seen.n_tokens = SEEN; /* the cross terms' count */
    free(x), free(dx), free(dr);
    return s;
}

static void free_sums(sums *s)
{
    sw_factor_free(&s->factor);
    sw_hessian_free(&s->seen);
    sw_hessian_free(&s->held);
    free(s);
}

static void find(double (*by_row)[5], const sums *s, const sw_row_sample *rows)
{
    const sw_strengths cap = {1, 1};
    sw_err err = {0};

    memset(by_row, 0, (size_t)sw_row_sample_count(rows) * sizeof *by_row);
    assert_int_equal(sw_target_forms(by_row, &s->factor, &s->seen, &s->held, s->w, rows, cap,
                                     &err),
                     SW_OK);
}

/* A weight of the sampled rows alone, with the residual's, has the same sums. Rows that are not in
 * the sample are not looked at. */
static void test_rows_are_the_weights_own(void **state)
{
    const sw_row_sample rows = sw_row_sample_of(OUT, 256), all = sw_row_sample_all(256);
    double have[256][5], want[256][5];
    sums *s = make_sums(), few = *s;
    double *r = malloc(sizeof *r * 2 * 256 * K);
    sw_row_run run;

    (void)state;
    few.seen.r = r;
    few.held.r = r + 256 * K;
    few.seen.n_out_residual = few.held.n_out_residual = 256;
    for (int64_t i = 0; i < 256; i += run.n) {
        run = sw_row_sample_run(&rows, i, 256);
        memcpy(few.w + i * K, s->w + run.row * K, (size_t)(run.n * K) * sizeof *s->w);
        memcpy(few.seen.r + i * K, s->seen.r + run.row * K, (size_t)(run.n * K) * sizeof *r);
        memcpy(few.held.r + i * K, s->held.r + run.row * K, (size_t)(run.n * K) * sizeof *r);
    }
    find(want, &few, &all);
    for (int64_t i = 0, row = 0; row < OUT; row++) { /* all others become what would show */
        const bool is_in = i < 256 && sw_row_sample_run(&rows, i, 1).row == row;

        if (is_in) i++;
        for (int j = 0; j < K && !is_in; j++) s->w[row * K + j] = NAN;
    }
    find(have, s, &rows);
    assert_memory_equal(have, want, sizeof have);
    assert_true(have[0][0] > 0 && have[BLOCK][4] != 0);
    free(r);
    free_sums(s);
}

static void test_parts_have_the_sums_of_the_whole(void **state)
{
    const sw_row_sample whole[] = {sw_row_sample_of(OUT, 256), sw_row_sample_all(OUT)};
    double have[OUT][5], want[OUT][5];
    sums *s = make_sums();

    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t n = sw_row_sample_count(&whole[i]);

        find(want, s, &whole[i]);
        for (int64_t begin = 0; begin < n; begin += BLOCK) { /* as ranks would */
            const int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
            const sw_row_sample part = sw_row_sample_part(&whole[i], begin, end);

            find(have + begin, s, &part);
        }
        assert_memory_equal(have, want, (size_t)n * sizeof *have);
    }
    free_sums(s);
}

/* What strengths take off the held-out error, by the sums of n rows. */
static double gain(double (*forms)[5], int64_t n, sw_strengths by)
{
    const double scale = (double)TOKENS / SEEN; /* of the cross terms' tokens to the factor's */
    const double a = by.input, b = by.residual;
    double q[5] = {0};

    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < 5; j++) q[j] += forms[i][j] * (j < 3 ? scale * scale : scale);
    return 2 * (q[3] * a + q[4] * b) - (q[0] * a * a + 2 * q[1] * a * b + q[2] * b * b);
}

static void test_strengths_are_those_of_all_rows(void **state)
{
    const sw_row_sample rows = sw_row_sample_of(OUT, 256), all = sw_row_sample_all(OUT);
    const sw_strengths cap = {1, 1};
    double forms[OUT][5];
    sw_strengths few, every;
    sums *s = make_sums();

    (void)state;
    find(forms, s, &rows);
    few = sw_target_choose(forms, sw_row_sample_count(&rows), &s->seen, &s->held, cap);
    find(forms, s, &all);
    every = sw_target_choose(forms, OUT, &s->seen, &s->held, cap);
    assert_true(every.input > 0.1 && every.input < 1 && every.residual > 0.1 &&
                every.residual < 1);
    if (fabs(few.input - every.input) > 0.02 || fabs(few.residual - every.residual) > 0.02)
        fail_msg("strengths %.4f and %.4f, of all rows %.4f and %.4f", few.input, few.residual,
                 every.input, every.residual);
    assert_true(gain(forms, OUT, few) > 0.999 * gain(forms, OUT, every));
    assert_true(gain(forms, OUT, few) <= gain(forms, OUT, every));
    free_sums(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_rows_are_all),
        cmocka_unit_test(test_blocks_are_spread),
        cmocka_unit_test(test_parts_are_the_whole),
        cmocka_unit_test(test_experts_have_fewer),
        cmocka_unit_test(test_rows_are_the_weights_own),
        cmocka_unit_test(test_parts_have_the_sums_of_the_whole),
        cmocka_unit_test(test_strengths_are_those_of_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
