/* test_gemm_plan.c - the choice of a device kernel, which needs no device: that every plan can be
 * run, and where problems of some kinds go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"
#include "kernels/cuda_gemm.h"

static const sw_cuda_device h200 = {90, 132};

typedef struct kind {
    sw_num_id num;
    int64_t group_elems;
    bool is_symmetric;
    sw_dtype dtype, scale_dtype;
    sw_act_scope scope;
    sw_num_id x_num;
    int64_t scale_rows; /* of blocks, whose codes lie in columns on the device */
} kind;

#define I4 SW_NUM_INT4
#define I8 SW_NUM_INT8
#define BF SW_DTYPE_BF16
#define HF SW_DTYPE_F16
enum { PLAIN, ZEROS, GROUP_32, HALF, MIXED, CHANNEL, INT8, W8A8, W4A8, FP8, W4A8F, FP8_GROUP,
       FP8_BLOCK, THREE, TWO, TWO_MIXED, N_KINDS };
static const kind kinds[] = {
    [PLAIN] = {I4, 128, true, BF, BF, SW_ACT_NONE, I8},
    [ZEROS] = {I4, 128, false, BF, BF, SW_ACT_NONE, I8},
    [GROUP_32] = {I4, 32, true, BF, BF, SW_ACT_NONE, I8},
    [HALF] = {I4, 64, false, HF, HF, SW_ACT_NONE, I8},
    [MIXED] = {I4, 128, true, BF, HF, SW_ACT_NONE, I8},
    [CHANNEL] = {I4, 0, true, BF, BF, SW_ACT_NONE, I8},
    [INT8] = {I8, 0, true, BF, BF, SW_ACT_NONE, I8},
    [W8A8] = {I8, 0, true, BF, SW_DTYPE_F32, SW_ACT_TOKEN, I8},
    [W4A8] = {I4, 128, true, BF, BF, SW_ACT_TOKEN, I8},
    [FP8] = {SW_NUM_E4M3, 0, true, BF, SW_DTYPE_F32, SW_ACT_TOKEN, SW_NUM_E4M3},
    [W4A8F] = {I4, 128, true, BF, BF, SW_ACT_TOKEN, SW_NUM_E4M3},
    [THREE] = {SW_NUM_INT3, 128, true, BF, BF, SW_ACT_NONE, I8},
    [TWO] = {SW_NUM_INT2, 64, false, BF, BF, SW_ACT_NONE, I8},
    [TWO_MIXED] = {SW_NUM_INT2, 64, false, BF, HF, SW_ACT_NONE, I8},
    [FP8_GROUP] = {SW_NUM_E4M3, 128, true, BF, SW_DTYPE_F32, SW_ACT_GROUP, SW_NUM_E4M3},
    [FP8_BLOCK] = {SW_NUM_E4M3, 128, true, BF, SW_DTYPE_F32, SW_ACT_GROUP, SW_NUM_E4M3, 128},
};

static _Alignas(16) uint8_t d_memory[16]; /* only its address is looked at */

static sw_cuda_gemm problem_of(int which, int64_t k, int64_t n, int64_t m)
{
    const kind *a = &kinds[which];
    int64_t groups = a->group_elems ? (k + a->group_elems - 1) / a->group_elems : 1;
    sw_qspec spec = {.num = &sw_nums[a->num], .is_symmetric = a->is_symmetric,
                     .group_elems = a->group_elems, .scale_dtype = a->scale_dtype,
                     .scale_rows = a->scale_rows};
    sw_cuda_gemm p = {.m = m, .x_stride = k, .y_stride = n, .dtype = a->dtype,
                      .may_overlap = true};

    p.tiles = (sw_tiles){.spec = spec, .n_out = n, .k_in = k, .n_groups = groups, .codes = d_memory,
                         .container_bits = sw_tiles_stored_bits(spec.num),
                         .in_columns = a->scale_rows > 0 || which == W8A8,
                         .is_sign_magnitude = which == W4A8F};
    if (a->scope != SW_ACT_NONE)
        p.act = (sw_act){&sw_nums[a->x_num], a->scope, a->scope == SW_ACT_GROUP ? 128 : 0,
                         SW_DTYPE_F32};
    return p;
}

static sw_cuda_plan plan_of(const sw_cuda_gemm *p, const char *kernel)
{
    sw_cuda_plan plan;
    sw_err err = {0};

    if (sw_cuda_gemm_plan(&plan, p, &h200, kernel, &err)) fail_msg("%s", err.text);
    return plan;
}

/* Kernel and tile of each part can run it, and its channels begin where a block of scales does. */
static void check_plan(int which, const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    const sw_cuda_kernel *kernel = &sw_cuda_kernels[plan->kernel];
    const struct sw_cuda_rest *rest = &plan->rest;

    assert_in_range(plan->tile, 0, *kernel->n_tiles - 1);
    assert_in_range(plan->split, 1, 8);
    if (!kernel->can_run(p, plan->tile))
        fail_msg("%s %s cannot run kind %d, %lld x %lld, %lld tokens", kernel->name,
                 kernel->tiles[plan->tile].name, which, (long long)p->tiles.k_in,
                 (long long)p->tiles.n_out, (long long)p->m);
    if (!rest->from) return;
    assert_in_range(rest->tile, 0, *sw_cuda_kernels[rest->kernel].n_tiles - 1);
    assert_in_range(rest->split, 1, 8);
    assert_true(sw_cuda_kernels[rest->kernel].can_run(p, rest->tile));
    assert_true(rest->from > 0 && rest->from < p->tiles.n_out);
    assert_int_equal(rest->from % (kinds[which].scope == SW_ACT_NONE ? 64 : 128), 0);
}

