/* test_round.c - the fast rounding of inputs has the very bits of the plain one, and a product with
 * rounded inputs is the product of the rounded inputs. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "formats/num/half.h"
#include "kernels/blas.h"
#include "kernels/cpu/round/round.h"
#include "kernels/cpu/simd/features.h"
#include "tests/support/cases/gemm_case.h"

#define N 4099

static bool always(void) { return true; }

static const struct {
    const sw_round_ops *ops;
    bool (*is_here)(void);
} isas[] = {
    {&sw_round_ops_any, always},
#if SW_X86_SIMD
    {&sw_round_ops_avx2, sw_cpu_has_avx2},
    {&sw_round_ops_avx512, sw_cpu_has_avx512},
#endif
};

static const sw_act acts[] = {
    {&sw_nums[SW_NUM_E4M3], SW_ACT_TOKEN, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_TENSOR, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_GROUP, 128, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_E4M3], SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0},
    {&sw_nums[SW_NUM_E2M1], SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0},
    {&sw_nums[SW_NUM_E2M1], SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3},
    {&sw_nums[SW_NUM_E5M2], SW_ACT_TOKEN, 0, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_INT8], SW_ACT_GROUP, 64, SW_DTYPE_F32},
    {&sw_nums[SW_NUM_INT4], SW_ACT_TOKEN, 0, SW_DTYPE_F32},
};
#define N_ACTS (sizeof acts / sizeof *acts)

/* Every midpoint between two values of a format, both its neighbours, the values themselves, both
 * signs, beyond the largest, and denormal floats. */
static int64_t hard_cases(float *x, const sw_num *num)
{
    int64_t n = 0;
    int n_codes = num->kind == SW_NUM_INT ? 1 << (num->bits - 1) : 1 << (num->bits - 1);

    for (int code = 0; code + 1 < n_codes; code++) {
        float a = num->values ? num->values[code] : (float)code;
        float b = num->values ? num->values[code + 1] : (float)(code + 1), middle;

        if (!isfinite(a) || !isfinite(b)) continue;
        middle = 0.5f * (a + b);
        x[n++] = a;
        x[n++] = -a;
        x[n++] = middle;
        x[n++] = -middle;
        x[n++] = nextafterf(middle, a);
        x[n++] = nextafterf(-middle, -b);
    }
    x[n++] = -FLT_MIN / 8;
    x[n++] = FLT_MAX;
    x[n++] = num->top * 1.01f;
    return n;
}

static void check_same(const float *have, const float *want, const float *x, int64_t n,
                       const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (sw_f32_bits(have[i]) != sw_f32_bits(want[i]))
            fail_msg("%s: %.9g becomes %.9g, must be %.9g", what, (double)x[i], (double)have[i],
                     (double)want[i]);
}

static void every_tie_rounds_alike(void **state)
{
    float x[2048], have[2048], want[2048];

    (void)state;
    for (int id = 0; id < SW_NUM_COUNT; id++) {
        sw_act act = {.num = &sw_nums[id], .scope = SW_ACT_TENSOR};
        int64_t n = hard_cases(x, act.num);

        for (float divisor = 1.0f; divisor < 9.0f; divisor *= 8.0f) {
            for (int64_t i = 0; i < n && divisor > 1.0f; i++)
                x[i] = fabsf(x[i]) < 1e30f ? x[i] * divisor : x[i];
            sw_act_round(want, n, x, n, 1, n, &act, divisor);
            for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
                if (!isas[i].is_here()) continue;
                isas[i].ops->round(have, x, n, divisor, act.num);
                check_same(have, want, x, n, act.num->name);
            }
        }
    }
}

