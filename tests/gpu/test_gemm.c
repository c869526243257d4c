/* test_gemm.c - the device's matrix kernels against the product they must compute.
 * Exit 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/gemm/cublaslt/cublaslt_fp8.h"
#include "tests/gpu/support/gpu_case.h"

#define BF SW_DTYPE_BF16
#define HF SW_DTYPE_F16
#define FF SW_DTYPE_F32
#define I2 SW_NUM_INT2
#define I3 SW_NUM_INT3
#define I4 SW_NUM_INT4
#define I8 SW_NUM_INT8
#define E4 SW_NUM_E4M3
#define NONE SW_ACT_NONE, SW_NUM_INT8
#define TOKEN SW_ACT_TOKEN
#define TENSOR SW_ACT_TENSOR
#define GROUP SW_ACT_GROUP

typedef struct variant {
    sw_num_id num;
    int64_t group_elems;
    bool is_asymmetric;
    sw_dtype dtype, scale_dtype;
    sw_act_scope scope;
    sw_num_id x_num;
} variant;

static const variant variants[] = {
    {I4, 128, false, BF, BF, NONE}, {I4, 128, true, HF, HF, NONE},
    {I4, 64, true, BF, HF, NONE},   {I4, 64, false, HF, BF, NONE},
    {I4, 32, true, BF, BF, NONE},   {I4, 32, false, HF, HF, NONE},
    {I4, 0, false, BF, HF, NONE},   {I4, 0, true, HF, HF, NONE},
    {I4, 256, true, BF, FF, NONE},
    {I8, 0, false, BF, BF, NONE},   {I8, 128, true, HF, HF, NONE},
    {I8, 32, false, BF, FF, NONE},  {I8, 64, true, BF, BF, NONE},
    {E4, 0, false, BF, FF, NONE},   {E4, 128, false, HF, BF, NONE},
    {I8, 0, false, BF, FF, TOKEN, I8}, {I8, 0, true, HF, BF, TOKEN, I8},
    {I8, 128, false, BF, HF, TENSOR, I8},
    {E4, 0, false, BF, FF, TOKEN, E4}, {E4, 128, false, BF, FF, GROUP, E4},
    {E4, 0, false, HF, HF, TENSOR, E4}, {E4, 256, false, HF, BF, TOKEN, E4},
    {I4, 128, false, BF, BF, TOKEN, I8}, {I4, 0, false, BF, HF, TOKEN, I8},
    {I4, 32, true, HF, HF, TENSOR, I8}, {I4, 64, true, BF, BF, TOKEN, I8},
    {I4, 128, false, BF, BF, TOKEN, E4}, {I4, 0, true, HF, FF, TENSOR, E4},
    {I4, 128, true, BF, BF, NONE},  {I4, 64, true, BF, BF, NONE},
    {I4, 64, false, HF, HF, NONE},
    {I2, 64, true, BF, BF, NONE},   {I3, 128, false, BF, BF, NONE},
    {I2, 32, false, HF, HF, NONE},  {I3, 64, true, HF, BF, NONE},
    {I2, 128, true, HF, HF, NONE},  {I3, 32, true, BF, HF, NONE},
    {I2, 0, false, BF, HF, NONE},   {I3, 0, false, HF, HF, NONE},
    {I2, 256, false, BF, BF, NONE}, {I3, 64, false, BF, BF, NONE},
    {I4, 0, false, BF, BF, TOKEN, E4}, {I4, 256, false, HF, HF, TOKEN, E4},
};
static const sw_cuda_device h200 = {90, 132};
#define N_VARIANTS (int)(sizeof variants / sizeof *variants)
#define N_WIDE 31 /* of 4 bits and more */

static gpu_shape shape_of(int v, int64_t m, int64_t n_out, int64_t k_in)
{
    const variant *a = &variants[v];
    gpu_shape s = {.m = m, .n_out = n_out, .k_in = k_in, .group_elems = a->group_elems,
                   .num = a->num, .is_asymmetric = a->is_asymmetric, .dtype = a->dtype,
                   .scale_dtype = a->scale_dtype, .scope = a->scope, .x_num = a->x_num,
                   .has_columns = true, .seed = (uint64_t)(v + 100 * m + n_out + k_in)};
    return s;
}

