/* qtensor.c - the logical form of a quantized weight: room for one, its meaning, its legality.
 * See num.h. The plain C here defines what a code means; fast versions answer to it. */
#include <math.h>

#include "formats/base/hot.h"
#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/num/half.h"
#include "formats/num/num.h"

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
           a->has_global == b->has_global && a->n_outliers == b->n_outliers &&
           same_act(&a->act, &b->act);
}

/* The first channels until somebody chooses: a legal weight of zeros. */
static sw_code take_outliers(sw_qtensor *q, sw_err *err)
{
    int64_t n = q->spec.n_outliers;
    sw_code rc;

    if (n < 0 || n > q->k_in)
        return SW_FAIL(err, SW_E_FORMAT, "%lld outlier channels of %lld", (long long)n,
                       (long long)q->k_in);
    if (!n) return SW_OK;
    if ((rc = SW_MEM_GET(&q->outlier_cols, n, "outlier channels", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) q->outlier_cols[i] = (int32_t)i;
    return SW_MEM_GET(&q->outlier_values, q->n_out * n, "outlier values", err);
}

sw_code sw_qtensor_alloc(sw_qtensor *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         sw_err *err)
{
    return sw_qtensor_alloc_wide(out, spec, n_out, k_in, 1, err);
}

sw_code sw_qtensor_alloc_wide(sw_qtensor *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                              int n_threads, sw_err *err)
{
    sw_qtensor q = {.spec = *spec, .n_out = n_out, .k_in = k_in};
    uint64_t n_codes = 0, n_scales = 0;
    sw_code rc;

    if (n_out < 1 || k_in < 1 || spec->group_elems < 0)
        return SW_FAIL(err, SW_E_FORMAT, "quantized weight of shape [%lld, %lld], group size %lld",
                       (long long)n_out, (long long)k_in, (long long)spec->group_elems);
    if (spec->num->kind == SW_NUM_FLOAT && !spec->is_symmetric)
        return SW_FAIL(err, SW_E_BUG, "%s with zero points", spec->num->name);
    q.n_groups = sw_qspec_groups(spec, k_in);
    if (!sw_mul_u64(&n_codes, (uint64_t)n_out, (uint64_t)k_in) || n_codes > INT64_MAX / 4 ||
        !sw_mul_u64(&n_scales, (uint64_t)n_out, (uint64_t)q.n_groups))
        return SW_FAIL(err, SW_E_NOMEM, "quantized weight [%lld, %lld] exceeds the address space",
                       (long long)n_out, (long long)k_in);
    rc = SW_MEM_GET_WIDE(&q.codes, n_codes, "codes", n_threads, err);
    if (rc != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&q.scales, n_scales, "scales", err)) != SW_OK) goto done;
    if (!spec->is_symmetric && (rc = SW_MEM_GET(&q.zeros, n_scales, "zeros", err)) != SW_OK)
        goto done;
    if ((rc = take_outliers(&q, err)) != SW_OK) goto done;
    if (spec->has_global) q.global_scale = 1.0f;
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
    sw_mem_put(q->outlier_cols);
    sw_mem_put(q->outlier_values);
    q->outlier_cols = NULL;
    q->outlier_values = NULL;
    q->codes = q->zeros = NULL;
    q->scales = NULL;
    q->g_idx = NULL;
}

static int64_t group_of(const sw_qtensor *q, int64_t k)
{
    if (q->g_idx) return q->g_idx[k];
    return q->spec.group_elems ? k / q->spec.group_elems : 0;
}

static float value_of(const sw_qtensor *q, int64_t n, int64_t k)
{
    int64_t at = n * q->n_groups + group_of(q, k);
    int code = q->codes[n * q->k_in + k];
    int zero = q->zeros ? q->zeros[at] : q->spec.num->sym_zero;
    const float *values = q->spec.num->values;

    return q->scales[at] * (values ? values[code] : (float)(code - zero));
}

/* Columns [begin, end) of a row, which share a scale. */
static SW_HOT void decode_span(float *row, const sw_qtensor *q, int64_t n, int64_t g,
                               int64_t begin, int64_t end)
{
    const int64_t at = n * q->n_groups + g;
    const uint8_t *codes = q->codes + n * q->k_in;
    const int zero = q->zeros ? q->zeros[at] : q->spec.num->sym_zero;
    const float *values = q->spec.num->values;
    const float scale = q->scales[at], global = q->spec.has_global ? q->global_scale : 1.0f;

    if (values)
        for (int64_t k = begin; k < end; k++) row[k] = scale * values[codes[k]];
    else
        for (int64_t k = begin; k < end; k++) row[k] = scale * (float)(codes[k] - zero);
    for (int64_t k = begin; q->spec.has_global && k < end; k++) row[k] *= global;
}

