/* test_w4a16.c - the device's W4A16 kernels against the product they must compute.
 * Exit 77 without a GPU. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_case.h"

typedef struct variant {
    int64_t group_elems;
    bool is_asymmetric;
    sw_dtype dtype, scale_dtype;
} variant;

static const variant variants[] = {
    {128, false, SW_DTYPE_BF16, SW_DTYPE_BF16}, {128, true, SW_DTYPE_F16, SW_DTYPE_F16},
    {64, true, SW_DTYPE_BF16, SW_DTYPE_F16},    {64, false, SW_DTYPE_F16, SW_DTYPE_BF16},
    {32, true, SW_DTYPE_BF16, SW_DTYPE_BF16},   {32, false, SW_DTYPE_F16, SW_DTYPE_F16},
    {0, false, SW_DTYPE_BF16, SW_DTYPE_F16},    {0, true, SW_DTYPE_F16, SW_DTYPE_F16},
    {256, true, SW_DTYPE_BF16, SW_DTYPE_F16},
};
static const sw_cuda_card h200 = {90, 132};
#define N_VARIANTS (int)(sizeof variants / sizeof *variants)

static gpu_shape shape_of(int v, int64_t m, int64_t n_out, int64_t k_in)
{
    const variant *a = &variants[v];
    gpu_shape s = {.m = m, .n_out = n_out, .k_in = k_in, .group_elems = a->group_elems,
                   .is_asymmetric = a->is_asymmetric, .dtype = a->dtype,
                   .scale_dtype = a->scale_dtype, .seed = (uint64_t)(v + 100 * m + n_out + k_in)};
    return s;
}

/* Twice: the same bytes, every element written, no canary broken, the error that of rounding. */
static void check(gpu_case *c, const sw_cuda_plan *plan)
{
    const gpu_shape *s = &c->shape;
    uint16_t *before = malloc(c->y_bytes);
    bool is_good = gpu_case_run(c, plan);
    double error = gpu_case_error(c);

    memcpy(before, c->y, c->y_bytes);
    if (!is_good || !(error <= gpu_case_bound(c)))
        fail_msg("%s split %d: error %g%s at m %lld n %lld k %lld group %lld %s",
                 sw_cuda_kernels[0].tiles[plan->tile].name, plan->split, error,
                 is_good ? "" : ", a guard broke", (long long)s->m, (long long)s->n_out,
                 (long long)s->k_in, (long long)s->group_elems, s->is_asymmetric ? "asym" : "sym");
    assert_true(gpu_case_run(c, plan));
    assert_memory_equal(before, c->y, c->y_bytes);
    free(before);
}

static void check_plan(const gpu_shape *shape)
{
    gpu_case c;
    sw_cuda_plan plan;
    sw_err err = {0};

    gpu_case_new(&c, shape);
    gpu_case_expect(&c);
    assert_int_equal(sw_cuda_gemm_plan(&plan, &c.problem, &h200, NULL, &err), SW_OK);
    check(&c, &plan);
    gpu_case_free(&c);
}

static bool can_use(const gpu_shape *s, int tile)
{
    return !sw_cuda_kernels[0].tiles[tile].is_scaled || s->dtype == s->scale_dtype;
}

static void every_m(void **state)
{
    static const int64_t large[] = {384, 511, 512, 513, 1024, 4095, 4096};

    (void)state;
    for (int64_t m = 1; m <= 257; m++) {
        gpu_shape s = shape_of((int)(m % N_VARIANTS), m, 320, 512);

        check_plan(&s);
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        gpu_shape s = shape_of((int)i % N_VARIANTS, large[i], 576, 1152);

        check_plan(&s);
    }
}

/* Every tile with every split, on sizes that are no multiple of anything. */
static void every_cut(void **state)
{
    static const int64_t sizes[][2] = {{64, 64}, {8, 32}, {200, 96}, {330, 1000}, {1, 2336}};

    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            gpu_shape s = shape_of(v, 1 + (int64_t)(v * 7 + i * 31) % 140, sizes[i][0],
                                   sizes[i][1]);
            gpu_case c;

            s.x_gap = v % 3 * 4;
            s.y_gap = v % 4 * 4;
            gpu_case_new(&c, &s);
            gpu_case_expect(&c);
            for (int t = 0; t < *sw_cuda_kernels[0].n_tiles; t++)
                for (int split = 1; can_use(&s, t) && split <= 8;
                     split += 1 + (t + split) % 3) {
                    sw_cuda_plan plan = {0, t, split, true};

                    check(&c, &plan);
                }
            gpu_case_free(&c);
        }
}

/* Every tile and split with all slots of the card busy and the ring turned over many times: what a
 * stage is refilled with too early shows only then. */
