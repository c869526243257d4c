/* num.c - see num.h. The plain C here defines what a code means; fast versions answer to it. */
#include "formats/num/num.h"

#include <math.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/num/half.h"

const sw_num sw_nums[SW_NUM_COUNT] = {
#define SW_NUM(id, text, kind_, n_bits)                                                       \
    [SW_NUM_##id] = {.name = text,                                                            \
                     .kind = SW_NUM_##kind_,                                                  \
                     .bits = n_bits,                                                          \
                     .code_max = (1 << (n_bits)) - 1,                                         \
                     .sym_zero = 1 << ((n_bits) - 1)},
#include "formats/num/formats.def"
#undef SW_NUM
};

const sw_num *sw_num_by_bits(int bits)
{
    for (int i = 0; i < SW_NUM_COUNT; i++)
        if (sw_nums[i].kind == SW_NUM_INT && sw_nums[i].bits == bits) return &sw_nums[i];
    return NULL;
}

static bool same_act(const sw_act *a, const sw_act *b)
{
    if (a->scope == SW_ACT_NONE && b->scope == SW_ACT_NONE) return true;
    return a->num == b->num && a->scope == b->scope && a->group_elems == b->group_elems &&
           a->scale_dtype == b->scale_dtype;
}

static int64_t n_shared_rows(const sw_qspec *spec)
{
    return spec->scale_rows ? spec->scale_rows : 1;
}

bool sw_qspec_same(const sw_qspec *a, const sw_qspec *b)
{
    return a->num == b->num && a->is_symmetric == b->is_symmetric &&
           a->group_elems == b->group_elems && a->scale_dtype == b->scale_dtype &&
           n_shared_rows(a) == n_shared_rows(b) && a->is_pow2_scale == b->is_pow2_scale &&
           a->has_global == b->has_global && same_act(&a->act, &b->act);
}

sw_code sw_qtensor_alloc(sw_qtensor *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         sw_err *err)
{
    sw_qtensor q = {.spec = *spec, .n_out = n_out, .k_in = k_in};
    uint64_t n_codes = 0, n_scales = 0;
    sw_code rc;

    if (n_out < 1 || k_in < 1 || spec->group_elems < 0)
        return SW_FAIL(err, SW_E_FORMAT, "quantized weight of shape [%lld, %lld], group size %lld",
                       (long long)n_out, (long long)k_in, (long long)spec->group_elems);
    q.n_groups = sw_qspec_groups(spec, k_in);
    if (!sw_mul_u64(&n_codes, (uint64_t)n_out, (uint64_t)k_in) || n_codes > INT64_MAX / 4 ||
        !sw_mul_u64(&n_scales, (uint64_t)n_out, (uint64_t)q.n_groups))
        return SW_FAIL(err, SW_E_NOMEM, "quantized weight [%lld, %lld] exceeds the address space",
                       (long long)n_out, (long long)k_in);
    if ((rc = SW_MEM_GET(&q.codes, n_codes, "codes", err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&q.scales, n_scales, "scales", err)) != SW_OK) goto done;
    if (!spec->is_symmetric && (rc = SW_MEM_GET(&q.zeros, n_scales, "zeros", err)) != SW_OK)
        goto done;
    *out = q;
done:
    if (rc != SW_OK) sw_qtensor_free(&q);
    return rc;
}

void sw_qtensor_free(sw_qtensor *q)
{
    sw_mem_put(q->codes);
    sw_mem_put(q->scales);
    sw_mem_put(q->zeros);
    sw_mem_put(q->g_idx);
    q->codes = q->zeros = NULL;
    q->scales = NULL;
    q->g_idx = NULL;
}

float sw_num_round_to(float v, sw_dtype dtype)
{
    if (dtype == SW_DTYPE_F16) return sw_f16_decode(sw_f16_encode(v));
    if (dtype == SW_DTYPE_BF16) return sw_bf16_decode(sw_bf16_encode(v));
    return v;
}

static int64_t group_of(const sw_qtensor *q, int64_t k)
{
    if (q->g_idx) return q->g_idx[k];
    return q->spec.group_elems ? k / q->spec.group_elems : 0;
}

