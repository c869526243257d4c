/* test_experts.c - how far an expert's own statistics are believed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>
#include <stdlib.h>
#include <cmocka.h>

#include "formats/base/mem.h"
#include "kernels/blas.h"
#include "quant/stats/experts.h"
#include "tests/support/toys/random.h"

enum { K = 24, ALL_TOKENS = 20000, TOKENS_MAX = 40000 };

static float rows[TOKENS_MAX * K];

/* Correlated inputs of very different sizes; `tilt` makes an expert's differ from the others'. */
static void draw(float *x, int64_t n, double tilt, test_rng *rng)
{
    for (int64_t t = 0; t < n; t++) {
        double common = test_gauss(rng);
        for (int j = 0; j < K; j++) {
            double size = pow(10.0, -2.0 * j / K) * (j % 3 ? 1.0 : 1.0 + tilt);
            x[t * K + j] = (float)(size * (test_gauss(rng) + (0.7 - 0.4 * tilt) * common));
        }
    }
}

static void sum_rows(sw_hessian *h, const float *x, int64_t n)
{
    sw_err err = {0};

    assert_int_equal(sw_hessian_new(h, K, false, 0, 1, &err), SW_OK);
    if (n) assert_int_equal(sw_hessian_add(h, x, NULL, NULL, n, &err), SW_OK);
    sw_hessian_finish(h);
}

static void free_halves(sw_hessian half[2])
{
    sw_hessian_free(&half[0]);
    sw_hessian_free(&half[1]);
}

/* sum over all pairs of (S - T)_ij^2 / (T_ii T_jj): far or near, whatever the sizes */
static double distance(const sw_hessian *s, const sw_hessian *t)
{
    double sum = 0;

    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double a = s->h[i * K + j] / (double)s->n_tokens;
            double b = t->h[i * K + j] / (double)t->n_tokens;
            sum += (a - b) * (a - b) * (double)t->n_tokens * (double)t->n_tokens /
                   (t->h[i * K + i] * t->h[j * K + j]);
        }
    return sum;
}

typedef struct world {
    sw_hessian all, truth;
    sw_prior prior;
    test_rng rng;
} world;

static void world_open(world *w, double tilt)
{
    sw_err err = {0};

    memset(w, 0, sizeof *w);
    sw_blas_single_thread();
    w->rng.state = 5;
    draw(rows, ALL_TOKENS, 0.0, &w->rng);
    sum_rows(&w->all, rows, ALL_TOKENS);
    draw(rows, TOKENS_MAX, tilt, &w->rng);
    sum_rows(&w->truth, rows, TOKENS_MAX);
    assert_int_equal(sw_prior_new(&w->prior, &w->all, &err), SW_OK);
}

static void world_close(world *w)
{
    sw_prior_free(&w->prior);
    sw_hessian_free(&w->all);
    sw_hessian_free(&w->truth);
}

/* Two halves of an expert that got n tokens, each of them `copies` times. */
static void draw_expert(sw_hessian half[2], world *w, double tilt, int64_t n, int copies)
{
    for (int i = 0; i < 2; i++) {
        int64_t own = i ? n / 2 : n - n / 2;
        draw(rows, own, tilt, &w->rng);
        for (int64_t t = own * copies - 1; t >= 0; t--)
            memmove(rows + t * K, rows + t / copies * K, K * sizeof *rows);
        sum_rows(&half[i], rows, own * copies);
    }
}

static double mean_weight(world *w, double tilt, int64_t n, int copies)
{
    double sum = 0, d;
    sw_err err = {0};

    for (int trial = 0; trial < 20; trial++) {
        sw_hessian half[2];
        draw_expert(half, w, tilt, n, copies);
        assert_int_equal(sw_prior_weight(&d, &w->prior, half, &err), SW_OK);
        assert_true(d >= 0 && d <= 1);
        sum += d / 20;
        free_halves(half);
    }
    return sum;
}

static void test_evidence_moves_the_weight(void **state)
{
    double few, some, many, same;
    world w;

    (void)state;
    world_open(&w, 0.5);
    few = mean_weight(&w, 0.5, 12, 1);
    some = mean_weight(&w, 0.5, 200, 1);
    many = mean_weight(&w, 0.5, 5000, 1);
    same = mean_weight(&w, 0.0, 5000, 1); /* an expert that reads what all read: no bias to fear */
    world_close(&w);
    assert_true(few > 0.6 && few > some + 0.1 && some > many + 0.1);
    assert_true(many < 0.1);
    assert_true(same > 0.6);
}