static void decode_row(float *row, const sw_qtensor *q, int64_t n)
{
    const int64_t step = q->spec.group_elems ? q->spec.group_elems : q->k_in;

    if (q->g_idx)
        for (int64_t k = 0; k < q->k_in; k++) decode_span(row, q, n, q->g_idx[k], k, k + 1);
    else
        for (int64_t k = 0; k < q->k_in; k += step)
            decode_span(row, q, n, k / step, k, sw_min_i64(k + step, q->k_in));
}

void sw_qtensor_decode_rows(float *dst, const sw_qtensor *q, int64_t row0, int64_t n_rows)
{
    int64_t n_outliers = q->spec.n_outliers;

    for (int64_t n = row0; n < row0 + n_rows; n++) {
        float *row = dst + (n - row0) * q->k_in;
        decode_row(row, q, n);
        for (int64_t i = 0; i < n_outliers; i++)
            row[q->outlier_cols[i]] = q->outlier_values[n * n_outliers + i];
    }
}

void sw_qtensor_decode(float *dst, const sw_qtensor *q)
{
    sw_qtensor_decode_rows(dst, q, 0, q->n_out);
}

/* The largest magnitude that any code stands for. */
static float largest(const sw_num *num)
{
    return num->values ? num->top : (float)num->code_max;
}

static bool is_pow2(float v)
{
    int exponent;

    return frexpf(v, &exponent) == 0.5f;
}

sw_code sw_scale_check(float scale, const sw_qspec *spec, float global_scale, int64_t n,
                       int64_t group, sw_err *err)
{
    float global = spec->has_global ? global_scale : 1.0f;
    bool is_free = sw_qspec_has_free_scales(spec);
    bool may_be_zero = is_free || spec->scale_dtype == SW_DTYPE_F8_E4M3; /* a tiny block */

    if (!isfinite(scale) || (scale == 0.0f && !may_be_zero) || (scale < 0.0f && !is_free))
        return SW_FAIL(err, SW_E_FORMAT, "scale %g at row %lld, group %lld; must be finite%s",
                       (double)scale, (long long)n, (long long)group,
                       is_free ? "" : may_be_zero ? " and not below 0" : " and above 0");
    if (sw_num_round_to(scale, spec->scale_dtype) != scale)
        return SW_FAIL(err, SW_E_FORMAT, "scale %.9g at row %lld, group %lld is no %s value",
                       (double)scale, (long long)n, (long long)group,
                       sw_dtype_name(spec->scale_dtype));
    if (spec->is_pow2_scale && !is_pow2(scale))
        return SW_FAIL(err, SW_E_FORMAT, "scale %.9g at row %lld, group %lld is no power of two",
                       (double)scale, (long long)n, (long long)group);
    if (!isfinite(scale * largest(spec->num) * global))
        return SW_FAIL(err, SW_E_FORMAT, "scale %g at row %lld, group %lld makes infinite weights",
                       (double)scale, (long long)n, (long long)group);
    return SW_OK;
}

/* Rows that share their scales must hold what the first of them holds. */
static sw_code check_shared(const sw_qtensor *q, int64_t n, sw_err *err)
{
    int64_t rows = sw_qspec_rows(&q->spec, q->n_out), first = n / rows * rows;

    for (int64_t g = 0; g < q->n_groups; g++)
        if (q->scales[n * q->n_groups + g] != q->scales[first * q->n_groups + g])
            return SW_FAIL(err, SW_E_FORMAT, "scale %g at row %lld, group %lld; row %lld, which "
                           "shares it, has %g", (double)q->scales[n * q->n_groups + g],
                           (long long)n, (long long)g, (long long)first,
                           (double)q->scales[first * q->n_groups + g]);
    return SW_OK;
}

static uint8_t max_u8(uint8_t a, uint8_t b) { return a > b ? a : b; }

