/* solver_case.c - see solver_case.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/gpu/support/solver_case.h"
#include "tests/support/toys/random.h"

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

static void fill_x(solver_case *c, uint64_t seed)
{
    test_rng rng = {seed};
    double *size = malloc(sizeof *size * (size_t)c->k_in);

    for (int64_t j = 0; j < c->k_in; j++) size[j] = exp(1.2 * test_gauss(&rng));
    for (int64_t t = 0; t < c->n_tokens; t++) {
        double shared = test_gauss(&rng);
        for (int64_t j = 0; j < c->k_in; j++) {
            double v = size[j] * (test_gauss(&rng) + (j % 3 ? 0.5 : 0.1) * shared);
            c->x[t * c->k_in + j] = j == 3 ? 0 : sw_num_round_to((float)v, SW_DTYPE_BF16);
        }
    }
    free(size);
}

int solver_pair_open(sw_device **gpu, sw_solver **solver)
{
    MUST(sw_device_open(gpu, 0, 0, &err));
    MUST(sw_solver_open(solver, *gpu, 0, &err));
    return 0;
}

int solver_pair_close(sw_device *gpu, sw_solver *solver)
{
    sw_solver_close(solver);
    assert_int_equal(sw_device_taken_bytes(gpu), 0);
    sw_device_close(gpu);
    return 0;
}

void solver_case_new(solver_case *c, sw_device *gpu, sw_solver *solver, int64_t k_in,
                     int64_t n_tokens, uint64_t seed)
{
    int64_t n = n_tokens * k_in;
    uint16_t *bf16 = malloc((size_t)n * 2);

    *c = (solver_case){.gpu = gpu, .solver = solver, .k_in = k_in, .n_tokens = n_tokens};
    c->x = malloc((size_t)n * sizeof *c->x);
    fill_x(c, seed);
    MUST(sw_float_encode_n(bf16, SW_DTYPE_BF16, c->x, n, &err));
    MUST(sw_device_take((void **)&c->d_x, gpu, n, 2, "x", &err));
    MUST(sw_device_upload(gpu, c->d_x, bf16, 2 * n, &err));
    MUST(sw_hessian_new(&c->hess, k_in, false, 0, 2, &err));
    MUST(sw_hessian_add(&c->hess, c->x, NULL, NULL, n_tokens, &err));
    sw_hessian_finish(&c->hess);
    free(bf16);
}

void solver_case_factor(solver_case *c, sw_order order, int64_t group_elems)
{
    sw_factor_options options = {order, group_elems, 0.01};
    int64_t k = c->k_in, n_live = 0;
    double *diagonal = malloc(sizeof *diagonal * (size_t)k), mean = 0, lambda;
    double *d_h = NULL;
    bool is_definite = false;

    sw_factor_free(&c->factor);
    sw_device_factor_free(&c->device, c->solver);
    MUST(sw_factor_new(&c->factor, &c->hess, &options, &err));
    for (int64_t j = 0; j < k; j++) {
        n_live += c->hess.h[j * k + j] > 0;
        mean += c->hess.h[j * k + j];
    }
    mean /= (double)n_live;
    lambda = c->factor.damp * mean;
    for (int64_t j = 0; j < k; j++)
        diagonal[j] = c->hess.h[j * k + j] > 0 ? c->hess.h[j * k + j] : mean;
    MUST(sw_device_take((void **)&d_h, c->gpu, k * k, 8, "h", &err));
    MUST(sw_device_upload(c->gpu, d_h, c->hess.h, k * k * 8, &err));
    MUST(sw_device_factor_new(&c->device, c->solver, d_h, diagonal, c->factor.perm, k, &err));
    MUST(sw_device_factor_try(&is_definite, &c->device, c->solver, lambda, &err));
    assert_true(is_definite);
    MUST(sw_device_factor_finish(&c->device, c->solver, lambda, &err));
    sw_device_put(c->gpu, d_h);
    free(diagonal);
}

void solver_case_free(solver_case *c)
{
    sw_factor_free(&c->factor);
    sw_device_factor_free(&c->device, c->solver);
    sw_hessian_free(&c->hess);
    sw_device_put(c->gpu, c->d_x);
    free(c->x);
    memset(c, 0, sizeof *c);
}

double *solver_fetch(sw_device *gpu, const double *d, int64_t n)
{
    double *host = malloc(sizeof *host * (size_t)n);

    MUST(sw_device_download(gpu, host, d, n * 8, &err));
    return host;
}

double solver_distance(const double *have, const double *want, int64_t n)
{
    double wrong = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        wrong += (have[i] - want[i]) * (have[i] - want[i]);
        size += want[i] * want[i];
    }
    return isfinite(wrong) ? sqrt(wrong / size) : (double)INFINITY;
}

/* Where the tests of the run look for the pair. */
static sw_device **run_gpu;
static sw_solver **run_solver;

static int open_pair(void **state)
{
    (void)state;
    return solver_pair_open(run_gpu, run_solver);
}

static int close_pair(void **state)
{
    (void)state;
    return solver_pair_close(*run_gpu, *run_solver);
}

int solver_tests_run(const struct CMUnitTest *tests, size_t n, const char *pattern,
                     sw_device **gpu, sw_solver **solver)
{
    if (sw_device_count() < 1) {
        printf("skipped: no GPU\n");
        return 77;
    }
    run_gpu = gpu;
    run_solver = solver;
    if (pattern) cmocka_set_test_filter(pattern);
    return _cmocka_run_group_tests("tests", tests, n, open_pair, close_pair);
}
