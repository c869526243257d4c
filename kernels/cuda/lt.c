/* lt.c - see lt.h. */
#include "kernels/cuda/lt.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "kernels/cuda/checked.h"
#include "kernels/cuda/lt_library.h"

#define WORK_BYTES ((int64_t)32 << 20) /* what the library asks for on this architecture */
#define N_PLANS 128
#define ALIGN_MAX 256u

/* A shape, and how to compute it. */
typedef struct plan {
    sw_lt_gemm shape; /* without pointers */
    uint32_t align[3];
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    bool is_set, is_loaded; /* loaded: it has run */
} plan;

struct sw_lt {
    sw_gpu *gpu;
    sw_lt_library lib;
    void *d_work;
    cublasLtHandle_t handle; /* of the process */
    cublasLtMatmulDesc_t product;
    plan plans[N_PLANS];
    int n_next; /* the plan to give up next */
};

sw_code sw_lt_open(sw_lt **out, sw_gpu *gpu, sw_err *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    sw_lt *lt = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&lt, 1, "cuBLASLt", err)) != SW_OK) return rc;
    lt->gpu = gpu;
    if ((rc = sw_lt_library_open(&lt->lib, err)) != SW_OK ||
        (rc = sw_lt_library_handle(&lt->handle, &lt->lib, err)) != SW_OK ||
        (rc = sw_lt_check(lt->lib.cublasLtMatmulDescCreate_at(&lt->product, CUBLAS_COMPUTE_32F,
                                                           CUDA_R_32F), "product", err)) != SW_OK ||
        (rc = sw_lt_check(lt->lib.cublasLtMatmulDescSetAttribute_at(
                              lt->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                              sizeof transposed), "transpose", err)) != SW_OK ||
        (rc = sw_gpu_take(&lt->d_work, gpu, WORK_BYTES, 1, "cuBLASLt workspace", err)) != SW_OK)
        sw_lt_close(lt);
    else
        *out = lt;
    return rc;
}

static void drop_plan(sw_lt *lt, plan *p)
{
    const cublasLtMatrixLayout_t layouts[] = {p->w, p->x, p->y};

    for (int i = 0; i < 3; i++)
        if (layouts[i]) (void)lt->lib.cublasLtMatrixLayoutDestroy_at(layouts[i]);
    memset(p, 0, sizeof *p);
}

void sw_lt_close(sw_lt *lt)
{
    if (!lt) return;
    for (int i = 0; i < N_PLANS; i++) drop_plan(lt, &lt->plans[i]);
    if (lt->product) (void)lt->lib.cublasLtMatmulDescDestroy_at(lt->product);
    sw_gpu_put(lt->gpu, lt->d_work);
    sw_lt_library_close(&lt->lib);
    sw_mem_put(lt);
}

static uint32_t alignment(const void *p)
{
    uint32_t align = ALIGN_MAX;

    while (align > 2 && (uintptr_t)p % align) align /= 2;
    return align;
}

static bool is_same(const plan *p, const sw_lt_gemm *q, const uint32_t align[3])
{
    return p->is_set && p->shape.m == q->m && p->shape.n_out == q->n_out &&
           p->shape.k_in == q->k_in && p->shape.x_stride == q->x_stride &&
           p->shape.y_stride == q->y_stride && p->shape.y_is_f32 == q->y_is_f32 &&
           !memcmp(p->align, align, sizeof p->align);
}

/* The library is column-major: to it W is [k_in, n_out], transposed, X [k_in, m], Y [n_out, m]. */
static sw_code lay_out(sw_lt *lt, plan *p, const sw_lt_gemm *q, sw_err *err)
{
    const cudaDataType_t y_type = q->y_is_f32 ? CUDA_R_32F : CUDA_R_16BF;
    const uint64_t m = (uint64_t)q->m, n = (uint64_t)q->n_out, k = (uint64_t)q->k_in;
    const sw_lt_library *lib = &lt->lib;
    sw_code rc;

    if ((rc = sw_lt_check(lib->cublasLtMatrixLayoutCreate_at(&p->w, CUDA_R_16BF, k, n, q->k_in),
                          "W", err)) != SW_OK ||
        (rc = sw_lt_check(lib->cublasLtMatrixLayoutCreate_at(&p->x, CUDA_R_16BF, k, m,
                                                             q->x_stride), "X", err)) != SW_OK)
        return rc;
    return sw_lt_check(lib->cublasLtMatrixLayoutCreate_at(&p->y, y_type, n, m, q->y_stride), "Y",
                       err);
}

