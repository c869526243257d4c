/* cuda_factor.c - the factor of a Hessian (factor.h) on a CUDA device. */
#include "quant/backend/cuda/cuda.h"

sw_device_factor *sw_cuda_factor(const sw_factor *f) { return f->own; }

sw_code sw_cuda_factor_new(sw_factor *f, const sw_hessian *hess, const double *diagonal,
                           sw_err *err)
{
    sw_device_factor *on = NULL;
    sw_code rc = SW_MEM_GET(&on, 1, "factor", err);

    if (rc != SW_OK) return rc;
    f->own = on;
    return sw_device_factor_new(on, sw_cuda_solver(&f->place), hess->h, diagonal, f->perm, f->k_in,
                                err);
}

void sw_cuda_factor_free(sw_factor *f)
{
    if (f->own) sw_device_factor_free(f->own, sw_cuda_solver(&f->place));
    sw_mem_put(f->own);
}

sw_code sw_cuda_factor_try(bool *is_definite, sw_factor *f, double lambda, sw_err *err)
{
    return sw_device_factor_try(is_definite, f->own, sw_cuda_solver(&f->place), lambda, err);
}

sw_code sw_cuda_factor_finish(sw_factor *f, double lambda, sw_err *err)
{
    return sw_device_factor_finish(f->own, sw_cuda_solver(&f->place), lambda, err);
}

sw_code sw_cuda_factor_costs(double *diagonal, double *by_step, const sw_factor *f, sw_err *err)
{
    const sw_device_factor *on = f->own;
    sw_code rc = sw_device_download(sw_cuda_gpu(&f->place), by_step, on->d_pivot,
                                    f->k_in * (int64_t)sizeof *by_step, err);

    return rc == SW_OK ? sw_solver_diagonal(diagonal, sw_cuda_solver(&f->place), on->d_h, f->k_in,
                                            err)
                       : rc;
}
