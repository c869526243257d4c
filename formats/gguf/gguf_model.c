/* gguf_model.c - see gguf_model.h: config and tensors. */
#include "formats/gguf/gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_config.h"
#include "formats/gguf/gguf_dtype.h"
#include "formats/model/programs.h"
#include "formats/num/blocks.h"
#include "formats/num/num.h"

/* A tensor of the model that is computed from one or more tensors of the file when it is read. */
typedef struct gguf_piece {
    const sw_gguf_tensor *t;
    float factor; /* that multiplies all values; 1 where the file has none */
} gguf_piece;

typedef struct gguf_maker {
    sw_st_maker base;
    const sw_gguf_name *name; /* it has name->n_parts pieces */
    gguf_piece *pieces;
    sw_dtype dtype;   /* of the result */
    bool is_widened;  /* a weight of a model in half floats that is F32 here */
} gguf_maker;

typedef struct gguf_model {
    sw_gguf *g;
    sw_arena arena; /* of names, makers and paths */
    sw_gguf_names names;
    bool has_expert_scales; /* the model has "blk.0.ffn_down_exps.scale" itself: it is no factor */
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

static const char *file_row(const gguf_maker *k, int32_t part, int64_t row)
{
    const sw_gguf_name *name = &k->name[part];
    const sw_gguf_tensor *t = k->pieces[part].t;

    return (const char *)t->data +
           (name->first + row) * sw_block_bytes(t->type, name->file_elems);
}

/* Decode a row of the file into values of the model, still in the order of columns of the file. */
static sw_code decode_row(float *row, const gguf_maker *k, int32_t part, int64_t i, sw_err *err)
{
    const sw_gguf_name *name = &k->name[part];
    const gguf_piece *piece = &k->pieces[part];
    const char *src = file_row(k, part, i);
    sw_code rc = sw_block_check(src, piece->t->type, name->file_elems, err);

    sw_block_decode(row, src, piece->t->type, name->file_elems);
    sw_gguf_read_values(row, name, name->file_elems);
    for (int64_t e = 0; piece->factor != 1.0f && e < name->file_elems; e++) row[e] *= piece->factor;
    if (rc != SW_OK) sw_err_prefix(err, "tensor \"%s\", row %lld", name->gguf, (long long)i);
    return rc;
}

/* Put a row into the order of columns of the model. Where it is the same, the row itself is
 * returned; else it is copied into `moved`. */
static float *move_columns(float *moved, float *row, const sw_gguf_name *name)
{
    if (!name->cols) return row;
    for (int64_t e = 0; e < name->row_elems; e++) moved[name->cols[e]] = row[e];
    return moved;
}

static sw_code make_rows(char *dst, const gguf_maker *k, int32_t part, float *row, sw_err *err)
{
    const sw_gguf_name *name = &k->name[part];
    const int64_t row_bytes = name->row_elems * sw_dtype_bits(k->dtype) / 8;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < name->n_rows && rc == SW_OK; i++) {
        if ((rc = decode_row(row, k, part, i, err)) == SW_OK)
            rc = sw_float_encode_n(dst + sw_gguf_model_row(name, i) * row_bytes, k->dtype,
                                   move_columns(row + name->row_elems, row, name),
                                   name->row_elems, err);
    }
    return rc;
}

/* Make a tensor whose columns, within a head, are rows of the file. */
static sw_code make_turned(char *dst, const gguf_maker *k, int32_t part, float *row, sw_err *err)
{
    const sw_gguf_name *name = &k->name[part];
    const int64_t elem = sw_dtype_bits(k->dtype) / 8, n = name->row_elems;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < name->n_rows && rc == SW_OK; i++) {
        const int64_t first = i / n * name->turned_stride, col = i % n;

        rc = decode_row(row, k, part, i, err);
        for (int64_t c = 0; c < name->file_elems && rc == SW_OK; c++)
            rc = sw_float_encode_n(dst + ((first + c) * n + col) * elem, k->dtype, row + c, 1, err);
    }
    return rc;
}

