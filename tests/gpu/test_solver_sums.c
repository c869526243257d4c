/* test_solver_sums.c - sums of products and factors on the device against the CPU's.
 * Exit 77 without a GPU. */
#include <cblas.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/base/size.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/solver_case.h"
#include "tests/support/toys/random.h"

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

static sw_device *gpu;
static sw_solver *solver;

static double *sum_of(const solver_case *c)
{
    int64_t k = c->k_in;
    sw_gram g = {0};
    double *sum;

    MUST(sw_gram_new(&g, solver, k, k, true, &err));
    MUST(sw_gram_add(&g, solver, c->d_x, k, c->d_x, k, c->n_tokens, &err));
    MUST(sw_gram_finish(&g, solver, &err));
    assert_int_equal(g.n_tokens, c->n_tokens);
    sum = solver_fetch(gpu, g.d_sum, k * k);
    sw_gram_free(&g, solver);
    return sum;
}

/* Sums in float against sums in double; twice the same bytes. */
static void sums_of_products(void **state)
{
    static const int64_t sizes[][2] = {{64, 100}, {200, 3000}, {1032, 700}, {264, 33000}};
    const size_t n_sizes = DEVICE_IS_EMULATED ? 2 : sizeof sizes / sizeof *sizes;

    (void)state;
    for (size_t i = 0; i < n_sizes; i++) {
        int64_t k = sizes[i][0], n = sizes[i][1], k2 = k * k;
        solver_case c;
        double *want = calloc((size_t)k2, sizeof *want), *have, *again, error;

        solver_case_new(&c, gpu, solver, k, n, 7 + (uint64_t)k);
        have = sum_of(&c);
        double *wide = malloc(sizeof *wide * (size_t)(n * k));
        for (int64_t j = 0; j < n * k; j++) wide[j] = (double)c.x[j];
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)k, (int)k, (int)n, 1.0, wide,
                    (int)k, wide, (int)k, 0.0, want, (int)k);
        free(wide);
        error = solver_distance(have, want, k2);
        printf("sums: k %lld, %lld tokens: error %.2e, of the CPU's %.2e\n", (long long)k,
               (long long)n, error, solver_distance(c.hess.h, want, k2));
        /* tensor cores cut sums off instead of rounding them, once for 16 tokens */
        assert_true(error < 1e-6 + 1.5e-9 * (double)sw_min_i64(n, SW_GRAM_CHUNK_TOKENS));
        for (int64_t a = 0; a < k2; a++)
            if (have[a] != have[a % k * k + a / k]) fail_msg("not symmetric at %lld", (long long)a);
        again = sum_of(&c);
        assert_memory_equal(have, again, sizeof *have * (size_t)k2);
        free(again);
        free(have);
        free(want);
        solver_case_free(&c);
    }
}

/* Small integers: exact, whatever the order; a rectangular sum; two halves merged. */
static void sums_of_integers_are_exact(void **state)
{
    enum { T = 5000, A = 72, B = 200 };
    uint16_t *a = malloc(2 * T * A), *b = malloc(2 * T * B), *d_a = NULL, *d_b = NULL;
    float *fa = malloc(4 * T * A), *fb = malloc(4 * T * B);
    double *want = calloc(A * B, 8), *have;
    sw_gram whole = {0}, rest = {0};
    test_rng rng = {5};

    (void)state;
    for (int i = 0; i < T * A; i++) fa[i] = (float)((int)(test_u64(&rng) % 9) - 4);
    for (int i = 0; i < T * B; i++) fb[i] = (float)((int)(test_u64(&rng) % 9) - 4);
    MUST(sw_float_encode_n(a, SW_DTYPE_BF16, fa, T * A, &err));
    MUST(sw_float_encode_n(b, SW_DTYPE_BF16, fb, T * B, &err));
    for (int t = 0; t < T; t++)
        for (int i = 0; i < A; i++)
            for (int j = 0; j < B; j++) want[i * B + j] += (double)(fa[t * A + i] * fb[t * B + j]);
    MUST(sw_device_take((void **)&d_a, gpu, T * A, 2, "a", &err));
    MUST(sw_device_take((void **)&d_b, gpu, T * B, 2, "b", &err));
    MUST(sw_device_upload(gpu, d_a, a, 2 * T * A, &err));
    MUST(sw_device_upload(gpu, d_b, b, 2 * T * B, &err));
    MUST(sw_gram_new(&whole, solver, A, B, false, &err));
    MUST(sw_gram_new(&rest, solver, A, B, false, &err));
    for (int at = 0; at < T; at += 1000) {
        sw_gram *to = at < 3000 ? &whole : &rest;
        MUST(sw_gram_add(to, solver, d_a + at * A, A, d_b + at * B, B, 1000, &err));
    }
    MUST(sw_gram_finish(&whole, solver, &err));
    MUST(sw_gram_finish(&rest, solver, &err));
    MUST(sw_gram_merge(&whole, &rest, solver, &err));
    assert_int_equal(whole.n_tokens, T);
    have = solver_fetch(gpu, whole.d_sum, A * B);
    assert_memory_equal(have, want, 8 * A * B);
    sw_gram_free(&whole, solver);
    sw_gram_free(&rest, solver);
    sw_device_put(gpu, d_a);
    sw_device_put(gpu, d_b);
    free(a), free(b), free(fa), free(fb), free(want), free(have);
}

