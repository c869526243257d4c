/* recipe.c - see recipe.h: reading. Writing is in recipe_write.c. */
#include "tools/recipe/recipe.h"

#include <math.h>
#include <string.h>

#include "formats/num/pow2.h"
#include "tools/cli/names.h"

static const sw_json_caps recipe_caps = {.max_bytes = (size_t)16 << 20, .max_depth = 8,
                                         .max_values = 2000000};

typedef struct reader {
    sw_recipe *out;
    void *fields;
    const sw_opt *table;
    const bool *is_set;
    sw_arena *arena;
    sw_err *err;
} reader;

const char *const sw_recipe_not_keys[] = {"recipe", "help",     "json", "quiet",
                                          "progress", "color", "ranks", NULL};

bool sw_recipe_is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

/* Options are written with '-', keys with '_': both are read. */
static bool is_key_of(const sw_opt *row, const char *key)
{
    const char *name = row->name;

    for (; *name && *key; name++, key++)
        if (*name != *key && !(*name == '-' && *key == '_')) return false;
    return *name == *key && !sw_recipe_is_among(row->name, sw_recipe_not_keys);
}

static sw_code unknown_key(const reader *r, const char *key)
{
    const char *best = sw_opt_distance(key, "overrides") < 3 ? "overrides" : NULL;
    int best_distance = best ? sw_opt_distance(key, best) : 3;

    for (const sw_opt *row = r->table; row->name; row++) {
        int distance = sw_opt_distance(key, row->name);
        if (distance >= best_distance || sw_recipe_is_among(row->name, sw_recipe_not_keys))
            continue;
        best_distance = distance;
        best = row->name;
    }
    if (best)
        return SW_FAIL(r->err, SW_E_FORMAT, "unknown key \"%.60s\"; did you mean \"%s\"?", key,
                       best);
    return SW_FAIL(r->err, SW_E_FORMAT, "unknown key \"%.60s\"; keys are the options of the "
                   "command, without dashes, and \"overrides\"", key);
}

/* Two rows may share a field (--sym, --asym): either on the command line goes first. */
static bool is_taken(const reader *r, const sw_opt *row)
{
    for (int i = 0; r->is_set && r->table[i].name; i++)
        if (r->is_set[i] && r->table[i].offset == row->offset) return true;
    return false;
}

static sw_code wrong_type(const reader *r, const sw_opt *row, const char *want)
{
    return SW_FAIL(r->err, SW_E_FORMAT, "\"%s\" must be %s", row->name, want);
}

/* false is the other flag of the field when there is one ("sym": false is asym), else nothing. */
static sw_code read_flag(const reader *r, const sw_opt *row, const cJSON *value)
{
    int *field = (int *)(void *)((char *)r->fields + row->offset);

    if (!cJSON_IsBool(value)) return wrong_type(r, row, "true or false");
    if (cJSON_IsTrue(value)) {
        *field = row->set_to;
        return SW_OK;
    }
    for (const sw_opt *other = r->table; other->name; other++)
        if (other != row && other->offset == row->offset) *field = other->set_to;
    return SW_OK;
}

/* A number or a text, as it would stand on the command line. */
static sw_code store_value(const reader *r, const sw_opt *row, const cJSON *value, int list_room)
{
    char number[40];
    char *text = NULL;
    sw_code rc;

    if (cJSON_IsNumber(value)) {
        double v = value->valuedouble;
        bool is_whole = fabs(v) < 9007199254740992.0 && v <= floor(v);
        (void)snprintf(number, sizeof number, is_whole ? "%.0f" : "%.17g", v);
        rc = sw_arena_text(&text, r->arena, number, strlen(number), r->err);
    } else if (cJSON_IsString(value)) {
        rc = sw_arena_text(&text, r->arena, value->valuestring, strlen(value->valuestring),
                           r->err);
    } else {
        return wrong_type(r, row, row->kind == SW_OPT_LIST ? "texts" : "a number or a text");
    }
    if (rc != SW_OK) return rc;
    rc = sw_opt_store(r->fields, row, row->name, text, r->arena, list_room, r->err);
    if (rc == SW_E_USAGE) rc = r->err->code = SW_E_FORMAT; /* a file is wrong, not the line */
    return rc;
}