static void complain(const gpu_case *c, const sw_cuda_plan *plan, const char *what, double figure)
{
    const gpu_shape *s = &c->shape;
    const sw_cuda_kernel *k = &sw_cuda_kernels[plan->kernel];

    fail_msg("%s %s split %d: %s %g at m %lld n %lld k %lld, %s group %lld %s, x %s %d", k->name,
             k->tiles[plan->tile].name, plan->split, what, figure, (long long)s->m,
             (long long)s->n_out, (long long)s->k_in, sw_nums[s->num].name,
             (long long)s->group_elems, s->is_asymmetric ? "asym" : "sym",
             s->scope == SW_ACT_NONE ? "float" : sw_nums[s->x_num].name, (int)s->scope);
}

/* Twice: the same bytes, every element written, no canary broken, the error that of rounding. */
static void check(gpu_case *c, const sw_cuda_plan *plan)
{
    uint16_t *before = malloc(c->y_bytes);
    bool is_good = gpu_case_run(c, plan);
    double error = gpu_case_error(c);

    memcpy(before, c->y, c->y_bytes);
    if (!is_good) complain(c, plan, "a guard broke or an element is missing, error", error);
    if (!(error <= gpu_case_bound(c))) complain(c, plan, "error", error);
    if (c->shape.is_exact && gpu_case_differing(c))
        complain(c, plan, "elements that are not exact:", (double)gpu_case_differing(c));
    assert_true(gpu_case_run(c, plan));
    assert_memory_equal(before, c->y, c->y_bytes);
    free(before);
    if (!gpu_case_same_unknown(c, plan)) complain(c, plan, "what is known of scales changes Y", 0);
}

static void check_plan(const gpu_shape *shape)
{
    gpu_case c;
    sw_cuda_plan plan;
    sw_err err = {0};

    gpu_case_new(&c, shape);
    gpu_case_expect(&c);
    if (sw_cuda_gemm_plan(&plan, &c.problem, &h200, NULL, &err)) fail_msg("%s", err.text);
    check(&c, &plan);
    gpu_case_free(&c);
}

/* Of SW_GEMM_KERNEL alone, where that is set: while a kernel is being made. */
static bool is_wanted(int kernel)
{
    const char *only = getenv("SW_GEMM_KERNEL");

    return !only || strcmp(only, sw_cuda_kernels[kernel].name) == 0;
}

#ifdef SW_CHECKED /* a checker follows every access */
#define SPLIT_MAX 2
#else
#define SPLIT_MAX 4
#endif

/* Every kernel, tile and some splits that can run the problem. */
static void check_all(gpu_case *c, int salt)
{
    for (int k = 0; k < sw_cuda_n_kernels; k++)
        for (int t = 0; t < *sw_cuda_kernels[k].n_tiles && is_wanted(k); t++)
            for (int split = 1; split <= SPLIT_MAX; split += 1 + (salt + t + split) % 3) {
                sw_cuda_plan plan = {k, t, split, h200, true, split % 2, {0}};

                if (gpu_case_can_run(c, k, t)) check(c, &plan);
            }
}

static void check_shape(const gpu_shape *shape, int salt)
{
    gpu_case c;

    gpu_case_new(&c, shape);
    gpu_case_expect(&c);
    check_all(&c, salt);
    gpu_case_free(&c);
}

static void quantizes_as_defined(void **state)
{
    static const int64_t sizes[][2] = {{1, 32}, {3, 200}, {2, 8192}, {5, 33000}, {17, 4096}};

    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            gpu_shape s = shape_of(v, sizes[i][0], 8, sizes[i][1]);
            gpu_case c;

            if (s.scope == SW_ACT_NONE) continue;
            s.x_gap = v % 2 * 3;
            gpu_case_new(&c, &s);
            if (!gpu_case_quantizes_alike(&c))
                fail_msg("codes differ: variant %d, %lld x %lld", v, (long long)s.m,
                         (long long)s.k_in);
            gpu_case_free(&c);
        }
}

