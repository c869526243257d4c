/* probe_device.h - block_probe.h where the streams are on a card. For probe.c and transforms alone.
 */
#ifndef SW_QUANT_DEVICE_PROBE_DEVICE_H
#define SW_QUANT_DEVICE_PROBE_DEVICE_H

#include "kernels/engine/device_engine.h"
#include "quant/search/block_probe.h"

/* The half of the block that `site` is in, as far as the streams have it before them. Freed with
 * sw_device_block_free. */
sw_code sw_block_probe_load_there(sw_device_block **out, const sw_block_probe *probe,
                                  const sw_block *block, sw_site site, sw_err *err) SW_MUST_USE;
/* As sw_block_probe_output, with a loaded block; d_y on the card. */
sw_code sw_block_probe_output_there(float *d_y, const sw_block_probe *probe,
                                    sw_block_probe_part part, const sw_device_block *block,
                                    sw_site site, sw_err *err) SW_MUST_USE;
/* As sw_block_probe_hessians. */
sw_code sw_block_probe_hessians_there(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                                      sw_block_probe_part part, const sw_block *block, sw_site site,
                                      sw_err *err) SW_MUST_USE;
/* Of what the site's linears read, or those of one expert (-1: none): the largest magnitude of each
 * channel into amax [k_in], in memory, and every `every`-th row, at most n_max, into d_rows;
 * *n_rows of them. */
sw_code sw_block_probe_keep_there(float *amax, float *d_rows, int64_t *n_rows, int64_t n_max,
                                  int64_t every, const sw_block_probe *probe,
                                  sw_block_probe_part part, const sw_block *block, sw_site site,
                                  int64_t expert, sw_err *err) SW_MUST_USE;

#endif
