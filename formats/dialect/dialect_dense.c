/* dialect_dense.c - plain floats as a target: what `convert --to bf16` writes.
 *
 * Per linear P of K inputs, N outputs:
 *   P.weight  BF16|F16|F32 [N, K]   scale * (code - zero), rounded once
 * No quantization_config. These rows are written and never read: a checkpoint without a dialect
 * is a dense one.
 */
#include <math.h>
#include <string.h>

#include "formats/dialect/dialect_common.h"
#include "formats/num/half.h"

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    (void)spec;
    (void)n_out;
    (void)k_in;
    (void)err;
    return SW_OK;
}

/* Rows one at a time, so that a large weight is not in memory as floats. */
static sw_code encode_as(void *out, sw_dtype dtype, const sw_qtensor *q, sw_err *err)
{
    size_t row_bytes = (size_t)q->k_in * (size_t)sw_dtype_bits(dtype) / 8;
    float *row = NULL;
    sw_code rc = SW_MEM_GET(&row, q->k_in, "decoded row", err);

    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++) {
        sw_qtensor_decode_rows(row, q, n, 1);
        for (int64_t k = 0; k < q->k_in && rc == SW_OK && dtype == SW_DTYPE_F16; k++)
            if (!(fabsf(row[k]) < SW_F16_OVERFLOW))
                rc = SW_FAIL(err, SW_E_UNSUPPORTED, "%g at row %lld, column %lld is beyond F16; "
                             "use --to bf16 or f32", (double)row[k], (long long)n, (long long)k);
        if (rc == SW_OK)
            rc = sw_float_encode_n((uint8_t *)out + (size_t)n * row_bytes, dtype, row, q->k_in,
                                   err);
    }
    sw_mem_put(row);
    return rc;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    (void)config;
    (void)err;
    *out = NULL;
    return SW_OK;
}

static bool is_mine(const cJSON *object)
{
    (void)object;
    return false;
}

#define DENSE(id, name_, text)                                                                \
    static sw_dtype id##_dtype(sw_dtype model_dtype)                                          \
    {                                                                                         \
        (void)model_dtype;                                                                    \
        return SW_DTYPE_##id;                                                                 \
    }                                                                                         \
    static int id##_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec,        \
                            int64_t n_out, int64_t k_in)                                      \
    {                                                                                         \
        (void)spec;                                                                           \
        out[0] = sw_part_2d("weight", SW_DTYPE_##id, n_out, k_in);                            \
        return 1;                                                                             \
    }                                                                                         \
    static sw_code id##_encode(void *const parts[], const sw_qtensor *q, sw_err *err)         \
    {                                                                                         \
        return encode_as(parts[0], SW_DTYPE_##id, q, err);                                    \
    }                                                                                         \
    static const sw_dialect sw_dialect_##id = {                                               \
        .name = name_,                                                                        \
        .summary = text,                                                                      \
        .is_dense = true,                                                                     \
        .scale_dtype = id##_dtype,                                                            \
        .can_hold = can_hold,                                                                 \
        .declare = id##_declare,                                                              \
        .encode = id##_encode,                                                                \
        .write_config = write_config,                                                         \
        .is_mine = is_mine,                                                                   \
    };

DENSE(BF16, "bf16", "plain safetensors in bfloat16")
DENSE(F16, "f16", "plain safetensors in half precision")
DENSE(F32, "f32", "plain safetensors in single precision: holds any product exactly")

const sw_dialect *const sw_dense_dialects[] = {
    &sw_dialect_BF16, &sw_dialect_F16, &sw_dialect_F32, NULL,
};

const sw_dialect *sw_dense_find(const char *name)
{
    for (const sw_dialect *const *d = sw_dense_dialects; *d; d++)
        if (!strcmp((*d)->name, name)) return *d;
    return NULL;
}
