/* fuzz_recipe.c - hostile recipes for `swage quantize`: what is accepted is within the rows of the
 * option table and comes back unchanged from being written. */
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cmd.h"
#include "tools/recipe/recipe.h"

extern const sw_cmd sw_cmd_quantize;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(int holds)
{
    if (!holds) abort();
}

/* Accepted overrides say something, and patterns that are none are found by who compiles them. */
static void check(const sw_recipe *r)
{
    for (int i = 0; i < r->n_overrides; i++) {
        const sw_override *o = &r->overrides[i];
        insist(o->match && o->match[0]);
        insist(o->bits == 0 || sw_num_by_bits(o->bits) != NULL);
        insist(o->group_elems >= SW_GROUP_KEEP);
        insist(o->mx_rule >= 0 && o->outlier_share <= SW_OUTLIER_SHARE_MAX);
        insist(o->is_ignored || o->bits || o->symmetry || o->group_elems >= 0 || o->mx_rule ||
               o->outlier_share >= 0);
    }
}

static void rewrite(const void *fields, const sw_recipe *r, void *again, sw_arena *arena)
{
    const sw_cmd *cmd = &sw_cmd_quantize;
    cJSON *object = NULL, *second = NULL;
    sw_recipe back = {NULL, 0};
    sw_err err = {0};
    char *text, *text2;

    insist(sw_recipe_object(&object, fields, cmd->defaults, cmd->options, r, &err) == SW_OK);
    text = cJSON_PrintUnformatted(object);
    insist(text != NULL);
    insist(sw_recipe_parse(&back, again, cmd->options, NULL, text, strlen(text), "written", arena,
                           &err) == SW_OK);
    insist(back.n_overrides == r->n_overrides);
    insist(sw_recipe_object(&second, again, cmd->defaults, cmd->options, &back, &err) == SW_OK);
    text2 = cJSON_PrintUnformatted(second);
    insist(text2 && !strcmp(text, text2));
    cJSON_free(text);
    cJSON_free(text2);
    cJSON_Delete(object);
    cJSON_Delete(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sw_cmd *cmd = &sw_cmd_quantize;
    void *fields = NULL, *again = NULL;
    sw_recipe r = {NULL, 0};
    sw_arena arena = {0};
    sw_err err = {0};

    insist(sw_arena_take(&fields, &arena, 1, cmd->options_bytes, &err) == SW_OK);
    insist(sw_arena_take(&again, &arena, 1, cmd->options_bytes, &err) == SW_OK);
    memcpy(fields, cmd->defaults, cmd->options_bytes);
    memcpy(again, cmd->defaults, cmd->options_bytes);
    if (sw_recipe_parse(&r, fields, cmd->options, NULL, (const char *)data, size, "input", &arena,
                        &err) == SW_OK) {
        check(&r);
        rewrite(fields, &r, again, &arena);
    } else {
        insist(err.text[0] != '\0');
    }
    sw_arena_free(&arena);
    return 0;
}
