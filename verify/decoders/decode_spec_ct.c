/* decode_spec_ct.c - the second reading of compressed-tensors.
 *
 * Integers are one a byte (int-quantized, for quantized inputs) or packed in words (pack-quantized:
 * weights alone, and 4 bits for inputs that are rounded token by token). In pack-quantized, for a
 * linear P with K inputs, N outputs, G groups (1 per channel) of b-bit codes:
 *   P.weight_packed     I32 [N, ceil(K*b/32)]   row n is a dense stream along k
 *   P.weight_scale      F16, BF16 or F32 [N, G]
 *   P.weight_shape      I64 [2] = N, K
 *   P.weight_zero_point I32 [ceil(N*b/32), G]   asymmetric only; column g is a stream along n
 *   P.weight_g_idx      I32 [K]                 activation order "group" only; -1: never set
 * Codes and zero points are offset binary (stored = value + 2^(b-1)), so the offsets cancel:
 * W[n][k] = scale * (stored code - stored zero). Older files leave 3-bit words unfilled
 * (10 codes each); their shape tells.
 */
#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

#include <string.h>

static bool is_mine(const cJSON *config) { return sw_spec_method_is(config, "compressed-tensors"); }

static sw_code check_format(const cJSON *object, sw_err *err)
{
    static const char *const known[] = {
        "pack-quantized", "int-quantized", "float-quantized", "mxfp8-quantized",
        "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"};
    const char *format = "pack-quantized";
    sw_code rc = sw_json_text(&format, object, "format", err);

    for (size_t i = 0; rc == SW_OK && i < sizeof known / sizeof *known; i++)
        if (!strcmp(format, known[i])) return SW_OK;
    if (rc == SW_OK)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "format \"%.60s\"; pack-quantized, int-, float- and "
                     "mxfp8-quantized, nvfp4- and mxfp4-pack-quantized can be verified", format);
    return rc;
}

/* actorder: null, false, "weight", "static" store nothing; true, "group", "dynamic" a g_idx. */
static bool stores_g_idx(const cJSON *weights)
{
    const cJSON *order = sw_json_member(weights, "actorder");

    if (cJSON_IsString(order))
        return !strcmp(order->valuestring, "group") || !strcmp(order->valuestring, "dynamic");
    return cJSON_IsTrue(order);
}

/* Whether codes are plain bytes, and which scale of the inputs is stored. */
static sw_code read_inputs(sw_spec_scheme *out, const cJSON *inputs, sw_err *err)
{
    const cJSON *dynamic = sw_json_member(inputs, "dynamic");
    const char *strategy = "token";
    sw_code rc;

    out->has_input_scale = out->quantizes_inputs = false;
    if (!inputs) return SW_OK;
    if ((rc = sw_json_text(&strategy, inputs, "strategy", err)) != SW_OK) return rc;
    out->quantizes_inputs = true;
    out->has_input_scale = !dynamic || cJSON_IsFalse(dynamic) || !strcmp(strategy, "tensor_group");
    return SW_OK;
}

/* Small floats: one scale a tensor, a channel, a block, or a group of 32 (E8M0) or 16 (E4M3 under
 * a global one). */
static sw_code read_float(sw_spec_scheme *out, const cJSON *weights, int64_t bits,
                          int64_t group_size, const char *strategy, sw_err *err)
{
    const cJSON *sides = sw_json_member(weights, "block_structure");
    sw_code rc = bits == 4 || bits == 8
                     ? sw_spec_float_kind(out, bits == 4 ? "e2m1" : "e4m3", err)
                     : SW_FAIL(err, SW_E_UNSUPPORTED, "floats of %lld bits", (long long)bits);

    if (rc != SW_OK) return rc;
    out->group_elems = out->scale_rows = 0;
    out->has_global = !strcmp(strategy, "tensor_group");
    if (!strcmp(strategy, "channel")) return SW_OK;
    if (!strcmp(strategy, "tensor")) {
        out->scale_rows = -1;
        return SW_OK;
    }
    if (!strcmp(strategy, "block") && cJSON_GetArraySize(sides) == 2) {
        out->scale_rows = cJSON_GetArrayItem(sides, 0)->valueint;
        group_size = cJSON_GetArrayItem(sides, 1)->valueint;
        if (out->scale_rows < 2) return SW_FAIL(err, SW_E_FORMAT, "block_structure");
    } else if (strcmp(strategy, "group") && !out->has_global) {
        return SW_FAIL(err, SW_E_UNSUPPORTED, "strategy \"%.30s\" of float weights", strategy);
    }
    if (group_size < 1)
        return SW_FAIL(err, SW_E_FORMAT, "strategy \"%s\" without a size", strategy);
    out->group_elems = group_size;
    out->is_pow2 = !strcmp(strategy, "group") && group_size == 32;
    return SW_OK;
}

