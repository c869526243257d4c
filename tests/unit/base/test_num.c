/* test_num.c - number rows, the logical weight, and stored floats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/half.h"
#include "formats/num/num.h"
#include "tests/support/toys/qtensor_gen.h"

static void rows_say_what_their_width_means(void **state)
{
    static const struct { int bits, code_max, sym_zero; const char *name; } want[] = {
        {2, 3, 2, "int2"}, {3, 7, 4, "int3"}, {4, 15, 8, "int4"}, {8, 255, 128, "int8"}};

    (void)state;
    assert_int_equal(SW_NUM_COUNT, 7);
    for (int i = 0; i < 4; i++) {
        const sw_num *num = sw_num_by_bits(want[i].bits);
        assert_ptr_equal(num, &sw_nums[i]);
        assert_string_equal(num->name, want[i].name);
        assert_int_equal(num->code_max, want[i].code_max);
        assert_int_equal(num->sym_zero, want[i].sym_zero);
    }
    assert_null(sw_num_by_bits(5));
    assert_null(sw_num_by_bits(0));
}

static void decode_is_scale_times_code_minus_zero(void **state)
{
    uint8_t codes[] = {0, 7, 8, 15, 1, 2, 3, 4}, zeros[] = {0, 15, 8, 3};
    float scales[] = {0.5f, 2.0f, 0.25f, 1.0f}, have[8];
    int32_t g_idx[] = {1, 0, 0, 1};
    sw_qtensor q = {.spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 2,
                             .scale_dtype = SW_DTYPE_F16},
                    .n_out = 2, .k_in = 4, .n_groups = 2, .codes = codes, .scales = scales};
    static const float sym[] = {-4, -0.5f, 0, 14, -1.75f, -1.5f, -5, -4};
    static const float asym[] = {0, 3.5f, -14, 0, -1.75f, -1.5f, 0, 1};
    static const float scattered[] = {-30, 3.5f, 4, 0, -2, -1.5f, -1.25f, 1};

    (void)state;
    sw_qtensor_decode(have, &q);
    assert_memory_equal(have, sym, sizeof sym);
    q.zeros = zeros;
    q.spec.is_symmetric = false;
    sw_qtensor_decode(have, &q);
    assert_memory_equal(have, asym, sizeof asym);
    q.g_idx = g_idx;
    sw_qtensor_decode(have, &q);
    assert_memory_equal(have, scattered, sizeof scattered);
    q.g_idx = NULL;
    q.spec.group_elems = 0; /* one group per channel */
    q.n_groups = 1;
    sw_qtensor_decode(have, &q);
    assert_true(have[3] == 7.5f && have[4] == -28.0f);
}

static void alloc_gives_zeroed_buffers_and_refuses_nonsense(void **state)
{
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = false, .group_elems = 32,
                     .scale_dtype = SW_DTYPE_F16};
    sw_qtensor q = {0}, untouched = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, 3, 65, &err), SW_OK);
    assert_int_equal(q.n_groups, 3);
    assert_non_null(q.zeros);
    assert_int_equal(q.codes[3 * 65 - 1], 0);
    sw_qtensor_free(&q);
    sw_qtensor_free(&q); /* a freed one is an empty one */
    spec.is_symmetric = true;
    spec.group_elems = 0;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, 3, 65, &err), SW_OK);
    assert_int_equal(q.n_groups, 1);
    assert_null(q.zeros);
    sw_qtensor_free(&q);
    q = untouched;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, 0, 64, &err), SW_E_FORMAT);
    err.code = SW_OK;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, INT64_MAX, 64, &err), SW_E_NOMEM);
    err.code = SW_OK;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, INT64_MAX / 4, 2, &err), SW_E_NOMEM);
    assert_memory_equal(&q, &untouched, sizeof q);
}

