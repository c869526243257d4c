/* cuda_hessian.c - sums of products (hessian.h) on a CUDA device, of BF16 inputs. */
#include <string.h>

#include "quant/backend/cuda/cuda.h"

/* What a Hessian keeps: its h, d and r are the d_sum of these. */
typedef struct cuda_sums {
    sw_gram h, d, r; /* a zeroed one is not wanted; d: D, or W D */
} cuda_sums;

static cuda_sums *sums_of(const sw_hessian *hess) { return hess->own; }

sw_code sw_cuda_hessian_new(sw_hessian *hess, bool with_cross, sw_err *err)
{
    int64_t k = hess->k_in, n_r = hess->n_out_residual;
    sw_solver *s = sw_cuda_solver(&hess->place);
    cuda_sums *sums = NULL;
    sw_code rc = SW_MEM_GET(&sums, 1, "Hessian", err);

    if (rc != SW_OK) return rc;
    hess->own = sums;
    rc = sw_gram_new(&sums->h, s, k, k, true, err);
    if (rc == SW_OK && with_cross) rc = sw_gram_new(&sums->d, s, k, k, false, err);
    if (rc == SW_OK && n_r) rc = sw_gram_new(&sums->r, s, n_r, k, false, err);
    hess->h = sums->h.d_sum;
    hess->d = sums->d.d_sum;
    hess->r = sums->r.d_sum;
    return rc;
}

void sw_cuda_hessian_free(sw_hessian *hess)
{
    sw_solver *s = sw_cuda_solver(&hess->place);
    cuda_sums *sums = sums_of(hess);

    if (!sums) return;
    sw_gram_free(&sums->h, s);
    sw_gram_free(&sums->d, s);
    sw_gram_free(&sums->r, s);
    sw_mem_put(sums);
}

sw_code sw_cuda_hessian_weigh(sw_hessian *hess, sw_err *err)
{
    sw_solver *s = sw_cuda_solver(&hess->place);
    sw_gram *d = &sums_of(hess)->d;
    sw_code rc;

    sw_gram_free(d, s);
    rc = sw_gram_new(d, s, hess->n_out_residual, hess->k_in, false, err);
    hess->d = d->d_sum;
    return rc;
}

sw_code sw_cuda_hessian_add_rows(sw_hessian *hess, const uint16_t *d_x, int64_t x_stride,
                                 const uint16_t *d_dx, const uint16_t *d_dr, int64_t n_tokens,
                                 sw_err *err)
{
    int64_t n_r = hess->n_out_residual;
    sw_solver *s = sw_cuda_solver(&hess->place);
    cuda_sums *sums = sums_of(hess);
    sw_code rc = sw_gram_add(&sums->h, s, d_x, x_stride, d_x, x_stride, n_tokens, err);

    if (rc == SW_OK && hess->d && d_dx)
        rc = sw_gram_add(&sums->d, s, d_dx, sums->d.n_rows, d_x, x_stride, n_tokens, err);
    if (rc == SW_OK && hess->r && d_dr)
        rc = sw_gram_add(&sums->r, s, d_dr, n_r, d_x, x_stride, n_tokens, err);
    if (rc == SW_OK) hess->n_tokens += n_tokens;
    return rc;
}

/* Rows of floats to the device, as BF16; NULL for none. */
static sw_code send_rows(uint16_t **out, const sw_hessian *hess, const float *x, int64_t n,
                         sw_err *err)
{
    sw_device *gpu = sw_cuda_gpu(&hess->place);
    float *d_floats = NULL;
    sw_code rc;

    *out = NULL;
    if (!x) return SW_OK;
    rc = sw_device_take((void **)&d_floats, gpu, n, (int64_t)sizeof *d_floats, "activations", err);
    if (rc == SW_OK)
        rc = sw_device_take((void **)out, gpu, n, (int64_t)sizeof **out, "activations", err);
    if (rc == SW_OK) rc = sw_device_upload(gpu, d_floats, x, n * (int64_t)sizeof *x, err);
    if (rc == SW_OK)
        rc = sw_solver_to_bf16(sw_cuda_solver(&hess->place), *out, d_floats, NULL, n, err);
    if (d_floats) sw_device_put(gpu, d_floats);
    return rc;
}

sw_code sw_cuda_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                            int64_t n_tokens, sw_err *err)
{
    sw_device *gpu = sw_cuda_gpu(&hess->place);
    uint16_t *d_x = NULL, *d_dx = NULL, *d_dr = NULL;
    sw_code rc = send_rows(&d_x, hess, x, n_tokens * hess->k_in, err);

    if (rc == SW_OK)
        rc = send_rows(&d_dx, hess, hess->d ? dx : NULL, n_tokens * hess->k_in, err);
    if (rc == SW_OK)
        rc = send_rows(&d_dr, hess, hess->r ? dr : NULL, n_tokens * hess->n_out_residual, err);
    if (rc == SW_OK)
        rc = sw_cuda_hessian_add_rows(hess, d_x, hess->k_in, d_dx, d_dr, n_tokens, err);
    sw_device_put(gpu, d_x);
    sw_device_put(gpu, d_dx);
    sw_device_put(gpu, d_dr);
    return rc;
}

