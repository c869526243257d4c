/* test_gemm_run.c - choosing a row, growing the workspace, the bias, and empty problems. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/blas.h"
#include "tests/support/cases/gemm_case.h"

static const gemm_shape small = {.op = SW_GEMM_W4A16, .m = 3, .n_out = 70, .k_in = 96,
                                 .num = SW_NUM_INT4, .dtype = SW_DTYPE_F16, .group_elems = 32};

static void first_row_that_can(void **state)
{
    const sw_kernel *kernel, *found;
    gemm_case c;

    (void)state;
    gemm_case_new(&c, &small);
    kernel = sw_kernel_select(&c.problem, NULL);
    assert_int_equal(kernel->op, SW_GEMM_W4A16);
    for (found = sw_kernels; found < kernel; found++)
        assert_true(found->op != SW_GEMM_W4A16 || !found->can_run(&c.problem));
    assert_string_equal(sw_kernel_select(&c.problem, "w4a16_ref")->name, "w4a16_ref");
    assert_ptr_equal(sw_kernel_select(&c.problem, "dense_ref"), kernel); /* another operation */
    assert_ptr_equal(sw_kernel_select(&c.problem, "no_such_row"), kernel);
    assert_null(sw_kernel_find("no_such_row"));
    gemm_case_free(&c);
}

/* Names are unique, and each operation ends with a reference that takes anything. */
static void table_is_complete(void **state)
{
    const sw_kernel *last[SW_GEMM_OP_COUNT] = {NULL};
    gemm_case c;

    (void)state;
    gemm_case_new(&c, &small);
    c.problem.m = 1000000;
    for (int i = 0; i < sw_n_kernels; i++) {
        assert_ptr_equal(sw_kernel_find(sw_kernels[i].name), &sw_kernels[i]);
        last[sw_kernels[i].op] = &sw_kernels[i];
    }
    for (int op = 0; op < SW_GEMM_OP_COUNT; op++) {
        assert_non_null(last[op]);
        assert_non_null(strstr(last[op]->name, "_ref"));
        assert_true(last[op]->can_run(&c.problem));
    }
    c.problem.m = small.m;
    gemm_case_free(&c);
}

static void bias_is_added(void **state)
{
    sw_scratch scratch = {NULL, 0};
    float bias[70], plain[3 * 70];
    gemm_case c;

    (void)state;
    gemm_case_new(&c, &small);
    for (int n = 0; n < 70; n++) bias[n] = (float)n - 30.0f;
    assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
    memcpy(plain, c.problem.y, sizeof plain);
    c.weight.bias = bias;
    assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
    for (int i = 0; i < 3 * 70; i++) assert_true(c.problem.y[i] == plain[i] + bias[i % 70]);
    sw_scratch_free(&scratch);
    sw_scratch_free(&scratch);
    gemm_case_free(&c);
}

static void empty_problems(void **state)
{
    sw_scratch scratch = {NULL, 0};
    float bias[70] = {0};
    gemm_case c;

    (void)state;
    gemm_case_new(&c, &small);
    for (int i = 0; i < 3 * 70; i++) c.problem.y[i] = 7.0f;
    c.problem.m = 0;
    assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
    assert_true(c.problem.y[0] == 7.0f);
    assert_null(scratch.bytes);
    c.problem.m = 3; /* no inputs: Y is the bias */
    c.weight = (sw_weight){.n_out = 70, .k_in = 0, .dense = bias, .dense_dtype = SW_DTYPE_F32,
                           .bias = bias};
    bias[4] = 2.5f;
    assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
    for (int i = 0; i < 3 * 70; i++) assert_true(c.problem.y[i] == (i % 70 == 4 ? 2.5f : 0.0f));
    sw_scratch_free(&scratch);
    gemm_case_free(&c);
}

/* One scratch serves problems of any size, in any order. */
static void scratch_is_reused(void **state)
{
    static const int64_t tokens[] = {1, 64, 2, 9};
    sw_scratch scratch = {NULL, 0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        gemm_shape shape = small;
        gemm_case c;

        shape.m = tokens[i];
        gemm_case_new(&c, &shape);
        c.problem.n_threads = 2;
        assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
        for (int64_t at = 0; at < shape.m * shape.n_out; at++)
            assert_true(fabs((double)c.problem.y[at] - c.want[at]) < 1e-5);
        gemm_case_free(&c);
    }
    sw_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_row_that_can), cmocka_unit_test(table_is_complete),
        cmocka_unit_test(bias_is_added),      cmocka_unit_test(empty_problems),
        cmocka_unit_test(scratch_is_reused),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
