/* lm_open.h - a whole model from an opened checkpoint, dense or quantized.
 *
 * Swage tiles are used in the mapping of the file; other dialects are decoded to the logical form
 * and packed into tiles once, when the model is opened.
 */
#ifndef SW_KERNELS_ENGINE_LM_OPEN_H
#define SW_KERNELS_ENGINE_LM_OPEN_H

#include "formats/checkpoint/checkpoint.h"
#include "kernels/engine/engine.h"

typedef struct sw_lm_options {
    bool dequantize; /* floats instead of tiles: what the integer kernels are measured against */
    bool keeps_marlin; /* weights in Marlin's order as they lie: for a device, which re-tiles
                          them */
    sw_kv_kind kv_kind; /* how keys and values are kept; codes by the checkpoint's k_scale and
                         * v_scale. A scale stands for the range that it covers, so that those of
                         * E4M3 serve int8 too, and the other way round. Where there is none, codes
                         * of E4M3 have 1 */
    int n_threads;   /* layers are loaded side by side; the result does not depend on it */
} sw_lm_options;

/* Freed by sw_lm_free; ckpt must stay open as long. SW_E_UNSUPPORTED: a weight that tiles cannot
 * hold (scattered groups), unless dequantize is set; a cache of int8 without a scale; otherwise as
 * sw_lm_load and sw_checkpoint_qtensor. Of several failures, that of the lowest layer is
 * reported. */
sw_code sw_lm_open(sw_lm *out, const sw_checkpoint *ckpt, const sw_lm_options *options,
                   sw_err *err) SW_MUST_USE;

/* Quantized linears of a checkpoint as floats, decoded when a block is loaded: for reading it as if
 * it were dense. How it quantizes inputs is left out. Borrows ckpt. */
sw_linear_source sw_decoding_source(sw_checkpoint *ckpt);

#endif
