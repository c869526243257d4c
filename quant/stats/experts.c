/* experts.c - see experts.h. */
#include "quant/stats/experts.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/lanes.h"

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

sw_code sw_expert_stats_move(sw_expert_stats *stats, const sw_place *to, sw_err *err)
{
    sw_hessian *sums[] = {&stats->in.half[0], &stats->in.half[1], &stats->in.all,
                          &stats->down.half[0], &stats->down.half[1], &stats->down.all};
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof sums / sizeof *sums && rc == SW_OK; i++)
        if (sums[i]->k_in) rc = sw_hessian_move(sums[i], to, err);
    return rc;
}

/* 64 signs of their own for every number (the finalizer of splitmix64). */
static uint64_t signs_of(uint64_t i)
{
    uint64_t bits = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

sw_code sw_prior_probes(double **z, int64_t k, sw_err *err)
{
    const int64_t n = SW_PRIOR_PROBES * k;
    uint64_t bits = 0;
    sw_code rc = SW_MEM_GET(z, n, "random signs", err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++, bits >>= 1) {
        if (i % 64 == 0) bits = signs_of((uint64_t)i / 64);
        (*z)[i] = bits & 1 ? 1.0 : -1.0;
    }
    return rc;
}

sw_code sw_prior_new(sw_prior *out, const sw_hessian *all, sw_err *err)
{
    sw_prior prior = {.all = all};
    sw_code rc = sw_backend_of(&all->place)->prior_new(&prior.state, all, err);

    if (rc == SW_OK) *out = prior;
    return rc;
}

sw_code sw_prior_indefinite(sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "the all-token statistics are indefinite");
}

void sw_prior_free(sw_prior *prior)
{
    if (prior->all) sw_backend_of(&prior->all->place)->prior_free(prior->state, prior->all);
    memset(prior, 0, sizeof *prior);
}

sw_code sw_prior_weight(double *out, const sw_prior *prior, const sw_hessian half[2], sw_err *err)
{
    double n[2] = {(double)half[0].n_tokens, (double)half[1].n_tokens}, n_own = n[0] + n[1];
    double form[3], first, second, both, between, distance, noise;
    sw_code rc;

    *out = 1.0;
    if (!half[0].n_tokens || !half[1].n_tokens) return SW_OK;
    rc = sw_backend_of(&prior->all->place)
             ->prior_compare(form, prior->state, prior->all, half, err);
    if (rc != SW_OK) return rc;
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

/* Experts that are weighed, as items of lanes. */
typedef struct weigh_work {
    sw_expert_stats *experts;
    const sw_prior *in_prior; /* for what gate and up read; NULL: there is none */
} weigh_work;

/* As a lane uses them. */
static sw_hessian sums_in(const sw_hessian *sums, const sw_place *at)
{
    sw_hessian mine = *sums;

    sw_lane_enter(&mine.place, at);
    return mine;
}

static sw_code weigh_in(sw_expert_site *site, const sw_prior *prior, const sw_place *at,
                        sw_err *err)
{
    const sw_hessian all = sums_in(prior->all, at);
    const sw_prior mine = {.all = &all, .state = prior->state};

    return site->half[0].k_in ? sw_prior_weight(&site->weight, &mine, site->half, err) : SW_OK;
}

static sw_code weigh_down(sw_expert_site *site, const sw_place *at, sw_err *err)
{
    const sw_hessian all = sums_in(&site->all, at);
    sw_prior prior = {0};
    sw_code rc;

    if (!site->half[0].k_in || !site->all.k_in) return SW_OK;
    if ((rc = sw_prior_new(&prior, &all, err)) != SW_OK) return rc;
    rc = sw_prior_weight(&site->weight, &prior, site->half, err);
    sw_prior_free(&prior);
    return rc;
}

static sw_code weigh_expert(void *self, int64_t item, const sw_place *at, sw_err *err)
{
    weigh_work *w = self;
    sw_expert_stats *x = &w->experts[item];
    sw_code rc = w->in_prior ? weigh_in(&x->in, w->in_prior, at, err) : SW_OK;

    return rc == SW_OK ? weigh_down(&x->down, at, err) : rc;
}

/* The first expert whose sums are here, of a site's first half; NULL: there is none. */
static const sw_hessian *first_half(const sw_expert_stats *experts, int64_t n_experts, bool is_in)
{
    for (int64_t e = 0; e < n_experts; e++) {
        const sw_hessian *half = is_in ? &experts[e].in.half[0] : &experts[e].down.half[0];
        if (half->k_in) return half;
    }
    return NULL;
}

sw_code sw_experts_weigh(sw_expert_stats *experts, int64_t n_experts, const sw_hessian *in_all,
                         sw_prior *in_prior, sw_err *err)
{
    const sw_hessian *in = first_half(experts, n_experts, true);
    const sw_hessian *down = first_half(experts, n_experts, false);
    weigh_work w = {experts, in ? in_prior : NULL};
    const int64_t k = sw_max_i64(in ? in_all->k_in : 0, down ? down->k_in : 0);
    const sw_lane_work work = {.self = &w, .item_bytes = 8 * SW_WEIGHED_MATRICES * k * k,
                               .work = weigh_expert};
    const sw_span span = sw_span_open("weigh experts");
    sw_code rc = in && !in_prior->all ? sw_prior_new(in_prior, in_all, err) : SW_OK;

    if (rc == SW_OK && (in || down))
        rc = sw_lanes_run(in ? &in_all->place : &down->place, SW_LANES_ANY, n_experts, &work, err);
    sw_span_close(span, NULL);
    return rc;
}

sw_code sw_expert_blend(sw_hessian half[2], const sw_hessian *all, double d, sw_err *err)
{
    int64_t n_own = half[0].n_tokens + half[1].n_tokens;
    double scale = n_own ? (double)n_own : 1.0;
    double every = all->n_tokens ? d * scale / (double)all->n_tokens : 0.0;
    sw_code rc = sw_backend_of(&half[0].place)->hessian_blend(half, all, 1.0 - d, every, err);

    if (rc == SW_OK) half[0].n_tokens = n_own;
    return rc;
}
