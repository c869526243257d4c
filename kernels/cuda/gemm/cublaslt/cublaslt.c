/* cublaslt.c - see cublaslt.h. */
#include "kernels/cuda/gemm/cublaslt/cublaslt.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "kernels/cuda/gemm/cublaslt/cublaslt_matrices.h"
#include "kernels/cuda/runtime/cuda_check.h"
#include "kernels/device_sizes.h"

#define WORK_BYTES SW_CUBLASLT_WORK_BYTES
#define N_PLANS 128
#define ROWS_EXACT_MAX 64 /* up to so many rows of X each number of them has a plan of its own */

/* A shape, and how to compute it. Experts get another number of rows every time, and choosing takes
 * longer than most products: numbers of rows that are much alike share a plan. */
typedef struct plan {
    sw_cublaslt_gemm shape; /* without pointers */
    char name[80];    /* in messages */
    sw_cublaslt_matrices of;
    cublasLtMatmulAlgo_t algo;
    bool is_set, is_loaded; /* loaded: it has run */
} plan;

struct sw_cublaslt {
    sw_device *gpu;
    sw_cublaslt_library lib;
    void *d_work;
    cublasLtHandle_t handle; /* of the process */
    cublasLtMatmulDesc_t product;
    plan plans[N_PLANS];
    int n_next; /* the plan to give up next */
};

sw_code sw_cublaslt_open(sw_cublaslt **out, sw_device *gpu, sw_err *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    sw_cublaslt *lt = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&lt, 1, "cuBLASLt", err)) != SW_OK) return rc;
    lt->gpu = gpu;
    if ((rc = sw_cublaslt_library_open(&lt->lib, err)) != SW_OK ||
        (rc = sw_cublaslt_library_handle(&lt->handle, &lt->lib, err)) != SW_OK ||
        (rc = sw_cublaslt_check(lt->lib.cublasLtMatmulDescCreate_at(&lt->product,
                                                                    CUBLAS_COMPUTE_32F, CUDA_R_32F),
                                "product", err)) != SW_OK ||
        (rc = sw_cublaslt_check(
             lt->lib.cublasLtMatmulDescSetAttribute_at(lt->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof transposed),
             "transpose", err)) != SW_OK ||
        (rc = sw_device_take(&lt->d_work, gpu, WORK_BYTES, 1, "cuBLASLt workspace", err)) != SW_OK)
        sw_cublaslt_close(lt);
    else
        *out = lt;
    return rc;
}

static void drop_plan(sw_cublaslt *lt, plan *p)
{
    sw_cublaslt_matrices_drop(&p->of, &lt->lib);
    memset(p, 0, sizeof *p);
}

void sw_cublaslt_close(sw_cublaslt *lt)
{
    if (!lt) return;
    for (int i = 0; i < N_PLANS; i++) drop_plan(lt, &lt->plans[i]);
    if (lt->product) (void)lt->lib.cublasLtMatmulDescDestroy_at(lt->product);
    sw_device_put(lt->gpu, lt->d_work);
    sw_cublaslt_library_close(&lt->lib);
    sw_mem_put(lt);
}

/* The next of 4 to 8 numbers between one power of two and the next. */
static int64_t planned_rows(int64_t m)
{
    int64_t step = ROWS_EXACT_MAX / 2;

    if (m <= ROWS_EXACT_MAX) return m;
    while (8 * step <= m) step *= 2;
    return sw_ceil_div(m, step) * step;
}

static bool is_same(const plan *p, const sw_cublaslt_gemm *q, const uint32_t align[3])
{
    return p->is_set && p->shape.m == q->m && p->shape.n_out == q->n_out &&
           p->shape.k_in == q->k_in && p->shape.x_stride == q->x_stride &&
           p->shape.y_stride == q->y_stride && p->shape.y_is_f32 == q->y_is_f32 &&
           !memcmp(p->of.align, align, sizeof p->of.align);
}

/* The library is column-major: to it W is [k_in, n_out], transposed, X [k_in, m], Y [n_out, m]. */
static sw_code lay_out_rows(sw_cublaslt_matrices *of, const sw_cublaslt_library *lib,
                            const sw_cublaslt_gemm *q, sw_err *err)
{
    const cudaDataType_t y_type = q->y_is_f32 ? CUDA_R_32F : CUDA_R_16BF;
    const uint64_t m = (uint64_t)q->m, n = (uint64_t)q->n_out, k = (uint64_t)q->k_in;
    sw_code rc = sw_cublaslt_check(lib->cublasLtMatrixLayoutCreate_at(&of->x, CUDA_R_16BF, k, m,
                                                                      q->x_stride),
                                   "X", err);

    if (rc != SW_OK) return rc;
    return sw_cublaslt_check(lib->cublasLtMatrixLayoutCreate_at(&of->y, y_type, n, m, q->y_stride),
                             "Y", err);
}

