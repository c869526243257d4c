/* gguf_model.c - see gguf_model.h: config and tensors. */
#include "formats/gguf/gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_config.h"
#include "formats/gguf/gguf_dtype.h"
#include "formats/num/blocks.h"
#include "formats/num/num.h"

/* One tensor that is made when it is read. */
typedef struct gguf_maker {
    sw_st_maker base;
    const sw_gguf_tensor *t;
    const sw_gguf_name *name;
    int64_t n_rows, row_elems;
    sw_dtype dtype; /* what it is made into */
    float factor;   /* of all values; 1 where the file has none */
    bool is_widened; /* a weight that is F32 for want of a dtype of its own */
} gguf_maker;

typedef struct gguf_model {
    sw_gguf *g;
    sw_arena arena; /* names, makers, paths */
    sw_gguf_names names;
    const char **paths;
} gguf_model;

static void close_model(void *self)
{
    gguf_model *m = self;

    sw_gguf_close(m->g);
    sw_arena_free(&m->arena);
    sw_mem_put(m);
}

static void forget_model(const void *self) { sw_gguf_forget(((const gguf_model *)self)->g); }

/* --- making ----------------------------------------------------------------------------- */

static int64_t file_row_bytes(const gguf_maker *k)
{
    return sw_block_bytes(k->t->type, k->row_elems);
}

/* Where row `row` of the model lies in the file, experts and pairs considered. */
static const char *row_in_file(const gguf_maker *k, int64_t row)
{
    const int64_t row_bytes = file_row_bytes(k);
    const int64_t pair = k->name->paired_rows, at = pair ? row % pair : 0;

    if (pair) row += 2 * (at % (pair / 2)) + at / (pair / 2) - at;
    if (k->name->expert > 0) row += k->name->expert * k->n_rows;
    return (const char *)k->t->data + row * row_bytes;
}

static sw_code make_tensor(const sw_st_maker *self, void *dst, sw_err *err)
{
    const gguf_maker *k = (const gguf_maker *)self;
    const int64_t row_bytes = k->row_elems * sw_dtype_bits(k->dtype) / 8;
    float *row = NULL;
    sw_code rc = SW_MEM_GET(&row, k->row_elems, k->name->gguf, err);

    for (int64_t n = 0; n < k->n_rows && rc == SW_OK; n++) {
        const char *src = row_in_file(k, n);

        rc = sw_block_check(src, k->t->type, k->row_elems, err);
        sw_block_decode(row, src, k->t->type, k->row_elems);
        for (int64_t i = 0; k->name->offset != 0.0 && i < k->row_elems; i++)
            row[i] -= (float)k->name->offset;
        for (int64_t i = 0; k->factor != 1.0f && i < k->row_elems; i++) row[i] *= k->factor;
        if (rc == SW_OK)
            rc = sw_float_encode_n((char *)dst + n * row_bytes, k->dtype, row, k->row_elems, err);
        if (rc != SW_OK) sw_err_prefix(err, "tensor \"%s\", row %lld", k->name->gguf, (long long)n);
    }
    sw_mem_put(row);
    return rc;
}

/* Rows of blocks as they are, in the model's order. */
static sw_code make_blocks(const sw_st_maker *self, void *dst, sw_err *err)
{
    const gguf_maker *k = (const gguf_maker *)self;
    const int64_t row_bytes = file_row_bytes(k);

    (void)err;
    for (int64_t n = 0; n < k->n_rows; n++)
        memcpy((char *)dst + n * row_bytes, row_in_file(k, n), (size_t)row_bytes);
    return SW_OK;
}

/* --- the table ---------------------------------------------------------------------------- */

static sw_code check_shape(const gguf_model *m, const sw_gguf_tensor *t, const sw_gguf_name *name,
                           sw_err *err)
{
    const int32_t n_dims = name->n_dims + (name->n_experts > 0);
    bool is_right = t && t->n_dims == n_dims;

    if (!t)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is missing",
                       sw_gguf_file_path(m->g, 0), name->gguf);
    for (int32_t d = 0; d < name->n_dims && is_right; d++)
        is_right = t->shape[d + (name->n_experts > 0)] == name->shape[d];
    if (is_right && (!name->n_experts || t->shape[0] == name->n_experts)) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" has another shape than the metadata says: "
                   "%lld rows of %lld", sw_gguf_file_path(m->g, 0), name->gguf,
                   (long long)(name->n_dims > 1 ? name->shape[0] : 1),
                   (long long)name->shape[name->n_dims - 1]);
}

