/* cuda_arrays.c - arrays on a CUDA device, what searches do with them (backend.h), and lanes. */
#include "quant/backend/cuda/cuda.h"
#include "quant/backend/cuda/cuda_sizes.h"

int sw_cuda_n_lanes(const sw_place *at, int64_t item_bytes)
{
    return sw_cuda_lanes_in(sw_device_left_bytes(sw_cuda_gpu(at)), item_bytes);
}

sw_code sw_cuda_lane(sw_place *out, const sw_place *at, int i, sw_err *err)
{
    sw_solver *lane = NULL;
    sw_code rc = sw_solver_lane(&lane, sw_cuda_solver(at), i, err);

    if (rc == SW_OK) rc = sw_device_sync(sw_cuda_gpu(at), err);
    if (rc != SW_OK) return rc;
    *out = *at;
    out->device = lane;
    return SW_OK;
}

sw_code sw_cuda_finish(const sw_place *at, sw_err *err)
{
    return sw_device_sync(sw_cuda_gpu(at), err);
}

sw_code sw_cuda_take(void **out, const sw_place *at, int64_t n, int64_t elem_bytes,
                     const char *what, sw_err *err)
{
    return sw_device_take(out, sw_cuda_gpu(at), n, elem_bytes, what, err);
}

void sw_cuda_put(const sw_place *at, void *values) { sw_device_put(sw_cuda_gpu(at), values); }

/* Products with 1 are exact. */
sw_code sw_cuda_plus(const sw_place *at, double *to, const double *a, const double *b, int64_t n,
                     sw_err *err)
{
    sw_solver *s = sw_cuda_solver(at);

    if (b) return sw_solver_mix(s, to, 1.0, a, 1.0, b, n, err);
    return to == a ? SW_OK : sw_solver_copy(s, to, a, n * (int64_t)sizeof *to, err);
}

sw_code sw_cuda_lend(float **out, const sw_place *at, float *from, int64_t n, const char *what,
                     sw_err *err)
{
    sw_device *gpu = sw_cuda_gpu(at);
    void *values = NULL;
    sw_code rc = sw_device_take(&values, gpu, n, (int64_t)sizeof *from, what, err);

    if (rc != SW_OK) return rc;
    rc = sw_device_upload(gpu, values, from, n * (int64_t)sizeof *from, err);
    if (rc == SW_OK) *out = values;
    else sw_device_put(gpu, values);
    return rc;
}

void sw_cuda_unlend(const sw_place *at, float *values) { sw_cuda_put(at, values); }

sw_code sw_cuda_scale(const sw_place *at, float *to, const float *from, const double *scale,
                      int64_t n, int64_t k, bool divides, sw_err *err)
{
    sw_device *gpu = sw_cuda_gpu(at);
    sw_solver *s = sw_cuda_solver(at);
    double *d_scale = NULL;
    sw_code rc;

    if (!scale && to == from) return SW_OK;
    if (!scale) return sw_solver_copy(s, to, from, n * k * (int64_t)sizeof *to, err);
    rc = sw_device_take((void **)&d_scale, gpu, k, (int64_t)sizeof *d_scale, "scale", err);
    if (rc == SW_OK) rc = sw_device_upload(gpu, d_scale, scale, k * (int64_t)sizeof *scale, err);
    if (rc == SW_OK) rc = sw_solver_scale(s, to, from, d_scale, n, k, divides, err);
    sw_device_put(gpu, d_scale);
    return rc;
}

sw_code sw_cuda_errors(const sw_place *at, double *by_row, const float *have, const float *want,
                       int64_t n, int64_t width, sw_err *err)
{
    return sw_solver_row_errors(by_row, sw_cuda_solver(at), have, want, n, width, err);
}

/* The scratch is for memory alone. */
sw_code sw_cuda_multiply(const sw_place *at, float *y, const float *x, int64_t n,
                         const sw_weight *w, sw_scratch *scratch, sw_err *err)
{
    sw_solver *s = sw_cuda_solver(at);
    sw_device *gpu = sw_cuda_gpu(at);
    float *rounded = NULL;
    sw_code rc = SW_OK;

    (void)scratch;
    if (w->act.scope != SW_ACT_NONE) {
        rc = sw_device_take((void **)&rounded, gpu, n * w->k_in, (int64_t)sizeof *rounded,
                            "rounded inputs", err);
        if (rc != SW_OK) return rc;
        rc = sw_solver_act_round(s, rounded, x, n, w->k_in, &w->act, w->input_scale, err);
        x = rounded;
    }
    if (rc == SW_OK) rc = sw_solver_multiply(s, y, x, w->dense, n, w->n_out, w->k_in, err);
    sw_device_put(gpu, rounded);
    return rc;
}
