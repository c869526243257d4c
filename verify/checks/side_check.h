/* side_check.h - the files around the weights: tokenizer, generation config, chat template, code.
 *
 * Files that are not JSON must be equal to the original's; JSON must mean the same (json_diff.h).
 * A missing file that engines can do without is a remark. Weights that this program does not
 * load, but other loaders do, are found too.
 */
#ifndef SW_VERIFY_CHECKS_SIDE_CHECK_H
#define SW_VERIFY_CHECKS_SIDE_CHECK_H

#include "verify/base/report.h"
#include "verify/base/subject.h"

/* Findings: "broken" for a file that does not parse; with an original, "missing" and "differs";
 * "unexpected" for tensors and code that are in the directory besides. `original` may be NULL. */
sw_code sw_verify_side_files(sw_report *report, const sw_subject *checkpoint,
                             const sw_subject *original, sw_err *err) SW_MUST_USE;

#endif