static sw_code make_tensor(const sw_st_maker *self, void *dst, sw_err *err)
{
    const gguf_maker *k = (const gguf_maker *)self;
    int64_t widest = k->name->row_elems;
    float *row = NULL;
    sw_code rc;

    for (int32_t p = 0; p < k->name->n_parts; p++)
        if (k->name[p].file_elems > widest) widest = k->name[p].file_elems;
    rc = SW_MEM_GET(&row, 2 * widest, k->name->gguf, err);
    for (int32_t p = 0; p < k->name->n_parts && rc == SW_OK; p++)
        rc = (k->name[p].turned_stride ? make_turned : make_rows)(dst, k, p, row, err);
    sw_mem_put(row);
    return rc;
}

/* Copy rows of blocks without decoding them, in the order of rows of the model. */
static sw_code make_blocks(const sw_st_maker *self, void *dst, sw_err *err)
{
    const gguf_maker *k = (const gguf_maker *)self;

    (void)err;
    for (int32_t p = 0; p < k->name->n_parts; p++) {
        const sw_gguf_name *name = &k->name[p];
        const int64_t row_bytes = sw_block_bytes(k->pieces[p].t->type, name->row_elems);

        for (int64_t i = 0; i < name->n_rows; i++)
            sw_gguf_move_blocks((char *)dst + sw_gguf_model_row(name, i) * row_bytes,
                                file_row(k, p, i), name, k->pieces[p].t->type, false);
    }
    return SW_OK;
}

/* --- the table ---------------------------------------------------------------------------- */

static sw_code check_shape(const gguf_model *m, const sw_gguf_tensor *t, const sw_gguf_name *name,
                           sw_err *err)
{
    int64_t have = 1, want = 1;
    int32_t d = 0, e = 0;

    if (!t)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is missing",
                       sw_gguf_file_path(m->g, 0), name->gguf);
    for (int32_t i = 0; i < t->n_dims; i++) have *= t->shape[i];
    for (int32_t i = 0; i < name->file_dims; i++) want *= name->file_shape[i];
    /* axes of length 1 do not count */
    while (d < t->n_dims || e < name->file_dims) {
        if (d < t->n_dims && t->shape[d] == 1) d++;
        else if (e < name->file_dims && name->file_shape[e] == 1) e++;
        else if (d < t->n_dims && e < name->file_dims && t->shape[d] == name->file_shape[e])
            d++, e++;
        else break;
    }
    if (have == want && d == t->n_dims && e == name->file_dims &&
        name->file_elems % sw_block_sizes[t->type].elems == 0)
        return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" has another shape than the metadata says: "
                   "%lld rows of %lld", sw_gguf_file_path(m->g, 0), name->gguf,
                   (long long)(want / (name->file_elems ? name->file_elems : 1)),
                   (long long)name->file_elems);
}

/* Find the factor of a weight: "blk.0.attn_q.scale" beside "blk.0.attn_q.weight" has one number for
 * the weight or for each expert. Only blocks of NVFP4 have one; else this is NULL. */
static const sw_gguf_tensor *factor_tensor(const gguf_model *m, const sw_gguf_name *name)
{
    char text[SW_GGUF_NAME_BYTES_MAX + 1];
    const size_t n = strlen(name->gguf), end = strlen("weight");

    if (!name->is_linear || n < end || n - end + sizeof "scale" > sizeof text ||
        (m->has_expert_scales && name->slot == SW_SLOT_DOWN && name->expert >= 0))
        return NULL;
    (void)snprintf(text, sizeof text, "%.*sscale", (int)(n - end), name->gguf);
    return sw_gguf_find(m->g, text);
}

