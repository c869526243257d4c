/* test_kernels_exact.c - every row decodes every code of every channel exactly, and the check that
 * says so notices each way in which packed weights go wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/half.h"
#include "kernels/blas.h"
#include "tests/support/cases/gemm_case.h"

/* A one-hot x picks one column of W: Y must be that column, bit for bit; 127 times that where x
 * becomes int8 codes, so that their scale is 1. m tokens at a time, so
 * that both the rows for few and for many tokens see every (n, k). */
static void check_one_hot(const gemm_shape *shape, const sw_kernel *kernel)
{
    float hot = gemm_op_is_int8(shape->op) ? 127.0f : 1.0f;
    gemm_case c;

    gemm_case_new(&c, shape);
    if (!kernel->can_run(&c.problem)) goto done;
    for (int64_t k0 = 0; k0 < shape->k_in; k0 += shape->m) {
        for (int64_t m = 0; m < shape->m; m++)
            for (int64_t k = 0; k < shape->k_in; k++)
                c.x[m * c.problem.x_stride + k] = k == k0 + m ? hot : 0.0f;
        memset(c.want, 0, (size_t)(shape->m * shape->n_out) * sizeof *c.want);
        for (int64_t m = 0; m < shape->m && k0 + m < shape->k_in; m++)
            for (int64_t n = 0; n < shape->n_out; n++)
                c.want[m * shape->n_out + n] =
                    (double)hot * (double)c.values[n * shape->k_in + k0 + m];
        (void)gemm_case_run(&c, kernel, 1);
        if (gemm_case_inexact(&c))
            fail_msg("%s: %lld elements of columns from %lld are inexact", kernel->name,
                     (long long)gemm_case_inexact(&c), (long long)k0);
    }
done:
    gemm_case_free(&c);
}

/* Shape number i of those that differ in how a weight of this operation is stored. */
static void set_storage(gemm_shape *shape, int i)
{
    static const sw_dtype dtypes[] = {SW_DTYPE_F16, SW_DTYPE_BF16, SW_DTYPE_F32, SW_DTYPE_F8_E8M0,
                                      SW_DTYPE_F8_E4M3};
    bool is_float = sw_nums[shape->num].kind == SW_NUM_FLOAT;

    shape->dtype = dtypes[i % (is_float ? 5 : 2)];
    shape->is_asymmetric = !is_float && shape->is_asymmetric;
    if (shape->num == SW_NUM_E4M3 && i % 2) shape->num = SW_NUM_E5M2;
    if (is_float && shape->group_elems == 96) shape->group_elems = 16;
    shape->has_global = is_float && i % 3 == 0; /* a power of two: still exact */
}

static void columns_come_back_exactly(void **state)
{
    static const int64_t groups[] = {32, 64, 96, 128, 0};
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 33};

    (void)state;
    for (int i = 0; i < sw_n_kernels; i++)
        for (int g = 0; g < 5; g++)
            for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
                const sw_kernel *kernel = &sw_kernels[i];
                gemm_shape shape = {.op = kernel->op, .m = tokens[t], .n_out = 75, .k_in = 136,
                                    .num = gemm_op_num(kernel->op), .group_elems = groups[g],
                                    .is_asymmetric = t % 2 == 0,
                                    .seed = (uint32_t)(10 * g + i)};

                set_storage(&shape, g + (int)t);
                if (kernel->op == SW_GEMM_DENSE && g > 0) continue;
                /* whether a tile spans two groups makes another loop; how many do not */
                if (groups[g] != 32 && groups[g] != 128 && tokens[t] != 1 && tokens[t] != 33)
                    continue;
                check_one_hot(&shape, kernel);
            }
}

/* The generator reaches all codes and zeros, or the test above proves less than it says. */
static void all_codes_occur(void **state)
{
    static const int bits[] = {4, 8};

    (void)state;
    for (int b = 0; b < 2; b++) {
        gemm_shape shape = {.op = b ? SW_GEMM_W8A16 : SW_GEMM_W4A16, .m = 1,
                            .n_out = 75, .k_in = 200, .num = b ? SW_NUM_INT8 : SW_NUM_INT4,
                            .dtype = SW_DTYPE_F16, .group_elems = 32, .is_asymmetric = true};
        bool seen[256] = {false}, zero_seen[256] = {false};
        int n_seen = 0, n_zeros = 0;
        gemm_case c;

        gemm_case_new(&c, &shape);
        for (int64_t i = 0; i < 75 * 200; i++) seen[c.codes[i]] = true;
        for (int64_t i = 0; i < 75 * 7; i++) zero_seen[c.zeros[i]] = true;
        for (int i = 0; i < 256; i++) n_seen += seen[i], n_zeros += zero_seen[i];
        assert_int_equal(n_seen, 1 << bits[b]);
        assert_true(n_zeros > (b ? 150 : 15));
        gemm_case_free(&c);
    }
}

