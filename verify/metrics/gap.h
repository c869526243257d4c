/* gap.h - what only running the model can tell: how far the integer kernels are from dequantized
 * weights, and what each quantized linear does to its output.
 */
#ifndef SW_VERIFY_METRICS_GAP_H
#define SW_VERIFY_METRICS_GAP_H

#include "verify/base/report.h"
#include "verify/metrics/rescale.h"
#include "verify/base/subject.h"
#include "verify/metrics/windows.h"

/* Run the first n_windows through `kernels` (the checkpoint in integer kernels, decoded by the
 * first decoder) and through the same blocks with each quantized linear replaced by the floats of
 * the second decoder. Memory: one block of floats and two streams of activations. */
sw_code sw_kernel_gap(sw_report_gap *out, const sw_lm *kernels, const sw_subject *checkpoint,
                      const sw_windows *windows, int64_t n_windows, int n_threads,
                      sw_err *err) SW_MUST_USE;

/* Fill output_err of every tensor of the report: the original's activations over a first stretch
 * of the text (about 1000 tokens) go through W and through the decoded W', rescaled back. An
 * expert that got no token keeps -1. */
sw_code sw_output_errors(sw_report *report, const sw_lm *original, const sw_subject *checkpoint,
                         const sw_rescale *rescale, const sw_windows *windows, int n_threads,
                         sw_err *err) SW_MUST_USE;

#endif