static sw_code read_factor(float *out, const gguf_model *m, const sw_gguf_tensor *of,
                           const sw_gguf_name *name, sw_err *err)
{
    const sw_gguf_tensor *t = factor_tensor(m, name);
    const int64_t n = name->expert >= 0 ? name->file_shape[0] : 1;

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

/* Find the tensors of the file that hold the pieces, and their factors. */
static sw_code find_pieces(gguf_maker *maker, gguf_model *m, sw_err *err)
{
    const sw_gguf_name *name = maker->name;
    sw_code rc = SW_ARENA_TAKE(&maker->pieces, &m->arena, name->n_parts, err);

    for (int32_t p = 0; p < name->n_parts && rc == SW_OK; p++) {
        gguf_piece *piece = &maker->pieces[p];

        piece->t = sw_gguf_find(m->g, name[p].gguf);
        if ((rc = check_shape(m, piece->t, &name[p], err)) == SW_OK)
            rc = read_factor(&piece->factor, m, piece->t, &name[p], err);
    }
    return rc;
}

static bool has_factor(const gguf_maker *k)
{
    for (int32_t p = 0; p < k->name->n_parts; p++)
        if (k->pieces[p].factor != 1.0f) return true;
    return false;
}

/* Return whether the bytes of the file are those of the model, so that the tensor can be mapped. */
static bool lies_plain(const gguf_maker *k)
{
    const sw_gguf_name *name = k->name;
    const sw_block_size *size = &sw_block_sizes[k->pieces[0].t->type];

    return name->n_parts == 1 && !name->rows && !name->cols && !name->turned_stride &&
           name->kind == SW_GGUF_SAME && size->elems == 1 && !k->is_widened && !has_factor(k) &&
           size->bytes * 8 == sw_dtype_bits(k->dtype);
}

static sw_code describe(sw_st_tensor *out, gguf_model *m, const sw_gguf_name *name,
                        sw_dtype model, sw_err *err)
{
    gguf_maker *maker = NULL;
    uint64_t n_bytes = 0;
    sw_code rc = SW_ARENA_TAKE(&maker, &m->arena, 1, err);

    if (rc != SW_OK) return rc;
    *maker = (gguf_maker){.base = {make_tensor}, .name = name};
    if ((rc = find_pieces(maker, m, err)) != SW_OK) return rc;
    maker->dtype = has_factor(maker) ? SW_DTYPE_F32
                                     : sw_gguf_dtype_of(maker->pieces[0].t, name, model);
    maker->is_widened = maker->dtype == SW_DTYPE_F32 && model != SW_DTYPE_F32 &&
                        (name->is_linear || name->is_table);
    *out = (sw_st_tensor){.name = name->hf, .shard = maker->pieces[0].t->split,
                          .maker = &maker->base};
    out->view.dtype = maker->dtype;
    out->view.n_dims = name->n_dims;
    for (int32_t d = 0; d < name->n_dims; d++) out->view.shape[d] = name->shape[d];
    rc = sw_shape_bytes(&n_bytes, maker->dtype, name->n_dims, name->shape, err);
    if (rc != SW_OK) return rc;
    out->view.size_bytes = (size_t)n_bytes;
    if (!lies_plain(maker)) return SW_OK;
    out->maker = NULL;
    out->view.data = file_row(maker, 0, 0);
    return SW_OK;
}

static bool is_in_blocks(const sw_gguf_tensor *t) { return sw_block_sizes[t->type].elems > 1; }

/* Return whether all pieces have blocks of one type, and no run of columns cuts a block. */
static bool has_blocks(const gguf_maker *k)
{
    for (int32_t p = 0; p < k->name->n_parts; p++)
        if (!is_in_blocks(k->pieces[p].t) || k->pieces[p].t->type != k->pieces[0].t->type ||
            !sw_gguf_moves_blocks(&k->name[p], k->pieces[p].t->type))
            return false;
    return true;
}

/* Pieces of one weight whose factors differ cannot share one. */
static bool has_one_factor(const gguf_maker *k)
{
    for (int32_t p = 1; p < k->name->n_parts; p++)
        if (k->pieces[p].factor != k->pieces[0].factor) return false;
    return true;
}

/* Return whether every row of this linear can be kept as codes. Some types allow blocks that
 * cannot; of these the values are read, up to the first such block. */
static bool has_codes(const gguf_maker *k)
{
    for (int32_t p = 0; p < k->name->n_parts; p++)
        for (int64_t i = 0; i < k->name[p].n_rows; i++) {
            const sw_block_type type = k->pieces[p].t->type;

            if (!sw_gguf_row_has_codes(file_row(k, p, i), type, k->name->row_elems)) return false;
            if (type != SW_BLOCK_Q4_1) break;
        }
    return true;
}

/* Describe "P.weight" as "P.Q4_0", whose bytes are those of the file. */
static sw_code describe_blocks(sw_st_tensor *out, gguf_model *m, const sw_st_tensor *floats,
                               sw_err *err)
{
    const gguf_maker *of = (const gguf_maker *)floats->maker;
    const sw_block_type type = of->pieces[0].t->type;
    const int64_t row_bytes = sw_block_bytes(type, of->name->row_elems);
    gguf_maker *maker = NULL;
    char *name = NULL;
    sw_code rc = SW_ARENA_TAKE(&maker, &m->arena, 1, err);

    if (rc == SW_OK)
        rc = sw_arena_print(&name, &m->arena, err, "%.*s%s",
                            (int)(strlen(floats->name) - strlen("weight")), floats->name,
                            sw_block_sizes[type].name);
    if (rc != SW_OK) return rc;
    *maker = *of;
    maker->base.make = make_blocks;
    *out = (sw_st_tensor){.name = name, .shard = floats->shard, .maker = &maker->base};
    out->view.dtype = SW_DTYPE_U8;
    out->view.n_dims = 2;
    out->view.shape[0] = of->name->all_rows;
    out->view.shape[1] = row_bytes;
    out->view.size_bytes = (size_t)(of->name->all_rows * row_bytes);
    if (of->name->rows || of->name->cols || of->name->n_parts > 1) return SW_OK;
    out->maker = NULL;
    out->view.data = file_row(maker, 0, 0);
    return SW_OK;
}

/* Describe "P.NVFP4_scale", where the file has such a factor. */
static sw_code describe_factor(sw_st_tensor *tensors, int64_t *n, gguf_model *m,
                               const sw_st_tensor *floats, sw_err *err)
{
    const gguf_maker *of = (const gguf_maker *)floats->maker;
    const sw_gguf_tensor *t = factor_tensor(m, of->name);
    sw_st_tensor *out = &tensors[*n];
    char *name = NULL;
    sw_code rc;

    if (!t || of->pieces[0].t->type != SW_BLOCK_NVFP4) return SW_OK;
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

/* Add a tensor of the model to the table: as floats, as blocks with their factor, or as all
 * three. */
static sw_code add_tensor(sw_st_tensor *tensors, int64_t *n, gguf_model *m,
                          const sw_gguf_name *name, sw_dtype dtype, sw_gguf_view view, sw_err *err)
{
    sw_st_tensor floats, blocks;
    const gguf_maker *k;
    sw_code rc = describe(&floats, m, name, dtype, err);

    if (rc != SW_OK) return rc;
    k = (const gguf_maker *)floats.maker;
    if (view == SW_GGUF_FLOATS || !k || (!name->is_linear && !name->is_table) || !has_blocks(k) ||
        !has_one_factor(k) ||
        (view == SW_GGUF_CODES && (!name->is_linear || !has_codes(k)))) {
        tensors[(*n)++] = floats;
        return SW_OK;
    }
    if ((rc = describe_blocks(&blocks, m, &floats, err)) != SW_OK) return rc;
    tensors[(*n)++] = blocks;
    if (view == SW_GGUF_BLOCKS) tensors[(*n)++] = floats;
    return describe_factor(tensors, n, m, &floats, err);
}

/* Return whether `name` belongs to this weight. Beside a weight may lie its factor, and the scale
 * of its inputs, which is of the run that made the file and says nothing about the weight. */
static bool is_of(const sw_gguf_name *weight, const char *name)
{
    const size_t end = strlen("weight"), n = strlen(weight->gguf);

    if (!strcmp(weight->gguf, name)) return true;
    return weight->is_linear && n > end && !strncmp(weight->gguf, name, n - end) &&
           (!strcmp(name + n - end, "scale") || !strcmp(name + n - end, "input_scale"));
}

/* Refuse a file with a tensor that no entry names, since it would be lost without a word. */
static sw_code refuse_unknown(const gguf_model *m, sw_err *err)
{
    for (int64_t i = 0; i < sw_gguf_count(m->g); i++) {
        const char *name = sw_gguf_at(m->g, i)->name;
        bool is_known = !strcmp(name, SW_GGUF_ROPE_TENSOR) ||
                        !strcmp(name, SW_GGUF_LONG_TENSOR) ||
                        !strcmp(name, SW_GGUF_SHORT_TENSOR);

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
    for (int64_t i = 0; i < m->names.n && rc == SW_OK; i += m->names.names[i].n_parts)
        rc = add_tensor(tensors, &n, m, &m->names.names[i], dtype, view, err);
    if (rc == SW_OK) rc = sw_st_open_made(out, tensors, n, &backing, err);
    sw_mem_put(tensors);
    return rc;
}

/* A layer that takes its keys from another may store linears for keys of its own, which nobody
 * reads. Such a layer is of another kind, so that these tensors have a name. */
static void fit_kinds(sw_model *m, const sw_gguf *g)
{
    char name[SW_GGUF_NAME_BYTES_MAX + 1];

    for (int64_t l = 0; l < m->n_layers; l++) {
        (void)snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)l);
        for (int i = 0; i < sw_n_stored_kinds && sw_gguf_find(g, name); i++) {
            const sw_stored_kind *row = &sw_stored_kinds[i];

            if (row->kinds != m->arch->kinds || row->from != m->kind[l]) continue;
            m->kind[l] = (uint8_t)row->to;
            break;
        }
    }
}

/* Check that the tensors of experts are there before their count is used: a file with a large count
 * and no experts would otherwise make a huge table of names. */
static sw_code check_experts(const sw_gguf *g, const sw_model *m, sw_err *err)
{
    char name[SW_GGUF_NAME_BYTES_MAX + 1];

    for (int64_t l = 0; l < m->n_layers; l++) {
        const sw_gguf_tensor *t;

        if (!sw_model_is_sparse(m, l)) continue;
        (void)snprintf(name, sizeof name, "blk.%lld.ffn_up_exps.weight", (long long)l);
        t = sw_gguf_find(g, name);
        if (!t || t->n_dims != 3 || t->shape[0] != m->n_experts)
            return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" of %lld experts is missing",
                           sw_gguf_file_path(g, 0), name, (long long)m->n_experts);
    }
    return SW_OK;
}

