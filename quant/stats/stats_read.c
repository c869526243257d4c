/* stats_read.c - the reading half of stats.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "quant/stats/stats.h"

/* Where in a file: every complaint names the tensor. */
typedef struct place {
    const sw_zpack *z;
    char prefix[96];
} place;

static sw_code load(void *out, const place *p, const char *what, sw_dtype dtype, int64_t n,
                    sw_err *err)
{
    const sw_zpack_tensor *t;
    char name[128];

    (void)snprintf(name, sizeof name, "%s.%s", p->prefix, what);
    if (!(t = sw_zpack_find(p->z, name)))
        return SW_FAIL(err, SW_E_FORMAT, "the statistics have no \"%s\"; calibrate again", name);
    if (t->dtype != dtype || t->n_dims != 1 || t->shape[0] != n)
        return SW_FAIL(err, SW_E_FORMAT, "statistics \"%s\": not %s [%lld]; calibrate again", name,
                       sw_dtype_name(dtype), (long long)n);
    return sw_zpack_load(out, p->z, t, err);
}

static sw_code bad(const place *p, const char *what, const char *why, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "statistics \"%s.%s\": %s; calibrate again", p->prefix, what,
                   why);
}

/* H = n_tokens times the mean that is stored, both triangles. */
static sw_code load_mean(sw_hessian *out, const place *p, const char *what, int64_t k,
                         int64_t n_tokens, int n_threads, sw_err *err)
{
    int64_t n_packed = k * (k + 1) / 2, at = 0;
    double scale = (double)sw_max_i64(1, n_tokens);
    float *packed = NULL;
    sw_code rc = SW_MEM_GET(&packed, n_packed, "packed Hessian", err);

    if (rc != SW_OK) return rc;
    if ((rc = load(packed, p, what, SW_DTYPE_F32, n_packed, err)) != SW_OK) goto done;
    for (int64_t i = 0; i < n_packed; i++)
        if (!isfinite(packed[i])) {
            rc = bad(p, what, "holds a NaN or an infinity", err);
            goto done;
        }
    if ((rc = sw_hessian_new(out, k, false, 0, n_threads, err)) != SW_OK) goto done;
    out->n_tokens = n_tokens;
    for (int64_t i = 0; i < k && rc == SW_OK; i++) {
        if (packed[at] < 0) rc = bad(p, what, "has a negative diagonal", err);
        for (int64_t j = i; j < k; j++) out->h[i * k + j] = scale * (double)packed[at++];
    }
    sw_hessian_finish(out);
done:
    sw_mem_put(packed);
    return rc;
}

static sw_code load_tokens(int64_t *out, const place *p, const char *what, int64_t n,
                           int64_t least, sw_err *err)
{
    sw_code rc = load(out, p, what, SW_DTYPE_I64, n, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (out[i] < least || out[i] > INT64_C(1) << 48)
            rc = bad(p, what, "a count that cannot be", err);
    return rc;
}

static sw_code load_site(sw_site_stats *out, const sw_zpack *z, const sw_model *m, int64_t layer,
                         sw_site site, int n_threads, sw_err *err)
{
    place p = {.z = z};
    int64_t n_tokens = 0;
    sw_code rc;

    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.%s", (long long)layer,
                   sw_site_name(site));
    if ((rc = load_tokens(&n_tokens, &p, "tokens", 1, 1, err)) != SW_OK) return rc;
    return load_mean(&out->site[site], &p, "hessian", sw_model_site_width(m, layer, site),
                     n_tokens, n_threads, err);
}

static sw_code load_expert_site(sw_expert_site *out, const place *p, int64_t k, int64_t n_tokens,
                                bool with_all, const sw_quant_options *o, sw_err *err)
{
    int64_t n_all = 0;
    sw_code rc = SW_OK;

    if (o->experts != SW_EXPERTS_ALL) {
        rc = load_mean(&out->half[0], p, "hessian", k, n_tokens, o->n_threads, err);
        if (rc != SW_OK) return rc;
        if ((rc = load(&out->weight, p, "weight", SW_DTYPE_F64, 1, err)) != SW_OK) return rc;
        if (!(out->weight >= 0 && out->weight <= 1)) return bad(p, "weight", "not in 0..1", err);
    }
    if (!with_all || o->experts == SW_EXPERTS_ROUTED) return SW_OK;
    if ((rc = load_tokens(&n_all, p, "all_tokens", 1, 1, err)) != SW_OK) return rc;
    return load_mean(&out->all, p, "all", k, n_all, o->n_threads, err);
}

