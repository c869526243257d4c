/* modelopt_int4.c - see modelopt_int4.h. */
#include "formats/dialect/modelopt_int4.h"

#include <math.h>

#include "formats/base/size.h"
#include "formats/num/half.h"

enum { PART_WEIGHT, PART_SCALE, PART_INPUTS, N_PARTS };

#define SIGN_BIT 8 /* turns a code from 0..15 into two's complement and back */

bool sw_modelopt_int4_is(const sw_qspec *spec)
{
    return sw_spec_is_classic(spec) && spec->num->bits == 4 && spec->is_symmetric &&
           spec->group_elems > 0 && spec->scale_dtype == SW_DTYPE_F32 && !spec->is_scattered &&
           !spec->n_outliers;
}

static sw_dtype inputs_dtype(const sw_qspec *spec)
{
    return spec->input_dtype ? spec->input_dtype : SW_DTYPE_F32;
}

int sw_modelopt_int4_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec,
                             int64_t n_out, int64_t k_in)
{
    out[PART_WEIGHT] = sw_part_2d("weight", SW_DTYPE_U8, n_out / 2, k_in);
    out[PART_SCALE] = sw_part_2d("weight_scale", SW_DTYPE_F32, n_out,
                                 sw_qspec_groups(spec, k_in));
    out[PART_SCALE].is_scale = true;
    out[PART_INPUTS] = sw_part_1d("pre_quant_scale", inputs_dtype(spec), k_in);
    out[PART_INPUTS].is_input = out[PART_INPUTS].is_optional = true;
    return N_PARTS;
}

sw_code sw_modelopt_int4_encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    uint8_t *bytes = parts[PART_WEIGHT];
    const float one = 1.0f;
    sw_code rc = SW_OK;

    for (int64_t n = 0; n < q->n_out; n++)
        for (int64_t k = 0; k < q->k_in; k++)
            bytes[n / 2 * q->k_in + k] |=
                (uint8_t)((q->codes[n * q->k_in + k] ^ SIGN_BIT) << (n % 2 ? 4 : 0));
    sw_scales_store(parts[PART_SCALE], q, false);
    for (int64_t k = 0; k < q->k_in && rc == SW_OK; k++)
        rc = sw_float_encode_n((uint8_t *)parts[PART_INPUTS] +
                                   k * sw_dtype_bits(inputs_dtype(&q->spec)) / 8,
                               inputs_dtype(&q->spec), &one, 1, err);
    return rc;
}

/* Scales of one group times what its inputs are multiplied with. */
static sw_code scale_group(sw_qtensor *q, int64_t group, float by, sw_err *err)
{
    for (int64_t n = 0; n < q->n_out; n++) {
        float *scale = &q->scales[n * q->n_groups + group];
        double product = (double)*scale * (double)by;
        if (!isfinite(product) || (double)(float)product < product ||
            (double)(float)product > product)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "pre_quant_scale: %.9g times the scale %.9g of "
                           "row %lld, group %lld is no float; export the model with it folded into "
                           "the norms", (double)by, (double)*scale, (long long)n,
                           (long long)group);
        *scale = (float)product;
    }
    return SW_OK;
}

static sw_code fold_inputs(sw_qtensor *q, const void *stored, sw_err *err)
{
    sw_dtype dtype = inputs_dtype(&q->spec);
    float first = 1.0f;
    sw_code rc = SW_OK;

    for (int64_t k = 0; k < q->k_in && rc == SW_OK; k++) {
        float one = 0;
        rc = sw_float_decode_n(&one, (const uint8_t *)stored + k * sw_dtype_bits(dtype) / 8, dtype,
                               1, err);
        if (rc != SW_OK) return rc;
        if (!(isfinite(one) && one > 0))
            return SW_FAIL(err, SW_E_FORMAT, "pre_quant_scale[%lld] is %g, not above zero",
                           (long long)k, (double)one);
        if (k % q->spec.group_elems == 0) {
            first = one;
            if (one < 1.0f || one > 1.0f) rc = scale_group(q, k / q->spec.group_elems, one, err);
        } else if (one < first || one > first) {
            return SW_FAIL(err, SW_E_UNSUPPORTED, "pre_quant_scale[%lld] is %g and another of its "
                           "group %g: factors of single inputs have no place beside codes; export "
                           "the model with them folded into the norms", (long long)k, (double)one,
                           (double)first);
        }
    }
    return rc;
}

sw_code sw_modelopt_int4_decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    const uint8_t *bytes = parts[PART_WEIGHT];

    if (q->n_out % 2)
        return SW_FAIL(err, SW_E_FORMAT, "%lld outputs do not come in pairs", (long long)q->n_out);
    for (int64_t n = 0; n < q->n_out; n++)
        for (int64_t k = 0; k < q->k_in; k++)
            q->codes[n * q->k_in + k] =
                (uint8_t)((bytes[n / 2 * q->k_in + k] >> (n % 2 ? 4 : 0) & 15) ^ SIGN_BIT);
    sw_scales_load(q, parts[PART_SCALE], false);
    return parts[PART_INPUTS] ? fold_inputs(q, parts[PART_INPUTS], err) : SW_OK;
}
