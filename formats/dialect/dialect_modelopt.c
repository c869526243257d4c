/* dialect_modelopt.c - quant_method "modelopt": what NVIDIA's Model Optimizer exports, for vLLM,
 * SGLang and TensorRT-LLM.
 *
 * Per linear P of K inputs, N outputs; every scale multiplies:
 *   quant_algo                 P.weight        P.weight_scale              besides
 *   FP8                        F8_E4M3 [N, K]  F32 []                      P.input_scale
 *   FP8_PER_CHANNEL_PER_TOKEN  F8_E4M3 [N, K]  F32 [N]
 *   FP8_PB_WO                  F8_E4M3 [N, K]  F32 [N/128, 1, K/128, 1]
 *   MXFP8                      F8_E4M3 [N, K]  U8 [N, K/32], holding E8M0
 *   NVFP4                      U8 [N, K/2]     F8_E4M3 [N, K/16]  P.weight_scale_2, P.input_scale
 *   W4A16_NVFP4                U8 [N, K/2]     F8_E4M3 [N, K/16]  P.weight_scale_2
 *   W4A16_AWQ                  see modelopt_int4.h
 * weight_scale_2 and input_scale are F32 []; the low nibble holds the even input. weight_scale_2 is
 * largest / (448 * 6): the reciprocal of what compressed-tensors stores. Blocks of FP8_PB_WO are
 * run with inputs quantized in 1 x 128, whatever "weights only" says: that is their scheme here.
 *
 * The scheme stands in config.json, and in hf_quant_config.json in another form that older loaders
 * read; a checkpoint may have either. MIXED_PRECISION names the algorithm of each linear.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/ct_layouts.h"
#include "formats/dialect/modelopt_int4.h"
#include "formats/num/half.h"

/* The version whose layout is written. */
#define PRODUCER "modelopt"
#define VERSION "0.40.0"
#define MIXED "MIXED_PRECISION"
#define BLOCK_ELEMS 128
#define INT4_ALGO "W4A16_AWQ"
#define ELSEWHERE "use --format compressed-tensors or swage"

enum { PART_WEIGHT, PART_SCALE };

#define E4M3 &sw_nums[SW_NUM_E4M3]
#define E2M1 &sw_nums[SW_NUM_E2M1]

typedef struct algo_row {
    const char *name;
    sw_qspec spec;
} algo_row;

static const algo_row algos[] = {
    {"FP8", {.num = E4M3, .is_symmetric = true, .scale_dtype = SW_DTYPE_F32,
             .scale_rows = SW_ROWS_ALL, .act = {E4M3, SW_ACT_TENSOR, 0, SW_DTYPE_F32}}},
    {"FP8_PER_CHANNEL_PER_TOKEN", {.num = E4M3, .is_symmetric = true, .scale_dtype = SW_DTYPE_F32,
                                   .act = {E4M3, SW_ACT_TOKEN, 0, SW_DTYPE_F32}}},
    {"FP8_PB_WO", {.num = E4M3, .is_symmetric = true, .scale_dtype = SW_DTYPE_F32,
                   .group_elems = BLOCK_ELEMS, .scale_rows = BLOCK_ELEMS,
                   .act = {E4M3, SW_ACT_GROUP, BLOCK_ELEMS, SW_DTYPE_F32}}},
    {"MXFP8", {.num = E4M3, .is_symmetric = true, .scale_dtype = SW_DTYPE_F8_E8M0,
               .group_elems = 32, .is_pow2_scale = true,
               .act = {E4M3, SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0}}},
    {"NVFP4", {.num = E2M1, .is_symmetric = true, .scale_dtype = SW_DTYPE_F8_E4M3,
               .group_elems = 16, .has_global = true,
               .act = {E2M1, SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3}}},
    {"W4A16_NVFP4", {.num = E2M1, .is_symmetric = true, .scale_dtype = SW_DTYPE_F8_E4M3,
                     .group_elems = 16, .has_global = true}},
    {INT4_ALGO, {.num = &sw_nums[SW_NUM_INT4], .is_symmetric = true, .scale_dtype = SW_DTYPE_F32,
                 .group_elems = BLOCK_ELEMS}}, /* or groups of another size */
};