static void every_plan_can_run(void **state)
{
    static const int64_t sizes[][2] = {{4096, 4096}, {4096, 6144}, {4096, 28672}, {14336, 4096},
                                       {8192, 8192}, {8192, 10240}, {8192, 57344}, {28672, 8192},
                                       {64, 8}, {1000, 330}, {2336, 1}, {512, 320}};
    static const int sms[] = {132, 114, 78, 16};
    int in_two[N_KINDS] = {0};

    (void)state;
    for (int which = 0; which < N_KINDS; which++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int64_t m = 1; m <= 16384; m += 1 + m / 8)
                for (size_t j = 0; j < sizeof sms / sizeof *sms; j++) {
                    const sw_cuda_device device = {90, sms[j]};
                    sw_cuda_gemm p = problem_of(which, sizes[i][0], sizes[i][1], m);
                    sw_cuda_plan plan;
                    sw_err err = {0};

                    if (sw_cuda_gemm_plan(&plan, &p, &device, NULL, &err)) fail_msg("%s", err.text);
                    check_plan(which, &p, &plan);
                    in_two[which] += plan.rest.from > 0;
                }
    for (int which = W8A8; which <= FP8_BLOCK; which++)
        if (which != FP8_GROUP && !in_two[which]) fail_msg("kind %d: none in two launches", which);
}

/* A device, or a slice of one, with few multiprocessors, and kernels that are asked for by name. */
static void few_multiprocessors(void **state)
{
    (void)state;
    for (int which = 0; which < N_KINDS; which++)
        for (int n_sms = 1; n_sms <= 8; n_sms++)
            for (int64_t m = 1; m <= 1024; m *= 2)
                for (int kernel = -1; kernel < sw_cuda_n_kernels; kernel++) {
                    sw_cuda_gemm p = problem_of(which, 1152, 520, m);
                    sw_cuda_device device = {90, n_sms};
                    sw_cuda_plan plan;
                    sw_err err = {0};

                    if (sw_cuda_gemm_plan(&plan, &p, &device,
                                          kernel < 0 ? NULL : sw_cuda_kernels[kernel].name, &err))
                        fail_msg("%s", err.text);
                    assert_in_range(plan.split, 1, 8);
                }
}

static void goes(int which, int64_t k, int64_t n, int64_t m, const char *kernel, const char *tile)
{
    sw_cuda_gemm p = problem_of(which, k, n, m);
    sw_cuda_plan plan = plan_of(&p, NULL);
    const sw_cuda_kernel *have = &sw_cuda_kernels[plan.kernel];

    if (strcmp(have->name, kernel) != 0 || (tile && strcmp(have->tiles[plan.tile].name, tile) != 0))
        fail_msg("kind %d, %lld x %lld, %lld tokens: have %s %s, want %s %s", which, (long long)k,
                 (long long)n, (long long)m, have->name, have->tiles[plan.tile].name, kernel,
                 tile ? tile : "");
}

/* What tests/bench has as the best; a rule that is changed must still give these. */
static void measured_best(void **state)
{
    (void)state;
    goes(PLAIN, 8192, 8192, 1, "w4a16_split_k", "m8_c128");
    goes(PLAIN, 8192, 8192, 8, "w4a16_split_k", "m8_c128");
    goes(PLAIN, 8192, 8192, 16, "w4a16_split_k", "m16_c128");
    goes(PLAIN, 8192, 8192, 32, "w4a16_split_k", "s32_c128");
    goes(PLAIN, 8192, 8192, 48, "w4a16_split_k", "s48_c128");
    goes(PLAIN, 8192, 8192, 64, "w4a16_split_k", "s64_c128");
    goes(PLAIN, 8192, 8192, 128, "w4a16_split_k", "s128_c128");
    goes(PLAIN, 8192, 8192, 256, "w4a16_persistent", "l128_c128");
    goes(PLAIN, 4096, 4096, 1, "w4a16_split_k", "m8_c128");
    goes(PLAIN, 2048, 4096, 64, "w4a16_split_k", "s32_c128");
    goes(PLAIN, 5120, 4096, 64, "w4a16_split_k", "s32_c128"); /* not measured: as its neighbours */
    goes(PLAIN, 7168, 4096, 64, "w4a16_split_k", "s64_c128");
    goes(PLAIN, 7168, 4096, 1, "w4a16_split_k", "m8_c128x3");
    goes(PLAIN, 8192, 57344, 1, "w4a16_split_k", "m8_c128");
    goes(PLAIN, 8192, 10240, 1, "w4a16_split_k", "m8_c128x3");
    goes(PLAIN, 8192, 10240, 16, "w4a16_split_k", "m16_c128k1");
    goes(PLAIN, 8192, 57344, 32, "w4a16_split_k", "s32_c128");
    goes(PLAIN, 8192, 10240, 64, "w4a16_split_k", "s64_c192");
    goes(PLAIN, 8192, 57344, 256, "w4a16_persistent", "l128_c256");
    goes(PLAIN, 28672, 8192, 256, "w4a16_persistent", "l128_c128");
    goes(PLAIN, 8192, 8192, 512, "w4a16_persistent", "l128_c256");
    goes(PLAIN, 8192, 8192, 1024, "w4a16_persistent", "p128_c256");
    goes(PLAIN, 8192, 8192, 4096, "w4a16_persistent", "p128_c256");
    goes(PLAIN, 8192, 8320, 4096, "w4a16_persistent", "l128_c256"); /* half a pair is idle */
    goes(PLAIN, 4096, 28672, 4096, "w4a16_persistent", "p128_c256");
    goes(PLAIN, 4096, 4096, 512, "w4a16_persistent", "l128_c128");
    goes(PLAIN, 4096, 4096, 1024, "w4a16_persistent", "p128_c256");
    goes(PLAIN, 4096, 6144, 512, "w4a16_persistent", "l128_c192");
    goes(PLAIN, 4096, 28672, 512, "w4a16_persistent", "l128_c256");
    goes(PLAIN, 4096, 6144, 1024, "w4a16_persistent", "l128_c192");
    goes(PLAIN, 14336, 4096, 512, "w4a16_persistent", "l128_c128");
    goes(PLAIN, 14336, 4096, 1024, "w4a16_persistent", "p128_c256");
    goes(INT8, 8192, 8192, 1024, "w8a16_split_k", NULL);
    goes(FP8, 8192, 8192, 4096, "w8a8_persistent", NULL);
    goes(FP8, 8192, 8192, 8192, "cublaslt_fp8", "rows");
    goes(FP8_GROUP, 4096, 28672, 256, "w8a8_persistent", NULL);
    goes(FP8, 8192, 8192, 8200, "w8a8_persistent", NULL); /* cuBLASLt wants sixteens */
}