/* Where the integers lie: the group's own format, else that of the checkpoint, else the form that
 * weights alone have always had. */
static sw_code read_packing(sw_spec_scheme *out, const cJSON *config, const cJSON *group,
                            sw_err *err)
{
    const char *format = out->quantizes_inputs ? "int-quantized" : "pack-quantized";
    const char *whole = format;
    sw_code rc;

    if ((rc = sw_json_text(&whole, config, "format", err)) != SW_OK) return rc;
    if (strcmp(whole, "mixed-precision") != 0) format = whole;
    if ((rc = sw_json_text(&format, group, "format", err)) != SW_OK) return rc;
    out->is_packed = !strcmp(format, "pack-quantized");
    if (out->is_packed || !strcmp(format, "int-quantized")) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "format \"%.60s\" of integer weights; pack-quantized and "
                   "int-quantized are known", format);
}

static sw_code read_group(sw_spec_scheme *out, const cJSON *config, const cJSON *group,
                          sw_err *err)
{
    int64_t bits = 0, group_size = -1;
    const char *type = "int", *strategy = NULL;
    const cJSON *weights;
    sw_code rc;

    if ((rc = check_format(group, err)) != SW_OK) return rc;
    weights = sw_json_member(group, "weights");
    if (!cJSON_IsObject(weights))
        return SW_FAIL(err, SW_E_FORMAT, "the config group says nothing of weights");
    if ((rc = sw_json_int(&bits, weights, "num_bits", 0, 64, err)) != SW_OK ||
        (rc = sw_json_text(&type, weights, "type", err)) != SW_OK ||
        (rc = sw_json_text(&strategy, weights, "strategy", err)) != SW_OK ||
        (rc = sw_json_bool(&out->is_symmetric, weights, "symmetric", err)) != SW_OK ||
        (rc = sw_json_int(&group_size, weights, "group_size", -1, INT32_MAX, err)) != SW_OK)
        return rc;
    if (!strategy) strategy = group_size > 0 ? "group" : "channel";
    if ((rc = read_inputs(out, sw_json_member(group, "input_activations"), err)) != SW_OK)
        return rc;
    if (!strcmp(type, "float")) return read_float(out, weights, bits, group_size, strategy, err);
    if (strcmp(type, "int") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "weights of type \"%.30s\"", type);
    if (strcmp(strategy, "group") != 0 && strcmp(strategy, "channel") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "strategy \"%.30s\"; group and channel can be "
                       "verified", strategy);
    if (!strcmp(strategy, "channel")) group_size = -1;
    out->wants_g_idx = stores_g_idx(weights);
    if ((rc = read_packing(out, config, group, err)) != SW_OK) return rc;
    return sw_spec_sizes(out, bits, group_size, err);
}

/* One group stands for everything that is stored quantized; of several, the scheme of a linear is
 * that of the group that targets it. */
static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *groups = sw_json_member(config, "config_groups"), *group;
    int bits_min = 8;
    sw_code rc;

    if ((rc = check_format(config, err)) != SW_OK) return rc;
    if (!cJSON_IsObject(groups) || cJSON_GetArraySize(groups) < 1)
        return SW_FAIL(err, SW_E_FORMAT, "config_groups is missing or empty");
    cJSON_ArrayForEach(group, groups)
    {
        sw_spec_scheme one = {.reader = out->reader, .is_symmetric = true};

        if ((rc = read_group(&one, config, group, err)) != SW_OK) {
            sw_err_prefix(err, "%.60s", group->string);
            return rc;
        }
        if (one.bits < bits_min) bits_min = one.bits;
        if (group == groups->child) *out = one;
    }
    out->bits_min = bits_min;
    out->mixed = cJSON_GetArraySize(groups) > 1 ? config : NULL;
    return SW_OK;
}

/* "re:pattern" from the start of the path, or the path itself; "Linear" takes what is left. */
static sw_code targets(bool *named, bool *by_class, const cJSON *group, const char *module_path,
                       sw_err *err)
{
    const cJSON *target;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(target, sw_json_member(group, "targets"))
    {
        const char *text = cJSON_IsString(target) ? target->valuestring : "";

        if (!strncmp(text, "re:", 3))
            rc = sw_spec_match(named, text + 3, module_path, err);
        else
            *named = !strcmp(text, module_path);
        if (rc != SW_OK || *named) return rc;
        *by_class = *by_class || !strcmp(text, "Linear");
    }
    return SW_OK;
}

sw_code sw_spec_ct_group(const cJSON **out, const cJSON *config, const char *module_path,
                         sw_err *err)
{
    const cJSON *group, *of_class = NULL;
    sw_code rc;

    cJSON_ArrayForEach(group, sw_json_member(config, "config_groups"))
    {
        bool named = false, by_class = false;

        if ((rc = targets(&named, &by_class, group, module_path, err)) != SW_OK) return rc;
        if (by_class && !of_class) of_class = group;
        if (named) break;
    }
    *out = group ? group : of_class;
    return SW_OK;
}

