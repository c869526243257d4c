/* solver_libs.cuh - cuBLAS and cuSOLVER, loaded when a solver is opened: the program runs without.
 *
 * Both keep one interface within a version of the toolkit, which their file names carry.
 */
#ifndef SW_KERNELS_CUDA_SOLVER_SOLVER_LIBS_CUH
#define SW_KERNELS_CUDA_SOLVER_SOLVER_LIBS_CUH

#include <cublas_v2.h>
#include <cusolverDn.h>

#include "formats/base/status.h"

#define SW_CUBLAS_FNS(X) \
    X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2) \
    X(cublasGemmEx_64) X(cublasDtrmm_v2_64) \
    X(cublasDgemmStridedBatched_64)
#define SW_CUSOLVER_FNS(X) \
    X(cusolverDnCreate) X(cusolverDnDestroy) X(cusolverDnSetStream) \
    X(cusolverDnCreateParams) X(cusolverDnDestroyParams) \
    X(cusolverDnXpotrf_bufferSize) X(cusolverDnXpotrf) X(cusolverDnDpotrfBatched) \
    X(cusolverDnDpotrsBatched)

typedef struct sw_solver_libs {
    void *blas_file, *lapack_file;
#define SW_FN(name) __typeof__(&name) name##_fn;
    SW_CUBLAS_FNS(SW_FN)
    SW_CUSOLVER_FNS(SW_FN)
#undef SW_FN
} sw_solver_libs;

/* SW_E_CUDA names the library or function that is missing. */
#ifdef __cplusplus
extern "C" {
#endif
sw_code sw_solver_libs_load(sw_solver_libs *out, sw_err *err) SW_MUST_USE;
void sw_solver_libs_unload(sw_solver_libs *libs); /* accepts a zeroed one */
#ifdef __cplusplus
}
#endif

#endif
