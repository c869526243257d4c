/* test_gemm_blocks.c - products of weights whose scales 128 channels share with inputs that have a
 * scale for each 128: kernels that multiply these scales before the sums, and codes in the order of
 * columns, of int8 with scales of channels too.
 * Exit 77 without a GPU. */
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/gemm/column_tiles.h"
#include "tests/gpu/support/emulated.h"
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

/* Codes in the order of columns from here on. */
static void order(gpu_case *c)
{
    const sw_cuda_device device = {90, 132};
    sw_err err = {0};

    c->problem.tiles.spec.scale_rows = 128;
    assert_int_equal(sw_column_tiles_order(&c->problem.tiles, &c->problem.act, &device, NULL, &err),
                     SW_OK);
    assert_true(c->problem.tiles.in_columns);
}

/* The bytes are those of the kernel that takes any scales, in either order of codes, unless a block
 * of Y is shared. */
static void many_tokens(void **state)
{
    static const shape shapes[] = {
        {300, 200, 512, 0, 2, BF, FF, false, false},  /* two blocks that have tokens in common */
        {260, 72, 1000, 8, 4, HF, BF, false, false},  /* the second of a pair has no channels */
        {40, 264, 256, 0, 132, BF, HF, true, false},  /* fewer tokens than a block has */
        {600, 520, 1024, 0, 9, BF, FF, false, true},
        {600, 520, 1280, 0, 9, HF, FF, false, true},  /* halves of five stages */
        {300, 200, 640, 0, 2, BF, FF, false, false},  /* an odd number of stages */
        {300, 200, 680, 0, 2, BF, FF, false, false},  /* half a stage: goes to that kernel too */
        {40, 72, 8704, 0, 2, BF, FF, false, false},   /* scales of W come in three turns */
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shape_of(&shapes[i], 5 + i);
        sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find("w8a8_persistent"), .split = 1,
                             .device = {90, shapes[i].n_sms}, .overlap = true};
        uint16_t *blocks, *any, *in_columns;
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        any = run(&c, &plan);
        order(&c);
        blocks = run(&c, &plan);
        c.problem.tiles.spec.scale_rows = 0;
        in_columns = run(&c, &plan);
        if (!shapes[i].is_shared) assert_memory_equal(blocks, any, c.y_bytes);
        assert_memory_equal(in_columns, any, c.y_bytes);
        free(blocks);
        free(any);
        free(in_columns);
        gpu_case_free(&c);
    }
}

/* Codes of experts with scales of channels: no product here takes them in columns, and they come
 * back as they were. */