static sw_code lay_out(sw_cublaslt *lt, plan *p, const sw_cublaslt_gemm *q, sw_err *err)
{
    const uint64_t n = (uint64_t)q->n_out, k = (uint64_t)q->k_in;
    sw_code rc = sw_cublaslt_check(lt->lib.cublasLtMatrixLayoutCreate_at(&p->of.w, CUDA_R_16BF, k,
                                                                         n, q->k_in),
                                   "W", err);

    return rc == SW_OK ? lay_out_rows(&p->of, &lt->lib, q, err) : rc;
}

static sw_code plan_for(sw_cublaslt *lt, plan **out, const sw_cublaslt_gemm *q, sw_err *err)
{
    const uint32_t align[3] = {sw_cublaslt_alignment(q->d_w), sw_cublaslt_alignment(q->d_x),
                               sw_cublaslt_alignment(q->d_y)};
    plan *p;
    sw_code rc;

    for (int i = 0; i < N_PLANS; i++)
        if (is_same(&lt->plans[i], q, align)) {
            *out = &lt->plans[i];
            return SW_OK;
        }
    p = &lt->plans[lt->n_next];
    drop_plan(lt, p);
    p->shape = *q;
    memcpy(p->of.align, align, sizeof align);
    (void)snprintf(p->name, sizeof p->name, "product of %lld x %lld x %lld", (long long)q->m,
                   (long long)q->n_out, (long long)q->k_in);
    if ((rc = lay_out(lt, p, q, err)) != SW_OK ||
        (rc = sw_cublaslt_choose(&p->algo, &lt->lib, lt->handle, lt->product, &p->of, WORK_BYTES,
                                 p->name, err)) != SW_OK) {
        drop_plan(lt, p);
        return rc;
    }
    p->is_set = true;
    lt->n_next = (lt->n_next + 1) % N_PLANS;
    *out = p;
    return SW_OK;
}

static sw_code run_plan(sw_cublaslt *lt, const plan *p, const sw_cublaslt_matrices *of,
                        const sw_cublaslt_gemm *q, sw_err *err)
{
    const float one = 1.0f, zero = 0.0f;
    const int64_t elem_bytes = q->y_is_f32 ? 4 : 2;
    sw_code rc = sw_checked_fill(q->d_y, q->y_stride * elem_bytes, q->n_out * elem_bytes, q->m,
                                 sw_device_stream(lt->gpu), err);

    if (rc != SW_OK) return rc;
    return sw_cublaslt_check(lt->lib.cublasLtMatmul_at(lt->handle, lt->product, &one, q->d_w,
                                                       of->w, q->d_x, of->x, &zero, q->d_y,
                                                       of->y, q->d_y, of->y, &p->algo,
                                                       lt->d_work, (size_t)WORK_BYTES,
                                                       sw_device_stream(lt->gpu)),
                             p->name, err);
}

/* A product with fewer rows than its plan is for. */
static sw_code run_fewer(sw_cublaslt *lt, const plan *p, const sw_cublaslt_gemm *q, sw_err *err)
{
    sw_cublaslt_matrices of = {0};
    sw_code rc = lay_out_rows(&of, &lt->lib, q, err);

    of.w = p->of.w;
    if (rc == SW_OK) rc = run_plan(lt, p, &of, q, err);
    of.w = NULL; /* the plan's */
    sw_cublaslt_matrices_drop(&of, &lt->lib);
    return rc;
}

static sw_code run_by(sw_cublaslt *lt, plan *p, const sw_cublaslt_gemm *q, sw_err *err)
{
    const bool is_first = !p->is_loaded;
    sw_code rc;

    if (is_first) sw_cublaslt_hold();
    rc = p->shape.m == q->m ? run_plan(lt, p, &p->of, q, err) : run_fewer(lt, p, q, err);
    if (is_first) sw_cublaslt_release();
    p->is_loaded = rc == SW_OK;
    return rc;
}

sw_code sw_cublaslt_run(sw_cublaslt *lt, const sw_cublaslt_gemm *q, sw_err *err)
{
    sw_cublaslt_gemm planned = *q;
    sw_err no_plan = {0};
    plan *p = NULL;
    sw_code rc;

    if (q->m == 0 || q->n_out == 0) return SW_OK;
    planned.m = planned_rows(q->m);
    if (planned.m != q->m && plan_for(lt, &p, &planned, &no_plan) == SW_OK &&
        run_by(lt, p, q, &no_plan) == SW_OK)
        return SW_OK;
    rc = plan_for(lt, &p, q, err); /* of this very shape, also where the shared one does not do */
    return rc == SW_OK ? run_by(lt, p, q, err) : rc;
}
