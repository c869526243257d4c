/* decode_spec_modelopt.c - the second reading of what NVIDIA's Model Optimizer exports.
 *
 * For a linear P with K inputs and N outputs; all scales multiply, those without a shape are one
 * F32, [] or [1]:
 *   FP8                        weight F8_E4M3 [N, K], weight_scale, input_scale
 *   FP8_PER_CHANNEL_PER_TOKEN  weight F8_E4M3 [N, K], weight_scale F32 [N]
 *   FP8_PB_WO                  weight F8_E4M3 [N, K], weight_scale F32 [ceil(N/128), 1, K/128, 1]
 *   MXFP8                      weight F8_E4M3 [N, K], weight_scale U8 [N, K/32], 2^(byte - 127)
 *   NVFP4                      weight U8 [N, K/2], weight_scale F8_E4M3 [N, K/16],
 *                              weight_scale_2, input_scale
 *   W4A16_NVFP4                the same without input_scale
 *   W4A16_AWQ                  weight U8 [N/2, K], weight_scale F32 [N, K/g], and perhaps
 *                              pre_quant_scale [K], which multiplies inputs: equal in a group
 * W[n][k] = value of the code * weight_scale of its group * weight_scale_2. Byte j of a U8 row
 * holds input 2j in its low half; of W4A16_AWQ byte [j][k] holds outputs 2j (low) and 2j + 1 as
 * four-bit numbers in two's complement. The config is either flat, or has it all inside
 * "quantization".
 */
#include <string.h>
#include <strings.h>

#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

typedef struct layout {
    const char *algo, *floats;
    int64_t rows, group;   /* channels that share scales, -1: all; inputs that do, 0: all */
    bool is_pow2, has_global, has_input, quantizes_inputs;
} layout;

static const layout layouts[] = {
    {"FP8", "e4m3", -1, 0, false, false, true, true},
    {"FP8_PER_CHANNEL_PER_TOKEN", "e4m3", 0, 0, false, false, false, true},
    {"FP8_PB_WO", "e4m3", 128, 128, false, false, false, true},
    {"MXFP8", "e4m3", 0, 32, true, false, false, true},
    {"NVFP4", "e2m1", 0, 16, false, true, true, true},
    {"W4A16_NVFP4", "e2m1", 0, 16, false, true, false, false},
    {"W4A16_AWQ", NULL, 0, 0, false, false, false, false},
};

static const cJSON *body_of(const cJSON *config)
{
    const cJSON *inner = sw_json_member(config, "quantization");

    return cJSON_IsObject(inner) ? inner : config;
}

static bool is_mine(const cJSON *config)
{
    const cJSON *method = sw_json_member(config, "quant_method");
    const cJSON *producer = sw_json_member(sw_json_member(config, "producer"), "name");

    if (cJSON_IsString(method)) return !strncmp(method->valuestring, "modelopt", 8);
    return body_of(config) != config && cJSON_IsString(producer) &&
           !strcmp(producer->valuestring, "modelopt");
}

static sw_code read_algo(sw_spec_scheme *out, const cJSON *object, sw_err *err)
{
    const char *algo = "none";
    int64_t group = -1;
    sw_code rc;

    if ((rc = sw_json_text(&algo, object, "quant_algo", err)) != SW_OK ||
        (rc = sw_json_int(&group, object, "group_size", -1, INT32_MAX, err)) != SW_OK)
        return rc;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i];
        if (strcasecmp(l->algo, algo) != 0) continue;
        if (group > 0 && l->group && group != l->group)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s with groups of %lld", l->algo,
                           (long long)group);
        out->scale_rows = l->rows;
        out->group_elems = l->group;
        out->is_pow2 = l->is_pow2;
        out->has_global = l->has_global;
        out->has_input_scale = l->has_input;
        out->quantizes_inputs = l->quantizes_inputs;
        out->exponent_bits = out->mantissa_bits = 0;
        if (!l->floats) return sw_spec_sizes(out, 4, group > 0 ? group : 128, err);
        return sw_spec_float_kind(out, l->floats, err);
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "quant_algo \"%.40s\" cannot be verified", algo);
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *body = body_of(config), *layers = sw_json_member(body, "quantized_layers"), *entry;
    const char *algo = "none";
    int bits_min = 8;
    sw_code rc;

    if ((rc = sw_json_text(&algo, body, "quant_algo", err)) != SW_OK) return rc;
    if (strcasecmp(algo, "MIXED_PRECISION") != 0) return read_algo(out, body, err);
    if (!cJSON_IsObject(layers) || !layers->child)
        return SW_FAIL(err, SW_E_FORMAT, "several algorithms, and quantized_layers names none");
    cJSON_ArrayForEach(entry, layers)
    {
        if ((rc = read_algo(out, entry, err)) != SW_OK) return rc;
        if (out->bits < bits_min) bits_min = out->bits;
    }
    out->bits_min = bits_min;
    out->mixed = config;
    return SW_OK;
}

/* The longest entry that is the path, or that the path lies below. */
static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    const cJSON *layers = sw_json_member(body_of(config), "quantized_layers"), *entry, *best = NULL;
    size_t n_best = 0;

    cJSON_ArrayForEach(entry, layers)
    {
        size_t n = strlen(entry->string);
        if (n < n_best || strncmp(entry->string, module_path, n) != 0) continue;
        if (module_path[n] != '\0' && module_path[n] != '.') continue;
        best = entry;
        n_best = n;
    }
    if (best) return read_algo(out, best, err);
    return SW_FAIL(err, SW_E_FORMAT, "quantized_layers does not name it");
}

