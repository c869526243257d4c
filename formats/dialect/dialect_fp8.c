/* dialect_fp8.c - quant_method "fp8": DeepSeek's blocks, and one static scale a tensor.
 *
 * Per linear P of K inputs, N outputs, in blocks:
 *   P.weight            F8_E4M3  [N, K]
 *   P.weight_scale_inv  F32      [ceil(N/128), ceil(K/128)]   multiplies, in spite of its name
 * and under one scale:
 *   P.weight            F8_E4M3  [N, K]
 *   P.weight_scale      F32      [1]   multiplies
 *   P.input_scale       F32      [1]   multiplies; activation_scheme "static" only
 * transformers has other names for these two, without dimensions: P.weight_scale_inv, which
 * multiplies all the same, and P.activation_scale; a config of its own says weight_block_size null.
 * scale_fmt "ue8m0": block scales are powers of two, still stored as F32. The codes lie as
 * compressed-tensors has them, so its layouts do the work; names and config differ.
 */
#include <string.h>

#include "formats/dialect/ct_layouts.h"

#define BLOCK_ELEMS 128
#define BLOCK_KEY "weight_block_size"
#define ELSEWHERE "use --format compressed-tensors or swage"

enum { PART_SCALE = 1 };

static bool is_block(const sw_qspec *spec) { return spec->scale_rows > 1; }

static sw_dtype scale_dtype(sw_dtype model_dtype)
{
    (void)model_dtype;
    return SW_DTYPE_F32;
}

/* The inputs that the method's loaders quantize for such a weight. */
static bool fits_inputs(const sw_qspec *spec)
{
    const sw_act *act = &spec->act;
    sw_dtype dtype = spec->is_pow2_scale ? SW_DTYPE_F8_E8M0 : SW_DTYPE_F32;

    if (act->num != &sw_nums[SW_NUM_E4M3] || act->scale_dtype != dtype) return false;
    if (is_block(spec)) return act->scope == SW_ACT_GROUP && act->group_elems == BLOCK_ELEMS;
    return act->scope == SW_ACT_TENSOR || act->scope == SW_ACT_TOKEN;
}

static bool fits_scales(const sw_qspec *spec)
{
    if (is_block(spec)) return spec->scale_rows == BLOCK_ELEMS && spec->group_elems == BLOCK_ELEMS;
    return spec->scale_rows == SW_ROWS_ALL && !spec->group_elems && !spec->is_pow2_scale;
}

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_code rc = sw_hold_division("fp8", spec, k_in, err);

    (void)n_out;
    if (rc != SW_OK || (rc = sw_hold_neighbours("fp8", spec, err)) != SW_OK) return rc;
    if (spec->num != &sw_nums[SW_NUM_E4M3])
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8: holds e4m3 weights, not %s; " ELSEWHERE,
                       spec->num->name);
    if (!fits_scales(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8: scales are of blocks of 128 x 128 "
                       "(FP8_BLOCK, FP8_BLOCK_POW2) or of the tensor (FP8); for others "
                       ELSEWHERE);
    if (spec->scale_dtype != SW_DTYPE_F32)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8: scales are written as F32, not %s; " ELSEWHERE,
                       sw_dtype_name(spec->scale_dtype));
    if (!fits_inputs(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8: loaders quantize the inputs too, in 1 x 128 "
                       "beside blocks, else by tensor or token; for others " ELSEWHERE);
    return SW_OK;
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    int n = sw_ct_declare(out, spec, n_out, k_in);

    if (is_block(spec)) out[PART_SCALE].suffix = "weight_scale_inv";
    return n;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    if (q->g_idx)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8 has blocks of neighbouring columns, and a g_idx "
                       "scatters these");
    return sw_ct_encode(parts, q, err);
}

static sw_code hf_can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_code rc = can_hold(spec, n_out, k_in, err);

    if (rc != SW_OK || !is_block(spec)) return rc;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8_hf: is for one scale a tensor; blocks have one name "
                   "everywhere: use --format fp8");
}

static int hf_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                      int64_t k_in)
{
    int n = sw_ct_declare(out, spec, n_out, k_in);

    for (int i = PART_SCALE; i < n; i++) {
        out[i].suffix = i == PART_SCALE ? "weight_scale_inv" : "activation_scale";
        out[i].n_dims = 0;
    }
    return n;
}

static bool add_block_size(cJSON *root)
{
    static const int sides[2] = {BLOCK_ELEMS, BLOCK_ELEMS};
    cJSON *array = cJSON_CreateIntArray(sides, 2);

    if (array && cJSON_AddItemToObject(root, BLOCK_KEY, array)) return true;
    cJSON_Delete(array);
    return false;
}

static sw_code write_any(cJSON **out, const sw_qconfig *config, bool is_hf, sw_err *err)
{
    const sw_qspec *spec = config->n_rules ? &config->rules[0].spec : &config->spec;
    bool is_static = spec->act.scope == SW_ACT_TENSOR, ok;
    cJSON *root;

    for (int64_t i = 1; i < config->n_rules; i++)
        if (!sw_qspec_same(&config->rules[i].spec, spec))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "fp8: one scheme holds for all linears, and %s "
                           "has another than %s; " ELSEWHERE, config->rules[i].pattern,
                           config->rules[0].pattern);
    root = cJSON_CreateObject();
    ok = root && cJSON_AddStringToObject(root, "quant_method", "fp8") &&
         cJSON_AddStringToObject(root, "fmt", "e4m3") &&
         cJSON_AddStringToObject(root, "activation_scheme", is_static ? "static" : "dynamic") &&
         (!is_block(spec) || add_block_size(root)) &&
         (!is_hf || cJSON_AddNullToObject(root, BLOCK_KEY)) &&
         (!spec->is_pow2_scale || cJSON_AddStringToObject(root, "scale_fmt", "ue8m0")) &&
         /* both names of the same list: loaders read one or the other */
         sw_config_add_ignored(root, "ignored_layers", config, true, SW_BELOW_PATHS) &&
         sw_config_add_ignored(root, "modules_to_not_convert", config, true, SW_BELOW_PATHS);
    return sw_config_done(out, root, ok, err);
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    return write_any(out, config, false, err);
}

