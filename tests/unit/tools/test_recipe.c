/* test_recipe.c - recipes: what they set, what the command line keeps, what is refused and how,
 * and that a written recipe reads back as what it was made from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/recipe/recipe.h"

typedef struct fields {
    int symmetry, may_replace;
    int64_t samples;
    double damp;
    const char *out, *bits, *group_size;
    uint64_t shard_bytes;
    sw_opt_list calib, ignore;
    const char *recipe;
} fields;

static const char *bits_name(int i)
{
    static const char *const names[] = {"2", "3", "4", "8", NULL};
    return names[i];
}

static const char *group_name(int i)
{
    static const char *const names[] = {"32", "64", "channel", NULL};
    return names[i];
}

#define AT(field) .offset = offsetof(fields, field)
static const sw_opt table[] = {
    {.name = "sym", .kind = SW_OPT_FLAG, AT(symmetry), .set_to = 1},
    {.name = "asym", .kind = SW_OPT_FLAG, AT(symmetry), .set_to = 2},
    {.name = "force", .kind = SW_OPT_FLAG, AT(may_replace), .set_to = 1},
    {.name = "samples", .kind = SW_OPT_INT, AT(samples), .min = 1, .max = 1000},
    {.name = "damp", .kind = SW_OPT_REAL, AT(damp), .min = 0, .max = 1},
    {.name = "out", .kind = SW_OPT_TEXT, AT(out)},
    {.name = "bits", .kind = SW_OPT_CHOICE, AT(bits), .choices = bits_name},
    {.name = "group-size", .kind = SW_OPT_CHOICE, AT(group_size), .choices = group_name},
    {.name = "shard-size", .kind = SW_OPT_SIZE, AT(shard_bytes)},
    {.name = "calib", .kind = SW_OPT_LIST, AT(calib)},
    {.name = "ignore", .kind = SW_OPT_LIST, AT(ignore)},
    {.name = "recipe", .kind = SW_OPT_TEXT, AT(recipe)},
    {0},
};

static sw_code parse(sw_recipe *out, fields *f, const bool *is_set, const char *text,
                     sw_arena *arena, sw_err *err)
{
    return sw_recipe_parse(out, f, table, is_set, text, strlen(text), "r.json", arena, err);
}

static const char whole[] =
    "{\"sym\": false, \"samples\": 64, \"damp\": 0.05, \"bits\": 3, \"group_size\": \"channel\","
    " \"shard-size\": \"64K\", \"calib\": [\"a.txt\", \"b.txt\"], \"ignore\": \"lm\","
    " \"overrides\": [{\"match\": \"down\", \"bits\": 8, \"group-size\": 64, \"sym\": true},"
    " {\"match\": \"k\\\\d\", \"ignore\": true}, {\"match\": \"x\", \"group_size\": \"channel\","
    " \"mx_scale\": \"ocp\"}]}";

static void every_key_lands(void **state)
{
    fields f = {.samples = 128, .may_replace = 0};
    sw_recipe r = {NULL, 0};
    sw_arena arena = {0};
    sw_err err = {0};

    (void)state;
    if (parse(&r, &f, NULL, whole, &arena, &err) != SW_OK) fail_msg("%s", err.text);
    assert_int_equal(f.symmetry, 2);
    assert_int_equal(f.samples, 64);
    assert_true(f.damp > 0.049 && f.damp < 0.051);
    assert_string_equal(f.bits, "3");
    assert_string_equal(f.group_size, "channel");
    assert_int_equal(f.shard_bytes, 65536);
    assert_int_equal(f.calib.n, 2);
    assert_string_equal(f.calib.items[1], "b.txt");
    assert_int_equal(f.ignore.n, 1);
    assert_int_equal(r.n_overrides, 3);
    assert_string_equal(r.overrides[0].match, "down");
    assert_int_equal(r.overrides[0].bits, 8);
    assert_int_equal(r.overrides[0].group_elems, 64);
    assert_int_equal(r.overrides[0].symmetry, 1);
    assert_false(r.overrides[0].is_ignored);
    assert_string_equal(r.overrides[1].match, "k\\d");
    assert_true(r.overrides[1].is_ignored);
    assert_int_equal(r.overrides[1].group_elems, SW_GROUP_KEEP);
    assert_int_equal(r.overrides[2].group_elems, 0);
    assert_int_equal(r.overrides[2].mx_rule, 2);
    assert_int_equal(r.overrides[0].mx_rule, 0);
    sw_arena_free(&arena);
}

/* --asym on the line silences "sym" of the recipe: they are one setting. */
static void the_line_goes_first(void **state)
{
    static const char *const given[] = {"mine.txt"};
    bool is_set[16] = {[1] = true, [3] = true, [9] = true};
    fields f = {.symmetry = 2, .samples = 5, .calib = {(const char **)(uintptr_t)given, 1}};
    sw_recipe r = {NULL, 0};
    sw_arena arena = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(parse(&r, &f, is_set,
                           "{\"sym\": true, \"samples\": 64, \"calib\": [\"a\", \"b\"],"
                           " \"bits\": \"4\"}", &arena, &err), SW_OK);
    assert_int_equal(f.symmetry, 2);
    assert_int_equal(f.samples, 5);
    assert_int_equal(f.calib.n, 1);
    assert_string_equal(f.calib.items[0], "mine.txt");
    assert_string_equal(f.bits, "4");
    sw_arena_free(&arena);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"sampels\": 3}", "r.json: unknown key \"sampels\"; did you mean \"samples\"?"},
        {"{\"syn\": true}", "did you mean \"sym\"?"}, /* not asym, which comes later */
        {"{\"override\": []}", "did you mean \"overrides\"?"},
        {"{\"colour\": 3}", "unknown key \"colour\"; keys are"},
        {"{\"recipe\": \"x\"}", "unknown key \"recipe\""},
        {"{\"help\": true}", "unknown key \"help\""},
        {"{\"samples\": \"many\"}", "samples: 'many' is not a whole number"},
        {"{\"samples\": 0}", "samples: 0 is outside 1..1000"},
        {"{\"samples\": 1.5}", "samples"},
        {"{\"samples\": [1]}", "\"samples\" must be a number or a text"},
        {"{\"bits\": 5}", "there are 2, 3, 4, 8"},
        {"{\"force\": 1}", "\"force\" must be true or false"},
        {"{\"calib\": [1, {}]}", "\"calib\" must be texts"},
        {"{\"calib\": [\"\"]}", "calib needs a value"},
        {"{\"out\": null}", "\"out\" must be"},
        {"[]", "not an object"},
        {"{\"bits\": 4, \"bits\": 8}", "duplicate"},
        {"{\"overrides\": {}}", "\"overrides\" must be a list"},
        {"{\"overrides\": [3]}", "overrides[0]: not an object"},
        {"{\"overrides\": [{\"match\": \"a\", \"bits\": 4}, {\"bits\": 4}]}",
         "overrides[1]: has no \"match\""},
        {"{\"overrides\": [{\"match\": \"\", \"bits\": 4}]}", "no \"match\""},
        {"{\"overrides\": [{\"match\": \"a\"}]}", "changes nothing"},
        {"{\"overrides\": [{\"match\": \"a\", \"bit\": 4}]}", "did you mean bits"},
        {"{\"overrides\": [{\"match\": \"a\", \"bits\": 5}]}", "no 5-bit weights"},
        {"{\"overrides\": [{\"match\": \"a\", \"group_size\": 0}]}", "group_size"},
        {"{\"overrides\": [{\"match\": \"a\", \"group_size\": \"chanel\"}]}", "group_size"},
        {"{\"overrides\": [{\"match\": \"a\", \"sym\": 1}]}", "sym"},
        {"{\"overrides\": [{\"match\": \"a\", \"mx_scale\": \"up\"}]}", "no mx_scale \"up\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fields f = {.samples = 1};
        sw_recipe r = {NULL, 0};
        sw_arena arena = {0};
        sw_err err = {0};
        sw_code rc = parse(&r, &f, NULL, rows[i].text, &arena, &err);
        if (rc != SW_E_FORMAT || err.code != rc || !strstr(err.text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].text, rc, err.text);
        sw_arena_free(&arena);
    }
}