static void expect_refusal(const sw_qtensor *q, const char *part)
{
    sw_err err = {0};

    assert_int_equal(sw_qtensor_check(q, &err), SW_E_FORMAT);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void check_names_the_first_offender(void **state)
{
    static const float good_scales[] = {0.0f, -0.0f, -0.5f, 0x1p-24f, -0x1p-24f, -200.0f};
    static const float bad_scales[] = {NAN, INFINITY, -INFINITY, 0.1f, -0.1f,
                                       70000.0f};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    sw_gen_qtensor(&q, 3, false, 32, SW_DTYPE_F16, 4, 64, SW_GEN_RANDOM, 0, 7);
    assert_int_equal(sw_qtensor_check(&q, &err), SW_OK);
    for (size_t i = 0; i < sizeof bad_scales / sizeof *bad_scales; i++) {
        float kept = q.scales[5];
        q.scales[5] = bad_scales[i];
        expect_refusal(&q, "row 2, group 1");
        q.scales[5] = kept;
    }
    for (size_t i = 0; i < sizeof good_scales / sizeof *good_scales; i++) {
        float kept = q.scales[5];
        q.scales[5] = good_scales[i];
        assert_int_equal(sw_qtensor_check(&q, &err), SW_OK);
        q.scales[5] = kept;
    }
    q.codes[3 * 64 + 40] = 8;
    expect_refusal(&q, "code 8 at row 3, column 40 (group 1)");
    q.codes[3 * 64 + 40] = 7;
    q.zeros[7] = 9;
    expect_refusal(&q, "zero point 9 at row 3, group 1");
    q.zeros[7] = 7;
    q.spec.is_symmetric = true;
    expect_refusal(&q, "symmetric");
    q.spec.is_symmetric = false;
    q.g_idx = (int32_t[64]){0};
    assert_int_equal(sw_qtensor_check(&q, &err), SW_OK);
    q.g_idx[9] = 2;
    expect_refusal(&q, "g_idx[9] = 2");
    q.g_idx[9] = -1;
    expect_refusal(&q, "g_idx[9] = -1");
    q.g_idx = NULL;
    sw_qtensor_free(&q);
}

static void a_scale_that_makes_infinite_weights_is_refused(void **state)
{
    sw_qtensor q;

    (void)state;
    sw_gen_qtensor(&q, 8, true, 0, SW_DTYPE_BF16, 2, 32, SW_GEN_RANDOM, 0, 8);
    q.scales[1] = sw_bf16_decode(0x7f7f);
    expect_refusal(&q, "infinite");
    sw_qtensor_free(&q);
}

static void float_codes_decode_under_all_their_scales(void **state)
{
    uint8_t codes[] = {0x7, 0xf, 0x1, 0x0, 0x2, 0x3, 0xc, 0x6};
    float scales[] = {448.0f, 0.5f, 1.0f, 0.25f}, have[8];
    sw_qtensor q = {.spec = {.num = &sw_nums[SW_NUM_E2M1], .is_symmetric = true, .group_elems = 2,
                             .scale_dtype = SW_DTYPE_F8_E4M3, .has_global = true},
                    .n_out = 2, .k_in = 4, .n_groups = 2, .codes = codes, .scales = scales,
                    .global_scale = 0.125f};
    static const float want[] = {336, -336, 0.03125f, 0, 0.125f, 0.1875f, -0.0625f, 0.125f};
    sw_err err = {0};

    (void)state;
    sw_qtensor_decode(have, &q);
    assert_memory_equal(have, want, sizeof want);
    assert_int_equal(sw_qtensor_check(&q, &err), SW_OK);
}

static void check_knows_what_floats_and_shared_scales_must_be(void **state)
{
    sw_qtensor q;

    (void)state;
    sw_gen_float_qtensor(&q, 4, 130, 256, 9); /* 128 x 128, powers of two */
    q.codes[256 + 3] = 0x7f;
    expect_refusal(&q, "code 0x7f at row 1, column 3 is no finite e4m3");
    q.codes[256 + 3] = 0;
    q.scales[2 * 5 + 1] *= 2.0f;
    expect_refusal(&q, "row 0, which shares it");
    q.scales[2 * 5 + 1] /= 2.0f;
    for (int64_t n = 0; n < 128; n++) q.scales[2 * n] = 0.75f;
    expect_refusal(&q, "no power of two");
    sw_qtensor_free(&q);
    sw_gen_float_qtensor(&q, 8, 4, 64, 9); /* NVFP4 with activations */
    q.scales[3] = 0.0f; /* a block too small for its scale */
    assert_int_equal(sw_qtensor_check(&q, &(sw_err){0}), SW_OK);
    q.global_scale = NAN;
    expect_refusal(&q, "global scale nan");
    q.global_scale = 1e38f;
    expect_refusal(&q, "infinite weights");
    q.global_scale = 1.0f;
    q.input_scale = 0.0f;
    expect_refusal(&q, "input scale 0");
    sw_qtensor_free(&q);
}

static void specs_are_the_same_in_every_field_or_not_at_all(void **state)
{
    (void)state;
    for (int a = 0; a < SW_GEN_FLOATS; a++)
        for (int b = 0; b < SW_GEN_FLOATS; b++)
            assert_int_equal(sw_qspec_same(sw_gen_float_spec(a), sw_gen_float_spec(b)), a == b);
}

static void floats_round_to_nearest_even(void **state)
{
    (void)state;
    assert_true(sw_num_round_to(1.0f + 0x1p-11f, SW_DTYPE_F16) == 1.0f);
    assert_true(sw_num_round_to(1.0f + 0x3p-11f, SW_DTYPE_F16) == 1.0f + 0x1p-9f);
    assert_true(sw_num_round_to(1.0f + 0x1p-8f, SW_DTYPE_BF16) == 1.0f);
    assert_true(sw_num_round_to(1.0f + 0x3p-8f, SW_DTYPE_BF16) == 1.0f + 0x1p-6f);
    assert_true(sw_num_round_to(0.1f, SW_DTYPE_F32) == 0.1f);
}

static void stored_floats_come_and_go_unchanged(void **state)
{
    static const float values[] = {0.0f, -1.5f, 0x1p-24f, 65504.0f, 3.140625f};
    static const sw_dtype dtypes[] = {SW_DTYPE_F32, SW_DTYPE_F16, 0};
    float back[5];
    uint8_t stored[20];
    sw_err err = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_float_encode_n(stored, dtypes[i], values, 5, &err), SW_OK);
        assert_int_equal(sw_float_decode_n(back, stored, dtypes[i], 5, &err), SW_OK);
        assert_memory_equal(back, values, sizeof back);
    }
    assert_int_equal(sw_float_encode_n(stored, SW_DTYPE_BF16, values, 2, &err), SW_OK);
    assert_memory_equal(stored, ((uint8_t[]){0, 0, 0xc0, 0xbf}), 4);
    assert_int_equal(sw_float_decode_n(back, stored, SW_DTYPE_BF16, 2, &err), SW_OK);
    assert_memory_equal(back, values, 8);
    assert_int_equal(sw_float_decode_n(back, stored, SW_DTYPE_I8, 2, &err), SW_E_UNSUPPORTED);
    err.code = SW_OK;
    assert_int_equal(sw_float_encode_n(stored, SW_DTYPE_F64, values, 2, &err), SW_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_say_what_their_width_means),
        cmocka_unit_test(decode_is_scale_times_code_minus_zero),
        cmocka_unit_test(alloc_gives_zeroed_buffers_and_refuses_nonsense),
        cmocka_unit_test(check_names_the_first_offender),
        cmocka_unit_test(a_scale_that_makes_infinite_weights_is_refused),
        cmocka_unit_test(float_codes_decode_under_all_their_scales),
        cmocka_unit_test(check_knows_what_floats_and_shared_scales_must_be),
        cmocka_unit_test(specs_are_the_same_in_every_field_or_not_at_all),
        cmocka_unit_test(floats_round_to_nearest_even),
        cmocka_unit_test(stored_floats_come_and_go_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
