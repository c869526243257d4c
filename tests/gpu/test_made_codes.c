/* test_made_codes.c - codes of what a norm or a gate leaves, made where it is made, against those
 * of the rows that it would have stored: all bytes, scales and sums, and the residual stream.
 * Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "kernels/cuda/decode/quantize_made.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"

static sw_device *gpu;
static sw_launch how;

static const struct {
    const char *name;
    sw_act_scope scope;
    int num;
    float input_scale;
} formats[] = {
    {"int8 per token", SW_ACT_TOKEN, SW_NUM_INT8, 0},
    {"e4m3 per token", SW_ACT_TOKEN, SW_NUM_E4M3, 0},
    {"e4m3 per 128 inputs", SW_ACT_GROUP, SW_NUM_E4M3, 0},
    {"int8 by 0.004", SW_ACT_TENSOR, SW_NUM_INT8, 0.004f},
    {"e4m3 by 2^-130", SW_ACT_TENSOR, SW_NUM_E4M3, 0x1p-130f},
};
#define N_FORMATS (int)(sizeof formats / sizeof *formats)

static sw_act act_of(int f)
{
    return (sw_act){.num = &sw_nums[formats[f].num], .scope = formats[f].scope,
                    .group_elems = formats[f].scope == SW_ACT_GROUP ? 128 : 0,
                    .scale_dtype = SW_DTYPE_F32};
}

/* Room for the codes of n tokens, all bytes set. */
static sw_cuda_codes take_codes(void **d, int64_t *n_bytes, int64_t n, int64_t width,
                                const sw_act *act)
{
    char *bytes;

    *n_bytes = (int64_t)sw_cuda_codes_bytes(n, width, act);
    bytes = malloc((size_t)*n_bytes);
    memset(bytes, 0x5a, (size_t)*n_bytes);
    *d = device_copy(gpu, bytes, *n_bytes);
    free(bytes);
    return sw_cuda_codes_at(*d, n, width, act);
}

static void must_be_alike(const void *d_have, const void *d_want, int64_t n_bytes,
                          const char *what, int f, int64_t n, int64_t width)
{
    uint8_t *have = malloc((size_t)n_bytes), *want = malloc((size_t)n_bytes);
    int64_t at = 0;

    MUST(sw_device_download(gpu, have, d_have, n_bytes, err));
    MUST(sw_device_download(gpu, want, d_want, n_bytes, err));
    while (at < n_bytes && have[at] == want[at]) at++;
    if (at < n_bytes)
        fail_msg("%s, %s: %lld x %lld: byte %lld of %lld is %02x, want %02x", what,
                 formats[f].name, (long long)n, (long long)width, (long long)at,
                 (long long)n_bytes, have[at], want[at]);
    free(have);
    free(want);
}

/* Quantize rows as usual, and compare. */
static void check_codes(const void *d_have, const sw_bf16_rows *rows, int f, int64_t n,
                        int64_t width, const char *what)
{
    const sw_act act = act_of(f);
    int64_t n_bytes;
    void *d_want;
    const sw_cuda_codes want = take_codes(&d_want, &n_bytes, n, width, &act);

    MUST(sw_cuda_quantize(&want, rows->d, rows->stride, SW_DTYPE_BF16, n, width, &act,
                          formats[f].input_scale, false, false, how.stream, err));
    must_be_alike(d_have, d_want, n_bytes, what, f, n, width);
}

/* Rows of floats: of usual size, zeros, one large among small, tiny ones, one that is not finite
 * (of the last only what both make of it is compared). */
static void fill_rows(float *x, int64_t n, int64_t width, uint64_t seed)
{
    test_rng rng = {seed};

    for (int64_t i = 0; i < n * width; i++) {
        const int kind = (int)(i / width % 5);
        const double v = test_gauss(&rng);

        x[i] = (float)(kind == 1 ? 0 : kind == 2 ? 1e-4 * v : kind == 3 ? 1e-37 * v : v);
        if (kind == 2 && i % width == width / 3) x[i] = -300;
        if (kind == 4 && i % width == width / 2) x[i] = INFINITY;
    }
}

