/* cuda_check.h - a runtime call's answer as sw_code, and what builds for compute-sanitizer add to a
 * call; inside cuda/. */
#ifndef SW_KERNELS_CUDA_RUNTIME_CUDA_CHECK_H
#define SW_KERNELS_CUDA_RUNTIME_CUDA_CHECK_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `code` is a cudaError_t. SW_E_NOMEM when the device is out of memory, else SW_E_CUDA. */
sw_code sw_device_check(int code, const char *what, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif

/* Fill rows that are about to be overwritten with NaNs, on `stream`, in builds for
 * compute-sanitizer (CONFIG=checked); other builds do nothing here. For what stores by the copy
 * engine, as cuBLAS and kernels of our own do: initcheck does not see that and takes the rows for
 * never written. After the fill it does not, and what is left out still shows as a NaN. */
static inline sw_code sw_checked_fill(void *d, int64_t stride_bytes, int64_t row_bytes,
                                      int64_t n_rows, void *stream, sw_err *err)
{
#ifdef SW_CHECKED
    return sw_device_check((int)cudaMemset2DAsync(d, (size_t)stride_bytes, 0xff, (size_t)row_bytes,
                                                  (size_t)n_rows, (cudaStream_t)stream),
                           "a fill of what is overwritten", err);
#else
    (void)d, (void)stride_bytes, (void)row_bytes, (void)n_rows, (void)stream, (void)err;
    return SW_OK;
#endif
}

#endif
