/* small.h - floats of four to eight bits, bit exact in both directions. The signed ones are made
 * from the rows of formats.def:
 *
 *   e2m1  s ee m      bias 1    0 0.5 1 1.5 2 3 4 6 and the negatives     no NaN, no infinity
 *   e4m3  s eeee mmm  bias 7    up to 448; 0x7f and 0xff are NaN          no infinity ("e4m3fn")
 *   e5m2  s eeeee mm  bias 15   up to 57344; fp16 cut to its upper byte
 *   e8m0  eeeeeeee    bias 127  2^(e - 127); 0xff is NaN                  no sign, no zero
 *
 * Encoding rounds to nearest, ties to the even code, and saturates: what lies beyond the largest
 * finite value, infinity too, becomes it. A NaN stays NaN where the format has one, and becomes
 * the largest value where it has none. Formats: OCP 8-bit Floating Point and Microscaling Formats
 * specifications, revision 1.0.
 */
#ifndef SW_FORMATS_NUM_SMALL_H
#define SW_FORMATS_NUM_SMALL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which of the last magnitudes are no finite numbers: see formats.def. */
enum { SW_SMALL_FINITE, SW_SMALL_NAN_LAST, SW_SMALL_IEEE };

/* The largest code of a finite number with e exponent and m mantissa bits; its sign bit is 0. */
#define SW_SMALL_TOP(e, m, last)                                                   \
    ((last) == SW_SMALL_IEEE ? (((1u << (e)) - 1u) << (m)) - 1u                     \
                             : (1u << ((e) + (m))) - ((last) == SW_SMALL_NAN_LAST ? 2u : 1u))
/* The value of a finite code without its sign: mantissa and hidden bit in units of the smallest
 * subnormal number, times 2^(exponent - 1). Exact in float, and a constant where c is one. */
#define SW_SMALL_SIZE(c, e, m)                                                                \
    ((float)(((c) >> (m) ? 1u << (m) : 0u) + ((c) & ((1u << (m)) - 1u))) *                     \
     (float)(1ull << (((c) >> (m)) - ((c) >> (m) ? 1u : 0u))) /                                \
     (float)(1ull << ((1u << ((e) - 1)) - 2u + (m))))

/* values: [256] what each code means, repeated where the format has fewer bits. */
#define SW_INTEGER(id, name, bits)
#define SW_SMALL_FLOAT(id, name, symbol, exponent, mantissa, last) \
    extern const float sw_##symbol##_values[256];                \
    uint8_t sw_##symbol##_encode(float v);
#include "formats/num/formats.def"
#undef SW_INTEGER
#undef SW_SMALL_FLOAT

extern const float sw_e8m0_values[256];
/* The nearest power of two (1.5 * 2^e goes to the even code); zero and below give the smallest. */
uint8_t sw_e8m0_encode(float v);

#ifdef __cplusplus
}
#endif
#endif
