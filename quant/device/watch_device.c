/* watch_device.c - see watch_device.h. */
#include "quant/device/watch_device.h"

#include <math.h>
#include <string.h>

#include "quant/device/streams_device.h"

/* n zeroed elements. */
static sw_code take(void *out, sw_solver *solver, int64_t n, int64_t elem_bytes, sw_err *err)
{
    sw_device *gpu = sw_solver_gpu(solver);
    void *d = NULL;
    sw_code rc = sw_device_take(&d, gpu, n, elem_bytes, "sizes of inputs", err);

    if (rc == SW_OK && (rc = sw_device_fill(gpu, d, 0, n * elem_bytes, err)) != SW_OK) {
        sw_device_put(gpu, d);
        return rc;
    }
    if (rc == SW_OK) *(void **)out = d;
    return rc;
}

sw_code sw_device_range_new(sw_device_range *out, sw_solver *solver, sw_err *err)
{
    sw_code rc = take(&out->d_counts, solver, SW_MAGNITUDES, (int64_t)sizeof *out->d_counts, err);

    return rc == SW_OK ? take(&out->d_most, solver, 1, (int64_t)sizeof *out->d_most, err) : rc;
}

void sw_device_range_free(sw_device_range *range, sw_solver *solver)
{
    sw_device_put(sw_solver_gpu(solver), range->d_counts);
    sw_device_put(sw_solver_gpu(solver), range->d_most);
    memset(range, 0, sizeof *range);
}

sw_code sw_device_range_add(const sw_device_range *range, sw_solver *solver, const void *d_x,
                            int64_t stride, int64_t n, int64_t k, sw_err *err)
{
    return sw_solver_watch_magnitudes(solver, range->d_counts, range->d_most, d_x, stride, n, k,
                                      err);
}

