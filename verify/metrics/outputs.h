/* outputs.h - what each quantized linear does to its output, on what the original's linears read.
 *
 * The original runs over a first stretch of the text (at most 1024 tokens). What its linears read
 * goes through W and through W' - W, where W' is the checkpoint's weight by the second decoder,
 * rescaled back: the difference of two products would be half rounding at 8 bits. Of more than 512
 * rows that a linear reads so many at most are multiplied, evenly spread, which on a trained model
 * leaves the figure within 3 percent.
 *
 * On a device the original's blocks run in BF16, so that linears read what is rounded to it; the
 * products are of floats, as here. That moves figures of toys by 2e-4 of themselves, which
 * tests/gpu/test_outputs.c holds to 1e-3. An expert may be sent other tokens: its figure moves by
 * 1e-2, held to 0.1.
 */
#ifndef SW_VERIFY_METRICS_OUTPUTS_H
#define SW_VERIFY_METRICS_OUTPUTS_H

#include "formats/base/progress.h"
#include "verify/base/report.h"
#include "verify/base/subject.h"
#include "verify/metrics/rescale.h"
#include "verify/metrics/windows.h"

typedef struct sw_outputs_job {
    const sw_lm *original; /* in floats */
    const sw_subject *checkpoint;
    const sw_rescale *rescale;
    const sw_windows *windows;
    sw_device *gpu;        /* that runs the original and multiplies; NULL: the processor does */
    int n_threads;
    const sw_progress *progress; /* is told where a device refuses, and the processor does it */
} sw_outputs_job;

/* Fill output_err of every tensor of the report, and its experts. An expert that got no token keeps
 * -1. Figures do not depend on the number of threads. Memory: a linear in codes for each thread,
 * and what these linears read. SW_E_FORMAT: a linear that does not decode. */
sw_code sw_output_errors(sw_report *report, const sw_outputs_job *job, sw_err *err) SW_MUST_USE;

#endif
