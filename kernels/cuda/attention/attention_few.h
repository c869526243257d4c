/* attention_few.h - attention of one query of few sequences over short caches, on Hopper; inside
 * cuda/. */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_FEW_H
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_FEW_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of what sw_attention_decode_can_run says yes to: heads of 64 or 128 in BF16, a cluster of eight
 * CTAs for each group of heads, short caches. */
bool sw_attention_few_suits(const sw_attn_args *a, const sw_heads_args *heads);
sw_code sw_cuda_attention_few(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                              sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
