/* dialect_gguf.c - see dialect_gguf.h. */
#include "formats/dialect/dialect_gguf.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_common.h"
#include "formats/num/half.h"

#define GROUP 32
#define HALF 16
#define FP4_GROUP 16 /* of NVFP4, whose blocks have four */
#define FP4_GROUPS 4
#define FP4_SCALE "NVFP4_scale"

typedef struct code_type {
    sw_block_type type;
    sw_num_id num;
    bool is_symmetric, is_pow2;
    sw_dtype scale_dtype;
    int64_t group_elems;
    bool has_global;
} code_type;

static const code_type code_types[] = {
    {SW_BLOCK_Q4_0, SW_NUM_INT4, true, false, SW_DTYPE_F16, GROUP, false},
    {SW_BLOCK_Q4_1, SW_NUM_INT4, false, false, SW_DTYPE_F16, GROUP, false},
    {SW_BLOCK_Q8_0, SW_NUM_INT8, true, false, SW_DTYPE_F16, GROUP, false},
    {SW_BLOCK_MXFP4, SW_NUM_E2M1, true, true, SW_DTYPE_F8_E8M0, GROUP, false},
    {SW_BLOCK_NVFP4, SW_NUM_E2M1, true, false, SW_DTYPE_F8_E4M3, FP4_GROUP, true},
};
#define N_CODE_TYPES (sizeof code_types / sizeof *code_types)

static float half_at(const uint8_t *b) { return sw_f16_decode(sw_load_le16(b)); }
static void put_half(uint8_t *b, float v) { sw_store_le16(b, sw_f16_encode(v)); }

static sw_qspec spec_of(const code_type *t)
{
    return (sw_qspec){.num = &sw_nums[t->num], .is_symmetric = t->is_symmetric,
                      .group_elems = t->group_elems, .scale_dtype = t->scale_dtype,
                      .is_pow2_scale = t->is_pow2, .has_global = t->has_global};
}

bool sw_gguf_spec_of_type(sw_qspec *out, sw_block_type type)
{
    for (size_t i = 0; i < N_CODE_TYPES; i++) {
        if (code_types[i].type != type) continue;
        *out = spec_of(&code_types[i]);
        return true;
    }
    return false;
}

sw_block_type sw_gguf_type_of_spec(const sw_qspec *spec)
{
    for (size_t i = 0; i < N_CODE_TYPES; i++) {
        sw_qspec one = spec_of(&code_types[i]);
        if (sw_qspec_same(spec, &one) && !spec->is_scattered) return code_types[i].type;
    }
    return SW_BLOCK_TYPE_COUNT;
}

/* --- blocks ------------------------------------------------------------------------------- */

/* The zero point of a Q4_1 block, or -1: its minimum is no whole number of scales. */
static int zero_of(float d, float m)
{
    if (m >= 0.0f && m <= 0.0f) return 0;
    for (int z = 1; z < 16; z++)
        if (d * (float)z + m >= 0.0f && d * (float)z + m <= 0.0f) return z; /* exact: 11 + 4 bits */
    return -1;
}

bool sw_gguf_row_has_codes(const void *row, sw_block_type type, int64_t n)
{
    const uint8_t *b = row;
    sw_qspec ignored;

    if (!sw_gguf_spec_of_type(&ignored, type)) return false;
    for (int64_t i = 0; type == SW_BLOCK_Q4_1 && i < n; i += GROUP, b += 20)
        if (zero_of(half_at(b), half_at(b + 2)) < 0) return false;
    return true;
}

/* Element j in the low half of byte j, j + half in the high one. */
static void put_nibbles(uint8_t *b, const uint8_t *codes, int half)
{
    for (int j = 0; j < half; j++) b[j] = (uint8_t)(codes[j] | codes[j + half] << 4);
}

static void take_nibbles(uint8_t *codes, const uint8_t *b, int half)
{
    for (int j = 0; j < half; j++) {
        codes[j] = b[j] & 15;
        codes[j + half] = b[j] >> 4;
    }
}