void sw_qtensor_decode(float *dst, const sw_qtensor *q)
{
    for (int64_t n = 0; n < q->n_out; n++) {
        const uint8_t *codes = q->codes + n * q->k_in;
        const float *scales = q->scales + n * q->n_groups;
        const uint8_t *zeros = q->zeros ? q->zeros + n * q->n_groups : NULL;
        for (int64_t k = 0; k < q->k_in; k++) {
            int64_t group = group_of(q, k);
            int zero = zeros ? zeros[group] : q->spec.num->sym_zero;
            dst[n * q->k_in + k] = scales[group] * (float)((int)codes[k] - zero);
        }
    }
}

static sw_code check_scale(const sw_qtensor *q, int64_t n, int64_t group, sw_err *err)
{
    float scale = q->scales[n * q->n_groups + group];

    if (!isfinite(scale) || !(scale > 0.0f))
        return SW_FAIL(err, SW_E_FORMAT, "scale %g at row %lld, group %lld; must be finite and > 0",
                       (double)scale, (long long)n, (long long)group);
    if (sw_num_round_to(scale, q->spec.scale_dtype) != scale)
        return SW_FAIL(err, SW_E_FORMAT, "scale %.9g at row %lld, group %lld is no %s value",
                       (double)scale, (long long)n, (long long)group,
                       sw_dtype_name(q->spec.scale_dtype));
    if (!isfinite(scale * (float)q->spec.num->code_max))
        return SW_FAIL(err, SW_E_FORMAT, "scale %g at row %lld, group %lld makes infinite weights",
                       (double)scale, (long long)n, (long long)group);
    return SW_OK;
}

static sw_code check_row(const sw_qtensor *q, int64_t n, sw_err *err)
{
    const uint8_t *codes = q->codes + n * q->k_in;
    int code_max = q->spec.num->code_max;
    sw_code rc;

    for (int64_t group = 0; group < q->n_groups; group++) {
        if ((rc = check_scale(q, n, group, err)) != SW_OK) return rc;
        if (q->zeros && q->zeros[n * q->n_groups + group] > code_max)
            return SW_FAIL(err, SW_E_FORMAT, "zero point %d at row %lld, group %lld; at most %d",
                           q->zeros[n * q->n_groups + group], (long long)n, (long long)group,
                           code_max);
    }
    for (int64_t k = 0; k < q->k_in; k++)
        if (codes[k] > code_max)
            return SW_FAIL(err, SW_E_FORMAT, "code %d at row %lld, column %lld (group %lld); at "
                           "most %d", codes[k], (long long)n, (long long)k,
                           (long long)group_of(q, k), code_max);
    return SW_OK;
}

sw_code sw_qtensor_check(const sw_qtensor *q, sw_err *err)
{
    sw_code rc;

    if (q->spec.is_symmetric != !q->zeros)
        return SW_FAIL(err, SW_E_FORMAT, "%s weight %s zero points",
                       q->spec.is_symmetric ? "a symmetric" : "an asymmetric",
                       q->zeros ? "with" : "without");
    for (int64_t k = 0; q->g_idx && k < q->k_in; k++)
        if (q->g_idx[k] < 0 || q->g_idx[k] >= q->n_groups)
            return SW_FAIL(err, SW_E_FORMAT, "g_idx[%lld] = %d, there are %lld groups",
                           (long long)k, q->g_idx[k], (long long)q->n_groups);
    for (int64_t n = 0; n < q->n_out; n++)
        if ((rc = check_row(q, n, err)) != SW_OK) return rc;
    return SW_OK;
}

sw_code sw_float_decode_n(float *dst, const void *src, sw_dtype dtype, int64_t n, sw_err *err)
{
    if (dtype == SW_DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else if (dtype == SW_DTYPE_F16)
        sw_f16_decode_n(dst, src, (size_t)n);
    else if (dtype == SW_DTYPE_BF16)
        sw_bf16_decode_n(dst, src, (size_t)n);
    else
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s read as floats; F32, F16 and BF16 can be",
                       sw_dtype_name(dtype));
    return SW_OK;
}

sw_code sw_float_encode_n(void *dst, sw_dtype dtype, const float *src, int64_t n, sw_err *err)
{
    uint16_t *half = dst;

    if (dtype == SW_DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else if (dtype == SW_DTYPE_F16)
        for (int64_t i = 0; i < n; i++) half[i] = sw_f16_encode(src[i]);
    else if (dtype == SW_DTYPE_BF16)
        for (int64_t i = 0; i < n; i++) half[i] = sw_bf16_encode(src[i]);
    else
        return SW_FAIL(err, SW_E_UNSUPPORTED, "floats stored as %s; F32, F16 and BF16 can be",
                       sw_dtype_name(dtype));
    return SW_OK;
}
