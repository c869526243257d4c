/* test_small.c - floats of four to eight bits: every code, every boundary and every fp16 input,
 * against arithmetic in double that knows the formats' definitions only. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/half.h"
#include "formats/num/pow2.h"
#include "formats/num/small.h"

typedef struct small_format {
    const char *name;
    int bits, mantissa_bits, bias;
    int last; /* largest finite magnitude code */
    const float *values;
    uint8_t (*encode)(float);
} small_format;

/* Of the last magnitude codes none, one, or those of the largest exponent are no finite numbers. */
#define LAST_FINITE(e, m) ((1 << ((e) + (m))) - 1)
#define LAST_NAN_LAST(e, m) (LAST_FINITE(e, m) - 1)
#define LAST_IEEE(e, m) (LAST_FINITE(e, m) - (1 << (m)))
#define SW_INTEGER(id, name, bits)
#define SW_SMALL_FLOAT(id, name, symbol, e, m, last)                                             \
    {name, 1 + (e) + (m), m, (1 << ((e) - 1)) - 1, LAST_##last(e, m), sw_##symbol##_values,      \
     sw_##symbol##_encode},
static const small_format formats[] = {
#include "formats/num/formats.def"
};
#undef SW_INTEGER
#undef SW_SMALL_FLOAT
#define N_FORMATS (sizeof formats / sizeof *formats)
#define EACH_FORMAT(f) for (const small_format *f = formats; f < formats + N_FORMATS; f++)

static double magnitude_of(const small_format *f, int code)
{
    int exponent = code >> f->mantissa_bits, mantissa = code & ((1 << f->mantissa_bits) - 1);

    if (!exponent) return ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    return ldexp((1 << f->mantissa_bits) + mantissa, exponent - f->bias - f->mantissa_bits);
}

static void every_code_means_its_value_and_comes_back(void **state)
{
    (void)state;
    EACH_FORMAT(f) {
        int sign_bit = 1 << (f->bits - 1);
        for (int code = 0; code < 2 * sign_bit; code++) {
            int magnitude = code & (sign_bit - 1);
            float v = f->values[code];
            if (magnitude > f->last) {
                bool is_inf = magnitude % (1 << f->mantissa_bits) == 0; /* of IEEE only */
                assert_true(is_inf ? isinf(v) : isnan(v));
                assert_int_equal(f->encode(v), is_inf ? (code & sign_bit) | f->last
                                                      : (code & sign_bit) | (sign_bit - 1));
                continue;
            }
            if ((double)fabsf(v) != magnitude_of(f, magnitude) || !signbit(v) != !(code & sign_bit))
                fail_msg("%s 0x%02x means %a", f->name, code, (double)v);
            if (f->encode(v) != code)
                fail_msg("%s 0x%02x: 0x%02x back", f->name, code, f->encode(v));
        }
    }
}

/* Nearest finite magnitude by comparing distances in double; on a tie the even code. */
static int nearest(const small_format *f, double v)
{
    int best = 0;

    v = fmin(v, 2 * magnitude_of(f, f->last)); /* farther out distances all look alike */
    for (int code = 1; code <= f->last; code++) {
        double now = fabs(magnitude_of(f, code) - v), then = fabs(magnitude_of(f, best) - v);
        if (now < then || (now == then && code % 2 == 0)) best = code;
    }
    return best;
}

static void expect_code(const small_format *f, float v)
{
    int want = nearest(f, (double)fabsf(v)) | (signbit(v) ? 1 << (f->bits - 1) : 0);

    if (f->encode(v) != want)
        fail_msg("%s of %a: have 0x%02x, want 0x%02x", f->name, (double)v, f->encode(v), want);
}

static void every_boundary_goes_to_the_even_code(void **state)
{
    (void)state;
    EACH_FORMAT(f)
    for (int code = 0; code < f->last; code++) {
        float middle = (float)((magnitude_of(f, code) + magnitude_of(f, code + 1)) / 2);
        assert_int_equal(f->encode(middle), code % 2 ? code + 1 : code);
        assert_int_equal(f->encode(nextafterf(middle, 0)), code);
        assert_int_equal(f->encode(nextafterf(middle, INFINITY)), code + 1);
        expect_code(f, -middle);
    }
}

static void every_half_rounds_to_the_nearest(void **state)
{
    (void)state;
    EACH_FORMAT(f)
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float v = sw_f16_decode((uint16_t)bits);
        if (isfinite(v)) expect_code(f, v);
    }
}

static void floats_at_the_ends_saturate_or_vanish(void **state)
{
    static const float ends[] = {0x1p-149f, 0x1p-126f, 0x1.fffffep127f, 1e30f, 464.0f, 465.0f,
                                 61440.0f, 7.0f, 5.0f, 0x1p-10f, 0x1.000002p-10f, 0x1p-17f};

    (void)state;
    EACH_FORMAT(f) {
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            expect_code(f, ends[i]);
            expect_code(f, -ends[i]);
        }
        assert_int_equal(f->encode(INFINITY), f->last);
        assert_int_equal(f->encode(-INFINITY), f->last | 1 << (f->bits - 1));
        assert_int_equal(f->encode(-0.0f), 1 << (f->bits - 1));
    }
    assert_int_equal(sw_e2m1_encode(NAN), 7);
    assert_int_equal(sw_e4m3_encode(NAN), 0x7f);
}