/* The same of 8-bit inputs for up to 8 tokens. */
static void measured_best_of_few(void **state)
{
    (void)state;
    goes(W8A8, 8192, 8192, 1, "w8a8_split_k", "t16_deep");
    goes(FP8, 4096, 4096, 8, "w8a8_split_k", "t16_deep");
    goes(FP8, 4096, 28672, 4, "w8a8_split_k", "t16_c128");
    goes(W4A8F, 4096, 6144, 1, "w8a8_split_k", "t16_c128");
    goes(FP8_BLOCK, 8192, 8192, 8, "w8a8_split_k", "t16_deep");
    goes(FP8_BLOCK, 4096, 28672, 1, "w8a8_split_k", "t16_c128");
    goes(FP8_GROUP, 14336, 4096, 1, "w8a8_split_k", "t16_c128");
    goes(W4A8, 4096, 6144, 1, "w8a8_split_k", "t16_c128");
    goes(W4A8, 8192, 8192, 1, "mma_sync", NULL);
    goes(W4A8, 14336, 4096, 4, "w8a8_split_k", "t16_c128");
    goes(W4A8, 28672, 8192, 1, "mma_sync", NULL);
    goes(W4A8, 14336, 4096, 8, "w8a8_split_k", "t16_c128");
    goes(W4A8, 8192, 57344, 8, "w8a8_split_k", "t16_c128");
}

/* The same of 8-bit inputs, with the split, whether the product starts before X is quantized, and
 * what a second launch has: picks that were also the best of those timed. */