static sw_code check_row(const sw_qtensor *q, int64_t n, sw_err *err)
{
    const uint8_t *codes = q->codes + n * q->k_in;
    const float *scales = q->scales + n * q->n_groups;
    const float *values = q->spec.num->values;
    int code_max = q->spec.num->code_max;
    uint8_t largest_code = 0; /* told first, in a loop that vectorizes */
    sw_code rc;

    for (int64_t group = 0; group < q->n_groups; group++) {
        rc = sw_scale_check(scales[group], &q->spec, q->global_scale, n, group, err);
        if (rc != SW_OK) return rc;
        if (q->zeros && q->zeros[n * q->n_groups + group] > code_max)
            return SW_FAIL(err, SW_E_FORMAT, "zero point %d at row %lld, group %lld; at most %d",
                           q->zeros[n * q->n_groups + group], (long long)n, (long long)group,
                           code_max);
    }
    for (int64_t k = 0; k < q->k_in; k++) largest_code = max_u8(largest_code, codes[k]);
    if (largest_code <= code_max && !values) return check_shared(q, n, err);
    for (int64_t k = 0; k < q->k_in; k++) {
        if (codes[k] > code_max)
            return SW_FAIL(err, SW_E_FORMAT, "code %d at row %lld, column %lld (group %lld); at "
                           "most %d", codes[k], (long long)n, (long long)k,
                           (long long)group_of(q, k), code_max);
        if (values && !isfinite(values[codes[k]]))
            return SW_FAIL(err, SW_E_FORMAT, "code 0x%02x at row %lld, column %lld is no finite "
                           "%s", codes[k], (long long)n, (long long)k, q->spec.num->name);
    }
    return check_shared(q, n, err);
}

static sw_code check_single(float scale, const char *what, sw_err *err)
{
    if (isfinite(scale) && scale > 0.0f) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s scale %g; must be finite and > 0", what, (double)scale);
}

static sw_code check_outlier(const sw_qtensor *q, int64_t n, int64_t i, sw_err *err)
{
    float v = q->outlier_values[n * q->spec.n_outliers + i];
    int64_t k = q->outlier_cols[i];

    if (!isfinite(v) || sw_num_round_to(v, SW_DTYPE_F16) != v)
        return SW_FAIL(err, SW_E_FORMAT, "outlier %g at row %lld, column %lld is no finite F16",
                       (double)v, (long long)n, (long long)k);
    if (value_of(q, n, k) == 0.0f) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "code %d at row %lld, column %lld is not the zero point, and "
                   "the column is an outlier", q->codes[n * q->k_in + k], (long long)n,
                   (long long)k);
}

static sw_code check_outliers(const sw_qtensor *q, sw_err *err)
{
    int64_t last = -1;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < q->spec.n_outliers; i++) {
        int64_t k = q->outlier_cols[i];
        if (k <= last || k >= q->k_in)
            return SW_FAIL(err, SW_E_FORMAT, "outlier channel %lld after %lld; must rise, and stay "
                           "below %lld", (long long)k, (long long)last, (long long)q->k_in);
        last = k;
    }
    for (int64_t n = 0; n < q->n_out; n++)
        for (int64_t i = 0; i < q->spec.n_outliers && rc == SW_OK; i++)
            rc = check_outlier(q, n, i, err);
    return rc;
}

sw_code sw_qtensor_check(const sw_qtensor *q, sw_err *err)
{
    sw_code rc;

    if (q->spec.is_symmetric != !q->zeros)
        return SW_FAIL(err, SW_E_FORMAT, "%s weight %s zero points",
                       q->spec.is_symmetric ? "a symmetric" : "an asymmetric",
                       q->zeros ? "with" : "without");
    if (q->spec.has_global && (rc = check_single(q->global_scale, "global", err)) != SW_OK)
        return rc;
    if (sw_act_needs_input_scale(&q->spec.act) &&
        (rc = check_single(q->input_scale, "input", err)) != SW_OK)
        return rc;
    for (int64_t k = 0; q->g_idx && k < q->k_in; k++)
        if (q->g_idx[k] < 0 || q->g_idx[k] >= q->n_groups)
            return SW_FAIL(err, SW_E_FORMAT, "g_idx[%lld] = %d, there are %lld groups",
                           (long long)k, q->g_idx[k], (long long)q->n_groups);
    for (int64_t n = 0; n < q->n_out; n++)
        if ((rc = check_row(q, n, err)) != SW_OK) return rc;
    return check_outliers(q, err);
}