/* Facts that the specifications print. */
static void printed_facts_hold(void **state)
{
    static const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    static const int tie_codes[] = {0, 2, 2, 4, 4, 6, 6};

    (void)state;
    assert_memory_equal(sw_e2m1_values, e2m1, sizeof e2m1);
    for (int i = 0; i < 7; i++) assert_int_equal(sw_e2m1_encode(ties[i]), tie_codes[i]);
    assert_true(sw_e4m3_values[0x7e] == 448.0f && sw_e4m3_values[0x38] == 1.0f);
    assert_true(sw_e4m3_values[0x01] == 0.001953125f && sw_e4m3_values[0x08] == 0x1p-6f);
    assert_true(isnan(sw_e4m3_values[0x7f]) && isnan(sw_e4m3_values[0xff]));
    assert_true(sw_e5m2_values[0x7b] == 57344.0f && isinf(sw_e5m2_values[0x7c]));
    assert_int_equal(sw_e4m3_encode(200.0f), 0x74); /* 4.5 eighths: a tie, to the even 192 */
    for (int code = 0; code < 256; code++) { /* e5m2 is the upper byte of fp16 */
        float half = sw_f16_decode((uint16_t)(code << 8));
        if (!isnan(half)) assert_true(sw_e5m2_values[code] == half);
    }
}

static void e8m0_is_a_power_of_two(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++) {
        float v = sw_e8m0_values[code];
        assert_true((double)v == ldexp(1.0, code - 127));
        assert_int_equal(sw_e8m0_encode(v), code);
        if (code == 254) break;
        assert_int_equal(sw_e8m0_encode(1.5f * v), code % 2 ? code + 1 : code);
        assert_int_equal(sw_e8m0_encode(nextafterf(1.5f * v, 0)), code);
        assert_int_equal(sw_e8m0_encode(nextafterf(1.5f * v, INFINITY)), code + 1);
    }
    assert_true(sw_e8m0_values[127] == 1.0f && isnan(sw_e8m0_values[255]));
    assert_int_equal(sw_e8m0_encode(0.0f), 0);
    assert_int_equal(sw_e8m0_encode(-3.0f), 0);
    assert_int_equal(sw_e8m0_encode(0x1.8p127f), 254);
    assert_int_equal(sw_e8m0_encode(INFINITY), 254);
    assert_int_equal(sw_e8m0_encode(NAN), 255);
}

/* The same largest magnitude under three rules: the bytes that their users write. */
static void exponent_rules_differ_as_they_should(void **state)
{
    static const struct { float a; int num, floor, round, ceil; } want[] = {
        {3.6f, SW_NUM_E2M1, 0x7e, 0x7f, 0x7f},  {3.4f, SW_NUM_E2M1, 0x7e, 0x7e, 0x7f},
        {3.0f, SW_NUM_E2M1, 0x7e, 0x7e, 0x7e},  {3.5f, SW_NUM_E2M1, 0x7e, 0x7f, 0x7f},
        {2.45f, SW_NUM_E2M1, 0x7e, 0x7e, 0x7e}, {2.24f, SW_NUM_E4M3, 0x78, 0x78, 0x78},
        {448.0f, SW_NUM_E4M3, 0x7f, 0x80, 0x7f}, {450.0f, SW_NUM_E4M3, 0x7f, 0x80, 0x80},
        {1e-44f, SW_NUM_E4M3, 0x01, 0x01, 0x01}, {3e38f, SW_NUM_E2M1, 0xfc, 0xfd, 0xfd}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const sw_num *num = &sw_nums[want[i].num];
        assert_int_equal(sw_e8m0_encode(sw_pow2_scale_by(want[i].a, num, SW_POW2_FLOOR)),
                         want[i].floor);
        assert_int_equal(sw_e8m0_encode(sw_pow2_scale_by(want[i].a, num, SW_POW2_ROUND)),
                         want[i].round);
        assert_int_equal(sw_e8m0_encode(sw_pow2_scale_by(want[i].a, num, SW_POW2_CEIL)),
                         want[i].ceil);
    }
    assert_true(sw_pow2_scale(0.0f, &sw_nums[SW_NUM_E2M1]) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_means_its_value_and_comes_back),
        cmocka_unit_test(every_boundary_goes_to_the_even_code),
        cmocka_unit_test(every_half_rounds_to_the_nearest),
        cmocka_unit_test(floats_at_the_ends_saturate_or_vanish),
        cmocka_unit_test(printed_facts_hold),
        cmocka_unit_test(e8m0_is_a_power_of_two),
        cmocka_unit_test(exponent_rules_differ_as_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