#define SPLIT "w8a8_split_k"
#define PAIRS "w8a8_two_ctas"
#define STAYS "w8a8_persistent"
static const struct {
    int which;
    int64_t k, n, m;
    const char *kernel, *tile;
    int split;
    bool starts_early;
    struct {
        int64_t from;
        const char *kernel, *tile;
        int split;
    } rest;
} best_of_bytes[] = {
    {FP8, 2048, 12288, 16, SPLIT, "t16_deep", 1, true, {0}},
    {FP8, 4096, 28672, 16, SPLIT, "t16_c128", 1, true, {0}},
    {FP8, 14336, 4096, 32, SPLIT, "t32_deep", 3, true, {0}},
    {FP8, 4096, 28672, 48, SPLIT, "t64_c128", 1, true, {0}},
    {FP8, 4096, 4096, 64, PAIRS, "k64_c64", 1, true, {0}},
    {FP8, 8192, 10240, 64, SPLIT, "t64_deep", 1, true, {0}},
    {FP8, 3584, 37888, 128, PAIRS, "x128_c128", 1, true, {33792, PAIRS, "k128_c64", 1}},
    {FP8, 8192, 10240, 128, PAIRS, "x128_c128", 1, true, {0}},
    {FP8, 14336, 4096, 128, PAIRS, "k128_c64", 1, true, {0}},
    {FP8, 2048, 4096, 200, PAIRS, "x128_c64", 1, true, {0}},
    {FP8, 14336, 4096, 256, PAIRS, "k128_c128", 1, false, {0}},
    {FP8, 4096, 4096, 512, PAIRS, "w128_c128", 1, true, {0}},
    {FP8, 28672, 8192, 768, STAYS, "t256_c128", 1, false, {0}},
    {W8A8, 5120, 51200, 16, SPLIT, "t16_c128", 1, true, {0}},
    {W8A8, 12288, 4096, 16, SPLIT, "t16_deep", 3, true, {0}},
    {W8A8, 14336, 4096, 32, SPLIT, "t32_deep", 3, true, {0}},
    {W8A8, 4096, 28672, 48, SPLIT, "t64_c128", 1, true, {0}},
    {W8A8, 14336, 4096, 64, SPLIT, "t64_deep", 3, true, {0}},
    {W8A8, 3584, 37888, 128, PAIRS, "x128_c128", 1, true, {33792, PAIRS, "k128_c64", 1}},
    {W8A8, 8192, 10240, 128, PAIRS, "x128_c128", 1, true, {0}},
    {W8A8, 14336, 4096, 128, PAIRS, "k128_c64", 1, true, {0}},
    {W8A8, 2048, 4096, 200, PAIRS, "x128_c64", 1, true, {0}},
    {W8A8, 8192, 10240, 224, STAYS, "t256_c128", 1, false, {8448, PAIRS, "k128_c64", 1}},
    {W8A8, 14336, 4096, 256, PAIRS, "k128_c128", 1, false, {0}},
    {W8A8, 14336, 4096, 384, STAYS, "t256_c128", 1, false, {0}},
    {W8A8, 4096, 4096, 512, PAIRS, "w128_c128", 1, true, {0}},
    {FP8_BLOCK, 5120, 51200, 16, SPLIT, "t16_c128", 1, true, {0}},
    {FP8_BLOCK, 3584, 37888, 32, PAIRS, "r64_c320", 1, true, {0}},
    {FP8_BLOCK, 4096, 6144, 32, PAIRS, "r64_c64", 1, true, {0}},
    {FP8_BLOCK, 28672, 8192, 32, SPLIT, "t32_deep", 2, true, {0}},
    {FP8_BLOCK, 8192, 10240, 48, PAIRS, "r64_c96", 1, true, {0}},
    {FP8_BLOCK, 28672, 8192, 64, PAIRS, "k64_c64", 1, true, {0}},
    {FP8_BLOCK, 7168, 18432, 64, PAIRS, "r64_c160", 1, true, {0}},
    {FP8_BLOCK, 8192, 57344, 64, PAIRS, "r64_c224", 1, true, {0}},
    {FP8_BLOCK, 3584, 37888, 128, PAIRS, "r128_c160", 1, true, {0}},
    {FP8_BLOCK, 7168, 18432, 128, PAIRS, "r128_c160", 1, true, {0}},
    {FP8_BLOCK, 8192, 8192, 128, PAIRS, "r128_c64", 1, true, {0}},
    {FP8_BLOCK, 4096, 28672, 128, PAIRS, "r128_c224", 1, true, {0}},
    {FP8_BLOCK, 8192, 10240, 128, PAIRS, "r128_c80", 1, true, {0}},
    {FP8_BLOCK, 14336, 4096, 128, PAIRS, "k128_c64", 1, true, {0}},
    {FP8_BLOCK, 2048, 4096, 200, PAIRS, "v128_c64", 1, true, {0}},
    {FP8_BLOCK, 7168, 4096, 200, PAIRS, "v128_c64", 1, false, {0}},
    {FP8_BLOCK, 8192, 10240, 200, PAIRS, "v128_c160", 1, false, {0}},
    {FP8_BLOCK, 4096, 6144, 256, PAIRS, "v128_c96", 1, true, {0}},
    {FP8_BLOCK, 14336, 4096, 384, STAYS, "t256_c128", 1, false, {0}},
    {FP8_BLOCK, 4096, 4096, 512, PAIRS, "w128_c128", 1, true, {0}},
    {W4A8, 5120, 51200, 16, SPLIT, "t16_c128", 1, true, {0}},
    {W4A8, 3584, 4608, 32, SPLIT, "t32_deep", 3, true, {0}},
    {W4A8, 28672, 8192, 64, PAIRS, "k64_c64", 1, true, {0}},
    {W4A8, 8192, 10240, 96, SPLIT, "t32_c128", 1, true, {0}},
    {W4A8, 4096, 28672, 112, PAIRS, "x128_c128", 1, true, {0}},
    {W4A8, 8192, 10240, 112, PAIRS, "k128_c128", 1, true, {8448, PAIRS, "k64_c64", 1}},
    {W4A8, 8192, 10240, 160, SPLIT, "t64_c128", 1, false, {0}},
    {W4A8, 2048, 4096, 200, PAIRS, "x128_c64", 1, true, {0}},
    {W4A8, 3584, 37888, 256, STAYS, "t256_c128", 1, true, {33792, PAIRS, "k128_c128", 1}},
    {W4A8, 5120, 51200, 256, STAYS, "t256_c128", 1, false, {50688, PAIRS, "k64_c64", 1}},
    {W4A8, 14336, 4096, 256, PAIRS, "k128_c128", 1, false, {0}},
    {W4A8, 14336, 4096, 384, SPLIT, "t256_c128", 2, false, {0}},
    {W4A8, 4096, 4096, 512, PAIRS, "w128_c128", 1, true, {0}},
    {W4A8F, 5120, 51200, 16, SPLIT, "t16_c128", 1, true, {0}},
    {W4A8F, 8192, 10240, 32, SPLIT, "t32_c128", 2, true, {0}},
    {W4A8F, 28672, 8192, 32, SPLIT, "t32_deep", 2, true, {0}},
    {W4A8F, 4096, 28672, 48, SPLIT, "t64_c128", 1, true, {0}},
    {W4A8F, 8192, 10240, 64, PAIRS, "k64_c64", 1, true, {0}},
    {W4A8F, 8192, 10240, 96, PAIRS, "x128_c128", 1, true, {0}},
    {W4A8F, 4096, 28672, 112, PAIRS, "x128_c128", 1, true, {0}},
    {W4A8F, 3584, 4608, 128, SPLIT, "t128_c128", 3, true, {0}},
    {W4A8F, 14336, 4096, 128, PAIRS, "k64_c64", 1, true, {0}},
    {W4A8F, 4096, 6144, 200, PAIRS, "w128_c128", 1, true, {0}},
    {W4A8F, 14336, 4096, 224, PAIRS, "k128_c128", 1, false, {0}},
    {W4A8F, 14336, 4096, 256, PAIRS, "k128_c128", 1, false, {0}},
    {W4A8F, 4096, 4096, 512, PAIRS, "w128_c128", 1, true, {0}},
    {W4A8F, 4096, 28672, 256, STAYS, "t256_c128", 1, true, {0}},
    {W4A8F, 8192, 8192, 1024, STAYS, "t256_c128", 1, false, {0}},
};

