/* ct_layouts.c - see ct_layouts.h: the tensors. */
#include "formats/dialect/ct_layouts.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/num/half.h"

enum { PART_WEIGHT, PART_SCALE, PART_REST };

static bool is_mx(const sw_qspec *spec) { return spec->scale_dtype == SW_DTYPE_F8_E8M0; }
static bool is_packed(const sw_qspec *spec) { return spec->num->bits == 4 && spec->num->values; }

/* The first match decides. */
static const struct {
    const char *name;
    sw_num_id num; /* SW_NUM_COUNT: any integer */
    int scales;    /* 'm' E8M0, 'g' E4M3 under a global one, 'f' floats */
    int inputs;    /* 'q' quantized, 'd' quantized for a product of packed codes, 0: floats,
                      -1: any of these */
} formats[] = {
    {"mxfp4-pack-quantized", SW_NUM_E2M1, 'm', -1},
    {"mxfp8-quantized", SW_NUM_E4M3, 'm', -1},
    {"nvfp4-pack-quantized", SW_NUM_E2M1, 'g', -1},
    {"int-quantized", SW_NUM_COUNT, 'f', 'q'},
    {"pack-quantized", SW_NUM_COUNT, 'f', 'd'},
    {"pack-quantized", SW_NUM_COUNT, 'f', 0},
    {"float-quantized", SW_NUM_E4M3, 'f', -1},
};

/* vLLM multiplies groups of 4-bit codes by inputs that are rounded token by token, and looks for
 * the codes in packed words. Integers of any other kind with quantized inputs are plain bytes in
 * every reader. */
static bool is_packed_for_inputs(const sw_qspec *spec)
{
    return spec->act.scope == SW_ACT_TOKEN && spec->num->bits == 4 && spec->group_elems &&
           !spec->has_byte_codes;
}

static int inputs_of(const sw_qspec *spec)
{
    if (spec->act.scope == SW_ACT_NONE) return 0;
    return is_packed_for_inputs(spec) ? 'd' : 'q';
}

const char *sw_ct_format(const sw_qspec *spec)
{
    int scales = is_mx(spec) ? 'm' : spec->has_global ? 'g' : 'f';
    int inputs = inputs_of(spec);

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        bool is_num = formats[i].num == SW_NUM_COUNT ? spec->num->kind == SW_NUM_INT
                                                     : spec->num == &sw_nums[formats[i].num];
        if (is_num && formats[i].scales == scales &&
            (formats[i].inputs < 0 || formats[i].inputs == inputs))
            return formats[i].name;
    }
    return NULL;
}

bool sw_ct_is_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name)) return true;
    return false;
}

sw_code sw_ct_can_hold(const sw_qspec *spec, int64_t k_in, sw_err *err)
{
    sw_code rc = sw_hold_division("compressed-tensors", spec, k_in, err);

    if (rc != SW_OK || (rc = sw_hold_neighbours(sw_ct_format(spec) ? sw_ct_format(spec)
                                                                   : "compressed-tensors",
                                                spec, err)) != SW_OK)
        return rc;
    if (!sw_ct_format(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors: has no format for %s weights; "
                       "use --format swage", spec->num->name);
    if (spec->is_pow2_scale && !is_mx(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors: cannot say that block scales "
                       "are powers of two; use --format fp8 or swage");
    if (!spec->is_symmetric && spec->act.scope != SW_ACT_NONE)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors: zero points beside quantized "
                       "inputs; use --sym");
    if (is_packed(spec) && k_in % 2)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors: %lld inputs are odd; codes are "
                       "packed in pairs", (long long)k_in);
    return SW_OK;
}

sw_ct_rest sw_ct_rest_of(const sw_qspec *spec)
{
    sw_ct_rest at = {-1, -1, PART_REST};

    if (spec->has_global) at.global = at.n++;
    if (sw_act_needs_input_scale(&spec->act)) at.input = at.n++;
    return at;
}

static sw_part scale_part(const sw_qspec *spec, int64_t n_out, int64_t k_in)
{
    sw_dtype dtype = is_mx(spec) ? SW_DTYPE_U8 : spec->scale_dtype;
    int64_t rows = sw_ceil_div(n_out, sw_qspec_rows(spec, n_out));

    if (spec->scale_rows == SW_ROWS_ALL) return sw_part_1d("weight_scale", dtype, 1);
    return sw_part_2d("weight_scale", dtype, rows, sw_qspec_groups(spec, k_in));
}

static sw_dtype input_dtype(const sw_qspec *spec)
{
    return spec->input_dtype ? spec->input_dtype : SW_DTYPE_F32;
}

int sw_ct_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                  int64_t k_in)
{
    sw_ct_rest at = sw_ct_rest_of(spec);
    sw_dtype code_dtype = spec->num->values ? SW_DTYPE_F8_E4M3 : SW_DTYPE_I8;

    out[PART_WEIGHT] = is_packed(spec)
                           ? sw_part_2d("weight_packed", SW_DTYPE_U8, n_out, k_in / 2)
                           : sw_part_2d("weight", code_dtype, n_out, k_in);
    out[PART_SCALE] = scale_part(spec, n_out, k_in);
    out[PART_SCALE].is_scale = true;
    if (at.global >= 0) out[at.global] = sw_part_1d("weight_global_scale", SW_DTYPE_F32, 1);
    if (at.input < 0) return at.n;
    out[at.input] = spec->has_global ? sw_part_1d("input_global_scale", SW_DTYPE_F32, 1)
                                     : sw_part_1d("input_scale", input_dtype(spec), 1);
    out[at.input].is_input = !spec->has_global;
    return at.n;
}

