/* vec_avx512.h - the vector words that *_body.h is written in: 16 lanes of float.
 *
 * A permute with a float per lane as its table ignores all but the low four index bits, so a
 * 4-bit code anywhere in a word costs one shift, and the table can hold the decoded values.
 */
#ifndef SW_KERNELS_CPU_SIMD_VEC_AVX512_H
#define SW_KERNELS_CPU_SIMD_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/simd/transpose_avx.h"

#define V_LANES 16
#define V_NAME(name) name##_avx512
#define V_INLINE static inline __attribute__((always_inline))

typedef __m128 four;
typedef __m512 vec;
typedef __m512i words;

V_INLINE vec v_zero(void) { return _mm512_setzero_ps(); }
V_INLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
V_INLINE void v_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
V_INLINE vec v_all(float a) { return _mm512_set1_ps(a); }
V_INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
V_INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
V_INLINE words w_load(const void *p) { return _mm512_loadu_si512(p); }

V_INLINE vec v_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
V_INLINE vec v_from_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
V_INLINE vec v_from_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* Scales of one byte. 2^-127 is no normal float; 0xff in e8m0 is NaN. */
V_INLINE vec v_from_e8m0(const uint8_t *p)
{
    __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    __m512i bits = _mm512_max_epi32(_mm512_slli_epi32(byte, 23), _mm512_set1_epi32(0x00400000));
    __mmask16 is_nan = _mm512_cmpeq_epi32_mask(byte, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(bits, is_nan, 0x7fc00000));
}
/* As halves, whose exponent is 8 greater; NaN is not expected, sw_scale_check refuses it. */
V_INLINE vec v_from_e4m3(const uint8_t *p)
{
    __m256i half = _mm256_slli_epi16(
        _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
    half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(0x1p8f));
}
/* Bits 0-1 and 4-5 of every byte from `shift` on; and bit 2, 6 of those in bits `at`, 4 + at. */
V_INLINE words w_pairs(words w, int shift)
{
    return _mm512_and_si512(_mm512_srl_epi32(w, _mm_cvtsi32_si128(shift)),
                            _mm512_set1_epi32(0x33333333));
}
V_INLINE words w_with_third(words low, words third, int at)
{
    words bit = _mm512_and_si512(_mm512_srl_epi32(third, _mm_cvtsi32_si128(at)),
                                 _mm512_set1_epi32(0x11111111));
    return _mm512_or_si512(low, _mm512_slli_epi32(bit, 2));
}

/* The upper and the lower halves of 32-bit words as bf16. */
V_INLINE vec v_upper_bf16(words w)
{
    return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000)));
}
V_INLINE vec v_lower_bf16(words w) { return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)); }

/* Words of channel n (h = 0) and n + 8 (h = 1) out of the two halves of an 8-bit tile. */
V_INLINE words w_channel8(words lower, words upper, int h)
{
    __m512 a = _mm512_castsi512_ps(lower), b = _mm512_castsi512_ps(upper);
    return _mm512_castps_si512(h ? _mm512_shuffle_ps(a, b, 0xdd) : _mm512_shuffle_ps(a, b, 0x88));
}

/* How one channel of one tile decodes: the table of its 16 values, or scale and offset. */
typedef struct channel {
    vec scale, offset; /* 4-bit codes of one group: the table is in `scale` */
} channel;

V_INLINE vec v_iota(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
V_INLINE channel channel4(float scale, float offset)
{
    channel c = {v_fma(v_iota(), v_all(scale), v_all(offset)), v_zero()};
    return c;
}
/* One value for each k-step: lane 4c + s is k-step s. */
V_INLINE vec v_by_step(const float *four_steps)
{
    return _mm512_broadcast_f32x4(_mm_loadu_ps(four_steps));
}
/* Four vectors of 16 slots, one per k-step, side by side: dst[4 * slot + s]. */
V_INLINE void v_put_quads(float *dst, vec s0, vec s1, vec s2, vec s3)
{
    __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(s0, s1));
    __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(s2, s3));
    __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(s0, s1));
    __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(s2, s3));
    vec p = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)); /* slots 0 4 8 12 */
    vec q = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)); /* 1 5 9 13 */
    vec r = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
    vec t = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
    vec pq = _mm512_shuffle_f32x4(p, q, 0x88), rt = _mm512_shuffle_f32x4(r, t, 0x88);
    vec pq_odd = _mm512_shuffle_f32x4(p, q, 0xdd), rt_odd = _mm512_shuffle_f32x4(r, t, 0xdd);

    v_store(dst, _mm512_shuffle_f32x4(pq, rt, 0x88));
    v_store(dst + 16, _mm512_shuffle_f32x4(pq_odd, rt_odd, 0x88));
    v_store(dst + 32, _mm512_shuffle_f32x4(pq, rt, 0xdd));
    v_store(dst + 48, _mm512_shuffle_f32x4(pq_odd, rt_odd, 0xdd));
}
V_INLINE vec v_value4(words w, int nibble, channel c)
{
    return _mm512_permutexvar_ps(_mm512_srli_epi32(w, (unsigned)(4 * nibble)), c.scale);
}
V_INLINE vec v_code4(words w, int nibble)
{
    return _mm512_permutexvar_ps(_mm512_srli_epi32(w, (unsigned)(4 * nibble)), v_iota());
}
/* Byte `at` of each word, put under the bits of 2^23, is that float plus the code. */
V_INLINE vec v_code8(words w, int at)
{
    __m512i pick = _mm512_add_epi8(
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 12, 0, 0, 0)),
        _mm512_set1_epi8((char)at));
    __m512i magic = _mm512_set1_epi32(0x4b000000);
    __m512i sum = _mm512_mask_shuffle_epi8(magic, 0x1111111111111111ull, w, pick);
    return _mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_castsi512_ps(magic));
}

/* values[the bits of `mask` from `shift` on] of each word. */
V_INLINE vec v_lookup(const float *values, words w, int shift, int mask)
{
    __m512i code = _mm512_and_si512(_mm512_srli_epi32(w, (unsigned)shift), _mm512_set1_epi32(mask));
    return _mm512_i32gather_ps(code, values, 4);
}
V_INLINE vec v_e2m1(words w, int nibble)
{
    vec table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
                               -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(w, (unsigned)(4 * nibble)), table);
}
/* Byte `at` of each word with its exponent and mantissa moved to where a float has them; the
 * multiplication mends the exponent, of denormals too. Codes that are no numbers are not expected:
 * sw_qtensor_check refuses them. */
V_INLINE vec v_e4m3(words w, int at)
{
    __m512i bits = _mm512_srai_epi32(_mm512_slli_epi32(w, (unsigned)(24 - 8 * at)), 4);
    bits = _mm512_and_si512(bits, _mm512_set1_epi32((int)0x87f00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}
V_INLINE vec v_e5m2(words w, int at)
{
    __m512i bits = _mm512_srai_epi32(_mm512_slli_epi32(w, (unsigned)(24 - 8 * at)), 3);
    bits = _mm512_and_si512(bits, _mm512_set1_epi32((int)0x8fe00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p112f));
}

/* The sums of the lanes of four vectors. */
V_INLINE four v_sum4(vec a, vec b, vec c, vec d)
{
    vec ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    vec cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    vec all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                            _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

#endif
