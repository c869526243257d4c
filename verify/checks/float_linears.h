/* float_linears.h - linears that a checkpoint holds in floats and its original in codes.
 *
 * Written out of codes, a weight is the value that the codes stand for, rounded to the dtype it is
 * stored in. Nothing else explains it.
 */
#ifndef SW_VERIFY_CHECKS_FLOAT_LINEARS_H
#define SW_VERIFY_CHECKS_FLOAT_LINEARS_H

#include "formats/base/progress.h"
#include "verify/base/report.h"
#include "verify/base/subject.h"

/* Findings "differs" name the linear and the first element that is another. */
sw_code sw_verify_float_linears(sw_report *report, const sw_subject *checkpoint,
                                const sw_subject *original, const sw_progress *progress,
                                sw_err *err) SW_MUST_USE;
/* true when `path` is such a linear. */
bool sw_is_float_linear(const sw_subject *checkpoint, const sw_subject *original, const char *path);

#endif
