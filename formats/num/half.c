/* half.c - see half.h. */
#include "formats/num/half.h"

uint16_t sw_bf16_encode(float v)
{
    uint32_t bits = sw_f32_bits(v);

    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

float sw_f16_decode(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16;
    uint32_t exponent = (v >> 10) & 31u, mantissa = v & 0x3ffu;

    if (exponent == 31) return sw_f32_from_bits(sign | 0x7f800000u | (mantissa << 13));
    if (exponent) return sw_f32_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    /* subnormal: mantissa * 2^-24 is exact in float */
    return (v & 0x8000u ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
}

/* Round away the low `drop` bits of m, to nearest, ties to even. */
static uint32_t round_bits(uint32_t m, uint32_t drop)
{
    uint32_t half = 1u << (drop - 1), kept = m >> drop, rest = m & ((1u << drop) - 1u);

    return kept + (rest > half || (rest == half && (kept & 1u)));
}

uint16_t sw_f16_encode(float v)
{
    uint32_t bits = sw_f32_bits(v), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t exponent = magnitude >> 23, mantissa = (magnitude & 0x7fffffu) | 0x800000u;

    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (exponent >= 143) return (uint16_t)(sign | 0x7c00u); /* 2^16 and above, and infinity */
    if (exponent >= 113) /* the carry of a round-up walks into the exponent, as it should */
        return (uint16_t)(sign | (((exponent - 113u) << 10) + round_bits(mantissa, 13)));
    if (exponent < 102) return (uint16_t)sign; /* below half the smallest subnormal */
    return (uint16_t)(sign | round_bits(mantissa, 126u - exponent));
}

void sw_bf16_decode_n(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = sw_bf16_decode(src[i]);
}

void sw_f16_decode_n(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = sw_f16_decode(src[i]);
}
