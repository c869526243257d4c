/* blocks_k_encode.c - writing Q4_K and Q6_K: 256 elements, scales of scales.
 *
 * Three steps. Each sub-block alone finds the float scale (and minimum) with the least weighted
 * error: several cuts of its range, each fitted to its codes by least squares. The largest of them
 * decide the block's F16 scales. Then the small integers are chosen by the error they really lead
 * to, not by rounding, and the F16 scales fitted to all 256 codes, in turns, as long as the block
 * gets better.
 *
 * Weights of the error, where no importance is given, are those by which these types are commonly
 * written: the mean magnitude plus the own one (Q4_K), the square of the value (Q6_K).
 */
#include <math.h>
#include <string.h>

#include "formats/num/blocks_internal.h"

#define BLOCK 256
#define ROUNDS 3 /* of choosing integers and fitting scales */
#define CUTS 24
#define CUT_FIRST (-1.2f)
#define CUT_STEP 0.1f

static int clamp_to(long v, int low, int top) { return v < low ? low : v > top ? top : (int)v; }
static float inverse_of(float d)
{
    const float inverse = 1.0f / d;

    return d != 0.0f && isfinite(inverse) ? inverse : 0.0f;
}
static float to_f16(float v) { return sw_num_round_to(v, SW_DTYPE_F16); }

/* The same, but what is not zero stays so: integers can still scale the smallest F16 there is. */
static float scale_f16(float v)
{
    const float rounded = to_f16(v);

    return rounded == 0.0f && v != 0.0f ? copysignf(0x1p-24f, v) : rounded;
}

/* --- Q4_K ------------------------------------------------------------------------------------- */

#define K4_SUBS 8
#define K4_ELEMS 32
#define K4_TOP 15
#define K4_INT_TOP 63

typedef struct k4_block {
    float d, m; /* as stored */
    uint8_t scale[K4_SUBS], min[K4_SUBS], q[BLOCK];
    double error;
} k4_block;

static void k4_weights(float w[BLOCK], const float *x, const float *importance)
{
    double squares = 0.0;

    for (int i = 0; i < BLOCK; i++) squares += (double)x[i] * (double)x[i];
    for (int s = 0; s < K4_SUBS; s++) {
        double sub = 0.0;
        float mean;

        for (int i = 32 * s; i < 32 * s + 32; i++) sub += (double)x[i] * (double)x[i];
        mean = (float)sqrt(sub / K4_ELEMS);
        for (int i = 32 * s; i < 32 * s + 32; i++)
            w[i] = importance ? importance[i] * sqrtf((float)(squares / 128.0) + x[i] * x[i])
                              : mean + fabsf(x[i]);
    }
}

/* Codes of a sub-block, x ~ d q - m, and their error. */
static double k4_codes(uint8_t *q, const float *x, const float *w, float d, float m, double stop)
{
    const float inverse = inverse_of(d);
    double sum = 0.0;

    for (int i = 0; i < K4_ELEMS; i++) {
        const int code = clamp_to(lrintf((x[i] + m) * inverse), 0, K4_TOP);
        const float e = x[i] - (d * (float)code - m);

        q[i] = (uint8_t)code;
        sum += (double)w[i] * (double)e * (double)e;
        if (sum >= stop) break;
    }
    return sum;
}

/* Least squares of x ~ d q - m with m >= 0. */
static void k4_fit(float *d, float *m, const uint8_t *q, const float *x, const float *w)
{
    double w1 = 0.0, wq = 0.0, wqq = 0.0, wx = 0.0, wxq = 0.0, det;

    for (int i = 0; i < K4_ELEMS; i++) {
        const double v = (double)q[i], wi = (double)w[i];
        w1 += wi;
        wq += wi * v;
        wqq += wi * v * v;
        wx += wi * (double)x[i];
        wxq += wi * (double)x[i] * v;
    }
    det = w1 * wqq - wq * wq;
    if (!(det > 0.0)) return;
    *d = (float)((w1 * wxq - wx * wq) / det);
    *m = (float)((wq * wxq - wqq * wx) / det);
    if (*m >= 0.0f) return;
    *m = 0.0f;
    *d = (float)(wxq / wqq);
}

