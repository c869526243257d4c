/* vec.h - the row-wise arithmetic of a decoder block, one table per instruction set.
 *
 * The same plain C (vec_body.h) is compiled three times. Sums run in sixteen fixed lanes and
 * nothing is contracted, so all tables give the same bytes and a choice changes speed alone.
 */
#ifndef SW_KERNELS_ENGINE_VEC_VEC_H
#define SW_KERNELS_ENGINE_VEC_VEC_H

#include <stdint.h>

typedef struct sw_vec {
    /* dst[n] = x * w / sqrt(mean(x^2) + eps); dst may be x */
    void (*rms_norm)(float *dst, const float *x, const float *w, int64_t n, float eps);
    /* dst[n] = (x - mean) * w / sqrt(mean((x - mean)^2) + eps) + b; dst may be x */
    void (*layer_norm)(float *dst, const float *x, const float *w, const float *b, int64_t n,
                       float eps);
    /* one head [2 * half]: pairs (i, i + half) turned by the angles behind cos and sin [half] */
    void (*rotate)(float *x, const float *cos, const float *sin, int64_t half);
    /* the same for pairs (2 i, 2 i + 1) */
    void (*rotate_pairs)(float *x, const float *cos, const float *sin, int64_t half);
    /* g[n] = silu(g) * u */
    void (*swiglu)(float *g, const float *u, int64_t n);
    /* g = min(g, limit), u within +-limit: g[n] = g * sigmoid(1.702 g) * (u + 1) */
    void (*swiglu_clamped)(float *g, const float *u, float limit, int64_t n);
    void (*sigmoid)(float *x, int64_t n);
#define SW_ACTIVATION(id, symbol) void (*symbol)(float *x, int64_t n);
#define SW_ACTIVATION_NAME(name, id)
#include "formats/model/activations.def"
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
    void (*softcap)(float *x, float cap, int64_t n); /* cap * tanh(x / cap) */
    void (*mul)(float *dst, const float *src, int64_t n);
    void (*add)(float *dst, const float *src, int64_t n);
    void (*add_scaled)(float *dst, const float *src, float factor, int64_t n);
    void (*scale)(float *x, float factor, int64_t n);
    float (*max)(const float *x, int64_t n); /* n >= 1 */
    /* x[n] = exp(x - shift); returns the sum */
    float (*exp_sum)(float *x, float shift, int64_t n);
    /* y[n] = exp(x), at most 2 ulp from the true value over all floats; dst may be x */
    void (*exp)(float *y, const float *x, int64_t n);
    /* Of a matrix s [n, width] that a recurrent mixer remembers (mixers/): */
    /* out[width] = sum over i of w[i] * s[i, :], in the order of i */
    void (*state_read)(float *out, const float *s, const float *w, int64_t n, int64_t width);
    /* s[i, :] = s[i, :] * keep[i] + k[i] * d, then out[width] = sum over i of q[i] * s[i, :] */
    void (*state_step)(float *out, float *s, const float *keep, const float *k, const float *d,
                       const float *q, int64_t n, int64_t width);
} sw_vec;

extern const sw_vec sw_vec_any;    /* the baseline machine */
extern const sw_vec sw_vec_avx2;   /* same as _any in a build without vectors */
extern const sw_vec sw_vec_avx512;

const sw_vec *sw_vec_best(void); /* for this processor */

#endif
