/* test_router.c - the experts that the device chooses, and their shares, against plain loops in
 * double; by logits, and by the router's weights. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/device.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"

#define SHARE_ERR 2e-6
#define SHARE_ERR_MULTIPLIED 2e-5 /* where the device's logits are not the reference's */
#define TOKENS 5

static sw_device *gpu;
static sw_launch how;

typedef struct router_case {
    int n_experts, n_used, n_groups, n_groups_used, router;
    bool norm_topk, has_shift, has_scale, has_ties;
    int64_t k_in; /* 0: logits are given */
} router_case;

static const router_case cases[] = {
    {128, 8, 1, 1, SW_ROUTER_SOFTMAX, true, .k_in = 2048},
    {128, 40, 1, 1, SW_ROUTER_SOFTMAX, true, .has_ties = true},
    {8, 2, 1, 1, SW_ROUTER_SOFTMAX, true, .k_in = 4096},
    {60, 4, 1, 1, SW_ROUTER_SOFTMAX, false, .k_in = 72},
    {64, 6, 1, 1, SW_ROUTER_SOFTMAX, true, .has_shift = true, .k_in = 64},
    {64, 6, 1, 1, SW_ROUTER_SOFTMAX, true, .has_scale = true},
    {256, 8, 8, 4, SW_ROUTER_SIGMOID, true, .has_shift = true, .k_in = 7168},
    {256, 8, 8, 4, SW_ROUTER_SIGMOID, true, .has_ties = true},
    {1024, 40, 1, 1, SW_ROUTER_SIGMOID, true, .has_scale = true},
    {33, 33, 1, 1, SW_ROUTER_SQRT_SOFTPLUS, true, .has_shift = true, .k_in = 8},
    {16, 1, 1, 1, SW_ROUTER_INPUT, false, .k_in = 5120},
    {4, 4, 1, 1, SW_ROUTER_SOFTMAX, false, .has_ties = true},
};

static double score_of(const router_case *c, double logit)
{
    if (c->router == SW_ROUTER_SOFTMAX) return exp(logit);
    if (c->router == SW_ROUTER_SQRT_SOFTPLUS) return sqrt(log1p(exp(logit)));
    return 1 / (1 + exp(-logit));
}

/* Does expert i come before j? */
static bool is_before(const double *rank, int i, int j)
{
    return rank[i] > rank[j] || (rank[i] == rank[j] && i < j);
}

/* What is in the best groups by the sum of their two best stays; the others' ranks become -1e9. */
static void keep_groups(const router_case *c, double *rank)
{
    const int size = c->n_experts / c->n_groups;
    double of_group[64];

    for (int g = 0; g < c->n_groups; g++) {
        double one = -INFINITY, two = -INFINITY;

        for (int i = g * size; i < (g + 1) * size; i++) {
            two = fmax(two, fmin(one, rank[i]));
            one = fmax(one, rank[i]);
        }
        of_group[g] = one + two;
    }
    for (int g = 0; g < c->n_groups; g++) {
        int n_better = 0;

        for (int h = 0; h < c->n_groups; h++) n_better += h != g && is_before(of_group, h, g);
        for (int i = g * size; i < (g + 1) * size && n_better >= c->n_groups_used; i++)
            rank[i] = -1e9;
    }
}

/* The experts of one token, the best first, and their shares. */
static void reference(const router_case *c, const float *logits, const float *shift,
                      const float *scale, int32_t *chosen, double *share)
{
    double prob[1024], rank[1024], total = 0, sum = 0;
    const int n = c->n_experts;

    for (int i = 0; i < n; i++) total += prob[i] = score_of(c, (double)logits[i]);
    for (int i = 0; i < n; i++) {
        if (c->router == SW_ROUTER_SOFTMAX) prob[i] /= total;
        rank[i] = prob[i] + (double)(shift ? shift[i] : 0.0f);
        if (c->router == SW_ROUTER_INPUT) rank[i] = (double)logits[i];
        if (c->has_ties) rank[i] = (double)(float)rank[i]; /* as the device sees them */
    }
    if (c->n_groups_used < c->n_groups) keep_groups(c, rank);
    for (int i = 0; i < n; i++) {
        int place = 0;

        for (int j = 0; j < n; j++) place += j != i && is_before(rank, j, i);
        if (place < c->n_used) chosen[place] = i;
    }
    for (int u = 0; u < c->n_used; u++) sum += prob[chosen[u]];
    for (int u = 0; u < c->n_used; u++)
        share[u] = prob[chosen[u]] / (c->norm_topk ? sum : 1) *
                   (double)(scale ? scale[chosen[u]] : 1.0f);
}

typedef struct router_run {
    sw_route_args a;
    float *logits, *shift, *scale; /* the host's */
} router_run;

static float *random_floats(int64_t n, double size, uint64_t seed)
{
    float *v = malloc(4 * (size_t)n);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) v[i] = (float)(size * test_gauss(&rng));
    return v;
}

/* Logits of x [TOKENS, k_in] by w [n_experts, k_in], in double. */
static void multiply(float *logits, const float *x, const float *w, const float *bias,
                     const router_case *c)
{
    for (int64_t at = 0; at < (int64_t)TOKENS * c->n_experts; at++) {
        const float *row = x + at / c->n_experts * c->k_in, *of = w + at % c->n_experts * c->k_in;
        double sum = (double)bias[at % c->n_experts];

        for (int64_t k = 0; k < c->k_in; k++) sum += (double)row[k] * (double)of[k];
        logits[at] = (float)sum;
    }
}

