/* test_fault_kernels.c - memory running out while a product grows its workspace, and while the
 * bench gathers its operands: a code, a message, nothing kept, outputs untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/blas.h"
#include "tests/fault/fault.h"
#include "tests/support/cases/gemm_case.h"
#include "verify/speed/speed.h"

typedef struct product {
    gemm_case c;
    sw_scratch scratch;
    int64_t grow_to; /* tokens of the second, larger product */
} product;

/* A small product, then a larger one with the same scratch. */
static sw_code attempt_product(void *ctx, sw_err *err)
{
    product *p = (product *)ctx;
    sw_code rc;

    p->c.problem.m = 1;
    rc = sw_gemm_run(&p->c.problem, &p->scratch, err);
    p->c.problem.m = p->grow_to;
    if (rc == SW_OK) rc = sw_gemm_run(&p->c.problem, &p->scratch, err);
    sw_scratch_free(&p->scratch);
    return rc;
}

static void poison(void *ctx)
{
    product *p = (product *)ctx;

    for (int64_t i = 0; i < p->grow_to * p->c.problem.y_stride; i++) p->c.problem.y[i] = -77.0f;
}

/* The product that had no workspace has written nothing: only the first token may be there. */
static void expect_untouched(void *ctx)
{
    product *p = (product *)ctx;

    for (int64_t i = p->c.problem.y_stride; i < p->grow_to * p->c.problem.y_stride; i++)
        assert_true(p->c.problem.y[i] == -77.0f);
    assert_null(p->scratch.bytes);
    assert_int_equal(p->scratch.size_bytes, 0);
}

static void workspace_runs_out(void **state)
{
    gemm_shape shape = {.op = SW_GEMM_W4A16, .m = 40, .n_out = 70, .k_in = 96, .num = SW_NUM_INT4,
                        .dtype = SW_DTYPE_F16, .group_elems = 32};
    product p = {.grow_to = 40};
    fault_plan plan = {.name = "product", .kinds = FAULT_MEMORY, .attempt = attempt_product,
                       .before = poison, .after_failure = expect_untouched, .ctx = &p};

    (void)state;
    gemm_case_new(&p.c, &shape);
    fault_run(&plan);
    gemm_case_free(&p.c);
}

static sw_code attempt_bench(void *ctx, sw_err *err)
{
    static const int64_t tokens[] = {1, 12};
    sw_speed_options o = {.n_out = 64, .k_in = 64, .group_elems = 32, .tokens = tokens,
                          .n_tokens = 2, .n_threads = 1, .rounds = 1, .cache_bytes = 4096};
    sw_speed_report *report = (sw_speed_report *)ctx;
    sw_code rc = sw_speed_run(report, &o, err);

    if (rc == SW_OK) sw_speed_free(report);
    return rc;
}

static void expect_no_report(void *ctx)
{
    assert_null(((sw_speed_report *)ctx)->rows);
    assert_int_equal(((sw_speed_report *)ctx)->n_rows, 0);
}

static void bench_runs_out(void **state)
{
    sw_speed_report report = {0};
    fault_plan plan = {.name = "bench", .kinds = FAULT_MEMORY, .attempt = attempt_bench,
                       .after_failure = expect_no_report, .ctx = &report};

    (void)state;
    fault_run(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workspace_runs_out),
        cmocka_unit_test(bench_runs_out),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