/* "blk.0.attn_q.scale" beside "blk.0.attn_q.weight": a factor of the whole weight, or of each
 * expert, that blocks of NVFP4 may have. NULL: none. */
static const sw_gguf_tensor *factor_tensor(const gguf_model *m, const sw_gguf_name *name)
{
    char text[SW_GGUF_NAME_BYTES_MAX + 1];
    const size_t n = strlen(name->gguf), end = strlen("weight");

    if (!name->is_linear || n < end || n - end + sizeof "scale" > sizeof text) return NULL;
    (void)snprintf(text, sizeof text, "%.*sscale", (int)(n - end), name->gguf);
    return sw_gguf_find(m->g, text);
}

static sw_code read_factor(float *out, const gguf_model *m, const sw_gguf_tensor *of,
                           const sw_gguf_name *name, sw_err *err)
{
    const sw_gguf_tensor *t = factor_tensor(m, name);
    const int64_t n = name->n_experts ? name->n_experts : 1;

    *out = 1.0f;
    if (!t) return SW_OK;
    if (of->type != SW_BLOCK_NVFP4)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: tensor \"%s\" is a factor of a weight in %s; "
                       "only those of NVFP4 are known here", sw_gguf_file_path(m->g, 0), t->name,
                       sw_block_sizes[of->type].name);
    if (t->type != SW_BLOCK_F32 || t->n_dims != 1 || t->shape[0] != n)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is no list of %lld factors in F32",
                       sw_gguf_file_path(m->g, 0), t->name, (long long)n);
    sw_block_decode(out, (const char *)t->data + 4 * (name->expert > 0 ? name->expert : 0),
                    SW_BLOCK_F32, 1);
    if (isfinite(*out) && *out > 0.0f) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" has the factor %g; want a finite number "
                   "above 0", sw_gguf_file_path(m->g, 0), t->name, (double)*out);
}

static sw_code describe(sw_st_tensor *out, gguf_model *m, const sw_gguf_name *name,
                        sw_dtype model, sw_err *err)
{
    const sw_gguf_tensor *t = sw_gguf_find(m->g, name->gguf);
    gguf_maker *maker = NULL;
    uint64_t n_bytes = 0;
    float factor = 1.0f;
    sw_code rc = check_shape(m, t, name, err);

    if (rc != SW_OK || (rc = read_factor(&factor, m, t, name, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&maker, &m->arena, 1, err)) != SW_OK)
        return rc;
    *maker = (gguf_maker){.base = {make_tensor}, .t = t, .name = name, .n_rows = 1,
                          .row_elems = name->shape[name->n_dims - 1], .factor = factor,
                          .dtype = factor != 1.0f ? SW_DTYPE_F32
                                                  : sw_gguf_dtype_of(t, name, model)};
    maker->is_widened = maker->dtype == SW_DTYPE_F32 && model != SW_DTYPE_F32 &&
                        (name->is_linear || name->is_table);
    /* a bias of paired rows is as many rows of one */
    if (name->n_dims == 2 || name->paired_rows) maker->n_rows = name->shape[0];
    if (name->n_dims == 1 && name->paired_rows) maker->row_elems = 1;
    *out = (sw_st_tensor){.name = name->hf, .shard = t->split, .maker = &maker->base};
    out->view.dtype = maker->dtype;
    out->view.n_dims = name->n_dims;
    for (int32_t d = 0; d < name->n_dims; d++) out->view.shape[d] = name->shape[d];
    rc = sw_shape_bytes(&n_bytes, maker->dtype, name->n_dims, name->shape, err);
    if (rc != SW_OK) return rc;
    out->view.size_bytes = (size_t)n_bytes;
    if (name->paired_rows || name->offset != 0.0 || sw_block_sizes[t->type].elems > 1 ||
        maker->is_widened || sw_block_sizes[t->type].bytes * 8 != sw_dtype_bits(maker->dtype))
        return SW_OK;
    out->maker = NULL;
    out->view.data = row_in_file(maker, 0);
    return SW_OK;
}

static bool is_in_blocks(const sw_gguf_tensor *t) { return sw_block_sizes[t->type].elems > 1; }

