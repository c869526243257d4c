/* cuda_experts.c - comparing the sums of experts with those of all tokens (experts.h) on a CUDA
 * device.
 *
 * Norms of W M W^T are the same for every W with W^T W = inv(T), so that the inverse factor that
 * solving has anyway does for the Cholesky factor of cpu_experts.c. It is of the damped sum, not of
 * the mean: all three norms then lack the square of the number of tokens, which weights do not see.
 * Of probes z (experts.h) W M W^T z is, as a row, z W times M, times W^T; M is the difference of
 * two sums, so these products are of doubles.
 */
#include "kernels/solver_sizes.h"
#include "quant/backend/cuda/cuda.h"
#include "quant/backend/cuda/cuda_sizes.h"

int64_t sw_cuda_sums_bytes_max(const sw_place *at, const sw_model *model)
{
    return sw_cuda_sums_bytes_in(sw_device_left_bytes(sw_cuda_gpu(at)), model);
}

int64_t sw_cuda_sum_bytes(int64_t k, int n_alive)
{
    return n_alive * sw_gram_bytes(k, k) + sw_gram_part_bytes(k, k) +
           k * sw_cuda_expert_rows(k) * (int64_t)sizeof(uint16_t);
}

typedef struct cuda_prior {
    sw_device_factor factor;
    double *d_probes; /* [SW_PRIOR_PROBES, k] Z W; NULL: norms are exact */
    double *d_seen;   /* Z W times the all-token sum */
} cuda_prior;

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

/* Factorize all-token sums with what is added to their diagonal. */
static sw_code factorize_damped(sw_device_factor *f, const sw_hessian *all, sw_err *err)
{
    const int64_t k = all->k_in;
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
    if (rc == SW_OK) rc = factorize(f, all, diagonal, as_stored, damp, err);
    sw_mem_put(diagonal);
    sw_mem_put(as_stored);
    return rc;
}

/* What every expert is compared by. */
static sw_code new_probes(cuda_prior *p, const sw_hessian *all, sw_err *err)
{
    const int64_t k = all->k_in, n = SW_PRIOR_PROBES * k;
    sw_solver *s = sw_cuda_solver(&all->place);
    sw_device *gpu = sw_solver_gpu(s);
    const int64_t elem_bytes = (int64_t)sizeof *p->d_probes;
    double *z = NULL;
    sw_code rc = sw_prior_probes(&z, k, err);

    if (rc == SW_OK)
        rc = sw_device_take((void **)&p->d_probes, gpu, n, elem_bytes, "random signs", err);
    if (rc == SW_OK)
        rc = sw_device_take((void **)&p->d_seen, gpu, n, elem_bytes, "random signs", err);
    if (rc == SW_OK) rc = sw_device_upload(gpu, p->d_probes, z, n * elem_bytes, err);
    sw_mem_put(z);
    if (rc == SW_OK)
        rc = sw_solver_whiten_rows(s, p->d_probes, &p->factor, SW_PRIOR_PROBES, false, err);
    return rc == SW_OK ? sw_solver_times_exactly(s, p->d_seen, 0.0, 1.0, p->d_probes, all->h,
                                                 SW_PRIOR_PROBES, k, err)
                       : rc;
}

/* *state: a cuda_prior. */
sw_code sw_cuda_prior_new(void **state, const sw_hessian *all, sw_err *err)
{
    cuda_prior *p = NULL;
    sw_code rc = SW_MEM_GET(&p, 1, "all-token statistics", err);

    if (rc == SW_OK) rc = factorize_damped(&p->factor, all, err);
    if (rc == SW_OK && sw_prior_is_probed(all->k_in)) rc = new_probes(p, all, err);
    if (rc == SW_OK) *state = p;
    else sw_cuda_prior_free(p, all);
    return rc;
}

void sw_cuda_prior_free(void *state, const sw_hessian *all)
{
    cuda_prior *p = state;
    sw_solver *s = sw_cuda_solver(&all->place);

    if (!p) return;
    sw_device_factor_free(&p->factor, s);
    sw_device_put(sw_solver_gpu(s), p->d_probes);
    sw_device_put(sw_solver_gpu(s), p->d_seen);
    sw_mem_put(p);
}

/* d_m [k, k] = what sets the mean of `hess` apart from the prior, where that is the identity. */
static sw_code whole_difference(double *d_m, const cuda_prior *p, const sw_hessian *all,
                                const sw_hessian *hess, double own, double every, sw_err *err)
{
    sw_solver *s = sw_cuda_solver(&all->place);
    sw_code rc =
        sw_solver_mix(s, d_m, own, hess->h, -every, all->h, all->k_in * all->k_in, err);

    return rc == SW_OK ? sw_solver_whiten(s, d_m, &p->factor, err) : rc;
}

/* d_m [SW_PRIOR_PROBES, k] = the probes times the same. */
static sw_code probed_difference(double *d_m, const cuda_prior *p, const sw_hessian *all,
                                 const sw_hessian *hess, double own, double every, sw_err *err)
{
    const int64_t k = all->k_in, n = SW_PRIOR_PROBES;
    sw_solver *s = sw_cuda_solver(&all->place);
    sw_code rc = sw_solver_copy(s, d_m, p->d_seen, n * k * (int64_t)sizeof *d_m, err);

    if (rc == SW_OK)
        rc = sw_solver_times_exactly(s, d_m, -every, own, p->d_probes, hess->h, n, k, err);
    return rc == SW_OK ? sw_solver_whiten_rows(s, d_m, &p->factor, n, true, err) : rc;
}

static sw_code difference(double *d_m, const cuda_prior *p, const sw_hessian *all,
                          const sw_hessian *hess, sw_err *err)
{
    const double own = 1.0 / (double)hess->n_tokens, every = 1.0 / (double)all->n_tokens;

    return (p->d_probes ? probed_difference : whole_difference)(d_m, p, all, hess, own, every, err);
}

sw_code sw_cuda_prior_compare(double form[3], const void *state, const sw_hessian *all,
                              const sw_hessian *half, sw_err *err)
{
    const cuda_prior *p = state;
    const int64_t k = all->k_in, n = p->d_probes ? SW_PRIOR_PROBES : k;
    sw_solver *s = sw_cuda_solver(&all->place);
    double *d_a = NULL, *d_b, sums[3] = {0};
    sw_code rc = sw_device_take((void **)&d_a, sw_solver_gpu(s), 2 * n * k, (int64_t)sizeof *d_a,
                                "expert comparison", err);

    if (rc != SW_OK) return rc;
    d_b = d_a + n * k;
    rc = difference(d_a, p, all, &half[0], err);
    if (rc == SW_OK) rc = difference(d_b, p, all, &half[1], err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[0], s, d_a, d_a, n, k, err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[1], s, d_b, d_b, n, k, err);
    if (rc == SW_OK) rc = sw_solver_inner(&sums[2], s, d_a, d_b, n, k, err);
    sw_device_put(sw_solver_gpu(s), d_a);
    for (int i = 0; i < 3 && rc == SW_OK; i++) form[i] = sums[i];
    return rc;
}
