/* attention_wgmma.h - attention of many queries on Hopper; inside cuda/. */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_H
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a->scratch with which sw_cuda_attention takes this kernel for keys and values of codes,
 * which become BF16 there, every time: a position's, of one layer. 0 where it reads none. */
int64_t sw_attention_wide_bytes(const sw_attn_args *a);
/* Whether sw_cuda_attention takes it: heads of up to 256 in BF16 whose rows the copy engine can
 * read, or codes with scratch, without slopes or a cap, on a device of 9.0. */
bool sw_attention_wgmma_can_run(const sw_attn_args *a, const float *slopes);

#ifdef __cplusplus
}
#endif
#endif
