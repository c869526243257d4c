/* act.c - see act.h. */
#include "formats/num/act.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/num/pow2.h"

int64_t sw_act_groups(const sw_act *act, int64_t k_in)
{
    if (act->scope == SW_ACT_TOKEN) return 1;
    return act->scope == SW_ACT_GROUP ? sw_ceil_div(k_in, act->group_elems) : 0;
}

static float abs_max(const float *x, int64_t n)
{
    float a = 0.0f;

    for (int64_t i = 0; i < n; i++) a = fabsf(x[i]) > a ? fabsf(x[i]) : a;
    return a;
}

float sw_act_scale(const float *x, int64_t n, const sw_act *act, float input_scale)
{
    float a, s;

    if (act->scope == SW_ACT_TENSOR) return input_scale;
    a = abs_max(x, n);
    if (act->scale_dtype == SW_DTYPE_F8_E8M0) return sw_pow2_scale(a, act->num);
    s = a / act->num->top;
    if (act->scale_dtype == SW_DTYPE_F8_E4M3)
        return sw_num_round_to(s / input_scale, SW_DTYPE_F8_E4M3);
    if (!(a > 0.0f)) return 1.0f;
    return s < FLT_MIN ? FLT_MIN : s;
}

static uint8_t encode(float v, const sw_num *num)
{
    float r;

    if (num->encode) return num->encode(v);
    r = rintf(v);
    r = r < -num->top ? -num->top : r > num->top ? num->top : r;
    return (uint8_t)(int8_t)r;
}

static float value(uint8_t code, const sw_num *num)
{
    return num->values ? num->values[code] : (float)(int8_t)code;
}

/* One group of one token: its divisor, which is 0 when every code is 0, and its stored scale. */
static float divisor(float *scale, const float *x, int64_t n, const sw_act *act, float input_scale)
{
    *scale = sw_act_scale(x, n, act, input_scale);
    if (act->scope == SW_ACT_GROUP && act->scale_dtype == SW_DTYPE_F8_E4M3)
        return *scale * input_scale;
    return *scale;
}

static int64_t span_of(const sw_act *act, int64_t k_in)
{
    return act->scope == SW_ACT_GROUP ? act->group_elems : k_in;
}

void sw_act_quantize(uint8_t *codes, float *scales, const float *x, int64_t x_stride,
                     int64_t n_tokens, int64_t k_in, const sw_act *act, float input_scale)
{
    int64_t span = span_of(act, k_in), n_groups = sw_act_groups(act, k_in);

    for (int64_t m = 0; m < n_tokens; m++)
        for (int64_t k = 0; k < k_in; k += span) {
            const float *group = x + m * x_stride + k;
            uint8_t *out = codes + m * k_in + k;
            int64_t n = sw_min_i64(span, k_in - k);
            float scale, d = divisor(&scale, group, n, act, input_scale);
            if (n_groups) scales[m * n_groups + k / span] = scale;
            for (int64_t i = 0; i < n; i++)
                out[i] = d > 0.0f ? encode(group[i] / d, act->num) : 0;
        }
}

static void round_group(float *dst, const float *x, int64_t n, const sw_act *act,
                        float input_scale)
{
    float scale, d = divisor(&scale, x, n, act, input_scale);

    for (int64_t i = 0; i < n; i++)
        dst[i] = d > 0.0f ? d * value(encode(x[i] / d, act->num), act->num) : 0.0f;
}

void sw_act_round(float *dst, int64_t dst_stride, const float *x, int64_t x_stride,
                  int64_t n_tokens, int64_t k_in, const sw_act *act, float input_scale)
{
    int64_t span = span_of(act, k_in);

    for (int64_t m = 0; m < n_tokens; m++) {
        if (act->scope == SW_ACT_NONE) {
            memmove(dst + m * dst_stride, x + m * x_stride, (size_t)k_in * sizeof *dst);
            continue;
        }
        for (int64_t k = 0; k < k_in; k += span)
            round_group(dst + m * dst_stride + k, x + m * x_stride + k,
                        sw_min_i64(span, k_in - k), act, input_scale);
    }
}
