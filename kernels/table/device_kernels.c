/* device_kernels.c - see device_kernels.h. */
#include "kernels/table/device_kernels.h"

const sw_device_kernel sw_device_kernels[] = {
#define SW_CUDA_KERNEL(name_, prefix_, sm_min_, sm_max_, ops_) {name_, ops_, sm_min_, sm_max_},
#include "kernels/cuda_kernels.def"
#undef SW_CUDA_KERNEL
};
const int sw_n_gpu_kernels = (int)(sizeof sw_device_kernels / sizeof *sw_device_kernels);
