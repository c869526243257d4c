/* int_list.h - "1,8,64": several numbers in one word of the command line. */
#ifndef SW_TOOLS_CLI_INT_LIST_H
#define SW_TOOLS_CLI_INT_LIST_H

#include <stdint.h>

#include "formats/base/status.h"

/* At most `max` numbers from 1 to INT32_MAX, separated by commas. SW_E_USAGE names `what`. */
sw_code sw_int_list(int64_t *out, int *n_out, int max, const char *text, const char *what,
                    sw_err *err) SW_MUST_USE;
/* One such number, the text from `begin` to `end`. */
sw_code sw_int_between(int64_t *out, const char *begin, const char *end, const char *what,
                       sw_err *err) SW_MUST_USE;

#endif
