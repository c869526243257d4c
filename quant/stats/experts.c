/* experts.c - see experts.h. */
#include "quant/stats/experts.h"

#include <cblas.h>
#include <lapacke.h>
#include <string.h>

#include "quant/device/experts_device.h"

static void site_free(sw_expert_site *site)
{
    sw_hessian_free(&site->half[0]);
    sw_hessian_free(&site->half[1]);
    sw_hessian_free(&site->all);
    sw_channels_free(&site->sizes);
}

void sw_expert_stats_free(sw_expert_stats *stats)
{
    site_free(&stats->in);
    site_free(&stats->down);
    stats->n_tokens = 0;
}

/* Does `f` to each of the sums that are there. */
static sw_code each_sum(sw_expert_stats *stats, sw_solver *solver,
                        sw_code (*f)(sw_hessian *hess, sw_solver *solver, sw_err *err),
                        sw_err *err)
{
    sw_hessian *sums[] = {&stats->in.half[0], &stats->in.half[1], &stats->in.all,
                          &stats->down.half[0], &stats->down.half[1], &stats->down.all};
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof sums / sizeof *sums && rc == SW_OK; i++)
        if (sums[i]->k_in) rc = f(sums[i], solver, err);
    return rc;
}

static sw_code settle(sw_hessian *hess, sw_solver *solver, sw_err *err)
{
    (void)solver;
    return sw_hessian_settle(hess, err);
}

static sw_code move(sw_hessian *hess, sw_solver *solver, sw_err *err)
{
    return hess->solver ? SW_OK : sw_hessian_move(hess, solver, err);
}

static sw_code fetch(sw_hessian *hess, sw_solver *solver, sw_err *err)
{
    (void)solver;
    return hess->solver ? sw_hessian_fetch(hess, err) : SW_OK;
}

sw_code sw_expert_stats_settle(sw_expert_stats *stats, sw_err *err)
{
    return each_sum(stats, NULL, settle, err);
}

sw_code sw_expert_stats_move(sw_expert_stats *stats, sw_solver *solver, sw_err *err)
{
    return each_sum(stats, solver, move, err);
}

sw_code sw_expert_stats_fetch(sw_expert_stats *stats, sw_err *err)
{
    return each_sum(stats, NULL, fetch, err);
}

sw_code sw_prior_new(sw_prior *out, const sw_hessian *all, sw_err *err)
{
    int64_t k = all->k_in;
    sw_prior prior = {.all = all};
    double trace = 0, damp;
    sw_code rc;

    if (all->solver) return sw_prior_new_there(out, all, err);
    if ((rc = SW_MEM_GET(&prior.root, k * k, "all-token statistics", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < k; i++) trace += all->h[i * k + i] / (double)all->n_tokens;
    damp = trace > 0 ? SW_PRIOR_DAMP * trace / (double)k : 1.0;
    for (int64_t i = 0; i < k * k; i++) prior.root[i] = all->h[i] / (double)all->n_tokens;
    for (int64_t i = 0; i < k; i++) prior.root[i * k + i] += damp;
    if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)k, prior.root, (lapack_int)k) != 0) {
        sw_prior_free(&prior);
        return sw_prior_indefinite(err);
    }
    *out = prior;
    return SW_OK;
}

sw_code sw_prior_indefinite(sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "the all-token statistics are indefinite");
}

void sw_prior_free(sw_prior *prior)
{
    if (prior->all && prior->all->solver) sw_device_factor_free(&prior->on, prior->all->solver);
    sw_mem_put(prior->root);
    memset(prior, 0, sizeof *prior);
}

/* out [k, k] = inv(L) (H / n - T) inv(L)^T: the difference where T is the identity. */
static void whiten(double *out, const sw_prior *prior, const sw_hessian *hess)
{
    int64_t k = hess->k_in;
    double own = 1.0 / (double)hess->n_tokens, every = 1.0 / (double)prior->all->n_tokens;

    for (int64_t i = 0; i < k * k; i++) out[i] = own * hess->h[i] - every * prior->all->h[i];
    cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (int)k, (int)k,
                1.0, prior->root, (int)k, out, (int)k);
    cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (int)k, (int)k,
                1.0, prior->root, (int)k, out, (int)k);
}

