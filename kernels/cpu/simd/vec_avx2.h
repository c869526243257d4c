/* vec_avx2.h - the vector words that *_body.h is written in: 8 lanes of float. */
#ifndef SW_KERNELS_CPU_SIMD_VEC_AVX2_H
#define SW_KERNELS_CPU_SIMD_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/simd/transpose_avx.h"

#define V_LANES 8
#define V_NAME(name) name##_avx2
#define V_INLINE static inline __attribute__((always_inline))

typedef __m128 four;
typedef __m256 vec;
typedef __m256i words;

V_INLINE vec v_zero(void) { return _mm256_setzero_ps(); }
V_INLINE vec v_load(const float *p) { return _mm256_loadu_ps(p); }
V_INLINE void v_store(float *p, vec a) { _mm256_storeu_ps(p, a); }
V_INLINE vec v_all(float a) { return _mm256_set1_ps(a); }
V_INLINE vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
V_INLINE vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
V_INLINE words w_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

V_INLINE vec v_from_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
V_INLINE vec v_from_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
V_INLINE vec v_from_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
/* Scales of one byte. 2^-127 is no normal float; 0xff in e8m0 is NaN. */
V_INLINE vec v_from_e8m0(const uint8_t *p)
{
    __m256i byte = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i bits = _mm256_max_epi32(_mm256_slli_epi32(byte, 23), _mm256_set1_epi32(0x00400000));
    __m256i is_nan = _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(255));
    return _mm256_castsi256_ps(
        _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7fc00000))));
}
/* As halves, whose exponent is 8 greater; NaN is not expected, sw_scale_check refuses it. */
V_INLINE vec v_from_e4m3(const uint8_t *p)
{
    __m128i half = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p)), 7);
    half = _mm_and_si128(half, _mm_set1_epi16((short)0xbf80));
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(0x1p8f));
}
/* Bits 0-1 and 4-5 of every byte from `shift` on; and bit 2, 6 of those in bits `at`, 4 + at. */
V_INLINE words w_pairs(words w, int shift)
{
    return _mm256_and_si256(_mm256_srl_epi32(w, _mm_cvtsi32_si128(shift)),
                            _mm256_set1_epi32(0x33333333));
}
V_INLINE words w_with_third(words low, words third, int at)
{
    words bit = _mm256_and_si256(_mm256_srl_epi32(third, _mm_cvtsi32_si128(at)),
                                 _mm256_set1_epi32(0x11111111));
    return _mm256_or_si256(low, _mm256_slli_epi32(bit, 2));
}

/* The upper and the lower halves of 32-bit words as bf16. */
V_INLINE vec v_upper_bf16(words w)
{
    return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32((int)0xffff0000)));
}
V_INLINE vec v_lower_bf16(words w) { return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)); }

/* Words of channel n (h = 0) and n + 8 (h = 1) out of the two halves of an 8-bit tile. */
V_INLINE words w_channel8(words lower, words upper, int h)
{
    __m256 a = _mm256_castsi256_ps(lower), b = _mm256_castsi256_ps(upper);
    return _mm256_castps_si256(h ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88));
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
V_INLINE vec v_by_step(const float *four_steps)
{
    return _mm256_broadcast_ps((const __m128 *)(const void *)four_steps);
}
/* Four vectors of 8 slots, one per k-step, side by side: dst[4 * slot + s]. */
V_INLINE void v_put_quads(float *dst, vec s0, vec s1, vec s2, vec s3)
{
    __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(s0, s1));
    __m256d b = _mm256_castps_pd(_mm256_unpacklo_ps(s2, s3));
    __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(s0, s1));
    __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(s2, s3));
    vec p = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b)); /* slots 0 4 */
    vec q = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)); /* 1 5 */
    vec r = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
    vec t = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));

    v_store(dst, _mm256_permute2f128_ps(p, q, 0x20));
    v_store(dst + 8, _mm256_permute2f128_ps(r, t, 0x20));
    v_store(dst + 16, _mm256_permute2f128_ps(p, q, 0x31));
    v_store(dst + 24, _mm256_permute2f128_ps(r, t, 0x31));
}
V_INLINE vec v_code4(words w, int nibble)
{
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(w, 4 * nibble), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(code);
}
V_INLINE vec v_value4(words w, int nibble, channel c)
{
    return v_fma(v_code4(w, nibble), c.scale, c.offset);
}
V_INLINE vec v_code8(words w, int at)
{
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(w, 8 * at), _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(code);
}

/* values[the bits of `mask` from `shift` on] of each word. */
V_INLINE vec v_lookup(const float *values, words w, int shift, int mask)
{
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(w, shift), _mm256_set1_epi32(mask));
    return _mm256_i32gather_ps(values, code, 4);
}
/* Three bits choose the size, the fourth is the sign. */
V_INLINE vec v_e2m1(words w, int nibble)
{
    vec sizes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    vec size = _mm256_permutevar8x32_ps(sizes, _mm256_srli_epi32(w, 4 * nibble));
    __m256i sign = _mm256_and_si256(_mm256_slli_epi32(w, 28 - 4 * nibble),
                                    _mm256_set1_epi32((int)0x80000000));
    return _mm256_xor_ps(size, _mm256_castsi256_ps(sign));
}
/* Byte `at` of each word with its exponent and mantissa moved to where a float has them; the
 * multiplication mends the exponent, of denormals too. Codes that are no numbers are not expected:
 * sw_qtensor_check refuses them. */
V_INLINE vec v_e4m3(words w, int at)
{
    __m256i bits = _mm256_srai_epi32(_mm256_slli_epi32(w, 24 - 8 * at), 4);
    bits = _mm256_and_si256(bits, _mm256_set1_epi32((int)0x87f00000));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}
V_INLINE vec v_e5m2(words w, int at)
{
    __m256i bits = _mm256_srai_epi32(_mm256_slli_epi32(w, 24 - 8 * at), 3);
    bits = _mm256_and_si256(bits, _mm256_set1_epi32((int)0x8fe00000));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p112f));
}

/* The sums of the lanes of four vectors. */
V_INLINE four v_sum4(vec a, vec b, vec c, vec d)
{
    __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

#endif
