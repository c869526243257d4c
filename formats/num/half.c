/* half.c - see half.h. */
#include "formats/num/half.h"

#include "formats/base/hot.h"

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

/* sw_f16_encode without a branch, so that loops become vector instructions: both roundings are
 * made, and what is below the smallest subnormal is shifted out. */
static inline uint16_t f16_of(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7fffffffu, exponent = magnitude >> 23;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t rebiased = magnitude - (112u << 23);
    const uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
    const uint32_t drop = exponent > 112u || exponent < 95u ? 31u : 126u - exponent;
    const uint32_t tiny = (mantissa + (1u << (drop - 1)) - 1u + ((mantissa >> drop) & 1u)) >> drop;
    uint32_t out = exponent > 112u ? normal : tiny;

    out = exponent > 142u ? 0x7c00u : out;
    out = magnitude > 0x7f800000u ? 0x7e00u : out;
    return (uint16_t)(out | ((bits >> 16) & 0x8000u));
}

SW_HOT void sw_f16_encode_n(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = f16_of(sw_f32_bits(src[i]));
}

SW_HOT bool sw_f16_overflows(const float *src, size_t n)
{
    const uint32_t first = sw_f32_bits(SW_F16_OVERFLOW);
    uint32_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= (sw_f32_bits(src[i]) & 0x7fffffffu) - first < 0x7f800000u - first;
    return any != 0;
}

SW_HOT void sw_bf16_encode_n(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = sw_f32_bits(src[i]);
        const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const uint32_t nan = (bits >> 16) | 0x40u;
        dst[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
}

void sw_bf16_decode_n(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = sw_bf16_decode(src[i]);
}

void sw_f16_decode_n(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = sw_f16_decode(src[i]);
}