static void codes_come_back(void **state)
{
    const gpu_shape s = {.m = 40, .n_out = 200, .k_in = 320, .num = SW_NUM_E4M3, .dtype = BF,
                         .scale_dtype = BF, .scope = SW_ACT_TOKEN, .x_num = SW_NUM_E4M3};
    const sw_cuda_device device = {90, 132};
    const size_t n_bytes = (size_t)sw_tiles_codes_bytes(&sw_nums[SW_NUM_E4M3], s.n_out, s.k_in);
    uint8_t *was = malloc(n_bytes), *is = malloc(n_bytes), *d_codes;
    sw_cuda_plan plan;
    sw_tiles *tiles;
    sw_err err = {0};
    gpu_case c;

    (void)state;
    gpu_case_new(&c, &s);
    tiles = &c.problem.tiles;
    assert_int_equal(cudaMemcpy(was, tiles->codes, n_bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(sw_column_tiles_order(tiles, &c.problem.act, &device, NULL, &err), SW_OK);
    assert_false(tiles->in_columns);
    assert_int_equal(sw_column_tiles_order_expert(tiles, &c.problem.act, &device, NULL, &err),
                     SW_OK);
    assert_true(tiles->in_columns && sw_column_tiles_are_experts(tiles));
    assert_int_equal(sw_cuda_gemm_plan(&plan, &c.problem, &device, NULL, &err), SW_E_UNSUPPORTED);
    assert_int_equal(cudaMemcpy(is, tiles->codes, n_bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_memory_not_equal(is, was, n_bytes);
    assert_int_equal(cudaMalloc((void **)&d_codes, n_bytes), cudaSuccess);
    assert_int_equal(sw_column_tiles_undo(d_codes, tiles, NULL, &err), SW_OK);
    assert_int_equal(cudaMemcpy(is, d_codes, n_bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_memory_equal(is, was, n_bytes);
    assert_int_equal(cudaFree(d_codes), cudaSuccess);
    gpu_case_free(&c);
    free(was);
    free(is);
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
        {130, 712, 1536, 0, 132, BF, FF, false, false}, /* tiles that meet three blocks of scales */
        {90, 456, 896, 0, 132, HF, FF, true, false},   /* the second of a pair has no channels */
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
        order(&c);
        plan.kernel = pairs;
        for (plan.tile = 0; plan.tile < *sw_cuda_kernels[pairs].n_tiles; plan.tile++) {
            bool shares_k = sw_cuda_kernels[pairs].tiles[plan.tile].name[0] == 'k';

            if (!sw_cuda_kernels[pairs].can_run(&c.problem, plan.tile)) continue;
            blocks = run(&c, &plan);
            if (!shares_k || shapes[i].is_exact) assert_memory_equal(blocks, any, c.y_bytes);
            free(blocks);
        }
        free(any);
        gpu_case_free(&c);
    }
}

/* Blocks of Y of int8 with tokens as rows: bytes as of the kernel that has channels as rows. */
static void integers(void **state)
{
    static const shape shapes[] = {
        {300, 200, 512, 0, 2, BF, FF, false, false},   /* two blocks that have tokens in common */
        {260, 72, 1024, 8, 4, HF, BF, false, false},   /* the second of a pair has no channels */
        {40, 264, 256, 0, 132, BF, HF, true, false},   /* fewer tokens than a block has */
        {140, 264, 1024, 0, 9, BF, FF, false, false},  /* all blocks are shared */
        {600, 520, 1024, 0, 9, BF, FF, false, false},  /* some are */
        {600, 520, 1280, 0, 9, HF, FF, false, false},  /* halves of five stages */
        {300, 200, 640, 0, 2, BF, BF, true, false},    /* an odd number of stages */
        {700, 392, 128, 0, 2, BF, HF, false, false},   /* blocks of one stage, one after another */
        {300, 200, 640, 4, 2, BF, FF, false, false},   /* goes to a kernel of channels as rows */
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shape_of(&shapes[i], 65 + i);
        sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find("w8a8_persistent"), .split = 1,
                             .device = {90, shapes[i].n_sms}, .overlap = true};
        uint16_t *rows, *columns;
        gpu_case c;

        if (DEVICE_IS_EMULATED && s.m * s.n_out * s.k_in > 40 << 20) continue;
        s.num = s.x_num = SW_NUM_INT8;
        s.scope = SW_ACT_TOKEN;
        s.group_elems = s.scale_rows = 0;
        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        free(run(&c, &plan)); /* as stored: by fp32 sums of stages */
        assert_true(gpu_case_order(&c));
        rows = run(&c, &plan);
        plan.kernel = sw_cuda_kernel_find("w8a8_split_k");
        columns = run(&c, &plan);
        assert_memory_equal(rows, columns, c.y_bytes);
        free(rows);
        free(columns);
        gpu_case_free(&c);
    }
}

#define SPLITS 2

/* Y of every tile that splits k, each with up to SPLITS CTAs a cluster. */
static void run_all(uint16_t **y, gpu_case *c, int kernel)
{
    sw_cuda_plan plan = {.kernel = kernel, .device = {90, 132}, .overlap = true};

    for (; plan.tile < *sw_cuda_kernels[kernel].n_tiles; plan.tile++)
        for (plan.split = 1; plan.split <= SPLITS; plan.split++) *y++ = run(c, &plan);
}

/* Every tile that splits k: bytes as with scales that no channels are known to share, and as with
 * codes in tiles. */
static void few_tokens(void **state)
{
    static const shape shapes[] = {
        {60, 200, 640, 0, 132, BF, FF, false, false}, /* shares of two stages and three */
        {64, 72, 2280, 4, 132, HF, BF, false, false}, /* the ring turns over */
    };
    int kernel = sw_cuda_kernel_find("w8a8_split_k");
    int n = *sw_cuda_kernels[kernel].n_tiles * SPLITS;

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shape_of(&shapes[i], 45 + i);
        uint16_t **y = calloc((size_t)(4 * n), sizeof *y);
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        for (int at = 0; at < 4; at++) {
            if (at == 2) order(&c);
            c.problem.tiles.spec.scale_rows = at % 2 ? 128 : 0;
            run_all(y + at * n, &c, kernel);
        }
        for (int k = n; k < 4 * n; k++) assert_memory_equal(y[k], y[k % n], c.y_bytes);
        for (int k = 0; k < 4 * n; k++) free(y[k]);
        free(y);
        gpu_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_tokens),
                                       cmocka_unit_test(codes_come_back),
                                       cmocka_unit_test(some_hundred_tokens),
                                       cmocka_unit_test(integers),
                                       cmocka_unit_test(few_tokens)};

    if (!gpu_is_there()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
