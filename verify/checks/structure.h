/* structure.h - is the checkpoint one thing only, and the thing that its config says it is?
 *
 * Checks that need no original: linears stored as the config tells engines, nothing stored twice,
 * no scale that the scheme has no use for, numbers that are finite, a tied head that is tied.
 */
#ifndef SW_VERIFY_CHECKS_STRUCTURE_H
#define SW_VERIFY_CHECKS_STRUCTURE_H

#include "verify/base/report.h"
#include "verify/base/subject.h"

/* Findings: "config" where what is stored is not what the config says, "twice" for a linear in two
 * forms, "unexpected" for a part of no use, "not finite", "differs" for a head. */
sw_code sw_verify_structure(sw_report *report, const sw_subject *checkpoint,
                            sw_err *err) SW_MUST_USE;

#endif
