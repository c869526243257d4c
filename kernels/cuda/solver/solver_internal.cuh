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

struct sw_products; /* solver_product.cuh */

struct sw_solver {
    sw_device *gpu;      /* borrowed */
    cudaStream_t stream; /* the device's */
    sw_solver_libs libs;
    cublasHandle_t blas;
    cusolverDnHandle_t lapack;
    cusolverDnParams_t params;
    void *d_blas_work;
    int *d_info;         /* of cuSOLVER */
    struct sw_products *products;
    float *d_split_part; /* [SW_SPLIT_PART_ELEMS] sums of halves, once asked for */
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

/* Row-major C [m, n] = alpha A [m, k] B [k, n] + beta C, doubles, with row strides: of rows that
 * begin where a piece does (solver_product.cuh). */
sw_code sw_solver_dgemm(sw_solver *s, double *d_c, int64_t ldc, const double *d_a, int64_t lda,
                        const double *d_b, int64_t ldb, int64_t m, int64_t n, int64_t k,
                        double alpha, double beta, sw_err *err) SW_MUST_USE;

/* ---- products of doubles by halves of them (solver_split.cu) ---- */

/* A matrix of doubles as the sum of two of BF16: element (i, j) is d[i * stride + j] and that
 * `low` elements further on. A zeroed one is none. */
typedef struct sw_halves {
    uint16_t *d;
    int64_t stride, low;
} sw_halves;

sw_code sw_halves_new(sw_halves *out, sw_solver *s, int64_t n_rows, int64_t n_cols,
                      sw_err *err) SW_MUST_USE;
/* Columns [begin, end) of d_from [n_rows, from_stride] into those of `to`. */
sw_code sw_solver_halve(sw_solver *s, const sw_halves *to, const double *d_from,
                        int64_t from_stride, int64_t n_rows, int64_t begin, int64_t end,
                        sw_err *err) SW_MUST_USE;
/* sw_solver_dgemm of halves, B turned or not, of SW_SOLVER_ROWS rows at most: to about 1e-5 of the
 * sizes of what is added. */
sw_code sw_halves_product(sw_solver *s, double *d_c, int64_t ldc, const sw_halves *a,
                          const sw_halves *b, bool is_b_turned, int64_t m, int64_t n, int64_t k,
                          double alpha, double beta, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
