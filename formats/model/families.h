/* families.h - the config keys that only some decoder families have; inside formats/model. */
#ifndef SW_FORMATS_MODEL_FAMILIES_H
#define SW_FORMATS_MODEL_FAMILIES_H

#include "formats/model/model.h"

/* Each fills what sw_model_read leaves to the family: biases, window, experts. The sizes that
 * every family has are in *model already. Errors name the key. */
sw_code sw_family_read_llama(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_mistral(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_mixtral(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;

#endif
