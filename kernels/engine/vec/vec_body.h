/* vec_body.h - what the vec_*.c files compile, each for its own instruction set.
 *
 * SW_VEC_TABLE names the table to define. exp follows Cody and Waite, Software Manual for the
 * Elementary Functions (1980), chapter 6: x = n ln 2 + r with ln 2 in two parts, then a polynomial
 * in r, then 2^n by its exponent bits, in two steps so that subnormal results round properly.
 */
#ifndef SW_KERNELS_ENGINE_VEC_VEC_BODY_H
#define SW_KERNELS_ENGINE_VEC_VEC_BODY_H

#include <math.h>

#include "formats/num/half.h"
#include "kernels/engine/vec/vec.h"

#ifndef SW_VEC_TABLE
#define SW_VEC_TABLE sw_vec_any
#endif

#define LANES 16

static inline float exp_one(float x)
{
    const float ln2_high = 0.693145751953125f, ln2_low = 1.42860682030941723212e-6f;
    const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float t, n, r, p;
    uint32_t steps, half;

    x = x < -105.0f ? -105.0f : x; /* a NaN passes both */
    x = x > 90.0f ? 90.0f : x;
    t = x * 1.44269504088896341f + round_magic;
    n = t - round_magic;
    steps = sw_f32_bits(t) - sw_f32_bits(round_magic); /* n as a two's complement word */
    r = (x - n * ln2_high) - n * ln2_low;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    half = (steps >> 1) | (steps & 0x80000000u); /* n / 2, rounded down */
    return p * sw_f32_from_bits((half + 127u) << 23) *
           sw_f32_from_bits((steps - half + 127u) << 23);
}

/* tanh: a polynomial where the exponential form would cancel (Cody and Waite, chapter 13, with
 * minimax coefficients for floats), from there on 1 - 2 / (exp(2 x) + 1). */
static inline float tanh_one(float x)
{
    const float size = fabsf(x), z = x * x;
    const float large = 1.0f - 2.0f / (exp_one(size + size) + 1.0f);
    float p = -5.70498872745e-3f;

    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return size < 0.625f ? p * z * x + x : copysignf(large, x);
}

static inline float lanes_sum(const float *acc)
{
    float eight[8], four[4];

    for (int j = 0; j < 8; j++) eight[j] = acc[j] + acc[j + 8];
    for (int j = 0; j < 4; j++) four[j] = eight[j] + eight[j + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static double square_sum(const float *x, int64_t n)
{
    double acc[LANES] = {0}, sum = 0.0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < n; i++, j++) acc[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < LANES; j++) sum += acc[j];
    return sum;
}

static void vec_rms_norm(float *dst, const float *x, const float *w, int64_t n, float eps)
{
    const float mean = (float)(square_sum(x, n) / (double)n);
    const float factor = 1.0f / sqrtf(mean + eps);

    for (int64_t i = 0; i < n; i++) dst[i] = w[i] * (x[i] * factor);
}

static double plain_sum(const float *x, int64_t n)
{
    double acc[LANES] = {0}, sum = 0.0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] += (double)x[i + j];
    for (int j = 0; i < n; i++, j++) acc[j] += (double)x[i];
    for (int j = 0; j < LANES; j++) sum += acc[j];
    return sum;
}

/* The deviation from the mean of float sums in double: exact enough for one pass over squares. */
static void vec_layer_norm(float *dst, const float *x, const float *w, const float *b, int64_t n,
                           float eps)
{
    const double mean = plain_sum(x, n) / (double)n;
    const double spread = square_sum(x, n) / (double)n - mean * mean;
    const float shift = (float)mean;
    const float factor = 1.0f / sqrtf((float)(spread > 0.0 ? spread : 0.0) + eps);

    for (int64_t i = 0; i < n; i++) dst[i] = w[i] * ((x[i] - shift) * factor) + b[i];
}

static void vec_rotate_pairs(float *x, const float *cos, const float *sin, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const float low = x[2 * i], high = x[2 * i + 1];

        x[2 * i] = low * cos[i] - high * sin[i];
        x[2 * i + 1] = high * cos[i] + low * sin[i];
    }
}

static void vec_rotate(float *x, const float *cos, const float *sin, int64_t half)
{
    float *restrict a = x, *restrict b = x + half;

    for (int64_t i = 0; i < half; i++) {
        const float low = a[i], high = b[i];

        a[i] = low * cos[i] - high * sin[i];
        b[i] = high * cos[i] + low * sin[i];
    }
}

static void vec_swiglu(float *g, const float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) g[i] = g[i] / (1.0f + exp_one(-g[i])) * u[i];
}

static void vec_swiglu_clamped(float *g, const float *u, float limit, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float gate = g[i] > limit ? limit : g[i];
        const float capped = u[i] > limit ? limit : u[i];
        const float up = capped < -limit ? -limit : capped;

        g[i] = gate / (1.0f + exp_one(-1.702f * gate)) * (up + 1.0f);
    }
}

