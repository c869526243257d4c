/* test_gemm_gates.c - products of gates and ups that leave what the activation makes of them: the
 * bytes of the product and of the kernel for activations behind it. Exit 77 without a GPU. */
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "kernels/cuda/ops/engine_ops.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/gpu_case.h"

#define N_SMS 132
#define LIMIT 1.5f
#define W4A16 "w4a16_split_k"
#define W8A8 "w8a8_split_k"

static const struct {
    int64_t n_out, k_in, group_elems, y_gap;
    sw_num_id num;
    bool is_asymmetric;
    sw_dtype scale_dtype;
    int act;
    const char *kernel;
    sw_act_scope scope;
} cases[] = {
    {256, 512, 128, 0, SW_NUM_INT4, false, SW_DTYPE_F16, SW_MLP_SILU, W4A16, SW_ACT_NONE},
    {640, 1280, 128, 8, SW_NUM_INT4, false, SW_DTYPE_BF16, SW_MLP_GELU_TANH, W4A16, SW_ACT_NONE},
    {384, 1152, 128, 3, SW_NUM_INT4, true, SW_DTYPE_BF16, SW_MLP_SWIGLU_CLAMPED, W4A16,
     SW_ACT_NONE},
    {128, 768, 64, 0, SW_NUM_INT4, true, SW_DTYPE_F16, SW_MLP_SILU_CLAMPED, W4A16, SW_ACT_NONE},
    {512, 640, 0, 0, SW_NUM_INT4, false, SW_DTYPE_BF16, SW_MLP_SILU, W4A16, SW_ACT_NONE},
    {256, 512, 0, 0, SW_NUM_E4M3, false, SW_DTYPE_F32, SW_MLP_SILU, W8A8, SW_ACT_TOKEN},
    {640, 1280, 0, 5, SW_NUM_E4M3, false, SW_DTYPE_BF16, SW_MLP_GELU, W8A8, SW_ACT_TENSOR},
    {384, 1152, 0, 8, SW_NUM_INT8, false, SW_DTYPE_F16, SW_MLP_SILU, W8A8, SW_ACT_TOKEN},
    {128, 768, 0, 0, SW_NUM_INT8, true, SW_DTYPE_F16, SW_MLP_SWIGLU_CLAMPED, W8A8, SW_ACT_TOKEN},
};

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* What the activation's own kernel makes of the Y that the device has: dense, on the host. */
static uint16_t *activated(const gpu_case *c)
{
    const sw_cuda_gemm *p = &c->problem;
    const int64_t n_out = c->shape.n_out, width = n_out / 2, m = c->shape.m;
    const size_t row_bytes = (size_t)n_out * 2;
    uint16_t *y = malloc((size_t)(m * width) * 2);
    sw_act_args a = {.n = m, .width = width, .act = p->glu.act, .limit = p->glu.limit};
    sw_bf16 *d_y = NULL;
    sw_err err = {0};

    assert_int_equal(cudaMalloc((void **)&d_y, (size_t)m * row_bytes), 0);
    for (int64_t i = 0; i < m; i++)
        assert_int_equal(cudaMemcpy(d_y + i * n_out, (sw_bf16 *)p->d_y + i * p->y_stride, row_bytes,
                                    cudaMemcpyDeviceToDevice), 0);
    a.g = (sw_bf16_rows){d_y, n_out};
    a.u = (sw_bf16_rows){d_y + width, n_out};
    must(sw_cuda_act(&a, (sw_launch){0}, &err), &err);
    for (int64_t i = 0; i < m; i++)
        assert_int_equal(cudaMemcpy(y + i * width, d_y + i * n_out, (size_t)width * 2,
                                    cudaMemcpyDeviceToHost), 0);
    assert_int_equal(cudaFree(d_y), 0);
    return y;
}

