/* perplexity.h - two models over the same text, window by window: NLL, perplexity, KL, top-1.
 *
 * NLL is the mean over all windows of the mean over a window's length - 1 predictions of
 * -log p(next token); perplexity is its exponential. Intervals are bootstrapped over windows.
 * Figures do not depend on the thread count; memory is that of one batch of windows.
 */
#ifndef SW_VERIFY_METRICS_PERPLEXITY_H
#define SW_VERIFY_METRICS_PERPLEXITY_H

#include "formats/base/progress.h"
#include "verify/metrics/hidden_file.h"
#include "verify/base/report.h"
#include "verify/metrics/windows.h"

typedef struct sw_eval_job {
    const sw_lm *checkpoint; /* as it will be served: integer kernels */
    const sw_lm *original;   /* or NULL: then only the checkpoint's NLL */
    sw_device *gpu;          /* run both on it; NULL: on the CPU */
    sw_hidden_file *states;  /* of the original: read, or made; NULL: none. Not with gpu */
    sw_windows windows;
    sw_bootstrap bootstrap;
    double noise;            /* on what the checkpoint's linears make (sw_engine_set_noise); on the
                              * CPU alone */
    int n_threads;
    const sw_progress *progress;
} sw_eval_job;

/* Fills everything of *out but n_tokens and gap; commits job->states once all are in.
 * SW_E_FORMAT: an id beyond the vocabulary. */
sw_code sw_evaluate(sw_report_eval *out, const sw_eval_job *job, sw_err *err) SW_MUST_USE;

#endif
