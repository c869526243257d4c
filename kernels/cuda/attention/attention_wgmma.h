/* attention_wgmma.h - attention of many queries on Hopper; inside cuda/. */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_H
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether sw_cuda_attention takes it: heads of up to 256 in BF16 whose rows the copy engine can
 * read, without slopes or a cap, on a device of 9.0. */
bool sw_attention_wgmma_can_run(const sw_attn_args *a, const float *slopes);

#ifdef __cplusplus
}
#endif
#endif
