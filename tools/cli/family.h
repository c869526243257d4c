/* family.h - what results say of a model whose model_type has no row of its own. */
#ifndef SW_TOOLS_CLI_FAMILY_H
#define SW_TOOLS_CLI_FAMILY_H

#include "formats/checkpoint/checkpoint.h"

#define SW_FAMILY_TEXT_BYTES 200

/* model_type as config.json has it, "(absent)" when it has none. */
const char *sw_family_type(const cJSON *config);
/* "frobnicate, read as llama", "frobnicate, which is not known: weights alone"; of a family with a
 * row its name. Returns `out`. */
char *sw_family_text(char out[SW_FAMILY_TEXT_BYTES], const sw_model *model, const cJSON *config);
/* "arch_like": the family that stood in; or "weights_alone": true, for one that is not known at
 * all; nothing for other families. SW_E_NOMEM. */
sw_code sw_family_add_json(cJSON *root, const sw_model *model, sw_err *err) SW_MUST_USE;

#endif
