/* test_expert_lists.c - pairs of tokens and experts that a device lists by expert, against what it
 * was given. Exit 77 without a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/device.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"

static sw_device *gpu;
static sw_launch how;

typedef struct list_case {
    int64_t n_tokens, first_token, stretch;
    int n_used, n_experts;
} list_case;

/* The pairs of an expert and a half, which begin at `at`, against the choices; how many. */
static int64_t check_list(const list_case *c, const int32_t *chosen, const int32_t *tokens,
                          const float *share, int64_t at, int expert, int half)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->n_tokens * c->n_used; i++) {
        const int64_t token = i / c->n_used;
        const int its = c->stretch ? (int)((c->first_token + token) / c->stretch % 2) : 0;

        if (chosen[i] != expert || its != half) continue;
        assert_int_equal(tokens[at + n], token);
        assert_true(share[at + n] == (float)i);
        n++;
    }
    return n;
}

static void check_lists(const list_case *c, test_rng *rng)
{
    const int64_t n = c->n_tokens * c->n_used, n_bytes = 4 * n, count_bytes = 8 * c->n_experts;
    int32_t *chosen = malloc((size_t)n_bytes), *tokens = calloc((size_t)n_bytes, 1), *d[3];
    float *share = malloc((size_t)n_bytes), *d_share[2];
    int32_t *counts = calloc((size_t)count_bytes, 1);
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) { /* different ones, some seldom */
        const double u = test_uniform(rng);

        const int first = (int)(u * u * c->n_experts) / c->n_used * c->n_used;

        chosen[i] = (int32_t)(first + i % c->n_used);
        share[i] = (float)i;
    }
    d[0] = device_copy(gpu, chosen, n_bytes), d[1] = device_copy(gpu, tokens, n_bytes);
    d[2] = device_copy(gpu, counts, count_bytes);
    d_share[0] = device_copy(gpu, share, n_bytes), d_share[1] = device_copy(gpu, share, n_bytes);
    MUST(sw_cuda_list(&(sw_list_args){d[0], d_share[0], d[1], d_share[1], d[2], n, c->first_token,
                                      c->stretch, c->n_used, c->n_experts}, how, err));
    MUST(sw_device_download(gpu, tokens, d[1], n_bytes, err));
    MUST(sw_device_download(gpu, share, d_share[1], n_bytes, err));
    MUST(sw_device_download(gpu, counts, d[2], count_bytes, err));
    for (int i = 0; i < 2 * c->n_experts; i++) {
        assert_int_equal(counts[i], check_list(c, chosen, tokens, share, at, i / 2, i % 2));
        at += counts[i];
    }
    assert_int_equal(at, n);
    free(chosen), free(tokens), free(share), free(counts);
}

static void test_lists(void **state)
{
    static const list_case cases[] = {
        {1, 0, 0, 1, 1}, {7, 0, 0, 2, 4}, {1500, 0, 0, 3, 6}, {1500, 350, 100, 3, 6},
        {2100, (int64_t)1 << 33, 1024, 4, 8}, {4100, 64, 1 << 20, 1, 3},
    };
    test_rng rng = {61};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_lists(&cases[i], &rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    failed = cmocka_run_group_tests_name("lists of experts", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
