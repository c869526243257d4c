/* libraries.c - cuBLAS, cuBLASLt and cuSOLVER of an emulated device: what the solver and the engine
 * call of them, by OpenBLAS and LAPACK. Who opens them by name finds them in the program.
 */
#include <cblas.h>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>
#include <dlfcn.h>
#include <lapacke.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate.h"

/* ---- how they are found ---- */

static char this_program;

void *__real_dlopen(const char *name, int flags);
void *__real_dlsym(void *file, const char *name);
int __real_dlclose(void *file);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *file, const char *name);
int __wrap_dlclose(void *file);

void *__wrap_dlopen(const char *name, int flags)
{
    return name && strncmp(name, "libcu", 5) == 0 ? &this_program : __real_dlopen(name, flags);
}

void *__wrap_dlsym(void *file, const char *name)
{
    return __real_dlsym(file == &this_program ? RTLD_DEFAULT : file, name);
}

int __wrap_dlclose(void *file) { return file == &this_program ? 0 : __real_dlclose(file); }

/* ---- cuBLAS ---- */

static CBLAS_TRANSPOSE turn(cublasOperation_t op)
{
    return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
}

/* A column-major matrix of BF16 or float as one of doubles without gaps; the caller frees it. */
static double *widened(const void *from, cudaDataType type, int64_t rows, int64_t cols, int64_t ld)
{
    double *to = malloc((size_t)(rows * cols + 1) * sizeof *to);

    for (int64_t c = 0; to && c < cols; c++)
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = r + c * ld;
            float v;

            if (type == CUDA_R_32F) v = ((const float *)from)[at];
            else {
                const uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;

                memcpy(&v, &bits, sizeof v);
            }
            to[r + c * rows] = (double)v;
        }
    return to;
}