/* The BF16 with these bits. */
static float value_of(uint32_t bits)
{
    float v;

    bits <<= 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

sw_code sw_device_range_fetch(sw_range *into, const sw_device_range *range, sw_solver *solver,
                              sw_err *err)
{
    const uint32_t first = (uint32_t)(127 + SW_MAGNITUDE_LOWEST_OCTAVE) << 7;
    sw_device *gpu = sw_solver_gpu(solver);
    uint32_t most = 0;
    int64_t *counts = NULL;
    sw_code rc = SW_MEM_GET(&counts, SW_MAGNITUDES, "counts of inputs", err);

    if (rc == SW_OK)
        rc = sw_device_download(gpu, counts, range->d_counts,
                                SW_MAGNITUDES * (int64_t)sizeof *counts, err);
    if (rc == SW_OK) rc = sw_device_download(gpu, &most, range->d_most, sizeof most, err);
    for (uint32_t i = 0; i < SW_MAGNITUDES && rc == SW_OK; i++)
        if (counts[i]) sw_range_add_many(into, value_of(first + i), counts[i]);
    if (rc == SW_OK) into->amax = fmax(into->amax, (double)value_of(most));
    sw_mem_put(counts);
    return rc;
}

sw_code sw_device_kv_see(void *self, const void *d_k, int64_t k_stride, int64_t k_width,
                         const void *d_v, int64_t v_stride, int64_t v_width, int64_t n_tokens,
                         sw_err *err)
{
    sw_device_kv *kv = self;
    sw_code rc = SW_OK;

    if (!kv->d_k) rc = take(&kv->d_k, kv->solver, k_width, (int64_t)sizeof *kv->d_k, err);
    if (rc == SW_OK && !kv->d_v)
        rc = take(&kv->d_v, kv->solver, v_width, (int64_t)sizeof *kv->d_v, err);
    if (rc != SW_OK) return rc;
    kv->k_width = k_width;
    kv->v_width = v_width;
    rc = sw_solver_watch_sizes(kv->solver, kv->d_k, NULL, d_k, k_stride, n_tokens, k_width, err);
    return rc == SW_OK ? sw_solver_watch_sizes(kv->solver, kv->d_v, NULL, d_v, v_stride, n_tokens,
                                               v_width, err)
                       : rc;
}

static sw_code raise_to(float *amax, bool *is_broken, const float *d_max, int64_t n,
                        sw_solver *solver, sw_err *err)
{
    float *most = NULL;
    sw_code rc = SW_MEM_GET(&most, n, "keys and values", err);

    if (rc == SW_OK)
        rc = sw_device_download(sw_solver_gpu(solver), most, d_max, n * (int64_t)sizeof *most, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if (!isfinite(most[i])) *is_broken = true;
        *amax = fmaxf(*amax, most[i]);
    }
    sw_mem_put(most);
    return rc;
}

sw_code sw_device_kv_fetch(sw_kv_range *into, const sw_device_kv *kv, sw_err *err)
{
    sw_code rc = raise_to(&into->k_amax, &into->is_broken, kv->d_k, kv->k_width, kv->solver, err);

    return rc == SW_OK
               ? raise_to(&into->v_amax, &into->is_broken, kv->d_v, kv->v_width, kv->solver, err)
               : rc;
}

void sw_device_kv_free(sw_device_kv *kv)
{
    if (!kv->solver) return;
    sw_device_put(sw_solver_gpu(kv->solver), kv->d_k);
    sw_device_put(sw_solver_gpu(kv->solver), kv->d_v);
    memset(kv, 0, sizeof *kv);
}

sw_code sw_device_sizes_new(sw_device_sizes *out, sw_solver *solver, int64_t k, sw_err *err)
{
    sw_code rc = take(&out->d_max, solver, k, (int64_t)sizeof *out->d_max, err);

    return rc == SW_OK ? take(&out->d_sum, solver, k, (int64_t)sizeof *out->d_sum, err) : rc;
}

void sw_device_sizes_free(sw_device_sizes *sizes, sw_solver *solver)
{
    sw_device_put(sw_solver_gpu(solver), sizes->d_max);
    sw_device_put(sw_solver_gpu(solver), sizes->d_sum);
    memset(sizes, 0, sizeof *sizes);
}

sw_code sw_device_sizes_fetch(sw_channels *into, const sw_device_sizes *sizes, sw_solver *solver,
                              int64_t n_tokens, sw_err *err)
{
    int64_t k = into->k_in;
    sw_device *gpu = sw_solver_gpu(solver);
    sw_code rc = sw_device_download(gpu, into->abs_max, sizes->d_max,
                                    k * (int64_t)sizeof *into->abs_max, err);

    if (rc == SW_OK)
        rc = sw_device_download(gpu, into->abs_sum, sizes->d_sum,
                                k * (int64_t)sizeof *into->abs_sum, err);
    if (rc == SW_OK) into->n_tokens = n_tokens;
    return rc;
}

typedef struct watcher {
    sw_solver *solver;
    const bool *is_wanted;
    sw_device_range range[SW_SITE_COUNT];
} watcher;

static sw_code watch(void *self, sw_site site, int64_t expert, const void *d_x, int64_t n_tokens,
                     int64_t k_in, int64_t stride, const int32_t *token_ids, sw_err *err)
{
    const watcher *w = self;

    (void)token_ids;
    if (!w->is_wanted[site] || (expert >= 0 && site != SW_SITE_DOWN_IN)) return SW_OK;
    return sw_device_range_add(&w->range[site], w->solver, d_x, stride, n_tokens, k_in, err);
}

sw_code sw_ranges_find_there(sw_range ranges[SW_SITE_COUNT], sw_streams *streams,
                             const bool is_wanted[SW_SITE_COUNT], const sw_block *block,
                             const sw_progress *progress, sw_err *err)
{
    watcher w = {.solver = streams->on->solver, .is_wanted = is_wanted};
    sw_device_tap tap = {.self = &w, .see = watch};
    sw_site stop_at = (sw_site)0;
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (!is_wanted[site]) continue;
        stop_at = (sw_site)site;
        rc = sw_device_range_new(&w.range[site], w.solver, err);
    }
    if (rc == SW_OK) rc = sw_device_streams_visit(streams, block, &tap, stop_at, progress, err);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        if (rc == SW_OK && is_wanted[site])
            rc = sw_device_range_fetch(&ranges[site], &w.range[site], w.solver, err);
        sw_device_range_free(&w.range[site], w.solver);
    }
    return rc;
}

static sw_code look_away(void *self, sw_site site, int64_t expert, const void *d_x,
                         int64_t n_tokens, int64_t k_in, int64_t stride,
                         const int32_t *token_ids, sw_err *err)
{
    (void)self;
    (void)site;
    (void)expert;
    (void)d_x;
    (void)n_tokens;
    (void)k_in;
    (void)stride;
    (void)token_ids;
    (void)err;
    return SW_OK;
}

sw_code sw_kv_range_find_there(sw_kv_range *out, sw_streams *streams, const sw_block *block,
                               const sw_progress *progress, sw_err *err)
{
    sw_device_kv kv = {.solver = streams->on->solver};
    sw_device_tap tap = {.self = &kv, .see = look_away, .see_kv = sw_device_kv_see};
    sw_code rc = sw_device_streams_visit(streams, block, &tap, SW_SITE_O_IN, progress, err);

    if (rc == SW_OK) rc = sw_device_kv_fetch(out, &kv, err);
    sw_device_kv_free(&kv);
    return rc;
}
