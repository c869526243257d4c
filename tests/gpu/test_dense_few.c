/* test_dense_few.c - products of few tokens with BF16 weights against sums in double. Exit 77
 * without Hopper. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/half.h"
#include "kernels/cuda/decode/dense_few.h"
#include "kernels/device.h"
#include "kernels/engine/vec/vec_body.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/emulated.h"
#include "tests/support/toys/random.h"

#define ROUNDING 4e-3 /* relative L2 of one rounding to BF16 */
#define SUMMING 1e-5  /* and of sums in FP32 */
#define EPS 1e-5f

static sw_device *gpu;
static sw_launch how;

typedef enum dense_out { TO_BF16, TO_FLOAT, TO_SUM, N_OUTS } dense_out;

typedef struct dense_case {
    int64_t n, n_out, k_in;
    bool has_norm, has_bias;
    dense_out out;
    int n_sms;
} dense_case;

/* A strip to each multiprocessor and one more, units that warps have more or fewer of, several
 * rounds of strips, the shapes of attention and of a head. */
static const dense_case cases[] = {
    {1, 1064, 512, false, false, TO_FLOAT, 132},
    {1, 2880, 4096, false, true, TO_SUM, 132},
    {1, 5120, 2880, true, true, TO_BF16, 132},
    {1, 24, 576, true, false, TO_FLOAT, 2},
    {2, 1056, 1088, false, true, TO_BF16, 132},
    {3, 208, 4096, false, false, TO_FLOAT, 1},
    {4, 80, 640, false, true, TO_BF16, 3},
    {4, 16040, 2048, false, false, TO_FLOAT, 132},
    {1, 40000, 4096, true, false, TO_FLOAT, 132},
    {1, 1056, 16384, false, false, TO_BF16, 132},
    {3, 3000, 4096, false, true, TO_FLOAT, 132},
};

/* What a case has on the device and here. */
typedef struct dense_data {
    sw_dense_args a;
    float *w, *x, *bias, *sum; /* x: rows as the product takes them */
} dense_data;

static float *take(int64_t n)
{
    float *p = calloc((size_t)n, sizeof *p);

    assert_non_null(p);
    return p;
}

static sw_bf16 *to_device(const float *from, int64_t n)
{
    sw_bf16 *rounded = malloc(2 * (size_t)n), *d;

    for (int64_t i = 0; i < n; i++) rounded[i] = sw_bf16_encode(from[i]);
    d = device_copy(gpu, rounded, 2 * n);
    free(rounded);
    return d;
}

static void norm_row(float *x, const float *norm, int64_t k_in)
{
    sw_vec_any.rms_norm(x, x, norm, k_in, EPS);
    for (int64_t i = 0; i < k_in; i++) x[i] = sw_bf16_decode(sw_bf16_encode(x[i]));
}

static void upload_inputs(dense_data *d, const dense_case *c)
{
    float *norm = take(c->k_in);
    test_rng rng = {7};

    d->a.rows = (sw_bf16_rows){to_device(d->x, c->n * c->k_in), c->k_in};
    if (c->has_norm) {
        for (int64_t i = 0; i < c->k_in; i++) norm[i] = (float)(0.5 + test_uniform(&rng));
        d->a.x = device_copy(gpu, d->x, 4 * c->k_in);
        d->a.norm = device_copy(gpu, norm, 4 * c->k_in);
        norm_row(d->x, norm, c->k_in);
    }
    free(norm);
}

/* Rows of Y are four elements further apart than they are long. */
static void upload(dense_data *d, const dense_case *c)
{
    const int64_t y_stride = c->n_out + 4;
    void *d_y = NULL;

    d->a = (sw_dense_args){.eps = EPS, .y_stride = y_stride, .y_is_f32 = c->out == TO_FLOAT,
                           .n = c->n, .n_out = c->n_out, .k_in = c->k_in, .n_sms = c->n_sms,
                           .sm = 90};
    d->a.w = to_device(d->w, c->n_out * c->k_in);
    upload_inputs(d, c);
    if (c->has_bias) d->a.bias = device_copy(gpu, d->bias, 4 * c->n_out);
    if (c->out == TO_SUM) d->a.sum = device_copy(gpu, d->sum, 4 * c->n_out);
    MUST(sw_device_take(&d_y, gpu, c->n * y_stride, 4, "test", err));
    d->a.y = d_y;
    assert_true(sw_cuda_dense_can(&d->a));
}

