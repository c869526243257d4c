/* test_gemm_parts.c - products of which another kernel or tile computes the last channels.
 * Exit 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/gemm/column_tiles.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/gpu_case.h"

#define W4A16 "w4a16_split_k"
#define MANY "w4a16_persistent"
#define SPLIT "w8a8_split_k"
#define PAIRS "w8a8_two_ctas"
#define STAYS "w8a8_persistent"

/* Weights and rows; X and Y are BF16. Y is where the copy engine can store it: elsewhere another
 * row takes the place of MANY, by a plan that depends on the number of channels. */
static const struct {
    sw_num_id num;
    int64_t group_elems;
    bool is_asymmetric, has_usual_scales;
    sw_dtype scale_dtype;
    sw_act_scope scope;
    int64_t x_gap, y_gap;
    const char *first, *last;
    sw_num_id x_num;
    int64_t scale_rows; /* of blocks, whose codes are put in the order of columns */
} cases[] = {
    {SW_NUM_INT4, 128, false, true, SW_DTYPE_BF16, SW_ACT_NONE, 0, 0, W4A16, W4A16, 0, 0},
    {SW_NUM_INT4, 128, false, true, SW_DTYPE_BF16, SW_ACT_NONE, 0, 8, W4A16, MANY, 0, 0},
    {SW_NUM_INT4, 128, false, true, SW_DTYPE_BF16, SW_ACT_NONE, 0, 0, MANY, W4A16, 0, 0},
    {SW_NUM_INT4, 128, false, false, SW_DTYPE_BF16, SW_ACT_NONE, 3, 0, MANY, W4A16, 0, 0},
    {SW_NUM_INT4, 64, true, false, SW_DTYPE_BF16, SW_ACT_NONE, 0, 0, W4A16, W4A16, 0, 0},
    {SW_NUM_INT3, 128, false, false, SW_DTYPE_BF16, SW_ACT_NONE, 0, 8, W4A16, MANY, 0, 0},
#define BYTES(num, group, has_zeros, scales, scope, first, last, x_num, rows)                      \
    {num, group, has_zeros, false, scales, scope, 3, 8, first, last, x_num, rows}
#define I8 SW_NUM_INT8
#define E4 SW_NUM_E4M3
    BYTES(I8, 0, false, SW_DTYPE_F32, SW_ACT_TOKEN, SPLIT, SPLIT, I8, 0),
    BYTES(I8, 0, false, SW_DTYPE_F32, SW_ACT_TOKEN, STAYS, PAIRS, I8, 0),
    BYTES(E4, 0, false, SW_DTYPE_F32, SW_ACT_TOKEN, STAYS, PAIRS, E4, 0),
    BYTES(E4, 0, false, SW_DTYPE_F32, SW_ACT_TOKEN, PAIRS, SPLIT, E4, 0),
    BYTES(E4, 128, false, SW_DTYPE_F32, SW_ACT_GROUP, STAYS, PAIRS, E4, 128),
    BYTES(E4, 128, false, SW_DTYPE_F32, SW_ACT_GROUP, PAIRS, STAYS, E4, 128),
    BYTES(E4, 128, false, SW_DTYPE_F32, SW_ACT_GROUP, PAIRS, SPLIT, E4, 128),
    BYTES(SW_NUM_INT4, 128, true, SW_DTYPE_BF16, SW_ACT_TOKEN, STAYS, PAIRS, I8, 0),
    BYTES(SW_NUM_INT4, 128, true, SW_DTYPE_BF16, SW_ACT_TOKEN, PAIRS, SPLIT, I8, 0),
    BYTES(SW_NUM_INT4, 128, false, SW_DTYPE_BF16, SW_ACT_TOKEN, PAIRS, PAIRS, E4, 0),
    BYTES(SW_NUM_INT4, 128, false, SW_DTYPE_BF16, SW_ACT_TOKEN, SPLIT, STAYS, E4, 0),
};
#define N_CASES (int)(sizeof cases / sizeof *cases)

static bool is_bytes(int i) { return cases[i].scope != SW_ACT_NONE; }
/* Codes of 4 bits with zero points and inputs of bytes are not compiled for the processor. */
static bool is_left_out(int i)
{
    return DEVICE_IS_EMULATED && is_bytes(i) && cases[i].is_asymmetric;
}

/* Sums of bytes are exact, since clusters that share blocks of all channels may share other ones of
 * some, and there are stages enough for that. */
static gpu_shape shape_of(int i, int64_t m)
{
    gpu_shape s = {.m = m, .n_out = 712, .k_in = is_bytes(i) ? 1024 : 640,
                   .group_elems = cases[i].group_elems, .scale_rows = cases[i].scale_rows,
                   .num = cases[i].num, .is_asymmetric = cases[i].is_asymmetric,
                   .dtype = SW_DTYPE_BF16, .scale_dtype = cases[i].scale_dtype,
                   .scope = cases[i].scope, .x_num = cases[i].x_num, .x_gap = cases[i].x_gap,
                   .y_gap = cases[i].y_gap, .has_usual_scales = cases[i].has_usual_scales,
                   .is_exact = is_bytes(i), .seed = (uint64_t)(m + i)};
    return s;
}

