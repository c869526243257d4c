/* ct_config.c - see ct_layouts.h: weights and input_activations in quantization_config. */
#include <string.h>

#include "formats/dialect/ct_layouts.h"

#define BLOCK_ELEMS 128

static const char *scale_dtype_text(sw_dtype dtype)
{
    if (dtype == SW_DTYPE_F8_E8M0) return "torch.uint8";
    return dtype == SW_DTYPE_F8_E4M3 ? "torch.float8_e4m3fn" : NULL;
}

static bool add_text_or_null(cJSON *object, const char *key, const char *text)
{
    return text ? cJSON_AddStringToObject(object, key, text) : cJSON_AddNullToObject(object, key);
}

static bool add_block(cJSON *object, const sw_qspec *spec)
{
    bool is_block = spec && spec->scale_rows > 1;
    cJSON *array = is_block ? cJSON_AddArrayToObject(object, "block_structure") : NULL;
    int sides[2];

    if (!is_block) return cJSON_AddNullToObject(object, "block_structure");
    sides[0] = (int)spec->scale_rows;
    sides[1] = (int)spec->group_elems;
    for (int i = 0; array && i < 2; i++) {
        cJSON *side = cJSON_CreateNumber(sides[i]);
        if (!side || !cJSON_AddItemToArray(array, side)) {
            cJSON_Delete(side);
            return false;
        }
    }
    return array;
}

static bool add_common(cJSON *object, const sw_num *num, bool is_symmetric, const char *strategy,
                       int64_t group_elems, const sw_qspec *block)
{
    return cJSON_AddNumberToObject(object, "num_bits", num->bits) &&
           cJSON_AddStringToObject(object, "type", num->values ? "float" : "int") &&
           cJSON_AddBoolToObject(object, "symmetric", is_symmetric) &&
           cJSON_AddStringToObject(object, "strategy", strategy) &&
           (group_elems ? cJSON_AddNumberToObject(object, "group_size", (double)group_elems)
                        : cJSON_AddNullToObject(object, "group_size")) &&
           add_block(object, block);
}

bool sw_ct_add_weights(cJSON *group, const sw_qspec *spec)
{
    cJSON *w = cJSON_AddObjectToObject(group, "weights");
    bool is_block = spec->scale_rows > 1;
    const char *strategy = spec->scale_rows == SW_ROWS_ALL ? "tensor" : is_block ? "block"
                           : spec->has_global ? "tensor_group"
                           : spec->group_elems ? "group" : "channel";
    const char *dtype = scale_dtype_text(spec->scale_dtype);

    return w &&
           add_common(w, spec->num, spec->is_symmetric, strategy, is_block ? 0 : spec->group_elems,
                      spec) &&
           cJSON_AddBoolToObject(w, "dynamic", false) &&
           add_text_or_null(w, "actorder", spec->is_scattered ? "group" : NULL) &&
           cJSON_AddStringToObject(w, "observer", "minmax") &&
           cJSON_AddObjectToObject(w, "observer_kwargs") &&
           (!dtype || cJSON_AddStringToObject(w, "scale_dtype", dtype));
}

bool sw_ct_add_inputs(cJSON *group, const sw_qspec *spec)
{
    static const char *const strategies[SW_ACT_SCOPE_COUNT] = {
        [SW_ACT_TENSOR] = "tensor", [SW_ACT_TOKEN] = "token", [SW_ACT_GROUP] = "group"};
    const sw_act *act = &spec->act;
    bool is_local = act->scope == SW_ACT_GROUP && act->scale_dtype == SW_DTYPE_F8_E4M3;
    bool is_static = act->scope == SW_ACT_TENSOR;
    cJSON *in;

    if (act->scope == SW_ACT_NONE) return cJSON_AddNullToObject(group, "input_activations");
    in = cJSON_AddObjectToObject(group, "input_activations");
    return in &&
           add_common(in, act->num, true, is_local ? "tensor_group" : strategies[act->scope],
                      act->group_elems, NULL) &&
           (is_local ? cJSON_AddStringToObject(in, "dynamic", "local")
                     : cJSON_AddBoolToObject(in, "dynamic", !is_static)) &&
           cJSON_AddNullToObject(in, "actorder") &&
           add_text_or_null(in, "observer", is_static || is_local ? "minmax" : NULL) &&
           cJSON_AddObjectToObject(in, "observer_kwargs") &&
           add_text_or_null(in, "scale_dtype", scale_dtype_text(act->scale_dtype));
}

