/* watch_device.h - how large inputs, keys and values of streams on a card are. For ranges.c,
 * kv_scales.c and streams_device.c alone.
 */
#ifndef SW_QUANT_DEVICE_WATCH_DEVICE_H
#define SW_QUANT_DEVICE_WATCH_DEVICE_H

#include "kernels/engine/device_engine.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"
#include "quant/stats/streams.h"

/* Counts on the card on their way into a range: of what a BF16 can be, which the steps of a range
 * never part. Zero-initialise. */
typedef struct sw_device_range {
    int64_t *d_counts;
    uint32_t *d_most;
} sw_device_range;
sw_code sw_device_range_new(sw_device_range *out, sw_solver *solver, sw_err *err) SW_MUST_USE;
void sw_device_range_free(sw_device_range *range, sw_solver *solver);
sw_code sw_device_range_add(const sw_device_range *range, sw_solver *solver, const void *d_x,
                            int64_t stride, int64_t n, int64_t k, sw_err *err) SW_MUST_USE;
/* into += what was counted. */
sw_code sw_device_range_fetch(sw_range *into, const sw_device_range *range, sw_solver *solver,
                              sw_err *err) SW_MUST_USE;

/* Largest key and value. Zero-initialise. */
typedef struct sw_device_kv {
    int64_t k_width, v_width; /* 0: none was seen */
    float *d_k, *d_v;         /* [width] by channel */
    sw_solver *solver;
} sw_device_kv;
/* As sw_device_tap has it; self is an sw_device_kv with its solver. */
sw_code sw_device_kv_see(void *self, const void *d_k, int64_t k_stride, int64_t k_width,
                         const void *d_v, int64_t v_stride, int64_t v_width, int64_t n_tokens,
                         sw_err *err) SW_MUST_USE;
sw_code sw_device_kv_fetch(sw_kv_range *into, const sw_device_kv *kv, sw_err *err) SW_MUST_USE;
void sw_device_kv_free(sw_device_kv *kv); /* accepts a zeroed one */

/* Channel sizes of a site. Zero-initialise. */
typedef struct sw_device_sizes {
    float *d_max;
    double *d_sum;
} sw_device_sizes;
sw_code sw_device_sizes_new(sw_device_sizes *out, sw_solver *solver, int64_t k,
                            sw_err *err) SW_MUST_USE;
void sw_device_sizes_free(sw_device_sizes *sizes, sw_solver *solver);
/* into, which is empty, gets them; of n_tokens. */
sw_code sw_device_sizes_fetch(sw_channels *into, const sw_device_sizes *sizes, sw_solver *solver,
                              int64_t n_tokens, sw_err *err) SW_MUST_USE;

/* sw_ranges_find and the range of keys and values of streams on a card. */
sw_code sw_ranges_find_there(sw_range ranges[SW_SITE_COUNT], sw_streams *streams,
                             const bool is_wanted[SW_SITE_COUNT], const sw_block *block,
                             const sw_progress *progress, sw_err *err) SW_MUST_USE;
sw_code sw_kv_range_find_there(sw_kv_range *out, sw_streams *streams, const sw_block *block,
                               const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
