/* side_check.h - the files around the weights: tokenizer, generation config, chat template, code.
 *
 * What is no JSON must be there as it is in the original; JSON must say the same (json_diff.h).
 * What others can make good is remarked where it is gone. Weights that the loader of this program
 * passes over, but others read, are found too.
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