/* Every row of this linear a logical weight? Types whose blocks may be none are read for that, as
 * far as the first one that is. */
static bool has_codes(const gguf_maker *k)
{
    for (int64_t n = 0; n < k->n_rows; n++) {
        if (!sw_gguf_row_has_codes(row_in_file(k, n), k->t->type, k->row_elems)) return false;
        if (k->t->type != SW_BLOCK_Q4_1) return true;
    }
    return true;
}

/* "P.weight" as described into "P.Q4_0", bytes as they lie in the file. */
static sw_code describe_blocks(sw_st_tensor *out, gguf_model *m, const sw_st_tensor *floats,
                               sw_err *err)
{
    const gguf_maker *of = (const gguf_maker *)floats->maker;
    const int64_t row_bytes = file_row_bytes(of);
    gguf_maker *maker = NULL;
    char *name = NULL;
    sw_code rc = SW_ARENA_TAKE(&maker, &m->arena, 1, err);

    if (rc == SW_OK)
        rc = sw_arena_print(&name, &m->arena, err, "%.*s%s",
                            (int)(strlen(floats->name) - strlen("weight")), floats->name,
                            sw_block_sizes[of->t->type].name);
    if (rc != SW_OK) return rc;
    *maker = *of;
    maker->base.make = make_blocks;
    *out = (sw_st_tensor){.name = name, .shard = floats->shard, .maker = &maker->base};
    out->view.dtype = SW_DTYPE_U8;
    out->view.n_dims = 2;
    out->view.shape[0] = of->n_rows;
    out->view.shape[1] = row_bytes;
    out->view.size_bytes = (size_t)(of->n_rows * row_bytes);
    if (of->name->paired_rows) return SW_OK;
    out->maker = NULL;
    out->view.data = row_in_file(maker, 0);
    return SW_OK;
}

/* "P.NVFP4_scale", where the file has one. */
static sw_code describe_factor(sw_st_tensor *tensors, int64_t *n, gguf_model *m,
                               const sw_st_tensor *floats, sw_err *err)
{
    const gguf_maker *of = (const gguf_maker *)floats->maker;
    const sw_gguf_tensor *t = factor_tensor(m, of->name);
    sw_st_tensor *out = &tensors[*n];
    char *name = NULL;
    sw_code rc;

    if (!t || of->t->type != SW_BLOCK_NVFP4) return SW_OK;
    rc = sw_arena_print(&name, &m->arena, err, "%.*sNVFP4_scale",
                        (int)(strlen(floats->name) - strlen("weight")), floats->name);
    if (rc != SW_OK) return rc;
    *out = (sw_st_tensor){.name = name, .shard = t->split};
    out->view.dtype = SW_DTYPE_F32;
    out->view.n_dims = 1;
    out->view.shape[0] = 1;
    out->view.size_bytes = 4;
    out->view.data = (const char *)t->data + 4 * (of->name->expert > 0 ? of->name->expert : 0);
    (*n)++;
    return SW_OK;
}

/* One tensor of the model, as one of the table or, of blocks, two or three. */
static sw_code add_tensor(sw_st_tensor *tensors, int64_t *n, gguf_model *m,
                          const sw_gguf_name *name, sw_dtype dtype, sw_gguf_view view, sw_err *err)
{
    const sw_gguf_tensor *t = sw_gguf_find(m->g, name->gguf);
    sw_st_tensor floats, blocks;
    sw_code rc = describe(&floats, m, name, dtype, err);

    if (rc != SW_OK) return rc;
    if (view == SW_GGUF_FLOATS || !is_in_blocks(t) || (!name->is_linear && !name->is_table) ||
        (view == SW_GGUF_CODES &&
         (!name->is_linear || !has_codes((const gguf_maker *)floats.maker)))) {
        tensors[(*n)++] = floats;
        return SW_OK;
    }
    if ((rc = describe_blocks(&blocks, m, &floats, err)) != SW_OK) return rc;
    tensors[(*n)++] = blocks;
    if (view != SW_GGUF_BLOCKS) return SW_OK;
    tensors[(*n)++] = floats;
    return describe_factor(tensors, n, m, &floats, err);
}

/* Whether `name` is that of a weight, or of what may lie beside it: its factor, and how its inputs
 * were scaled where the file was made, which says nothing about the weight. */
