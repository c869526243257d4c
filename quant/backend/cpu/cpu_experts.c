/* cpu_experts.c - comparing the sums of experts with those of all tokens (experts.h), in memory. */
#include <cblas.h>
#include <lapacke.h>
#include <string.h>

#include "quant/backend/cpu/cpu.h"

#define EXPERT_BYTES_MAX ((int64_t)1 << 30) /* of sums held in memory for experts at a time */

int64_t sw_cpu_sums_bytes_max(const sw_place *at, const sw_model *model)
{
    (void)at;
    (void)model;
    return EXPERT_BYTES_MAX;
}

int64_t sw_cpu_sum_bytes(int64_t k, int n_alive)
{
    return n_alive * k * k * (int64_t)sizeof(double);
}

typedef struct cpu_prior {
    double *root;   /* [k, k] the lower Cholesky factor L of the damped mean, by columns */
    double *probes; /* [SW_PRIOR_PROBES, k] Z inv(L); NULL: norms are exact (experts.h) */
    double *seen;   /* the probes times the mean */
} cpu_prior;

static sw_code factorize(double **out, const sw_hessian *all, sw_err *err)
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
    *out = root;
    return SW_OK;
}

/* x <- inv(L) x or inv(L)^T x (turned), of columns [k, n]. */
static void divide(double *x, const double *root, int64_t k, int64_t n, CBLAS_TRANSPOSE turned)
{
    cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, turned, CblasNonUnit, (int)k, (int)n, 1.0,
                root, (int)k, x, (int)k);
}

/* y [n, k] = own x H + beta y, of rows. */
static void times(double *y, double beta, double own, const double *x, const double *h, int64_t n,
                  int64_t k)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)k, (int)k, own, x, (int)k,
                h, (int)k, beta, y, (int)k);
}

static sw_code new_probes(cpu_prior *p, const sw_hessian *all, sw_err *err)
{
    const int64_t k = all->k_in, n = SW_PRIOR_PROBES;
    sw_code rc = sw_prior_probes(&p->probes, k, err);

    if (rc == SW_OK) rc = SW_MEM_GET(&p->seen, n * k, "random signs", err);
    if (rc != SW_OK) return rc;
    divide(p->probes, p->root, k, n, CblasTrans);
    times(p->seen, 0.0, 1.0 / (double)all->n_tokens, p->probes, all->h, n, k);
    return SW_OK;
}

/* *state: a cpu_prior. */
sw_code sw_cpu_prior_new(void **state, const sw_hessian *all, sw_err *err)
{
    cpu_prior *p = NULL;
    sw_code rc = SW_MEM_GET(&p, 1, "all-token statistics", err);

    if (rc == SW_OK) rc = factorize(&p->root, all, err);
    if (rc == SW_OK && sw_prior_is_probed(all->k_in)) rc = new_probes(p, all, err);
    if (rc == SW_OK) *state = p;
    else sw_cpu_prior_free(p, all);
    return rc;
}

void sw_cpu_prior_free(void *state, const sw_hessian *all)
{
    cpu_prior *p = state;

    (void)all;
    if (!p) return;
    sw_mem_put(p->root);
    sw_mem_put(p->probes);
    sw_mem_put(p->seen);
    sw_mem_put(p);
}

/* out [k, k] = inv(L) (H / n - T) inv(L)^T: the difference where T is the identity. */
static void whole_difference(double *out, const cpu_prior *p, const sw_hessian *all,
                             const sw_hessian *hess)
{
    int64_t k = hess->k_in;
    double own = 1.0 / (double)hess->n_tokens, every = 1.0 / (double)all->n_tokens;

    for (int64_t i = 0; i < k * k; i++) out[i] = own * hess->h[i] - every * all->h[i];
    divide(out, p->root, k, k, CblasNoTrans);
    cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (int)k, (int)k,
                1.0, p->root, (int)k, out, (int)k);
}

/* out [SW_PRIOR_PROBES, k]: rows of the same times the probes. */
static void probed_difference(double *out, const cpu_prior *p, const sw_hessian *all,
                              const sw_hessian *hess)
{
    const int64_t k = hess->k_in, n = SW_PRIOR_PROBES;

    (void)all;
    memcpy(out, p->seen, sizeof *out * (size_t)(n * k));
    times(out, -1.0, 1.0 / (double)hess->n_tokens, p->probes, hess->h, n, k);
    divide(out, p->root, k, n, CblasNoTrans);
}

sw_code sw_cpu_prior_compare(double form[3], const void *state, const sw_hessian *all,
                             const sw_hessian *half, sw_err *err)
{
    const cpu_prior *p = state;
    const int64_t k = all->k_in, n = (p->probes ? SW_PRIOR_PROBES : k) * k;
    double *a = NULL, *b;
    sw_code rc = SW_MEM_GET(&a, 2 * n, "expert comparison", err);

    if (rc != SW_OK) return rc;
    b = a + n;
    (p->probes ? probed_difference : whole_difference)(a, p, all, &half[0]);
    (p->probes ? probed_difference : whole_difference)(b, p, all, &half[1]);
    form[0] = cblas_ddot((int)n, a, 1, a, 1);
    form[1] = cblas_ddot((int)n, b, 1, b, 1);
    form[2] = cblas_ddot((int)n, a, 1, b, 1);
    sw_mem_put(a);
    return SW_OK;
}
