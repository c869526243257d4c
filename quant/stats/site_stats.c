/* site_stats.c - what holds the statistics of a block's sites and experts. See streams.h. */
#include <string.h>

#include "formats/base/size.h"
#include "quant/stats/streams.h"

#define EXPERT_BYTES_MAX ((int64_t)1 << 30) /* of sums held in memory for experts at a time */

/* On the solver's device, or in memory without one. */
static sw_code new_hessian(sw_hessian *out, sw_solver *solver, int64_t k_in, bool with_cross,
                           int64_t n_residual, int n_threads, sw_err *err)
{
    return solver ? sw_hessian_new_device(out, solver, k_in, with_cross, n_residual, err)
                  : sw_hessian_new(out, k_in, with_cross, n_residual, n_threads, err);
}

static sw_code new_site(sw_site_stats *stats, const sw_model *m, int64_t layer, sw_site site,
                        bool with_cross, sw_solver *solver, int n_threads, sw_err *err)
{
    int64_t k_in = sw_model_site_width(m, layer, site);
    bool writes = sw_model_site_writes_residual(m, layer, site);
    int64_t n_residual = with_cross && writes ? m->hidden : 0;
    sw_code rc;

    rc = new_hessian(&stats->site[site], solver, k_in, with_cross, n_residual, n_threads, err);
    if (rc != SW_OK || !with_cross) return rc;
    return new_hessian(&stats->held[site], solver, k_in, true, n_residual, n_threads, err);
}

static sw_code new_expert(sw_expert_stats *x, const sw_model *m, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                          sw_solver *solver, int n_threads, sw_err *err)
{
    int64_t k = sw_model_site_width(m, layer, SW_SITE_DOWN_IN);
    bool with_own = policy != SW_EXPERTS_ALL, with_all = policy != SW_EXPERTS_ROUTED;
    sw_code rc = SW_OK;

    for (int i = 0; i < 2 && with_own && rc == SW_OK; i++) {
        if (is_wanted[SW_SITE_MLP_IN])
            rc = new_hessian(&x->in.half[i], solver, m->hidden, false, 0, n_threads, err);
        if (rc == SW_OK && is_wanted[SW_SITE_DOWN_IN])
            rc = new_hessian(&x->down.half[i], solver, k, false, 0, n_threads, err);
    }
    if (rc == SW_OK && with_all && is_wanted[SW_SITE_DOWN_IN])
        rc = new_hessian(&x->down.all, solver, k, false, 0, n_threads, err);
    return rc;
}

static sw_code new_experts(sw_site_stats *stats, const sw_model *m, sw_experts policy,
                           int64_t begin, int64_t end, sw_solver *solver, int n_threads,
                           sw_err *err)
{
    sw_code rc = SW_MEM_GET(&stats->experts, end - begin, "expert statistics", err);

    if (rc != SW_OK) return rc;
    stats->policy = policy;
    stats->expert_begin = begin;
    stats->n_experts = end - begin;
    for (int64_t e = 0; e < stats->n_experts && rc == SW_OK; e++)
        rc = new_expert(&stats->experts[e], m, stats->layer, stats->is_wanted, policy, solver,
                        n_threads, err);
    return rc;
}

/* Sums of the sites wanted, but for what is kept per expert. */
static sw_code new_sites(sw_site_stats *stats, const sw_model *m, int64_t layer,
                         const bool is_wanted[SW_SITE_COUNT], bool with_cross, sw_solver *solver,
                         int n_threads, sw_err *err)
{
    bool is_sparse = sw_model_is_sparse(m, layer);
    sw_code rc = SW_OK;

    memset(stats, 0, sizeof *stats);
    stats->layer = layer;
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (!(stats->is_wanted[site] = is_wanted[site])) continue;
        if (site != SW_SITE_DOWN_IN || !is_sparse)
            rc = new_site(stats, m, layer, (sw_site)site, with_cross, solver, n_threads, err);
    }
    return rc;
}

