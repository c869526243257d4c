/* act.h - quantized activations: what a kernel does to its input before an integer or small-float
 * product, in plain C. Kernels must give these very codes and scales.
 *
 * With a = max |x| of the scope, top = the format's largest value (127 for int8, 448, 6, ...), in
 * float arithmetic, each operation rounded to nearest:
 *
 *   scope   scale dtype  scale s
 *   TENSOR  -            input_scale
 *   TOKEN   F32          a / top
 *   GROUP   F32          a / top
 *           F8_E8M0      the power of two that sw_pow2_scale gives
 *           F8_E4M3      e4m3((a / top) / input_scale), to be multiplied by input_scale (NVFP4)
 *
 * s is at least the smallest normal float and 1 where a = 0 (E4M3: 0 may stand; its codes are 0).
 * A code is the nearest to x / s - by division, never by a reciprocal; for E4M3 the divisor is
 * s * input_scale rounded to float. Ties go to even; what lies beyond the largest value becomes
 * it. int8 codes are two's complement and -128 is never used. The value is s * code, for E4M3
 * (s * input_scale) * code.
 */
#ifndef SW_FORMATS_NUM_ACT_H
#define SW_FORMATS_NUM_ACT_H

#include "formats/num/num.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scales stored per token: 1 for TOKEN, one a group for GROUP, 0 for TENSOR and NONE. */
int64_t sw_act_groups(const sw_act *act, int64_t k_in);

/* The scale of one group of n values, as the table says; input_scale as stored. */
float sw_act_scale(const float *x, int64_t n, const sw_act *act, float input_scale);

/* codes [n_tokens, k_in] one a byte, scales [n_tokens, sw_act_groups] (not touched for TENSOR);
 * x f32 [n_tokens, k_in] with rows x_stride elements apart, finite. Scope NONE is not for this. */
void sw_act_quantize(uint8_t *codes, float *scales, const float *x, int64_t x_stride,
                     int64_t n_tokens, int64_t k_in, const sw_act *act, float input_scale);

/* dst [n_tokens, k_in] = the values of those codes, rows dst_stride apart; dst may be x when the
 * strides are equal. Scope NONE copies. */
void sw_act_round(float *dst, int64_t dst_stride, const float *x, int64_t x_stride,
                  int64_t n_tokens, int64_t k_in, const sw_act *act, float input_scale);

#ifdef __cplusplus
}
#endif
#endif
