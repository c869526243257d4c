/* rules.h - which scheme each linear of a mixed checkpoint has.
 *
 * A quantization_config names modules exactly or by pattern; the first rule that fits decides.
 * The index answers for one path at a time, exact names by bisection.
 */
#ifndef SW_FORMATS_DIALECT_RULES_H
#define SW_FORMATS_DIALECT_RULES_H

#include "formats/dialect/dialect.h"

typedef struct sw_rules sw_rules;

/* An index over config->rules, which stay borrowed. SW_E_FORMAT: a pattern that is none. */
sw_code sw_rules_new(sw_rules **out, const sw_qconfig *config, sw_err *err) SW_MUST_USE;
void sw_rules_free(sw_rules *rules); /* accepts NULL */

/* The scheme of the linear at `module_path`. SW_E_FORMAT: no rule names it and the config has no
 * scheme for all others; or a pattern too expensive to match. Any number of threads may ask. */
sw_code sw_rules_find(sw_qspec *out, const sw_rules *rules, const char *module_path,
                      sw_err *err) SW_MUST_USE;

#endif
