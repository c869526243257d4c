/* names.h - the library's tables as lists of names, for options and messages. */
#ifndef SW_TOOLS_CLI_NAMES_H
#define SW_TOOLS_CLI_NAMES_H

#include "tools/cli/opt.h"

/* sw_opt_choice_fn each: the i-th name, NULL beyond the end. */
const char *sw_name_of_scheme(int i);
const char *sw_name_of_method(int i);
const char *sw_name_of_format(int i);
const char *sw_name_of_target(int i); /* of a conversion: formats, then plain floats */

#endif
