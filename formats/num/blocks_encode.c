/* blocks_encode.c - writing the block types of one scale (and minimum) for 32 elements.
 *
 * The plain rules are those of the formats: the value of largest magnitude gets the lowest code of
 * Q4_0, the range is cut into 15 steps in Q4_1, and 127 is the largest magnitude of Q8_0. The
 * search tries scales around them, fits each by least squares to the codes that it leads to, and
 * keeps what the stored F16 values do best with.
 */
#include <math.h>
#include <string.h>

#include "formats/num/blocks_internal.h"

#define N 32
#define HALF 16
#define TRIES 10 /* to each side of the plain scale */
#define TRY_STEP 0.1f

static void put_nibbles(uint8_t *b, const uint8_t q[N])
{
    for (int j = 0; j < HALF; j++) b[j] = (uint8_t)(q[j] | q[j + HALF] << 4);
}

/* 0 where the quotient has no use: there is nothing to scale, or it is too small for floats. */
static float inverse_of(float d)
{
    const float inverse = 1.0f / d;

    return d != 0.0f && isfinite(inverse) ? inverse : 0.0f;
}

static float weight_of(const float *importance, int i) { return importance ? importance[i] : 1.0f; }

static int clamp_code(long v, int top) { return v < 0 ? 0 : v > top ? top : (int)v; }

/* --- one scale ------------------------------------------------------------------------------ */

static float extreme_of(const float *x)
{
    float most = 0.0f;

    for (int i = 0; i < N; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    return most;
}

static double error_of_scaled(const uint8_t q[N], const float *x, const float *importance, float d)
{
    double sum = 0.0;

    for (int i = 0; i < N; i++) {
        const float e = x[i] - (float)(q[i] - 8) * d;
        sum += (double)weight_of(importance, i) * (double)e * (double)e;
    }
    return sum;
}

static void codes_of_scaled(uint8_t q[N], const float *x, float inverse)
{
    for (int i = 0; i < N; i++) q[i] = (uint8_t)clamp_code(lrintf(x[i] * inverse) + 8, 15);
}

/* The scale that fits these codes best, as it would be stored. */
static float fit_scale(const uint8_t q[N], const float *x, const float *importance)
{
    double xq = 0.0, qq = 0.0;

    for (int i = 0; i < N; i++) {
        const double w = (double)weight_of(importance, i), v = (double)q[i] - 8.0;
        xq += w * (double)x[i] * v;
        qq += w * v * v;
    }
    return qq > 0.0 ? sw_num_round_to((float)(xq / qq), SW_DTYPE_F16) : 0.0f;
}

static void search_scaled(uint8_t best[N], float *best_d, const float *x, const float *importance,
                          float extreme)
{
    double least = error_of_scaled(best, x, importance, *best_d);

    for (int t = -TRIES; t <= 2 * TRIES; t++)
        for (int sign = -1; sign <= 1; sign += 2) {
            uint8_t q[N];
            float d;
            double e;

            codes_of_scaled(q, x, (float)sign * (8.0f + TRY_STEP * (float)t) / extreme);
            d = fit_scale(q, x, importance);
            if (d == 0.0f) continue;
            codes_of_scaled(q, x, inverse_of(d));
            if ((e = error_of_scaled(q, x, importance, d)) >= least) continue;
            least = e;
            *best_d = d;
            memcpy(best, q, N);
        }
}

void sw_q4_0_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how)
{
    const float extreme = extreme_of(x);
    float d = extreme / -8.0f, inverse = inverse_of(d);
    uint8_t q[N];

    for (int i = 0; i < N; i++) q[i] = (uint8_t)clamp_code((long)(x[i] * inverse + 8.5f), 15);
    d = sw_num_round_to(d, SW_DTYPE_F16);
    if (how == SW_BLOCK_SEARCH && inverse != 0.0f && isfinite(d))
        search_scaled(q, &d, x, importance, extreme);
    sw_store_f16(b, d);
    put_nibbles(b + 2, q);
}

void sw_q8_0_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how)
{
    const float d = fabsf(extreme_of(x)) / 127.0f, inverse = inverse_of(d);

    (void)importance;
    (void)how; /* with 255 codes no other scale is better by anything that matters */
    sw_store_f16(b, d);
    for (int i = 0; i < N; i++) {
        const float v = roundf(x[i] * inverse);
        b[2 + i] = (uint8_t)(int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    }
}

/* --- scale and minimum ----------------------------------------------------------------------- */

typedef struct affine {
    float d, m;
} affine;

static double error_of_affine(const uint8_t q[N], const float *x, const float *importance, affine a)
{
    double sum = 0.0;

    for (int i = 0; i < N; i++) {
        const float e = x[i] - ((float)q[i] * a.d + a.m);
        sum += (double)weight_of(importance, i) * (double)e * (double)e;
    }
    return sum;
}

static void codes_of_affine(uint8_t q[N], const float *x, float inverse, float m)
{
    for (int i = 0; i < N; i++) q[i] = (uint8_t)clamp_code(lrintf((x[i] - m) * inverse), 15);
}

static bool fit_affine(affine *out, const uint8_t q[N], const float *x, const float *importance)
{
    double w1 = 0.0, wq = 0.0, wqq = 0.0, wx = 0.0, wxq = 0.0, det;

    for (int i = 0; i < N; i++) {
        const double w = (double)weight_of(importance, i), v = (double)q[i];
        w1 += w;
        wq += w * v;
        wqq += w * v * v;
        wx += w * (double)x[i];
        wxq += w * (double)x[i] * v;
    }
    if (!((det = w1 * wqq - wq * wq) > 0.0)) return false;
    out->d = sw_num_round_to((float)((w1 * wxq - wx * wq) / det), SW_DTYPE_F16);
    out->m = sw_num_round_to((float)((wqq * wx - wq * wxq) / det), SW_DTYPE_F16);
    return out->d > 0.0f && isfinite(out->d) && isfinite(out->m);
}

static void search_affine(uint8_t best[N], affine *best_a, const float *x, const float *importance,
                          float low, float range)
{
    double least = error_of_affine(best, x, importance, *best_a);

    for (int t = -TRIES; t <= 2 * TRIES; t++) {
        uint8_t q[N];
        affine a;
        double e;

        codes_of_affine(q, x, (15.0f + TRY_STEP * (float)t) / range, low);
        if (!fit_affine(&a, q, x, importance)) continue;
        codes_of_affine(q, x, inverse_of(a.d), a.m);
        if ((e = error_of_affine(q, x, importance, a)) >= least) continue;
        least = e;
        *best_a = a;
        memcpy(best, q, N);
    }
}

void sw_q4_1_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how)
{
    float low = x[0], high = x[0], d, inverse;
    affine a;
    uint8_t q[N];

    for (int i = 1; i < N; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    d = (high - low) / 15.0f;
    inverse = inverse_of(d);
    for (int i = 0; i < N; i++)
        q[i] = (uint8_t)clamp_code((long)((x[i] - low) * inverse + 0.5f), 15);
    a.d = sw_num_round_to(d, SW_DTYPE_F16);
    a.m = sw_num_round_to(low, SW_DTYPE_F16);
    if (how == SW_BLOCK_SEARCH && inverse != 0.0f && isfinite(a.d) &&
        isfinite(a.m))
        search_affine(q, &a, x, importance, low, high - low);
    sw_store_f16(b, a.d);
    sw_store_f16(b + 2, a.m);
    put_nibbles(b + 4, q);
}