bool sw_ct_add_kv_scheme(cJSON *root, const sw_num *num)
{
    cJSON *kv;

    if (!num) return cJSON_AddNullToObject(root, "kv_cache_scheme");
    kv = cJSON_AddObjectToObject(root, "kv_cache_scheme");
    return kv && add_common(kv, num, true, "tensor", 0, NULL) &&
           cJSON_AddBoolToObject(kv, "dynamic", false) &&
           cJSON_AddStringToObject(kv, "observer", "minmax");
}

sw_code sw_ct_read_kv_scheme(const sw_num **out, const cJSON *scheme, sw_err *err)
{
    const sw_num *num = &sw_nums[SW_NUM_E4M3];
    const char *strategy = "tensor";
    bool is_dynamic = false, is_symmetric = true;
    sw_code rc;

    if (!scheme || !scheme->child) return SW_OK;
    if ((rc = sw_json_text(&strategy, scheme, "strategy", err)) != SW_OK ||
        (rc = sw_json_bool(&is_dynamic, scheme, "dynamic", err)) != SW_OK ||
        (rc = sw_json_bool(&is_symmetric, scheme, "symmetric", err)) != SW_OK ||
        (rc = sw_ct_read_num(&num, scheme, err)) != SW_OK) {
        sw_err_prefix(err, "kv_cache_scheme");
        return rc;
    }
    if ((num == &sw_nums[SW_NUM_E4M3] || num == &sw_nums[SW_NUM_INT8]) &&
        !strcmp(strategy, "tensor") && !is_dynamic && is_symmetric) {
        *out = num;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "kv_cache_scheme: floats or symmetric integers of 8 bits "
                   "under one stored scale a tensor can be read");
}

sw_code sw_ct_read_num(const sw_num **out, const cJSON *object, sw_err *err)
{
    const char *type = "int";
    int64_t bits = 8;
    sw_code rc;

    if ((rc = sw_json_text(&type, object, "type", err)) != SW_OK ||
        (rc = sw_json_int(&bits, object, "num_bits", 1, 64, err)) != SW_OK)
        return rc;
    if (!strcmp(type, "int")) return sw_config_bits(out, bits, err);
    if (strcmp(type, "float") || (bits != 4 && bits != 8))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "type \"%.60s\" of %lld bits; int, and float of 4 "
                       "and 8 bits can be read", type, (long long)bits);
    *out = &sw_nums[bits == 4 ? SW_NUM_E2M1 : SW_NUM_E4M3];
    return SW_OK;
}

/* [128, 128] and nothing else: what loaders take. */
static sw_code read_block(sw_qspec *spec, const cJSON *weights, sw_err *err)
{
    const cJSON *sides = sw_json_member(weights, "block_structure"), *side;
    bool is_square = cJSON_IsArray(sides) && cJSON_GetArraySize(sides) == 2;

    cJSON_ArrayForEach(side, sides) is_square =
        is_square && cJSON_IsNumber(side) && side->valueint == BLOCK_ELEMS;
    if (!is_square)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "block_structure: [128, 128] can be read");
    spec->group_elems = spec->scale_rows = BLOCK_ELEMS;
    spec->scale_dtype = SW_DTYPE_F32; /* until the stored tensor says otherwise */
    return SW_OK;
}

static bool is_e8m0(const cJSON *object)
{
    const cJSON *dtype = sw_json_member(object, "scale_dtype");

    return cJSON_IsString(dtype) && (strstr(dtype->valuestring, "uint8") ||
                                     strstr(dtype->valuestring, "e8m0"));
}

/* Loaders refuse a config that says groups and something else: which of the two it is, the tensors
 * alone would tell. */
static sw_code check_lone_group(const char *what, const char *strategy, int64_t group, sw_err *err)
{
    if (!group || !strcmp(strategy, "group") || !strcmp(strategy, "tensor_group")) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: group_size is %lld under strategy \"%.60s\"; only "
                   "strategies group and tensor_group have groups: set it to null or correct the "
                   "strategy", what, (long long)group, strategy);
}

