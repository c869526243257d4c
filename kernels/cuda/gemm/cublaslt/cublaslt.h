/* cublaslt.h - dense products on the device by cuBLASLt, which is looked for when it is needed: the
 * program starts without it. Inside cuda/. */
#ifndef SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_H
#define SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_cublaslt sw_cublaslt;

/* SW_E_CUDA: the library is not to be found (names the package) or does not start. */
sw_code sw_cublaslt_open(sw_cublaslt **out, sw_device *gpu, sw_err *err) SW_MUST_USE;
void sw_cublaslt_close(sw_cublaslt *lt); /* accepts NULL */

/* Y [m, n_out] = X [m, k_in] W^T [n_out, k_in]; X and W BF16, Y BF16 or (y_is_f32) FP32, sums in
 * FP32; strides in elements. */
typedef struct sw_cublaslt_gemm {
    int64_t m, n_out, k_in;
    const void *d_x, *d_w;
    void *d_y;
    int64_t x_stride, y_stride;
    bool y_is_f32;
} sw_cublaslt_gemm;

/* Enqueue on the device's stream; may be captured. The choice of an algorithm is made at the first
 * call of a shape and kept, so the same call gives the same bytes. */
sw_code sw_cublaslt_run(sw_cublaslt *lt, const sw_cublaslt_gemm *p, sw_err *err) SW_MUST_USE;

/* While one thread captures a graph no other may open or make the first product of a shape: the
 * library loads kernels then, and captures fail. Hold around a capture; a thread may hold twice. */
void sw_cublaslt_hold(void);
void sw_cublaslt_release(void);

#ifdef __cplusplus
}
#endif
#endif
