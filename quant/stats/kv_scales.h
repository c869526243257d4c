/* kv_scales.h - scales for a cache of keys and values in eight bits.
 *
 * Serving engines that keep their cache in eight bits want one multiplier for the keys of a layer
 * and one for its values: the largest magnitude over the largest code (448 of E4M3, 127 of int8),
 * of the keys as they are cached (rotated) and of the values, over the calibration tokens of the
 * quantized stream.
 */
#ifndef SW_QUANT_STATS_KV_SCALES_H
#define SW_QUANT_STATS_KV_SCALES_H

#include "quant/stats/streams.h"

/* Zero-initialise. */
typedef struct sw_kv_range {
    float k_amax, v_amax;
    bool is_broken; /* a key or a value is not finite */
} sw_kv_range;

void sw_kv_range_add(sw_kv_range *range, const float *k, int64_t n_k, const float *v, int64_t n_v);
/* The largest of what all ranks have seen, at all of them. Every rank calls it. */
sw_code sw_kv_range_gather(sw_kv_range *range, struct sw_team *team, sw_err *err) SW_MUST_USE;
/* The range in the present block. The streams stay at its input. SW_E_FORMAT as below. */
sw_code sw_kv_range_find(sw_kv_range *out, sw_streams *streams, const sw_block *block,
                         const sw_progress *progress, sw_err *err) SW_MUST_USE;
/* A scale for codes of `num` from a largest magnitude; 1 for 0. */
float sw_kv_scale_of(float amax, const sw_num *num);

/* k_scale and v_scale, for codes of `num`, of the present block, whose attention inputs are
 * quantized. The streams stay where they are: at the block's input. 1 for what is all zeros.
 * SW_E_FORMAT: a key or a value is not finite. */
sw_code sw_kv_scales_find(float *k_scale, float *v_scale, sw_streams *streams,
                          const sw_num *num, const sw_block *quantized,
                          const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
