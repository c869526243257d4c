/* test_gemm_blocks.c - products of weights whose scales 128 channels share with inputs that have a
 * scale for each 128: kernels that multiply these scales before the sums.
 * Exit 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/gpu/support/gpu_case.h"

#define BF SW_DTYPE_BF16
#define HF SW_DTYPE_F16
#define FF SW_DTYPE_F32

typedef struct shape {
    int64_t m, n_out, k_in, y_gap;
    int n_sms;
    sw_dtype dtype, scale_dtype;
    bool is_exact, is_shared; /* by two clusters, which add in another order */
} shape;

static gpu_shape shape_of(const shape *a, uint64_t seed)
{
    gpu_shape s = {.m = a->m, .n_out = a->n_out, .k_in = a->k_in, .group_elems = 128,
                   .scale_rows = 128, .num = SW_NUM_E4M3, .dtype = a->dtype,
                   .scale_dtype = a->scale_dtype, .scope = SW_ACT_GROUP, .x_num = SW_NUM_E4M3,
                   .y_gap = a->y_gap, .seed = seed, .is_exact = a->is_exact};
    return s;
}

/* The bytes of Y, which a second run must give again; the caller frees them. */
static uint16_t *run(gpu_case *c, const sw_cuda_plan *plan)
{
    uint16_t *y = malloc(c->y_bytes);

    if (!gpu_case_run(c, plan)) fail_msg("a guard broke or an element is missing");
    if (!(gpu_case_error(c) <= gpu_case_bound(c)))
        fail_msg("%s: error %g at m %lld n %lld k %lld", sw_cuda_kernels[plan->kernel].name,
                 gpu_case_error(c), (long long)c->shape.m, (long long)c->shape.n_out,
                 (long long)c->shape.k_in);
    if (c->shape.is_exact) assert_int_equal(gpu_case_differing(c), 0);
    memcpy(y, c->y, c->y_bytes);
    assert_true(gpu_case_run(c, plan));
    assert_memory_equal(y, c->y, c->y_bytes);
    return y;
}

/* The bytes are those of the kernel that takes any scales, unless a block of Y is shared. */
static void many_tokens(void **state)
{
    static const shape shapes[] = {
        {300, 200, 512, 0, 2, BF, FF, false, false},  /* two blocks that have tokens in common */
        {260, 72, 1000, 8, 4, HF, BF, false, false},  /* the second of a pair has no channels */
        {40, 264, 256, 0, 132, BF, HF, true, false},  /* fewer tokens than a block has */
        {600, 520, 1024, 0, 9, BF, FF, false, true},
        {600, 520, 1280, 0, 9, HF, FF, false, false}, /* halves would have five stages */
        {300, 200, 640, 0, 2, BF, FF, false, false},  /* goes to that kernel too */
        {40, 72, 8704, 0, 2, BF, FF, false, false},   /* scales of W come in three turns */
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shape_of(&shapes[i], 5 + i);
        sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find("w8a8_persistent"), .split = 1,
                             .device = {90, shapes[i].n_sms}, .overlap = true};
        uint16_t *blocks, *any;
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        blocks = run(&c, &plan);
        c.problem.tiles.spec.scale_rows = 0;
        any = run(&c, &plan);
        if (!shapes[i].is_shared) assert_memory_equal(blocks, any, c.y_bytes);
        free(blocks);
        free(any);
        gpu_case_free(&c);
    }
}

/* Every tile of pairs of CTAs: bytes as of the kernel that takes any scales, unless a pair shares
 * k, which adds in another order. */
static void some_hundred_tokens(void **state)
{
    static const shape shapes[] = {
        {200, 200, 640, 0, 132, BF, FF, false, false}, /* an odd number of stages */
        {100, 72, 1000, 4, 132, HF, BF, false, false}, /* the last stage is not whole */
        {140, 264, 2304, 0, 132, BF, HF, true, false}, /* the ring turns over */
        {40, 72, 8576, 0, 132, BF, FF, false, false},  /* 33 stages and more, also of half of k */
    };
    int pairs = sw_cuda_kernel_find("w8a8_two_ctas");

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shape_of(&shapes[i], 25 + i);
        sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find("w8a8_persistent"), .split = 1,
                             .device = {90, 132}, .overlap = true};
        uint16_t *blocks, *any;
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        c.problem.tiles.spec.scale_rows = 0;
        any = run(&c, &plan);
        assert_false(sw_cuda_kernels[pairs].can_run(&c.problem, 0));
        c.problem.tiles.spec.scale_rows = 128;
        plan.kernel = pairs;
        for (plan.tile = 0; plan.tile < *sw_cuda_kernels[pairs].n_tiles; plan.tile++) {
            bool shares_k = sw_cuda_kernels[pairs].tiles[plan.tile].name[0] == 'k';

            blocks = run(&c, &plan);
            if (!shares_k || shapes[i].is_exact) assert_memory_equal(blocks, any, c.y_bytes);
            free(blocks);
        }
        free(any);
        gpu_case_free(&c);
    }
}

/* Every tile that splits k: bytes as with scales that no channels are known to share. */
static void few_tokens(void **state)
{
    static const shape shapes[] = {
        {60, 200, 640, 0, 132, BF, FF, false, false}, /* shares of two stages and three */
        {64, 72, 2280, 4, 132, HF, BF, false, false}, /* the ring turns over */
    };
    int kernel = sw_cuda_kernel_find("w8a8_split_k");

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shape_of(&shapes[i], 45 + i);
        sw_cuda_plan plan = {.kernel = kernel, .device = {90, 132}, .overlap = true};
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        for (; plan.tile < *sw_cuda_kernels[kernel].n_tiles; plan.tile++)
            for (plan.split = 1; plan.split <= 2; plan.split++) {
                uint16_t *of[2];

                for (int k = 0; k < 2; k++) {
                    c.problem.tiles.spec.scale_rows = k ? 128 : 0;
                    of[k] = run(&c, &plan);
                }
                assert_memory_equal(of[0], of[1], c.y_bytes);
                free(of[0]);
                free(of[1]);
            }
        gpu_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_tokens),
                                       cmocka_unit_test(some_hundred_tokens),
                                       cmocka_unit_test(few_tokens)};

    if (!gpu_is_there()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
