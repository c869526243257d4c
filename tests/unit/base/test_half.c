/* test_half.c - fp16 and bf16, every code and every boundary, against arithmetic in double.
 *
 * The judge knows only the formats: a code's value by its definition with ldexp, and the
 * nearest code by comparing distances. Where the processor converts as well, it is asked too.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/half.h"

typedef struct half_format {
    const char *name;
    int exponent_bits, mantissa_bits;
    float (*decode)(uint16_t);
    uint16_t (*encode)(float);
} half_format;

static float bf16_decode(uint16_t v) { return sw_bf16_decode(v); }

static const half_format formats[] = {
    {"fp16", 5, 10, sw_f16_decode, sw_f16_encode},
    {"bf16", 8, 7, bf16_decode, sw_bf16_encode},
};
#define EACH_FORMAT(f) for (const half_format *f = formats; f < formats + 2; f++)

/* IEEE 754: the value of a finite code, sign included. */
static double value_of(const half_format *f, uint16_t code)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    int exponent = (code >> f->mantissa_bits) & ((1 << f->exponent_bits) - 1);
    int mantissa = code & ((1 << f->mantissa_bits) - 1);
    double magnitude = exponent ? ldexp((1 << f->mantissa_bits) + mantissa,
                                        exponent - bias - f->mantissa_bits)
                                : ldexp(mantissa, 1 - bias - f->mantissa_bits);

    return code & 0x8000 ? -magnitude : magnitude;
}

static uint16_t infinity_of(const half_format *f)
{
    return (uint16_t)(((1 << f->exponent_bits) - 1) << f->mantissa_bits);
}

static void test_every_code(void **state)
{
    (void)state;
    EACH_FORMAT(f)
    for (uint32_t code = 0; code < 65536; code++) {
        uint16_t magnitude = code & 0x7fff, inf = infinity_of(f);
        float v = f->decode((uint16_t)code);
        if (magnitude > inf) { /* a NaN stays one, with its sign */
            assert_true(isnan(v));
            assert_true((f->encode(v) & 0x7fff) > inf);
            assert_int_equal(f->encode(v) & 0x8000, code & 0x8000);
            continue;
        }
        if (magnitude == inf)
            assert_true(isinf(v) && !signbit(v) == !(code & 0x8000));
        else if ((double)v != value_of(f, (uint16_t)code) || !signbit(v) != !(code & 0x8000))
            fail_msg("%s %04x decodes to %a", f->name, code, (double)v);
        if (f->encode(v) != code) fail_msg("%s %04x: %04x back", f->name, code, f->encode(v));
    }
}

/* Between neighbours: the middle goes to the even code, a hair to either side to that side. The
 * top neighbour of the largest number is where infinity begins. */
static void test_every_boundary(void **state)
{
    (void)state;
    EACH_FORMAT(f)
    for (uint16_t code = 0; code < infinity_of(f); code++) {
        uint16_t up = (uint16_t)(code + 1), even = code & 1 ? up : code;
        double low = value_of(f, code), high = value_of(f, up);
        float middle = (float)((low + high) / 2);
        assert_true((double)middle == (low + high) / 2); /* exact in float, or this says nothing */
        for (int sign = 0; sign < 2; sign++) {
            uint16_t s = (uint16_t)(sign << 15);
            float m = sign ? -middle : middle, out = sign ? -INFINITY : INFINITY;
            if (f->encode(m) != (s | even))
                fail_msg("%s tie above %04x: %04x", f->name, code, f->encode(m));
            if (f->encode(nextafterf(m, 0)) != (s | code))
                fail_msg("%s below the tie above %04x", f->name, code);
            if (f->encode(nextafterf(m, out)) != (s | up))
                fail_msg("%s above the tie above %04x", f->name, code);
        }
    }
}

static void test_extremes(void **state)
{
    (void)state;
    assert_int_equal(sw_f16_encode(65504.0f), 0x7bff);
    assert_int_equal(sw_f16_encode(65519.996f), 0x7bff);
    assert_int_equal(sw_f16_encode(65520.0f), 0x7c00);
    assert_int_equal(sw_f16_encode(-65536.0f), 0xfc00);
    assert_int_equal(sw_f16_encode(0x1p-24f), 1);
    assert_int_equal(sw_f16_encode(0x1p-25f), 0);
    assert_int_equal(sw_f16_encode(-0x1p-25f), 0x8000);
    assert_int_equal(sw_f16_encode(0x1.000002p-25f), 1);
    assert_int_equal(sw_f16_encode(0x1p-149f), 0);
    assert_int_equal(sw_f16_encode(1.0f), 0x3c00);
    assert_int_equal(sw_bf16_encode(3.402823466e38f), 0x7f80); /* FLT_MAX is past the last tie */
    assert_int_equal(sw_bf16_encode(0x1.fep127f), 0x7f7f);
    assert_int_equal(sw_bf16_encode(0x1p-149f), 0);
    assert_int_equal(sw_bf16_encode(1.0f), 0x3f80);
    /* a NaN whose payload lies in the low bits alone must not become infinity */
    assert_true((sw_bf16_encode(sw_f32_from_bits(0x7f800001u)) & 0x7fff) > 0x7f80);
    assert_true((sw_f16_encode(sw_f32_from_bits(0xff800001u)) & 0x7fff) > 0x7c00);
}

