/* w8a8_count.h - the choice among the rows of 8-bit inputs, which all three ask for. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_COUNT_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_COUNT_H

#include "kernels/cuda/gemm/gemm_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether plans for p are counted. Up to 32 tokens of 8-bit weights with one scale a channel are
 * left to w8a8_split_k. */
bool sw_w8a8_is_counted(const sw_cuda_gemm *p);
/* Of plans that are counted, is one of this kernel (a name of sw_cuda_kernels) first? Counts once
 * for all three, in *counted. */
bool sw_w8a8_count_suits(const sw_cuda_gemm *p, const sw_cuda_device *device, const char *kernel,
                         sw_cuda_counted *counted);
/* The plan that is first, if it is of this kernel, else the kernel's own best in one launch: *out
 * as a row leaves it, whose kernel is the caller's. */
void sw_w8a8_count_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                        const char *kernel, sw_cuda_counted *counted);

#ifdef __cplusplus
}
#endif

#endif
