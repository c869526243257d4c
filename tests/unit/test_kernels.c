/* test_kernels.c - every row of the kernel table against the product it must compute. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/blas.h"
#include "tests/support/gemm_case.h"

typedef struct variant {
    sw_gemm_op op;
    sw_dtype dtype;
    int bits;
    int64_t group_elems;
    bool is_asymmetric;
} variant;

static const variant variants[] = {
    {SW_GEMM_DENSE, SW_DTYPE_F32, 0, 0, false},   {SW_GEMM_DENSE, SW_DTYPE_F16, 0, 0, false},
    {SW_GEMM_DENSE, SW_DTYPE_BF16, 0, 0, false},  {SW_GEMM_W4A16, SW_DTYPE_F16, 4, 128, false},
    {SW_GEMM_W4A16, SW_DTYPE_BF16, 4, 64, true},  {SW_GEMM_W4A16, SW_DTYPE_F16, 4, 32, true},
    {SW_GEMM_W4A16, SW_DTYPE_BF16, 4, 0, false},  {SW_GEMM_W4A16, SW_DTYPE_F16, 3, 32, false},
    {SW_GEMM_W4A16, SW_DTYPE_F16, 2, 96, true},   {SW_GEMM_W4A16, SW_DTYPE_F16, 4, 0, true},
    {SW_GEMM_W8A16, SW_DTYPE_F16, 8, 128, false}, {SW_GEMM_W8A16, SW_DTYPE_BF16, 8, 64, true},
    {SW_GEMM_W8A16, SW_DTYPE_F16, 8, 32, true},   {SW_GEMM_W8A16, SW_DTYPE_BF16, 8, 0, true},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

static gemm_shape shape_of(const variant *v, int64_t m, int64_t n_out, int64_t k_in)
{
    gemm_shape s = {.op = v->op, .m = m, .n_out = n_out, .k_in = k_in, .dtype = v->dtype,
                    .bits = v->bits, .group_elems = v->group_elems,
                    .is_asymmetric = v->is_asymmetric, .seed = (uint32_t)(m * 7 + n_out + k_in)};
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
    static const int64_t sizes[][2] = {{64, 64}, {128, 256}, {1, 32}, {65, 96}, {70, 200},
                                       {200, 1100}};
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int64_t m = 1; m <= 17; m++) {
                gemm_shape shape = shape_of(&variants[v], m, sizes[s][0], sizes[s][1]);

                if (sizes[s][1] > 1000 && m > 5 && m != 8 && m != 17) continue;
                shape.x_gap = m % 3 * 5;
                shape.y_gap = m % 4 * 3;
                check_rows(&shape);
            }
}

static void many_tokens(void **state)
{
    static const int64_t tokens[] = {64, 65, 130};

    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < 3; i++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_match_reference),
        cmocka_unit_test(many_tokens),
        cmocka_unit_test(integers_are_exact),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
