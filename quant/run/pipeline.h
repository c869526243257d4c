/* pipeline.h - quantize a model block by block, each fed by the quantized output of the last.
 *
 * Two streams of activations run side by side: the quantized model's and the original's. For
 * each input site of a block (attention input, o, mlp input, down) the calibration tokens are
 * run up to that site with everything before it already quantized; its Hessian and cross terms
 * are summed; its linears are solved and take their quantized values; the next site follows.
 * Memory is O(one block + the two streams). Knows no file format: weights come from an opened
 * checkpoint's tensors, results go to a sink.
 */
#ifndef SW_QUANT_RUN_PIPELINE_H
#define SW_QUANT_RUN_PIPELINE_H

#include "formats/base/progress.h"
#include "formats/file/safetensors.h"
#include "formats/file/zpack.h"
#include "formats/model/model.h"
#include "quant/backend.h"
#include "quant/method/algo.h"
#include "quant/sink.h"

/* GPTQ with the settings that measured best (tests/bench/quality.csv). */
sw_quant_options sw_quant_defaults(void);

/* `calib` may be NULL for methods that need no statistics. SW_E_FORMAT: a weight with a NaN or an
 * infinity (named), an indefinite Hessian. SW_E_CANCELLED when the user stops it. */
sw_code sw_quant_run(const sw_model *model, const sw_st *st, const sw_calib *calib,
                     const sw_quant_options *options, const sw_quant_sink *sink,
                     const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* The same from statistics of this model (stats.h, checked with sw_stats_check): no calibration
 * text is run, and no block sees what quantizing the blocks before it has changed. */
sw_code sw_quant_run_stats(const sw_model *model, const sw_st *st, const sw_zpack *stats,
                           const sw_quant_options *options, const sw_quant_sink *sink,
                           const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
