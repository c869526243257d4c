/* recipe_write.c - see recipe.h: a recipe out of options. */
#include <string.h>

#include "formats/num/pow2.h"
#include "tools/recipe/recipe.h"

/* These say where and how to run, not what is made. */
static const char *const of_the_run[] = {"out", "html", "force", "json", "quiet", "threads",
                                         "ranks", "restart", "memory", "emit-recipe", NULL};

typedef struct writer {
    cJSON *object;
    const char *fields, *defaults;
} writer;

static bool add_flag(const writer *w, const char *key, const sw_opt *row)
{
    int v, was;

    memcpy(&v, w->fields + row->offset, sizeof v);
    memcpy(&was, w->defaults + row->offset, sizeof was);
    return v == was || v != row->set_to || cJSON_AddTrueToObject(w->object, key);
}

static bool add_int(const writer *w, const char *key, const sw_opt *row)
{
    int64_t v, was;

    memcpy(&v, w->fields + row->offset, sizeof v);
    memcpy(&was, w->defaults + row->offset, sizeof was);
    return v == was || cJSON_AddNumberToObject(w->object, key, (double)v);
}

static bool add_real(const writer *w, const char *key, const sw_opt *row)
{
    double v;

    memcpy(&v, w->fields + row->offset, sizeof v);
    if (!memcmp(w->fields + row->offset, w->defaults + row->offset, sizeof v)) return true;
    return row->word && v < 0 ? cJSON_AddStringToObject(w->object, key, row->word) != NULL
                              : cJSON_AddNumberToObject(w->object, key, v) != NULL;
}

static bool add_text(const writer *w, const char *key, const sw_opt *row)
{
    const char *v, *was;

    memcpy(&v, w->fields + row->offset, sizeof v);
    memcpy(&was, w->defaults + row->offset, sizeof was);
    if (!v || (was && !strcmp(v, was))) return true;
    return cJSON_AddStringToObject(w->object, key, v) != NULL;
}

static bool add_size(const writer *w, const char *key, const sw_opt *row)
{
    uint64_t v, was;

    memcpy(&v, w->fields + row->offset, sizeof v);
    memcpy(&was, w->defaults + row->offset, sizeof was);
    return v == was || cJSON_AddNumberToObject(w->object, key, (double)v);
}

static bool add_list(const writer *w, const char *key, const sw_opt *row)
{
    sw_opt_list list;
    cJSON *array;

    memcpy(&list, w->fields + row->offset, sizeof list);
    if (!list.n) return true;
    array = cJSON_AddArrayToObject(w->object, key);
    for (int i = 0; array && i < list.n; i++)
        if (!cJSON_AddItemToArray(array, cJSON_CreateString(list.items[i]))) return false;
    return array != NULL;
}

typedef bool (*add_fn)(const writer *w, const char *key, const sw_opt *row);

static const add_fn adders[SW_OPT_KIND_COUNT] = {
    [SW_OPT_FLAG] = add_flag, [SW_OPT_INT] = add_int,     [SW_OPT_REAL] = add_real,
    [SW_OPT_TEXT] = add_text, [SW_OPT_CHOICE] = add_text, [SW_OPT_SIZE] = add_size,
    [SW_OPT_LIST] = add_list,
};

static bool add_row(const writer *w, const sw_opt *row)
{
    char key[64];
    size_t n = strlen(row->name);

    if (n >= sizeof key || sw_recipe_is_among(row->name, of_the_run) ||
        sw_recipe_is_among(row->name, sw_recipe_not_keys))
        return true;
    for (size_t i = 0; i <= n; i++) key[i] = row->name[i];
    for (size_t i = 0; i < n; i++)
        if (key[i] == '-') key[i] = '_';
    return adders[row->kind](w, key, row);
}

static bool add_override(cJSON *list, const sw_override *o)
{
    cJSON *row = cJSON_CreateObject();
    bool ok = row && cJSON_AddItemToArray(list, row) &&
              cJSON_AddStringToObject(row, "match", o->match);

    if (ok && o->is_ignored) ok = cJSON_AddTrueToObject(row, "ignore") != NULL;
    if (ok && o->scheme) ok = cJSON_AddStringToObject(row, "scheme", o->scheme->name) != NULL;
    if (ok && o->bits) ok = cJSON_AddNumberToObject(row, "bits", o->bits) != NULL;
    if (ok && o->group_elems > 0)
        ok = cJSON_AddNumberToObject(row, "group_size", (double)o->group_elems) != NULL;
    if (ok && o->group_elems == 0)
        ok = cJSON_AddStringToObject(row, "group_size", "channel") != NULL;
    if (ok && o->outlier_share >= 0)
        ok = cJSON_AddNumberToObject(row, "outliers", o->outlier_share) != NULL;
    if (ok && o->mx_rule)
        ok = cJSON_AddStringToObject(row, "mx_scale", sw_pow2_rule_name(o->mx_rule - 1)) != NULL;
    if (ok && o->symmetry) ok = cJSON_AddBoolToObject(row, "sym", o->symmetry == 1) != NULL;
    return ok;
}

static bool add_overrides(cJSON *object, const sw_recipe *recipe)
{
    cJSON *list;
    bool ok = true;

    if (!recipe || !recipe->n_overrides) return true;
    list = cJSON_AddArrayToObject(object, "overrides");
    for (int i = 0; list && ok && i < recipe->n_overrides; i++)
        ok = add_override(list, &recipe->overrides[i]);
    return list && ok;
}

sw_code sw_recipe_object(cJSON **out, const void *fields, const void *defaults,
                         const sw_opt *table, const sw_recipe *recipe, sw_err *err)
{
    writer w = {cJSON_CreateObject(), fields, defaults};
    bool ok = w.object != NULL;

    for (const sw_opt *row = table; ok && row->name; row++) ok = add_row(&w, row);
    if (!ok || !add_overrides(w.object, recipe)) {
        cJSON_Delete(w.object);
        return SW_FAIL(err, SW_E_NOMEM, "no memory for a recipe");
    }
    *out = w.object;
    return SW_OK;
}
