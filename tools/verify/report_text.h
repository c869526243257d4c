/* report_text.h - the report of verify as tables for people. */
#ifndef SW_TOOLS_VERIFY_REPORT_TEXT_H
#define SW_TOOLS_VERIFY_REPORT_TEXT_H

#include <stdio.h>

#include "verify/base/report.h"

/* What decides, and the tensors that are worst off; the JSON object has everything. `columns` as
 * sw_table_print; where it is 0, figures are in lines of at most 100 columns. SW_E_NOMEM. */
sw_code sw_report_print(FILE *out, const sw_report *report, int columns, sw_err *err) SW_MUST_USE;

#endif
