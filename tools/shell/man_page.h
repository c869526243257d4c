/* man_page.h - manual pages made of the commands' tables, in the man(7) macros that both groff and
 * mandoc know. */
#ifndef SW_TOOLS_SHELL_MAN_PAGE_H
#define SW_TOOLS_SHELL_MAN_PAGE_H

#include "tools/shell/made_text.h"

void sw_man_overview(sw_made_text *t);                  /* swage(1) */
void sw_man_command(sw_made_text *t, const sw_cmd *cmd); /* swage-quantize(1) */

#endif
