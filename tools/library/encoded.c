/* encoded.c - a quantized weight as the tensors that a format stores, in the C interface. */
#include <string.h>

#include "formats/dialect/conversions.h"
#include "tools/library/library.h"

struct sw_encoded {
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    void *bytes[SW_DIALECT_TENSORS_MAX];
    uint64_t n_bytes[SW_DIALECT_TENSORS_MAX];
    int n;
};

void sw_encoded_free(sw_encoded *encoded)
{
    if (!encoded) return;
    for (int i = 0; i < encoded->n; i++) sw_mem_put(encoded->bytes[i]);
    sw_mem_put(encoded);
}

int sw_encoded_n_tensors(const sw_encoded *encoded) { return encoded->n; }

const void *sw_encoded_tensor(sw_tensor_info *info, const sw_encoded *encoded, int i)
{
    const sw_part *part;

    if (i < 0 || i >= encoded->n) return NULL;
    part = &encoded->parts[i];
    memset(info, 0, sizeof *info);
    info->name = part->suffix;
    info->dtype = sw_dtype_name(part->dtype);
    info->n_dims = part->n_dims;
    memcpy(info->shape, part->shape, sizeof info->shape);
    info->n_bytes = encoded->n_bytes[i];
    return encoded->bytes[i];
}

/* The first way in which the format says exactly this. */
static sw_code find_words(sw_qspec *out, const sw_qtensor *q, const sw_dialect *dialect,
                          sw_err *err)
{
    sw_err first = {0};
    int at = 0;

    for (;;) {
        bool is_conditional = false;
        sw_err why = {0};
        sw_code rc = sw_conversion_next(out, &is_conditional, &at, &q->spec, dialect, q->n_out,
                                        q->k_in, &why);

        if (rc == SW_OK && is_conditional) rc = sw_conversion_check(q, dialect, out, &why);
        else if (rc == SW_E_UNSUPPORTED && first.code != SW_OK) break;
        if (rc == SW_OK) return SW_OK;
        if (first.code == SW_OK || rc != SW_E_UNSUPPORTED) first = why;
        if (rc != SW_E_UNSUPPORTED || at == 0) break;
    }
    return SW_FAIL(err, first.code, "%s", first.text);
}

static sw_code encode(sw_encoded *e, const sw_qtensor *q, const sw_dialect *dialect, sw_err *err)
{
    sw_qtensor as = *q; /* the same arrays, in the format's words */
    sw_code rc = find_words(&as.spec, q, dialect, err);
    int n;

    if (rc != SW_OK) return rc;
    n = dialect->declare(e->parts, &as.spec, q->n_out, q->k_in);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        const sw_part *part = &e->parts[i];
        rc = sw_shape_bytes(&e->n_bytes[i], part->dtype, part->n_dims, part->shape, err);
        if (rc == SW_OK)
            rc = sw_mem_get(&e->bytes[i], (int64_t)e->n_bytes[i], 1, part->suffix, err);
        if (rc == SW_OK) e->n = i + 1;
    }
    return rc == SW_OK ? dialect->encode(e->bytes, &as, err) : rc;
}

int sw_encoded_new(sw_encoded **out, const sw_matrix *matrix, const char *format, sw_error *error)
{
    const sw_dialect *dialect = NULL;
    sw_encoded *e = NULL;
    sw_err err = {0};
    sw_code rc = sw_library_dialect(&dialect, format, &err);

    if (rc == SW_OK) rc = SW_MEM_GET(&e, 1, "encoded weight", &err);
    if (rc == SW_OK) rc = encode(e, &matrix->q, dialect, &err);
    if (rc == SW_OK)
        *out = e;
    else
        sw_encoded_free(e);
    return sw_library_end(error, rc, &err);
}
