/* cpu_watch.c - how large inputs, keys and values of streams in memory get (ranges.h, kv_scales.h).
 */
#include "quant/backend/cpu/cpu.h"

typedef struct watcher {
    sw_range *ranges;
    const bool *is_wanted;
} watcher;

static sw_code watch(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                     int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    const watcher *w = self;

    (void)residual;
    (void)token_ids;
    (void)err;
    if (!w->is_wanted[site] || (expert >= 0 && site != SW_SITE_DOWN_IN)) return SW_OK;
    sw_range_add(&w->ranges[site], x, n_tokens * k_in);
    return SW_OK;
}

sw_code sw_cpu_find_ranges(sw_range *ranges, sw_streams *s, const bool *is_wanted,
                           const sw_block *block, const sw_progress *progress, sw_err *err)
{
    watcher w = {ranges, is_wanted};
    sw_tap tap = {.self = &w, .see = watch};

    return sw_cpu_visit(s, block, &tap, is_wanted, progress, err);
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

sw_code sw_cpu_find_kv_range(sw_kv_range *out, sw_streams *s, const sw_block *block,
                             const sw_progress *progress, sw_err *err)
{
    const bool is_wanted[SW_SITE_COUNT] = {[SW_SITE_O_IN] = true};
    sw_tap tap = {.self = out, .see = look_away, .see_kv = watch_kv};

    return sw_cpu_visit(s, block, &tap, is_wanted, progress, err);
}