static bool is_alike(const sw_model *a, const sw_model *b)
{
    return !strcmp(a->arch->ends.prefix, b->arch->ends.prefix) &&
           !strcmp(a->arch->ends.names[SW_END_LAYERS], b->arch->ends.names[SW_END_LAYERS]);
}

sw_code sw_gguf_model_open(cJSON **config_out, sw_st **st_out, const char *path,
                           sw_gguf_view view, sw_err *err)
{
    return sw_gguf_model_open_like(config_out, st_out, path, view, NULL, err);
}

sw_code sw_gguf_model_open_like(cJSON **config_out, sw_st **st_out, const char *path,
                                sw_gguf_view view, const sw_model *like, sw_err *err)
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
    if (like && is_alike(like, &model)) memcpy(model.ends, like->ends, sizeof model.ends);
    fit_kinds(&model, m->g);
    m->has_expert_scales = model.arch->slot_names[SW_SLOT_EXPERT_SCALE] != NULL;
    if ((rc = check_experts(m->g, &model, err)) != SW_OK ||
        (rc = sw_gguf_names_new(&m->names, &model, arch, &m->arena, err)) != SW_OK ||
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
    uint64_t n = 0;

    if (!k || (k->base.make != make_tensor && k->base.make != make_blocks))
        return t->view.size_bytes;
    for (int32_t p = 0; p < k->name->n_parts; p++)
        n += (uint64_t)(k->name[p].n_rows *
                        sw_block_bytes(k->pieces[p].t->type, k->name[p].file_elems));
    return n;
}

bool sw_gguf_decoded_type(sw_block_type *out, const sw_st_tensor *t)
{
    const gguf_maker *k = (const gguf_maker *)t->maker;

    if (!k || k->base.make != make_tensor || !is_in_blocks(k->pieces[0].t)) return false;
    *out = k->pieces[0].t->type;
    return true;
}
