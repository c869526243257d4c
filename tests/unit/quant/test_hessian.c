/* test_hessian.c - statistics and their factor against direct computations in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/target.h"
#include "tests/support/toys/random.h"

/* K spans two strips of the sums, TOKENS two chunks. */
enum { K = 144, TOKENS = 5000, OUT = 20 };

typedef struct data {
    float x[TOKENS * K], dx[TOKENS * K], dr[TOKENS * OUT], w[OUT * K];
} data;

static data *make_data(void)
{
    data *d = malloc(sizeof *d);
    test_rng rng = {7};

    for (int t = 0; t < TOKENS; t++) {
        float shared = (float)test_gauss(&rng);
        for (int j = 0; j < K; j++) {
            d->x[t * K + j] = (shared + (float)test_gauss(&rng)) * (0.2f + 0.1f * (float)j);
            d->dx[t * K + j] = 0.05f * d->x[t * K + j] + 0.01f * (float)test_gauss(&rng);
        }
        for (int i = 0; i < OUT; i++) d->dr[t * OUT + i] = (float)test_gauss(&rng) + shared;
    }
    for (int i = 0; i < OUT * K; i++) d->w[i] = (float)test_gauss(&rng);
    return d;
}

static sw_hessian observe(const data *d, int n_threads)
{
    sw_hessian h;
    sw_err err = {0};

    assert_int_equal(sw_hessian_new(&h, K, true, OUT, n_threads, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&h, d->x, d->dx, d->dr, 1000, &err), SW_OK);
    assert_int_equal(
        sw_hessian_add(&h, d->x + 1000 * K, d->dx + 1000 * K, d->dr + 1000 * OUT, 4000, &err),
        SW_OK);
    sw_hessian_finish(&h);
    return h;
}

static void check_product(const double *have, const float *a, int n_a, const float *b, int n_b)
{
    for (int i = 0; i < n_a; i++)
        for (int j = 0; j < n_b; j++) {
            double want = 0, size = 0;
            for (int t = 0; t < TOKENS; t++) {
                double term = (double)a[t * n_a + i] * (double)b[t * n_b + j];
                want += term;
                size += fabs(term);
            }
            if (fabs(have[i * n_b + j] - want) > 1e-5 * size)
                fail_msg("(%d, %d): have %.9g, want %.9g", i, j, have[i * n_b + j], want);
        }
}

static void test_sums(void **state)
{
    data *d = make_data();
    sw_hessian h = observe(d, 1);

    (void)state;
    assert_int_equal(h.n_tokens, TOKENS);
    check_product(h.h, d->x, K, d->x, K);
    check_product(h.d, d->dx, K, d->x, K);
    check_product(h.r, d->dr, OUT, d->x, K);
    sw_hessian_free(&h);
    free(d);
}

static void test_threads_give_the_same_bytes(void **state)
{
    data *d = make_data();
    sw_hessian a = observe(d, 1), b = observe(d, 3);

    (void)state;
    assert_memory_equal(a.h, b.h, K * K * sizeof(double));
    assert_memory_equal(a.d, b.d, K * K * sizeof(double));
    assert_memory_equal(a.r, b.r, OUT * K * sizeof(double));
    sw_hessian_free(&a);
    sw_hessian_free(&b);
    free(d);
}

static void test_not_finite_is_refused(void **state)
{
    float bad[2][K] = {{0}};
    sw_hessian h;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_hessian_new(&h, K, false, 0, 1, &err), SW_OK);
    bad[1][3] = NAN;
    assert_int_equal(sw_hessian_add(&h, bad[0], NULL, NULL, 2, &err), SW_E_FORMAT);
    err.code = SW_OK;
    bad[1][3] = INFINITY;
    assert_int_equal(sw_hessian_add(&h, bad[0], NULL, NULL, 2, &err), SW_E_FORMAT);
    sw_hessian_free(&h);
}

/* inv(H) rebuilt from U and the pivots, times H, is the identity. */
static void check_inverse(const sw_factor *f)
{
    double inverse[K * K];

    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0;
            for (int s = 0; s < K; s++)
                sum += f->u[s * K + i] * f->u[s * K + j] / f->pivot[s];
            inverse[f->perm[i] * K + f->perm[j]] = sum;
        }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0;
            for (int s = 0; s < K; s++) sum += inverse[i * K + s] * f->h[s * K + j];
            if (fabs(sum - (i == j)) > 1e-8) fail_msg("(%d, %d): %g", i, j, sum);
        }
}

static void check_order(const sw_factor *f, const sw_hessian *h, int group)
{
    bool seen[K] = {false};

    for (int i = 0; i < K; i++) {
        assert_false(seen[f->perm[i]]);
        seen[f->perm[i]] = true;
        if (!i || f->order == SW_ORDER_NONE) continue;
        if (f->order == SW_ORDER_GAR && f->perm[i] / group != f->perm[i - 1] / group) continue;
        assert_true(h->h[f->perm[i - 1] * (K + 1)] >= h->h[f->perm[i] * (K + 1)]);
    }
    for (int i = 0; f->order == SW_ORDER_GAR && i < K; i++)
        assert_int_equal(f->perm[i] / group, f->perm[i / group * group] / group);
}

static void test_factor_inverts(void **state)
{
    data *d = make_data();
    sw_hessian h = observe(d, 2);
    sw_err err = {0};

    (void)state;
    for (int order = 0; order < SW_ORDER_COUNT; order++) {
        sw_factor_options o = {(sw_order)order, 16, 0.01};
        sw_factor f;
        assert_int_equal(sw_factor_new(&f, &h, &o, &err), SW_OK);
        check_inverse(&f);
        check_order(&f, &h, 16);
        assert_int_equal(f.n_retries, 0);
        sw_factor_free(&f);
    }
    sw_hessian_free(&h);
    free(d);
}

