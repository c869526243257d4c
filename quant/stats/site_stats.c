/* site_stats.c - what holds the statistics of a block's sites and experts. See site_stats.h. */
#include <string.h>

#include "formats/base/size.h"
#include "quant/stats/site_stats.h"

static sw_code new_site(sw_site_stats *stats, const sw_model *m, int64_t layer, sw_site site,
                        bool with_cross, const sw_place *at, sw_err *err)
{
    int64_t k_in = sw_model_site_width(m, layer, site);
    bool writes = sw_model_site_writes_residual(m, layer, site);
    int64_t n_residual = with_cross && writes ? m->hidden : 0;
    sw_code rc;

    rc = sw_hessian_new_at(&stats->site[site], at, k_in, with_cross, n_residual, err);
    if (rc != SW_OK || !with_cross) return rc;
    return sw_hessian_new_at(&stats->held[site], at, k_in, true, n_residual, err);
}

static sw_code new_expert(sw_expert_stats *x, const sw_model *m, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                          const sw_place *at, sw_err *err)
{
    int64_t k = sw_model_site_width(m, layer, SW_SITE_DOWN_IN);
    bool with_own = policy != SW_EXPERTS_ALL, with_all = policy != SW_EXPERTS_ROUTED;
    sw_code rc = SW_OK;

    for (int i = 0; i < 2 && with_own && rc == SW_OK; i++) {
        if (is_wanted[SW_SITE_MLP_IN])
            rc = sw_hessian_new_at(&x->in.half[i], at, m->moe_hidden, false, 0, err);
        if (rc == SW_OK && is_wanted[SW_SITE_DOWN_IN])
            rc = sw_hessian_new_at(&x->down.half[i], at, k, false, 0, err);
    }
    if (rc == SW_OK && with_all && is_wanted[SW_SITE_DOWN_IN])
        rc = sw_hessian_new_at(&x->down.all, at, k, false, 0, err);
    return rc;
}

static sw_code new_experts(sw_site_stats *stats, const sw_model *m, sw_experts policy,
                           int64_t begin, int64_t end, const sw_place *at, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&stats->experts, end - begin, "expert statistics", err);

    if (rc != SW_OK) return rc;
    stats->policy = policy;
    stats->expert_begin = begin;
    stats->n_experts = end - begin;
    for (int64_t e = 0; e < stats->n_experts && rc == SW_OK; e++)
        rc = new_expert(&stats->experts[e], m, stats->layer, stats->is_wanted, policy, at,
                        err);
    return rc;
}

/* Sums of the sites wanted, but for what is kept per expert. */
static sw_code new_sites(sw_site_stats *stats, const sw_model *m, int64_t layer,
                         const bool is_wanted[SW_SITE_COUNT], bool with_cross, const sw_place *at,
                         sw_err *err)
{
    bool is_sparse = sw_model_is_sparse(m, layer);
    sw_code rc = SW_OK;

    memset(stats, 0, sizeof *stats);
    stats->layer = layer;
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (!(stats->is_wanted[site] = is_wanted[site])) continue;
        if (site != SW_SITE_DOWN_IN || !is_sparse)
            rc = new_site(stats, m, layer, (sw_site)site, with_cross, at, err);
    }
    return rc;
}