/* BF16 rows [n, k] on the device. Doubles hold sums of a few floats of one size exactly in any
 * order; so rows before `begin` and from `end` on are a millionth of the others. */
static uint16_t *uneven_rows(int64_t n, int64_t k, int64_t begin, int64_t end)
{
    float *x = malloc(4 * (size_t)(n * k));
    uint16_t *rows = malloc(2 * (size_t)(n * k)), *d_rows = NULL;
    test_rng rng = {71};

    for (int64_t i = 0; i < n * k; i++)
        x[i] = (float)(test_gauss(&rng) * (i / k < begin || i / k >= end ? 1e-6 : 1.0));
    MUST(sw_float_encode_n(rows, SW_DTYPE_BF16, x, n * k, &err));
    MUST(sw_device_take((void **)&d_rows, gpu, n * k, 2, "rows", &err));
    MUST(sw_device_upload(gpu, d_rows, rows, 2 * n * k, &err));
    free(x), free(rows);
    return d_rows;
}

/* Pieces of a text that go into one sum: the bytes of sums of their own that are merged, whether a
 * piece fits a chunk or not. */
static void pieces_go_on(void **state)
{
    static const int64_t texts[][3] = {{300, 40, 700}, {10, 33000, 9}, {40000, 33000, 70000},
                                       {0, 32768, 9}};
    const size_t n_texts = DEVICE_IS_EMULATED ? 2 : sizeof texts / sizeof *texts;
    enum { K = 136 };

    (void)state;
    for (size_t i = 0; i < n_texts; i++) {
        const int64_t *n = texts[i], n_all = n[0] + n[1] + n[2];
        uint16_t *d_x = uneven_rows(n_all, K, n[0], n[0] + SW_GRAM_CHUNK_TOKENS);
        double *want, *have;
        sw_gram whole = {0}, merged = {0};

        MUST(sw_gram_new(&whole, solver, K, K, true, &err));
        MUST(sw_gram_new(&merged, solver, K, K, true, &err));
        for (int64_t piece = 0, at = 0; piece < 3; at += n[piece++]) {
            const uint16_t *d_rows = d_x + at * K;
            sw_gram own = {0};

            MUST(sw_gram_new(&own, solver, K, K, true, &err));
            MUST(sw_gram_add(&own, solver, d_rows, K, d_rows, K, n[piece], &err));
            MUST(sw_gram_finish(&own, solver, &err));
            MUST(sw_gram_merge(&merged, &own, solver, &err));
            sw_gram_free(&own, solver);
            MUST(sw_gram_add(&whole, solver, d_rows, K, d_rows, K, n[piece], &err));
            MUST(sw_gram_end_piece(&whole, solver, &err));
            assert_null(whole.d_piece);
        }
        MUST(sw_gram_finish(&whole, solver, &err));
        assert_int_equal(whole.n_tokens, n_all);
        want = solver_fetch(gpu, merged.d_sum, K * K);
        have = solver_fetch(gpu, whole.d_sum, K * K);
        assert_memory_equal(have, want, sizeof *have * K * K);
        free(have), free(want);
        sw_gram_free(&whole, solver);
        sw_gram_free(&merged, solver);
        sw_device_put(gpu, d_x);
    }
}

