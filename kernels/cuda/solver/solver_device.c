/* solver_device.c - the solver's handles, and products of doubles. See kernels/solver.h. */
#include <string.h>

#include "kernels/cuda/solver/solver_product.cuh"
#include "kernels/solver_sizes.h"

const char *const sw_stage_names[SW_STAGE_COUNT] = {"fit", "sweep", "update", "refine", "loss",
                                                    "copy"};

sw_code sw_solver_check(int status, const char *what, sw_err *err)
{
    if (status == 0) return SW_OK;
    return SW_FAIL(err, SW_E_CUDA, "%.60s: status %d", what, status);
}

static sw_code open_handles(sw_solver *s, sw_err *err)
{
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&s->d_info, s, 1, "cuSOLVER's answer", err));
    TRY(sw_device_take(&s->d_blas_work, s->gpu, SW_SOLVER_BLAS_BYTES, 1, "cuBLAS's workspace",
                       err));
    LIB(s->libs.cublasCreate_v2_fn(&s->blas));
    LIB(s->libs.cublasSetStream_v2_fn(s->blas, s->stream));
    LIB(s->libs.cublasSetWorkspace_v2_fn(s->blas, s->d_blas_work, (size_t)SW_SOLVER_BLAS_BYTES));
    LIB(s->libs.cusolverDnCreate_fn(&s->lapack));
    LIB(s->libs.cusolverDnSetStream_fn(s->lapack, s->stream));
    LIB(s->libs.cusolverDnCreateParams_fn(&s->params));
done:
    return rc;
}

sw_code sw_solver_open(sw_solver **out, sw_device *gpu, int64_t work_bytes, sw_err *err)
{
    sw_solver *s = NULL;
    sw_code rc = SW_MEM_GET(&s, 1, "solver", err);

    if (rc != SW_OK) return rc;
    s->gpu = gpu;
    s->stream = sw_device_stream(gpu);
    s->work_bytes = work_bytes > 0 ? work_bytes : SW_SOLVER_WORK_BYTES;
    TRY(sw_solver_libs_load(&s->libs, err));
    TRY(open_handles(s, err));
    TRY(sw_products_open(&s->products, err));
    *out = s;
    return SW_OK;
done:
    sw_solver_close(s);
    return rc;
}

sw_code sw_solver_lane(sw_solver **out, sw_solver *s, int i, sw_err *err)
{
    sw_device *gpu = NULL;
    sw_code rc = sw_device_use(s->gpu, err);

    if (rc == SW_OK && !s->lane[i]) {
        if ((rc = sw_device_branch(&gpu, s->gpu, err)) != SW_OK) return rc;
        rc = sw_solver_open(&s->lane[i], gpu, SW_LANE_BYTES, err);
        if (rc == SW_OK) s->lane[i]->is_lane = true;
        else sw_device_close(gpu);
    }
    if (rc == SW_OK) *out = s->lane[i];
    return rc;
}

void sw_solver_close(sw_solver *s)
{
    sw_device *own;

    if (!s) return;
    own = s->is_lane ? s->gpu : NULL;
    for (int i = 0; i < SW_SOLVER_LANES; i++) sw_solver_close(s->lane[i]);
    if (s->params) (void)s->libs.cusolverDnDestroyParams_fn(s->params);
    if (s->lapack) (void)s->libs.cusolverDnDestroy_fn(s->lapack);
    if (s->blas) (void)s->libs.cublasDestroy_v2_fn(s->blas);
    sw_products_close(s->products);
    sw_device_put(s->gpu, s->d_info);
    sw_device_put(s->gpu, s->d_blas_work);
    sw_device_put(s->gpu, s->d_split_part);
    sw_solver_libs_unload(&s->libs);
    sw_device_close(own);
    sw_mem_put(s);
}

sw_device *sw_solver_gpu(const sw_solver *s) { return s->gpu; }

sw_code sw_solver_dgemm(sw_solver *s, double *d_c, int64_t ldc, const double *d_a, int64_t lda,
                        const double *d_b, int64_t ldb, int64_t m, int64_t n, int64_t k,
                        double alpha, double beta, sw_err *err)
{
    const sw_row_product p = {.m = m, .n = n, .k = k, .d_a = d_a, .d_b = d_b, .d_c = d_c,
                              .lda = lda, .ldb = ldb, .ldc = ldc, .alpha = alpha, .beta = beta};

    return sw_solver_multiply_rows(s, &p, err);
}
