/* config_beyond.c - the keys of our own dialect for what goes beyond integers under scales of
 * their own:
 *   "weights"       "e4m3", ... or "int4", ...: codes of "bits" bits
 *   "scale_dtype"   of the stored scales
 *   "scale_rows"    output channels that share scales; -1: all
 *   "pow2_scales"   true: every scale is a power of two
 *   "global_scale"  true: P.tile_global multiplies all values
 *   "inputs"        {"format", "scope": "none"|"tensor"|"token"|"group", "group_size",
 *                   "scale_dtype"}
 */
#include <string.h>

#include "formats/dialect/dialect_common.h"

static const char *const scopes[SW_ACT_SCOPE_COUNT] = {
    [SW_ACT_NONE] = "none", [SW_ACT_TENSOR] = "tensor", [SW_ACT_TOKEN] = "token",
    [SW_ACT_GROUP] = "group"};

bool sw_spec_is_classic(const sw_qspec *spec)
{
    return spec->num->kind == SW_NUM_INT && spec->scale_rows >= 0 && spec->scale_rows <= 1 &&
           !spec->is_pow2_scale && !spec->has_global && spec->act.scope == SW_ACT_NONE;
}

bool sw_config_add_beyond(cJSON *object, const sw_qspec *spec)
{
    const sw_act *act = &spec->act;
    cJSON *inputs;

    if (!cJSON_AddStringToObject(object, "weights", spec->num->name) ||
        !cJSON_AddStringToObject(object, "scale_dtype", sw_dtype_name(spec->scale_dtype)) ||
        !cJSON_AddNumberToObject(object, "scale_rows", (double)spec->scale_rows) ||
        !cJSON_AddBoolToObject(object, "pow2_scales", spec->is_pow2_scale) ||
        !cJSON_AddBoolToObject(object, "global_scale", spec->has_global) ||
        !(inputs = cJSON_AddObjectToObject(object, "inputs")) ||
        !cJSON_AddStringToObject(inputs, "scope", scopes[act->scope]))
        return false;
    if (act->scope == SW_ACT_NONE) return true;
    return cJSON_AddStringToObject(inputs, "format", act->num->name) &&
           cJSON_AddNumberToObject(inputs, "group_size", (double)act->group_elems) &&
           cJSON_AddStringToObject(inputs, "scale_dtype", sw_dtype_name(act->scale_dtype));
}

static sw_code read_dtype(sw_dtype *out, const cJSON *object, sw_err *err)
{
    const char *name = NULL;
    sw_code rc = sw_json_text(&name, object, "scale_dtype", err);

    if (rc != SW_OK || !name) return rc;
    if (sw_dtype_find(out, name, strlen(name))) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "scale_dtype \"%.40s\" is none that is known", name);
}

static sw_code read_num(const sw_num **out, const cJSON *object, const char *key, sw_err *err)
{
    const char *name = NULL;
    const sw_num *num;
    sw_code rc = sw_json_text(&name, object, key, err);

    if (rc != SW_OK || !name) return rc;
    if (!(num = sw_num_find(name)))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s \"%.40s\" is no number format that is known", key,
                       name);
    *out = num;
    return SW_OK;
}

static sw_code read_inputs(sw_act *out, const cJSON *inputs, sw_err *err)
{
    sw_act act = {.scale_dtype = SW_DTYPE_F32};
    const char *scope = "absent";
    int found = -1;
    sw_code rc;

    if (!cJSON_IsObject(inputs)) return SW_FAIL(err, SW_E_FORMAT, "inputs: not an object");
    if ((rc = sw_json_text(&scope, inputs, "scope", err)) != SW_OK) return rc;
    for (int i = 0; i < SW_ACT_SCOPE_COUNT; i++)
        if (!strcmp(scopes[i], scope)) found = i;
    if (found < 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "inputs: scope \"%.40s\"; none, tensor, token and "
                       "group are known", scope);
    act.scope = (sw_act_scope)found;
    if ((rc = read_num(&act.num, inputs, "format", err)) != SW_OK ||
        (rc = read_dtype(&act.scale_dtype, inputs, err)) != SW_OK ||
        (rc = sw_json_int(&act.group_elems, inputs, "group_size", 0, 1 << 24, err)) != SW_OK)
        return rc;
    if (act.scope == SW_ACT_NONE) act = (sw_act){0};
    else if (!act.num) return SW_FAIL(err, SW_E_FORMAT, "inputs: no format");
    if (act.scope == SW_ACT_GROUP && act.group_elems < 1)
        return SW_FAIL(err, SW_E_FORMAT, "inputs: scope group without a group_size");
    *out = act;
    return SW_OK;
}

sw_code sw_config_read_beyond(sw_qspec *spec, const cJSON *object, sw_err *err)
{
    sw_qspec s = *spec;
    sw_code rc;

    if ((rc = read_num(&s.num, object, "weights", err)) != SW_OK ||
        (rc = read_dtype(&s.scale_dtype, object, err)) != SW_OK ||
        (rc = sw_json_int(&s.scale_rows, object, "scale_rows", -1, 1 << 24, err)) != SW_OK ||
        (rc = sw_json_bool(&s.is_pow2_scale, object, "pow2_scales", err)) != SW_OK ||
        (rc = sw_json_bool(&s.has_global, object, "global_scale", err)) != SW_OK)
        return rc;
    if (sw_json_member(object, "inputs") &&
        (rc = read_inputs(&s.act, sw_json_member(object, "inputs"), err)) != SW_OK)
        return rc;
    if (s.num->kind == SW_NUM_FLOAT && !s.is_symmetric)
        return SW_FAIL(err, SW_E_FORMAT, "%s weights with zero points", s.num->name);
    *spec = s;
    return SW_OK;
}
