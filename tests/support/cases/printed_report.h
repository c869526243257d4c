/* printed_report.h - what `verify` prints of a report, as text. */
#ifndef SW_TESTS_SUPPORT_CASES_PRINTED_REPORT_H
#define SW_TESTS_SUPPORT_CASES_PRINTED_REPORT_H

#include "verify/base/report.h"

/* On a terminal of so many columns; 0: in a file. Freed by free. */
char *printed_report(const sw_report *report, int columns);
/* Characters of the longest line that does not begin with `except` (or NULL: of all). */
int widest_line(const char *text, const char *except);

#endif
