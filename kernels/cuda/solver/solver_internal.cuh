/* solver_internal.cuh - the solver's inside: handles and checks. For the files solver_* alone. */
#ifndef SW_KERNELS_CUDA_SOLVER_SOLVER_INTERNAL_CUH
#define SW_KERNELS_CUDA_SOLVER_SOLVER_INTERNAL_CUH

#include <cuda_runtime_api.h>

#include "formats/base/mem.h"
#include "kernels/cuda/runtime/cuda_check.h"
#include "kernels/cuda/solver/solver_libs.cuh"
#include "kernels/solver.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_solver {
    sw_device *gpu;      /* borrowed */
    cudaStream_t stream; /* the device's */
    sw_solver_libs libs;
    cublasHandle_t blas;
    cusolverDnHandle_t lapack;
    cusolverDnParams_t params;
    void *d_blas_work;
    int *d_info;         /* of cuSOLVER */
    int64_t work_bytes;  /* most that a solve may take */
    sw_solver *lane[SW_SOLVER_LANES]; /* once asked for */
    bool is_lane;        /* the device is a branch, and its own */
};

/* How kernels round scales of this spec: 0 F32, 1 F16, 2 BF16, -1 not at all. */
int sw_solver_scale_kind(const sw_qspec *spec);
/* `status` of cuBLAS or cuSOLVER. */
sw_code sw_solver_check(int status, const char *what, sw_err *err) SW_MUST_USE;

/* What fails leaves through `done`, with rc set. */
#define TRY(call) do { if ((rc = (call)) != SW_OK) goto done; } while (0)
#define CUDA(call) TRY(sw_device_check((int)(call), #call, err))
#define LIB(call) TRY(sw_solver_check((int)(call), #call, err))

#define SW_SOLVER_TAKE(d_out, s, n, what, err)                                                     \
    sw_device_take((void **)(d_out), (s)->gpu, (n), (int64_t)sizeof **(d_out), (what), (err))

/* Row-major C [m, n] = alpha A [m, k] B [k, n] + beta C, doubles, with row strides. */
sw_code sw_solver_dgemm(sw_solver *s, double *d_c, int64_t ldc, const double *d_a, int64_t lda,
                        const double *d_b, int64_t ldb, int64_t m, int64_t n, int64_t k,
                        double alpha, double beta, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