/* Each kernel on each format with one of its tiles: little enough for a checker of memory or of
 * barriers to follow. */
static void each_kernel_once(void **state)
{
    static const int64_t tokens[] = {5, 40, 150};

    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        gpu_shape s = shape_of(v, tokens[v % 3], 200, 640);
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        for (int k = 0; k < sw_cuda_n_kernels; k++) {
            const int n_tiles = *sw_cuda_kernels[k].n_tiles;
            sw_cuda_plan plan = {k, v % n_tiles, 1 + v / 3 % 3, h200, true, v % 2, {0}};

            if (!is_wanted(k)) continue;
            for (int t = 0; t < n_tiles && !gpu_case_can_run(&c, k, plan.tile); t++)
                plan.tile = (plan.tile + 1) % n_tiles;
            if (gpu_case_can_run(&c, k, plan.tile)) check(&c, &plan);
        }
        gpu_case_free(&c);
    }
}

/* Where every sum is exact, Y must be the exact product rounded once, whatever is split how. */
static void exact_sums(void **state)
{
    static const int64_t sizes[][3] = {{5, 72, 384}, {19, 200, 640}, {140, 136, 1152}};

    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            gpu_shape s = shape_of(v, sizes[i][0], sizes[i][1], sizes[i][2]);

            s.is_exact = true;
            check_shape(&s, v + (int)i);
        }
}

static void every_m(void **state)
{
    static const int64_t large[] = {384, 511, 512, 513, 1024, 4095, 4096};

    (void)state;
    for (int64_t m = 1; m <= 257; m++)
        for (int i = 0; i < 3; i++) {
            gpu_shape s = shape_of((int)((m + 9 * i) % N_VARIANTS), m, 320, 512);

            check_plan(&s);
        }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int v = (int)i % 2; v < N_VARIANTS; v += 2) {
            gpu_shape s = shape_of(v, large[i], 576, 1152);

            check_plan(&s);
        }
}

/* Every tile with many splits, on sizes that are no multiple of anything. */
static void every_cut(void **state)
{
    static const int64_t sizes[][2] = {{64, 64}, {8, 32}, {200, 96}, {330, 1000}, {1, 2336}};

    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            gpu_shape s = shape_of(v, 1 + (int64_t)(v * 7 + (int64_t)i * 31) % 140, sizes[i][0],
                                   sizes[i][1]);

            s.x_gap = v % 3 * 4;
            s.y_gap = v % 4 * 4;
            check_shape(&s, v);
        }
}

/* Every tile and split with all slots of the device busy and the ring turned over many times: what
 * a stage is refilled with too early shows only then. */
static void full_device(void **state)
{
    static const int of[] = {0, 9, 15, 18, 19, 22, 26, 31, 32};

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        gpu_shape s = shape_of(of[i], 64, 8192, i ? 4096 : 16384);

        check_shape(&s, (int)i);
    }
}

/* Likewise of CTAs that fill each other's rings, with tokens for both of a pair. */
static void full_pairs(void **state)
{
    static const int of[] = {15, 17, 18, 21, 22, 23, 25};
    int kernel = sw_cuda_kernel_find("w8a8_two_ctas");

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of && is_wanted(kernel); i++) {
        gpu_shape s = shape_of(of[i], 200, i % 2 ? 8192 : 8136, i % 3 ? 4096 : 16320);
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        for (int t = 0; t < *sw_cuda_kernels[kernel].n_tiles; t++) {
            sw_cuda_plan plan = {kernel, t, 1, h200, true, t % 2, {0}};

            if (gpu_case_can_run(&c, kernel, t)) check(&c, &plan);
        }
        gpu_case_free(&c);
    }
}