/* A float whose reciprocal is the multiplier; SW_E_UNSUPPORTED when rounding hides it. */
static sw_code divisor_of(float *out, float multiplier, sw_err *err)
{
    float d = 1.0f / multiplier;
    float tries[3] = {d, nextafterf(d, 0.0f), nextafterf(d, INFINITY)};

    for (int i = 0; i < 3; i++)
        if (1.0f / tries[i] == multiplier) {
            *out = tries[i];
            return SW_OK;
        }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors stores a global scale as its "
                   "reciprocal, and %.9g is the reciprocal of no float", (double)multiplier);
}

static sw_code store_rest(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    sw_ct_rest at = sw_ct_rest_of(&q->spec);
    float global = 0.0f, input = q->input_scale;
    sw_code rc = SW_OK;

    if (at.global >= 0 && (rc = divisor_of(&global, q->global_scale, err)) != SW_OK) return rc;
    if (at.global >= 0 && at.input >= 0) rc = divisor_of(&input, q->input_scale, err);
    if (rc != SW_OK) return rc;
    if (at.global >= 0) sw_store_le32(parts[at.global], sw_f32_bits(global));
    if (at.input >= 0) sw_store_le32(parts[at.input], sw_f32_bits(input));
    return SW_OK;
}

void sw_ct_store_scales(void *dst, const sw_qtensor *q)
{
    int64_t rows = sw_qspec_rows(&q->spec, q->n_out);
    size_t row_bytes = (size_t)(q->n_groups * sw_dtype_bits(q->spec.scale_dtype) / 8);
    sw_err err = {0};

    for (int64_t n = 0; n < q->n_out; n += rows) /* every dtype that can_hold lets pass */
        (void)!sw_float_encode_n((uint8_t *)dst + (size_t)(n / rows) * row_bytes,
                                 q->spec.scale_dtype, q->scales + n * q->n_groups, q->n_groups,
                                 &err);
}

void sw_ct_store_codes(void *bytes, const sw_qtensor *q)
{
    uint8_t *dst = bytes;
    int64_t n_codes = q->n_out * q->k_in;
    int zero = q->spec.num->values ? 0 : q->spec.num->sym_zero;

    if (is_packed(&q->spec))
        for (int64_t i = 0; i < n_codes / 2; i++)
            dst[i] = (uint8_t)(q->codes[2 * i] | q->codes[2 * i + 1] << 4);
    else
        for (int64_t i = 0; i < n_codes; i++) dst[i] = (uint8_t)(q->codes[i] - zero);
}

sw_code sw_ct_encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    if (q->g_idx)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors is written with groups of "
                       "neighbouring columns, and a g_idx scatters these");
    sw_ct_store_codes(parts[PART_WEIGHT], q);
    sw_ct_store_scales(parts[PART_SCALE], q);
    return store_rest(parts, q, err);
}

sw_code sw_ct_load_codes(sw_qtensor *q, const void *bytes, sw_err *err)
{
    const uint8_t *src = bytes;
    int64_t n_codes = q->n_out * q->k_in;
    const sw_num *num = q->spec.num;

    for (int64_t i = 0; is_packed(&q->spec) && i < n_codes / 2; i++) {
        q->codes[2 * i] = src[i] & 15;
        q->codes[2 * i + 1] = src[i] >> 4;
    }
    for (int64_t i = 0; !is_packed(&q->spec) && i < n_codes; i++) {
        int code = num->values ? src[i] : (int8_t)src[i] + num->sym_zero;
        if (code < 0 || code > num->code_max)
            return SW_FAIL(err, SW_E_FORMAT, "code %d at row %lld, column %lld; %d bits hold "
                           "%d..%d", code - num->sym_zero, (long long)(i / q->k_in),
                           (long long)(i % q->k_in), num->bits, -num->sym_zero, num->sym_zero - 1);
        q->codes[i] = (uint8_t)code;
    }
    return SW_OK;
}

static float load_divisor(const void *part) { return 1.0f / sw_f32_from_bits(sw_load_le32(part)); }

static sw_code load_input(sw_qtensor *q, const void *part, sw_err *err)
{
    if (!q->spec.has_global)
        return sw_float_decode_n(&q->input_scale, part, input_dtype(&q->spec), 1, err);
    q->input_scale = load_divisor(part);
    return SW_OK;
}

sw_code sw_ct_load_scales(sw_qtensor *q, const void *src, sw_err *err)
{
    int64_t rows = sw_qspec_rows(&q->spec, q->n_out);
    size_t row_bytes = (size_t)(q->n_groups * sw_dtype_bits(q->spec.scale_dtype) / 8);
    sw_code rc = SW_OK;

    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++)
        rc = sw_float_decode_n(q->scales + n * q->n_groups,
                               (const uint8_t *)src + (size_t)(n / rows) * row_bytes,
                               q->spec.scale_dtype, q->n_groups, err);
    return rc;
}

sw_code sw_ct_decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    sw_ct_rest at = sw_ct_rest_of(&q->spec);
    sw_code rc = sw_ct_load_codes(q, parts[PART_WEIGHT], err);

    if (rc == SW_OK) rc = sw_ct_load_scales(q, parts[PART_SCALE], err);
    if (rc != SW_OK) return rc;
    if (at.global >= 0) q->global_scale = load_divisor(parts[at.global]);
    return at.input < 0 ? SW_OK : load_input(q, parts[at.input], err);
}