static void give_weights(router_run *r, const router_case *c)
{
    const int64_t n_x = TOKENS * c->k_in, n_w = c->n_experts * c->k_in;
    float *x = malloc(4 * (size_t)n_x), *w = malloc(4 * (size_t)n_w);
    float *bias = random_floats(c->n_experts, 0.1, 7);

    r->a.x = (sw_bf16_rows){device_random_rows(gpu, x, n_x, 1, 1), c->k_in};
    r->a.w = device_random_rows(gpu, w, n_w, 2 / sqrt((double)c->k_in), 2);
    r->a.bias = device_copy(gpu, bias, c->n_experts * 4);
    r->a.k_in = c->k_in;
    multiply(r->logits, x, w, bias, c);
    if (!sw_cuda_route_can_multiply(TOKENS, c->k_in)) r->a.w = NULL; /* then of the logits */
    free(x), free(w), free(bias);
}

static router_run new_run(const router_case *c)
{
    const int64_t n = (int64_t)TOKENS * c->n_experts, n_used = (int64_t)TOKENS * c->n_used;
    router_run r = {.logits = random_floats(n, 2, 11),
                    .shift = c->has_shift ? random_floats(c->n_experts, 0.3, 12) : NULL,
                    .scale = c->has_scale ? random_floats(c->n_experts, 1, 13) : NULL};
    int32_t *zeros = calloc((size_t)n_used, 4);

    for (int64_t i = 0; i < n && c->has_ties; i++) r.logits[i] = (float)(i * 7 % 8 / 2);
    r.a = (sw_route_args){.n = TOKENS, .n_experts = c->n_experts, .n_used = c->n_used,
                          .n_groups = c->n_groups, .n_groups_used = c->n_groups_used,
                          .router = c->router, .norm_topk = c->norm_topk, .logit_scale = 1,
                          .route_scale = 1};
    r.a.chosen = device_copy(gpu, zeros, n_used * 4);
    r.a.share = device_copy(gpu, zeros, n_used * 4);
    if (c->router == SW_ROUTER_INPUT) r.a.in_share = device_copy(gpu, zeros, n_used * 4);
    if (r.shift) r.a.shift = device_copy(gpu, r.shift, c->n_experts * 4);
    if (r.scale) r.a.expert_scale = device_copy(gpu, r.scale, c->n_experts * 4);
    if (c->k_in) give_weights(&r, c);
    if (!r.a.w) r.a.logits = device_copy(gpu, r.logits, n * 4);
    free(zeros);
    return r;
}

static void compare(const router_run *r, const router_case *c)
{
    const int64_t n = (int64_t)TOKENS * c->n_used * 4;
    int32_t *have = malloc((size_t)n), want[1024];
    float *have_share = malloc((size_t)n);
    const double limit = r->a.w ? SHARE_ERR_MULTIPLIED : SHARE_ERR;
    double share[1024];

    MUST(sw_device_download(gpu, have, r->a.chosen, n, err));
    MUST(sw_device_download(gpu, have_share, r->a.in_share ? r->a.in_share : r->a.share, n, err));
    for (int t = 0; t < TOKENS; t++) {
        reference(c, r->logits + t * c->n_experts, r->shift, r->scale, want, share);
        for (int u = 0; u < c->n_used; u++) {
            const int at = t * c->n_used + u;
            const double got = (double)have_share[at];

            if (have[at] != want[u])
                fail_msg("%d experts, token %d: place %d is %d, want %d", c->n_experts, t, u,
                         have[at], want[u]);
            if (!(fabs(got - share[u]) <= limit * (1 + fabs(share[u]))))
                fail_msg("%d experts, token %d: share %d is %.9g, want %.9g", c->n_experts, t, u,
                         got, share[u]);
        }
    }
    free(have), free(have_share);
}

static void free_run(router_run *r) { free(r->logits), free(r->shift), free(r->scale); }

static void test_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        router_run r = new_run(&cases[i]);

        MUST(sw_cuda_route(&r.a, how, err));
        compare(&r, &cases[i]);
        free_run(&r);
    }
}

/* Of logits that are no numbers, and where the shift is none, experts differ and are there. */
static void test_not_finite(void **state)
{
    const router_case plain = {256, 8, 1, 1, SW_ROUTER_SIGMOID, true, .has_shift = true};

    (void)state;
    for (int where = 0; where < 2; where++) {
        router_run r = new_run(&plain);
        int32_t have[TOKENS * 8];

        for (int i = 0; i < 256; i += 3) (where ? r.shift : r.logits)[i] = NAN;
        r.a.logits = device_copy(gpu, r.logits, TOKENS * 256 * 4);
        r.a.shift = device_copy(gpu, r.shift, 256 * 4);
        MUST(sw_cuda_route(&r.a, how, err));
        MUST(sw_device_download(gpu, have, r.a.chosen, sizeof have, err));
        for (int i = 0; i < TOKENS * 8; i++) {
            assert_in_range(have[i], 0, 255);
            for (int j = i / 8 * 8; j < i; j++) assert_int_not_equal(have[i], have[j]);
        }
        free_run(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_not_finite)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    failed = cmocka_run_group_tests_name("router", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
