/* wrappers.h - the decoder's part of a config.json; inside formats/model.
 *
 * A model with towers for pictures or sound keeps the decoder's keys in an object of their own
 * (text_config and other names), some keys beside it, and what its classes assume left out.
 */
#ifndef SW_FORMATS_MODEL_WRAPPERS_H
#define SW_FORMATS_MODEL_WRAPPERS_H

#include "formats/model/model.h"

/* *out is a copy of the decoder's keys with those of the wrapper that count for it and the
 * defaults of the wrapper's class; freed by cJSON_Delete. SW_E_FORMAT: objects nested too deep. */
sw_code sw_config_unwrap(cJSON **out, const cJSON *config, sw_err *err) SW_MUST_USE;
/* The name of the row that serves a model_type; the type itself where no other name is known. */
const char *sw_config_row_name(const char *model_type);

#endif