static sw_code read_codes(sw_spec_weight *w, const sw_st *st, const char *module_path, sw_err *err)
{
    int per_byte = w->bits == 4 ? 2 : 1;
    int64_t shape[2] = {w->n_out, w->k_in / per_byte};
    const unsigned char *bytes;
    sw_code rc;

    if (w->k_in % per_byte)
        return SW_FAIL(err, SW_E_FORMAT, "%s: an odd number of inputs", module_path);
    rc = sw_spec_part(&bytes, st, module_path, "weight",
                      per_byte == 2 ? SW_DTYPE_U8 : SW_DTYPE_F8_E4M3, 2, shape, err);
    for (int64_t i = 0; rc == SW_OK && i < w->n_out * w->k_in; i++)
        w->codes[i] = (uint8_t)(per_byte == 1 ? bytes[i] : bytes[i / 2] >> (i % 2 ? 4 : 0) & 15);
    return rc;
}

static sw_code read_scales(sw_spec_weight *w, const sw_spec_scheme *s, const sw_st *st,
                           const char *module_path, sw_err *err)
{
    int64_t rows = s->scale_rows > 1 ? s->scale_rows : 1;
    int64_t in_blocks[4] = {sw_ceil_div(w->n_out, rows), 1, w->n_groups, 1};
    int64_t in_groups[2] = {w->n_out, w->n_groups};
    sw_spec_floats scales = {.bytes = NULL};
    float single = 0;
    sw_code rc;

    if (s->scale_rows < 0)
        rc = sw_spec_single_scale(&single, st, module_path, "weight_scale", err);
    else if (rows > 1)
        rc = sw_spec_scales(&scales, st, module_path, "weight_scale", 4, in_blocks, err);
    else
        rc = sw_spec_scales(&scales, st, module_path, "weight_scale", s->group_elems ? 2 : 1,
                            in_groups, err);
    for (int64_t n = 0; n < w->n_out && rc == SW_OK; n++)
        for (int64_t g = 0; g < w->n_groups; g++)
            w->scales[n * w->n_groups + g] =
                scales.bytes ? sw_spec_float_at(&scales, n / rows * w->n_groups + g) : single;
    return rc;
}

/* Inputs that are multiplied beforehand make larger scales, if all of a group are alike. */
static sw_code apply_inputs(sw_spec_weight *w, const sw_st *st, const char *module_path,
                            sw_err *err)
{
    int64_t shape[1] = {w->k_in};
    sw_spec_floats factors;
    sw_code rc;

    if (!sw_spec_find(st, module_path, "pre_quant_scale")) return SW_OK;
    rc = sw_spec_scales(&factors, st, module_path, "pre_quant_scale", 1, shape, err);
    for (int64_t k = 0; k < w->k_in && rc == SW_OK; k++) {
        int32_t g = w->group_of[k];
        float f = sw_spec_float_at(&factors, k);
        bool is_first = k == 0 || w->group_of[k - 1] != g;

        if (!is_first && memcmp(&f, &(float){sw_spec_float_at(&factors, k - 1)}, sizeof f) != 0)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s.pre_quant_scale differs within a group",
                           module_path);
        for (int64_t n = 0; is_first && n < w->n_out; n++) w->scales[n * w->n_groups + g] *= f;
    }
    return rc;
}

static sw_code decode_int4(sw_spec_weight *w, const sw_st *st, const char *module_path, sw_err *err)
{
    int64_t pairs[2] = {w->n_out / 2, w->k_in}, groups[2] = {w->n_out, w->n_groups};
    const unsigned char *bytes;
    sw_spec_floats scales;
    sw_code rc;

    if (w->n_out % 2) return SW_FAIL(err, SW_E_FORMAT, "%s: outputs without a pair", module_path);
    if ((rc = sw_spec_part(&bytes, st, module_path, "weight", SW_DTYPE_U8, 2, pairs, err)) !=
            SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "weight_scale", 2, groups, err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t k = 0; k < w->k_in; k++) {
            int half = n & 1 ? bytes[n / 2 * w->k_in + k] / 16 : bytes[n / 2 * w->k_in + k] % 16;

            w->codes[n * w->k_in + k] = (uint8_t)((half < 8 ? half : half - 16) + 8);
        }
    for (int64_t i = 0; i < w->n_out * w->n_groups; i++) {
        w->scales[i] = sw_spec_float_at(&scales, i);
        w->zeros[i] = 8;
    }
    return apply_inputs(w, st, module_path, err);
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    sw_code rc;

    if (!w->exponent_bits) return decode_int4(w, st, module_path, err);
    rc = read_codes(w, st, module_path, err);

    if (rc == SW_OK) rc = read_scales(w, scheme, st, module_path, err);
    if (rc == SW_OK && scheme->has_global)
        rc = sw_spec_single(&w->global, st, module_path, "weight_scale_2", err);
    if (rc == SW_OK && scheme->has_input_scale)
        rc = sw_spec_single(&w->input_scale, st, module_path, "input_scale", err);
    return rc;
}

const sw_spec_reader sw_spec_modelopt = {
    "modelopt", {"weight", "weight_scale", "weight_scale_2", "input_scale", "pre_quant_scale"},
    "weight_scale",
    is_mine, read_config, read_linear, decode, NULL,
};