/* Algorithms of the exporter that are known and stay out. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"W4A8_AWQ", "its integers pass through e4m3 under a second scale before they meet inputs in "
                 "e4m3"},
    {"NVFP4_AWQ", "its inputs have a factor each besides their scale"},
    {"W8A8_SQ_PER_CHANNEL", "its inputs have a factor each besides their scale"},
};

static sw_dtype scale_dtype(sw_dtype model_dtype)
{
    (void)model_dtype;
    return SW_DTYPE_F32;
}

/* NULL: no algorithm of the exporter stores such a weight. */
static const algo_row *algo_of(const sw_qspec *spec)
{
    sw_qspec like = *spec;

    if (sw_modelopt_int4_is(spec)) like.group_elems = BLOCK_ELEMS;
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
        if (sw_qspec_same(&algos[i].spec, &like)) return &algos[i];
    return NULL;
}

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_code rc = sw_hold_division("modelopt", spec, k_in, err);

    if (rc != SW_OK) return rc;
    if (sw_modelopt_int4_is(spec) && n_out % 2 == 0) return SW_OK;
    if (spec->num->kind == SW_NUM_INT)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "modelopt: of integer weights it holds int4 without "
                       "zero points, in groups, under F32 scales, with outputs in pairs; "
                       ELSEWHERE);
    if (!algo_of(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "modelopt: holds e4m3 as FP8, FP8_DYNAMIC, FP8_BLOCK "
                       "and MXFP8 store it, and e2m1 as NVFP4 and NVFP4A16 do; for others "
                       ELSEWHERE);
    if (spec->scale_rows > 1 && n_out % BLOCK_ELEMS)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "modelopt: loaders refuse blocks of 128 x 128 where "
                       "%lld outputs are no multiple of 128; " ELSEWHERE, (long long)n_out);
    return SW_OK;
}

static sw_part scale_part(const sw_qspec *spec, int64_t n_out, int64_t k_in)
{
    sw_dtype dtype = spec->scale_dtype == SW_DTYPE_F8_E8M0 ? SW_DTYPE_U8 : spec->scale_dtype;
    int64_t n_groups = sw_qspec_groups(spec, k_in);
    sw_part part = {.suffix = "weight_scale", .dtype = dtype, .n_dims = 4,
                    .shape = {sw_ceil_div(n_out, sw_qspec_rows(spec, n_out)), 1, n_groups, 1}};

    if (spec->scale_rows == SW_ROWS_ALL) return sw_part_single("weight_scale", dtype);
    if (spec->scale_rows > 1) return part;
    if (!spec->group_elems) return sw_part_1d("weight_scale", dtype, n_out);
    return sw_part_2d("weight_scale", dtype, n_out, n_groups);
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    sw_ct_rest at = sw_ct_rest_of(spec);

    if (sw_modelopt_int4_is(spec)) return sw_modelopt_int4_declare(out, spec, n_out, k_in);
    out[PART_WEIGHT] = spec->num->bits == 4
                           ? sw_part_2d("weight", SW_DTYPE_U8, n_out, k_in / 2)
                           : sw_part_2d("weight", SW_DTYPE_F8_E4M3, n_out, k_in);
    out[PART_SCALE] = scale_part(spec, n_out, k_in);
    out[PART_SCALE].is_scale = true;
    if (at.global >= 0) out[at.global] = sw_part_single("weight_scale_2", SW_DTYPE_F32);
    if (at.input >= 0) out[at.input] = sw_part_single("input_scale", SW_DTYPE_F32);
    return at.n;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    sw_ct_rest at = sw_ct_rest_of(&q->spec);
    sw_code rc = sw_encode_neighbours("modelopt", q, "", err);

    if (rc != SW_OK) return rc;
    if (sw_modelopt_int4_is(&q->spec)) return sw_modelopt_int4_encode(parts, q, err);
    sw_ct_store_codes(parts[PART_WEIGHT], q);
    sw_ct_store_scales(parts[PART_SCALE], q);
    if (at.global >= 0) sw_store_le32(parts[at.global], sw_f32_bits(q->global_scale));
    if (at.input >= 0) sw_store_le32(parts[at.input], sw_f32_bits(q->input_scale));
    return SW_OK;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    sw_ct_rest at = sw_ct_rest_of(&q->spec);
    sw_code rc;

    if (sw_modelopt_int4_is(&q->spec)) return sw_modelopt_int4_decode(q, parts, err);
    rc = sw_ct_load_codes(q, parts[PART_WEIGHT], err);
    if (rc == SW_OK) rc = sw_ct_load_scales(q, parts[PART_SCALE], err);
    if (rc != SW_OK) return rc;
    if (at.global >= 0) q->global_scale = sw_f32_from_bits(sw_load_le32(parts[at.global]));
    if (at.input >= 0) q->input_scale = sw_f32_from_bits(sw_load_le32(parts[at.input]));
    return SW_OK;
}