/* The same of small floats, but for what is no number. */
static void all_small_floats_occur(void **state)
{
    static const struct {
        sw_gemm_op op;
        sw_num_id num;
        int n_codes;
    } rows[] = {{SW_GEMM_FP4A16, SW_NUM_E2M1, 16}, {SW_GEMM_FP8A16, SW_NUM_E4M3, 254},
                {SW_GEMM_FP8A16, SW_NUM_E5M2, 248}};

    (void)state;
    for (int r = 0; r < 3; r++) {
        gemm_shape shape = {.op = rows[r].op, .m = 1, .n_out = 75, .k_in = 136,
                            .num = rows[r].num, .dtype = SW_DTYPE_F32, .group_elems = 32};
        bool seen[256] = {false};
        int n_seen = 0;
        gemm_case c;

        gemm_case_new(&c, &shape);
        for (int64_t i = 0; i < 75 * 136; i++) seen[c.codes[i]] = true;
        for (int i = 0; i < 256; i++) n_seen += seen[i];
        assert_int_equal(n_seen, rows[r].n_codes);
        for (int i = 0; i < rows[r].n_codes; i++) /* two ways to read the bits */
            assert_true(!seen[i] || gemm_small_float(rows[r].num, i) ==
                                        sw_nums[rows[r].num].values[i]);
        gemm_case_free(&c);
    }
}

static void swap_nibbles(gemm_case *c)
{
    c->tile_codes[70] = (uint8_t)(c->tile_codes[70] << 4 | c->tile_codes[70] >> 4);
}
static void shift_scale_by_a_group(gemm_case *c)
{
    memmove(c->tile_scales + 128, c->tile_scales, 128);
}
static void change_a_zero(gemm_case *c) { c->tile_zeros[5] ^= 1; }
static void transpose_a_tile(gemm_case *c)
{
    uint8_t copy[2048];

    memcpy(copy, c->tile_codes, sizeof copy);
    for (int i = 0; i < 2048; i++) c->tile_codes[i] = copy[i % 32 * 64 + i / 32];
}
static void swap_channel_halves(gemm_case *c)
{
    for (int i = 0; i < 2048; i++)
        c->tile_codes[i] = (uint8_t)(c->tile_codes[i] << 4 | c->tile_codes[i] >> 4);
}
static void forget_permutation(gemm_case *c)
{
    uint8_t byte = c->tile_codes[1];

    c->tile_codes[1] = c->tile_codes[2];
    c->tile_codes[2] = byte;
}

/* The check must refuse every planted fault, through every row, else its passes mean nothing. */
static void faults_are_noticed(void **state)
{
    static void (*const faults[])(gemm_case *) = {
        swap_nibbles,     shift_scale_by_a_group, change_a_zero,
        transpose_a_tile, swap_channel_halves,    forget_permutation};
    static const int64_t tokens[] = {1, 5, 20};

    (void)state;
    for (int i = 0; i < sw_n_kernels; i++)
        for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
            for (int t = 0; t < 3; t++) {
                gemm_shape shape = {.op = sw_kernels[i].op, .m = tokens[t], .n_out = 96,
                                    .k_in = 192, .num = SW_NUM_INT4, .dtype = SW_DTYPE_F16,
                                    .group_elems = 64,
                                    .is_asymmetric = true, .seed = 3};
                double error;
                gemm_case c;

                if (gemm_op_num(sw_kernels[i].op) != SW_NUM_INT4) continue;
                gemm_case_new(&c, &shape);
                if (sw_kernels[i].can_run(&c.problem)) {
                    error = gemm_case_run(&c, &sw_kernels[i], 1);
                    assert_true(error <= sw_kernels[i].tolerance);
                    faults[f](&c);
                    error = gemm_case_run(&c, &sw_kernels[i], 1);
                    if (error < 10 * sw_kernels[i].tolerance)
                        fail_msg("%s: fault %zu passes with error %g", sw_kernels[i].name, f,
                                 error);
                }
                gemm_case_free(&c);
            }
}

/* A NaN or infinity in x reaches every output of its token and no other token's. */
static void not_a_number_stays_in_its_token(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_kernels; i++)
        for (int64_t m = 2; m <= 20; m += 3) {
            gemm_shape shape = {.op = sw_kernels[i].op, .m = m, .n_out = 66, .k_in = 130,
                                .num = gemm_op_num(sw_kernels[i].op),
                                .dtype = SW_DTYPE_F16, .group_elems = 32, .seed = 9};
            gemm_case c;

            gemm_case_new(&c, &shape);
            if (sw_kernels[i].can_run(&c.problem)) {
                c.x[c.problem.x_stride + 129] = NAN;
                (void)gemm_case_run(&c, &sw_kernels[i], 1);
                for (int64_t at = 0; at < m * 66; at++)
                    if (isnan(c.problem.y[at]) != (at / 66 == 1))
                        fail_msg("%s: NaN spread wrongly at %lld", sw_kernels[i].name,
                                 (long long)at);
            }
            gemm_case_free(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_come_back_exactly), cmocka_unit_test(all_codes_occur),
        cmocka_unit_test(all_small_floats_occur),
        cmocka_unit_test(faults_are_noticed), cmocka_unit_test(not_a_number_stays_in_its_token),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
