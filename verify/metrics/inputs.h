/* inputs.h - which bytes were judged: SHA-256 of every input, held against manifest.json.
 */
#ifndef SW_VERIFY_METRICS_INPUTS_H
#define SW_VERIFY_METRICS_INPUTS_H

#include "formats/base/progress.h"
#include "verify/base/options.h"
#include "verify/base/report.h"
#include "verify/base/subject.h"

/* Fill report->files: weights, config.json and tokenizer.json of both models, the texts, and
 * whatever else the checkpoint's manifest.json lists. Findings: "differs" for a file that is not
 * what the manifest says, "missing" for one that is gone, "other original" when the manifest
 * names another hash for a file of the original. A checkpoint without a manifest is fine. */
sw_code sw_verify_inputs(sw_report *report, const sw_subject *checkpoint,
                         const sw_subject *original, const sw_verify_options *options,
                         sw_err *err) SW_MUST_USE;

/* manifest.json of a checkpoint; NULL where there is none, or none that can be read, which
 * sw_verify_inputs reports. Freed by cJSON_Delete. */
sw_code sw_verify_manifest(cJSON **out, const sw_subject *checkpoint, sw_err *err) SW_MUST_USE;

#endif