static sw_code choose(sw_lt *lt, plan *p, const uint32_t align[3], sw_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t keys[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    const uint32_t values[] = {align[0], align[1], align[2], align[2]};
    const uint64_t work = (uint64_t)WORK_BYTES;
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    sw_code rc = sw_lt_check(lt->lib.cublasLtMatmulPreferenceCreate_at(&wish), "preference", err);

    if (rc != SW_OK) return rc;
    rc = sw_lt_check(lt->lib.cublasLtMatmulPreferenceSetAttribute_at(
                         wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work),
                     "preference", err);
    for (int i = 0; i < 4 && rc == SW_OK; i++)
        rc = sw_lt_check(lt->lib.cublasLtMatmulPreferenceSetAttribute_at(wish, keys[i], &values[i],
                                                                  sizeof values[i]),
                      "preference", err);
    if (rc == SW_OK)
        rc = sw_lt_check(lt->lib.cublasLtMatmulAlgoGetHeuristic_at(lt->handle, lt->product, p->w,
                                                                  p->x, p->y, p->y, wish, 1, &found,
                                                                  &n_found),
                         "choice of an algorithm", err);
    if (rc == SW_OK && n_found == 0)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "cuBLASLt has no product for %lld x %lld x %lld",
                     (long long)p->shape.m, (long long)p->shape.n_out, (long long)p->shape.k_in);
    if (rc == SW_OK) p->algo = found.algo;
    (void)lt->lib.cublasLtMatmulPreferenceDestroy_at(wish);
    return rc;
}

static sw_code plan_for(sw_lt *lt, plan **out, const sw_lt_gemm *q, sw_err *err)
{
    const uint32_t align[3] = {alignment(q->d_w), alignment(q->d_x), alignment(q->d_y)};
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
    memcpy(p->align, align, sizeof align);
    if ((rc = lay_out(lt, p, q, err)) != SW_OK || (rc = choose(lt, p, align, err)) != SW_OK) {
        drop_plan(lt, p);
        return rc;
    }
    p->is_set = true;
    lt->n_next = (lt->n_next + 1) % N_PLANS;
    *out = p;
    return SW_OK;
}

static sw_code run_plan(sw_lt *lt, const plan *p, const sw_lt_gemm *q, sw_err *err)
{
    const float one = 1.0f, zero = 0.0f;
    const int64_t elem_bytes = q->y_is_f32 ? 4 : 2;
    sw_code rc = sw_checked_fill(q->d_y, q->y_stride * elem_bytes, q->n_out * elem_bytes, q->m,
                                 sw_gpu_stream(lt->gpu), err);
    char what[80];

    if (rc != SW_OK) return rc;
    (void)snprintf(what, sizeof what, "product of %lld x %lld x %lld", (long long)q->m,
                   (long long)q->n_out, (long long)q->k_in);
    return sw_lt_check(lt->lib.cublasLtMatmul_at(lt->handle, lt->product, &one, q->d_w, p->w,
                                                 q->d_x, p->x, &zero, q->d_y, p->y, q->d_y, p->y,
                                                 &p->algo, lt->d_work, (size_t)WORK_BYTES,
                                                 sw_gpu_stream(lt->gpu)),
                       what, err);
}

sw_code sw_lt_run(sw_lt *lt, const sw_lt_gemm *q, sw_err *err)
{
    plan *p = NULL;
    sw_code rc;

    if (q->m == 0 || q->n_out == 0) return SW_OK;
    if ((rc = plan_for(lt, &p, q, err)) != SW_OK) return rc;
    if (p->is_loaded) return run_plan(lt, p, q, err);
    sw_lt_hold();
    rc = run_plan(lt, p, q, err);
    sw_lt_release();
    p->is_loaded = rc == SW_OK;
    return rc;
}
