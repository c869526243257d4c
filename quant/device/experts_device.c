/* experts_device.c - see experts_device.h.
 *
 * Norms of W M W^T are the same for every W with W^T W = inv(T), so that the inverse factor that
 * solving has anyway does for the Cholesky factor of experts.c. It is of the damped sum, not of the
 * mean: all three norms then lack the square of the number of tokens, which weights do not see.
 */
#include "quant/device/experts_device.h"

/* n T + damp, as it lies: nothing is permuted. */
static sw_code factorize(sw_device_factor *f, const sw_hessian *all, const double *diagonal,
                         const int32_t *as_stored, double damp, sw_err *err)
{
    sw_solver *s = all->solver;
    bool is_definite = false;
    sw_code rc = sw_device_factor_new(f, s, all->on_h.d_sum, diagonal, as_stored, all->k_in, err);

    if (rc == SW_OK) rc = sw_device_factor_try(&is_definite, f, s, damp, err);
    if (rc == SW_OK && !is_definite) rc = sw_prior_indefinite(err);
    if (rc == SW_OK) rc = sw_device_factor_finish(f, s, damp, err);
    return rc;
}

sw_code sw_prior_new_there(sw_prior *out, const sw_hessian *all, sw_err *err)
{
    int64_t k = all->k_in;
    sw_prior prior = {.all = all};
    double *diagonal = NULL, trace = 0, damp;
    int32_t *as_stored = NULL;
    sw_code rc = SW_MEM_GET(&diagonal, k, "diagonal", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&as_stored, k, "column order", err);
    if (rc == SW_OK) rc = sw_hessian_diagonal(diagonal, all, err);
    for (int64_t i = 0; i < k && rc == SW_OK; i++) {
        as_stored[i] = (int32_t)i;
        trace += diagonal[i];
    }
    damp = trace > 0 ? SW_PRIOR_DAMP * trace / (double)k : (double)all->n_tokens;
    if (rc == SW_OK) rc = factorize(&prior.on, all, diagonal, as_stored, damp, err);
    sw_mem_put(diagonal);
    sw_mem_put(as_stored);
    if (rc == SW_OK) *out = prior;
    else sw_prior_free(&prior);
    return rc;
}

/* d_m [k, k] = what sets the mean of `hess` apart from the prior, where that is the identity. */
static sw_code difference(double *d_m, const sw_prior *prior, const sw_hessian *hess, sw_err *err)
{
    const sw_hessian *all = prior->all;
    double own = 1.0 / (double)hess->n_tokens, every = 1.0 / (double)all->n_tokens;
    sw_code rc = sw_solver_mix(all->solver, d_m, own, hess->on_h.d_sum, -every, all->on_h.d_sum,
                               all->k_in * all->k_in, err);

    return rc == SW_OK ? sw_solver_whiten(all->solver, d_m, &prior->on, err) : rc;
}

sw_code sw_prior_compare_there(double form[3], const sw_prior *prior, const sw_hessian half[2],
                               sw_err *err)
{
    int64_t k = prior->all->k_in;
    sw_solver *s = prior->all->solver;
    double *d_a = NULL, *d_b, sums[3] = {0};
    sw_code rc = sw_device_take((void **)&d_a, sw_solver_gpu(s), 2 * k * k, (int64_t)sizeof *d_a,
                                "expert comparison", err);

    if (rc != SW_OK) return rc;
    d_b = d_a + k * k;
    rc = difference(d_a, prior, &half[0], err);
    if (rc == SW_OK) rc = difference(d_b, prior, &half[1], err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[0], s, d_a, d_a, k, k, err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[1], s, d_b, d_b, k, k, err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[2], s, d_a, d_b, k, k, err);
    sw_device_put(sw_solver_gpu(s), d_a);
    for (int i = 0; i < 3 && rc == SW_OK; i++) form[i] = sums[i];
    return rc;
}

sw_code sw_expert_blend_there(sw_hessian half[2], const sw_hessian *all, double own, double every,
                              sw_err *err)
{
    sw_solver *s = half[0].solver;
    sw_gram *sum = &half[0].on_h;
    sw_code rc = SW_OK;

    if (half[1].on_h.d_sum) rc = sw_gram_merge(sum, &half[1].on_h, s, err);
    return rc == SW_OK ? sw_solver_mix(s, sum->d_sum, own, sum->d_sum, every, all->on_h.d_sum,
                                       sum->n_rows * sum->n_cols, err)
                       : rc;
}