/* Kernels that go through several blocks of Y a CTA: few multiprocessors, so that it is many. */
static void many_blocks(void **state)
{
    static const int64_t sizes[][3] = {{600, 520, 1152}, {2308, 200, 320}, {257, 72, 1000}};
    static const int n_sms[] = {1, 7, 132};
    static const char *const kernels[] = {"w8a8_persistent", "w4a16_persistent"};

    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        const int64_t *size = sizes[v % 3];
        gpu_shape s = shape_of(v, size[0] + v % 2 * 4, size[1], size[2]);
        gpu_case c;

        s.is_exact = v / 3 % 2;
        s.y_gap = v % 4 * 4;
        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        for (size_t i = 0; i < 2 * sizeof n_sms / sizeof *n_sms; i++) {
            int kernel = sw_cuda_kernel_find(kernels[i % 2]);

            for (int t = 0; t < *sw_cuda_kernels[kernel].n_tiles && is_wanted(kernel); t++) {
                sw_cuda_plan plan = {kernel, t, 1, {90, n_sms[i / 2]}, true, false, {0}};

                if (gpu_case_can_run(&c, kernel, t)) check(&c, &plan);
            }
        }
        gpu_case_free(&c);
    }
}

/* Blocks of pairs of CTAs of which a cluster does some alone, and two share the last. */
static void shared_rounds(void **state)
{
    static const int of[] = {15, 16, 18, 20, 26, 41, 42};
    const int n = (int)(sizeof of / sizeof *of);

    (void)state;
    for (int i = 0; i < 2 * n; i++) {
        sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find("w8a8_persistent"), .split = 1,
                             .device = {90, 9}, .overlap = true};
        gpu_shape s = shape_of(of[i % n], 600, 520, 1024);
        gpu_case c;

        s.is_exact = i / n;
        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        check(&c, &plan);
        gpu_case_free(&c);
    }
}

/* By cuBLASLt, which takes sixteens of tokens and channels. */
static void sixteens(void **state)
{
    static const int of[] = {18, 20};
    static const int64_t sizes[][3] = {{16, 64, 64}, {48, 208, 320}, {272, 576, 1152},
                                       {1040, 80, 1000}};
    int kernel = sw_cuda_kernel_find("cublaslt_fp8");

    (void)state;
    for (size_t i = 0; i < 8 && is_wanted(kernel); i++) {
        const int64_t *size = sizes[i % 4];
        gpu_shape s = shape_of(of[i / 4], size[0], size[1], size[2]);
        sw_cuda_plan plan = {.kernel = kernel, .split = 1, .device = h200};
        gpu_case c;

        s.is_exact = i % 2;
        s.y_gap = i % 3 * 8;
        s.y_at = i % 2 * 16; /* all that it may be aligned to */
        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        assert_true(sw_cuda_kernels[kernel].can_run(&c.problem, 0));
        check(&c, &plan);
        gpu_case_free(&c);
    }
}

/* Where it has not, w8a8_persistent takes its place, and the test above proves nothing. */
static void cublas_has_rows(void **state)
{
    const uintptr_t somewhere = 1 << 20;
    sw_cublaslt_fp8 p = {
        .m = 8192, .n_out = 4096, .k_in = 4096, .y_stride = 4096, .dtype = SW_DTYPE_BF16};
    sw_cublaslt_fp8_plan *plan = NULL;
    sw_err err = {0};

    (void)state;
    p.d_x = p.d_w = (const uint8_t *)somewhere;
    p.d_x_scales = p.d_w_scales = (const float *)somewhere;
    p.d_y = p.d_work = (void *)somewhere;
    if (sw_cublaslt_fp8_plan_new(&plan, &p, &err) != SW_OK) fail_msg("%s", err.text);
    sw_cublaslt_fp8_plan_free(plan);
}

/* Rings that turn over several times in a few CTAs: small enough for a tool that watches each
 * access (sanitize.sh). */
static void ring_turns(void **state)
{
    static const int of[] = {0, 9, 15, 26, 31, 32};

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        gpu_shape s = shape_of(of[i], 17, 256, 5120);

        check_shape(&s, (int)i);
    }
}