static void check_plan(gpu_case *c, const sw_cuda_plan *plan)
{
    const int64_t width = c->shape.n_out / 2;
    uint16_t *want;

    c->problem.glu.is_wanted = false;
    if (!gpu_case_run(c, plan)) fail_msg("the product alone broke a guard");
    want = activated(c);
    c->problem.glu.is_wanted = true;
    if (!gpu_case_run(c, plan)) fail_msg("a guard broke or an element is missing");
    for (int64_t m = 0; m < c->shape.m; m++)
        if (memcmp(want + m * width, c->y + m * c->problem.y_stride, (size_t)width * 2) != 0)
            fail_msg("%s, split %d: token %lld of %lld differs, %lld x %lld",
                     sw_cuda_kernels[plan->kernel].tiles[plan->tile].name, plan->split,
                     (long long)m, (long long)c->shape.m, (long long)c->shape.n_out,
                     (long long)c->shape.k_in);
    free(want);
}

/* All tiles and splits that take gates; how many those are. */
static int check_tiles(gpu_case *c, const char *name)
{
    sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find(name), .device = {90, N_SMS},
                         .overlap = true};
    const sw_cuda_kernel *kernel = &sw_cuda_kernels[plan.kernel];
    int n = 0;

    for (plan.tile = 0; plan.tile < *kernel->n_tiles; plan.tile++)
        for (plan.split = 1; plan.split <= 4; plan.split += DEVICE_IS_FOLLOWED ? 3 : 1) {
            if (!kernel->can_run(&c->problem, plan.tile) ||
                !sw_cuda_gemm_takes_glu(&c->problem, &plan))
                continue;
            check_plan(c, &plan);
            n++;
        }
    return n;
}

static void gates_and_ups(void **state)
{
    static const int64_t tokens[] = {1, 7, 8, 33, 64, 70};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            const gpu_shape shape = {.m = tokens[t], .n_out = cases[i].n_out,
                                     .k_in = cases[i].k_in, .group_elems = cases[i].group_elems,
                                     .num = cases[i].num, .is_asymmetric = cases[i].is_asymmetric,
                                     .scope = cases[i].scope, .x_num = cases[i].num,
                                     .dtype = SW_DTYPE_BF16, .scale_dtype = cases[i].scale_dtype,
                                     .y_gap = cases[i].y_gap, .has_columns = true,
                                     .seed = 11 + i};
            gpu_case c;

            if (DEVICE_IS_FOLLOWED && (t + i) % 6 != 1) continue;
            gpu_case_new(&c, &shape);
            c.problem.glu = (sw_cuda_glu){.act = cases[i].act, .limit = LIMIT};
            assert_true(check_tiles(&c, cases[i].kernel) > 0);
            gpu_case_free(&c);
        }
}

/* Of many tokens, of channels that are not whole tiles and of other types, nobody does. */
static void refused(void **state)
{
    const gpu_shape shape = {.m = 4, .n_out = 192, .k_in = 256, .group_elems = 128,
                             .num = SW_NUM_INT4, .dtype = SW_DTYPE_BF16,
                             .scale_dtype = SW_DTYPE_BF16, .seed = 3};
    sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find(W4A16), .split = 1,
                         .device = {90, N_SMS}};
    sw_err err = {0};
    gpu_case c;

    (void)state;
    gpu_case_new(&c, &shape);
    c.problem.glu = (sw_cuda_glu){.is_wanted = true, .act = SW_MLP_SILU};
    assert_int_equal(sw_cuda_gemm_run(&c.problem, &plan, NULL, NULL, &err), SW_E_BUG);
    c.problem.tiles.n_out = 128;
    assert_true(sw_cuda_gemm_takes_glu(&c.problem, &plan));
    c.problem.glu.act = SW_MLP_RELU_SQUARED;
    assert_false(sw_cuda_gemm_takes_glu(&c.problem, &plan));
    c.problem.glu.act = SW_MLP_SILU;
    c.problem.dtype = SW_DTYPE_F16;
    assert_false(sw_cuda_gemm_takes_glu(&c.problem, &plan));
    c.problem.dtype = SW_DTYPE_BF16;
    plan.kernel = sw_cuda_kernel_find("w4a16_persistent");
    assert_false(sw_cuda_gemm_takes_glu(&c.problem, &plan));
    gpu_case_free(&c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gates_and_ups), cmocka_unit_test(refused)};

    if (!gpu_is_there()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