static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    const cJSON *group = NULL;
    sw_spec_scheme one = {.reader = out->reader, .is_symmetric = true, .bits_min = out->bits_min};
    sw_code rc = sw_spec_ct_group(&group, config, module_path, err);

    if (rc != SW_OK) return rc;
    if (!group) return SW_FAIL(err, SW_E_FORMAT, "no config group targets it");
    if ((rc = read_group(&one, config, group, err)) == SW_OK) *out = one;
    return rc;
}

/* Codes per word by the shape that is there: 0 is dense. */
static int codes_per_word(const sw_st_tensor *t, int dim, int64_t n_codes, int bits)
{
    int whole = 32 / bits;
    bool is_padded = t && t->view.n_dims == 2 && 32 % bits &&
                     t->view.shape[dim] != sw_ceil_div(n_codes * bits, 32) &&
                     t->view.shape[dim] == sw_ceil_div(n_codes, whole);

    return is_padded ? whole : 0;
}

static int64_t words_for(int64_t n_codes, int bits, int per_word)
{
    return per_word ? sw_ceil_div(n_codes, per_word) : sw_ceil_div(n_codes * bits, 32);
}

static sw_code check_shape(const sw_spec_weight *w, const sw_st *st, const char *module_path,
                           sw_err *err)
{
    static const int64_t two = 2;
    const unsigned char *shape;
    sw_code rc = sw_spec_part(&shape, st, module_path, "weight_shape", SW_DTYPE_I64, 1, &two, err);

    if (rc != SW_OK) return rc;
    if (sw_load_le64(shape) == (uint64_t)w->n_out && sw_load_le64(shape + 8) == (uint64_t)w->k_in)
        return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s.weight_shape is [%lld, %lld], want [%lld, %lld]",
                   module_path, (long long)sw_load_le64(shape), (long long)sw_load_le64(shape + 8),
                   (long long)w->n_out, (long long)w->k_in);
}

static sw_code read_zeros(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                          const char *module_path, sw_err *err)
{
    const sw_st_tensor *t = sw_spec_find(st, module_path, "weight_zero_point");
    sw_spec_stream zeros = {.stride = w->n_groups, .bits = w->bits};
    const unsigned char *words;
    int64_t shape[2];
    sw_code rc;

    if (scheme->is_symmetric) {
        for (int64_t i = 0; i < w->n_out * w->n_groups; i++) w->zeros[i] = 1 << (w->bits - 1);
        if (t) return SW_FAIL(err, SW_E_FORMAT, "%s.weight_zero_point is there, but the scheme is "
                              "symmetric", module_path);
        return SW_OK;
    }
    zeros.per_word = codes_per_word(t, 0, w->n_out, w->bits);
    shape[0] = words_for(w->n_out, w->bits, zeros.per_word);
    shape[1] = w->n_groups;
    if ((rc = sw_spec_part(&words, st, module_path, "weight_zero_point", SW_DTYPE_I32, 2, shape,
                           err)) != SW_OK)
        return rc;
    for (int64_t g = 0; g < w->n_groups; g++) {
        zeros.words = words + 4 * g;
        for (int64_t n = 0; n < w->n_out; n++)
            w->zeros[n * w->n_groups + g] = (int32_t)sw_spec_code_at(&zeros, n);
    }
    return SW_OK;
}

static sw_code read_g_idx(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                          const char *module_path, sw_err *err)
{
    const unsigned char *g_idx;
    sw_code rc;

    if (!scheme->wants_g_idx && !sw_spec_find(st, module_path, "weight_g_idx")) return SW_OK;
    if ((rc = sw_spec_part(&g_idx, st, module_path, "weight_g_idx", SW_DTYPE_I32, 1, &w->k_in,
                           err)) != SW_OK)
        return rc;
    if (sw_load_le32(g_idx) == UINT32_MAX) return SW_OK; /* never initialised: contiguous groups */
    for (int64_t k = 0; k < w->k_in; k++) w->group_of[k] = (int32_t)sw_load_le32(g_idx + 4 * k);
    return SW_OK;
}

