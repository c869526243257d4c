/* test_presets.c - the recipes that come with the program: each reads, each family has one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/model/model.h"
#include "tools/quantize/quantize_job.h"
#include "tools/recipe/presets.h"

static void each_reads_as_a_recipe(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_presets; i++) {
        const sw_preset *p = &sw_presets[i];
        sw_quantize_options o = sw_quantize_defaults;
        sw_recipe r = {NULL, 0};
        sw_arena arena = {0};
        sw_err err = {0};

        if (sw_recipe_parse(&r, &o, sw_quantize_rows, NULL, p->text, strlen(p->text), p->name,
                            &arena, &err) != SW_OK)
            fail_msg("%s", err.text);
        assert_true(strcmp(o.format, sw_quantize_defaults.format) != 0);
        assert_true(strlen(p->why) > 40 && !strchr(p->why, '.'));
        assert_ptr_equal(sw_preset_find(p->name), p);
        sw_arena_free(&arena);
    }
}

static void schemes_of_overrides_land(void **state)
{
    const sw_preset *p = sw_preset_find("NVFP4_experts_FP8");
    sw_quantize_options o = sw_quantize_defaults;
    sw_recipe r = {NULL, 0};
    sw_arena arena = {0};
    sw_err err = {0};

    (void)state;
    assert_non_null(p);
    assert_int_equal(sw_recipe_parse(&r, &o, sw_quantize_rows, NULL, p->text, strlen(p->text), "p",
                                     &arena, &err), SW_OK);
    assert_string_equal(o.scheme, "FP8_BLOCK");
    assert_int_equal(r.n_overrides, 1);
    assert_string_equal(r.overrides[0].scheme->name, "NVFP4");
    sw_arena_free(&arena);
}

static void each_family_has_one(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_archs; i++)
        if (!sw_preset_for(sw_archs[i].name)) fail_msg("no recipe for %s", sw_archs[i].name);
    for (int i = 0; i < sw_n_presets; i++) {
        char families[1024], *rest = NULL;

        (void)snprintf(families, sizeof families, "%s", sw_presets[i].families);
        for (char *f = strtok_r(families, " ", &rest); f; f = strtok_r(NULL, " ", &rest))
            if (sw_preset_for(f) != &sw_presets[i])
                fail_msg("%s stands at %s and at %s", f, sw_preset_for(f)->name,
                         sw_presets[i].name);
    }
    assert_string_equal(sw_preset_for("qwen3")->name, "w4a16"); /* a part of "qwen3_moe" */
    assert_null(sw_preset_for("qwen"));
    assert_null(sw_preset_for(""));
}

static void names_are_told_from_paths(void **state)
{
    (void)state;
    assert_true(sw_preset_is_name("fp8-block"));
    assert_false(sw_preset_is_name("recipe.json"));
    assert_false(sw_preset_is_name("dir/recipe"));
    assert_null(sw_preset_find("fp8"));
    assert_null(sw_preset_find("fp8-block-pow2"));
    assert_null(sw_preset_name(sw_n_presets));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reads_as_a_recipe),
        cmocka_unit_test(schemes_of_overrides_land),
        cmocka_unit_test(each_family_has_one),
        cmocka_unit_test(names_are_told_from_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
