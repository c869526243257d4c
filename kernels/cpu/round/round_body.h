/* round_body.h - rounding to small floats and to integers without a branch; see round.h.
 *
 * Included once per instruction set. A number a between 2^e and 2^(e+1) is rounded to multiples of
 * q = 2^(e-n) by adding 2^23 * q and taking it off again: that sum has q as its last place,
 * and ties go to the even multiple, which is the even code. Denormals of the format share the
 * exponent of its smallest normal number.
 */
#include <string.h>

#include "formats/num/half.h"
#include "kernels/cpu/round/round.h"

static inline float round_small(float x, float divisor, uint32_t least_bits, uint32_t shift_bits,
                                float top)
{
    float v = x / divisor, size, round;
    uint32_t bits = sw_f32_bits(v), sign = bits & 0x80000000u, exponent;

    size = sw_f32_from_bits(bits ^ sign);
    size = size < top ? size : top;
    exponent = sw_f32_bits(size) & 0x7f800000u;
    exponent = exponent > least_bits ? exponent : least_bits;
    round = sw_f32_from_bits(exponent + shift_bits);
    size = size + round - round;
    return divisor * sw_f32_from_bits(sw_f32_bits(size) | sign);
}

static inline float round_int(float x, float divisor, float top)
{
    const float round = 12582912.0f;
    float v = x / divisor;

    v = v > -top ? v : -top;
    v = v < top ? v : top;
    return divisor * (float)(int32_t)(v + round - round);
}

static void round_run(float *dst, const float *x, int64_t n, float divisor, const sw_num *num)
{
    uint32_t least_bits = sw_f32_bits(num->normal);
    uint32_t shift_bits = (uint32_t)(23 - num->mantissa_bits) << 23;
    float top = num->top;

    if (num->kind == SW_NUM_INT)
        for (int64_t i = 0; i < n; i++) dst[i] = round_int(x[i], divisor, top);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = round_small(x[i], divisor, least_bits, shift_bits, top);
}

/* Magnitudes compare like their bits, and a NaN beats them all. */
static float abs_max(const float *x, int64_t n)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = sw_f32_bits(x[i]) & 0x7fffffffu;

        most = bits > most ? bits : most;
    }
    return sw_f32_from_bits(most);
}

const sw_round_ops ROUND_OPS = {.abs_max = abs_max, .round = round_run};
