/* pow2.c - see pow2.h. */
#include "formats/num/pow2.h"

#include <math.h>

#define EXPONENT_MIN (-126)
#define EXPONENT_MAX 127

static float power(int exponent)
{
    if (exponent < EXPONENT_MIN) exponent = EXPONENT_MIN;
    if (exponent > EXPONENT_MAX) exponent = EXPONENT_MAX;
    return ldexpf(1.0f, exponent);
}

/* v = mantissa * 2^exponent with 1 <= mantissa < 2. */
static float split(int *exponent, float v)
{
    float mantissa = 2.0f * frexpf(v, exponent);

    *exponent -= 1;
    return mantissa;
}

float sw_pow2_scale_by(float a, const sw_num *num, sw_pow2_rule rule)
{
    int e_a, e_top;
    float m_a, m_top;
    bool is_above;

    if (!(a > 0.0f)) return 1.0f;
    m_a = split(&e_a, a);
    m_top = split(&e_top, num->top);
    is_above = rule == SW_POW2_CEIL ? m_a > m_top : rule == SW_POW2_ROUND && m_a >= 1.75f;
    return power(e_a - e_top + is_above);
}

float sw_pow2_scale(float a, const sw_num *num)
{
    return sw_pow2_scale_by(a, num, num->bits == 4 ? SW_POW2_ROUND : SW_POW2_CEIL);
}

float sw_pow2_weight_scale(float a, const sw_qspec *spec)
{
    return spec->pow2_rule ? sw_pow2_scale_by(a, spec->num, (sw_pow2_rule)(spec->pow2_rule - 1))
                           : sw_pow2_scale(a, spec->num);
}

const char *sw_pow2_rule_name(int i)
{
    static const char *const names[SW_POW2_COUNT + 2] = {
        "best", [1 + SW_POW2_FLOOR] = "ocp", [1 + SW_POW2_ROUND] = "round",
        [1 + SW_POW2_CEIL] = "ceil"};

    return names[i];
}