sw_code sw_stats_read_experts(sw_site_stats *out, const sw_zpack *z, const sw_model *model,
                              int64_t layer, sw_site site, const sw_quant_options *options,
                              int64_t begin, int64_t end, sw_err *err)
{
    bool is_in = site == SW_SITE_MLP_IN;
    int64_t k = sw_model_site_width(model, layer, site);
    sw_site_stats stats;
    sw_code rc;

    memset(&stats, 0, sizeof stats);
    stats.layer = layer;
    rc = SW_MEM_GET(&stats.experts, end - begin, "expert statistics", err);
    if (rc != SW_OK) return rc;
    stats.expert_begin = begin;
    stats.n_experts = end - begin;
    stats.policy = options->experts;
    stats.is_weighed = true;
    for (int64_t e = begin; e < end && rc == SW_OK; e++) {
        sw_expert_stats *x = &stats.experts[e - begin];
        place p = {.z = z};
        (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.experts.%lld", (long long)layer,
                       (long long)e);
        if ((rc = load_tokens(&x->n_tokens, &p, "tokens", 1, 0, err)) != SW_OK) break;
        (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.experts.%lld.%s", (long long)layer,
                       (long long)e, is_in ? "in" : "down");
        if (!is_in || options->experts != SW_EXPERTS_ALL)
            rc = load_expert_site(is_in ? &x->in : &x->down, &p, k, x->n_tokens, !is_in, options,
                                  err);
    }
    if (rc != SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

sw_code sw_stats_read(sw_site_stats *out, const sw_zpack *z, const sw_model *model, int64_t layer,
                      sw_site site, const sw_quant_options *options, sw_err *err)
{
    sw_site_stats stats;
    sw_code rc = SW_OK;

    memset(&stats, 0, sizeof stats);
    stats.is_wanted[site] = true;
    stats.layer = layer;
    if (site != SW_SITE_DOWN_IN || !sw_model_is_sparse(model, layer))
        rc = load_site(&stats, z, model, layer, site, options->n_threads, err);
    if (rc != SW_OK)
        sw_site_stats_free(&stats);
    else
        *out = stats;
    return rc;
}

/* Raise *top to the largest magnitude of the channels, each over its scale. */
static sw_code raise_to(double *top, const place *p, int64_t k, const double *scale, sw_err *err)
{
    float *most = NULL;
    sw_code rc = SW_MEM_GET(&most, k, "channel ranges", err);

    if (rc == SW_OK) rc = load(most, p, "abs_max", SW_DTYPE_F32, k, err);
    for (int64_t j = 0; j < k && rc == SW_OK; j++) {
        if (!(most[j] >= 0) || !isfinite(most[j]))
            rc = bad(p, "abs_max", "no magnitude", err);
        else
            *top = fmax(*top, (double)most[j] / (scale ? scale[j] : 1.0));
    }
    sw_mem_put(most);
    return rc;
}

sw_code sw_stats_read_range(sw_range *out, const sw_zpack *z, const sw_model *model, int64_t layer,
                            sw_site site, const sw_site_scales *scales, sw_err *err)
{
    bool by_expert = site == SW_SITE_DOWN_IN && sw_model_is_sparse(model, layer);
    int64_t k = sw_model_site_width(model, layer, site);
    place p = {.z = z};
    double top = 0;
    sw_code rc;

    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.%s", (long long)layer,
                   sw_site_name(site));
    rc = load_tokens(out->counts, &p, "range", SW_RANGE_BINS, 0, err);
    for (int64_t e = 0; e < (by_expert ? model->n_experts : 1) && rc == SW_OK; e++) {
        if (by_expert)
            (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.experts.%lld.down",
                           (long long)layer, (long long)e);
        rc = raise_to(&top, &p, k, sw_site_scales_of(scales, site, by_expert ? e : -1), err);
    }
    if (rc == SW_OK) out->amax = top;
    return rc;
}

sw_code sw_stats_read_kv(sw_kv_range *out, const sw_zpack *z, int64_t layer, sw_err *err)
{
    place p = {.z = z};
    float kv[2] = {0, 0};
    sw_code rc;

    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld", (long long)layer);
    if ((rc = load(kv, &p, "kv_abs_max", SW_DTYPE_F32, 2, err)) != SW_OK) return rc;
    for (int i = 0; i < 2; i++)
        if (!(kv[i] >= 0) || !isfinite(kv[i])) return bad(&p, "kv_abs_max", "no magnitude", err);
    *out = (sw_kv_range){.k_amax = kv[0], .v_amax = kv[1]};
    return SW_OK;
}

sw_code sw_stats_check_experts(const sw_zpack *z, const sw_model *model, sw_experts policy,
                               sw_err *err)
{
    static const char *const names[SW_EXPERTS_COUNT] = {
        [SW_EXPERTS_SHRINK] = "shrink", [SW_EXPERTS_ROUTED] = "routed", [SW_EXPERTS_ALL] = "all"};
    const char *has = sw_zpack_meta(z, "experts");

    /* what was stored for a blend serves all three */
    if (!model->n_experts || policy == SW_EXPERTS_COUNT ||
        (has && (!strcmp(has, names[policy]) || !strcmp(has, names[SW_EXPERTS_SHRINK]))))
        return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "the statistics were taken with --experts %.20s and cannot "
                   "serve %s", has ? has : "?", names[policy]);
}

sw_code sw_stats_check(const sw_zpack *z, const char *model_sha256, const sw_model *model,
                       sw_experts policy, sw_err *err)
{
    const char *kind = sw_zpack_meta(z, "kind"), *owner = sw_zpack_meta(z, "model_sha256");

    if (!kind || strcmp(kind, SW_STATS_KIND) != 0)
        return SW_FAIL(err, SW_E_FORMAT, "no statistics of this version (kind \"%.40s\", not "
                       SW_STATS_KIND "); calibrate again", kind ? kind : "");
    if (!owner || strcmp(owner, model_sha256) != 0)
        return SW_FAIL(err, SW_E_FORMAT, "statistics of another model (%.12s..., this one is "
                       "%.12s...): config.json or a tensor differs; calibrate this one",
                       owner ? owner : "", model_sha256);
    return sw_stats_check_experts(z, model, policy, err);
}
