/* cuda_experts.c - comparing the sums of experts with those of all tokens (experts.h) on a CUDA
 * device.
 *
 * Norms of W M W^T are the same for every W with W^T W = inv(T), so that the inverse factor that
 * solving has anyway does for the Cholesky factor of cpu_experts.c. It is of the damped sum, not of
 * the mean: all three norms then lack the square of the number of tokens, which weights do not see.
 */
#include "quant/backend/cuda/cuda.h"
#include "quant/backend/cuda/cuda_sizes.h"

int64_t sw_cuda_sums_bytes_max(const sw_place *at, const sw_model *model)
{
    return sw_cuda_sums_bytes_in(sw_device_left_bytes(sw_cuda_gpu(at)), model);
}

int64_t sw_cuda_sum_bytes(int64_t k)
{
    return k * k * (int64_t)(sizeof(double) + sizeof(float)) +
           k * SW_EXPERT_ROWS * (int64_t)sizeof(uint16_t);
}

/* n T + damp, as it lies: nothing is permuted. */
static sw_code factorize(sw_device_factor *f, const sw_hessian *all, const double *diagonal,
                         const int32_t *as_stored, double damp, sw_err *err)
{
    sw_solver *s = sw_cuda_solver(&all->place);
    bool is_definite = false;
    sw_code rc = sw_device_factor_new(f, s, all->h, diagonal, as_stored, all->k_in, err);

    if (rc == SW_OK) rc = sw_device_factor_try(&is_definite, f, s, damp, err);
    if (rc == SW_OK && !is_definite) rc = sw_prior_indefinite(err);
    if (rc == SW_OK) rc = sw_device_factor_finish(f, s, damp, err);
    return rc;
}

/* *state: a sw_device_factor. */
sw_code sw_cuda_prior_new(void **state, const sw_hessian *all, sw_err *err)
{
    int64_t k = all->k_in;
    sw_device_factor *f = NULL;
    double *diagonal = NULL, trace = 0, damp;
    int32_t *as_stored = NULL;
    sw_code rc = SW_MEM_GET(&f, 1, "all-token statistics", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&diagonal, k, "diagonal", err);
    if (rc == SW_OK) rc = SW_MEM_GET(&as_stored, k, "column order", err);
    if (rc == SW_OK) rc = sw_hessian_diagonal(diagonal, all, err);
    for (int64_t i = 0; i < k && rc == SW_OK; i++) {
        as_stored[i] = (int32_t)i;
        trace += diagonal[i];
    }
    damp = trace > 0 ? SW_PRIOR_DAMP * trace / (double)k : (double)all->n_tokens;
    if (rc == SW_OK) rc = factorize(f, all, diagonal, as_stored, damp, err);
    sw_mem_put(diagonal);
    sw_mem_put(as_stored);
    if (rc == SW_OK) *state = f;
    else sw_cuda_prior_free(f, all);
    return rc;
}

void sw_cuda_prior_free(void *state, const sw_hessian *all)
{
    if (state) sw_device_factor_free(state, sw_cuda_solver(&all->place));
    sw_mem_put(state);
}

/* d_m [k, k] = what sets the mean of `hess` apart from the prior, where that is the identity. */
static sw_code difference(double *d_m, const sw_device_factor *f, const sw_hessian *all,
                          const sw_hessian *hess, sw_err *err)
{
    double own = 1.0 / (double)hess->n_tokens, every = 1.0 / (double)all->n_tokens;
    sw_solver *s = sw_cuda_solver(&all->place);
    sw_code rc =
        sw_solver_mix(s, d_m, own, hess->h, -every, all->h, all->k_in * all->k_in, err);

    return rc == SW_OK ? sw_solver_whiten(s, d_m, f, err) : rc;
}

sw_code sw_cuda_prior_compare(double form[3], const void *state, const sw_hessian *all,
                              const sw_hessian *half, sw_err *err)
{
    int64_t k = all->k_in;
    sw_solver *s = sw_cuda_solver(&all->place);
    double *d_a = NULL, *d_b, sums[3] = {0};
    sw_code rc = sw_device_take((void **)&d_a, sw_solver_gpu(s), 2 * k * k, (int64_t)sizeof *d_a,
                                "expert comparison", err);

    if (rc != SW_OK) return rc;
    d_b = d_a + k * k;
    rc = difference(d_a, state, all, &half[0], err);
    if (rc == SW_OK) rc = difference(d_b, state, all, &half[1], err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[0], s, d_a, d_a, k, k, err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[1], s, d_b, d_b, k, k, err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[2], s, d_a, d_b, k, k, err);
    sw_device_put(sw_solver_gpu(s), d_a);
    for (int i = 0; i < 3 && rc == SW_OK; i++) form[i] = sums[i];
    return rc;
}
