/* cublaslt_library.h - cuBLASLt, looked for when it is needed: the program starts without it. What
 * it keeps for the process; inside cuda/, for those that call it by name. */
#ifndef SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_LIBRARY_H
#define SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_LIBRARY_H

#include <cublasLt.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is taken out of the library: the type of each is that of its declaration. */
#define SW_CUBLASLT_FUNCTIONS(X)                                                                  \
    X(cublasLtCreate) X(cublasLtMatmul) X(cublasLtMatmulDescCreate)                         \
    X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)                          \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)                            \
    X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulAlgoCheck)                          \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                    \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)

typedef struct sw_cublaslt_library {
    void *handle;
#define SW_CUBLASLT_FUNCTION(name) __typeof__(&name) name##_at;
    SW_CUBLASLT_FUNCTIONS(SW_CUBLASLT_FUNCTION)
#undef SW_CUBLASLT_FUNCTION
} sw_cublaslt_library;

/* SW_E_CUDA: the library is not to be found (names the package) or lacks a function. */
sw_code sw_cublaslt_library_open(sw_cublaslt_library *out, sw_err *err) SW_MUST_USE;
void sw_cublaslt_library_close(sw_cublaslt_library *lib); /* accepts zeros */

/* The handle of the thread's device: one for all streams, which stays as long as the process. */
sw_code sw_cublaslt_library_handle(cublasLtHandle_t *out, const sw_cublaslt_library *lib,
                                   sw_err *err) SW_MUST_USE;

sw_code sw_cublaslt_check(cublasStatus_t s, const char *what, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
