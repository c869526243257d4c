/* options_check.h - what verify is asked that cannot be done, told before any work. */
#ifndef SW_VERIFY_OPTIONS_CHECK_H
#define SW_VERIFY_OPTIONS_CHECK_H

#include "verify/base/options.h"

/* SW_E_USAGE: a gate without what it is about, a limit that is none, states that nobody could use,
 * a request about speed that nothing can be measured by. */
sw_code sw_verify_check_options(const sw_verify_options *options, sw_err *err) SW_MUST_USE;

#endif