static sw_code hf_write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    return write_any(out, config, true, err);
}

/* [128, 128] and nothing else: what loaders take. */
static sw_code read_blocks(sw_qspec *spec, const cJSON *object, const cJSON *sides, sw_err *err)
{
    const char *format = NULL;
    bool is_square = cJSON_IsArray(sides) && cJSON_GetArraySize(sides) == 2;
    const cJSON *side;
    sw_code rc = sw_json_text(&format, object, "scale_fmt", err);

    if (rc != SW_OK) return rc;
    cJSON_ArrayForEach(side, sides) is_square =
        is_square && cJSON_IsNumber(side) && side->valueint == BLOCK_ELEMS;
    if (!is_square)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "weight_block_size: [128, 128] can be read");
    if (format && strcmp(format, "ue8m0") != 0 && strcmp(format, "float") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "scale_fmt \"%.30s\"; ue8m0 and float can be read",
                       format);
    spec->is_pow2_scale = format && !strcmp(format, "ue8m0");
    spec->group_elems = spec->scale_rows = BLOCK_ELEMS;
    spec->act.scope = SW_ACT_GROUP;
    spec->act.group_elems = BLOCK_ELEMS;
    spec->act.scale_dtype = spec->is_pow2_scale ? SW_DTYPE_F8_E8M0 : SW_DTYPE_F32;
    return SW_OK;
}

static sw_code read_spec(sw_qspec *spec, const cJSON *object, sw_err *err)
{
    const cJSON *sides = sw_json_member(object, BLOCK_KEY);
    const char *fmt = "e4m3", *inputs = "dynamic";
    bool is_static;
    sw_code rc;

    if ((rc = sw_json_text(&fmt, object, "fmt", err)) != SW_OK ||
        (rc = sw_json_text(&inputs, object, "activation_scheme", err)) != SW_OK)
        return rc;
    if (strcmp(fmt, "e4m3") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fmt \"%.30s\"; e4m3 can be read", fmt);
    is_static = !strcmp(inputs, "static");
    if (!is_static && strcmp(inputs, "dynamic") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "activation_scheme \"%.30s\"; static and dynamic can "
                       "be read", inputs);
    if (is_static && sides)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "activation_scheme \"static\" beside "
                       "weight_block_size; blocks go with dynamic inputs");
    if (sides) return read_blocks(spec, object, sides, err);
    spec->scale_rows = SW_ROWS_ALL;
    spec->act.scope = is_static ? SW_ACT_TENSOR : SW_ACT_TOKEN;
    return SW_OK;
}

/* Loaders that know both keys take the second when the first is empty. */
static sw_code read_ignored(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_code rc = sw_config_read_ignore(out, object, "ignored_layers", arena, err);

    if (rc != SW_OK || out->n_ignore) return rc;
    return sw_config_read_ignore(out, object, "modules_to_not_convert", arena, err);
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    const sw_num *e4m3 = &sw_nums[SW_NUM_E4M3];
    sw_qconfig config = {.spec = {.num = e4m3, .is_symmetric = true, .scale_dtype = SW_DTYPE_F32,
                                  .act = {.num = e4m3, .scale_dtype = SW_DTYPE_F32}}};
    sw_code rc;

    if ((rc = read_spec(&config.spec, object, err)) != SW_OK ||
        (rc = read_ignored(&config, object, arena, err)) != SW_OK)
        return rc;
    *out = config;
    return SW_OK;
}

static sw_code hf_read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena,
                              sw_err *err)
{
    sw_qconfig config = *out;
    sw_code rc = read_config(&config, object, arena, err);

    if (rc != SW_OK) return rc;
    if (is_block(&config.spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "weight_block_size: fp8_hf is for one scale a "
                       "tensor");
    *out = config;
    return SW_OK;
}

static bool is_mine(const cJSON *object)
{
    return sw_config_method_is(object, "fp8");
}

/* Its writer says null where there are no blocks. */
static bool hf_is_mine(const cJSON *object)
{
    return is_mine(object) &&
           cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, BLOCK_KEY));
}

const sw_dialect sw_dialect_fp8_hf = {
    .name = "fp8_hf",
    .summary = "static per tensor under the names that transformers looks for",
    .is_known_by_scale = true,
    .scale_dtype = scale_dtype,
    .can_hold = hf_can_hold,
    .declare = hf_declare,
    .encode = encode,
    .decode = sw_ct_decode,
    .write_config = hf_write_config,
    .read_config = hf_read_config,
    .is_mine = hf_is_mine,
};

const sw_dialect sw_dialect_fp8 = {
    .name = "fp8",
    .summary = "blocks as DeepSeek and Qwen3 publish them, or static per tensor: vLLM, SGLang",
    .is_known_by_scale = true,
    .holds_kv_scales = true,
    .scale_dtype = scale_dtype,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = sw_ct_decode,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