static void measured_best_of_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof best_of_bytes / sizeof *best_of_bytes; i++) {
        const int64_t k = best_of_bytes[i].k, n = best_of_bytes[i].n, m = best_of_bytes[i].m;
        sw_cuda_gemm p = problem_of(best_of_bytes[i].which, k, n, m);
        const sw_cuda_plan plan = plan_of(&p, NULL);
        const sw_cuda_kernel *last = &sw_cuda_kernels[plan.rest.kernel];

        goes(best_of_bytes[i].which, k, n, m, best_of_bytes[i].kernel, best_of_bytes[i].tile);
        if (plan.split != best_of_bytes[i].split ||
            plan.starts_early != best_of_bytes[i].starts_early ||
            plan.rest.from != best_of_bytes[i].rest.from)
            fail_msg("row %zu: split %d, %s, rest from %lld", i, plan.split,
                     plan.starts_early ? "early" : "late", (long long)plan.rest.from);
        if (!plan.rest.from) continue;
        assert_string_equal(last->name, best_of_bytes[i].rest.kernel);
        assert_string_equal(last->tiles[plan.rest.tile].name, best_of_bytes[i].rest.tile);
        assert_int_equal(plan.rest.split, best_of_bytes[i].rest.split);
    }
}

/* The same of 65 to 512 tokens and 4 bits, with the split, and with the tile and the split of the
 * last channels where those are computed by a second launch: what leaves the busiest multiprocessor
 * the least. */