/* A block of NVFP4 has four scales, and behind them the codes of their groups. */
static void encode_fp4_row(uint8_t *b, const sw_qtensor *q, int64_t n)
{
    const uint8_t *codes = q->codes + n * q->k_in;
    const float *scales = q->scales + n * q->n_groups;

    for (int64_t g = 0; g < q->n_groups; g += FP4_GROUPS) {
        (void)!sw_float_encode_n(b, SW_DTYPE_F8_E4M3, scales + g, FP4_GROUPS, NULL);
        b += FP4_GROUPS;
        for (int r = 0; r < FP4_GROUPS; r++, b += FP4_GROUP / 2)
            put_nibbles(b, codes + (g + r) * FP4_GROUP, FP4_GROUP / 2);
    }
}

static void decode_fp4_row(sw_qtensor *q, const uint8_t *b, int64_t n)
{
    uint8_t *codes = q->codes + n * q->k_in;
    float *scales = q->scales + n * q->n_groups;

    for (int64_t g = 0; g < q->n_groups; g += FP4_GROUPS) {
        (void)!sw_float_decode_n(scales + g, b, SW_DTYPE_F8_E4M3, FP4_GROUPS, NULL);
        b += FP4_GROUPS;
        for (int r = 0; r < FP4_GROUPS; r++, b += FP4_GROUP / 2)
            take_nibbles(codes + (g + r) * FP4_GROUP, b, FP4_GROUP / 2);
    }
}

void sw_gguf_encode_row(void *row, const sw_qtensor *q, int64_t n)
{
    const sw_block_type type = sw_gguf_type_of_spec(&q->spec);
    uint8_t *b = row;

    if (type == SW_BLOCK_NVFP4) {
        encode_fp4_row(b, q, n);
        return;
    }
    for (int64_t g = 0; g < q->n_groups; g++) {
        const float scale = q->scales[n * q->n_groups + g];
        const uint8_t *codes = q->codes + n * q->k_in + g * GROUP;
        const int zero = q->zeros ? q->zeros[n * q->n_groups + g] : 0;

        if (type == SW_BLOCK_MXFP4) {
            (void)!sw_float_encode_n(b++, SW_DTYPE_F8_E8M0, &scale, 1, NULL);
        } else {
            put_half(b, scale);
            b += 2;
        }
        if (type == SW_BLOCK_Q4_1) {
            put_half(b, zero ? -scale * (float)zero : 0.0f);
            b += 2;
        }
        if (type == SW_BLOCK_Q8_0) {
            for (int j = 0; j < GROUP; j++) *b++ = (uint8_t)(codes[j] - 128);
        } else {
            put_nibbles(b, codes, HALF);
            b += HALF;
        }
    }
}

sw_code sw_gguf_decode_row(sw_qtensor *q, const void *row, int64_t n, sw_err *err)
{
    const sw_block_type type = sw_gguf_type_of_spec(&q->spec);
    const uint8_t *b = row;

    if (type == SW_BLOCK_NVFP4) {
        decode_fp4_row(q, b, n);
        return SW_OK;
    }
    for (int64_t g = 0; g < q->n_groups; g++) {
        float *scale = &q->scales[n * q->n_groups + g];
        uint8_t *codes = q->codes + n * q->k_in + g * GROUP;

        if (type == SW_BLOCK_MXFP4) {
            (void)!sw_float_decode_n(scale, b++, SW_DTYPE_F8_E8M0, 1, NULL);
        } else {
            *scale = half_at(b);
            b += 2;
        }
        if (type == SW_BLOCK_Q4_1) {
            const int zero = zero_of(*scale, half_at(b));
            if (zero < 0)
                return SW_FAIL(err, SW_E_FORMAT, "the minimum %g at row %lld, group %lld is no "
                               "multiple of the scale %g", (double)half_at(b), (long long)n,
                               (long long)g, (double)*scale);
            q->zeros[n * q->n_groups + g] = (uint8_t)zero;
            b += 2;
        }
        if (type == SW_BLOCK_Q8_0) {
            for (int j = 0; j < GROUP; j++) codes[j] = (uint8_t)(*b++ + 128);
        } else {
            take_nibbles(codes, b, HALF);
            b += HALF;
        }
    }
    return SW_OK;
}

