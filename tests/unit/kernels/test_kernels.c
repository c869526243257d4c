/* test_kernels.c - every row of the kernel table against the product it must compute. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/blas.h"
#include "kernels/cpu/simd/features.h"
#include "tests/support/cases/gemm_case.h"

/* STATIC: symmetric, one scale for all of x. GLOBAL: symmetric, scales relative to another. */
typedef enum flavour { SYM, ASYM, STATIC, GLOBAL } flavour;

typedef struct variant {
    sw_gemm_op op;
    sw_dtype dtype;
    sw_num_id num;
    int64_t group_elems;
    flavour flavour;
} variant;

static const variant variants[] = {
    {SW_GEMM_DENSE, SW_DTYPE_F32, SW_NUM_INT8, 0, SYM},
    {SW_GEMM_DENSE, SW_DTYPE_F16, SW_NUM_INT8, 0, SYM},
    {SW_GEMM_DENSE, SW_DTYPE_BF16, SW_NUM_INT8, 0, SYM},
    {SW_GEMM_W4A16, SW_DTYPE_F16, SW_NUM_INT4, 128, SYM},
    {SW_GEMM_W4A16, SW_DTYPE_BF16, SW_NUM_INT4, 64, ASYM},
    {SW_GEMM_W4A16, SW_DTYPE_F16, SW_NUM_INT4, 32, ASYM},
    {SW_GEMM_W4A16, SW_DTYPE_BF16, SW_NUM_INT4, 0, SYM},
    {SW_GEMM_W4A16, SW_DTYPE_F16, SW_NUM_INT3, 32, SYM},
    {SW_GEMM_W4A16, SW_DTYPE_F16, SW_NUM_INT2, 96, ASYM},
    {SW_GEMM_W4A16, SW_DTYPE_F16, SW_NUM_INT4, 0, ASYM},
    {SW_GEMM_W8A16, SW_DTYPE_F16, SW_NUM_INT8, 128, SYM},
    {SW_GEMM_W8A16, SW_DTYPE_BF16, SW_NUM_INT8, 64, ASYM},
    {SW_GEMM_W8A16, SW_DTYPE_F16, SW_NUM_INT8, 32, ASYM},
    {SW_GEMM_W8A16, SW_DTYPE_BF16, SW_NUM_INT8, 0, ASYM},
    {SW_GEMM_W4A16, SW_DTYPE_F16, SW_NUM_INT3, 128, SYM},
    {SW_GEMM_W4A16, SW_DTYPE_BF16, SW_NUM_INT2, 32, ASYM},
    {SW_GEMM_W4A8, SW_DTYPE_F16, SW_NUM_INT3, 32, ASYM},
    {SW_GEMM_W4A8, SW_DTYPE_F16, SW_NUM_INT2, 0, SYM},
    {SW_GEMM_W4A8, SW_DTYPE_F16, SW_NUM_INT4, 128, SYM},
    {SW_GEMM_W4A8, SW_DTYPE_BF16, SW_NUM_INT4, 32, ASYM},
    {SW_GEMM_W4A8, SW_DTYPE_F16, SW_NUM_INT3, 0, ASYM},
    {SW_GEMM_W4A8, SW_DTYPE_F16, SW_NUM_INT4, 0, STATIC},
    {SW_GEMM_W8A8, SW_DTYPE_BF16, SW_NUM_INT8, 0, SYM},
    {SW_GEMM_W8A8, SW_DTYPE_F16, SW_NUM_INT8, 0, ASYM},
    {SW_GEMM_W8A8, SW_DTYPE_F16, SW_NUM_INT8, 96, ASYM},
    {SW_GEMM_W8A8, SW_DTYPE_F32, SW_NUM_INT8, 0, STATIC},
    {SW_GEMM_FP4A16, SW_DTYPE_F8_E8M0, SW_NUM_E2M1, 32, SYM},
    {SW_GEMM_FP4A16, SW_DTYPE_F8_E4M3, SW_NUM_E2M1, 16, GLOBAL},
    {SW_GEMM_FP4A16, SW_DTYPE_F32, SW_NUM_E2M1, 0, SYM},
    {SW_GEMM_FP8A16, SW_DTYPE_F32, SW_NUM_E4M3, 0, SYM},
    {SW_GEMM_FP8A16, SW_DTYPE_F32, SW_NUM_E4M3, 128, GLOBAL},
    {SW_GEMM_FP8A16, SW_DTYPE_F8_E8M0, SW_NUM_E4M3, 32, SYM},
    {SW_GEMM_FP8A16, SW_DTYPE_BF16, SW_NUM_E5M2, 0, SYM},
    {SW_GEMM_FP8A16, SW_DTYPE_F16, SW_NUM_E5M2, 48, SYM},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

static gemm_shape shape_of(const variant *v, int64_t m, int64_t n_out, int64_t k_in)
{
    gemm_shape s = {.op = v->op, .m = m, .n_out = n_out, .k_in = k_in, .dtype = v->dtype,
                    .num = v->num, .group_elems = v->group_elems,
                    .is_asymmetric = v->flavour == ASYM,
                    .is_static = v->flavour == STATIC, .has_global = v->flavour == GLOBAL,
                    .seed = (uint32_t)(m * 7 + n_out + k_in)};
    return s;
}

static void fail_with(const gemm_case *c, const sw_kernel *kernel, const char *what, double figure)
{
    char text[256];

    gemm_case_describe(text, sizeof text, c);
    fail_msg("%s: %s (%g) at %s", kernel->name, what, figure, text);
}

/* Run every row that can serve the case; each must stay within its own tolerance. */
static void check_rows(const gemm_shape *shape)
{
    gemm_case c;

    gemm_case_new(&c, shape);
    for (int i = 0; i < sw_n_kernels; i++) {
        const sw_kernel *kernel = &sw_kernels[i];
        double error;

        if (kernel->op != shape->op || !kernel->can_run(&c.problem)) continue;
        error = gemm_case_run(&c, kernel, 1);
        if (!(error <= kernel->tolerance)) fail_with(&c, kernel, "relative error", error);
        if (shape->is_integer && gemm_case_inexact(&c))
            fail_with(&c, kernel, "inexact elements", (double)gemm_case_inexact(&c));
    }
    gemm_case_free(&c);
}

static void rows_match_reference(void **state)
{
    static const int64_t sizes[][2] = {{64, 64}, {128, 256}, {1, 32},     {65, 96},
                                       {70, 200}, {9, 129}, {200, 1100}};
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int64_t m = 1; m <= 17; m++) {
                gemm_shape shape = shape_of(&variants[v], m, sizes[s][0], sizes[s][1]);

                if (s % 2 ? m % 3 == 2 : m > 9 && m % 4) continue; /* enough of each */
                if (s > 1 && (m + (int64_t)v) % 4) continue;
                if (sizes[s][1] > 1000 && m % 8 != 1) continue;
                shape.x_gap = m % 3 * 5;
                shape.y_gap = m % 4 * 3;
                check_rows(&shape);
            }
}

