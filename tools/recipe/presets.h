/* presets.h - recipes that come with the program: `--recipe NAME` takes one in place of a file.
 *
 * Each names the families that it is recommended for, one recipe a family, and says why.
 */
#ifndef SW_TOOLS_RECIPE_PRESETS_H
#define SW_TOOLS_RECIPE_PRESETS_H

#include <stdbool.h>

typedef struct sw_preset {
    const char *name;
    const char *why;      /* one sentence */
    const char *families; /* model types, separated by blanks */
    const char *text;     /* what a file would hold, as recipe.h says */
} sw_preset;

extern const sw_preset sw_presets[];
extern const int sw_n_presets;

/* NULL when there is none; case does not count, and '_' is '-'. */
const sw_preset *sw_preset_find(const char *name);
/* The one recommended for a model type, or NULL. */
const sw_preset *sw_preset_for(const char *model_type);
const char *sw_preset_name(int i); /* NULL beyond the end */
/* Could this text be meant as a name, not as a path: nothing of it is a dot or a slash. */
bool sw_preset_is_name(const char *text);

#endif
