/* cuda_tried.h - half a block that searches run on a device, kept as long as it serves.
 *
 * A search runs the original half on two parts of its windows and then the quantized one, which has
 * the same values until something of it has been solved: one load serves all. What a trial has put
 * in is taken out again by the next who asks.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_TRIED_H
#define SW_QUANT_BACKEND_CUDA_CUDA_TRIED_H

#include "quant/backend/cuda/cuda_streams.h"

struct sw_cuda_tried {
    sw_device_block *loaded;
    sw_half half;
    sw_block of;           /* what it was loaded from; without arrays of experts, whose */
    const void **experts;  /* [3 n_experts] values, or NULL without them */
};

/* The half of a block that `site` is in, as far as the streams have it before them. With `up_to` a
 * site it may lack what reads that site and all behind it; SW_RUN_ALL: nothing. Borrowed until the
 * next call, which may have it other values, and sw_cuda_probe_forget. */
sw_code sw_cuda_tried_half(sw_device_block **out, const sw_block_probe *probe,
                           const sw_block *block, sw_site site, sw_site up_to,
                           sw_err *err) SW_MUST_USE;
/* Other values have been put into a linear, or an expert, of what was handed out. */
void sw_cuda_tried_changed(const sw_block_probe *probe, sw_slot slot, int64_t expert);

#endif