static bool is_of(const sw_gguf_name *weight, const char *name)
{
    const size_t end = strlen("weight"), n = strlen(weight->gguf);

    if (!strcmp(weight->gguf, name)) return true;
    return weight->is_linear && n > end && !strncmp(weight->gguf, name, n - end) &&
           (!strcmp(name + n - end, "scale") || !strcmp(name + n - end, "input_scale"));
}

/* Nothing of the file may be lost. */
static sw_code refuse_unknown(const gguf_model *m, sw_err *err)
{
    for (int64_t i = 0; i < sw_gguf_count(m->g); i++) {
        const char *name = sw_gguf_at(m->g, i)->name;
        bool is_known = !strcmp(name, SW_GGUF_ROPE_TENSOR);

        for (int64_t k = 0; k < m->names.n && !is_known; k++)
            is_known = is_of(&m->names.names[k], name);
        if (!is_known)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: tensor \"%s\" is not one of its "
                           "architecture, as it is known here", sw_gguf_file_path(m->g, 0), name);
    }
    return SW_OK;
}

static sw_code open_tensors(sw_st **out, gguf_model *m, sw_dtype dtype, sw_gguf_view view,
                            sw_err *err)
{
    sw_st_backing backing = {m, close_model, forget_model, NULL, sw_gguf_n_files(m->g)};
    sw_st_tensor *tensors = NULL;
    int64_t n = 0;
    sw_code rc;

    if ((rc = refuse_unknown(m, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&m->paths, &m->arena, backing.n_files, err)) != SW_OK ||
        (rc = SW_MEM_GET(&tensors, 3 * m->names.n, "tensors of a GGUF", err)) != SW_OK)
        return rc;
    for (int32_t i = 0; i < backing.n_files; i++) m->paths[i] = sw_gguf_file_path(m->g, i);
    backing.paths = m->paths;
    for (int64_t i = 0; i < m->names.n && rc == SW_OK; i++)
        rc = add_tensor(tensors, &n, m, &m->names.names[i], dtype, view, err);
    if (rc == SW_OK) rc = sw_st_open_made(out, tensors, n, &backing, err);
    sw_mem_put(tensors);
    return rc;
}

sw_code sw_gguf_model_open(cJSON **config_out, sw_st **st_out, const char *path,
                           sw_gguf_view view, sw_err *err)
{
    const sw_gguf_arch *arch = NULL;
    gguf_model *m = NULL;
    cJSON *config = NULL;
    sw_dtype dtype;
    sw_model model;
    sw_code rc;

    if ((rc = SW_MEM_GET(&m, 1, "GGUF model", err)) != SW_OK) return rc;
    if ((rc = sw_gguf_open(&m->g, path, err)) != SW_OK) goto fail;
    dtype = sw_gguf_model_dtype(m->g);
    rc = sw_gguf_config_read(&config, &arch, m->g, sw_gguf_dtype_text(dtype), err);
    if (rc != SW_OK) goto fail;
    if ((rc = sw_model_read(&model, config, err)) != SW_OK) {
        sw_err_prefix(err, "%s", path);
        goto fail;
    }
    if ((rc = sw_gguf_names_new(&m->names, &model, arch, &m->arena, err)) != SW_OK ||
        (rc = open_tensors(st_out, m, dtype, view, err)) != SW_OK)
        goto fail;
    *config_out = config;
    return SW_OK;
fail:
    cJSON_Delete(config);
    close_model(m);
    return rc;
}

bool sw_gguf_is_widened(const sw_st_tensor *t)
{
    const gguf_maker *k = (const gguf_maker *)t->maker;

    return k && k->base.make == make_tensor && k->is_widened;
}

uint64_t sw_gguf_stored_bytes(const sw_st_tensor *t)
{
    const gguf_maker *k = (const gguf_maker *)t->maker;

    if (!k || (k->base.make != make_tensor && k->base.make != make_blocks))
        return t->view.size_bytes;
    return (uint64_t)(k->n_rows * file_row_bytes(k));
}

bool sw_gguf_decoded_type(sw_block_type *out, const sw_st_tensor *t)
{
    const gguf_maker *k = (const gguf_maker *)t->maker;

    if (!k || k->base.make != make_tensor || !is_in_blocks(k->t)) return false;
    *out = k->t->type;
    return true;
}
