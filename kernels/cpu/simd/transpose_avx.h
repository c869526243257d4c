/* transpose_avx.h - bringing activations into tile order; the same for AVX2 and AVX-512. */
#ifndef SW_KERNELS_CPU_SIMD_TRANSPOSE_AVX_H
#define SW_KERNELS_CPU_SIMD_TRANSPOSE_AVX_H

#include <immintrin.h>

/* Inputs k = 0..7 of the four k-steps of a tile (x + 16s + k) into the order [k / 2][s]: `even`
 * gets k = 0, 2, 4, 6 and `odd` the others. */
static inline void v_transpose(float *even, float *odd, const float *x)
{
    __m256 s0 = _mm256_loadu_ps(x), s1 = _mm256_loadu_ps(x + 16);
    __m256 s2 = _mm256_loadu_ps(x + 32), s3 = _mm256_loadu_ps(x + 48);
    __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(s0, s1));
    __m256d b = _mm256_castps_pd(_mm256_unpacklo_ps(s2, s3));
    __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(s0, s1));
    __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(s2, s3));
    __m256 k04 = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
    __m256 k15 = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    __m256 k26 = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
    __m256 k37 = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));

    _mm256_storeu_ps(even, _mm256_permute2f128_ps(k04, k26, 0x20));
    _mm256_storeu_ps(even + 8, _mm256_permute2f128_ps(k04, k26, 0x31));
    _mm256_storeu_ps(odd, _mm256_permute2f128_ps(k15, k37, 0x20));
    _mm256_storeu_ps(odd + 8, _mm256_permute2f128_ps(k15, k37, 0x31));
}

#endif