/* A row that no kernel knows, as a format just added to formats.def would be. */
static void floats_without_a_decoder_are_looked_up(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (int64_t m = 1; m <= 9; m += 4) {
            gemm_shape shape = shape_of(&variants[v], m, 70, 200);
            sw_num stranger = sw_nums[shape.num];
            gemm_case c;
            int n_ran = 0;

            if (stranger.kind != SW_NUM_FLOAT) continue;
            gemm_case_new(&c, &shape);
            c.tiles.spec.num = &stranger;
            for (int i = 0; i < sw_n_kernels; i++) {
                const sw_kernel *kernel = &sw_kernels[i];
                double error;

                if (kernel->op != shape.op || !kernel->can_run(&c.problem)) continue;
                assert_null(strstr(kernel->name, "gemv"));
                error = gemm_case_run(&c, kernel, 1);
                if (!(error <= kernel->tolerance)) fail_with(&c, kernel, "relative error", error);
                n_ran++;
            }
            assert_true(n_ran >= (sw_cpu_has_avx2() ? 2 : 1));
            gemm_case_free(&c);
        }
}

static void many_tokens(void **state)
{
    static const int64_t tokens[] = {64, 65, 130};

    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (size_t i = v % 2; i < 3; i += 2) {
            gemm_shape shape = shape_of(&variants[v], tokens[i], 130, 288);

            shape.x_gap = 7;
            shape.y_gap = 1;
            check_rows(&shape);
        }
}

static void integers_are_exact(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (int64_t m = 1; m <= 9; m += 2) {
            gemm_shape shape = shape_of(&variants[v], m, 100, 224);

            shape.is_integer = true;
            check_rows(&shape);
        }
}

/* The same bytes on 1, 2 and 3 threads and on a second run. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (int i = 0; i < sw_n_kernels; i++) {
            gemm_shape shape = shape_of(&variants[v], 4, 613, 480);
            size_t y_bytes = (size_t)(4 * 613) * sizeof(float);
            float *first;
            gemm_case c;

            if (sw_kernels[i].op != shape.op) continue;
            first = malloc(y_bytes);
            gemm_case_new(&c, &shape);
            if (sw_kernels[i].can_run(&c.problem))
                for (int run = 0; run < 4; run++) {
                    (void)gemm_case_run(&c, &sw_kernels[i], run % 3 + 1);
                    if (run == 0) memcpy(first, c.problem.y, y_bytes);
                    if (memcmp(first, c.problem.y, y_bytes) != 0)
                        fail_with(&c, &sw_kernels[i], "bytes differ on threads", run % 3 + 1);
                }
            gemm_case_free(&c);
            free(first);
        }
}

/* Blocks of k and chunks of tokens are cut and joined without a seam. */
static void large_shapes(void **state)
{
    static const int64_t sizes[][3] = {{3, 70, 2500}, {200, 40, 800}, {390, 65, 420}};

    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v += 3)
        for (size_t s = 0; s < 3; s++) {
            gemm_shape shape = shape_of(&variants[v], sizes[s][0], sizes[s][1], sizes[s][2]);

            shape.y_gap = 2;
            check_rows(&shape);
        }
}

/* A row that this processor cannot run is named, not passed over in silence. */
static void rows_not_tested_here(void **state)
{
    variant v = variants[0];
    int n_skipped = 0;

    (void)state;
    for (int i = 0; i < sw_n_kernels; i++) {
        gemm_shape shape;
        gemm_case c;

        for (size_t k = 0; k < N_VARIANTS; k++)
            if (variants[k].op == sw_kernels[i].op) v = variants[k];
        shape = shape_of(&v, 1, 64, 64);
        gemm_case_new(&c, &shape);
        if (!sw_kernels[i].can_run(&c.problem)) {
            print_message("skipped here: %s needs %s\n", sw_kernels[i].name, sw_kernels[i].isa);
            n_skipped++;
        }
        gemm_case_free(&c);
    }
    assert_true(n_skipped < sw_n_kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_not_tested_here),  cmocka_unit_test(rows_match_reference),
        cmocka_unit_test(floats_without_a_decoder_are_looked_up),
        cmocka_unit_test(many_tokens),           cmocka_unit_test(large_shapes),
        cmocka_unit_test(integers_are_exact),    cmocka_unit_test(threads_do_not_matter),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
