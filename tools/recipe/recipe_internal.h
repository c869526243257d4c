/* recipe_internal.h - what the two halves of recipe.h share. */
#ifndef SW_TOOLS_RECIPE_RECIPE_INTERNAL_H
#define SW_TOOLS_RECIPE_RECIPE_INTERNAL_H

#include <stdbool.h>

extern const char *const sw_recipe_not_keys[]; /* options that no recipe can hold; ends with NULL */
bool sw_recipe_is_among(const char *name, const char *const *names);

#endif
