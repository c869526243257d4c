/* cuda_check.h - a runtime call's answer as sw_code; inside cuda/. */
#ifndef SW_KERNELS_CUDA_RUNTIME_CUDA_CHECK_H
#define SW_KERNELS_CUDA_RUNTIME_CUDA_CHECK_H

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `code` is a cudaError_t. SW_E_NOMEM when the device is out of memory, else SW_E_CUDA. */
sw_code sw_device_check(int code, const char *what, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