static void full_card(void **state)
{
    gpu_shape s = shape_of(0, 64, 8192, 16384);
    gpu_case c;

    (void)state;
    gpu_case_new(&c, &s);
    gpu_case_expect(&c);
    for (int t = 0; t < *sw_cuda_kernels[0].n_tiles; t++)
        for (int split = 1; split <= 8; split++) {
            sw_cuda_plan plan = {0, t, split, true};

            check(&c, &plan);
        }
    gpu_case_free(&c);
}

/* X = rows of the identity: Y must be the dequantized weights, rounded once. */
static void one_hot_is_exact(void **state)
{
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        gpu_shape s = shape_of(v, 300, 200, 300);
        float *w = malloc(sizeof(float) * 200 * 300), value;
        uint16_t one = s.dtype == SW_DTYPE_BF16 ? 0x3f80 : 0x3c00, want;
        gpu_case c;
        sw_err err = {0};

        s.x_gap = 4;
        /* F16 cannot hold every weight that any scale can make, and scaled tiles would have to. */
        s.has_any_scale = s.dtype == SW_DTYPE_BF16 || s.scale_dtype != s.dtype;
        gpu_case_new(&c, &s);
        for (int64_t m = 0; m < 300; m++)
            for (int64_t k = 0; k < 300; k++) c.x[m * 304 + k] = m == k ? one : 0;
        gpu_case_upload(&c);
        sw_qtensor_decode(w, &c.q);
        for (int t = 0; t < *sw_cuda_kernels[0].n_tiles; t++) {
            sw_cuda_plan plan = {0, t, 1 + t % 3, true};

            if (!can_use(&s, t)) continue;
            assert_true(gpu_case_run(&c, &plan));
            for (int64_t m = 0; m < 300; m++)
                for (int64_t n = 0; n < 200; n++) {
                    value = w[n * 300 + m];
                    assert_int_equal(sw_float_encode_n(&want, s.dtype, &value, 1, &err), SW_OK);
                    if (c.y[m * 200 + n] != want && (c.y[m * 200 + n] | want) != 0x8000)
                        fail_msg("%s: w[%lld][%lld] is %04x, must be %04x",
                                 sw_cuda_kernels[0].tiles[t].name, (long long)n, (long long)m,
                                 c.y[m * 200 + n], want);
                }
        }
        free(w);
        gpu_case_free(&c);
    }
}

typedef void (*spoil)(gpu_case *c);

static void swap_nibbles(gpu_case *c)
{
    for (int i = 512; i < 576; i++) c->codes[i] = (uint8_t)(c->codes[i] << 4 | c->codes[i] >> 4);
}

static void wrong_zero(gpu_case *c) { c->zeros[3] ^= 8; }
static void shift_scales(gpu_case *c)
{
    memmove(c->scales, c->scales + 64, c->scales_bytes - 128);
}

/* A fault in the weights must show: otherwise the checks above prove nothing. */
static void faults_show(void **state)
{
    static const spoil spoils[] = {swap_nibbles, wrong_zero, shift_scales};

    (void)state;
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        gpu_shape s = shape_of(2, 64, 64, 256);
        sw_cuda_plan plan = {0, 0, 1, true};
        gpu_case c;

        gpu_case_new(&c, &s);
        gpu_case_expect(&c);
        assert_true(gpu_case_run(&c, &plan) && gpu_case_error(&c) <= gpu_case_bound(&c));
        spoils[i](&c);
        gpu_case_upload(&c);
        assert_true(gpu_case_run(&c, &plan));
        if (gpu_case_error(&c) <= gpu_case_bound(&c)) fail_msg("fault %d went unseen", (int)i);
        gpu_case_free(&c);
    }
}

static void refuses_what_it_cannot(void **state)
{
    gpu_shape s = shape_of(0, 1, 64, 96);
    sw_cuda_plan plan;
    sw_err err = {0};
    gpu_case c;

    (void)state;
    gpu_case_new(&c, &s);
    c.problem.tiles.spec.group_elems = 96;
    assert_int_equal(sw_cuda_gemm_plan(&plan, &c.problem, &h200, NULL, &err), SW_E_UNSUPPORTED);
    c.problem.tiles.spec.group_elems = 32;
    c.problem.tiles.spec.scale_dtype = SW_DTYPE_F16;
    plan = (sw_cuda_plan){0, *sw_cuda_kernels[0].n_tiles - 1, 1, true};
    assert_true(sw_cuda_kernels[0].tiles[plan.tile].is_scaled);
    assert_int_equal(sw_cuda_gemm_run(&c.problem, &plan, NULL, NULL, &err), SW_E_UNSUPPORTED);
    gpu_case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_hot_is_exact), cmocka_unit_test(faults_show),
        cmocka_unit_test(every_cut), cmocka_unit_test(every_m),
        cmocka_unit_test(full_card),
        cmocka_unit_test(refuses_what_it_cannot),
    };

    if (!gpu_is_there()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
