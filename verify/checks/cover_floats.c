/* cover_floats.c - see cover_floats.h. */
#include "verify/checks/cover_floats.h"

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/num/num.h"

#define CHUNK_ELEMS ((int64_t)1 << 14)

/* Axes of one do not count: vectors are stored with some around them. */
static bool is_same_shape(const sw_cview *a, const sw_cview *b)
{
    int32_t d = 0, e = 0;

    for (;;) {
        while (d < a->n_dims && a->shape[d] == 1) d++;
        while (e < b->n_dims && b->shape[e] == 1) e++;
        if (d == a->n_dims || e == b->n_dims || a->shape[d] != b->shape[e]) break;
        d++;
        e++;
    }
    return d == a->n_dims && e == b->n_dims;
}

static void compare(sw_cover *so_far, const float *have, const float *want, int64_t n,
                    sw_dtype dtype)
{
    for (int64_t i = 0; i < n && *so_far != SW_COVER_OTHER; i++) {
        float rounded;

        if (have[i] >= want[i] && have[i] <= want[i]) continue;
        rounded = sw_num_round_to(want[i], dtype);
        *so_far = have[i] >= rounded && have[i] <= rounded ? SW_COVER_ROUNDED : SW_COVER_OTHER;
    }
}

sw_code sw_cover_floats(sw_cover *out, const sw_st_tensor *kept, const sw_cview *original,
                        sw_err *err)
{
    const int64_t n = sw_view_elems(original);
    const size_t have_bytes = (size_t)sw_dtype_bits(kept->view.dtype) / 8;
    const size_t want_bytes = (size_t)sw_dtype_bits(original->dtype) / 8;
    sw_cover cover = is_same_shape(&kept->view, original) ? SW_COVER_SAME : SW_COVER_OTHER;
    sw_st_bytes bytes = {0};
    sw_err ignored = {0};
    float *have = NULL;
    sw_code rc = sw_st_fetch(&bytes, kept, err);

    if (rc != SW_OK || (rc = SW_MEM_GET(&have, 2 * CHUNK_ELEMS, "floats", err)) != SW_OK) goto done;
    for (int64_t at = 0; at < n && cover != SW_COVER_OTHER; at += CHUNK_ELEMS) {
        const int64_t part = sw_min_i64(CHUNK_ELEMS, n - at);
        const char *a = (const char *)bytes.data + (size_t)at * have_bytes;
        const char *b = (const char *)original->data + (size_t)at * want_bytes;

        if (sw_float_decode_n(have, a, kept->view.dtype, part, &ignored) != SW_OK ||
            sw_float_decode_n(have + CHUNK_ELEMS, b, original->dtype, part, &ignored) != SW_OK)
            cover = SW_COVER_OTHER; /* not floats */
        else
            compare(&cover, have, have + CHUNK_ELEMS, part, kept->view.dtype);
    }
    *out = cover;
done:
    sw_mem_put(have);
    sw_st_drop(&bytes);
    return rc;
}