static void order_columns(gpu_case *c)
{
    const sw_cuda_device device = {90, 132};
    sw_err err = {0};

    assert_int_equal(sw_column_tiles_order(&c->problem.tiles, &c->problem.act, &device, NULL, &err),
                     SW_OK);
    assert_int_equal(c->problem.tiles.in_columns,
                     c->shape.scale_rows > 0 || c->shape.num == SW_NUM_INT8);
}

/* A plan by a tile of the row that can run p, another for another `salt`. Few are emulated: false,
 * if there is none. */
static bool plan_of(sw_cuda_plan *out, const sw_cuda_gemm *p, const char *row, int salt)
{
    const int kernel = sw_cuda_kernel_find(row), n_tiles = *sw_cuda_kernels[kernel].n_tiles;
    const sw_cuda_device device = {90, DEVICE_IS_EMULATED ? 4 : 132};

    *out = (sw_cuda_plan){.kernel = kernel, .tile = salt % n_tiles, .device = device,
                          .split = strstr(row, "split_k") ? 1 + salt % 2 : 1, .overlap = true};
    for (int i = 0; i < n_tiles && !sw_cuda_kernels[kernel].can_run(p, out->tile); i++)
        out->tile = (out->tile + 1) % n_tiles;
    return sw_cuda_kernels[kernel].can_run(p, out->tile);
}

/* Y, of which nothing may be missing and no more wrong than rounding makes it. The caller frees
 * it. */
static uint16_t *run(gpu_case *c, const sw_cuda_plan *plan)
{
    uint16_t *y = malloc(c->y_bytes);

    if (!gpu_case_run(c, plan)) fail_msg("a guard broke or an element is missing");
    if (!(gpu_case_error(c) <= gpu_case_bound(c))) fail_msg("error %g", gpu_case_error(c));
    memcpy(y, c->y, c->y_bytes);
    return y;
}

/* The first channels are those of the first plan for all, the last those of the other. */
static void check_parts(gpu_case *c, const sw_cuda_plan *first, const sw_cuda_plan *last,
                        int64_t from)
{
    sw_cuda_plan both = *first;
    uint16_t *want[2] = {run(c, first), run(c, last)}, *have;

    both.rest.from = from;
    both.rest.kernel = last->kernel;
    both.rest.tile = last->tile;
    both.rest.split = last->split;
    have = run(c, &both);
    for (int64_t m = 0; m < c->shape.m; m++) {
        int64_t row = m * c->problem.y_stride;

        assert_memory_equal(have + row, want[0] + row, (size_t)from * 2);
        assert_memory_equal(have + row + from, want[1] + row + from,
                            (size_t)(c->shape.n_out - from) * 2);
    }
    free(want[0]);
    free(want[1]);
    free(have);
}

static void parts_are_those_of_wholes(void **state)
{
    static const int64_t tokens[] = {20, 150, 330};
    int n_checked = 0;

    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int j = 0; j < (is_left_out(i) ? 0 : DEVICE_IS_EMULATED ? 1 : 6); j++) {
            gpu_shape s = shape_of(i, tokens[(i + j) % 3]);
            sw_cuda_plan first, last;
            gpu_case c;

            gpu_case_new(&c, &s);
            gpu_case_expect(&c);
            order_columns(&c);
            if (plan_of(&first, &c.problem, cases[i].first, i + j) &&
                plan_of(&last, &c.problem, cases[i].last, i + 3 * j + 1)) {
                check_parts(&c, &first, &last, j % 2 ? 256 : cases[i].scale_rows ? 384 : 448);
                n_checked++;
            }
            gpu_case_free(&c);
        }
    assert_true(n_checked >= 4 && (DEVICE_IS_EMULATED || n_checked == 6 * N_CASES));
}

/* Gates and their ups lie in different parts. */
static void gates_are_refused(void **state)
{
    gpu_shape s = shape_of(0, 5);
    sw_cuda_plan plan = {.kernel = sw_cuda_kernel_find(W4A16), .split = 1, .device = {90, 132},
                         .rest = {64, sw_cuda_kernel_find(W4A16), 0, 1}};
    sw_err err = {0};
    gpu_case c;

    (void)state;
    s.n_out = 512;
    gpu_case_new(&c, &s);
    c.problem.glu.is_wanted = true;
    assert_false(sw_cuda_gemm_takes_glu(&c.problem, &plan));
    assert_int_equal(sw_cuda_gemm_run(&c.problem, &plan, NULL, NULL, &err), SW_E_BUG);
    gpu_case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_those_of_wholes), cmocka_unit_test(gates_are_refused),
    };

    if (!gpu_is_there()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
