/* checked.h - what builds for compute-sanitizer (CONFIG=checked) do beside; nothing in others.
 * Inside cuda/. */
#ifndef SW_KERNELS_CUDA_GEMM_CHECKED_H
#define SW_KERNELS_CUDA_GEMM_CHECKED_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kernels/cuda/runtime/cuda_check.h"

/* Rows that cuBLAS is about to overwrite, on `stream`. It stores by the copy engine, which
 * initcheck does not see: to it they were never written. So they are filled before, with NaNs, so
 * that what the library leaves out still shows. */
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
