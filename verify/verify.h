/* verify.h - the judge: does a checkpoint still compute what the original did?
 *
 * verify/ shares no code with quant/. It reads the finished directory, decodes it with a second
 * decoder written from the layout tables (decode_spec.h), compares every tensor with the
 * original, and runs both models over held-out text, the checkpoint through the integer kernels
 * that serve it. Config, tokenizer and what else lies beside the weights must be the original's.
 * Without an original only integrity and perplexity are judged, without a text only what is stored.
 * What is not quantized is compared in floats.
 */
#ifndef SW_VERIFY_VERIFY_H
#define SW_VERIFY_VERIFY_H

#include "verify/base/options.h"

/* Judge. SW_OK means that a report could be made, whatever it says: ask sw_report_verdict.
 * What is wrong with the quantized tensors becomes findings, not an error.
 * SW_E_USAGE: a gate without the input it needs, a text too short, no quantized checkpoint, states
 * of another original or text.
 * SW_E_FORMAT, SW_E_UNSUPPORTED, SW_E_IO: an input cannot be read; names file and remedy.
 * `out` is freed by sw_report_free; set on success only. */
sw_code sw_verify_run(sw_report *out, const sw_verify_options *options, sw_err *err) SW_MUST_USE;

#endif