sw_code sw_site_stats_new(sw_site_stats *out, const sw_model *model, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], bool with_cross, sw_experts policy,
                          int n_threads, sw_err *err)
{
    sw_site_stats stats;
    sw_code rc = new_sites(&stats, model, layer, is_wanted, with_cross, NULL, n_threads, err);

    if (rc == SW_OK && sw_model_is_sparse(model, layer) && policy != SW_EXPERTS_COUNT &&
        (is_wanted[SW_SITE_MLP_IN] || is_wanted[SW_SITE_DOWN_IN]))
        rc = new_experts(&stats, model, policy, 0, model->n_experts, NULL, n_threads, err);
    if (rc != SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

sw_code sw_site_stats_new_device(sw_site_stats *out, const sw_model *model, int64_t layer,
                                 const bool is_wanted[SW_SITE_COUNT], bool with_cross,
                                 sw_solver *solver, sw_err *err)
{
    sw_site_stats stats;
    sw_code rc = new_sites(&stats, model, layer, is_wanted, with_cross, solver, 1, err);

    if (rc != SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

sw_code sw_site_stats_new_experts(sw_site_stats *out, const sw_model *model, int64_t layer,
                                  const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                                  int64_t begin, int64_t end, sw_solver *solver, int n_threads,
                                  sw_err *err)
{
    sw_site_stats stats;
    sw_code rc;

    memset(&stats, 0, sizeof stats);
    stats.layer = layer;
    stats.is_wanted[SW_SITE_MLP_IN] = is_wanted[SW_SITE_MLP_IN];
    stats.is_wanted[SW_SITE_DOWN_IN] = is_wanted[SW_SITE_DOWN_IN];
    if ((rc = new_experts(&stats, model, policy, begin, end, solver, n_threads, err)) !=
        SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

/* Bytes that all experts of a layer take on a card, in BF16. */
static int64_t weights_there(const sw_model *m)
{
    return 2 * 3 * m->n_experts * m->hidden * m->moe_intermediate;
}

/* For the sums of experts: of what a card has left two thirds, once the experts themselves lie
 * there. A third of that is floats under way, which are gone before solving. */
static int64_t bytes_at_most(const sw_model *m, const sw_solver *solver)
{
    if (!solver) return EXPERT_BYTES_MAX;
    return (sw_device_left_bytes(sw_solver_gpu(solver)) - weights_there(m)) / 3 * 2;
}

/* Of one sum over k inputs. */
static int64_t sum_bytes(int64_t k, const sw_solver *solver)
{
    if (!solver) return k * k * (int64_t)sizeof(double);
    return k * k * (int64_t)(sizeof(double) + sizeof(float)) +
           k * SW_EXPERT_ROWS * (int64_t)sizeof(uint16_t);
}

int64_t sw_experts_at_a_time(const sw_model *model, int64_t layer,
                             const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                             const sw_solver *solver)
{
    static const int n_hessians[SW_EXPERTS_COUNT] = {
        [SW_EXPERTS_SHRINK] = 3, [SW_EXPERTS_ROUTED] = 2, [SW_EXPERTS_ALL] = 1};
    int64_t k = sw_model_site_width(model, layer, SW_SITE_DOWN_IN), n_bytes = 1;

    if (is_wanted[SW_SITE_DOWN_IN]) n_bytes += n_hessians[policy] * sum_bytes(k, solver);
    if (is_wanted[SW_SITE_MLP_IN] && policy != SW_EXPERTS_ALL)
        n_bytes += 2 * sum_bytes(model->hidden, solver);
    return sw_max_i64(1, sw_min_i64(model->n_experts, bytes_at_most(model, solver) / n_bytes));
}

sw_code sw_site_stats_add_sizes(sw_site_stats *stats, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++)
        if (stats->site[site].k_in)
            rc = sw_channels_new(&stats->sizes[site], stats->site[site].k_in, err);
    for (int64_t e = 0; e < stats->n_experts && rc == SW_OK; e++) {
        sw_expert_site *in = &stats->experts[e].in, *down = &stats->experts[e].down;
        int64_t k_down = sw_max_i64(down->half[0].k_in, down->all.k_in);
        if (in->half[0].k_in) rc = sw_channels_new(&in->sizes, in->half[0].k_in, err);
        if (rc == SW_OK && k_down) rc = sw_channels_new(&down->sizes, k_down, err);
    }
    return rc;
}

void sw_site_stats_free(sw_site_stats *stats)
{
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        sw_hessian_free(&stats->site[site]);
        sw_hessian_free(&stats->held[site]);
        sw_channels_free(&stats->sizes[site]);
    }
    for (int64_t e = 0; e < stats->n_experts; e++) sw_expert_stats_free(&stats->experts[e]);
    sw_mem_put(stats->experts);
    memset(stats, 0, sizeof *stats);
}
