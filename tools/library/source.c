/* source.c - checkpoints in the C interface: what is in them, and their weights. */
#include <string.h>

#include "formats/model/stored.h"
#include "tools/library/library.h"

/* The linear at module path `path`, or NULL. */
static const sw_library_linear *find_linear(const sw_source *s, const char *path)
{
    for (int64_t i = 0; i < s->n_linears; i++)
        if (strcmp(s->linears[i].path, path) == 0) return &s->linears[i];
    return NULL;
}

static sw_code add_layer(sw_source *s, sw_linear_ref *refs, int64_t layer, int64_t max, sw_err *err)
{
    const sw_model *m = &s->ckpt.model;
    const int64_t n = sw_model_linears(m, layer, refs, max);
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        char path[256], *kept = NULL;
        if (!sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert)) continue;
        rc = sw_arena_text(&kept, &s->arena, path, strlen(path), err);
        if (rc == SW_OK) s->linears[s->n_linears++] = (sw_library_linear){refs[i], kept};
    }
    return rc;
}

/* Linears of all blocks, and the head as a last layer. */
static sw_code list_linears(sw_source *s, sw_err *err)
{
    const sw_model *m = &s->ckpt.model;
    sw_linear_ref *refs = NULL;
    int64_t n_all = 0, most = 0;
    sw_code rc;

    for (int64_t layer = 0; layer <= m->n_layers; layer++) {
        const int64_t n = sw_model_linears(m, layer, NULL, 0);
        n_all += n;
        most = n > most ? n : most;
    }
    rc = SW_ARENA_TAKE(&s->linears, &s->arena, n_all, err);
    if (rc == SW_OK) rc = SW_MEM_GET(&refs, most, "linears of a layer", err);
    for (int64_t layer = 0; layer <= m->n_layers && rc == SW_OK; layer++)
        rc = add_layer(s, refs, layer, most, err);
    sw_mem_put(refs);
    return rc;
}

int sw_source_open(sw_source **out, const char *path, sw_error *error)
{
    sw_source *s = NULL;
    sw_err err = {0};
    sw_code rc = path && *path ? SW_MEM_GET(&s, 1, "checkpoint", &err)
                               : SW_FAIL(&err, SW_E_USAGE, "no path of a checkpoint");

    if (rc == SW_OK) rc = sw_checkpoint_open_codes(&s->ckpt, path, &err);
    if (rc == SW_OK) rc = list_linears(s, &err);
    if (rc == SW_OK)
        *out = s;
    else
        sw_source_close(s);
    return sw_library_end(error, rc, &err);
}

void sw_source_close(sw_source *source)
{
    if (!source) return;
    sw_checkpoint_close(&source->ckpt);
    sw_arena_free(&source->arena);
    sw_mem_put(source);
}

const char *sw_source_format(const sw_source *source)
{
    const sw_checkpoint *c = &source->ckpt;

    return c->is_file ? "gguf" : c->dialect ? c->dialect->name : sw_dtype_name(c->model.dtype);
}

const char *sw_source_architecture(const sw_source *source)
{
    return source->ckpt.model.arch->name;
}

int64_t sw_source_n_tensors(const sw_source *source) { return sw_st_count(source->ckpt.st); }

int64_t sw_source_n_linears(const sw_source *source) { return source->n_linears; }

static sw_code no_such(int64_t i, int64_t n, const char *what, sw_err *err)
{
    return SW_FAIL(err, SW_E_USAGE, "no %s %lld, there are %lld", what, (long long)i,
                   (long long)n);
}

int sw_source_tensor(sw_tensor_info *out, const sw_source *source, int64_t i, sw_error *error)
{
    const int64_t n = sw_st_count(source->ckpt.st);
    const sw_st_tensor *t;
    sw_err err = {0};

    if (i < 0 || i >= n) return sw_library_end(error, no_such(i, n, "tensor", &err), &err);
    t = sw_st_at(source->ckpt.st, i);
    memset(out, 0, sizeof *out);
    out->name = t->name;
    out->dtype = sw_dtype_name(t->view.dtype);
    out->n_dims = t->view.n_dims;
    memcpy(out->shape, t->view.shape, sizeof out->shape);
    out->n_bytes = t->view.size_bytes;
    return SW_ERROR_NONE;
}

int sw_source_linear(sw_linear_info *out, const sw_source *source, int64_t i, sw_error *error)
{
    const sw_library_linear *l;
    sw_linear_info info;
    sw_qspec spec;
    sw_err err = {0};
    sw_code rc = SW_OK;

    if (i < 0 || i >= source->n_linears)
        return sw_library_end(error, no_such(i, source->n_linears, "linear", &err), &err);
    l = &source->linears[i];
    memset(&info, 0, sizeof info);
    info.path = l->path;
    info.layer = l->ref.layer;
    info.expert = l->ref.expert;
    info.n_out = l->ref.n_out;
    info.k_in = l->ref.k_in;
    if (sw_checkpoint_is_quantized(&source->ckpt, l->path)) {
        rc = sw_checkpoint_stored_spec(&spec, &source->ckpt, l->path, info.n_out, info.k_in, &err);
        if (rc == SW_OK) sw_library_scheme_info(&info.scheme, &spec);
    }
    if (rc == SW_OK) *out = info;
    return sw_library_end(error, rc, &err);
}

