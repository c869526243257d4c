/* values.c - see values.h. */
#include "tools/cli/values.h"

#include <math.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/num.h"

#define CHUNK_ELEMS ((int64_t)65536)

static bool is_float(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F32 || dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16;
}

static sw_code count(int64_t *n_bad, int64_t *first_bad, const sw_st_tensor *t, const void *data,
                     float *chunk, sw_err *err)
{
    int64_t n = sw_view_elems(&t->view), elem_bytes = sw_dtype_bits(t->view.dtype) / 8;

    for (int64_t at = 0; at < n; at += CHUNK_ELEMS) {
        int64_t part = sw_min_i64(CHUNK_ELEMS, n - at);
        sw_code rc = sw_float_decode_n(chunk, (const char *)data + at * elem_bytes,
                                       t->view.dtype, part, err);
        if (rc != SW_OK) return rc;
        for (int64_t i = 0; i < part; i++)
            if (!isfinite(chunk[i]) && (*n_bad)++ == 0) *first_bad = at + i;
    }
    return SW_OK;
}

sw_code sw_values_check(const sw_st_tensor *tensor, sw_err *err)
{
    int64_t n_bad = 0, first_bad = 0;
    sw_st_bytes bytes = {0};
    float *chunk = NULL;
    sw_span span;
    sw_code rc;

    if (!is_float(tensor->view.dtype)) return SW_OK;
    if ((rc = SW_MEM_GET(&chunk, CHUNK_ELEMS, "values", err)) != SW_OK) return rc;
    span = sw_span_open("check values");
    rc = sw_st_fetch(&bytes, tensor, err);
    if (rc == SW_OK) rc = count(&n_bad, &first_bad, tensor, bytes.data, chunk, err);
    if (rc == SW_OK && n_bad)
        rc = SW_FAIL(err, SW_E_FORMAT,
                     "tensor %s: %lld of %lld values are not finite, the first is element %lld",
                     tensor->name, (long long)n_bad, (long long)sw_view_elems(&tensor->view),
                     (long long)first_bad);
    sw_st_drop(&bytes);
    sw_mem_put(chunk);
    sw_span_close(span, tensor->name);
    sw_map_forget(tensor->view.data, tensor->view.size_bytes);
    return rc;
}
