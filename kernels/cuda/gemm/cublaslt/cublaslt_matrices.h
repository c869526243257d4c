/* cublaslt_matrices.h - the matrices of a product by cuBLASLt, and an algorithm for it. Inside
 * cuda/. */
#ifndef SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_MATRICES_H
#define SW_KERNELS_CUDA_GEMM_CUBLASLT_CUBLASLT_MATRICES_H

#include "kernels/cuda/gemm/cublaslt/cublaslt_library.h"

/* Zeros are none. Owned by whoever has them: see sw_cublaslt_matrices_drop. */
typedef struct sw_cublaslt_matrices {
    cublasLtMatrixLayout_t w, x, y;
    uint32_t
        align[3]; /* bytes that their addresses are multiples of, as sw_cublaslt_alignment says */
} sw_cublaslt_matrices;

/* The largest power of two, to 256, that an address is a multiple of. */
uint32_t sw_cublaslt_alignment(const void *p);

/* An algorithm for `product` of them with at most work_bytes of workspace. It is told how they are
 * aligned: where it is not, it counts on 256 bytes. what: of the product, for the message.
 * SW_E_UNSUPPORTED: there is none. */
sw_code sw_cublaslt_choose(cublasLtMatmulAlgo_t *out, const sw_cublaslt_library *lib,
                           cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                           const sw_cublaslt_matrices *of, int64_t work_bytes, const char *what,
                           sw_err *err) SW_MUST_USE;

/* Frees the layouts that are there, and leaves zeros. */
void sw_cublaslt_matrices_drop(sw_cublaslt_matrices *of, const sw_cublaslt_library *lib);

#endif
