/* small.c - see small.h. Tables of all values are written by the formats' definitions; codes are
 * found in integer arithmetic, so that every compiler gives the same bits. */
#include "formats/num/small.h"

#include <math.h>

#include "formats/num/half.h"

/* Value of code c with m mantissa bits and exponents whose lowest, as a subnormal, counts units
 * of `unit`: mantissa and hidden bit times 2^(exponent - 1). All exact in float. */
#define MANTISSA(c, m) ((c) & ((1u << (m)) - 1))
#define EXPONENT(c, m) (((c) & 0x7fu) >> (m))
#define MAGNITUDE(c, m, unit)                                                         \
    (EXPONENT(c, m) ? (float)((1u << (m)) + MANTISSA(c, m)) *                         \
                          (float)(1ull << (EXPONENT(c, m) - (EXPONENT(c, m) > 0))) * (unit) \
                    : (float)MANTISSA(c, m) * (unit))
#define SIGNED(c, v) ((c) & 0x80u ? -(v) : (v))

#define E4M3(c) SIGNED(c, ((c) & 0x7fu) == 0x7fu ? NAN : MAGNITUDE(c, 3, 0x1p-9f))
#define E5M2(c)                                    \
    SIGNED(c, ((c) & 0x7fu) > 0x7cu    ? NAN       \
              : ((c) & 0x7fu) == 0x7cu ? INFINITY  \
                                       : MAGNITUDE(c, 2, 0x1p-16f))

#define FOUR(f, c) f(c), f((c) + 1u), f((c) + 2u), f((c) + 3u)
#define SIXTEEN(f, c) FOUR(f, c), FOUR(f, (c) + 4u), FOUR(f, (c) + 8u), FOUR(f, (c) + 12u)
#define QUARTER(f, c) SIXTEEN(f, c), SIXTEEN(f, (c) + 16u), SIXTEEN(f, (c) + 32u), \
                      SIXTEEN(f, (c) + 48u)
#define ALL(f) QUARTER(f, 0u), QUARTER(f, 64u), QUARTER(f, 128u), QUARTER(f, 192u)

const float sw_e2m1_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
const float sw_e4m3_values[256] = {ALL(E4M3)};
const float sw_e5m2_values[256] = {ALL(E5M2)};

/* 2^(c - 127), from two factors within float's reach. */
#define POWER(c) ((float)(1ull << ((c) % 64u)) * POWER_BASE(c))
#define POWER_BASE(c) \
    ((c) < 64u ? 0x1p-127f : (c) < 128u ? 0x1p-63f : (c) < 192u ? 0x1p1f : 0x1p65f)
#define E8M0(c) ((c) == 255u ? NAN : POWER(c))
const float sw_e8m0_values[256] = {ALL(E8M0)};

/* Round away the low `drop` bits of m, to nearest, ties to even. */
static uint32_t round_bits(uint32_t m, uint32_t drop)
{
    uint32_t half = 1u << (drop - 1), kept = m >> drop, rest = m & ((1u << drop) - 1u);

    return kept + (rest > half || (rest == half && (kept & 1u)));
}

/* Magnitude code of |v|; `lowest` is the float exponent field of the smallest normal number. */
static uint32_t encode_magnitude(uint32_t bits, uint32_t mantissa_bits, uint32_t lowest,
                                 uint32_t code_max)
{
    uint32_t exponent = (bits >> 23) & 0xffu, mantissa = (bits & 0x7fffffu) | 0x800000u;
    uint32_t drop = 23u - mantissa_bits, code;

    if (exponent >= lowest) /* the carry of a round-up walks into the exponent, as it should */
        code = ((exponent - lowest) << mantissa_bits) + round_bits(mantissa, drop);
    else if (lowest - exponent + drop > 24u)
        code = 0; /* below half the smallest subnormal */
    else
        code = round_bits(mantissa, lowest - exponent + drop);
    return code > code_max ? code_max : code;
}

uint8_t sw_e2m1_encode(float v)
{
    uint32_t bits = sw_f32_bits(v);

    return (uint8_t)((bits >> 31) << 3 | encode_magnitude(bits, 1, 127, 7));
}

uint8_t sw_e4m3_encode(float v)
{
    uint32_t bits = sw_f32_bits(v), sign = (bits >> 24) & 0x80u;

    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    return (uint8_t)(sign | encode_magnitude(bits, 3, 121, 0x7e));
}

uint8_t sw_e5m2_encode(float v)
{
    uint32_t bits = sw_f32_bits(v), sign = (bits >> 24) & 0x80u;

    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    return (uint8_t)(sign | encode_magnitude(bits, 2, 113, 0x7b));
}

uint8_t sw_e8m0_encode(float v)
{
    uint32_t bits = sw_f32_bits(v), code;

    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xff;
    if (!(v > 0.0f)) return 0;
    if (bits < 0x800000u) return bits > 0x600000u; /* 2^-127 and 2^-126: a subnormal between */
    code = round_bits(bits, 23);
    return (uint8_t)(code > 254u ? 254u : code);
}
