/* half.h - fp16 and bf16, bit exact in both directions.
 *
 * Encoding rounds to nearest, ties to even, in integer arithmetic, so that every
 * compiler and backend gives the same bits. Depends on nothing of ours.
 */
#ifndef SW_FORMATS_NUM_HALF_H
#define SW_FORMATS_NUM_HALF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Floats from here on have no finite F16: halfway beyond 65504. */
#define SW_F16_OVERFLOW 65520.0f

static inline uint32_t sw_f32_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float sw_f32_from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline float sw_bf16_decode(uint16_t v) { return sw_f32_from_bits((uint32_t)v << 16); }
uint16_t sw_bf16_encode(float v); /* NaN stays NaN, overflow becomes infinity */
float sw_f16_decode(uint16_t v);
uint16_t sw_f16_encode(float v); /* likewise */

/* n elements of stored F32, F16 or BF16 at `src` into floats; dtype by the view.h table. */
void sw_bf16_decode_n(float *dst, const uint16_t *src, size_t n);
void sw_f16_decode_n(float *dst, const uint16_t *src, size_t n);
/* The same as the encoding of each. */
void sw_bf16_encode_n(uint16_t *dst, const float *src, size_t n);
void sw_f16_encode_n(uint16_t *dst, const float *src, size_t n);
/* Whether any of n floats is finite and would not be as F16. */
bool sw_f16_overflows(const float *src, size_t n);

#ifdef __cplusplus
}
#endif
#endif
