/* cpu_experts.c - comparing the sums of experts with those of all tokens (experts.h), in memory. */
#include <cblas.h>
#include <lapacke.h>

#include "quant/backend/cpu/cpu.h"

#define EXPERT_BYTES_MAX ((int64_t)1 << 30) /* of sums held in memory for experts at a time */

int64_t sw_cpu_sums_bytes_max(const sw_place *at, const sw_model *model)
{
    (void)at;
    (void)model;
    return EXPERT_BYTES_MAX;
}

int64_t sw_cpu_sum_bytes(int64_t k) { return k * k * (int64_t)sizeof(double); }

/* *state: the lower Cholesky factor [k, k] of the damped mean, by columns. */
sw_code sw_cpu_prior_new(void **state, const sw_hessian *all, sw_err *err)
{
    int64_t k = all->k_in;
    double *root = NULL, trace = 0, damp;
    sw_code rc = SW_MEM_GET(&root, k * k, "all-token statistics", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < k; i++) trace += all->h[i * k + i] / (double)all->n_tokens;
    damp = trace > 0 ? SW_PRIOR_DAMP * trace / (double)k : 1.0;
    for (int64_t i = 0; i < k * k; i++) root[i] = all->h[i] / (double)all->n_tokens;
    for (int64_t i = 0; i < k; i++) root[i * k + i] += damp;
    if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)k, root, (lapack_int)k) != 0) {
        sw_mem_put(root);
        return sw_prior_indefinite(err);
    }
    *state = root;
    return SW_OK;
}

void sw_cpu_prior_free(void *state, const sw_hessian *all)
{
    (void)all;
    sw_mem_put(state);
}

/* out [k, k] = inv(L) (H / n - T) inv(L)^T: the difference where T is the identity. */
static void whiten(double *out, const double *root, const sw_hessian *all, const sw_hessian *hess)
{
    int64_t k = hess->k_in;
    double own = 1.0 / (double)hess->n_tokens, every = 1.0 / (double)all->n_tokens;

    for (int64_t i = 0; i < k * k; i++) out[i] = own * hess->h[i] - every * all->h[i];
    cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (int)k, (int)k,
                1.0, root, (int)k, out, (int)k);
    cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (int)k, (int)k,
                1.0, root, (int)k, out, (int)k);
}

sw_code sw_cpu_prior_compare(double form[3], const void *state, const sw_hessian *all,
                             const sw_hessian *half, sw_err *err)
{
    int64_t k = all->k_in;
    double *a = NULL, *b;
    sw_code rc = SW_MEM_GET(&a, 2 * k * k, "expert comparison", err);

    if (rc != SW_OK) return rc;
    b = a + k * k;
    whiten(a, state, all, &half[0]);
    whiten(b, state, all, &half[1]);
    form[0] = cblas_ddot((int)(k * k), a, 1, a, 1);
    form[1] = cblas_ddot((int)(k * k), b, 1, b, 1);
    form[2] = cblas_ddot((int)(k * k), a, 1, b, 1);
    sw_mem_put(a);
    return SW_OK;
}