static void k4_solve_sub(float *best_d, float *best_m, const float *x, const float *w)
{
    float low = 0.0f, high = x[0];
    double least = (double)INFINITY;

    for (int i = 0; i < K4_ELEMS; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    *best_d = 0.0f;
    *best_m = -low;
    if (!(high > low)) return;
    for (int cut = 0; cut < CUTS; cut++) {
        float d = (high - low) / ((float)K4_TOP + CUT_FIRST + CUT_STEP * (float)cut), m = -low;
        uint8_t q[K4_ELEMS];
        double e;

        (void)k4_codes(q, x, w, d, m, (double)INFINITY);
        k4_fit(&d, &m, q, x, w);
        if (!(d > 0.0f)) continue;
        e = k4_codes(q, x, w, d, m, least);
        if (e >= least) continue;
        least = e;
        *best_d = d;
        *best_m = m;
    }
}

/* The integers next to d_sub / d and m_sub / m that do best. */
static double k4_pick(k4_block *b, int s, const float *x, const float *w, float d_sub, float m_sub)
{
    const int scale = b->d > 0.0f ? clamp_to(lrintf(d_sub / b->d), 0, K4_INT_TOP) : 0;
    const int min = b->m > 0.0f ? clamp_to(lrintf(m_sub / b->m), 0, K4_INT_TOP) : 0;
    double least = (double)INFINITY;

    for (int i = clamp_to(scale - 1, 0, scale); i <= clamp_to(scale + 1, 0, K4_INT_TOP); i++)
        for (int j = clamp_to(min - 1, 0, min); j <= clamp_to(min + 1, 0, K4_INT_TOP); j++) {
            uint8_t q[K4_ELEMS];
            double e = k4_codes(q, x, w, b->d * (float)i, b->m * (float)j, least);

            if (e >= least) continue;
            least = e;
            b->scale[s] = (uint8_t)i;
            b->min[s] = (uint8_t)j;
            memcpy(b->q + K4_ELEMS * s, q, sizeof q);
        }
    return least;
}

static void k4_pick_all(k4_block *b, const float *x, const float *w, const float *d_sub,
                        const float *m_sub)
{
    b->error = 0.0;
    for (int s = 0; s < K4_SUBS; s++)
        b->error += k4_pick(b, s, x + K4_ELEMS * s, w + K4_ELEMS * s, d_sub[s], m_sub[s]);
}

/* The block's two scales for the codes it has: x ~ d (scale q) - m min. */
static void k4_refit(k4_block *b, const float *x, const float *w)
{
    double aa = 0.0, ab = 0.0, bb = 0.0, xa = 0.0, xb = 0.0, det;

    for (int i = 0; i < BLOCK; i++) {
        const double u = (double)b->scale[i / K4_ELEMS] * (double)b->q[i], wi = (double)w[i];
        const double v = (double)b->min[i / K4_ELEMS];
        aa += wi * u * u;
        ab += wi * u * v;
        bb += wi * v * v;
        xa += wi * (double)x[i] * u;
        xb += wi * (double)x[i] * v;
    }
    det = aa * bb - ab * ab;
    if (bb > 0.0 && det > 1e-9 * aa * bb) {
        b->d = to_f16((float)((xa * bb - xb * ab) / det));
        b->m = to_f16((float)((xa * ab - xb * aa) / det));
    } else if (aa > 0.0) {
        b->d = to_f16((float)((xa + (double)b->m * ab) / aa));
    }
    if (!(b->d >= 0.0f)) b->d = 0.0f;
    if (!(b->m >= 0.0f)) b->m = 0.0f;
}

void sw_q4_k_encode(uint8_t *out, const float *x, const float *importance, sw_block_how how)
{
    float w[BLOCK], d_sub[K4_SUBS], m_sub[K4_SUBS], d_most = 0.0f, m_most = 0.0f;
    k4_block best, b;

    (void)how;
    k4_weights(w, x, importance);
    for (int s = 0; s < K4_SUBS; s++) {
        k4_solve_sub(&d_sub[s], &m_sub[s], x + K4_ELEMS * s, w + K4_ELEMS * s);
        d_most = fmaxf(d_most, d_sub[s]);
        m_most = fmaxf(m_most, m_sub[s]);
    }
    b = (k4_block){.d = scale_f16(d_most / K4_INT_TOP), .m = scale_f16(m_most / K4_INT_TOP)};
    k4_pick_all(&b, x, w, d_sub, m_sub);
    best = b;
    for (int round = 0; round < ROUNDS; round++) {
        k4_refit(&b, x, w);
        k4_pick_all(&b, x, w, d_sub, m_sub);
        if (!(b.error < best.error)) break;
        best = b;
    }
    sw_store_f16(out, best.d);
    sw_store_f16(out + 2, best.m);
    sw_block_k4_pack(out + 4, best.scale, best.min);
    for (int i = 0; i < BLOCK / 2; i++) {
        const uint8_t *q = best.q + 64 * (i / 32) + i % 32;
        out[16 + i] = (uint8_t)(q[0] | q[32] << 4);
    }
}

/* --- Q6_K ------------------------------------------------------------------------------------- */

#define K6_SUBS 16
#define K6_ELEMS 16

typedef struct k6_block {
    float d;
    int8_t scale[K6_SUBS], q[BLOCK];
    double error;
} k6_block;

static double k6_codes(int8_t *q, const float *x, const float *w, float d, double stop)
{
    const float inverse = inverse_of(d);
    double sum = 0.0;

    for (int i = 0; i < K6_ELEMS; i++) {
        const int code = clamp_to(lrintf(x[i] * inverse), -32, 31);
        const float e = x[i] - d * (float)code;

        q[i] = (int8_t)code;
        sum += (double)w[i] * (double)e * (double)e;
        if (sum >= stop) break;
    }
    return sum;
}

static float k6_solve_sub(const float *x, const float *w)
{
    float extreme = 0.0f, best = 0.0f;
    double least = (double)INFINITY;

    for (int i = 0; i < K6_ELEMS; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    if (extreme == 0.0f) return 0.0f;
    for (int cut = -9; cut <= 9; cut++) {
        float d = extreme / -(32.0f + CUT_STEP * (float)cut);
        double xq = 0.0, qq = 0.0, e;
        int8_t q[K6_ELEMS];

        (void)k6_codes(q, x, w, d, (double)INFINITY);
        for (int i = 0; i < K6_ELEMS; i++) {
            xq += (double)w[i] * (double)x[i] * (double)q[i];
            qq += (double)w[i] * (double)q[i] * (double)q[i];
        }
        if (qq > 0.0) d = (float)(xq / qq);
        e = k6_codes(q, x, w, d, least);
        if (e >= least) continue;
        least = e;
        best = d;
    }
    return best;
}

static void k6_pick_all(k6_block *b, const float *x, const float *w, const float *d_sub)
{
    b->error = 0.0;
    for (int s = 0; s < K6_SUBS; s++) {
        const int at = b->d != 0.0f ? clamp_to(lrintf(d_sub[s] / b->d), -128, 127) : 0;
        double least = (double)INFINITY;

        for (int i = clamp_to(at - 1, -128, 127); i <= clamp_to(at + 1, -128, 127); i++) {
            int8_t q[K6_ELEMS];
            double e = k6_codes(q, x + K6_ELEMS * s, w + K6_ELEMS * s, b->d * (float)i, least);

            if (e >= least) continue;
            least = e;
            b->scale[s] = (int8_t)i;
            memcpy(b->q + K6_ELEMS * s, q, sizeof q);
        }
        b->error += least;
    }
}

static void k6_refit(k6_block *b, const float *x, const float *w)
{
    double xu = 0.0, uu = 0.0;

    for (int i = 0; i < BLOCK; i++) {
        const double u = (double)b->scale[i / K6_ELEMS] * (double)b->q[i];
        xu += (double)w[i] * (double)x[i] * u;
        uu += (double)w[i] * u * u;
    }
    if (uu > 0.0) b->d = to_f16((float)(xu / uu));
}

static void k6_put(uint8_t *out, const k6_block *b)
{
    memset(out, 0, 192);
    for (int e = 0; e < BLOCK; e++) {
        const int r = e % 128 / 32, h = e / 128, l = e % 32, q = b->q[e] + 32;

        out[64 * h + 32 * (r % 2) + l] |= (uint8_t)((q & 15) << (4 * (r / 2)));
        out[128 + 32 * h + l] |= (uint8_t)((q >> 4) << (2 * r));
    }
    memcpy(out + 192, b->scale, K6_SUBS);
    sw_store_f16(out + 208, b->d);
}

void sw_q6_k_encode(uint8_t *out, const float *x, const float *importance, sw_block_how how)
{
    float w[BLOCK], d_sub[K6_SUBS], most = 0.0f;
    k6_block best, b;

    (void)how;
    for (int i = 0; i < BLOCK; i++) w[i] = importance ? importance[i] : x[i] * x[i];
    for (int s = 0; s < K6_SUBS; s++) {
        d_sub[s] = k6_solve_sub(x + K6_ELEMS * s, w + K6_ELEMS * s);
        if (fabsf(d_sub[s]) > fabsf(most)) most = d_sub[s];
    }
    b = (k6_block){.d = scale_f16(most / -128.0f)};
    k6_pick_all(&b, x, w, d_sub);
    best = b;
    for (int round = 0; round < ROUNDS; round++) {
        k6_refit(&b, x, w);
        k6_pick_all(&b, x, w, d_sub);
        if (!(b.error < best.error)) break;
        best = b;
    }
    k6_put(out, &best);
}