static const struct {
    int64_t k, n, m_min, m_max;
    const char *tile;
    int split;
    struct {
        int64_t from;
        const char *tile;
        int split;
    } rest;
} best_of_many[] = {
    {4096, 6144, 65, 80, "s80_c128", 2, {0}}, {4096, 6144, 81, 104, "s104_c128", 2, {0}},
    {4096, 6144, 105, 128, "s128_c128", 2, {0}}, {4096, 6144, 129, 160, "s80_c192", 2, {0}},
    {4096, 6144, 161, 208, "s104_c192", 2, {0}}, {4096, 6144, 209, 256, "s128_c192", 2, {0}},
    {4096, 6144, 257, 320, "s160_c192", 2, {0}}, {4096, 6144, 321, 384, "s192_c192", 2, {0}},
    {8192, 10240, 65, 80, "s80_c192", 2, {0}}, {8192, 10240, 81, 104, "s104_c192", 2, {0}},
    {8192, 10240, 105, 128, "s128_c192", 2, {0}}, {8192, 10240, 129, 160, "s160_c192", 2, {0}},
    {8192, 10240, 161, 192, "s192_c192", 2, {0}}, {8192, 10240, 193, 208, "s104_c192", 1, {0}},
    {8192, 10240, 209, 256, "l128_c192", 1, {0}}, {8192, 10240, 321, 384, "l128_c256", 1, {0}},
    {8192, 8192, 65, 80, "s80_c128", 2, {0}}, {8192, 8192, 81, 104, "s104_c128", 2, {0}},
    {8192, 8192, 105, 128, "s128_c128", 2, {0}}, {8192, 8192, 129, 160, "s160_c128", 2, {0}},
    {8192, 8192, 161, 208, "s208_c128", 2, {0}}, {8192, 8192, 209, 256, "l128_c128", 1, {0}},
    {8192, 8192, 257, 320, "s160_c128", 1, {0}}, {8192, 8192, 321, 384, "l128_c192", 1, {0}},
    {28672, 8192, 65, 80, "s80_c128", 2, {0}}, {28672, 8192, 81, 104, "s104_c128", 2, {0}},
    {28672, 8192, 105, 128, "s128_c128", 2, {0}}, {28672, 8192, 129, 160, "s160_c128", 2, {0}},
    {28672, 8192, 161, 208, "s208_c128", 2, {0}}, {28672, 8192, 209, 256, "l128_c128", 1, {0}},
    {28672, 8192, 257, 320, "s160_c128", 1, {0}}, {28672, 8192, 321, 384, "l128_c192", 1, {0}},
    {2048, 4096, 65, 128, "s64_c128", 2, {0}}, {2048, 4096, 129, 160, "s80_c128", 2, {0}},
    {2048, 4096, 161, 256, "l128_c128", 1, {0}},
    {4096, 4096, 65, 80, "s80_c128", 3, {0}}, {4096, 4096, 81, 128, "s64_c128", 2, {0}},
    {4096, 4096, 129, 160, "s80_c128", 2, {0}}, {4096, 4096, 161, 208, "s104_c128", 2, {0}},
    {4096, 4096, 209, 256, "s128_c128", 2, {0}}, {7168, 4096, 65, 80, "s80_c128", 3, {0}},
    {7168, 4096, 81, 128, "s64_c128", 2, {0}}, {7168, 4096, 129, 160, "s80_c128", 2, {0}},
    {7168, 4096, 161, 208, "s104_c128", 2, {0}}, {7168, 4096, 209, 256, "s128_c128", 2, {0}},
    {7168, 4096, 257, 320, "s160_c128", 2, {0}}, {7168, 4096, 321, 384, "s128_c192", 2, {0}},
    {14336, 4096, 65, 80, "s80_c192", 5, {0}}, {14336, 4096, 81, 104, "s104_c192", 5, {0}},
    {14336, 4096, 105, 128, "s64_c128", 2, {0}}, {14336, 4096, 129, 160, "s80_c128", 2, {0}},
    {14336, 4096, 161, 208, "s104_c128", 2, {0}}, {14336, 4096, 209, 256, "s128_c128", 2, {0}},
    {14336, 4096, 257, 320, "s160_c128", 2, {0}}, {14336, 4096, 321, 384, "s128_c192", 2, {0}},
    {4096, 28672, 65, 80, "s80_c256", 1, {0}}, {4096, 28672, 105, 128, "s128_c256", 1, {0}},
    {4096, 28672, 321, 384, "l128_c192", 1, {0}}, {8192, 57344, 209, 256, "l128_c256", 1, {0}},
    {8192, 57344, 257, 320, "s160_c128", 1, {0}}, {8192, 57344, 321, 384, "l128_c192", 1, {0}},
    {5120, 5120, 65, 80, "s80_c192", 4, {0}}, {5120, 5120, 81, 104, "s104_c192", 4, {0}},
    {5120, 5120, 105, 128, "s128_c192", 4, {0}}, {5120, 5120, 129, 160, "s80_c192", 2, {0}},
    {5120, 5120, 161, 208, "s104_c192", 2, {0}}, {5120, 5120, 209, 240, "s80_c128", 1, {0}},
    {5120, 5120, 241, 256, "s128_c192", 2, {0}}, {4096, 14336, 65, 80, "s80_c128", 1, {0}},
    {4096, 14336, 81, 104, "s104_c128", 1, {0}}, {4096, 14336, 105, 128, "s128_c128", 1, {0}},
    {4096, 14336, 129, 160, "s160_c128", 1, {0}}, {4096, 14336, 161, 208, "s208_c128", 1, {0}},
    {4096, 14336, 209, 256, "l128_c256", 1, {0}},
    {8192, 10240, 257, 320, "s160_c128", 1, {8448, "s80_c128", 2}},
    {8192, 10240, 385, 416, "s208_c128", 1, {8448, "s104_c128", 2}},
    {8192, 10240, 417, 480, "l128_c192", 1, {6336, "s160_c192", 2}},
    {4096, 28672, 81, 104, "s104_c128", 1, {16896, "s104_c192", 2}},
    {4096, 28672, 129, 160, "s160_c192", 1, {25344, "s80_c128", 2}},
    {4096, 28672, 161, 192, "s192_c192", 1, {25344, "s104_c128", 2}},
    {4096, 28672, 193, 208, "s208_c128", 1, {16896, "s104_c192", 1}},
    {4096, 28672, 209, 256, "l128_c256", 1, {16896, "s128_c192", 1}},
    {4096, 28672, 257, 320, "s160_c192", 1, {25344, "s160_c128", 2}},
    {4096, 28672, 385, 400, "s208_c128", 1, {25344, "s80_c128", 1}},
    {4096, 28672, 401, 416, "s208_c128", 1, {25344, "s208_c128", 2}},
    {4096, 28672, 417, 480, "s160_c192", 1, {25344, "s104_c128", 1}},
    {8192, 57344, 65, 80, "s80_c256", 1, {33792, "s80_c192", 1}},
    {8192, 57344, 81, 104, "s104_c192", 1, {50688, "s104_c128", 2}},
    {8192, 57344, 105, 128, "s128_c256", 1, {33792, "s128_c192", 1}},
    {8192, 57344, 129, 160, "s160_c192", 1, {50688, "s160_c128", 2}},
    {8192, 57344, 161, 192, "s192_c192", 1, {50688, "s192_c192", 3}},
    {8192, 57344, 193, 208, "s208_c128", 1, {50688, "s208_c128", 2}},
};