static void random_rows_round_alike(void **state)
{
    float *x = malloc(3 * N * sizeof *x), *have = malloc(3 * N * sizeof *x);
    float *want = malloc(3 * N * sizeof *x);
    uint32_t seed = 3;

    (void)state;
    for (int i = 0; i < 3 * N; i++)
        x[i] = ldexpf((float)(int32_t)(gemm_random(&seed) << 8) * 0x1p-31f,
                      (int)(gemm_random(&seed) % 40) - 30);
    for (int i = 1000; i < 1200; i++) x[i] = i % 3 ? 0.0f : -0.0f; /* groups of zeros */
    for (size_t a = 0; a < N_ACTS; a++) {
        sw_weight w = {.n_out = 512, .k_in = N, .act = acts[a], .input_scale = 0.0173f};
        sw_gemm p = {.m = 3, .x = x, .x_stride = N, .w = &w, .n_threads = 2};

        sw_act_round(want, N, x, N, 3, N, &acts[a], w.input_scale);
        sw_round_inputs(have, &p);
        check_same(have, want, x, 3 * N, acts[a].num->name);
    }
    free(x);
    free(have);
    free(want);
}

static void what_is_no_number_stays_none(void **state)
{
    float x[64], y[64];

    (void)state;
    for (size_t a = 0; a < N_ACTS; a++)
        for (int kind = 0; kind < 2; kind++) {
            sw_weight w = {.n_out = 4, .k_in = 64, .act = acts[a], .input_scale = 0.5f};
            sw_gemm p = {.m = 1, .x = x, .x_stride = 64, .w = &w, .n_threads = 1};
            bool is_lost = kind == 0 || acts[a].scope != SW_ACT_TENSOR;

            for (int k = 0; k < 64; k++) x[k] = (float)k;
            x[40] = kind ? -INFINITY : NAN;
            sw_round_inputs(y, &p);
            assert_int_equal(isfinite(y[40]), !is_lost);
            for (int k = 0; k < 32; k++)
                assert_true(isfinite(y[k]) || (is_lost && (acts[a].group_elems == 0 ||
                                                           acts[a].group_elems > 32)));
        }
}

/* sw_gemm_run with quantized inputs is sw_gemm_run on inputs rounded before, dense or in tiles. */
static void products_take_rounded_inputs(void **state)
{
    static const gemm_shape shapes[] = {
        {.op = SW_GEMM_FP8A16, .m = 5, .n_out = 70, .k_in = 200, .num = SW_NUM_E4M3,
         .dtype = SW_DTYPE_F32, .group_elems = 128, .seed = 1},
        {.op = SW_GEMM_FP4A16, .m = 1, .n_out = 70, .k_in = 96, .num = SW_NUM_E2M1,
         .dtype = SW_DTYPE_F8_E4M3, .group_elems = 16, .has_global = true, .seed = 2},
        {.op = SW_GEMM_DENSE, .m = 9, .n_out = 33, .k_in = 100, .dtype = SW_DTYPE_BF16, .seed = 3},
        {.op = SW_GEMM_W4A16, .m = 2, .n_out = 64, .k_in = 64, .num = SW_NUM_INT4,
         .dtype = SW_DTYPE_F16, .group_elems = 32, .seed = 4},
    };
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t a = 0; a < N_ACTS; a++) {
            int64_t n_y = shapes[s].m * shapes[s].n_out, k_in = shapes[s].k_in;
            float *want = malloc((size_t)n_y * sizeof *want);
            float *x = malloc((size_t)(shapes[s].m * k_in) * sizeof *x);
            sw_scratch scratch = {NULL, 0};
            gemm_case c;

            gemm_case_new(&c, &shapes[s]);
            sw_act_round(x, k_in, c.x, k_in, shapes[s].m, k_in, &acts[a], 0.0125f);
            c.problem.x = x;
            assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
            memcpy(want, c.problem.y, (size_t)n_y * sizeof *want);
            c.problem.x = c.x;
            c.weight.act = acts[a];
            c.weight.input_scale = 0.0125f;
            assert_int_equal(sw_gemm_run(&c.problem, &scratch, NULL), SW_OK);
            assert_memory_equal(want, c.problem.y, (size_t)n_y * sizeof *want);
            sw_scratch_free(&scratch);
            gemm_case_free(&c);
            free(want);
            free(x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tie_rounds_alike), cmocka_unit_test(random_rows_round_alike),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(products_take_rounded_inputs),
    };

    sw_blas_single_thread();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
