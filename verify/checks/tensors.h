/* tensors.h - every stored tensor judged: quantized ones decoded and compared with the original,
 * all others held to be the original's bytes.
 */
#ifndef SW_VERIFY_CHECKS_TENSORS_H
#define SW_VERIFY_CHECKS_TENSORS_H

#include "formats/base/progress.h"
#include "verify/base/report.h"
#include "verify/metrics/rescale.h"
#include "verify/base/subject.h"

/* Fill report->tensors (one per quantized linear, in block order) and add findings: "decode" for
 * what breaks the layout, "missing" for a linear that is not there, "implausible" for what
 * rounding cannot explain. `original` may be NULL; `rescale` is its relation to the checkpoint,
 * zeroed where there is none, whose evidence is added up here. Memory: a few linears at a time. */
sw_code sw_verify_tensors(sw_report *report, const sw_subject *checkpoint,
                          const sw_subject *original, sw_rescale *rescale, int n_threads,
                          const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* Fill report->coverage and add findings: "missing", "differs", "unexpected". */
sw_code sw_verify_coverage(sw_report *report, const sw_subject *checkpoint,
                           const sw_subject *original, const sw_rescale *rescale,
                           sw_err *err) SW_MUST_USE;

#endif
