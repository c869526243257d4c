/* test_norms.c - norms of rows of every kind of width against doubles: of the stream, with what is
 * added to it first, of BF16 rows, with a bias, and the sum alone. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/ops/engine_ops.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"

#define N_ROWS 3
#define EPS 1e-5f
#define FACTOR 0.75f
#define LIMIT 0x1p-8 /* a rounding to BF16 is off by half of it */

static sw_device *gpu;
static sw_launch how;

typedef struct norm_case {
    const char *name;
    bool is_stream, adds, has_bias, has_norm;
} norm_case;

static const norm_case cases[] = {
    {"of the stream", true, false, false, true},
    {"after an addition", true, true, false, true},
    {"of rows", false, false, false, true},
    {"of rows, with a bias", false, false, true, true},
    {"after an addition, with a bias", true, true, true, true},
    {"the sum alone", true, true, false, false},
};

/* The widths: one thread, warps that are not full, the last of one eight a thread and the first
 * beyond it, the last of 512 threads and the first beyond it. */
static const int64_t widths[] = {8, 264, 1152, 4096, 4104, 16384, 16392};

typedef struct norm_rows {
    float *x, *add, *weight, *bias; /* x, add: [N_ROWS, width] */
    double *sum, *want;             /* likewise */
} norm_rows;

static void expect_rows(norm_rows *r, const norm_case *c, int64_t width)
{
    for (int64_t t = 0; t < N_ROWS; t++) {
        double *sum = r->sum + t * width, mean = 0, square = 0;

        for (int64_t i = 0; i < width; i++) {
            sum[i] = (double)r->x[t * width + i];
            if (c->adds) sum[i] += (double)FACTOR * (double)r->add[t * width + i];
            mean += c->has_bias ? sum[i] / (double)width : 0;
        }
        for (int64_t i = 0; i < width; i++) square += (sum[i] - mean) * (sum[i] - mean);
        for (int64_t i = 0; i < width; i++) {
            double v = (sum[i] - mean) / sqrt(square / (double)width + (double)EPS);

            v *= (double)r->weight[i];
            r->want[t * width + i] = v + (c->has_bias ? (double)r->bias[i] : 0);
        }
    }
}

static void must_be_near(const float *have, const double *want, int64_t n, double limit,
                         const norm_case *c, int64_t width)
{
    for (int64_t i = 0; i < n; i++) /* the other way round a NaN would pass */
        if (!(fabs((double)have[i] - want[i]) <= limit * (fabs(want[i]) + 1e-3)))
            fail_msg("%s, width %lld: element %lld is %g, want %g", c->name, (long long)width,
                     (long long)i, (double)have[i], want[i]);
}

static void check_norm(const norm_case *c, int64_t width, norm_rows *r)
{
    const int64_t n = N_ROWS * width;
    const sw_bf16_rows x = {device_random_rows(gpu, r->x, n, 1.3, 7), width};
    const sw_bf16_rows add = {device_random_rows(gpu, r->add, n, 0.7, 8), width};
    const sw_bf16_rows dst = {device_random_rows(gpu, r->weight, n, 1, 9), width};
    float *d_x = device_copy(gpu, r->x, 4 * n), *have;
    sw_norm_args a = {.n = N_ROWS, .width = width, .eps = EPS, .factor = FACTOR};

    for (int64_t i = 0; i < width; i++) r->weight[i] = 1 + 0.01f * (float)(i % 61 - 30);
    for (int64_t i = 0; i < width; i++) r->bias[i] = 0.1f * (float)(i % 7 - 3);
    a.weight = device_copy(gpu, r->weight, 4 * width);
    if (c->has_bias) a.bias = device_copy(gpu, r->bias, 4 * width);
    if (c->is_stream) a.x = d_x;
    else a.src = x;
    if (c->adds) a.add = add;
    if (c->has_norm) a.dst = dst;
    expect_rows(r, c, width);
    MUST(sw_cuda_norm(&a, how, err));
    if (c->has_norm) {
        have = device_fetch(gpu, dst.d, n);
        must_be_near(have, r->want, n, LIMIT, c, width);
        free(have);
    }
    MUST(sw_device_download(gpu, r->x, d_x, 4 * n, err));
    if (c->is_stream) must_be_near(r->x, r->sum, n, 1e-6, c, width);
}

static void check_width(int64_t width)
{
    const size_t n = (size_t)(N_ROWS * width);
    norm_rows r = {malloc(4 * n), malloc(4 * n), malloc(4 * n), malloc(4 * n), malloc(8 * n),
                   malloc(8 * n)};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_norm(&cases[i], width, &r);
    free(r.x), free(r.add), free(r.weight), free(r.bias), free(r.sum), free(r.want);
}

static void test_widths(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) check_width(widths[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_widths)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("norms", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