static void test_dead_inputs(void **state)
{
    data *d = make_data();
    sw_factor_options o = {SW_ORDER_STATIC, 16, 0.01};
    sw_hessian h;
    sw_factor f;
    sw_err err = {0};

    (void)state;
    for (int t = 0; t < TOKENS; t++) d->x[t * K + 5] = d->x[t * K + 40] = 0;
    h = observe(d, 1);
    assert_int_equal(sw_factor_new(&f, &h, &o, &err), SW_OK);
    assert_int_equal(f.n_dead, 2);
    assert_true(f.is_dead[5] && f.is_dead[40] && !f.is_dead[6]);
    check_inverse(&f);
    sw_factor_free(&f);
    sw_hessian_free(&h);
    free(d);
}

static void test_damping_adapts_or_refuses(void **state)
{
    sw_factor_options o = {SW_ORDER_NONE, 0, 0.001};
    sw_hessian h;
    sw_factor f;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_hessian_new(&h, 2, false, 0, 1, &err), SW_OK);
    h.h[0] = h.h[3] = 1;
    h.h[1] = h.h[2] = 1.05; /* eigenvalues 2.05 and -0.05 */
    assert_int_equal(sw_factor_new(&f, &h, &o, &err), SW_OK);
    assert_true(f.n_retries > 0 && f.damp > 0.05 && f.damp < 0.11);
    sw_factor_free(&f);
    h.h[1] = h.h[2] = 3; /* -2: beyond any damping that is still the same matrix */
    assert_int_equal(sw_factor_new(&f, &h, &o, &err), SW_E_FORMAT);
    sw_hessian_free(&h);
}

/* shift (H) = a W D + b R must hold row by row. */
static void test_target_shift_solves(void **state)
{
    data *d = make_data();
    sw_hessian h = observe(d, 2);
    sw_factor_options o = {SW_ORDER_STATIC, 16, 0.02};
    sw_strengths s = {0.7, 0.4};
    double shift[OUT * K];
    sw_factor f;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_factor_new(&f, &h, &o, &err), SW_OK);
    assert_int_equal(sw_target_shift(shift, &f, &h, d->w, OUT, s, &err), SW_OK);
    for (int i = 0; i < OUT; i++)
        for (int j = 0; j < K; j++) {
            double have = 0, want = 0.4 * h.r[i * K + j];
            for (int c = 0; c < K; c++) {
                have += shift[i * K + c] * f.h[c * K + j];
                want += 0.7 * (double)d->w[i * K + c] * h.d[c * K + j];
            }
            if (fabs(have - want) > 1e-7 * (1 + fabs(want)))
                fail_msg("(%d, %d): have %.9g, want %.9g", i, j, have, want);
        }
    sw_factor_free(&f);
    sw_hessian_free(&h);
    free(d);
}

/* Strengths come from tokens that the sums did not see: signal is followed, noise is not. */
static void test_strengths_follow_signal_only(void **state)
{
    data *d = make_data();
    sw_factor_options o = {SW_ORDER_STATIC, 16, 0.01};
    sw_strengths cap = {1, 1}, s;
    test_rng rng = {5};
    sw_err err = {0};

    (void)state;
    for (int is_noise = 0; is_noise < 2; is_noise++) {
        sw_hessian seen, held;
        sw_factor f;
        for (int i = 0; i < TOKENS * K && is_noise; i++) d->dx[i] = (float)test_gauss(&rng);
        for (int t = 0; t < TOKENS; t++) /* residual: a linear map of x, or noise */
            for (int i = 0; i < OUT; i++)
                d->dr[t * OUT + i] = is_noise ? (float)test_gauss(&rng) : 0.3f * d->x[t * K + i];
        assert_int_equal(sw_hessian_new(&seen, K, true, OUT, 1, &err), SW_OK);
        assert_int_equal(sw_hessian_new(&held, K, true, OUT, 1, &err), SW_OK);
        assert_int_equal(sw_hessian_add(&seen, d->x, d->dx, d->dr, 600, &err), SW_OK);
        assert_int_equal(sw_hessian_add(&held, d->x + 600 * K, d->dx + 600 * K, d->dr + 600 * OUT,
                                        TOKENS - 600, &err),
                         SW_OK);
        sw_hessian_finish(&seen);
        sw_hessian_finish(&held);
        assert_int_equal(sw_hessian_merge_inputs(&seen, &held, &err), SW_OK);
        assert_int_equal(sw_factor_new(&f, &seen, &o, &err), SW_OK);
        seen.n_tokens = 600; /* the cross terms' count; the factor keeps the merged one */
        assert_int_equal(sw_target_strengths(&s, &f, &seen, &held, d->w, OUT, cap, &err), SW_OK);
        if (is_noise ? s.input > 0.2 || s.residual > 0.2 : s.input < 0.7 || s.residual < 0.7)
            fail_msg("noise %d: strengths %.3f and %.3f", is_noise, s.input, s.residual);
        sw_factor_free(&f);
        sw_hessian_free(&seen);
        sw_hessian_free(&held);
    }
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_threads_give_the_same_bytes),
        cmocka_unit_test(test_not_finite_is_refused),
        cmocka_unit_test(test_factor_inverts),
        cmocka_unit_test(test_dead_inputs),
        cmocka_unit_test(test_damping_adapts_or_refuses),
        cmocka_unit_test(test_target_shift_solves),
        cmocka_unit_test(test_strengths_follow_signal_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