/* --- weights --- */

static sw_code wrong_size(const char *name, int64_t have, int64_t want, sw_err *err)
{
    return SW_FAIL(err, SW_E_USAGE, "%.200s has %lld values, there is room for %lld", name,
                   (long long)want, (long long)have);
}

static sw_code decode_floats(float *values, int64_t n_values, const sw_st_tensor *t, sw_err *err)
{
    sw_st_bytes bytes = {0};
    sw_code rc;

    if (sw_view_elems(&t->view) != n_values)
        return wrong_size(t->name, n_values, sw_view_elems(&t->view), err);
    rc = sw_st_fetch(&bytes, t, err);
    if (rc == SW_OK) rc = sw_float_decode_n(values, bytes.data, t->view.dtype, n_values, err);
    if (rc != SW_OK) sw_err_prefix(err, "%.200s", t->name);
    sw_st_drop(&bytes);
    return rc;
}

static sw_code take_linear(sw_qtensor *q, const sw_source *s, const char *path, sw_err *err)
{
    const sw_library_linear *l = path ? find_linear(s, path) : NULL;

    if (!l || !sw_checkpoint_is_quantized(&s->ckpt, path))
        return SW_FAIL(err, SW_E_USAGE, "%s: %s \"%.200s\"", s->ckpt.dir,
                       l ? "not quantized:" : "no linear", path ? path : "");
    return sw_checkpoint_qtensor(q, &s->ckpt, path, l->ref.n_out, l->ref.k_in, err);
}

/* A linear in floats, as rows of outputs wherever its file has them. A tensor that is made of what
 * the file stores otherwise, as of a GGUF, is rows already. */
static sw_code decode_linear(float *values, int64_t n_values, const sw_source *s,
                             const sw_library_linear *l, sw_err *err)
{
    const sw_linear_ref *ref = &l->ref;
    sw_stored stored;
    sw_cview rows;
    void *copy = NULL;
    sw_code rc;

    if (ref->n_out * ref->k_in != n_values)
        return wrong_size(l->path, n_values, ref->n_out * ref->k_in, err);
    rc = sw_stored_weight(&stored, &s->ckpt.model, s->ckpt.st, ref->layer, ref->slot, ref->expert,
                          err);
    if (rc != SW_OK) return rc;
    if (sw_stored_is_plain(&stored)) return decode_floats(values, n_values, stored.tensor, err);
    rows = stored.tensor->view;
    if (!rows.data)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: its rows are part of %.200s; decode that",
                       l->path, stored.tensor->name);
    rc = sw_mem_get(&copy, n_values, (size_t)sw_dtype_bits(rows.dtype) / 8, "rows", err);
    if (rc == SW_OK) sw_stored_copy(copy, &stored);
    if (rc == SW_OK) rc = sw_float_decode_n(values, copy, rows.dtype, n_values, err);
    sw_mem_put(copy);
    return rc;
}

static sw_code decode_quantized(float *values, int64_t n_values, const sw_source *s,
                                const char *path, sw_err *err)
{
    sw_qtensor q = {0};
    sw_code rc = take_linear(&q, s, path, err);

    if (rc == SW_OK && q.n_out * q.k_in != n_values)
        rc = wrong_size(path, n_values, q.n_out * q.k_in, err);
    if (rc == SW_OK) rc = sw_qtensor_check(&q, err);
    if (rc == SW_OK) sw_qtensor_decode(values, &q);
    sw_qtensor_free(&q);
    return rc;
}

int sw_source_decode(float *values, int64_t n_values, const sw_source *source, const char *name,
                     sw_error *error)
{
    const sw_library_linear *l = name ? find_linear(source, name) : NULL;
    const sw_st_tensor *t = name && !l ? sw_st_find(source->ckpt.st, name) : NULL;
    sw_err err = {0};
    sw_code rc;

    if (l && sw_checkpoint_is_quantized(&source->ckpt, name))
        rc = decode_quantized(values, n_values, source, name, &err);
    else if (l)
        rc = decode_linear(values, n_values, source, l, &err);
    else if (t)
        rc = decode_floats(values, n_values, t, &err);
    else
        rc = SW_FAIL(&err, SW_E_USAGE, "%s: no linear and no tensor \"%.200s\"", source->ckpt.dir,
                     name ? name : "");
    return sw_library_end(error, rc, &err);
}

int sw_source_matrix(sw_matrix **out, const sw_source *source, const char *path, sw_error *error)
{
    sw_matrix *m = NULL;
    sw_err err = {0};
    sw_code rc = SW_MEM_GET(&m, 1, "matrix", &err);

    if (rc == SW_OK) rc = take_linear(&m->q, source, path, &err);
    if (rc == SW_OK) rc = sw_qtensor_check(&m->q, &err);
    if (rc == SW_OK)
        *out = m;
    else
        sw_matrix_free(m);
    return sw_library_end(error, rc, &err);
}
