/* speed_text.h - the figures of speed_report.h as tables for people. */
#ifndef SW_TOOLS_VERIFY_SPEED_TEXT_H
#define SW_TOOLS_VERIFY_SPEED_TEXT_H

#include <stdio.h>

#include "verify/base/speed_report.h"

/* Nothing where nothing was measured. `columns` as sw_table_print. */
void sw_speed_print(FILE *out, const sw_report_speed *speed, int columns);

#endif
