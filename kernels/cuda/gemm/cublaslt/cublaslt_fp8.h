/* cublaslt_fp8.h - products of rows in E4M3 by cuBLASLt, each row with its scale. Inside cuda/. */
#ifndef SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_FP8_H
#define SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_FP8_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/num/num.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_CUBLASLT_FP8_WORK_BYTES                                                                 \
    ((size_t)32 << 20)           /* what the library asks for on this architecture */
#define SW_CUBLASLT_FP8_ALIGN 16 /* of m, n_out, k_in, y_stride and pointers */

/* Y [m, n_out] = x_scales [m] w_scales [n_out] X [m, k_in] W^T [n_out, k_in], rows dense, Y BF16 or
 * F16; sums leave the tensor cores every 128 inputs. */
typedef struct sw_cublaslt_fp8 {
    int64_t m, n_out, k_in;
    const uint8_t *d_x, *d_w;
    const float *d_x_scales, *d_w_scales;
    void *d_y, *d_work;
    int64_t y_stride; /* elements */
    sw_dtype dtype;
} sw_cublaslt_fp8;

typedef struct sw_cublaslt_fp8_plan sw_cublaslt_fp8_plan;

/* How to do it; enqueues nothing. SW_E_CUDA, SW_E_UNSUPPORTED: the library is not there, or has no
 * such product on this device. The same problem gives the same plan, so the same bytes. */
sw_code sw_cublaslt_fp8_plan_new(sw_cublaslt_fp8_plan **out, const sw_cublaslt_fp8 *p,
                                 sw_err *err) SW_MUST_USE;
void sw_cublaslt_fp8_plan_free(sw_cublaslt_fp8_plan *plan); /* accepts NULL */
/* Enqueue on `stream` (a cudaStream_t); the plan may be freed then. */
sw_code sw_cublaslt_fp8_run(const sw_cublaslt_fp8_plan *plan, void *stream,
                            sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
