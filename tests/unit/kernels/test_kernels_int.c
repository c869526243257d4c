/* test_kernels_int.c - products of codes: every row has the reference's activation codes and, with
 * one group per channel, its very bytes. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "kernels/blas.h"
#include "kernels/cpu/int/int_ops.h"
#include "kernels/cpu/simd/features.h"
#include "tests/support/cases/gemm_case.h"

typedef struct isa {
    const sw_int_ops *ops;
    bool (*is_here)(void);
} isa;

static bool always(void) { return true; }

static const isa isas[] = {
    {&sw_int_ops_any, always},
#if SW_X86_SIMD
    {&sw_int_ops_avx2, sw_cpu_has_avx2},
    {&sw_int_ops_vnni, sw_cpu_has_vnni},
#endif
};
#define N_ISAS (sizeof isas / sizeof *isas)

/* Place of input k in word order, from the letter of tiles.h. */
static int64_t place_of(int64_t k)
{
    static const int inputs[4] = {0, 8, 1, 9};
    int s = (int)(k % 64 / 16);

    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 4; i++)
            if (2 * c + inputs[i] == k % 16)
                return k / 64 * 64 + 4 * (8 * (s / 2) + 2 * c + s % 2) + i;
    return -1;
}

static void check_codes(const isa *set, const float *x, int64_t n)
{
    sw_act act = {.num = &sw_nums[SW_NUM_INT8], .scope = SW_ACT_TOKEN,
                  .scale_dtype = SW_DTYPE_F32};
    int64_t padded = (n + 63) / 64 * 64;
    int8_t *codes = malloc((size_t)padded), *want = malloc((size_t)n);
    int32_t *sums = malloc((size_t)(padded / 32) * sizeof *sums);
    float scale, most = set->ops->abs_max(x, n);
    int64_t total = 0, want_total = 0;

    sw_act_quantize((uint8_t *)want, &scale, x, n, 1, n, &act, 0);
    assert_true(sw_act_scale(&most, 1, &act, 0) == scale);
    set->ops->encode(codes, sums, x, n, scale);
    for (int64_t k = 0; k < padded; k++) {
        int expected = k < n ? want[k] : 0;

        if (codes[place_of(k)] != expected)
            fail_msg("code %d for %.9g / %.9g, must be %d", codes[place_of(k)],
                     k < n ? (double)x[k] : 0.0, (double)scale, expected);
        want_total += expected;
    }
    for (int64_t i = 0; i < padded / 32; i++) total += sums[i];
    assert_int_equal(total, want_total);
    free(codes);
    free(want);
    free(sums);
}

/* Random floats, ties and their neighbours, denormals, zeros, the largest floats, ragged ends. */
static void codes_are_the_shared_ones(void **state)
{
    float x[520];

    (void)state;
    for (size_t i = 0; i < N_ISAS; i++) {
        uint32_t seed = 5;

        if (!isas[i].is_here()) continue;
        for (int round = 0; round < 40; round++) {
            float unit = ldexpf(1.0f + (float)round / 64, round * 6 - 126);

            x[0] = 127 * unit;
            for (int k = 1; k < 520; k++) {
                float tie = ((float)(gemm_random(&seed) % 255) - 127.5f) * unit;

                x[k] = k % 4 == 0   ? tie
                       : k % 4 == 1 ? nextafterf(tie, 0)
                       : k % 4 == 2 ? nextafterf(tie, 2 * tie)
                                    : tie * 0.37f;
                if (fabsf(x[k]) > x[0]) x[k] = -x[0];
            }
            check_codes(&isas[i], x, 520 - round * 7);
        }
        for (int k = 0; k < 130; k++) x[k] = k == 70 ? FLT_MIN / 16 : 0;
        check_codes(&isas[i], x, 130);
        x[70] = 0;
        check_codes(&isas[i], x, 130);
        x[3] = -FLT_MAX;
        check_codes(&isas[i], x, 1 + 64);
    }
}