static void floats_to_bf16(void **state)
{
    enum { N = 100001 };
    float *x = malloc(4 * N), *y = malloc(4 * N), *d_x = NULL, *d_y = NULL;
    uint16_t *have = malloc(2 * N), *want = malloc(2 * N), *d = NULL;
    test_rng rng = {9};

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = (float)test_gauss(&rng);
        y[i] = (float)test_gauss(&rng);
    }
    MUST(sw_device_take((void **)&d_x, gpu, N, 4, "x", &err));
    MUST(sw_device_take((void **)&d_y, gpu, N, 4, "y", &err));
    MUST(sw_device_take((void **)&d, gpu, N, 2, "bf16", &err));
    MUST(sw_device_upload(gpu, d_x, x, 4 * N, &err));
    MUST(sw_device_upload(gpu, d_y, y, 4 * N, &err));
    for (int with_y = 0; with_y < 2; with_y++) {
        MUST(sw_solver_to_bf16(solver, d, d_x, with_y ? d_y : NULL, N, &err));
        MUST(sw_device_download(gpu, have, d, 2 * N, &err));
        if (with_y) for (int i = 0; i < N; i++) x[i] -= y[i];
        MUST(sw_float_encode_n(want, SW_DTYPE_BF16, x, N, &err));
        assert_memory_equal(have, want, 2 * N);
    }
    sw_device_put(gpu, d_x);
    sw_device_put(gpu, d_y);
    sw_device_put(gpu, d);
    free(x), free(y), free(have), free(want);
}

static void factors(void **state)
{
    static const int64_t sizes[] = {64, 200, 777};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t k = sizes[i];
        solver_case c;
        solver_case_new(&c, gpu, solver, k, 2 * k, (uint64_t)k);
        for (int order = 0; order < SW_ORDER_COUNT; order++) {
            double *u, *pivot, *h;
            solver_case_factor(&c, (sw_order)order, 64);
            u = solver_fetch(gpu, c.device.d_u, k * k);
            pivot = solver_fetch(gpu, c.device.d_pivot, k);
            h = solver_fetch(gpu, c.device.d_h, k * k);
            printf("factor: k %lld order %d: U %.1e, pivots %.1e\n", (long long)k, order,
                   solver_distance(u, c.factor.u, k * k),
                   solver_distance(pivot, c.factor.pivot, k));
            assert_true(solver_distance(u, c.factor.u, k * k) < 1e-11);
            assert_true(solver_distance(pivot, c.factor.pivot, k) < 1e-11);
            assert_memory_equal(h, c.factor.h, 8 * (size_t)(k * k));
            free(u), free(pivot), free(h);
        }
        solver_case_free(&c);
    }
}

static void indefinite_is_told(void **state)
{
    double h[4] = {1, 2, 2, 1}, diagonal[2] = {1, 1}, *d_h = NULL;
    int32_t perm[2] = {1, 0};
    sw_device_factor f = {0};
    bool is_definite = true;

    (void)state;
    MUST(sw_device_take((void **)&d_h, gpu, 4, 8, "h", &err));
    MUST(sw_device_upload(gpu, d_h, h, sizeof h, &err));
    MUST(sw_device_factor_new(&f, solver, d_h, diagonal, perm, 2, &err));
    MUST(sw_device_factor_try(&is_definite, &f, solver, 0.5, &err));
    assert_false(is_definite);
    MUST(sw_device_factor_try(&is_definite, &f, solver, 1.5, &err));
    assert_true(is_definite);
    sw_device_factor_free(&f, solver);
    sw_device_put(gpu, d_h);
}

/* test_solver_sums [PATTERN]: only tests whose names match. */
int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_products), cmocka_unit_test(sums_of_integers_are_exact),
        cmocka_unit_test(pieces_go_on),
        cmocka_unit_test(floats_to_bf16),   cmocka_unit_test(factors),
        cmocka_unit_test(indefinite_is_told),
    };

    return solver_tests_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL, &gpu,
                            &solver);
}