static sw_code read_list(const reader *r, const sw_opt *row, const cJSON *value)
{
    const cJSON *item;
    sw_opt_list *list = (sw_opt_list *)(void *)((char *)r->fields + row->offset);
    sw_code rc = SW_OK;

    *list = (sw_opt_list){NULL, 0};
    if (!cJSON_IsArray(value)) return store_value(r, row, value, 1);
    cJSON_ArrayForEach(item, value)
        if ((rc = store_value(r, row, item, cJSON_GetArraySize(value))) != SW_OK) break;
    return rc;
}

static sw_code read_key(const reader *r, const cJSON *value)
{
    const sw_opt *row = r->table;

    while (row->name && !is_key_of(row, value->string)) row++;
    if (!row->name) return unknown_key(r, value->string);
    if (is_taken(r, row)) return SW_OK;
    if (row->kind == SW_OPT_FLAG) return read_flag(r, row, value);
    if (row->kind == SW_OPT_LIST) return read_list(r, row, value);
    return store_value(r, row, value, 1);
}

static sw_code read_group(int64_t *out, const cJSON *object, sw_err *err)
{
    const cJSON *value = sw_json_member(object, "group_size");

    if (!value) value = sw_json_member(object, "group-size");
    if (!value) return SW_OK;
    if (cJSON_IsString(value) && !strcmp(value->valuestring, "channel")) {
        *out = 0;
        return SW_OK;
    }
    return sw_json_as_int(out, value, 1, 1 << 24, "group_size", err);
}

static sw_code read_bits(int *out, const cJSON *object, sw_err *err)
{
    int64_t bits = 0;
    char widths[SW_NUM_WIDTHS_BYTES];
    sw_code rc = sw_json_int(&bits, object, "bits", 1, 64, err);

    if (rc != SW_OK || !bits) return rc;
    if (bits > 8 || !sw_num_by_bits((int)bits))
        return SW_FAIL(err, SW_E_FORMAT, "no %lld-bit weights; %s there are", (long long)bits,
                       sw_num_widths(widths));
    *out = (int)bits;
    return SW_OK;
}

static sw_code read_mx_scale(int *out, const cJSON *object, sw_err *err)
{
    const char *key = sw_json_member(object, "mx-scale") ? "mx-scale" : "mx_scale", *name = NULL;
    sw_code rc = sw_json_text(&name, object, key, err);

    if (rc != SW_OK || !name) return rc;
    for (int i = 0; sw_pow2_rule_name(i); i++)
        if (!strcmp(sw_pow2_rule_name(i), name)) {
            *out = 1 + i;
            return SW_OK;
        }
    return SW_FAIL(err, SW_E_FORMAT, "no mx_scale \"%.40s\"; there are best, ocp, round and ceil",
                   name);
}

static sw_code read_scheme(const sw_scheme **out, const cJSON *object, sw_err *err)
{
    const char *name = NULL;
    sw_code rc = sw_json_text(&name, object, "scheme", err);

    if (rc != SW_OK || !name || (*out = sw_scheme_find(name)) != NULL) return rc;
    rc = sw_opt_unknown("scheme", name, sw_name_of_scheme, err);
    return rc == SW_E_USAGE ? (err->code = SW_E_FORMAT) : rc;
}

static const char *override_key(int i)
{
    static const char *const keys[] = {"match", "ignore", "scheme", "bits", "group_size",
                                       "group-size", "sym", "outliers", "mx_scale", "mx-scale",
                                       NULL};
    return keys[i];
}

static sw_code check_override_keys(const cJSON *object, sw_err *err)
{
    const cJSON *member;

    if (!cJSON_IsObject(object)) return SW_FAIL(err, SW_E_FORMAT, "not an object");
    cJSON_ArrayForEach(member, object)
    {
        int i = 0;
        while (override_key(i) && strcmp(override_key(i), member->string) != 0) i++;
        if (override_key(i)) continue;
        const char *near = sw_opt_nearest(member->string, override_key);
        return SW_FAIL(err, SW_E_FORMAT, "unknown key \"%.60s\"; %s%s", member->string,
                       near ? "did you mean "
                            : "there are match, ignore, scheme, bits, group_size, sym, outliers, "
                              "mx_scale",
                       near ? near : "");
    }
    return SW_OK;
}