static const sw_qspec *first_spec(const sw_qconfig *config)
{
    return config->n_rules ? &config->rules[0].spec : &config->spec;
}

static const char *algo_name(const sw_qspec *spec)
{
    const algo_row *row = algo_of(spec);

    return row ? row->name : "none";
}

/* The name of all rules, or the word for several. */
static const char *algo_of_all(const sw_qconfig *config)
{
    const char *name = algo_name(first_spec(config));

    for (int64_t i = 1; i < config->n_rules; i++)
        if (strcmp(algo_name(&config->rules[i].spec), name) != 0) return MIXED;
    return name;
}

static bool add_producer(cJSON *root)
{
    cJSON *producer = cJSON_AddObjectToObject(root, "producer");

    return producer && cJSON_AddStringToObject(producer, "name", PRODUCER) &&
           cJSON_AddStringToObject(producer, "version", VERSION);
}

static bool add_group_size(cJSON *object, const sw_qspec *spec)
{
    if (!spec->group_elems || spec->scale_rows > 1) return true;
    return cJSON_AddNumberToObject(object, "group_size", (double)spec->group_elems) &&
           (spec->num->kind != SW_NUM_INT ||
            (cJSON_AddBoolToObject(object, "has_zero_point", false) &&
             cJSON_AddBoolToObject(object, "pre_quant_scale", true)));
}

/* Which algorithm each linear has; nothing when it is one for all. */
static bool add_layers(cJSON *root, const sw_qconfig *config)
{
    cJSON *layers;

    if (strcmp(algo_of_all(config), MIXED) != 0) return add_group_size(root, first_spec(config));
    layers = cJSON_AddObjectToObject(root, "quantized_layers");
    for (int64_t i = 0; layers && i < config->n_rules; i++) {
        cJSON *one = cJSON_AddObjectToObject(layers, config->rules[i].pattern);
        if (!one ||
            !cJSON_AddStringToObject(one, "quant_algo", algo_name(&config->rules[i].spec)) ||
            !add_group_size(one, &config->rules[i].spec))
            return false;
    }
    return layers;
}

static bool add_numbers(cJSON *group, const char *key, const sw_num *num, int64_t group_elems,
                        bool is_dynamic)
{
    cJSON *one;

    if (!num) return cJSON_AddNullToObject(group, key);
    one = cJSON_AddObjectToObject(group, key);
    return one && cJSON_AddBoolToObject(one, "dynamic", is_dynamic) &&
           cJSON_AddNumberToObject(one, "num_bits", num->bits) &&
           cJSON_AddStringToObject(one, "type", num->kind == SW_NUM_INT ? "int" : "float") &&
           (!group_elems || cJSON_AddNumberToObject(one, "group_size", (double)group_elems));
}

