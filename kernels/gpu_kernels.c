/* gpu_kernels.c - see gpu_kernels.h. */
#include "kernels/gpu_kernels.h"

const sw_gpu_kernel sw_gpu_kernels[] = {
#define SW_CUDA_KERNEL(name_, prefix_, sm_min_, sm_max_, ops_) {name_, ops_, sm_min_, sm_max_},
#include "kernels/cuda/cuda_kernels.def"
#undef SW_CUDA_KERNEL
};
const int sw_n_gpu_kernels = (int)(sizeof sw_gpu_kernels / sizeof *sw_gpu_kernels);