static void vec_silu(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = x[i] / (1.0f + exp_one(-x[i]));
}

static void vec_sigmoid(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 1.0f / (1.0f + exp_one(-x[i]));
}

static void vec_relu(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static void vec_relu_squared(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float positive = x[i] < 0.0f ? 0.0f : x[i];

        x[i] = positive * positive;
    }
}

/* x times the normal distribution function of x. Rounded from double, since far on the negative
 * side 1 + erf would cancel. */
static void vec_gelu(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(0.5 * (double)x[i] * erfc((double)x[i] * -0.70710678118654752440));
}

/* Its approximation by Hendrycks and Gimpel (2016): x (1 + tanh z) / 2 = x / (1 + exp(-2 z)), which
 * does not cancel. */
static void vec_gelu_tanh(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float z = 0.79788456080286535588f * (x[i] + 0.044715f * (x[i] * x[i] * x[i]));

        x[i] = x[i] / (1.0f + exp_one(-(z + z)));
    }
}

static void vec_softcap(float *x, float cap, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = cap * tanh_one(x[i] / cap);
}

static void vec_mul(float *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] *= src[i];
}

static void vec_add(float *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] += src[i];
}

static void vec_add_scaled(float *dst, const float *src, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] += src[i] * factor;
}

static void vec_scale(float *x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static float vec_max(const float *x, int64_t n)
{
    float acc[LANES], top = x[0];
    int64_t i = 0;

    for (int j = 0; j < LANES; j++) acc[j] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] = x[i + j] > acc[j] ? x[i + j] : acc[j];
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int j = 0; j < LANES; j++) top = acc[j] > top ? acc[j] : top;
    return top;
}

static float vec_exp_sum(float *x, float shift, int64_t n)
{
    float acc[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            x[i + j] = exp_one(x[i + j] - shift);
            acc[j] += x[i + j];
        }
    for (int j = 0; i < n; i++, j++) {
        x[i] = exp_one(x[i] - shift);
        acc[j] += x[i];
    }
    return lanes_sum(acc);
}

static void vec_exp(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = exp_one(x[i]);
}

/* Columns of a state are independent, so a strip of them keeps its sums in registers. */
#define STRIP 64

static inline void read_strip(float *out, const float *s, const float *w, int64_t n,
                              int64_t width, int64_t n_columns)
{
    float acc[STRIP] = {0};

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n_columns; j++) acc[j] += w[i] * s[i * width + j];
    for (int64_t j = 0; j < n_columns; j++) out[j] = acc[j];
}

static void vec_state_read(float *out, const float *s, const float *w, int64_t n, int64_t width)
{
    int64_t j = 0;

    for (; j + STRIP <= width; j += STRIP) read_strip(out + j, s + j, w, n, width, STRIP);
    if (j < width) read_strip(out + j, s + j, w, n, width, width - j);
}

static inline void step_strip(float *restrict out, float *restrict s, const float *keep,
                              const float *k, const float *restrict d, const float *q, int64_t n,
                              int64_t width, int64_t n_columns)
{
    float acc[STRIP] = {0};

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n_columns; j++) {
            const float made = s[i * width + j] * keep[i] + k[i] * d[j];

            s[i * width + j] = made;
            acc[j] += q[i] * made;
        }
    for (int64_t j = 0; j < n_columns; j++) out[j] = acc[j];
}

static void vec_state_step(float *out, float *s, const float *keep, const float *k,
                           const float *d, const float *q, int64_t n, int64_t width)
{
    int64_t j = 0;

    for (; j + STRIP <= width; j += STRIP)
        step_strip(out + j, s + j, keep, k, d + j, q, n, width, STRIP);
    if (j < width) step_strip(out + j, s + j, keep, k, d + j, q, n, width, width - j);
}

const sw_vec SW_VEC_TABLE = {
    .rms_norm = vec_rms_norm,
    .layer_norm = vec_layer_norm,
    .rotate = vec_rotate,
    .rotate_pairs = vec_rotate_pairs,
    .swiglu = vec_swiglu,
    .swiglu_clamped = vec_swiglu_clamped,
    .sigmoid = vec_sigmoid,
#define SW_ACTIVATION(id, symbol) .symbol = vec_##symbol,
#define SW_ACTIVATION_NAME(name, id)
#include "formats/model/activations.def"
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
    .softcap = vec_softcap,
    .mul = vec_mul,
    .add = vec_add,
    .add_scaled = vec_add_scaled,
    .scale = vec_scale,
    .max = vec_max,
    .exp_sum = vec_exp_sum,
    .exp = vec_exp,
    .state_read = vec_state_read,
    .state_step = vec_state_step,
};

#endif
