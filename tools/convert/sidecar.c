/* sidecar.c - see sidecar.h. */
#include "tools/convert/sidecar.h"

#include <stdio.h>

#include "formats/base/mem.h"

#define NAME_BYTES 512

struct sw_sidecar {
    const sw_dialect *tiles;
    sw_st_writer *st;
};

static sw_code part_name(char out[NAME_BYTES], const char *path, const sw_part *part, sw_err *err)
{
    int n = snprintf(out, NAME_BYTES, "%s.%s", path, part->suffix);

    return n > 0 && n < NAME_BYTES ? SW_OK : SW_FAIL(err, SW_E_FORMAT, "%s: name too long", path);
}

static sw_code declare(sw_sidecar *s, const sw_ckpt_linear *l, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_code rc = s->tiles->can_hold(l->spec, l->n_out, l->k_in, err);
    int n = rc == SW_OK ? s->tiles->declare(parts, l->spec, l->n_out, l->k_in) : 0;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        char name[NAME_BYTES];
        if ((rc = part_name(name, l->module_path, &parts[i], err)) == SW_OK)
            rc = sw_st_writer_declare(s->st, name, parts[i].dtype, parts[i].n_dims,
                                      parts[i].shape, err);
    }
    if (rc != SW_OK) sw_err_prefix(err, "--sidecar: %s", l->module_path);
    return rc;
}

static sw_code begin(sw_sidecar *s, const char *dir, const sw_ckpt_linear *linears, int64_t n,
                     sw_err *err)
{
    const char *const *meta = s->tiles->metadata;
    sw_code rc;

    if ((rc = sw_st_writer_new(&s->st, dir, 0, err)) != SW_OK ||
        (rc = sw_st_writer_name(s->st, SW_SIDECAR_NAME, err)) != SW_OK)
        return rc;
    for (int i = 0; meta && meta[i] && rc == SW_OK; i += 2)
        rc = sw_st_writer_meta(s->st, meta[i], meta[i + 1], err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) rc = declare(s, &linears[i], err);
    return rc == SW_OK ? sw_st_writer_begin(s->st, err) : rc;
}

sw_code sw_sidecar_new(sw_sidecar **out, const char *dir, const sw_ckpt_linear *linears,
                       int64_t n_linears, sw_err *err)
{
    sw_sidecar *s = NULL;
    sw_code rc = SW_MEM_GET(&s, 1, "sidecar", err);

    if (rc != SW_OK) return rc;
    s->tiles = sw_dialect_find("swage");
    if ((rc = begin(s, dir, linears, n_linears, err)) == SW_OK)
        *out = s;
    else
        sw_sidecar_free(s);
    return rc;
}

sw_code sw_sidecar_put(sw_sidecar *s, const char *module_path, const sw_qtensor *q, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    void *data[SW_DIALECT_TENSORS_MAX] = {NULL};
    uint64_t bytes[SW_DIALECT_TENSORS_MAX] = {0};
    int n = s->tiles->declare(parts, &q->spec, q->n_out, q->k_in);
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++)
        if ((rc = sw_shape_bytes(&bytes[i], parts[i].dtype, parts[i].n_dims, parts[i].shape,
                                 err)) == SW_OK)
            rc = sw_mem_get(&data[i], (int64_t)bytes[i], 1, parts[i].suffix, err);
    if (rc == SW_OK) rc = s->tiles->encode(data, q, err);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        char name[NAME_BYTES];
        if ((rc = part_name(name, module_path, &parts[i], err)) == SW_OK)
            rc = sw_st_writer_put(s->st, name, data[i], (size_t)bytes[i], err);
    }
    for (int i = 0; i < n; i++) sw_mem_put(data[i]);
    return rc;
}

sw_code sw_sidecar_commit(sw_sidecar *s, sw_err *err) { return sw_st_writer_commit(s->st, err); }

void sw_sidecar_free(sw_sidecar *s)
{
    if (!s) return;
    sw_st_writer_free(s->st);
    sw_mem_put(s);
}
