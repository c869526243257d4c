/* values.c - see values.h. */
#include "tools/cli/values.h"

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/finite.h"

#define BLOCK_ELEMS ((int64_t)65536)

static bool is_float(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F32 || dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16;
}

/* Only of a tensor that is refused: how many there are. */
static int64_t count_from(int64_t first, const char *data, sw_dtype dtype, int64_t n)
{
    const int64_t elem_bytes = sw_dtype_bits(dtype) / 8;
    int64_t n_bad = 0;

    for (int64_t at = first; at < n;) {
        int64_t part = sw_min_i64(BLOCK_ELEMS, n - at);
        int64_t bad = sw_first_not_finite(data + at * elem_bytes, dtype, part, 1);
        n_bad += bad >= 0;
        at += bad >= 0 ? bad + 1 : part;
    }
    return n_bad;
}

sw_code sw_values_check(const sw_st_tensor *tensor, int n_threads, sw_err *err)
{
    const sw_dtype dtype = tensor->view.dtype;
    const int64_t n = sw_view_elems(&tensor->view);
    int64_t first = -1;
    sw_st_bytes bytes = {0};
    sw_span span;
    sw_code rc;

    if (!is_float(dtype)) return SW_OK;
    span = sw_span_open("check values");
    if ((rc = sw_st_fetch(&bytes, tensor, err)) == SW_OK)
        first = sw_first_not_finite(bytes.data, dtype, n, n_threads);
    if (first >= 0)
        rc = SW_FAIL(err, SW_E_FORMAT,
                     "tensor %s: %lld of %lld values are not finite, the first is element %lld",
                     tensor->name, (long long)count_from(first, bytes.data, dtype, n),
                     (long long)n, (long long)first);
    sw_st_drop(&bytes);
    sw_span_close(span, tensor->name);
    sw_map_forget(tensor->view.data, tensor->view.size_bytes);
    return rc;
}