/* |A|^2, |B|^2 and <A, B> of the differences of the halves. */
static sw_code compare(double form[3], const sw_prior *prior, const sw_hessian half[2], sw_err *err)
{
    int64_t k = prior->all->k_in;
    double *a = NULL, *b;
    sw_code rc;

    if (prior->all->solver) return sw_prior_compare_there(form, prior, half, err);
    if ((rc = SW_MEM_GET(&a, 2 * k * k, "expert comparison", err)) != SW_OK) return rc;
    b = a + k * k;
    whiten(a, prior, &half[0]);
    whiten(b, prior, &half[1]);
    form[0] = cblas_ddot((int)(k * k), a, 1, a, 1);
    form[1] = cblas_ddot((int)(k * k), b, 1, b, 1);
    form[2] = cblas_ddot((int)(k * k), a, 1, b, 1);
    sw_mem_put(a);
    return SW_OK;
}

sw_code sw_prior_weight(double *out, const sw_prior *prior, const sw_hessian half[2], sw_err *err)
{
    double n[2] = {(double)half[0].n_tokens, (double)half[1].n_tokens}, n_own = n[0] + n[1];
    double form[3], first, second, both, between, distance, noise;
    sw_code rc;

    *out = 1.0;
    if (!half[0].n_tokens || !half[1].n_tokens) return SW_OK;
    if ((rc = compare(form, prior, half, err)) != SW_OK) return rc;
    first = form[0];
    second = form[1];
    both = form[2];
    between = first + second - 2 * both;
    distance = (n[0] * n[0] * first + n[1] * n[1] * second + 2 * n[0] * n[1] * both) /
               (n_own * n_own);
    noise = between * n[0] * n[1] / n_own / n_own;
    if (distance > noise) *out = noise > 0 ? noise / distance : 0.0;
    return SW_OK;
}

static sw_code weigh_downs(sw_expert_stats *experts, int64_t n_experts, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t e = 0; e < n_experts && rc == SW_OK; e++) {
        sw_expert_site *site = &experts[e].down;
        sw_prior prior = {0};
        if (!site->half[0].k_in || !site->all.k_in) continue;
        if ((rc = sw_prior_new(&prior, &site->all, err)) != SW_OK) break;
        rc = sw_prior_weight(&site->weight, &prior, site->half, err);
        sw_prior_free(&prior);
    }
    return rc;
}

sw_code sw_experts_weigh(sw_expert_stats *experts, int64_t n_experts, const sw_hessian *in_all,
                         sw_err *err)
{
    sw_prior prior = {0};
    sw_code rc = SW_OK;

    if (n_experts && experts[0].in.half[0].k_in) rc = sw_prior_new(&prior, in_all, err);
    for (int64_t e = 0; e < n_experts && rc == SW_OK; e++) {
        sw_expert_site *site = &experts[e].in;
        if (site->half[0].k_in) rc = sw_prior_weight(&site->weight, &prior, site->half, err);
    }
    sw_prior_free(&prior);
    return rc == SW_OK ? weigh_downs(experts, n_experts, err) : rc;
}

sw_code sw_expert_blend(sw_hessian half[2], const sw_hessian *all, double d, sw_err *err)
{
    int64_t n_elems = all->k_in * all->k_in, n_own = half[0].n_tokens + half[1].n_tokens;
    double scale = n_own ? (double)n_own : 1.0;
    double every = all->n_tokens ? d * scale / (double)all->n_tokens : 0.0;
    sw_code rc = SW_OK;

    if (half[0].solver)
        rc = sw_expert_blend_there(half, all, 1.0 - d, every, err);
    else
        for (int64_t i = 0; i < n_elems; i++)
            half[0].h[i] = (1.0 - d) * (half[0].h[i] + (half[1].h ? half[1].h[i] : 0.0)) +
                           every * all->h[i];
    if (rc == SW_OK) half[0].n_tokens = n_own;
    return rc;
}