static void one_group_is_exact(void **state)
{
    static const int64_t sizes[][3] = {{1, 65, 64}, {7, 70, 200}, {13, 64, 1400}, {200, 20, 300},
                                       {2, 3, 40000}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int op = SW_GEMM_W4A8; op <= SW_GEMM_W8A8; op++)
            for (int flavour = 0; flavour < 3; flavour++) {
                gemm_shape shape = {.op = (sw_gemm_op)op, .m = sizes[s][0], .n_out = sizes[s][1],
                                    .k_in = sizes[s][2], .num = gemm_op_num((sw_gemm_op)op),
                                    .dtype = SW_DTYPE_F16, .is_asymmetric = flavour == 1,
                                    .is_static = flavour == 2, .seed = 77};
                size_t y_bytes = (size_t)(shape.m * shape.n_out) * sizeof(float);
                float *want = malloc(y_bytes);
                gemm_case c;

                gemm_case_new(&c, &shape);
                (void)gemm_case_run(&c, sw_kernel_find(op == SW_GEMM_W4A8 ? "w4a8_ref"
                                                                          : "w8a8_ref"), 1);
                memcpy(want, c.problem.y, y_bytes);
                for (int i = 0; i < sw_n_kernels; i++) {
                    if (sw_kernels[i].op != shape.op) continue;
                    if (!sw_kernels[i].can_run(&c.problem)) continue;
                    (void)gemm_case_run(&c, &sw_kernels[i], 2);
                    if (memcmp(want, c.problem.y, y_bytes) != 0)
                        fail_msg("%s differs from the reference at k = %lld",
                                 sw_kernels[i].name, (long long)shape.k_in);
                }
                gemm_case_free(&c);
                free(want);
            }
}

/* Sums that leave 32 bits over all of k, with every product at its largest. */
static void long_sums_do_not_overflow(void **state)
{
    gemm_shape shape = {.op = SW_GEMM_W8A8, .m = 1, .n_out = 2, .k_in = 140000,
                        .num = SW_NUM_INT8, .dtype = SW_DTYPE_F16, .is_asymmetric = true};
    gemm_case c;

    (void)state;
    gemm_case_new(&c, &shape);
    for (int64_t k = 0; k < 2 * shape.k_in; k++) c.codes[k] = 255;
    c.zeros[0] = c.zeros[1] = 0;
    for (int64_t k = 0; k < shape.k_in; k++) c.x[k] = 1.0f;
    gemm_case_pack(&c);
    gemm_case_expect(&c);
    for (int i = 0; i < sw_n_kernels; i++)
        if (sw_kernels[i].op == shape.op && sw_kernels[i].can_run(&c.problem)) {
            (void)gemm_case_run(&c, &sw_kernels[i], 1);
            assert_true(fabs((double)c.problem.y[0] - c.want[0]) < 1e-5 * c.want[0]);
        }
    gemm_case_free(&c);
}

/* A token with a NaN, and with an infinity where the scale follows it, has no product. */
static void tokens_without_codes(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_kernels; i++)
        for (int kind = 0; kind < 4; kind++) {
            gemm_shape shape = {.op = sw_kernels[i].op, .m = 3, .n_out = 66, .k_in = 130,
                                .num = gemm_op_num(sw_kernels[i].op), .dtype = SW_DTYPE_F16,
                                .is_static = kind % 2, .seed = 9};
            bool is_lost = kind < 2 || !shape.is_static;
            gemm_case c;

            if (!gemm_op_is_int8(shape.op)) continue;
            gemm_case_new(&c, &shape);
            c.x[c.problem.x_stride + 60] = kind < 2 ? NAN : -INFINITY;
            if (sw_kernels[i].can_run(&c.problem)) {
                (void)gemm_case_run(&c, &sw_kernels[i], 1);
                for (int64_t at = 0; at < 3 * 66; at++)
                    assert_int_equal(isfinite(c.problem.y[at]), at / 66 != 1 || !is_lost);
            }
            gemm_case_free(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_shared_ones), cmocka_unit_test(one_group_is_exact),
        cmocka_unit_test(long_sums_do_not_overflow), cmocka_unit_test(tokens_without_codes),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
