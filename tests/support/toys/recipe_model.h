/* recipe_model.h - a toy checkpoint out of a recipe in tests/golden/recipes, whose weights follow
 * from the names of its tensors. See the README.md there for the rule.
 */
#ifndef SW_TESTS_SUPPORT_TOYS_RECIPE_MODEL_H
#define SW_TESTS_SUPPORT_TOYS_RECIPE_MODEL_H

#include "formats/base/status.h"

/* Writes model.safetensors by recipe_dir/recipe.json into the directory `dir`, which exists, and
 * copies recipe_dir/`config` as config.json, with generation_config.json. SW_E_FORMAT names the
 * entry of a recipe that is not understood; SW_E_IO as sw_file_put. */
sw_code recipe_model_make(const char *dir, const char *recipe_dir, const char *config,
                          sw_err *err) SW_MUST_USE;

#endif
