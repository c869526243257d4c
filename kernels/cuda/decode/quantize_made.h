/* quantize_made.h - codes of inputs where they are made: what a norm or a gate leaves is quantized
 * before anybody stores it, which saves a step of few tokens a kernel for each product. Inside
 * cuda/.
 */
#ifndef SW_KERNELS_CUDA_DECODE_QUANTIZE_MADE_H
#define SW_KERNELS_CUDA_DECODE_QUANTIZE_MADE_H

#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where codes go, and how they are made: `act` of width inputs a token; starts_next as of
 * sw_cuda_quantize. */
typedef struct sw_made_codes {
    sw_cuda_codes to;
    sw_act act;
    float input_scale;
    bool starts_next;
} sw_made_codes;

/* Whether rows of so many inputs can be quantized so; pure, needs no device. */
bool sw_cuda_made_can(int64_t width, const sw_act *act);
/* sw_cuda_norm and sw_cuda_act, then sw_cuda_quantize of the BF16 rows that they would leave, bit
 * for bit; those rows are not written. Norms without a bias, of the residual stream, which becomes
 * what it would be. SW_E_UNSUPPORTED: sw_cuda_made_can says no. */
sw_code sw_cuda_norm_codes(const sw_norm_args *a, const sw_made_codes *codes, sw_launch how,
                           sw_err *err) SW_MUST_USE;
sw_code sw_cuda_act_codes(const sw_act_args *a, const sw_made_codes *codes, sw_launch how,
                          sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
