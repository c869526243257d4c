/* kv_scales.h - scales for a cache of keys and values in e4m3.
 *
 * Serving engines that keep their cache in eight bits want one multiplier for the keys of a layer
 * and one for its values: the largest magnitude over 448, of the keys as they are cached (rotated)
 * and of the values, over the calibration tokens of the quantized stream.
 */
#ifndef SW_QUANT_KV_SCALES_H
#define SW_QUANT_KV_SCALES_H

#include "quant/streams.h"

/* k_scale and v_scale of the present block, whose attention inputs are quantized. The streams stay
 * where they are: at the block's input. 1 for what is all zeros. SW_E_FORMAT: a key or a value is
 * not finite. */
sw_code sw_kv_scales_find(float *k_scale, float *v_scale, sw_streams *streams,
                          const sw_block *quantized, const sw_progress *progress,
                          sw_err *err) SW_MUST_USE;

#endif