static sw_code decode_packed(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    const sw_st_tensor *packed = sw_spec_find(st, module_path, "weight_packed");
    sw_spec_stream codes = {.stride = 1, .bits = w->bits};
    int64_t code_shape[2], scale_shape[2] = {w->n_out, w->n_groups};
    const unsigned char *words;
    sw_spec_floats scales;
    sw_code rc;

    codes.per_word = codes_per_word(packed, 1, w->k_in, w->bits);
    code_shape[0] = w->n_out;
    code_shape[1] = words_for(w->k_in, w->bits, codes.per_word);
    if ((rc = check_shape(w, st, module_path, err)) != SW_OK ||
        (rc = sw_spec_part(&words, st, module_path, "weight_packed", SW_DTYPE_I32, 2, code_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "weight_scale", 2, scale_shape,
                             err)) != SW_OK ||
        (rc = read_zeros(w, scheme, st, module_path, err)) != SW_OK ||
        (rc = read_g_idx(w, scheme, st, module_path, err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++) {
        codes.words = words + 4 * n * code_shape[1];
        sw_spec_codes(w->codes + n * w->k_in, &codes, w->k_in);
    }
    for (int64_t i = 0; i < w->n_out * w->n_groups; i++)
        w->scales[i] = sw_spec_float_at(&scales, i);
    return SW_OK;
}

/* Codes one a byte (integers in two's complement) or two, low nibble first. */
static sw_code read_plain_codes(sw_spec_weight *w, const sw_st *st, const char *module_path,
                                sw_err *err)
{
    bool is_paired = w->exponent_bits && w->bits == 4;
    int64_t shape[2] = {w->n_out, is_paired ? w->k_in / 2 : w->k_in}, n = w->n_out * w->k_in;
    int middle = w->exponent_bits ? 0 : 1 << (w->bits - 1);
    const unsigned char *bytes;
    sw_code rc = sw_spec_part(&bytes, st, module_path, is_paired ? "weight_packed" : "weight",
                              is_paired ? SW_DTYPE_U8
                              : w->exponent_bits ? SW_DTYPE_F8_E4M3 : SW_DTYPE_I8,
                              2, shape, err);

    if (rc != SW_OK) return rc;
    if (is_paired && w->k_in % 2) return SW_FAIL(err, SW_E_FORMAT, "%s: odd inputs", module_path);
    for (int64_t i = 0; i < n; i++) {
        int code = is_paired ? bytes[i / 2] >> (i % 2 ? 4 : 0) & 15
                   : middle ? (signed char)bytes[i] + middle : bytes[i];
        if (code < 0 || code >= 1 << w->bits)
            return SW_FAIL(err, SW_E_FORMAT, "%s.weight holds %d at channel %lld, which %d bits do "
                           "not", module_path, code - middle, (long long)(i / w->k_in), w->bits);
        w->codes[i] = (uint8_t)code;
    }
    return SW_OK;
}

static sw_code read_plain_scales(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                                 const char *module_path, sw_err *err)
{
    int64_t rows = scheme->scale_rows < 0   ? w->n_out
                   : scheme->scale_rows > 1 ? scheme->scale_rows
                                            : 1;
    int64_t shape[2] = {sw_ceil_div(w->n_out, rows), w->n_groups};
    const sw_st_tensor *t = sw_spec_find(st, module_path, "weight_scale");
    bool is_flat = scheme->scale_rows < 0 && t && t->view.n_dims < 2;
    sw_spec_floats scales;
    sw_code rc = sw_spec_scales(&scales, st, module_path, "weight_scale",
                                is_flat ? t->view.n_dims : 2, shape, err);

    if (rc != SW_OK) return rc;
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t g = 0; g < w->n_groups; g++) {
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&scales, n / rows * w->n_groups + g);
            w->zeros[n * w->n_groups + g] = w->exponent_bits ? 0 : 1 << (w->bits - 1);
        }
    return SW_OK;
}

/* Global scales of nvfp4 are stored as what values are divided by. */
static sw_code read_singles(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                            const char *module_path, sw_err *err)
{
    sw_code rc = SW_OK;

    if (scheme->has_global) {
        rc = sw_spec_single(&w->global, st, module_path, "weight_global_scale", err);
        w->global = 1.0f / w->global;
    }
    if (rc != SW_OK || !scheme->has_input_scale) return rc;
    rc = sw_spec_single(&w->input_scale, st, module_path,
                        scheme->has_global ? "input_global_scale" : "input_scale", err);
    if (scheme->has_global) w->input_scale = 1.0f / w->input_scale;
    return rc;
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    sw_code rc;

    if (!scheme->exponent_bits && scheme->is_packed)
        return decode_packed(w, scheme, st, module_path, err);
    if ((rc = read_plain_codes(w, st, module_path, err)) != SW_OK ||
        (rc = read_plain_scales(w, scheme, st, module_path, err)) != SW_OK)
        return rc;
    return read_singles(w, scheme, st, module_path, err);
}

const sw_spec_reader sw_spec_ct = {
    "compressed-tensors",
    {"weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx", "weight",
     "weight_global_scale", "input_scale", "input_global_scale"},
    "weight_scale", is_mine, read_config,
    read_linear, decode, NULL,
};
