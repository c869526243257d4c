/* attention_widen.h - codes of a cache as BF16, for kernels that multiply nothing else; inside
 * cuda/. */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_WIDEN_H
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_WIDEN_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of keys and values of a->kv.kind in BF16, of all positions before a->end. */
int64_t sw_attention_widened_bytes(const sw_attn_args *a);

/* Keys and values that the queries of `a` may see into a->scratch, without their scales, and `a` to
 * point there. Exact: BF16 holds every code. */
sw_code sw_attention_widen(sw_attn_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