sw_code sw_site_stats_new(sw_site_stats *out, const sw_model *model, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], bool with_cross, sw_experts policy,
                          const sw_place *at, sw_err *err)
{
    sw_site_stats stats;
    sw_code rc = new_sites(&stats, model, layer, is_wanted, with_cross, at, err);

    if (rc == SW_OK && sw_model_is_sparse(model, layer) && policy != SW_EXPERTS_COUNT &&
        (is_wanted[SW_SITE_MLP_IN] || is_wanted[SW_SITE_DOWN_IN]))
        rc = new_experts(&stats, model, policy, 0, model->n_experts, at, err);
    if (rc != SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

sw_code sw_site_stats_new_experts(sw_site_stats *out, const sw_model *model, int64_t layer,
                                  const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                                  int64_t begin, int64_t end, const sw_place *at,
                                  sw_err *err)
{
    sw_site_stats stats;
    sw_code rc;

    memset(&stats, 0, sizeof stats);
    stats.layer = layer;
    stats.is_wanted[SW_SITE_MLP_IN] = is_wanted[SW_SITE_MLP_IN];
    stats.is_wanted[SW_SITE_DOWN_IN] = is_wanted[SW_SITE_DOWN_IN];
    if ((rc = new_experts(&stats, model, policy, begin, end, at, err)) != SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

/* An expert more than lanes have together would be solved alone, as long as all the others. */
static int64_t for_lanes(int64_t n, int64_t n_experts, int64_t n_lanes)
{
    return n_lanes && n > n_lanes && n < n_experts ? n - n % n_lanes : n;
}

int64_t sw_experts_within(const sw_model *model, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], sw_experts policy, int n_alive,
                          int n_ranks, const sw_backend *backend, int64_t sums_bytes)
{
    static const int n_hessians[SW_EXPERTS_COUNT] = {
        [SW_EXPERTS_SHRINK] = 3, [SW_EXPERTS_ROUTED] = 2, [SW_EXPERTS_ALL] = 1};
    int64_t k = sw_model_site_width(model, layer, SW_SITE_DOWN_IN), n_bytes = 1;

    if (is_wanted[SW_SITE_DOWN_IN]) n_bytes += n_hessians[policy] * backend->sum_bytes(k, n_alive);
    if (is_wanted[SW_SITE_MLP_IN] && policy != SW_EXPERTS_ALL)
        n_bytes += 2 * backend->sum_bytes(model->moe_hidden, n_alive);
    return for_lanes(sw_max_i64(1, sw_min_i64(model->n_experts, sums_bytes / n_bytes)),
                     model->n_experts, (int64_t)n_ranks * backend->n_lanes_most);
}

bool sw_experts_go_on(sw_experts policy, const sw_backend *backend)
{
    return backend->adds_pieces && policy != SW_EXPERTS_ALL;
}

int64_t sw_experts_at_a_time(const sw_model *model, int64_t layer,
                             const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                             int n_alive, int n_ranks, const sw_place *at)
{
    const sw_backend *backend = sw_backend_of(at);

    return sw_experts_within(model, layer, is_wanted, policy, n_alive, n_ranks, backend,
                             backend->sums_bytes_max(at, model));
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

bool sw_site_stats_has_sites(const sw_site_stats *stats)
{
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (stats->site[site].k_in) return true;
    return false;
}

#define SITE_SUMS (2 * SW_SITE_COUNT)
#define EXPERT_SUMS 6

int64_t sw_site_stats_n_sums(const sw_site_stats *stats)
{
    return SITE_SUMS + EXPERT_SUMS * stats->n_experts;
}

int64_t sw_site_stats_sum_expert(const sw_site_stats *stats, int64_t i)
{
    return i < SITE_SUMS ? -1 : stats->expert_begin + (i - SITE_SUMS) / EXPERT_SUMS;
}

sw_hessian *sw_site_stats_sum(sw_site_stats *stats, int64_t i)
{
    sw_expert_stats *x;
    sw_expert_site *site;
    int64_t at = (i - SITE_SUMS) % EXPERT_SUMS;

    if (i < SITE_SUMS) return i % 2 ? &stats->held[i / 2] : &stats->site[i / 2];
    x = &stats->experts[(i - SITE_SUMS) / EXPERT_SUMS];
    site = at < EXPERT_SUMS / 2 ? &x->in : &x->down;
    at %= EXPERT_SUMS / 2;
    return at == 2 ? &site->all : &site->half[at];
}

#define EXPERT_SIZES 2

int64_t sw_site_stats_n_sizes(const sw_site_stats *stats)
{
    return SW_SITE_COUNT + EXPERT_SIZES * stats->n_experts;
}

int64_t sw_site_stats_sizes_expert(const sw_site_stats *stats, int64_t i)
{
    return i < SW_SITE_COUNT ? -1 : stats->expert_begin + (i - SW_SITE_COUNT) / EXPERT_SIZES;
}

sw_channels *sw_site_stats_sizes(sw_site_stats *stats, int64_t i)
{
    const int64_t at = i - SW_SITE_COUNT;
    sw_expert_stats *x;

    if (at < 0) return &stats->sizes[i];
    x = &stats->experts[at / EXPERT_SIZES];
    return at % EXPERT_SIZES ? &x->down.sizes : &x->in.sizes;
}

static sw_code channels_like(sw_channels *out, const sw_channels *like, sw_err *err)
{
    return like->k_in ? sw_channels_new(out, like->k_in, err) : SW_OK;
}

static sw_code all_channels_like(sw_site_stats *out, const sw_site_stats *like, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++)
        rc = channels_like(&out->sizes[site], &like->sizes[site], err);
    for (int64_t e = 0; e < like->n_experts && rc == SW_OK; e++) {
        const sw_expert_stats *x = &like->experts[e];
        rc = channels_like(&out->experts[e].in.sizes, &x->in.sizes, err);
        if (rc == SW_OK) rc = channels_like(&out->experts[e].down.sizes, &x->down.sizes, err);
    }
    return rc;
}

sw_code sw_site_stats_like(sw_site_stats *out, const sw_site_stats *like, sw_err *err)
{
    sw_site_stats *from = (sw_site_stats *)(uintptr_t)like; /* sums are only looked at */
    sw_site_stats s = {.ranges = like->ranges, .kv = like->kv, .layer = like->layer,
                       .expert_begin = like->expert_begin, .policy = like->policy};
    sw_code rc = SW_OK;

    memcpy(s.is_wanted, like->is_wanted, sizeof s.is_wanted);
    memcpy(s.act, like->act, sizeof s.act);
    memcpy(s.input_scale, like->input_scale, sizeof s.input_scale);
    memcpy(s.scale, like->scale, sizeof s.scale);
    if (like->n_experts)
        rc = SW_MEM_GET(&s.experts, like->n_experts, "expert statistics", err);
    if (rc == SW_OK) s.n_experts = like->n_experts;
    for (int64_t i = 0; i < sw_site_stats_n_sums(&s) && rc == SW_OK; i++) {
        const sw_hessian *h = sw_site_stats_sum(from, i);
        if (h->k_in)
            rc = sw_hessian_new_like(sw_site_stats_sum(&s, i), h, err);
    }
    if (rc == SW_OK) rc = all_channels_like(&s, like, err);
    if (rc != SW_OK)
        sw_site_stats_free(&s);
    else
        *out = s;
    return rc;
}

sw_code sw_site_stats_settle(sw_site_stats *stats, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_site_stats_n_sums(stats) && rc == SW_OK; i++) {
        sw_hessian *h = sw_site_stats_sum(stats, i);
        if (h->k_in) rc = sw_hessian_settle(h, err);
    }
    return rc;
}

sw_code sw_site_stats_merge(sw_site_stats *into, const sw_site_stats *from, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_site_stats_n_sums(into) && rc == SW_OK; i++) {
        const sw_hessian *h = sw_site_stats_sum((sw_site_stats *)(uintptr_t)from, i);
        if (!h->n_tokens) continue; /* all zeros */
        rc = sw_hessian_merge_inputs(sw_site_stats_sum(into, i), h, err);
        if (rc == SW_OK) rc = sw_hessian_merge_cross(sw_site_stats_sum(into, i), h, err);
    }
    for (int site = 0; site < SW_SITE_COUNT; site++)
        sw_channels_merge(&into->sizes[site], &from->sizes[site]);
    for (int64_t e = 0; e < into->n_experts; e++) {
        sw_channels_merge(&into->experts[e].in.sizes, &from->experts[e].in.sizes);
        sw_channels_merge(&into->experts[e].down.sizes, &from->experts[e].down.sizes);
        into->experts[e].n_tokens += from->experts[e].n_tokens;
    }
    return rc;
}