/* Random values, or whole numbers whose products and sums are exact. */
static void fill(dense_data *d, const dense_case *c, bool is_whole)
{
    test_rng rng = {3};

    *d = (dense_data){.w = take(c->n_out * c->k_in), .x = take(c->n * c->k_in),
                      .bias = take(c->n_out), .sum = take(c->n_out)};
    for (int64_t i = 0; i < c->n_out * c->k_in; i++) {
        const float v = (float)((int64_t)(test_u64(&rng) >> 60) - 7);

        d->w[i] = is_whole ? v : v / 32.0f;
    }
    for (int64_t i = 0; i < c->n * c->k_in; i++) {
        const double v = is_whole ? (double)(test_u64(&rng) >> 59) - 15 : test_gauss(&rng);

        d->x[i] = sw_bf16_decode(sw_bf16_encode((float)v));
    }
    for (int64_t i = 0; i < c->n_out; i++) {
        d->bias[i] = (float)(test_u64(&rng) >> 58);
        d->sum[i] = (float)(test_u64(&rng) >> 57);
    }
}

static void drop(dense_data *d)
{
    free(d->w), free(d->x), free(d->bias), free(d->sum);
}

/* What the product puts out, as floats [n, n_out]. What lies between rows stays as it was. */
static float *run(const dense_data *d, const dense_case *c)
{
    const int64_t stride = d->a.y_stride, n_elems = c->n * stride;
    const int64_t elem_bytes = c->out == TO_FLOAT ? 4 : 2;
    char *raw = malloc((size_t)(n_elems * 4));
    float *have = take(c->n * c->n_out);

    if (d->a.sum) MUST(sw_device_upload(gpu, d->a.sum, d->sum, 4 * c->n_out, err));
    MUST(sw_device_fill(gpu, d->a.y, 0xff, n_elems * elem_bytes, err));
    MUST(sw_cuda_dense(&d->a, how, err));
    MUST(sw_device_download(gpu, raw, d->a.y, n_elems * elem_bytes, err));
    for (int64_t i = 0; i < n_elems; i++) {
        const int64_t at = i / stride * c->n_out + i % stride;
        uint32_t bits = 0;

        memcpy(&bits, raw + i * elem_bytes, (size_t)elem_bytes);
        if (c->out == TO_SUM || i % stride >= c->n_out)
            assert_int_equal(bits, elem_bytes == 4 ? UINT32_MAX : UINT16_MAX);
        else if (elem_bytes == 4)
            memcpy(&have[at], &bits, sizeof bits);
        else
            have[at] = sw_bf16_decode((sw_bf16)bits);
    }
    if (c->out == TO_SUM) MUST(sw_device_download(gpu, have, d->a.sum, 4 * c->n_out, err));
    free(raw);
    return have;
}

static double expected(const dense_data *d, const dense_case *c, int64_t t, int64_t n)
{
    double sum = c->has_bias ? (double)d->bias[n] : 0;

    for (int64_t k = 0; k < c->k_in; k++)
        sum += (double)d->w[n * c->k_in + k] * (double)d->x[t * c->k_in + k];
    return c->out == TO_SUM ? sum + (double)d->sum[n] : sum;
}

/* Of every channel of small cases, of some of large ones. */
static double error_of(const float *have, const dense_data *d, const dense_case *c)
{
    const int64_t step = c->n_out > 8000 ? 7 : 1;
    double off = 0, all = 0;

    for (int64_t t = 0; t < c->n; t++)
        for (int64_t n = t % step; n < c->n_out; n += step) {
            const double want = expected(d, c, t, n);

            off += pow((double)have[t * c->n_out + n] - want, 2);
            all += want * want;
        }
    return sqrt(off / all);
}