static void test_arrays(void **state)
{
    uint16_t codes[77];
    float a[77], b[77];

    (void)state;
    for (size_t i = 0; i < 77; i++) codes[i] = (uint16_t)(i * 907);
    sw_f16_decode_n(a, codes, 77);
    sw_bf16_decode_n(b, codes, 77);
    for (size_t i = 0; i < 77; i++) {
        float x = sw_f16_decode(codes[i]), y = sw_bf16_decode(codes[i]);
        assert_memory_equal(&a[i], &x, 4);
        assert_memory_equal(&b[i], &y, 4);
    }
}

/* Many at once are encoded as each: floats on both sides of every bit that rounding asks, of every
 * exponent, and from everywhere. */
static void test_encoded_arrays(void **state)
{
    enum { N = 4099 }; /* no multiple of a vector */
    static float v[N];
    static uint16_t f16[N], bf16[N];
    uint64_t next = 0;

    (void)state;
    for (int round = 0; round < 600; round++) {
        for (size_t i = 0; i < N; i++, next++) {
            const uint32_t code = (uint32_t)(next / 4) << 12, far = (uint32_t)(next * 2654435761u);
            v[i] = sw_f32_from_bits(round % 2 ? far : code - 2 + (uint32_t)(next % 4));
        }
        sw_f16_encode_n(f16, v, N);
        sw_bf16_encode_n(bf16, v, N);
        for (size_t i = 0; i < N; i++)
            if (f16[i] != sw_f16_encode(v[i]) || bf16[i] != sw_bf16_encode(v[i]))
                fail_msg("%a: fp16 %04x and %04x, bf16 %04x and %04x", (double)v[i], f16[i],
                         sw_f16_encode(v[i]), bf16[i], sw_bf16_encode(v[i]));
    }
}

static void test_overflow(void **state)
{
    float v[33] = {0};

    (void)state;
    v[7] = INFINITY;
    v[8] = -INFINITY;
    v[9] = NAN;
    v[10] = sw_f32_from_bits(0xff800001u);
    v[11] = -65519.996f;
    assert_false(sw_f16_overflows(v, 33));
    for (size_t i = 0; i < 33; i++) {
        const float kept = v[i];
        v[i] = i % 2 ? -65520.0f : 3.402823466e38f;
        assert_true(sw_f16_overflows(v, 33));
        v[i] = kept;
    }
}

#if defined(__x86_64__) && !defined(SW_NO_SIMD)
#include <immintrin.h>

__attribute__((target("f16c"))) static uint16_t hardware_encode(float v)
{
    return (uint16_t)_mm_extract_epi16(
        _mm_cvtps_ph(_mm_set_ss(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 0);
}

__attribute__((target("f16c"))) static float hardware_decode(uint16_t v)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(v)));
}

/* All codes, and floats from everywhere: a step prime to 2^32 visits every exponent. */
static void test_hardware(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip(); /* came after F16C, which clang 14 cannot ask */
    for (uint32_t code = 0; code < 65536; code++) {
        float have = sw_f16_decode((uint16_t)code), want = hardware_decode((uint16_t)code);
        if ((code & 0x7fff) > 0x7c00)
            assert_true(isnan(have) && isnan(want));
        else
            assert_int_equal(sw_f32_bits(have), sw_f32_bits(want));
    }
    for (uint64_t i = 0; i < 4000000; i++) {
        uint32_t bits = (uint32_t)(i * 2654435761u);
        float v = sw_f32_from_bits(bits);
        if (isnan(v)) continue;
        if (sw_f16_encode(v) != hardware_encode(v))
            fail_msg("%a: %04x, hardware %04x", (double)v, sw_f16_encode(v), hardware_encode(v));
    }
}
#else
static void test_hardware(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code), cmocka_unit_test(test_every_boundary),
        cmocka_unit_test(test_extremes),   cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_encoded_arrays), cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_hardware),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