/* --- the dialect -------------------------------------------------------------------------- */

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    const sw_block_type type = spec->num ? sw_gguf_type_of_spec(spec) : SW_BLOCK_TYPE_COUNT;

    (void)n_out;
    if (spec->is_scattered)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "gguf: blocks are of neighbouring inputs, and a "
                       "g_idx scatters these (act-order)");
    if (spec->num && type == SW_BLOCK_TYPE_COUNT)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "gguf: blocks hold int4 and symmetric int8 in groups "
                       "of 32 under F16 scales (Q4_0, Q4_1, Q8_0), MXFP4A16 and NVFP4A16, with "
                       "inputs as they are; quantize with --group-size 32");
    if (spec->num && k_in % sw_block_sizes[type].elems)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "gguf: %lld inputs are no whole blocks of %s, which "
                       "hold %d", (long long)k_in, sw_block_sizes[type].name,
                       (int)sw_block_sizes[type].elems);
    return sw_hold_division("gguf", spec, k_in, err);
}

/* What Q4_1 stores of a zero point has to be an F16. */
static sw_code check_values(const sw_qtensor *q, sw_err *err)
{
    for (int64_t i = 0; q->zeros && i < q->n_out * q->n_groups; i++) {
        const float m = q->scales[i] * (float)q->zeros[i];
        if (sw_num_round_to(m, SW_DTYPE_F16) != m || !isfinite(m))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "scale %.9g times zero point %d at row %lld, "
                           "group %lld is no F16 value, as Q4_1 stores it", (double)q->scales[i],
                           q->zeros[i], (long long)(i / q->n_groups), (long long)(i % q->n_groups));
    }
    return SW_OK;
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    const sw_block_type type = sw_gguf_type_of_spec(spec);

    out[0] = sw_part_2d(sw_block_sizes[type].name, SW_DTYPE_U8, n_out, sw_block_bytes(type, k_in));
    if (!spec->has_global) return 1;
    out[1] = sw_part_1d(FP4_SCALE, SW_DTYPE_F32, 1);
    out[1].is_optional = true;
    return 2;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    const size_t row_bytes =
        (size_t)sw_block_bytes(sw_gguf_type_of_spec(&q->spec), q->k_in);
    sw_code rc = check_values(q, err);

    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++)
        sw_gguf_encode_row((uint8_t *)parts[0] + (size_t)n * row_bytes, q, n);
    if (q->spec.has_global && rc == SW_OK)
        sw_store_le32((uint8_t *)parts[1], sw_f32_bits(q->global_scale));
    return rc;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    const size_t row_bytes =
        (size_t)sw_block_bytes(sw_gguf_type_of_spec(&q->spec), q->k_in);
    sw_code rc = SW_OK;

    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++)
        rc = sw_gguf_decode_row(q, (const uint8_t *)parts[0] + (size_t)n * row_bytes, n, err);
    q->global_scale = 1.0f;
    if (q->spec.has_global && parts[1])
        (void)!sw_float_decode_n(&q->global_scale, parts[1], SW_DTYPE_F32, 1, NULL);
    return rc;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    (void)config;
    (void)out;
    return SW_FAIL(err, SW_E_BUG, "a GGUF has no quantization_config");
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    (void)out;
    (void)object;
    (void)arena;
    return SW_FAIL(err, SW_E_BUG, "a GGUF has no quantization_config");
}

static bool is_mine(const cJSON *object)
{
    (void)object;
    return false;
}

const sw_dialect sw_dialect_gguf = {
    .name = "gguf",
    .summary = "one file for llama.cpp and programs built on it",
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = can_hold,
    .check_values = check_values,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