/* Calls on two streams, each with a workspace of its own, must not see each other. */
static void two_streams(void **state)
{
    static const int of[2][4] = {{0, 15, 18, 22}, {23, 26, 1, 19}};
    static const int64_t tokens[4] = {3, 70, 200, 516};

    (void)state;
    for (int i = 0; i < 4; i++) {
        gpu_case c[2];
        uint16_t *alone[2];
        sw_cuda_plan plans[2];
        sw_err err = {0};

        for (int s = 0; s < 2; s++) {
            gpu_shape shape = shape_of(of[s][i], tokens[i], 1024 + 64 * s, 2048);

            gpu_case_new(&c[s], &shape);
            assert_int_equal(sw_cuda_gemm_plan(&plans[s], &c[s].problem, &h200, NULL, &err), SW_OK);
            assert_true(gpu_case_run(&c[s], &plans[s]));
            alone[s] = malloc(c[s].y_bytes);
            memcpy(alone[s], c[s].y, c[s].y_bytes);
        }
        gpu_case_run_both(c, plans, 24);
        for (int s = 0; s < 2; s++) {
            assert_memory_equal(alone[s], c[s].y, c[s].y_bytes);
            free(alone[s]);
            gpu_case_free(&c[s]);
        }
    }
}

/* Every M again with shapes that whole blocks of channels fill: some kernels take no others. */
static void whole_blocks(void **state)
{
    static const int of[] = {0, 9};

    (void)state;
    for (int64_t m = 1; m <= 257; m++) {
        gpu_shape s = shape_of(of[m % 2], m, 256 * (1 + m % 3), 128 * (1 + m % 11));

        s.is_exact = m % 5 == 0;
        s.y_gap = m % 4 * 4;
        check_plan(&s);
    }
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int64_t k = 128; k <= 1408; k += 640) {
            gpu_shape s = shape_of(of[i], 150, 512, k);

            s.is_exact = true;
            check_shape(&s, (int)i);
        }
}

static void check_one_hot(gpu_case *c, const sw_cuda_plan *plan, const float *w)
{
    sw_err err = {0};

    assert_true(gpu_case_run(c, plan));
    for (int64_t m = 0; m < 300; m++)
        for (int64_t n = 0; n < 200; n++) {
            float value = w[n * 300 + m];
            uint16_t want, have = c->y[m * 200 + n];

            assert_int_equal(sw_float_encode_n(&want, c->shape.dtype, &value, 1, &err), SW_OK);
            if (have != want && (have | want) != 0x8000) {
                print_message("w[%lld][%lld] is %04x, must be %04x\n", (long long)n, (long long)m,
                              have, want);
                complain(c, plan, "one-hot", 0);
            }
        }
}

static void check_one_hots(gpu_shape s)
{
    float *w = malloc(sizeof(float) * 200 * 300);
    uint16_t one = s.dtype == SW_DTYPE_BF16 ? 0x3f80 : 0x3c00;
    gpu_case c;

    s.x_gap = 4;
    gpu_case_new(&c, &s);
    for (int64_t m = 0; m < 300; m++)
        for (int64_t k = 0; k < 300; k++) c.x[m * 304 + k] = m == k ? one : 0;
    gpu_case_upload(&c);
    assert_true(!s.has_usual_scales || c.problem.tiles.has_usual_scales);
    sw_qtensor_decode(w, &c.q);
    for (int k = 0; k < sw_cuda_n_kernels; k++)
        for (int t = 0; t < *sw_cuda_kernels[k].n_tiles; t++) {
            sw_cuda_plan plan = {k, t, 1 + t % 3, h200, true, false, {0}};

            if (is_wanted(k) && gpu_case_can_run(&c, k, t)) check_one_hot(&c, &plan, w);
        }
    free(w);
    gpu_case_free(&c);
}

/* X = rows of the identity: Y must be the dequantized weights, rounded once. */
static void one_hot_is_exact(void **state)
{
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        gpu_shape s = shape_of(v, 300, 200, 300);

        /* F16 cannot hold every weight that any scale can make, and scaled tiles would have to. */
        s.has_any_scale = s.dtype == SW_DTYPE_BF16 || s.scale_dtype != s.dtype;
        if (s.scope == SW_ACT_NONE) check_one_hots(s);
    }
    for (int64_t group = 0; group <= 128; group += 128) {
        gpu_shape s = shape_of(0, 300, 200, 300);

        s.group_elems = group;
        s.has_usual_scales = true;
        check_one_hots(s);
    }
}

