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
    double alpha, beta;
    int n_slices; /* of k, each rounded to what sums are before the next is added */
} gemm;

/* Libraries choose by the shape of a product how they sum it: so whoever counts on a row's bytes
 * for any number of rows is found out here as on a device. */
static int slices_of(int64_t m, int64_t n, int64_t batch) { return (int)(1 + m * n * batch % 5); }

/* c [m, n] without gaps = op(A) op(B) of k in [from, from + n_k). */
static void multiply_slice(double *c, const gemm *p, const double *a, const double *b, int64_t a_ld,
                           int64_t b_ld, int64_t from, int64_t n_k)
{
    const double *a_at = a + (p->turn_a == CblasTrans ? from : from * a_ld);
    const double *b_at = b + (p->turn_b == CblasTrans ? from * b_ld : from);

    cblas_dgemm(CblasColMajor, p->turn_a, p->turn_b, (int)p->m, (int)p->n, (int)n_k, 1.0, a_at,
                (int)a_ld, b_at, (int)b_ld, 0.0, c, (int)p->m);
}

static void store(const gemm *p, const double *sum)
{
    for (int64_t i = 0; i < p->m * p->n; i++) {
        const int64_t at = i % p->m + i / p->m * p->ldc;
        const double v = p->alpha * sum[i];

        if (p->c_type == CUDA_R_64F) {
            double *to = (double *)p->c + at;
            *to = p->beta != 0 ? v + p->beta * *to : v;
        } else if (p->c_type == CUDA_R_32F) {
            float *to = (float *)p->c + at;
            *to = p->beta != 0 ? (float)v + (float)p->beta * *to : (float)v;
        } else {
            ((uint16_t *)p->c)[at] = bf16_of((float)v);
        }
    }
}

static void multiply(const void *ctx)
{
    const gemm *p = ctx;
    const bool a_is_turned = p->turn_a == CblasTrans, b_is_turned = p->turn_b == CblasTrans;
    const bool is_double = p->a_type == CUDA_R_64F;
    const int64_t a_rows = a_is_turned ? p->k : p->m, a_cols = a_is_turned ? p->m : p->k;
    const int64_t b_rows = b_is_turned ? p->n : p->k, b_cols = b_is_turned ? p->k : p->n;
    double *wide_a = is_double ? NULL : widened(p->a, p->a_type, a_rows, a_cols, p->lda);
    double *wide_b = is_double ? NULL : widened(p->b, p->b_type, b_rows, b_cols, p->ldb);
    double *c = calloc((size_t)(p->m * p->n + 1), sizeof *c);
    double *sum = calloc((size_t)(p->m * p->n + 1), sizeof *sum);
    const int64_t step = (p->k + p->n_slices - 1) / p->n_slices;

    if ((!is_double && (!wide_a || !wide_b)) || !c || !sum) abort();
    for (int64_t from = 0; from < p->k; from += step) {
        multiply_slice(c, p, is_double ? p->a : wide_a, is_double ? p->b : wide_b,
                       is_double ? p->lda : a_rows, is_double ? p->ldb : b_rows, from,
                       step < p->k - from ? step : p->k - from);
        for (int64_t i = 0; i < p->m * p->n; i++)
            sum[i] = is_double ? sum[i] + c[i] : (double)((float)sum[i] + (float)c[i]);
    }
    store(p, sum);
    free(wide_a), free(wide_b), free(c), free(sum);
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transa,
                               cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                               const void *alpha, const void *A, cudaDataType Atype, int64_t lda,
                               const void *B, cudaDataType Btype, int64_t ldb, const void *beta,
                               void *C, cudaDataType Ctype, int64_t ldc,
                               cublasComputeType_t type, cublasGemmAlgo_t algo)
{
    const gemm p = {turn(transa), turn(transb), m, n, k, lda, ldb, ldc, A, B, C, Atype, Btype,
                    Ctype, (double)*(const float *)alpha, (double)*(const float *)beta,
                    slices_of(m, n, 1)};

    (void)handle, (void)type, (void)algo;
    multiply(&p);
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
    const gemm p = {turn(transa), turn(transb), m, n, k, lda, ldb, ldc, A, B, C, CUDA_R_64F,
                    CUDA_R_64F, CUDA_R_64F, *alpha, *beta, slices_of(m, n, batchCount)};

    (void)handle;
    for (int64_t i = 0; i < batchCount; i++) {
        gemm one = p;

        one.a = A + i * strideA;
        one.b = B + i * strideB;
        one.c = C + i * strideC;
        multiply(&one);
    }
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

/* ---- cuBLASLt: products of BF16, floats or doubles, of which the first may be turned ---- */

struct layout {
    cudaDataType type;
    int64_t rows, cols, ld;
    int64_t step; /* elements to the next matrix of a batch */
    int32_t n;    /* matrices in it */
};

struct product {
    cublasOperation_t turn_a;
    cudaDataType scale_type;
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
    *l = (struct layout){type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout)
{
    free((void *)layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t key,
                                                const void *value, size_t n_bytes)
{
    struct layout *l = (void *)layout;

    if (key == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) memcpy(&l->n, value, n_bytes);
    else if (key == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) memcpy(&l->step, value, n_bytes);
    else return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct product *p = malloc(sizeof *p);

    (void)compute;
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct product){CUBLAS_OP_N, scale};
    *out = (cublasLtMatmulDesc_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t product)
{
    free((void *)product);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t key,
                                              const void *value, size_t n_bytes)
{
    struct product *p = (void *)product;

    if (key == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&p->turn_a, value, n_bytes);
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
    const struct layout *of = (const void *)a, *to = (const void *)d;

    (void)handle, (void)product, (void)b, (void)c, (void)wish, (void)n_wanted;
    memset(&results[0], 0, sizeof results[0]);
    results[0].algo.data[0] = (uint64_t)slices_of(to->rows, to->cols, to->n);
    *n_found = of->type == CUDA_R_16BF || of->type == CUDA_R_32F || of->type == CUDA_R_64F;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t elem_bytes(cudaDataType type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
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
    const struct product *of = (const void *)desc;
    const bool is_double = of->scale_type == CUDA_R_64F;
    gemm p = {turn(of->turn_a), CblasNoTrans, d->rows, d->cols,
              of->turn_a == CUBLAS_OP_N ? a->cols : a->rows, a->ld, b->ld, d->ld, A, B, D, a->type,
              b->type, d->type, is_double ? *(const double *)alpha : (double)*(const float *)alpha,
              is_double ? *(const double *)beta : (double)*(const float *)beta,
              algo ? (int)algo->data[0] : slices_of(d->rows, d->cols, d->n)};

    (void)handle, (void)C, (void)Cdesc, (void)work, (void)work_bytes, (void)stream;
    for (int32_t i = 0; i < d->n; i++) {
        p.a = (const char *)A + (size_t)(i * a->step) * elem_bytes(a->type);
        p.b = (const char *)B + (size_t)(i * b->step) * elem_bytes(b->type);
        p.c = (char *)D + (size_t)(i * d->step) * elem_bytes(d->type);
        emu_enqueue(multiply, &p, sizeof p);
    }
    return CUBLAS_STATUS_SUCCESS;
}