/* Words that repeat are no evidence: 200 tokens eight times over weigh like 200, not like 1600. */
static void test_repeated_tokens_count_once(void **state)
{
    double once, copied, really;
    world w;

    (void)state;
    world_open(&w, 0.5);
    once = mean_weight(&w, 0.5, 200, 1);
    copied = mean_weight(&w, 0.5, 200, 8);
    really = mean_weight(&w, 0.5, 1600, 1);
    world_close(&w);
    assert_true(fabs(copied - once) < 0.08);
    assert_true(copied > really + 0.1);
}

/* The blend is nearer to the truth than either part, at every amount of evidence. */
static void test_the_blend_beats_both(void **state)
{
    static const int64_t counts[] = {20, 60, 200, 600};
    sw_err err = {0};
    world w;

    (void)state;
    world_open(&w, 0.5);
    for (int c = 0; c < 4; c++) {
        double routed = 0, blend = 0, all = distance(&w.all, &w.truth), d;
        for (int trial = 0; trial < 20; trial++) {
            sw_hessian half[2], own[2];
            draw_expert(half, &w, 0.5, counts[c], 1);
            sum_rows(&own[0], NULL, 0);
            sum_rows(&own[1], NULL, 0);
            for (int i = 0; i < 2; i++)
                assert_int_equal(sw_hessian_merge_inputs(&own[i], &half[i], &err), SW_OK);
            assert_int_equal(sw_prior_weight(&d, &w.prior, half, &err), SW_OK);
            assert_int_equal(sw_expert_blend(half, &w.all, d, &err), SW_OK);
            assert_int_equal(sw_expert_blend(own, &w.all, 0.0, &err), SW_OK);
            assert_int_equal(half[0].n_tokens, counts[c]);
            blend += distance(&half[0], &w.truth) / 20;
            routed += distance(&own[0], &w.truth) / 20;
            free_halves(half);
            free_halves(own);
        }
        assert_true(blend < routed);
        assert_true(blend < all);
    }
    world_close(&w);
}

static void test_no_token_is_served_by_all(void **state)
{
    sw_hessian half[2];
    double d = -1;
    sw_err err = {0};
    world w;

    (void)state;
    world_open(&w, 0.5);
    sum_rows(&half[0], NULL, 0);
    sum_rows(&half[1], NULL, 0);
    assert_int_equal(sw_prior_weight(&d, &w.prior, half, &err), SW_OK);
    assert_true(d == 1.0);
    assert_int_equal(sw_expert_blend(half, &w.all, d, &err), SW_OK);
    for (int i = 0; i < K * K; i++)
        assert_true(fabs(half[0].h[i] * ALL_TOKENS - w.all.h[i]) <= 1e-9 * fabs(w.all.h[i]));
    free_halves(half);
    /* tokens in one half only: nothing to compare them with */
    draw(rows, 50, 0.5, &w.rng);
    sum_rows(&half[0], rows, 50);
    sum_rows(&half[1], NULL, 0);
    assert_int_equal(sw_prior_weight(&d, &w.prior, half, &err), SW_OK);
    assert_true(d == 1.0);
    free_halves(half);
    world_close(&w);
}

/* Inputs that no token ever moved must not make the comparison fail. */
static void test_dead_inputs(void **state)
{
    sw_hessian all, half[2];
    sw_prior prior = {0};
    double d = -1;
    sw_err err = {0};
    test_rng rng = {3};

    (void)state;
    draw(rows, 2000, 0.0, &rng);
    for (int t = 0; t < 2000; t++) rows[t * K + 4] = rows[t * K + 9] = 0.0f;
    sum_rows(&all, rows, 2000);
    sum_rows(&half[0], rows, 30);
    sum_rows(&half[1], rows + 30 * K, 30);
    assert_int_equal(sw_prior_new(&prior, &all, &err), SW_OK);
    assert_int_equal(sw_prior_weight(&d, &prior, half, &err), SW_OK);
    assert_true(d >= 0 && d <= 1);
    sw_prior_free(&prior);
    sw_hessian_free(&all);
    free_halves(half);
}

/* ---- norms of many inputs, which are estimated ---- */

enum { WIDE = SW_PRIOR_PROBED_INPUTS };