/* Null strategies follow from the group size: none means one scale per tensor. */
sw_code sw_ct_read_strategy(sw_qspec *spec, const cJSON *weights, sw_err *err)
{
    const char *strategy = NULL;
    int64_t group = 0;
    sw_code rc;

    if ((rc = sw_json_text(&strategy, weights, "strategy", err)) != SW_OK ||
        (rc = sw_config_group(&group, weights, "group_size", err)) != SW_OK)
        return rc;
    if (!strategy) {
        const cJSON *size = sw_json_member(weights, "group_size");
        strategy = !size ? "tensor" : group ? "group" : "channel";
    }
    if ((rc = check_lone_group("weights", strategy, group, err)) != SW_OK) return rc;
    spec->group_elems = 0;
    if (!strcmp(strategy, "channel")) return SW_OK;
    if (!strcmp(strategy, "block")) return read_block(spec, weights, err);
    if (!strcmp(strategy, "tensor") && spec->num->values) {
        spec->scale_rows = SW_ROWS_ALL;
        spec->scale_dtype = SW_DTYPE_F32;
        return SW_OK;
    }
    if (strcmp(strategy, "group") && strcmp(strategy, "tensor_group"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "weight strategy \"%.60s\" of this type; group, "
                       "channel, and of floats tensor, block and tensor_group can be read",
                       strategy);
    if (!group) return SW_FAIL(err, SW_E_FORMAT, "strategy \"%s\" without a group_size", strategy);
    spec->group_elems = group;
    if (!strcmp(strategy, "tensor_group")) {
        spec->has_global = true;
        spec->scale_dtype = SW_DTYPE_F8_E4M3;
    } else if (spec->num->values && (is_e8m0(weights) || group == 32)) {
        spec->is_pow2_scale = true;
        spec->scale_dtype = SW_DTYPE_F8_E8M0;
    }
    return SW_OK;
}

sw_code sw_ct_read_inputs(sw_act *out, const cJSON *inputs, sw_err *err)
{
    sw_act act = {.scale_dtype = SW_DTYPE_F32};
    const cJSON *dynamic = sw_json_member(inputs, "dynamic");
    const char *strategy = "token";
    bool is_symmetric = true, is_dynamic = dynamic && !cJSON_IsFalse(dynamic);
    sw_code rc;

    if ((rc = sw_ct_read_num(&act.num, inputs, err)) != SW_OK ||
        (rc = sw_json_text(&strategy, inputs, "strategy", err)) != SW_OK ||
        (rc = sw_json_bool(&is_symmetric, inputs, "symmetric", err)) != SW_OK ||
        (rc = sw_config_group(&act.group_elems, inputs, "group_size", err)) != SW_OK ||
        (rc = check_lone_group("input_activations", strategy, act.group_elems, err)) != SW_OK)
        return rc;
    if (!is_symmetric)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "input_activations with zero points; symmetric ones "
                       "can be served");
    if (!strcmp(strategy, "token") && is_dynamic) act.scope = SW_ACT_TOKEN;
    else if (!strcmp(strategy, "tensor") && !is_dynamic) act.scope = SW_ACT_TENSOR;
    else if (!strcmp(strategy, "group") && is_dynamic) act.scope = SW_ACT_GROUP;
    else if (!strcmp(strategy, "tensor_group")) act.scope = SW_ACT_GROUP;
    else
        return SW_FAIL(err, SW_E_UNSUPPORTED, "input_activations: strategy \"%.60s\" %s; dynamic "
                       "token, group and tensor_group and static tensor can be served", strategy,
                       is_dynamic ? "dynamic" : "static");
    if (act.scope == SW_ACT_GROUP && !act.group_elems)
        return SW_FAIL(err, SW_E_FORMAT, "input_activations: strategy \"%s\" without a group_size",
                       strategy);
    if (act.scope != SW_ACT_GROUP) act.group_elems = 0;
    if (!strcmp(strategy, "tensor_group")) act.scale_dtype = SW_DTYPE_F8_E4M3;
    else if (is_e8m0(inputs) || (act.scope == SW_ACT_GROUP && act.group_elems == 32))
        act.scale_dtype = SW_DTYPE_F8_E8M0;
    *out = act;
    return SW_OK;
}
