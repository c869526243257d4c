/* expand_recipe.c - a checkpoint out of a recipe, for scripts.
 *
 *   expand_recipe RECIPE_DIR DIR [CONFIG]
 *
 * DIR is made; CONFIG is config.json or config_hub.json. Exit code 1 says on stderr what went
 * wrong.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "tests/support/toys/recipe_model.h"

int main(int argc, char **argv)
{
    sw_err err = {0};

    if (argc != 3 && argc != 4) {
        (void)fprintf(stderr, "usage: expand_recipe RECIPE_DIR DIR [CONFIG]\n");
        return 1;
    }
    (void)mkdir(argv[2], 0777);
    if (recipe_model_make(argv[2], argv[1], argc == 4 ? argv[3] : "config.json", &err) == SW_OK)
        return 0;
    (void)fprintf(stderr, "expand_recipe: %s\n", err.text);
    return 1;
}
