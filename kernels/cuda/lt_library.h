/* lt_library.h - cuBLASLt, looked for when it is needed: the program starts without it. What it
 * keeps for the process; inside cuda/, for those that call it by name. */
#ifndef SW_KERNELS_CUDA_LT_LIBRARY_H
#define SW_KERNELS_CUDA_LT_LIBRARY_H

#include <cublasLt.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is taken out of the library: the type of each is that of its declaration. */
#define SW_LT_FUNCTIONS(X)                                                                  \
    X(cublasLtCreate) X(cublasLtMatmul) X(cublasLtMatmulDescCreate)                         \
    X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)                          \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)                            \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                    \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)

typedef struct sw_lt_library {
    void *handle;
#define SW_LT_FUNCTION(name) __typeof__(&name) name##_at;
    SW_LT_FUNCTIONS(SW_LT_FUNCTION)
#undef SW_LT_FUNCTION
} sw_lt_library;

/* SW_E_CUDA: the library is not to be found (names the package) or lacks a function. */
sw_code sw_lt_library_open(sw_lt_library *out, sw_err *err) SW_MUST_USE;
void sw_lt_library_close(sw_lt_library *lib); /* accepts zeros */

/* The handle of the thread's card: one for all streams, which stays as long as the process. */
sw_code sw_lt_library_handle(cublasLtHandle_t *out, const sw_lt_library *lib,
                             sw_err *err) SW_MUST_USE;

sw_code sw_lt_check(cublasStatus_t s, const char *what, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
