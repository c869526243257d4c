/* small.c - see small.h. Tables of all values are written by the formats' definitions; codes are
 * found in integer arithmetic, so that every compiler gives the same bits. */
#include "formats/num/small.h"

#include <math.h>

#include "formats/num/half.h"

#define LAST(c, e, m, last)                                                                 \
    ((last) == SW_SMALL_IEEE && !((c) & ((1u << (m)) - 1u)) ? INFINITY : NAN)
#define SIZE(c, e, m, last) \
    ((c) > SW_SMALL_TOP(e, m, last) ? LAST(c, e, m, last) : SW_SMALL_SIZE(c, e, m))
#define VALUE(c, e, m, last)                                                   \
    ((c) & 1u << ((e) + (m)) ? -SIZE((c) & ((1u << ((e) + (m))) - 1u), e, m, last) \
                             : SIZE((c) & ((1u << ((e) + (m))) - 1u), e, m, last))

#define FOUR(f, c, ...) \
    f(c, __VA_ARGS__), f((c) + 1u, __VA_ARGS__), f((c) + 2u, __VA_ARGS__), f((c) + 3u, __VA_ARGS__)
#define SIXTEEN(f, c, ...)                                                \
    FOUR(f, c, __VA_ARGS__), FOUR(f, (c) + 4u, __VA_ARGS__),              \
        FOUR(f, (c) + 8u, __VA_ARGS__), FOUR(f, (c) + 12u, __VA_ARGS__)
#define QUARTER(f, c, ...)                                                \
    SIXTEEN(f, c, __VA_ARGS__), SIXTEEN(f, (c) + 16u, __VA_ARGS__),       \
        SIXTEEN(f, (c) + 32u, __VA_ARGS__), SIXTEEN(f, (c) + 48u, __VA_ARGS__)
#define ALL(f, ...)                                                       \
    QUARTER(f, 0u, __VA_ARGS__), QUARTER(f, 64u, __VA_ARGS__),            \
        QUARTER(f, 128u, __VA_ARGS__), QUARTER(f, 192u, __VA_ARGS__)

#define SW_INTEGER(id, name, bits)
#define SW_SMALL_FLOAT(id, name, symbol, exponent, mantissa, last) \
    const float sw_##symbol##_values[256] = {ALL(VALUE, exponent, mantissa, SW_SMALL_##last)};
#include "formats/num/formats.def"
#undef SW_SMALL_FLOAT

/* 2^(c - 127), from two factors within float's reach. */
#define POWER(c) ((float)(1ull << ((c) % 64u)) * POWER_BASE(c))
#define POWER_BASE(c) \
    ((c) < 64u ? 0x1p-127f : (c) < 128u ? 0x1p-63f : (c) < 192u ? 0x1p1f : 0x1p65f)
#define E8M0(c, unused) ((c) == 255u ? NAN : POWER(c))
const float sw_e8m0_values[256] = {ALL(E8M0, 0)};

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

/* The sign, and all ones for a NaN of a format that has any. */
static inline uint8_t encode(float v, uint32_t exponent_bits, uint32_t mantissa_bits, int last)
{
    uint32_t bits = sw_f32_bits(v), sign_at = exponent_bits + mantissa_bits;
    uint32_t lowest = 129u - (1u << (exponent_bits - 1)), size;

    if (last != SW_SMALL_FINITE && (bits & 0x7fffffffu) > 0x7f800000u)
        size = (1u << sign_at) - 1u;
    else
        size = encode_magnitude(bits, mantissa_bits, lowest,
                                SW_SMALL_TOP(exponent_bits, mantissa_bits, last));
    return (uint8_t)(bits >> 31 << sign_at | size);
}

#define SW_SMALL_FLOAT(id, name, symbol, exponent, mantissa, last) \
    uint8_t sw_##symbol##_encode(float v) { return encode(v, exponent, mantissa, SW_SMALL_##last); }
#include "formats/num/formats.def"
#undef SW_INTEGER
#undef SW_SMALL_FLOAT

uint8_t sw_e8m0_encode(float v)
{
    uint32_t bits = sw_f32_bits(v), code;

    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xff;
    if (!(v > 0.0f)) return 0;
    if (bits < 0x800000u) return bits > 0x600000u; /* 2^-127 and 2^-126: a subnormal between */
    code = round_bits(bits, 23);
    return (uint8_t)(code > 254u ? 254u : code);
}