static void a_written_recipe_reads_back(void **state)
{
    static const fields defaults = {.samples = 128, .damp = 0.01, .bits = "4"};
    fields f = defaults, back = defaults;
    sw_recipe r = {NULL, 0}, again = {NULL, 0};
    sw_arena arena = {0};
    sw_err err = {0};
    cJSON *object = NULL, *second = NULL;
    char *text, *text2;

    (void)state;
    assert_int_equal(parse(&r, &f, NULL, whole, &arena, &err), SW_OK);
    f.out = "not in a recipe";
    f.may_replace = 1;
    assert_int_equal(sw_recipe_object(&object, &f, &defaults, table, &r, &err), SW_OK);
    text = cJSON_PrintUnformatted(object);
    assert_null(strstr(text, "not in a recipe"));
    assert_null(strstr(text, "force"));
    if (parse(&again, &back, NULL, text, &arena, &err) != SW_OK) fail_msg("%s", err.text);
    assert_int_equal(again.n_overrides, 3);
    assert_int_equal(again.overrides[2].mx_rule, 2);
    assert_null(back.out);
    assert_int_equal(sw_recipe_object(&second, &back, &defaults, table, &again, &err), SW_OK);
    text2 = cJSON_PrintUnformatted(second);
    assert_string_equal(text, text2);
    cJSON_free(text);
    cJSON_free(text2);
    cJSON_Delete(object);
    cJSON_Delete(second);
    sw_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_lands),
        cmocka_unit_test(the_line_goes_first),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_written_recipe_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