static void measured_best_of_many(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof best_of_many / sizeof *best_of_many; i++)
        for (int64_t m = best_of_many[i].m_min; m <= best_of_many[i].m_max; m++) {
            sw_cuda_gemm p = problem_of(PLAIN, best_of_many[i].k, best_of_many[i].n, m);
            const sw_cuda_plan plan = plan_of(&p, NULL);

            goes(PLAIN, best_of_many[i].k, best_of_many[i].n, m,
                 best_of_many[i].tile[0] == 'l' ? "w4a16_persistent" : "w4a16_split_k",
                 best_of_many[i].tile);
            assert_int_equal(plan.split, best_of_many[i].split);
            assert_int_equal(plan.rest.from, best_of_many[i].rest.from);
            if (!plan.rest.from) continue;
            assert_string_equal(sw_cuda_kernels[plan.rest.kernel].tiles[plan.rest.tile].name,
                                best_of_many[i].rest.tile);
            assert_int_equal(plan.rest.split, best_of_many[i].rest.split);
        }
}

/* Kinds of weights go to kernels that have them. */
static void kinds_of_weights(void **state)
{
    (void)state;
    goes(ZEROS, 4096, 28672, 1024, "w4a16_persistent",
         "l128_c256"); /* 192 channels: none of these */
    goes(ZEROS, 8192, 8192, 1024, "w4a16_persistent", "l128_c256");
    goes(GROUP_32, 8192, 8192, 1024, "w4a16_persistent", "l128_c256");
    goes(HALF, 8192, 8192, 1024, "w4a16_persistent", "l128_c256");
    goes(CHANNEL, 8192, 8192, 1024, "w4a16_persistent", "p128_c256");
    goes(MIXED, 8192, 8192, 1024, "w4a16_split_k", NULL); /* scales of another type than X */
    goes(ZEROS, 8192, 8192, 1, "w4a16_split_k", "m8_c128");
    goes(ZEROS, 8192, 10240, 1, "w4a16_split_k", "m8_c128");
    goes(ZEROS, 8192, 8192, 16, "w4a16_split_k", "m16_c128");
    goes(ZEROS, 8192, 8192, 64, "w4a16_split_k", "s64_c128");
    goes(GROUP_32, 4096, 4096, 128, "w4a16_split_k", "s64_c128");
    for (int which = ZEROS; which <= MIXED; which++) /* 192 channels: none of these */
        goes(which, 4096, 6144, 256, "w4a16_split_k", which == MIXED ? "t128_c256" : "s128_c128");
    goes(CHANNEL, 4096, 6144, 256, "w4a16_split_k", "s128_c192");
    goes(THREE, 4096, 6144, 256, "w4a16_split_k", "s128_c256");
    goes(HALF, 8192, 57344, 32, "w4a16_split_k", "t32_c128");
    goes(MIXED, 8192, 8192, 64, "w4a16_split_k", "t64_c128");
    goes(CHANNEL, 8192, 8192, 4, "w4a16_split_k", "m8_c128");
}

/* Codes of 2 and 3 bits in their own container, and in that of 4 bits. */
static void narrow_codes(void **state)
{
    sw_cuda_gemm p = problem_of(TWO, 8192, 8192, 1);
    const sw_cuda_device old = {80, 108};
    sw_cuda_plan plan;
    sw_err err = {0};

    (void)state;
    for (int which = THREE; which <= TWO; which++) {
        goes(which, 8192, 8192, 1, "w4a16_split_k", "m8_c128");
        goes(which, 4096, 28672, 16, "w4a16_split_k", "m16_c128");
        goes(which, 8192, 8192, 32, "w4a16_split_k", "t32_c128");
        goes(which, 8192, 8192, 64, "w4a16_split_k", "s64_c128");
        goes(which, 4096, 28672, 128, "w4a16_split_k", "s128_c256");
        goes(which, 8192, 8192, 1024, "w4a16_persistent",
             which == TWO ? "l128_c256" : "p128_c256"); /* pairs: no zero points */
    }
    goes(TWO_MIXED, 8192, 8192, 1024, "w4a16_split_k", "t64_c128");
    assert_int_equal(sw_cuda_gemm_plan(&plan, &p, &old, NULL, &err), SW_E_UNSUPPORTED);
    p.tiles.container_bits = 4;
    assert_int_equal(sw_cuda_gemm_plan(&plan, &p, &old, NULL, &err), SW_OK);
    assert_string_equal(sw_cuda_kernels[plan.kernel].name, "mma_sync");
}

