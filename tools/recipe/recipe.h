/* recipe.h - a file that says what the options of a command say, and what differs per linear.
 *
 *   {"scheme": "W4A16", "method": "gptq", "group_size": 64, "calib": ["calib.txt"],
 *    "overrides": [{"match": "down_proj", "bits": 8}, {"match": "layers\\.0\\.", "ignore": true}]}
 *
 * Keys are the long options, '_' for '-'; the command line goes before the recipe. Overrides are
 * applied in order, each over those before it: "match" (PCRE2, searched anywhere in a module
 * path) with any of "scheme", "bits", "group_size" (a number or "channel"), "sym", "outliers",
 * "mx_scale", "ignore". A scheme comes first: the others of its object change it.
 */
#ifndef SW_TOOLS_RECIPE_RECIPE_H
#define SW_TOOLS_RECIPE_RECIPE_H

#include <stdbool.h>

#include "formats/base/json.h"
#include "tools/cli/opt.h"
#include "tools/recipe/selection.h"

#define SW_RECIPE_OVERRIDES_MAX 100000

typedef struct sw_recipe {
    sw_override *overrides; /* texts in the arena that it was read into */
    int n_overrides;
} sw_recipe;

/* Read the file at `path` into `fields`, which `table` describes: every row but those whose field
 * is_set says was given on the command line (as sw_opt_args.is_set). SW_E_FORMAT names file and
 * key: not JSON, an unknown key (with the nearest known one), a value of another type or out of
 * range. *fields is undefined on failure. */
sw_code sw_recipe_read(sw_recipe *out, void *fields, const sw_opt *table, const bool *is_set,
                       const char *path, sw_arena *arena, sw_err *err) SW_MUST_USE;
/* The same from text; `what` names it in messages. */
sw_code sw_recipe_parse(sw_recipe *out, void *fields, const sw_opt *table, const bool *is_set,
                        const char *text, size_t n_bytes, const char *what, sw_arena *arena,
                        sw_err *err) SW_MUST_USE;

/* The recipe that makes `defaults` into `fields`, for writing to a file: rows whose values differ,
 * save those that say where and how to run, and the overrides. Owned by the caller. */
sw_code sw_recipe_object(cJSON **out, const void *fields, const void *defaults,
                         const sw_opt *table, const sw_recipe *recipe, sw_err *err) SW_MUST_USE;

/* What the two halves of recipe.h share. */

extern const char *const sw_recipe_not_keys[]; /* options that no recipe can hold; ends with NULL */
bool sw_recipe_is_among(const char *name, const char *const *names);

#endif
