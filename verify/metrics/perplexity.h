/* perplexity.h - two models over the same text, window by window: NLL, perplexity, KL, top-1.
 *
 * NLL is the mean over all windows of the mean over a window's length - 1 predictions of
 * -log p(next token); perplexity is its exponential. Intervals are bootstrapped over windows.
 * Figures do not depend on the number of threads or ranks; memory is that of one batch of windows.
 */
#ifndef SW_VERIFY_METRICS_PERPLEXITY_H
#define SW_VERIFY_METRICS_PERPLEXITY_H

#include "formats/base/progress.h"
#include "verify/base/ranks.h"
#include "verify/base/report.h"
#include "verify/base/subject.h"
#include "verify/metrics/hidden_file.h"
#include "verify/metrics/kept_states.h"
#include "verify/metrics/rescale.h"
#include "verify/metrics/windows.h"

typedef struct sw_eval_job {
    const sw_lm *checkpoint; /* as it will be served: integer kernels */
    const sw_lm *original;   /* or NULL: then only the checkpoint's NLL */
    sw_device *gpu;          /* run both on it; NULL: on the CPU */
    sw_device_set *gpus;     /* as sw_verify_options has them */
    sw_hidden_file *states;  /* of the original: read, or made; NULL: none. Not with gpu */
    sw_kept_states *kept;    /* likewise, of the windows of this rank */
    sw_windows windows;
    sw_bootstrap bootstrap;
    double noise;            /* on what the checkpoint's linears make (sw_engine_set_noise); on the
                              * CPU alone */
    int n_threads;
    const sw_judge_ranks *ranks; /* each runs some of the windows; NULL: one process */
    const sw_progress *progress;
} sw_eval_job;

/* Fills everything of *out but n_tokens and gap, at rank 0 alone; commits job->states once all are
 * in. Of several ranks each calls it, and gets the code of all.
 * SW_E_FORMAT: an id beyond the vocabulary. */
sw_code sw_evaluate(sw_report_eval *out, const sw_eval_job *job, sw_err *err) SW_MUST_USE;

/* What only running the model can tell: how far the integer kernels are from dequantized
 * weights. */

/* Run the first n_windows through `kernels` (the checkpoint in integer kernels, decoded by the
 * first decoder) and through the same blocks with each quantized linear replaced by the floats of
 * the second decoder. Memory: one block of floats and two streams of activations. */
sw_code sw_kernel_gap(sw_report_gap *out, const sw_lm *kernels, const sw_subject *checkpoint,
                      const sw_windows *windows, int64_t n_windows, int n_threads,
                      sw_err *err) SW_MUST_USE;
/* The largest gap of logits that roundings explain: of several schemes that of the coarsest inputs.
 * `served` is the checkpoint that `kernels` were opened from. */
double sw_kernel_gap_limit(const sw_checkpoint *served, const sw_lm *kernels);

#endif