/* Whole rounds of blocks, and what is left of them: shared where that is half a round or less. */
static void rounds_of_blocks(void **state)
{
    static const struct {
        int64_t blocks, clusters, stages, n_whole, n_clusters;
    } want[] = {
        {132, 66, 64, 132, 66}, {133, 66, 64, 132, 66}, {165, 66, 64, 132, 66},
        {166, 66, 64, 166, 66}, {33, 66, 64, 0, 66},    {34, 66, 64, 34, 34},
        {1, 66, 64, 0, 2},      {1, 66, 8, 0, 2},       {1, 66, 6, 1, 1},
        {1, 66, 9, 1, 1},       {1, 66, 0, 1, 1},       {5, 1, 64, 5, 1},
        {9, 4, 64, 8, 4},       {11, 4, 64, 11, 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        w8a8_rounds have = sw_w8a8_rounds_of(want[i].blocks, want[i].clusters, want[i].stages);

        if (have.n_whole != want[i].n_whole || have.n_clusters != want[i].n_clusters)
            fail_msg("row %zu: have %lld blocks and %lld clusters", i, (long long)have.n_whole,
                     (long long)have.n_clusters);
    }
}

static void refuses_what_it_cannot(void **state)
{
    sw_cuda_gemm p = problem_of(PLAIN, 96, 64, 1), fp8_inputs = problem_of(W4A8F, 4096, 64, 64);
    const sw_cuda_device old = {75, 72}, ampere = {80, 108};
    sw_cuda_plan plan;
    sw_err err = {0};

    (void)state;
    p.tiles.spec.group_elems = 96;
    assert_int_equal(sw_cuda_gemm_plan(&plan, &p, &h200, NULL, &err), SW_E_UNSUPPORTED);
    p.tiles.spec.group_elems = 32;
    assert_int_equal(sw_cuda_gemm_plan(&plan, &p, &old, NULL, &err), SW_E_UNSUPPORTED);
    /* the zero point of symmetric 3-bit codes is not that of a container of 4 */
    p.tiles.spec.num = &sw_nums[SW_NUM_INT3];
    assert_int_equal(sw_cuda_gemm_plan(&plan, &p, &h200, NULL, &err), SW_E_UNSUPPORTED);
    /* codes as signs and magnitudes are for products of bytes on Hopper, others for mma.sync */
    assert_true(sw_cuda_gemm_plan(&plan, &fp8_inputs, &ampere, NULL, &err) == SW_E_UNSUPPORTED);
    fp8_inputs.tiles.is_sign_magnitude = false;
    assert_int_equal(sw_cuda_gemm_plan(&plan, &fp8_inputs, &h200, NULL, &err), SW_OK);
    assert_string_equal(sw_cuda_kernels[plan.kernel].name, "mma_sync");
    p.tiles.spec.num = &sw_nums[SW_NUM_INT4];
    p.tiles.spec.scale_dtype = SW_DTYPE_F16;
    plan.kernel = sw_cuda_kernel_find("w4a16_split_k");
    plan.tile = 0; /* weights are scaled before the product: scales must be of the type of X */
    while (!sw_cuda_kernels[plan.kernel].tiles[plan.tile].is_scaled) plan.tile++;
    assert_int_equal(sw_cuda_gemm_run(&p, &plan, NULL, NULL, &err), SW_E_UNSUPPORTED);
}

/* Rows of Y that the copy engine cannot store are left to others, and a name that is asked for is
 * taken where it can run. */
static void what_else_decides(void **state)
{
    sw_cuda_gemm p = problem_of(PLAIN, 8192, 8192, 1024), odd = p, moved = p;

    (void)state;
    odd.y_stride += 4;
    moved.d_y = d_memory + 2;
    assert_string_equal(sw_cuda_kernels[plan_of(&odd, NULL).kernel].name, "w4a16_split_k");
    assert_string_equal(sw_cuda_kernels[plan_of(&moved, NULL).kernel].name, "w4a16_split_k");
    assert_string_equal(sw_cuda_kernels[plan_of(&p, "w4a16_split_k").kernel].name, "w4a16_split_k");
    assert_string_equal(sw_cuda_kernels[plan_of(&p, "w8a8_persistent").kernel].name,
                        "w4a16_persistent");
}

static bool is_same(const sw_cuda_plan *a, const sw_cuda_plan *b)
{
    return a->kernel == b->kernel && a->tile == b->tile && a->split == b->split &&
           a->starts_early == b->starts_early && a->rest.from == b->rest.from &&
           a->rest.kernel == b->rest.kernel && a->rest.tile == b->rest.tile &&
           a->rest.split == b->rest.split;
}

/* What is known of scales chooses the instance of a tile, not the tile, so that a plan made before
 * the scales are looked at is good after. */
static void scales_change_no_plan(void **state)
{
    (void)state;
    for (int which = 0; which < N_KINDS; which++)
        for (int64_t m = 1; m <= 4096; m *= 2) {
            sw_cuda_gemm p = problem_of(which, 4096, 6144, m);
            const sw_cuda_plan before = plan_of(&p, NULL);

            p.tiles.has_usual_scales = true;
            const sw_cuda_plan after = plan_of(&p, NULL);

            assert_true(is_same(&after, &before));
        }
}

/* A row that is handed what another one counted plans as one that counts by itself. */
static void handed_on_is_counted(void **state)
{
    (void)state;
    for (int which = 0; which < N_KINDS; which++)
        for (int64_t m = 1; m <= 4096; m += 1 + m / 8) {
            const sw_cuda_gemm p = problem_of(which, 4096, 28672, m);
            const sw_cuda_plan plan = plan_of(&p, NULL);
            sw_cuda_counted nothing = {0};
            sw_cuda_plan alone = {0};

            sw_cuda_kernels[plan.kernel].plan(&alone, &p, &h200, &nothing);
            alone.kernel = plan.kernel;
            if (!is_same(&plan, &alone)) fail_msg("kind %d, %lld tokens", which, (long long)m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handed_on_is_counted),
        cmocka_unit_test(scales_change_no_plan),
        cmocka_unit_test(every_plan_can_run), cmocka_unit_test(few_multiprocessors),
        cmocka_unit_test(measured_best), cmocka_unit_test(measured_best_of_few),
        cmocka_unit_test(measured_best_of_many),
        cmocka_unit_test(measured_best_of_bytes), cmocka_unit_test(rounds_of_blocks),
        cmocka_unit_test(kinds_of_weights), cmocka_unit_test(narrow_codes),
        cmocka_unit_test(refuses_what_it_cannot), cmocka_unit_test(what_else_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
