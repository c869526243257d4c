/* view.c - see view.h. */
#include "formats/base/view.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"

static const struct {
    const char *name;
    int bits;
} dtypes[SW_DTYPE_COUNT] = {
#define SW_DTYPE(id, name, bits) [SW_DTYPE_##id] = {name, bits},
#include "formats/base/dtype.def"
#undef SW_DTYPE
};

const char *sw_dtype_name(sw_dtype dtype) { return dtypes[dtype].name; }
int sw_dtype_bits(sw_dtype dtype) { return dtypes[dtype].bits; }

bool sw_dtype_find(sw_dtype *out, const char *name, size_t n_bytes)
{
    for (int i = 0; i < SW_DTYPE_COUNT; i++) {
        if (strlen(dtypes[i].name) != n_bytes || memcmp(dtypes[i].name, name, n_bytes)) continue;
        *out = (sw_dtype)i;
        return true;
    }
    return false;
}

bool sw_dtype_is_float(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F32 || dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16;
}

sw_code sw_shape_bytes(uint64_t *out, sw_dtype dtype, int32_t n_dims, const int64_t *shape,
                       sw_err *err)
{
    uint64_t n_elems = 1, n_bits;

    if (n_dims < 0 || n_dims > SW_DIMS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%d dimensions, at most %d are allowed", n_dims,
                       SW_DIMS_MAX);
    for (int32_t i = 0; i < n_dims; i++) {
        if (shape[i] < 0 || !sw_mul_u64(&n_elems, n_elems, (uint64_t)shape[i]))
            return SW_FAIL(err, SW_E_FORMAT, "dimension %d of %lld makes the tensor too large", i,
                           (long long)shape[i]);
    }
    if (!sw_mul_u64(&n_bits, n_elems, (uint64_t)dtypes[dtype].bits) || n_bits / 8 > INT64_MAX / 2)
        return SW_FAIL(err, SW_E_FORMAT, "%llu elements of %s make the tensor too large",
                       (unsigned long long)n_elems, dtypes[dtype].name);
    if (n_bits % 8)
        return SW_FAIL(err, SW_E_FORMAT, "%llu elements of %s do not fill whole bytes",
                       (unsigned long long)n_elems, dtypes[dtype].name);
    *out = n_bits / 8;
    return SW_OK;
}

int64_t sw_view_elems(const sw_cview *view)
{
    int64_t n_elems = 1;

    for (int32_t i = 0; i < view->n_dims; i++) n_elems *= view->shape[i];
    return n_elems;
}

void sw_view_describe(char *text, size_t text_bytes, const sw_cview *view)
{
    size_t at = 0;

    for (int32_t i = -1; i <= view->n_dims && at < text_bytes; i++) {
        int n;
        if (i < 0)
            n = snprintf(text, text_bytes, "%s [", sw_dtype_name(view->dtype));
        else if (i < view->n_dims)
            n = snprintf(text + at, text_bytes - at, "%s%lld", i ? ", " : "",
                         (long long)view->shape[i]);
        else
            n = snprintf(text + at, text_bytes - at, "]");
        if (n < 0) return;
        at += (size_t)n;
    }
}
