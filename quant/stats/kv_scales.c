/* kv_scales.c - see kv_scales.h. */
#include "quant/stats/kv_scales.h"

#include "quant/device/watch_device.h"

#include <math.h>

#define E4M3_TOP 448.0f

static void raise_to(float *amax, bool *is_broken, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) *is_broken = true;
        *amax = fmaxf(*amax, fabsf(x[i]));
    }
}

void sw_kv_range_add(sw_kv_range *range, const float *k, int64_t n_k, const float *v, int64_t n_v)
{
    raise_to(&range->k_amax, &range->is_broken, k, n_k);
    raise_to(&range->v_amax, &range->is_broken, v, n_v);
}

static void watch_kv(void *self, const float *k, int64_t n_k, const float *v, int64_t n_v)
{
    sw_kv_range_add(self, k, n_k, v, n_v);
}

static sw_code look_away(void *self, sw_site site, int64_t expert, const float *x,
                         int64_t n_tokens, int64_t k_in, const float *residual,
                         const int32_t *token_ids, sw_err *err)
{
    (void)self;
    (void)site;
    (void)expert;
    (void)x;
    (void)n_tokens;
    (void)k_in;
    (void)residual;
    (void)token_ids;
    (void)err;
    return SW_OK;
}

float sw_kv_scale_of(float amax)
{
    return amax > 0 ? fmaxf(amax / E4M3_TOP, 0x1p-126f) : 1.0f;
}

sw_code sw_kv_range_find(sw_kv_range *out, sw_streams *streams, const sw_block *block,
                         const sw_progress *progress, sw_err *err)
{
    const bool is_wanted[SW_SITE_COUNT] = {[SW_SITE_O_IN] = true};
    sw_kv_range range = {0};
    sw_tap tap = {.self = &range, .see = look_away, .see_kv = watch_kv};
    sw_code rc = streams->on
                     ? sw_kv_range_find_there(&range, streams, block, progress, err)
                     : sw_streams_visit(streams, block, &tap, is_wanted, progress, err);

    if (rc != SW_OK) return rc;
    if (range.is_broken)
        return SW_FAIL(err, SW_E_FORMAT, "layer %lld: a key or a value is not finite",
                       (long long)block->layer);
    *out = range;
    return SW_OK;
}

sw_code sw_kv_scales_find(float *k_scale, float *v_scale, sw_streams *streams,
                          const sw_block *quantized, const sw_progress *progress, sw_err *err)
{
    sw_kv_range range = {0};
    sw_code rc = sw_kv_range_find(&range, streams, quantized, progress, err);

    if (rc != SW_OK) return rc;
    *k_scale = sw_kv_scale_of(range.k_amax);
    *v_scale = sw_kv_scale_of(range.v_amax);
    return SW_OK;
}
