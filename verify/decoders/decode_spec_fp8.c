/* decode_spec_fp8.c - the second reading of quant_method "fp8", in blocks and with one scale.
 *
 * For a linear P with K inputs, N outputs, with weight_block_size [R, C] in the config:
 *   P.weight            F8_E4M3 [N, K]
 *   P.weight_scale_inv  floats  [ceil(N/R), ceil(K/C)]
 * and without:
 *   P.weight            F8_E4M3 [N, K]
 *   P.weight_scale      float   [] or [1]
 *   P.input_scale       float   [] or [1]   activation_scheme "static"
 * With weight_block_size null, the same two are called weight_scale_inv and activation_scale.
 * All of them multiply: W[n][k] = e4m3(weight[n][k]) * weight_scale_inv[n/R][k/C]. With scale_fmt
 * "ue8m0" the block scales are powers of two.
 */
#include <string.h>

#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

static bool has_blocks(const cJSON *config)
{
    return cJSON_IsArray(sw_json_member(config, "weight_block_size"));
}

static bool is_blocks(const cJSON *config)
{
    return sw_spec_method_is(config, "fp8") && has_blocks(config);
}

static bool has_other_names(const cJSON *config)
{
    return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(config, "weight_block_size"));
}

static bool is_hf(const cJSON *config)
{
    return sw_spec_method_is(config, "fp8") && has_other_names(config);
}

static bool is_tensor(const cJSON *config)
{
    return sw_spec_method_is(config, "fp8") && !has_blocks(config) && !has_other_names(config);
}

static sw_code read_side(int64_t *out, const cJSON *sides, int at, sw_err *err)
{
    const cJSON *side = cJSON_GetArrayItem(sides, at);

    if (cJSON_GetArraySize(sides) != 2 || !cJSON_IsNumber(side) || side->valueint < 2)
        return SW_FAIL(err, SW_E_FORMAT, "weight_block_size: want two numbers above 1");
    *out = side->valueint;
    return SW_OK;
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *sides = sw_json_member(config, "weight_block_size");
    const char *fmt = "e4m3", *inputs = "dynamic", *scales = "float";
    sw_code rc;

    if ((rc = sw_json_text(&fmt, config, "fmt", err)) != SW_OK ||
        (rc = sw_json_text(&inputs, config, "activation_scheme", err)) != SW_OK ||
        (rc = sw_json_text(&scales, config, "scale_fmt", err)) != SW_OK)
        return rc;
    if (strcmp(fmt, "e4m3") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "fmt \"%.30s\"; e4m3 can be verified", fmt);
    if ((rc = sw_spec_float_kind(out, fmt, err)) != SW_OK) return rc;
    out->quantizes_inputs = true;
    out->scale_rows = -1;
    out->has_input_scale = !strcmp(inputs, "static");
    if (!sides) return SW_OK;
    if (out->has_input_scale)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "static inputs beside weight_block_size");
    if ((rc = read_side(&out->scale_rows, sides, 0, err)) != SW_OK) return rc;
    out->is_pow2 = !strcmp(scales, "ue8m0");
    return read_side(&out->group_elems, sides, 1, err);
}

/* One scheme holds for all linears. */
static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    (void)module_path;
    return read_config(out, config, err);
}

static sw_code read_codes(sw_spec_weight *w, const sw_st *st, const char *module_path, sw_err *err)
{
    int64_t shape[2] = {w->n_out, w->k_in};
    const unsigned char *bytes;
    sw_code rc = sw_spec_part(&bytes, st, module_path, "weight", SW_DTYPE_F8_E4M3, 2, shape, err);

    for (int64_t i = 0; rc == SW_OK && i < w->n_out * w->k_in; i++) w->codes[i] = bytes[i];
    return rc;
}

static sw_code decode_blocks(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                             const char *module_path, sw_err *err)
{
    int64_t rows = scheme->scale_rows;
    int64_t shape[2] = {sw_ceil_div(w->n_out, rows), sw_ceil_div(w->k_in, scheme->group_elems)};
    sw_spec_floats scales;
    sw_code rc = read_codes(w, st, module_path, err);

    if (rc == SW_OK)
        rc = sw_spec_scales(&scales, st, module_path, "weight_scale_inv", 2, shape, err);
    if (rc != SW_OK) return rc;
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t g = 0; g < shape[1]; g++)
            w->scales[n * shape[1] + g] = sw_spec_float_at(&scales, n / rows * shape[1] + g);
    return SW_OK;
}

static sw_code decode_single(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                             const char *module_path, const char *weight_scale,
                             const char *input_scale, sw_err *err)
{
    float scale = 0;
    sw_code rc;

    if ((rc = read_codes(w, st, module_path, err)) != SW_OK ||
        (rc = sw_spec_single_scale(&scale, st, module_path, weight_scale, err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++) w->scales[n] = scale;
    if (!scheme->has_input_scale) return SW_OK;
    return sw_spec_single(&w->input_scale, st, module_path, input_scale, err);
}

static sw_code decode_tensor(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                             const char *module_path, sw_err *err)
{
    return decode_single(w, scheme, st, module_path, "weight_scale", "input_scale", err);
}

static sw_code decode_hf(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                         const char *module_path, sw_err *err)
{
    return decode_single(w, scheme, st, module_path, "weight_scale_inv", "activation_scale", err);
}

const sw_spec_reader sw_spec_fp8_blocks = {
    "fp8", {"weight", "weight_scale_inv"}, "weight_scale_inv", is_blocks, read_config, read_linear,
    decode_blocks, NULL,
};

const sw_spec_reader sw_spec_fp8_hf = {
    "fp8_hf", {"weight", "weight_scale_inv", "activation_scale"}, "weight_scale_inv", is_hf,
    read_config, read_linear, decode_hf, NULL,
};

const sw_spec_reader sw_spec_fp8_tensor = {
    "fp8", {"weight", "weight_scale", "input_scale"}, "weight_scale", is_tensor, read_config,
    read_linear, decode_tensor, NULL,
};