/* The same once more in the words of compressed-tensors; loaders go by quant_algo. */
static bool add_groups(cJSON *root, const sw_qconfig *config)
{
    const sw_qspec *spec = first_spec(config);
    bool is_dynamic = !sw_act_needs_input_scale(&spec->act);
    cJSON *groups, *group, *targets;

    if (!strcmp(algo_of_all(config), MIXED)) return true;
    groups = cJSON_AddObjectToObject(root, "config_groups");
    group = groups ? cJSON_AddObjectToObject(groups, "group_0") : NULL;
    if (!group || !add_numbers(group, "input_activations", spec->act.num, spec->act.group_elems,
                               is_dynamic) ||
        !add_numbers(group, "weights", spec->num, spec->group_elems, false) ||
        !(targets = cJSON_AddArrayToObject(group, "targets")))
        return false;
    return sw_config_append(targets, "Linear");
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    cJSON *root = cJSON_CreateObject();
    bool ok = root && cJSON_AddStringToObject(root, "quant_method", "modelopt") &&
              cJSON_AddStringToObject(root, "quant_algo", algo_of_all(config)) &&
              add_producer(root) &&
              sw_config_add_ignored(root, "ignore", config, true, SW_BELOW_STAR) &&
              add_layers(root, config) && add_groups(root, config);

    return sw_config_done(out, root, ok, err);
}

static sw_code write_side(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    cJSON *root = cJSON_CreateObject(), *body;
    bool ok = root && add_producer(root) &&
              (body = cJSON_AddObjectToObject(root, "quantization")) != NULL &&
              cJSON_AddStringToObject(body, "quant_algo", algo_of_all(config)) &&
              cJSON_AddNullToObject(body, "kv_cache_quant_algo") && add_layers(body, config) &&
              sw_config_add_ignored(body, "exclude_modules", config, true, SW_BELOW_STAR);

    return sw_config_done(out, root, ok, err);
}

/* Files of the exporter have the names in either case. */
static sw_code find_algo(const algo_row **out, const char *name, sw_err *err)
{
    char upper[64] = "", known[256] = "";
    size_t n = 0;

    for (; name[n] && n + 1 < sizeof upper; n++)
        upper[n] = (char)(name[n] >= 'a' && name[n] <= 'z' ? name[n] - 'a' + 'A' : name[n]);
    n = 0;
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        if (!strcmp(algos[i].name, upper)) {
            *out = &algos[i];
            return SW_OK;
        }
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", algos[i].name);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(refused[i].name, upper))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "quant_algo %s cannot be read: %s; start from "
                           "the original, or another export of it", upper, refused[i].why);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "quant_algo \"%.40s\" cannot be read; there are %s and "
                   MIXED, name, known);
}

static sw_code read_int4(sw_qspec *out, const cJSON *object, const algo_row *row, int64_t group,
                         sw_err *err)
{
    bool has_zero_point = false;
    sw_code rc = sw_json_bool(&has_zero_point, object, "has_zero_point", err);

    if (rc != SW_OK) return rc;
    if (has_zero_point)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s with \"has_zero_point\": true, which its writer "
                       "never says", row->name);
    if (group < 1)
        return SW_FAIL(err, SW_E_FORMAT, "group_size %lld with %s: a number of inputs is meant",
                       (long long)group, row->name);
    *out = row->spec;
    out->group_elems = group;
    return SW_OK;
}

/* Groups of another size than the algorithm's are stored with another shape. */
static sw_code read_algo(sw_qspec *out, const cJSON *object, sw_err *err)
{
    const char *name = "none";
    const algo_row *row = NULL;
    int64_t group;
    sw_code rc;

    if ((rc = sw_json_text(&name, object, "quant_algo", err)) != SW_OK ||
        (rc = find_algo(&row, name, err)) != SW_OK)
        return rc;
    group = row->spec.group_elems;
    if ((rc = sw_json_int(&group, object, "group_size", -1, 1 << 24, err)) != SW_OK) return rc;
    if (row->spec.num->kind == SW_NUM_INT) return read_int4(out, object, row, group, err);
    if (row->spec.group_elems && group > 0 && group != row->spec.group_elems)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "group_size %lld with %s; %lld can be read",
                       (long long)group, row->name, (long long)row->spec.group_elems);
    *out = row->spec;
    return SW_OK;
}