static sw_code read_override(sw_override *out, const reader *r, const cJSON *object)
{
    sw_override one = {.group_elems = SW_GROUP_KEEP, .outlier_share = SW_SHARE_KEEP};
    const char *match = NULL;
    bool is_symmetric = false;
    char *kept;
    sw_code rc;

    if ((rc = check_override_keys(object, r->err)) != SW_OK ||
        (rc = sw_json_text(&match, object, "match", r->err)) != SW_OK ||
        (rc = sw_json_bool(&one.is_ignored, object, "ignore", r->err)) != SW_OK ||
        (rc = sw_json_bool(&is_symmetric, object, "sym", r->err)) != SW_OK ||
        (rc = sw_json_real(&one.outlier_share, object, "outliers", r->err)) != SW_OK ||
        (rc = read_scheme(&one.scheme, object, r->err)) != SW_OK ||
        (rc = read_bits(&one.bits, object, r->err)) != SW_OK ||
        (rc = read_group(&one.group_elems, object, r->err)) != SW_OK ||
        (rc = read_mx_scale(&one.mx_rule, object, r->err)) != SW_OK)
        return rc;
    if (!match || !match[0])
        return SW_FAIL(r->err, SW_E_FORMAT,
                       "has no \"match\", the pattern of the linears it is for");
    if (sw_json_member(object, "sym")) one.symmetry = is_symmetric ? 1 : 2;
    if (sw_json_member(object, "outliers") &&
        !(one.outlier_share >= 0 && one.outlier_share <= SW_OUTLIER_SHARE_MAX))
        return SW_FAIL(r->err, SW_E_FORMAT, "outliers %g: a share from 0 to %g", one.outlier_share,
                       SW_OUTLIER_SHARE_MAX);
    if (!one.is_ignored && !one.scheme && !one.bits && !one.symmetry &&
        one.group_elems == SW_GROUP_KEEP && one.outlier_share < 0 && !one.mx_rule)
        return SW_FAIL(r->err, SW_E_FORMAT,
                       "changes nothing: give scheme, bits, group_size, sym, outliers, mx_scale "
                       "or ignore");
    if ((rc = sw_arena_text(&kept, r->arena, match, strlen(match), r->err)) != SW_OK) return rc;
    one.match = kept;
    *out = one;
    return SW_OK;
}

static sw_code read_overrides(const reader *r, const cJSON *list)
{
    const cJSON *item;
    int n = cJSON_GetArraySize(list);
    sw_code rc;

    if (!cJSON_IsArray(list)) return SW_FAIL(r->err, SW_E_FORMAT, "\"overrides\" must be a list");
    if (n > SW_RECIPE_OVERRIDES_MAX)
        return SW_FAIL(r->err, SW_E_FORMAT, "%d overrides, at most %d", n,
                       SW_RECIPE_OVERRIDES_MAX);
    if ((rc = SW_ARENA_TAKE(&r->out->overrides, r->arena, n, r->err)) != SW_OK) return rc;
    cJSON_ArrayForEach(item, list)
    {
        rc = read_override(&r->out->overrides[r->out->n_overrides], r, item);
        if (rc != SW_OK) {
            sw_err_prefix(r->err, "overrides[%d]", r->out->n_overrides);
            return rc;
        }
        r->out->n_overrides++;
    }
    return SW_OK;
}

static sw_code read_object(const reader *r, const cJSON *object)
{
    const cJSON *member;
    sw_code rc = SW_OK;

    if (!cJSON_IsObject(object)) return SW_FAIL(r->err, SW_E_FORMAT, "not an object of keys");
    cJSON_ArrayForEach(member, object)
    {
        rc = strcmp(member->string, "overrides") ? read_key(r, member)
                                                 : read_overrides(r, member);
        if (rc != SW_OK) break;
    }
    return rc;
}

sw_code sw_recipe_parse(sw_recipe *out, void *fields, const sw_opt *table, const bool *is_set,
                        const char *text, size_t n_bytes, const char *what, sw_arena *arena,
                        sw_err *err)
{
    sw_recipe recipe = {NULL, 0};
    reader r = {&recipe, fields, table, is_set, arena, err};
    cJSON *object = NULL;
    sw_code rc = sw_json_parse(&object, text, n_bytes, &recipe_caps, what, err);

    if (rc != SW_OK) return rc;
    if ((rc = read_object(&r, object)) == SW_OK)
        *out = recipe;
    else
        sw_err_prefix(err, "%s", what);
    cJSON_Delete(object);
    return rc;
}

sw_code sw_recipe_read(sw_recipe *out, void *fields, const sw_opt *table, const bool *is_set,
                       const char *path, sw_arena *arena, sw_err *err)
{
    sw_map map = {0};
    sw_code rc = sw_map_open(&map, path, err);

    if (rc != SW_OK) return rc;
    rc = sw_recipe_parse(out, fields, table, is_set, (const char *)map.data, map.size_bytes, path,
                         arena, err);
    sw_map_close(&map);
    return rc;
}