/* As `draw`, of WIDE inputs; `tilt` is in a third of them. */
static void sum_wide(sw_hessian *h, int64_t n, double tilt, uint64_t seed)
{
    float *x = malloc(sizeof *x * (size_t)n * WIDE);
    test_rng rng = {seed};
    sw_err err = {0};

    for (int64_t t = 0; t < n; t++) {
        double common = test_gauss(&rng);
        for (int j = 0; j < WIDE; j++) {
            double size = pow(10.0, -2.0 * j / WIDE) * (j % 3 ? 1.0 : 1.0 + tilt);
            x[t * WIDE + j] = (float)(size * (test_gauss(&rng) + (0.7 - 0.4 * tilt) * common));
        }
    }
    assert_int_equal(sw_hessian_new(h, WIDE, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(h, x, NULL, NULL, n, &err), SW_OK);
    sw_hessian_finish(h);
    free(x);
}

/* d as the head of experts.h has it, by whole matrices. */
static double exact_weight(const sw_hessian *all, const sw_hessian half[2])
{
    const int64_t n2 = (int64_t)WIDE * WIDE;
    const double n[2] = {(double)half[0].n_tokens, (double)half[1].n_tokens}, own = n[0] + n[1];
    double *root = malloc(8 * (size_t)n2), *m[2], trace = 0, noise = 0, distance = 0;

    for (int64_t i = 0; i < n2; i++) root[i] = all->h[i] / (double)all->n_tokens;
    for (int i = 0; i < WIDE; i++) trace += root[i * (WIDE + 1)];
    for (int i = 0; i < WIDE; i++) root[i * (WIDE + 1)] += SW_PRIOR_DAMP * trace / WIDE;
    for (int i = 0; i < 2; i++) {
        m[i] = malloc(8 * (size_t)n2);
        for (int64_t j = 0; j < n2; j++)
            m[i][j] = half[i].h[j] / n[i] - all->h[j] / (double)all->n_tokens;
    }
    assert_int_equal(LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', WIDE, root, WIDE), 0);
    for (int i = 0; i < 2; i++) {
        cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, WIDE, WIDE,
                    1.0, root, WIDE, m[i], WIDE);
        cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, WIDE, WIDE,
                    1.0, root, WIDE, m[i], WIDE);
    }
    for (int64_t j = 0; j < n2; j++) {
        noise += pow(m[0][j] - m[1][j], 2) * n[0] * n[1] / own / own;
        distance += pow((n[0] * m[0][j] + n[1] * m[1][j]) / own, 2);
    }
    free(root), free(m[0]), free(m[1]);
    return distance > noise ? noise / distance : 1.0;
}

/* Of 256 probes an estimate of a broad difference is off by less than a per cent, one of a single
 * direction by a root of 2 / 256 at most. */
static void test_wide_weights_are_estimated(void **state)
{
    static const struct { int64_t n0, n1; double tilt; } cases[] = {
        {500, 400, 0.5}, {2500, 2000, 0.1}, {1500, 40, 0.3}};
    sw_hessian all;
    sw_prior prior = {0};
    sw_err err = {0};

    (void)state;
    sw_blas_single_thread();
    sum_wide(&all, 4000, 0.0, 31);
    assert_int_equal(sw_prior_new(&prior, &all, &err), SW_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double have = -1, again = -1, want;
        sw_hessian half[2];

        sum_wide(&half[0], cases[i].n0, cases[i].tilt, 40 + i);
        sum_wide(&half[1], cases[i].n1, cases[i].tilt, 50 + i);
        want = exact_weight(&all, half);
        assert_int_equal(sw_prior_weight(&have, &prior, half, &err), SW_OK);
        assert_int_equal(sw_prior_weight(&again, &prior, half, &err), SW_OK);
        print_message("wide: weight %.6f, exactly %.6f\n", have, want);
        assert_true(want > 0.01 && want < 0.99);
        assert_true(fabs(have - want) < 0.02 * want);
        assert_true(have == again);
        free_halves(half);
    }
    sw_prior_free(&prior);
    sw_hessian_free(&all);
}

/* Signs that repeat or lean would estimate something else. */
static void test_probes_are_even(void **state)
{
    const int64_t n = (int64_t)SW_PRIOR_PROBES * WIDE;
    double *z = NULL, sum = 0, most = 0;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_prior_probes(&z, WIDE, &err), SW_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_true(fabs(z[i]) == 1.0);
        sum += z[i];
    }
    for (int i = 1; i < SW_PRIOR_PROBES; i++)
        for (int j = 0; j < i; j++)
            most = fmax(most, fabs(cblas_ddot(WIDE, z + (int64_t)i * WIDE, 1,
                                              z + (int64_t)j * WIDE, 1)));
    assert_true(fabs(sum) < 4 * sqrt((double)n));
    assert_true(most < 6 * sqrt(WIDE)); /* of 32640 pairs */
    sw_mem_put(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evidence_moves_the_weight),
        cmocka_unit_test(test_repeated_tokens_count_once),
        cmocka_unit_test(test_the_blend_beats_both),
        cmocka_unit_test(test_no_token_is_served_by_all),
        cmocka_unit_test(test_dead_inputs),
        cmocka_unit_test(test_wide_weights_are_estimated),
        cmocka_unit_test(test_probes_are_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