static void check_norm(int f, int64_t n, int64_t width, bool adds)
{
    const sw_act act = act_of(f);
    float *x = malloc(4 * (size_t)(n * width)), *values = malloc(4 * (size_t)(n * width));
    sw_bf16 *d_add = device_random_rows(gpu, values, n * width, 0.5, 7);
    sw_norm_args a = {.n = n, .width = width, .eps = 1e-5f, .factor = 0.75f};
    sw_made_codes made = {.act = act, .input_scale = formats[f].input_scale};
    int64_t n_bytes;
    void *d_have, *d_x;
    sw_bf16_rows rows = {device_random_rows(gpu, values, n * width, 1, 8), width};

    for (int64_t i = 0; i < width; i++) values[i] = 1 + 0.01f * (float)(i % 61 - 30);
    a.weight = device_copy(gpu, values, 4 * width);
    if (adds) a.add = (sw_bf16_rows){d_add, width};
    fill_rows(x, n, width, 3);
    made.to = take_codes(&d_have, &n_bytes, n, width, &act);
    a.x = d_x = device_copy(gpu, x, 4 * n * width);
    made.starts_next = width % 256 == 0;
    MUST(sw_cuda_norm_codes(&a, &made, how, err));
    a.x = device_copy(gpu, x, 4 * n * width);
    a.dst = rows;
    MUST(sw_cuda_norm(&a, how, err));
    check_codes(d_have, &rows, f, n, width, "norm");
    must_be_alike(d_x, a.x, 4 * n * width, "the stream", f, n, width);
    free(x);
    free(values);
}

static void check_gate(int f, int64_t n, int64_t width, int act_kind)
{
    const sw_act act = act_of(f);
    float *g = malloc(8 * (size_t)(n * width));
    sw_bf16 *d = device_random_rows(gpu, g, 2 * n * width, 2, 11);
    const sw_act_args a = {.g = {d, 2 * width}, .u = {d + width, 2 * width}, .n = n,
                           .width = width, .act = act_kind, .limit = 1.5f};
    sw_made_codes made = {.act = act, .input_scale = formats[f].input_scale};
    int64_t n_bytes;
    void *d_have;

    made.to = take_codes(&d_have, &n_bytes, n, width, &act);
    MUST(sw_cuda_act_codes(&a, &made, how, err));
    MUST(sw_cuda_act(&a, how, err));
    check_codes(d_have, &a.g, f, n, width, "gate");
    free(g);
}

static void norms(void **state)
{
    static const int64_t widths[] = {128, 384, 2048, 4096, 4224, 8192, 16384};

    (void)state;
    for (int f = 0; f < N_FORMATS; f++)
        for (int w = 0; w < 7; w++) {
            assert_true(sw_cuda_made_can(widths[w], &(sw_act){0}) == false);
            check_norm(f, 5, widths[w], w % 2 == 0);
            check_norm(f, 1, widths[w], w % 2 == 1);
        }
}

static void gates(void **state)
{
    static const int64_t widths[] = {128, 1408, 6144, 14336, 16384};

    (void)state;
    for (int f = 0; f < N_FORMATS; f++)
        for (int w = 0; w < 5; w++) check_gate(f, 1 + 3 * (w % 2), widths[w], SW_MLP_SILU);
    check_gate(0, 3, 512, SW_MLP_RELU_SQUARED);
    check_gate(1, 3, 512, SW_MLP_SWIGLU_CLAMPED);
}

static void refusals(void **state)
{
    const sw_act one = act_of(0), four = {.num = &sw_nums[SW_NUM_E2M1], .scope = SW_ACT_GROUP,
                                          .group_elems = 32, .scale_dtype = SW_DTYPE_F8_E8M0};
    sw_err err = {0};
    const sw_act_args a = {.n = 1, .width = 100};

    (void)state;
    assert_true(sw_cuda_made_can(4096, &one));
    assert_false(sw_cuda_made_can(4096, &four));
    assert_false(sw_cuda_made_can(100, &one));
    assert_false(sw_cuda_made_can(16384 + 128, &one));
    assert_int_equal(sw_cuda_act_codes(&a, &(sw_made_codes){.act = one}, how, &err),
                     SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "100 inputs"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(gates),
        cmocka_unit_test(refusals),
    };
    const int missing = device_open(&gpu);
    int failed;

    if (missing) return missing;
    how = device_launch(gpu);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