/* Devices before sm_90: mma.sync alone, no clusters, no early start, less shared memory. */
static void older_devices(void **state)
{
    static const sw_cuda_device devices[] = {{80, 108}, {86, 84}, {89, 142}, {120, 170}};
    sw_err err = {0};

    (void)state;
    for (int v = 0; v < N_WIDE; v++)
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
            gpu_shape s = shape_of(v, 1 + (int64_t)(v + 5 * (int)i) % 70, 320, 3072);
            sw_cuda_plan plan;
            gpu_case c;

            s.has_columns = false;
            gpu_case_new(&c, &s);
            gpu_case_expect(&c);
            if (sw_cuda_gemm_plan(&plan, &c.problem, &devices[i], NULL, &err))
                fail_msg("%s", err.text);
            assert_string_equal(sw_cuda_kernels[plan.kernel].name, "mma_sync");
            assert_true(plan.split == 1 && !plan.overlap);
            c.problem.may_overlap = false; /* as there is no such thing */
            check(&c, &plan);
            gpu_case_free(&c);
        }
}

typedef void (*spoil)(gpu_case *c);

static void swap_nibbles(gpu_case *c)
{
    for (int i = 512; i < 576; i++) c->codes[i] = (uint8_t)(c->codes[i] << 4 | c->codes[i] >> 4);
}

static void wrong_zero(gpu_case *c) { c->zeros[3] ^= 1; }
static void third_bits(gpu_case *c) { memset(c->codes + 1024, 0, 512); }
static void shift_scales(gpu_case *c)
{
    memmove(c->scales, c->scales + 128, c->scales_bytes - 256);
}

/* A fault in the weights must show: otherwise the checks above prove nothing. */
static void faults_show(void **state)
{
    static const struct { int variant; spoil spoil; } faults[] = {
        {2, swap_nibbles}, {25, wrong_zero}, {2, shift_scales}, {0, swap_nibbles},
        {0, shift_scales}, {9, swap_nibbles}, {9, shift_scales}, {31, swap_nibbles},
        {31, wrong_zero}, {31, shift_scales}, {32, third_bits}, {26, swap_nibbles},
        {26, shift_scales}};

    (void)state;
    for (int k = 0; k < sw_cuda_n_kernels; k++)
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            gpu_shape s = shape_of(faults[i].variant, 16, 256, 256);
            sw_cuda_plan plan = {k, 0, 1, h200, true, false, {0}};
            gpu_case c;

            gpu_case_new(&c, &s);
            gpu_case_expect(&c);
            for (int t = 1; t < *sw_cuda_kernels[k].n_tiles; t++)
                if (!gpu_case_can_run(&c, k, plan.tile)) plan.tile = t;
            if (gpu_case_can_run(&c, k, plan.tile)) {
                assert_true(gpu_case_run(&c, &plan) && gpu_case_error(&c) <= gpu_case_bound(&c));
                faults[i].spoil(&c);
                gpu_case_upload(&c);
                assert_true(gpu_case_run(&c, &plan));
                if (gpu_case_error(&c) <= gpu_case_bound(&c))
                    fail_msg("%s: fault %d went unseen", sw_cuda_kernels[k].name, (int)i);
            }
            gpu_case_free(&c);
        }
}

/* All tests, or those named. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizes_as_defined), cmocka_unit_test(each_kernel_once),
        cmocka_unit_test(exact_sums),
        cmocka_unit_test(one_hot_is_exact), cmocka_unit_test(faults_show),
        cmocka_unit_test(every_cut), cmocka_unit_test(every_m),
        cmocka_unit_test(full_device), cmocka_unit_test(full_pairs), cmocka_unit_test(sixteens),
        cmocka_unit_test(cublas_has_rows), cmocka_unit_test(many_blocks),
        cmocka_unit_test(shared_rounds),
        cmocka_unit_test(two_streams), cmocka_unit_test(older_devices),
        cmocka_unit_test(ring_turns), cmocka_unit_test(whole_blocks),
    };

    if (!gpu_is_there()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
