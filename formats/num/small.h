/* small.h - floats of four and eight bits, bit exact in both directions.
 *
 *   e2m1  s ee m      bias 1    0 0.5 1 1.5 2 3 4 6 and the negatives     no NaN, no infinity
 *   e4m3  s eeee mmm  bias 7    up to 448; 0x7f and 0xff are NaN          no infinity ("e4m3fn")
 *   e5m2  s eeeee mm  bias 15   up to 57344; fp16 cut to its upper byte
 *   e8m0  eeeeeeee    bias 127  2^(e - 127); 0xff is NaN                  no sign, no zero
 *
 * Encoding rounds to nearest, ties to the even code, and saturates: what lies beyond the largest
 * finite value, infinity too, becomes it. A NaN stays NaN where the format has one, and becomes
 * the largest value in e2m1. Formats: OCP 8-bit Floating Point and Microscaling Formats
 * specifications, revision 1.0.
 */
#ifndef SW_FORMATS_NUM_SMALL_H
#define SW_FORMATS_NUM_SMALL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const float sw_e2m1_values[16];
extern const float sw_e4m3_values[256];
extern const float sw_e5m2_values[256];
extern const float sw_e8m0_values[256];

uint8_t sw_e2m1_encode(float v);
uint8_t sw_e4m3_encode(float v);
uint8_t sw_e5m2_encode(float v);
/* The nearest power of two (1.5 * 2^e goes to the even code); zero and below give the smallest. */
uint8_t sw_e8m0_encode(float v);

#ifdef __cplusplus
}
#endif
#endif
