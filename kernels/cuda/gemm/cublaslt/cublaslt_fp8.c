/* cublaslt_fp8.c - see cublaslt_fp8.h. Nothing is kept between calls: products that are worth it
 * take a millisecond, and to find out how takes the host a twentieth of that. */
#include "kernels/cuda/gemm/cublaslt/cublaslt_fp8.h"

#include "formats/base/mem.h"
#include "kernels/cuda/gemm/cublaslt/cublaslt.h"
#include "kernels/cuda/gemm/cublaslt/cublaslt_matrices.h"
#include "kernels/cuda/runtime/cuda_check.h"

struct sw_cublaslt_fp8_plan {
    sw_cublaslt_library lib;
    sw_cublaslt_fp8 problem;
    cublasLtHandle_t handle; /* of the process */
    cublasLtMatmulDesc_t product;
    sw_cublaslt_matrices of;
    cublasLtMatmulAlgo_t algo;
};

static sw_code set(sw_cublaslt_fp8_plan *plan, cublasLtMatmulDescAttributes_t key,
                   const void *value, size_t n_bytes, sw_err *err)
{
    return sw_cublaslt_check(plan->lib.cublasLtMatmulDescSetAttribute_at(plan->product, key, value,
                                                                         n_bytes),
                             "product of E4M3", err);
}

static sw_code describe(sw_cublaslt_fp8_plan *plan, const sw_cublaslt_fp8 *p, sw_err *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtMatmulMatrixScale_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const struct {
        cublasLtMatmulDescAttributes_t key;
        const void *value;
        size_t n_bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed},
        {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &by_row, sizeof by_row},
        {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &by_row, sizeof by_row},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->d_w_scales, sizeof p->d_w_scales},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->d_x_scales, sizeof p->d_x_scales},
    };
    sw_code rc =
        sw_cublaslt_check(plan->lib.cublasLtMatmulDescCreate_at(&plan->product, CUBLAS_COMPUTE_32F,
                                                                CUDA_R_32F),
                          "product of E4M3", err);

    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && rc == SW_OK; i++)
        rc = set(plan, attributes[i].key, attributes[i].value, attributes[i].n_bytes, err);
    return rc;
}

/* The library is column-major: to it W is [k_in, n_out], transposed, X [k_in, m], Y [n_out, m]. */
static sw_code lay_out(sw_cublaslt_fp8_plan *plan, const sw_cublaslt_fp8 *p, sw_err *err)
{
    const struct {
        cublasLtMatrixLayout_t *at;
        cudaDataType_t type;
        int64_t rows, columns, stride;
    } matrices[] = {
        {&plan->of.w, CUDA_R_8F_E4M3, p->k_in, p->n_out, p->k_in},
        {&plan->of.x, CUDA_R_8F_E4M3, p->k_in, p->m, p->k_in},
        {&plan->of.y, p->dtype == SW_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F, p->n_out, p->m,
         p->y_stride},
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof matrices / sizeof *matrices && rc == SW_OK; i++)
        rc = sw_cublaslt_check(plan->lib.cublasLtMatrixLayoutCreate_at(
                                   matrices[i].at, matrices[i].type, (uint64_t)matrices[i].rows,
                                   (uint64_t)matrices[i].columns, matrices[i].stride),
                               "matrix of E4M3", err);
    return rc;
}

sw_code sw_cublaslt_fp8_plan_new(sw_cublaslt_fp8_plan **out, const sw_cublaslt_fp8 *p, sw_err *err)
{
    sw_cublaslt_fp8_plan *plan = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&plan, 1, "product of E4M3", err)) != SW_OK) return rc;
    plan->problem = *p;
    plan->of.align[0] = sw_cublaslt_alignment(p->d_w);
    plan->of.align[1] = sw_cublaslt_alignment(p->d_x);
    plan->of.align[2] = sw_cublaslt_alignment(p->d_y);
    if ((rc = sw_cublaslt_library_open(&plan->lib, err)) != SW_OK ||
        (rc = sw_cublaslt_library_handle(&plan->handle, &plan->lib, err)) != SW_OK ||
        (rc = describe(plan, p, err)) != SW_OK || (rc = lay_out(plan, p, err)) != SW_OK ||
        (rc = sw_cublaslt_choose(&plan->algo, &plan->lib, plan->handle, plan->product, &plan->of,
                                 SW_CUBLASLT_FP8_WORK_BYTES, "product of E4M3 with scales of rows",
                                 err)) != SW_OK)
        sw_cublaslt_fp8_plan_free(plan);
    else
        *out = plan;
    return rc;
}

void sw_cublaslt_fp8_plan_free(sw_cublaslt_fp8_plan *plan)
{
    if (!plan) return;
    sw_cublaslt_matrices_drop(&plan->of, &plan->lib);
    if (plan->product) (void)plan->lib.cublasLtMatmulDescDestroy_at(plan->product);
    sw_cublaslt_library_close(&plan->lib);
    sw_mem_put(plan);
}

/* Held, as it may be the first product of its kind: see cublaslt.h. */
sw_code sw_cublaslt_fp8_run(const sw_cublaslt_fp8_plan *plan, void *stream, sw_err *err)
{
    const sw_cublaslt_fp8 *p = &plan->problem;
    const float one = 1.0f, zero = 0.0f;
    sw_code rc = sw_checked_fill(p->d_y, p->y_stride * 2, p->n_out * 2, p->m, stream, err);

    if (rc != SW_OK) return rc;
    sw_cublaslt_hold();
    rc =
        sw_cublaslt_check(plan->lib.cublasLtMatmul_at(plan->handle, plan->product, &one, p->d_w,
                                                      plan->of.w, p->d_x, plan->of.x, &zero, p->d_y,
                                                      plan->of.y, p->d_y, plan->of.y, &plan->algo,
                                                      p->d_work, SW_CUBLASLT_FP8_WORK_BYTES,
                                                      (cudaStream_t)stream),
                          "product of E4M3", err);
    sw_cublaslt_release();
    return rc;
}