/* Where a checker follows every access, small ones alone. */
static bool is_wanted(const dense_case *c)
{
    const int64_t most = DEVICE_IS_EMULATED ? 3 << 20 : DEVICE_IS_FOLLOWED ? 1 << 24 : INT64_MAX;

    return c->n_out * c->k_in <= most;
}

static void check(const dense_case *c)
{
    const double limit = c->out == TO_BF16 ? ROUNDING : c->has_norm ? 2e-4 : SUMMING;
    dense_data d;
    float *have, *again;
    double error, broken;

    fill(&d, c, false);
    upload(&d, c);
    have = run(&d, c);
    again = run(&d, c);
    assert_memory_equal(have, again, 4 * (size_t)(c->n * c->n_out));
    error = error_of(have, &d, c);
    d.x[(c->n - 1) * c->k_in + c->k_in - 1] += 4; /* one input of the last token */
    broken = error_of(have, &d, c);
    print_message("%lld x %lld x %lld: %.2e; broken %.2e\n", (long long)c->n,
                  (long long)c->n_out, (long long)c->k_in, error, broken);
    if (!(error <= limit) || broken <= limit) fail_msg("error %g, broken %g", error, broken);
    free(have), free(again);
    drop(&d);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (is_wanted(&cases[i])) check(&cases[i]);
}

/* Whole numbers: whatever the order of a sum, it is exact. */
static void test_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dense_case c = cases[i];
        dense_data d;
        float *have;

        if (!is_wanted(&c)) continue;
        c.has_norm = false;
        if (c.out == TO_BF16) c.out = TO_FLOAT;
        fill(&d, &c, true);
        upload(&d, &c);
        have = run(&d, &c);
        assert_true(error_of(have, &d, &c) == 0);
        free(have);
        drop(&d);
    }
}

/* Of one input alone a product is that column of the weights. */
static void test_one_hot(void **state)
{
    static const dense_case c = {3, 24, 832, false, false, TO_FLOAT, 2};
    dense_data d;

    (void)state;
    fill(&d, &c, false);
    for (int64_t k = 0; k < c.k_in; k += DEVICE_IS_EMULATED ? 61 : 5) {
        float *have;

        memset(d.x, 0, 4 * (size_t)(c.n * c.k_in));
        for (int64_t t = 0; t < c.n; t++) d.x[t * c.k_in + (k + t) % c.k_in] = (float)(t + 1);
        upload(&d, &c);
        have = run(&d, &c);
        for (int64_t i = 0; i < c.n * c.n_out; i++) {
            const int64_t t = i / c.n_out, at = (k + t) % c.k_in;

            assert_true(have[i] == (float)(t + 1) * d.w[i % c.n_out * c.k_in + at]);
        }
        free(have);
    }
    drop(&d);
}

static void test_shapes(void **state)
{
    const sw_dense_args good = {.n = 1, .n_out = 1056, .k_in = 4096, .n_sms = 132, .sm = 90};
    const float some = 0;
    sw_dense_args a = good;

    (void)state;
    assert_true(sw_cuda_dense_can(&a));
    a.x = &some;
    assert_true(sw_cuda_dense_can(&a));
    a.n = 2; /* a norm of one row alone */
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.n = 5;
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.n_out = 1052;
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.k_in = 4064;
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.k_in = 448; /* a warp without a unit */
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.n_sms = 133;
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.sm = 89;
    assert_false(sw_cuda_dense_can(&a));
    a = good, a.n = 4, a.k_in = 6144; /* no room for rings */
    assert_false(sw_cuda_dense_can(&a));
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases), cmocka_unit_test(test_exact),
        cmocka_unit_test(test_one_hot), cmocka_unit_test(test_shapes),
    };
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    if (sw_device_about(gpu)->arch != 90 && !DEVICE_IS_EMULATED) {
        sw_device_close(gpu);
        print_message("skipped: a kernel of Hopper\n");
        return 77;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("dense products of few tokens", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