static uint16_t bf16_of(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

typedef struct gemm {
    CBLAS_TRANSPOSE turn_a, turn_b;
    int64_t m, n, k, lda, ldb, ldc;
    const void *a, *b;
    void *c;
    cudaDataType a_type, b_type, c_type;
    float alpha, beta;
} gemm;

static void multiply(const void *ctx)
{
    const gemm *p = ctx;
    const bool a_is_turned = p->turn_a == CblasTrans, b_is_turned = p->turn_b == CblasTrans;
    const int64_t a_rows = a_is_turned ? p->k : p->m, a_cols = a_is_turned ? p->m : p->k;
    const int64_t b_rows = b_is_turned ? p->n : p->k, b_cols = b_is_turned ? p->k : p->n;
    double *a = widened(p->a, p->a_type, a_rows, a_cols, p->lda);
    double *b = widened(p->b, p->b_type, b_rows, b_cols, p->ldb);
    double *c = calloc((size_t)(p->m * p->n + 1), sizeof *c);

    if (!a || !b || !c) abort();
    cblas_dgemm(CblasColMajor, p->turn_a, p->turn_b, (int)p->m, (int)p->n, (int)p->k,
                (double)p->alpha, a, (int)a_rows, b, (int)b_rows, 0, c, (int)p->m);
    for (int64_t col = 0; col < p->n; col++)
        for (int64_t row = 0; row < p->m; row++) {
            const int64_t at = row + col * p->ldc;
            const float v = (float)c[row + col * p->m];
            float *to = (float *)p->c + at;

            if (p->c_type == CUDA_R_32F) *to = p->beta != 0 ? v + p->beta * *to : v;
            else ((uint16_t *)p->c)[at] = bf16_of(v);
        }
    free(a), free(b), free(c);
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transa,
                               cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                               const void *alpha, const void *A, cudaDataType Atype, int64_t lda,
                               const void *B, cudaDataType Btype, int64_t ldb, const void *beta,
                               void *C, cudaDataType Ctype, int64_t ldc,
                               cublasComputeType_t type, cublasGemmAlgo_t algo)
{
    const gemm p = {turn(transa), turn(transb), m, n, k, lda, ldb, ldc, A, B, C,
                       Atype, Btype, Ctype, *(const float *)alpha, *(const float *)beta};

    (void)handle, (void)type, (void)algo;
    multiply(&p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDgemm_v2_64(cublasHandle_t handle, cublasOperation_t transa,
                                 cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                                 const double *alpha, const double *A, int64_t lda,
                                 const double *B, int64_t ldb, const double *beta, double *C,
                                 int64_t ldc)
{
    (void)handle;
    cblas_dgemm(CblasColMajor, turn(transa), turn(transb), (int)m, (int)n, (int)k, *alpha, A,
                (int)lda, B, (int)ldb, *beta, C, (int)ldc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDgemmStridedBatched_64(cublasHandle_t handle, cublasOperation_t transa,
                                            cublasOperation_t transb, int64_t m, int64_t n,
                                            int64_t k, const double *alpha, const double *A,
                                            int64_t lda, long long strideA, const double *B,
                                            int64_t ldb, long long strideB, const double *beta,
                                            double *C, int64_t ldc, long long strideC,
                                            int64_t batchCount)
{
    for (int64_t i = 0; i < batchCount; i++)
        (void)cublasDgemm_v2_64(handle, transa, transb, m, n, k, alpha, A + i * strideA, lda,
                                B + i * strideB, ldb, beta, C + i * strideC, ldc);
    return CUBLAS_STATUS_SUCCESS;
}

/* C = alpha op(A) B, or B op(A): BLAS does it where B is. */
cublasStatus_t cublasDtrmm_v2_64(cublasHandle_t handle, cublasSideMode_t side,
                                 cublasFillMode_t uplo, cublasOperation_t trans,
                                 cublasDiagType_t diag, int64_t m, int64_t n, const double *alpha,
                                 const double *A, int64_t lda, const double *B, int64_t ldb,
                                 double *C, int64_t ldc)
{
    (void)handle;
    for (int64_t col = 0; col < n && B != C; col++)
        memcpy(C + col * ldc, B + col * ldb, (size_t)m * sizeof *C);
    cblas_dtrmm(CblasColMajor, side == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight,
                uplo == CUBLAS_FILL_MODE_LOWER ? CblasLower : CblasUpper, turn(trans),
                diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit, (int)m, (int)n, *alpha, A,
                (int)lda, C, (int)ldc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    *handle = (cublasHandle_t)&this_program;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *work, size_t n_bytes)
{
    (void)handle, (void)work, (void)n_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuSOLVER ---- */

static char letter(cublasFillMode_t uplo) { return uplo == CUBLAS_FILL_MODE_LOWER ? 'L' : 'U'; }

cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cublasFillMode_t uplo, int64_t n, cudaDataType type,
                                             const void *A, int64_t lda, cudaDataType compute,
                                             size_t *device_bytes, size_t *host_bytes)
{
    (void)handle, (void)params, (void)uplo, (void)n, (void)type, (void)A, (void)lda, (void)compute;
    *device_bytes = *host_bytes = 8;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  cublasFillMode_t uplo, int64_t n, cudaDataType type, void *A,
                                  int64_t lda, cudaDataType compute, void *on_device,
                                  size_t device_bytes, void *on_host, size_t host_bytes, int *info)
{
    (void)handle, (void)params, (void)type, (void)compute, (void)on_device, (void)device_bytes;
    (void)on_host, (void)host_bytes;
    *info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, letter(uplo), (int)n, A, (int)lda);
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDpotrfBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,
                                         double *A[], int lda, int *info, int n_systems)
{
    (void)handle;
    for (int i = 0; i < n_systems; i++)
        info[i] = LAPACKE_dpotrf(LAPACK_COL_MAJOR, letter(uplo), n, A[i], lda);
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDpotrsBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,
                                         int nrhs, double *A[], int lda, double *B[], int ldb,
                                         int *info, int n_systems)
{
    (void)handle;
    *info = 0;
    for (int i = 0; i < n_systems; i++)
        (void)LAPACKE_dpotrs(LAPACK_COL_MAJOR, letter(uplo), n, nrhs, A[i], lda, B[i], ldb);
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle)
{
    *handle = (cusolverDnHandle_t)&this_program;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle)
{
    (void)handle;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params)
{
    *params = (cusolverDnParams_t)&this_program;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params)
{
    (void)params;
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- cuBLASLt: BF16 products Y = X W^T, of which W is A and turned ---- */

struct layout {
    cudaDataType type;
    int64_t rows, cols, ld;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)&this_program;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout *l = malloc(sizeof *l);

    if (!l) return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (struct layout){type, (int64_t)rows, (int64_t)cols, ld};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout)
{
    free((void *)layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    (void)compute, (void)scale;
    *out = (cublasLtMatmulDesc_t)(void *)&this_program;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t product)
{
    (void)product;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t key,
                                              const void *value, size_t n_bytes)
{
    (void)product, (void)key, (void)value, (void)n_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t)(void *)&this_program;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t wish)
{
    (void)wish;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t key,
                                                    const void *value, size_t n_bytes)
{
    (void)wish, (void)key, (void)value, (void)n_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *n_found)
{
    const cudaDataType type = ((const struct layout *)a)->type;

    (void)handle, (void)product, (void)b, (void)c, (void)d, (void)wish, (void)n_wanted;
    memset(&results[0], 0, sizeof results[0]);
    *n_found = type == CUDA_R_16BF || type == CUDA_R_32F;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
                              cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
                              cudaStream_t stream)
{
    const struct layout *a = (const void *)Adesc, *b = (const void *)Bdesc;
    const struct layout *d = (const void *)Ddesc;
    const gemm p = {CblasTrans, CblasNoTrans, d->rows, d->cols, a->rows, a->ld, b->ld, d->ld,
                       A, B, D, a->type, b->type, d->type, *(const float *)alpha,
                       *(const float *)beta};

    (void)handle, (void)desc, (void)C, (void)Cdesc, (void)algo, (void)work, (void)work_bytes;
    (void)stream;
    emu_enqueue(multiply, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}