/* An entry stands for the linear of its name, or for all below: "...mlp.experts". */
static sw_code add_rules(sw_qrule rules[2], const cJSON *entry, sw_arena *arena, sw_err *err)
{
    char *path, *below;
    sw_code rc;

    if (strstr(entry->string, "\\E"))
        return SW_FAIL(err, SW_E_FORMAT, "\"%.100s\" is no module path", entry->string);
    if ((rc = sw_arena_text(&path, arena, entry->string, strlen(entry->string), err)) != SW_OK ||
        (rc = sw_arena_print(&below, arena, err, "\\Q%s\\E\\.", entry->string)) != SW_OK)
        return rc;
    rules[0].pattern = path;
    rules[0].is_exact = true;
    rules[1].pattern = below;
    rules[1].spec = rules[0].spec;
    return SW_OK;
}

static sw_code read_layers(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    const cJSON *layers = sw_json_member(object, "quantized_layers"), *entry;
    sw_qrule *rules = NULL;
    int64_t n = 0;
    sw_code rc;

    if (!cJSON_IsObject(layers) || !layers->child)
        return SW_FAIL(err, SW_E_FORMAT, MIXED " without quantized_layers");
    rc = SW_ARENA_TAKE(&rules, arena, 2 * cJSON_GetArraySize(layers), err);
    if (rc != SW_OK) return rc;
    cJSON_ArrayForEach(entry, layers)
    {
        if ((rc = read_algo(&rules[n].spec, entry, err)) != SW_OK ||
            (rc = add_rules(&rules[n], entry, arena, err)) != SW_OK) {
            sw_err_prefix(err, "quantized_layers: %.100s", entry->string);
            return rc;
        }
        n += 2;
    }
    out->spec = rules[0].spec;
    out->rules = rules;
    out->n_rules = n;
    out->has_no_default = true;
    return SW_OK;
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    const cJSON *inner = sw_json_member(object, "quantization");
    const cJSON *body = cJSON_IsObject(inner) ? inner : object;
    const char *algo = "none";
    sw_qconfig config = {.n_ignore = 0};
    sw_code rc;

    if ((rc = sw_json_text(&algo, body, "quant_algo", err)) != SW_OK) return rc;
    rc = strcmp(algo, MIXED) != 0 ? read_algo(&config.spec, body, err)
                                  : read_layers(&config, body, arena, err);
    if (rc == SW_OK)
        rc = sw_config_read_ignore(&config, body, body == inner ? "exclude_modules" : "ignore",
                                   arena, err);
    if (rc == SW_OK) *out = config;
    return rc;
}

/* "modelopt", and "modelopt_fp4" as some loaders have it; or the other file's form. */
static bool is_mine(const cJSON *object)
{
    const cJSON *method = sw_json_member(object, "quant_method");
    const cJSON *name = sw_json_member(sw_json_member(object, "producer"), "name");

    if (cJSON_IsString(method)) return !strncmp(method->valuestring, "modelopt", 8);
    return cJSON_IsString(name) && !strcmp(name->valuestring, PRODUCER) &&
           cJSON_IsObject(sw_json_member(object, "quantization"));
}

const sw_dialect sw_dialect_modelopt = {
    .name = "modelopt",
    .summary = "as NVIDIA's Model Optimizer exports it: TensorRT-LLM, vLLM, SGLang",
    .is_known_by_scale = true,
    .side_config = "hf_quant_config.json",
    .scale_dtype = scale_dtype,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .write_config = write_config,
    .write_side = write_side,
    .read_config = read_config,
    .is_mine = is_mine,
};
