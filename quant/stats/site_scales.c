/* site_scales.c - see site_scales.h. */
#include "quant/stats/site_scales.h"

#include <string.h>

#include "formats/base/size.h"

sw_code sw_site_scales_add(sw_site_scales *scales, sw_site site, int64_t expert, int64_t n_experts,
                           const double *scale, int64_t k, sw_err *err)
{
    int64_t n = expert < 0 ? 1 : n_experts;
    double *into;

    if (!scales->scale[site]) {
        sw_code rc = SW_MEM_GET(&scales->scale[site], n * k, "scales of a site", err);
        if (rc != SW_OK) return rc;
        for (int64_t i = 0; i < n * k; i++) scales->scale[site][i] = 1.0;
        scales->n[site] = n;
        scales->k[site] = k;
    }
    if (scales->n[site] != n || scales->k[site] != k)
        return SW_FAIL(err, SW_E_BUG, "a site with two kinds of scales");
    into = scales->scale[site] + sw_max_i64(expert, 0) * k;
    for (int64_t j = 0; j < k; j++) into[j] *= scale[j];
    return SW_OK;
}

void sw_site_scales_free(sw_site_scales *scales)
{
    for (int site = 0; site < SW_SITE_COUNT; site++) sw_mem_put(scales->scale[site]);
    memset(scales, 0, sizeof *scales);
}

const double *sw_site_scales_of(const sw_site_scales *scales, sw_site site, int64_t expert)
{
    const double *all = scales->scale[site];

    if (!all || scales->n[site] == 1) return all; /* what all read was divided for all */
    return expert < 0 ? NULL : all + expert * scales->k[site];
}

static void divide(sw_hessian *h, const double *scale)
{
    if (!h->h || !scale) return;
    for (int64_t i = 0; i < h->k_in; i++)
        for (int64_t j = 0; j < h->k_in; j++) h->h[i * h->k_in + j] /= scale[i] * scale[j];
}

void sw_site_scales_apply(sw_site_stats *stats, const sw_site_scales *scales)
{
    for (int site = 0; site < SW_SITE_COUNT; site++)
        divide(&stats->site[site], sw_site_scales_of(scales, (sw_site)site, -1));
    for (int64_t e = 0; e < stats->n_experts; e++) {
        sw_expert_stats *x = &stats->experts[e];
        const double *in = sw_site_scales_of(scales, SW_SITE_MLP_IN, stats->expert_begin + e);
        const double *down = sw_site_scales_of(scales, SW_SITE_DOWN_IN, stats->expert_begin + e);
        for (int i = 0; i < 2; i++) {
            divide(&x->in.half[i], in);
            divide(&x->down.half[i], down);
        }
        divide(&x->down.all, down);
    }
}
