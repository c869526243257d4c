/* attention_decode.h - attention of one query a sequence on Hopper; inside cuda/. */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_H
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Caches whose heads the copy engine can read, on a device of 9.0. */
bool sw_attention_decode_can_run(const sw_attn_args *a);
/* Of these, by attention_few.h what suits it, whether or not another is the faster one, as
 * sw_cuda_attention_decode asks. */
sw_code sw_cuda_attention_decode_copied(const sw_attn_args *a, const sw_heads_args *heads,
                                        sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
