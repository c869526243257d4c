/* num.c - the table of number formats, and stored floats. See num.h. */
#include "formats/num/num.h"

#include <stdio.h>
#include <string.h>

#include "formats/num/half.h"
#include "formats/num/small.h"

const sw_num sw_nums[SW_NUM_COUNT] = {
#define SW_INTEGER(id, text, n_bits)                    \
    [SW_NUM_##id] = {.name = text,                      \
                     .kind = SW_NUM_INT,                \
                     .bits = n_bits,                    \
                     .code_max = (1 << (n_bits)) - 1,   \
                     .sym_zero = 1 << ((n_bits) - 1),   \
                     .top = (1 << ((n_bits) - 1)) - 1},
#define SW_SMALL_FLOAT(id, text, symbol, exponent, mantissa, last)                           \
    [SW_NUM_##id] = {.name = text,                                                         \
                     .kind = SW_NUM_FLOAT,                                                 \
                     .bits = 1 + (exponent) + (mantissa),                                  \
                     .code_max = (2 << ((exponent) + (mantissa))) - 1,                     \
                     .sym_zero = 1 << ((exponent) + (mantissa)),                           \
                     .top = SW_SMALL_SIZE(SW_SMALL_TOP(exponent, mantissa, SW_SMALL_##last), \
                                          exponent, mantissa),                             \
                     .mantissa_bits = mantissa,                                            \
                     .normal = SW_SMALL_SIZE(1u << (mantissa), exponent, mantissa),        \
                     .values = sw_##symbol##_values,                                       \
                     .encode = sw_##symbol##_encode},
#include "formats/num/formats.def"
#undef SW_INTEGER
#undef SW_SMALL_FLOAT
};

const sw_num *sw_num_find(const char *name)
{
    for (int i = 0; i < SW_NUM_COUNT; i++)
        if (strcmp(sw_nums[i].name, name) == 0) return &sw_nums[i];
    return NULL;
}

const sw_num *sw_num_by_bits(int bits)
{
    for (int i = 0; i < SW_NUM_COUNT; i++)
        if (sw_nums[i].kind == SW_NUM_INT && sw_nums[i].bits == bits) return &sw_nums[i];
    return NULL;
}

const char *sw_num_widths(char out[SW_NUM_WIDTHS_BYTES])
{
    int last = SW_NUM_COUNT - 1;
    size_t at = 0;

    while (last > 0 && sw_nums[last].kind != SW_NUM_INT) last--;
    out[0] = 0;
    for (int i = 0; i <= last && at < SW_NUM_WIDTHS_BYTES; i++)
        if (sw_nums[i].kind == SW_NUM_INT)
            at += (size_t)snprintf(out + at, SW_NUM_WIDTHS_BYTES - at, "%s%d",
                                   !at ? "" : i == last ? " and " : ", ", sw_nums[i].bits);
    return out;
}

/* Stored floats of one byte. */
typedef struct small_dtype {
    sw_dtype dtype;
    const float *values;
    uint8_t (*encode)(float);
} small_dtype;

static const small_dtype small_dtypes[] = {
    {SW_DTYPE_F8_E4M3, sw_e4m3_values, sw_e4m3_encode},
    {SW_DTYPE_F8_E5M2, sw_e5m2_values, sw_e5m2_encode},
    {SW_DTYPE_F8_E8M0, sw_e8m0_values, sw_e8m0_encode},
};

static const small_dtype *small_find(sw_dtype dtype)
{
    for (size_t i = 0; i < sizeof small_dtypes / sizeof *small_dtypes; i++)
        if (small_dtypes[i].dtype == dtype) return &small_dtypes[i];
    return NULL;
}

float sw_num_round_to(float v, sw_dtype dtype)
{
    const small_dtype *small = small_find(dtype);

    if (dtype == SW_DTYPE_F16) return sw_f16_decode(sw_f16_encode(v));
    if (dtype == SW_DTYPE_BF16) return sw_bf16_decode(sw_bf16_encode(v));
    return small ? small->values[small->encode(v)] : v;
}

sw_code sw_float_decode_n(float *dst, const void *src, sw_dtype dtype, int64_t n, sw_err *err)
{
    const small_dtype *small = small_find(dtype);
    const uint8_t *bytes = src;

    if (dtype == SW_DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else if (dtype == SW_DTYPE_F16)
        sw_f16_decode_n(dst, src, (size_t)n);
    else if (dtype == SW_DTYPE_BF16)
        sw_bf16_decode_n(dst, src, (size_t)n);
    else if (small)
        for (int64_t i = 0; i < n; i++) dst[i] = small->values[bytes[i]];
    else
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s read as floats; F32, F16, BF16 and floats of "
                       "eight bits can be", sw_dtype_name(dtype));
    return SW_OK;
}

sw_code sw_float_encode_n(void *dst, sw_dtype dtype, const float *src, int64_t n, sw_err *err)
{
    const small_dtype *small = small_find(dtype);
    uint16_t *half = dst;
    uint8_t *bytes = dst;

    if (dtype == SW_DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else if (dtype == SW_DTYPE_F16)
        sw_f16_encode_n(half, src, (size_t)n);
    else if (dtype == SW_DTYPE_BF16)
        sw_bf16_encode_n(half, src, (size_t)n);
    else if (small)
        for (int64_t i = 0; i < n; i++) bytes[i] = small->encode(src[i]);
    else
        return SW_FAIL(err, SW_E_UNSUPPORTED, "floats stored as %s; F32, F16, BF16 and floats of "
                       "eight bits can be", sw_dtype_name(dtype));
    return SW_OK;
}