sw_code sw_cuda_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err)
{
    return sw_solver_diagonal(diagonal, sw_cuda_solver(&hess->place), hess->h, hess->k_in, err);
}

/* An input that is not finite shows in its own square. */
static sw_code check_diagonal(const sw_hessian *hess, sw_err *err)
{
    int64_t k = hess->k_in;
    double *diagonal = NULL;
    sw_code rc = SW_MEM_GET(&diagonal, k, "diagonal", err);

    if (rc == SW_OK) rc = sw_cuda_hessian_diagonal(diagonal, hess, err);
    for (int64_t j = 0; j < k && rc == SW_OK; j++)
        if (!(diagonal[j] - diagonal[j] == 0.0)) rc = sw_hessian_not_finite(err);
    sw_mem_put(diagonal);
    return rc;
}

static sw_code for_each(const sw_hessian *hess,
                        sw_code (*step)(sw_gram *g, sw_solver *s, sw_err *err), sw_err *err)
{
    cuda_sums *sums = sums_of(hess);
    sw_gram *grams[] = {&sums->h, &sums->d, &sums->r};
    sw_code rc = SW_OK;

    for (int i = 0; i < 3 && rc == SW_OK; i++)
        if (grams[i]->d_sum) rc = step(grams[i], sw_cuda_solver(&hess->place), err);
    return rc;
}

sw_code sw_cuda_hessian_end_piece(sw_hessian *hess, sw_err *err)
{
    return for_each(hess, sw_gram_end_piece, err);
}

sw_code sw_cuda_hessian_settle(sw_hessian *hess, sw_err *err)
{
    const sw_code rc = for_each(hess, sw_gram_finish, err);

    return rc == SW_OK ? check_diagonal(hess, err) : rc;
}

sw_code sw_cuda_hessian_scale(sw_hessian *out, const sw_hessian *hess, const double *scale,
                              sw_err *err)
{
    int64_t k = hess->k_in, n_bytes = k * k * (int64_t)sizeof(double);
    sw_solver *s = sw_cuda_solver(&hess->place);
    sw_device *gpu = sw_cuda_gpu(&hess->place);
    double *d_scale = NULL;
    sw_code rc;

    if (!scale) return sw_solver_copy(s, out->h, hess->h, n_bytes, err);
    rc = sw_device_take((void **)&d_scale, gpu, k, (int64_t)sizeof *d_scale, "scale", err);
    if (rc == SW_OK) rc = sw_device_upload(gpu, d_scale, scale, k * (int64_t)sizeof *scale, err);
    if (rc == SW_OK) rc = sw_solver_scale_gram(s, out->h, hess->h, d_scale, k, err);
    sw_device_put(gpu, d_scale);
    return rc;
}

sw_code sw_cuda_hessian_fill(sw_hessian *out, const double *h, sw_err *err)
{
    return sw_device_upload(sw_cuda_gpu(&out->place), out->h, h,
                            out->k_in * out->k_in * (int64_t)sizeof *h, err);
}

sw_code sw_cuda_hessian_read(const double **h, double **own, const sw_hessian *hess, sw_err *err)
{
    int64_t n = hess->k_in * hess->k_in;
    sw_code rc = SW_MEM_GET(own, n, "Hessian", err);

    if (rc == SW_OK)
        rc = sw_device_download(sw_cuda_gpu(&hess->place), *own, hess->h,
                                n * (int64_t)sizeof **own, err);
    *h = *own;
    return rc;
}

static sw_code merge(sw_gram *into, const sw_gram *from, sw_solver *s, sw_err *err)
{
    return into->d_sum && from->d_sum ? sw_gram_merge(into, from, s, err) : SW_OK;
}

sw_code sw_cuda_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    return merge(&sums_of(into)->h, &sums_of(from)->h, sw_cuda_solver(&into->place), err);
}

sw_code sw_cuda_hessian_merge_cross(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    cuda_sums *to = sums_of(into), *other = sums_of(from);
    sw_code rc = merge(&to->d, &other->d, sw_cuda_solver(&into->place), err);

    return rc == SW_OK ? merge(&to->r, &other->r, sw_cuda_solver(&into->place), err) : rc;
}

sw_code sw_cuda_hessian_blend(sw_hessian *half, const sw_hessian *all, double own, double every,
                              sw_err *err)
{
    sw_solver *s = sw_cuda_solver(&half[0].place);
    sw_gram *sum = &sums_of(&half[0])->h;
    sw_code rc = SW_OK;

    if (half[1].h) rc = sw_gram_merge(sum, &sums_of(&half[1])->h, s, err);
    return rc == SW_OK ? sw_solver_mix(s, sum->d_sum, own, sum->d_sum, every, all->h,
                                       sum->n_rows * sum->n_cols, err)
                       : rc;
}
