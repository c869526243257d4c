/* vec_any.h - the vector words that *_body.h is written in, for every machine: 4 lanes in the
 * generic vectors of GCC and clang, which become SSE2, NEON or plain arithmetic.
 */
#ifndef SW_KERNELS_CPU_SIMD_VEC_ANY_H
#define SW_KERNELS_CPU_SIMD_VEC_ANY_H

#include <stdint.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/num/half.h"
#include "formats/num/small.h"

#define V_LANES 4
#define V_NAME(name) name##_any
#define V_INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(16)));
typedef vec four;
typedef uint32_t words __attribute__((vector_size(16)));
typedef int32_t signed_words __attribute__((vector_size(16)));

V_INLINE vec v_all(float a)
{
    vec v = {a, a, a, a};
    return v;
}
V_INLINE vec v_zero(void) { return v_all(0); }
V_INLINE vec v_load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
V_INLINE void v_store(float *p, vec a) { memcpy(p, &a, sizeof a); }
V_INLINE vec v_fma(vec a, vec b, vec c) { return a * b + c; }
V_INLINE vec v_mul(vec a, vec b) { return a * b; }
V_INLINE words w_load(const void *p)
{
    const uint8_t *bytes = (const uint8_t *)p;
    words w = {sw_load_le32(bytes), sw_load_le32(bytes + 4), sw_load_le32(bytes + 8),
               sw_load_le32(bytes + 12)};
    return w;
}
V_INLINE vec v_of_bits(words w)
{
    vec v;
    memcpy(&v, &w, sizeof v);
    return v;
}

V_INLINE vec v_from_f16(const uint16_t *p)
{
    vec v = {sw_f16_decode(p[0]), sw_f16_decode(p[1]), sw_f16_decode(p[2]), sw_f16_decode(p[3])};
    return v;
}
V_INLINE vec v_from_bf16(const uint16_t *p)
{
    words w = {p[0], p[1], p[2], p[3]};
    return v_of_bits(w << 16);
}
V_INLINE vec v_from_u8(const uint8_t *p)
{
    vec v = {p[0], p[1], p[2], p[3]};
    return v;
}
V_INLINE vec v_from_table(const float *values, const uint8_t *p)
{
    vec v = {values[p[0]], values[p[1]], values[p[2]], values[p[3]]};
    return v;
}
V_INLINE vec v_from_e8m0(const uint8_t *p) { return v_from_table(sw_e8m0_values, p); }
V_INLINE vec v_from_e4m3(const uint8_t *p) { return v_from_table(sw_e4m3_values, p); }
/* Bits 0-1 and 4-5 of every byte from `shift` on; and bit 2, 6 of those in bits `at`, 4 + at. */
V_INLINE words w_pairs(words w, int shift) { return w >> (uint32_t)shift & 0x33333333u; }
V_INLINE words w_with_third(words low, words third, int at)
{
    return low | (third >> (uint32_t)at & 0x11111111u) << 2u;
}

/* The upper and the lower halves of 32-bit words as bf16. */
V_INLINE vec v_upper_bf16(words w) { return v_of_bits(w & 0xffff0000u); }
V_INLINE vec v_lower_bf16(words w) { return v_of_bits(w << 16); }

/* Words of channel n (h = 0) and n + 8 (h = 1) out of the two halves of an 8-bit tile. */
V_INLINE words w_channel8(words lower, words upper, int h)
{
    words w = {lower[h], lower[2 + h], upper[h], upper[2 + h]};
    return w;
}

/* How one channel of one tile decodes. */
typedef struct channel {
    vec scale, offset;
} channel;

V_INLINE channel channel4(float scale, float offset)
{
    channel c = {v_all(scale), v_all(offset)};
    return c;
}
/* One value for each k-step: lane 4c + s is k-step s. */
V_INLINE vec v_by_step(const float *four_steps) { return v_load(four_steps); }
/* Four vectors of 4 slots, one per k-step, side by side: dst[4 * slot + s]. */
V_INLINE void v_put_quads(float *dst, vec s0, vec s1, vec s2, vec s3)
{
    for (int slot = 0; slot < 4; slot++) {
        vec quad = {s0[slot], s1[slot], s2[slot], s3[slot]};
        v_store(dst + 4 * slot, quad);
    }
}
V_INLINE vec v_code4(words w, int nibble)
{
    return __builtin_convertvector((signed_words)((w >> (uint32_t)(4 * nibble)) & 15u), vec);
}
V_INLINE vec v_value4(words w, int nibble, channel c)
{
    return v_fma(v_code4(w, nibble), c.scale, c.offset);
}
V_INLINE vec v_code8(words w, int at)
{
    return __builtin_convertvector((signed_words)((w >> (uint32_t)(8 * at)) & 255u), vec);
}

V_INLINE vec v_lookup(const float *values, words w, int shift, uint32_t mask)
{
    vec v = {values[w[0] >> shift & mask], values[w[1] >> shift & mask],
             values[w[2] >> shift & mask], values[w[3] >> shift & mask]};
    return v;
}
V_INLINE vec v_e2m1(words w, int nibble) { return v_lookup(sw_e2m1_values, w, 4 * nibble, 15); }
V_INLINE vec v_e4m3(words w, int at) { return v_lookup(sw_e4m3_values, w, 8 * at, 255); }
V_INLINE vec v_e5m2(words w, int at) { return v_lookup(sw_e5m2_values, w, 8 * at, 255); }

/* The sums of the lanes of four vectors. */
V_INLINE four v_sum4(vec a, vec b, vec c, vec d)
{
    four v = {(a[0] + a[1]) + (a[2] + a[3]), (b[0] + b[1]) + (b[2] + b[3]),
              (c[0] + c[1]) + (c[2] + c[3]), (d[0] + d[1]) + (d[2] + d[3])};
    return v;
}

/* Inputs k = 0..7 of the four k-steps of a tile (x + 16s + k) into the order [k / 2][s]: `even`
 * gets k = 0, 2, 4, 6 and `odd` the others. */
static inline void v_transpose(float *even, float *odd, const float *x)
{
    for (int k = 0; k < 4; k++)
        for (int s = 0; s < 4; s++) {
            even[4 * k + s] = x[16 * s + 2 * k];
            odd[4 * k + s] = x[16 * s + 2 * k + 1];
        }
}

#endif
