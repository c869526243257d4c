/* view.h - tensors as borrowed views: data, dtype, shape.
 *
 * Stated once, everywhere the same: weights are [n_out, k_in], activations
 * [n_tokens, k_in], row-major and dense. A view owns nothing.
 */
#ifndef SW_FORMATS_BASE_VIEW_H
#define SW_FORMATS_BASE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_dtype {
#define SW_DTYPE(id, name, bits) SW_DTYPE_##id,
#include "formats/base/dtype.def"
#undef SW_DTYPE
    SW_DTYPE_COUNT
} sw_dtype;

#define SW_DIMS_MAX 8

typedef struct sw_cview {
    const void *data;
    size_t size_bytes;
    sw_dtype dtype;
    int32_t n_dims;
    int64_t shape[SW_DIMS_MAX];
} sw_cview;

typedef struct sw_view {
    void *data;
    size_t size_bytes;
    sw_dtype dtype;
    int32_t n_dims;
    int64_t shape[SW_DIMS_MAX];
} sw_view;

const char *sw_dtype_name(sw_dtype dtype);
int sw_dtype_bits(sw_dtype dtype);
/* Floats as models have their weights: F32, F16, BF16. */
bool sw_dtype_is_float(sw_dtype dtype);
/* true and *out when `name` (not zero-terminated, n_bytes long) is a dtype of the table. */
bool sw_dtype_find(sw_dtype *out, const char *name, size_t n_bytes);

/* Bytes that a dense tensor of this dtype and shape takes.
 * SW_E_FORMAT: a negative dim, too many dims, a product beyond 2^63, or a fractional byte. */
sw_code sw_shape_bytes(uint64_t *out, sw_dtype dtype, int32_t n_dims, const int64_t *shape,
                       sw_err *err) SW_MUST_USE;

int64_t sw_view_elems(const sw_cview *view);
static inline sw_cview sw_view_const(const sw_view *view)
{
    sw_cview c;
    c.data = view->data;
    c.size_bytes = view->size_bytes;
    c.dtype = view->dtype;
    c.n_dims = view->n_dims;
    for (int i = 0; i < SW_DIMS_MAX; i++) c.shape[i] = view->shape[i];
    return c;
}

/* "BF16 [256, 768]" into `text`; always terminated. */
void sw_view_describe(char *text, size_t text_bytes, const sw_cview *view);

#ifdef __cplusplus
}
#endif
#endif
