/* hessian.c - see hessian.h. */
#include "quant/stats/hessian.h"

#include <string.h>

sw_code sw_hessian_new_at(sw_hessian *out, const sw_place *at, int64_t k_in, bool with_cross,
                          int64_t n_out_residual, sw_err *err)
{
    sw_hessian hess = {.k_in = k_in, .n_out_residual = n_out_residual, .place = *at};
    sw_code rc = sw_backend_of(at)->hessian_new(&hess, with_cross, err);

    if (rc == SW_OK)
        *out = hess;
    else
        sw_hessian_free(&hess);
    return rc;
}

sw_code sw_hessian_new(sw_hessian *out, int64_t k_in, bool with_cross, int64_t n_out_residual,
                       int n_threads, sw_err *err)
{
    const sw_place memory = sw_place_cpu(n_threads);

    return sw_hessian_new_at(out, &memory, k_in, with_cross, n_out_residual, err);
}

sw_code sw_hessian_weigh(sw_hessian *hess, sw_err *err)
{
    sw_code rc;

    if (hess->is_weighed) return SW_OK;
    if ((rc = sw_backend_of(&hess->place)->hessian_weigh(hess, err)) == SW_OK)
        hess->is_weighed = true;
    return rc;
}

sw_code sw_hessian_new_like(sw_hessian *out, const sw_hessian *like, sw_err *err)
{
    sw_hessian hess = {0};
    sw_code rc = sw_hessian_new_at(&hess, &like->place, like->k_in, like->d != NULL,
                                   like->n_out_residual, err);

    if (rc == SW_OK && like->is_weighed) rc = sw_hessian_weigh(&hess, err);
    if (rc == SW_OK) *out = hess;
    else if (hess.k_in) sw_hessian_free(&hess);
    return rc;
}

int64_t sw_hessian_d_elems(const sw_hessian *hess)
{
    return (hess->is_weighed ? hess->n_out_residual : hess->k_in) * hess->k_in;
}

void sw_hessian_free(sw_hessian *hess)
{
    sw_backend_of(&hess->place)->hessian_free(hess);
    memset(hess, 0, sizeof *hess);
}

sw_code sw_hessian_not_finite(sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "calibration activations hold a NaN or an infinity; "
                                     "the model's weights are broken");
}

static sw_code check_finite(const float *x, int64_t n, sw_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] - x[i] == 0.0f)) return sw_hessian_not_finite(err);
    return SW_OK;
}

sw_code sw_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                       int64_t n_tokens, sw_err *err)
{
    sw_code rc = check_finite(x, n_tokens * hess->k_in, err);

    if (rc != SW_OK) return rc;
    return sw_backend_of(&hess->place)->hessian_add(hess, x, dx, dr, n_tokens, err);
}

sw_code sw_hessian_settle(sw_hessian *hess, sw_err *err)
{
    return sw_backend_of(&hess->place)->hessian_settle(hess, err);
}

sw_code sw_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err)
{
    return sw_backend_of(&hess->place)->hessian_diagonal(diagonal, hess, err);
}

sw_code sw_hessian_move(sw_hessian *hess, const sw_place *to, sw_err *err)
{
    sw_hessian moved = {0};
    const double *h = NULL;
    double *own = NULL;
    sw_code rc;

    if (sw_backend_of(to) == sw_backend_of(&hess->place)) return SW_OK;
    rc = sw_hessian_new_at(&moved, to, hess->k_in, false, 0, err);
    if (rc == SW_OK) rc = sw_hessian_read(&h, &own, hess, err);
    if (rc == SW_OK) rc = sw_backend_of(to)->hessian_fill(&moved, h, err);
    sw_mem_put(own);
    moved.n_tokens = hess->n_tokens;
    sw_hessian_free(rc == SW_OK ? hess : &moved);
    if (rc == SW_OK) *hess = moved;
    return rc;
}

sw_code sw_hessian_read(const double **h, double **own, const sw_hessian *hess, sw_err *err)
{
    *own = NULL;
    return sw_backend_of(&hess->place)->hessian_read(h, own, hess, err);
}

sw_code sw_hessian_scaled(sw_hessian *out, const sw_hessian *hess, const double *scale,
                          sw_err *err)
{
    sw_hessian scaled = {0};
    sw_code rc = sw_hessian_new_at(&scaled, &hess->place, hess->k_in, false, 0, err);

    if (rc == SW_OK) rc = sw_backend_of(&hess->place)->hessian_scale(&scaled, hess, scale, err);
    scaled.n_tokens = hess->n_tokens;
    if (rc == SW_OK)
        *out = scaled;
    else
        sw_hessian_free(&scaled);
    return rc;
}

void sw_hessian_finish(sw_hessian *hess)
{
    int64_t k = hess->k_in;

    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i + 1; j < k; j++) hess->h[j * k + i] = hess->h[i * k + j];
}

sw_code sw_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    into->n_tokens += from->n_tokens;
    return sw_backend_of(&into->place)->hessian_merge_inputs(into, from, err);
}

sw_code sw_hessian_merge_cross(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    return sw_backend_of(&into->place)->hessian_merge_cross(into, from, err);
}
