/* gguf_export.c - see gguf_export.h. */
#include "formats/checkpoint/writer/gguf_export_internal.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/dialect/conversions.h"
#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_config.h"
#include "formats/gguf/gguf_model.h"
#include "formats/model/stored.h"

#define ROWS_PER_TASK 16

/* One tensor on its way; what a task needs to encode its rows. */
typedef struct job {
    const sw_checkpoint *source;
    const sw_gguf_options *options;
    const sw_gguf_name *name;
    sw_block_type type;
    bool is_quantized;    /* in the source */
    bool is_carried;      /* then: its codes go over as they are */
    sw_qtensor q;         /* then */
    sw_dtype dtype;       /* else, of what lies in the source: */
    const char *data;     /* rows of the model's tensor, in `bytes` or `copy` */
    int64_t n_have;       /* so many */
    sw_st_bytes bytes;
    char *copy;
    float *floats;        /* of a piece that is turned, all rows */
    const float *weights; /* [file_elems] of errors, or NULL */
    unsigned char *out;   /* the rows in the file's order */
    sw_err *errs;         /* [n_tasks] */
} job;

/* --- which type --------------------------------------------------------------------------- */

/* The next best type whose blocks are shorter. */
static sw_block_type fallback_of(sw_block_type type)
{
    static const sw_block_type next[SW_BLOCK_TYPE_COUNT] = {
        [SW_BLOCK_Q4_K] = SW_BLOCK_Q8_0, [SW_BLOCK_Q6_K] = SW_BLOCK_Q8_0,
        [SW_BLOCK_Q8_0] = SW_BLOCK_F16,  [SW_BLOCK_Q4_0] = SW_BLOCK_F16,
        [SW_BLOCK_Q4_1] = SW_BLOCK_F16,
    };

    return next[type];
}

sw_block_type sw_gguf_export_type(const sw_gguf_name *name, const sw_gguf_options *o)
{
    sw_block_type type = name->is_table ? o->embed_type : o->type;

    if (name->slot == SW_SLOT_KV_B) return type == SW_BLOCK_F32 ? type : name->floats;
    if (name->n_dims == 1 || (!name->is_linear && !name->is_table)) return SW_BLOCK_F32;
    while (name->file_elems % sw_block_sizes[type].elems) type = fallback_of(type);
    return type;
}

/* What carries a weight of this scheme under the words of GGUF; why not. */
static sw_code carrier(sw_qspec *out, bool *is_conditional, sw_block_type type,
                       const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_qspec weight = *spec;
    sw_code rc;

    if (type == SW_BLOCK_NVFP4) memset(&weight.act, 0, sizeof weight.act); /* engines choose it */
    rc = sw_conversion_exact(out, is_conditional, &weight, &sw_dialect_gguf, n_out, k_in, err);
    if (rc != SW_OK || sw_gguf_type_of_spec(out) == type) return rc;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "its codes are those of %s, not of %s",
                   sw_block_sizes[sw_gguf_type_of_spec(out)].name, sw_block_sizes[type].name);
}

bool sw_gguf_carries(sw_block_type type, const sw_qspec *spec, int64_t k_in)
{
    bool is_conditional;
    sw_err ignored = {0};
    sw_qspec to;

    return carrier(&to, &is_conditional, type, spec, 1, k_in, &ignored) == SW_OK;
}

/* The same of a weight at hand, which is then one of that scheme. */
static bool take_as_it_is(sw_qtensor *q, sw_block_type type)
{
    bool is_conditional = false;
    sw_err ignored = {0};
    sw_qspec to;

    if (carrier(&to, &is_conditional, type, &q->spec, q->n_out, q->k_in, &ignored) != SW_OK ||
        (is_conditional && sw_conversion_check(q, &sw_dialect_gguf, &to, &ignored) != SW_OK))
        return false;
    q->spec = to;
    return true;
}

/* --- one row ------------------------------------------------------------------------------ */

static sw_code decode_rows(float *out, const job *j, int64_t row, int64_t n, sw_err *err)
{
    const int64_t elems = j->name->row_elems;

    if (j->is_quantized) {
        sw_qtensor_decode_rows(out, &j->q, row, n);
        return SW_OK;
    }
    return sw_float_decode_n(out, j->data + row * elems * sw_dtype_bits(j->dtype) / 8, j->dtype,
                             n * elems, err);
}

/* Row i of the file's piece in floats; `row` has room for two rows of either side. */
static sw_code take_row(float **out, float *row, const job *j, int64_t i, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    const int64_t n = name->row_elems, from = sw_gguf_model_row(name, i);
    sw_code rc;

    *out = row;
    for (int64_t c = 0; name->turned_stride && c < name->file_elems; c++)
        row[c] = j->floats[(i / n * name->turned_stride + c) * n + i % n];
    if (name->turned_stride) return SW_OK;
    rc = decode_rows(row, j, from < j->n_have ? from : 0, 1, err);
    for (int64_t e = 0; name->cols && e < n; e++) row[n + e] = row[name->cols[e]];
    if (name->cols) *out = row + n;
    return rc;
}

static sw_code encode_row(unsigned char *to, float *floats, const job *j, int64_t i, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    float *row;
    sw_code rc = take_row(&row, floats, j, i, err);

    if (rc != SW_OK) return rc;
    sw_gguf_store_values(row, name, name->file_elems);
    rc = sw_block_encode(to, j->type, row, j->weights, name->file_elems, j->options->how, err);
    if (rc != SW_OK) sw_err_prefix(err, "tensor \"%s\", row %lld", name->hf, (long long)i);
    return rc;
}

/* Codes go over as they are, in the file's order. */
static sw_code carry_row(unsigned char *to, const job *j, int64_t i, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    unsigned char *blocks = NULL;
    sw_code rc =
        SW_MEM_GET(&blocks, sw_block_bytes(j->type, name->row_elems), "row of blocks", err);

    if (rc != SW_OK) return rc;
    sw_gguf_encode_row(blocks, &j->q, sw_gguf_model_row(name, i));
    sw_gguf_move_blocks(to, blocks, name, j->type, true);
    sw_mem_put(blocks);
    return SW_OK;
}

static void encode_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const int64_t n = j->name->file_elems > j->name->row_elems ? j->name->file_elems
                                                               : j->name->row_elems;
    sw_err *err = &j->errs[begin / ROWS_PER_TASK];
    float *floats = NULL;
    sw_code rc = SW_MEM_GET(&floats, 2 * n, "row of a tensor", err);

    (void)thread;
    for (int64_t i = begin; i < end && rc == SW_OK; i++) {
        unsigned char *to = j->out + i * sw_block_bytes(j->type, j->name->file_elems);

        rc = j->is_carried ? carry_row(to, j, i, err) : encode_row(to, floats, j, i, err);
    }
    sw_mem_put(floats);
}

/* --- one tensor --------------------------------------------------------------------------- */

static bool module_of(char out[256], const char *hf)
{
    size_t n = strlen(hf), end = strlen(".weight");

    if (n <= end || n - end >= 256 || strcmp(hf + n - end, ".weight")) return false;
    memcpy(out, hf, n - end);
    out[n - end] = '\0';
    return true;
}

static bool is_quantized(const sw_checkpoint *source, const sw_gguf_name *name)
{
    char path[256];

    return (name->is_linear || name->is_table || name->slot == SW_SLOT_KV_B) &&
           module_of(path, name->hf) &&
           sw_checkpoint_is_quantized(source, path);
}

/* Out of a tensor of all experts, or one that is stored the other way round: a copy. */
static sw_code load_stored(job *j, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    const sw_checkpoint *source = j->source;
    sw_stored stored;
    sw_code rc = (name->n_dims == 1 ? sw_stored_bias : sw_stored_weight)(
        &stored, &source->model, source->st, name->layer, name->slot, name->expert, err);

    if (rc == SW_OK)
        rc = SW_MEM_GET(&j->copy, stored.n_out * stored.k_in *
                                      sw_dtype_bits(stored.tensor->view.dtype) / 8, name->hf, err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "%s", source->dir);
        return rc;
    }
    sw_stored_copy(j->copy, &stored);
    j->data = j->copy;
    j->dtype = stored.tensor->view.dtype;
    j->n_have = name->all_rows;
    return SW_OK;
}

/* A table may leave out what is no text: its first row stands for that. */
static sw_code load_dense(job *j, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    const sw_st_tensor *t = sw_st_find(j->source->st, name->hf);
    sw_code rc;
    int64_t n;

    if (!t && name->expert >= 0) return load_stored(j, err);
    if (!t)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is missing", j->source->dir, name->hf);
    n = sw_view_elems(&t->view);
    j->dtype = t->view.dtype;
    j->n_have = n / name->row_elems;
    if (n % name->row_elems || (j->n_have != name->all_rows &&
                                !(name->is_table && n && j->n_have < name->all_rows)))
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" has another size than config.json says",
                       j->source->dir, name->hf);
    if ((rc = sw_st_fetch(&j->bytes, t, err)) == SW_OK) j->data = j->bytes.data;
    return rc;
}

static sw_code load(job *j, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    char path[256];
    sw_code rc;

    if (j->is_quantized && module_of(path, name->hf)) {
        rc = sw_checkpoint_qtensor(&j->q, j->source, path, name->all_rows, name->row_elems, err);
        j->n_have = name->all_rows;
        j->is_carried = rc == SW_OK && sw_gguf_moves_blocks(name, j->type) &&
                        take_as_it_is(&j->q, j->type);
    } else {
        rc = load_dense(j, err);
    }
    if (rc != SW_OK || !name->turned_stride) return rc;
    rc = SW_MEM_GET(&j->floats, name->all_rows * name->row_elems, name->hf, err);
    return rc ? rc : decode_rows(j->floats, j, 0, name->all_rows, err);
}

/* Of linears: names and order of inputs are the file's. */
static sw_code load_weights(job *j, sw_err *err)
{
    const sw_gguf_name *name = j->name;
    const bool is_expert = name->expert >= 0;

    if (!j->options->imatrix || !name->is_linear) return SW_OK;
    return sw_imatrix_weights(&j->weights, j->options->imatrix, name->gguf,
                              is_expert ? name->file_shape[0] : 1, is_expert ? name->expert : 0,
                              name->file_elems, err);
}

static sw_code encode(job *j, sw_err *err)
{
    const int64_t n_rows = j->name->n_rows;
    const int64_t n_tasks = (n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    sw_code rc = SW_MEM_GET(&j->errs, n_tasks, "encode errors", err);

    if (rc != SW_OK) return rc;
    sw_parallel_for(j->options->n_threads, n_rows, ROWS_PER_TASK, encode_rows, j);
    for (int64_t i = 0; i < n_tasks && rc == SW_OK; i++)
        if (j->errs[i].code != SW_OK) rc = SW_FAIL(err, j->errs[i].code, "%s", j->errs[i].text);
    sw_mem_put(j->errs);
    return rc;
}

static bool is_lossless(const job *j)
{
    const sw_dtype from = j->dtype;

    if (j->is_quantized) return j->is_carried;
    return j->type == SW_BLOCK_F32 || (j->type == SW_BLOCK_BF16 && from == SW_DTYPE_BF16) ||
           (j->type == SW_BLOCK_F16 && from == SW_DTYPE_F16);
}

static void count_fate(sw_gguf_report *report, const job *j)
{
    report->n_unweighted += j->options->imatrix && j->name->is_linear && !j->weights &&
                            sw_block_sizes[j->type].elems > 1 && !j->is_carried;
    if (is_lossless(j)) report->n_exact++;
    else if (j->is_quantized && j->name->slot != SW_SLOT_KV_B) report->n_requantized++;
    else report->n_rounded++;
}

sw_code sw_gguf_export_put(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                           const sw_gguf_name *name, sw_block_type type, const sw_gguf_options *o,
                           sw_err *err)
{
    const int64_t n_bytes = name->n_rows * sw_block_bytes(type, name->file_elems);
    job j = {.source = source, .options = o, .name = name, .type = type,
             .is_quantized = is_quantized(source, name)};
    sw_code rc;

    if ((rc = load(&j, err)) != SW_OK || (rc = load_weights(&j, err)) != SW_OK ||
        (rc = SW_MEM_GET(&j.out, n_bytes, name->gguf, err)) != SW_OK ||
        (rc = encode(&j, err)) != SW_OK)
        goto done;
    count_fate(report, &j);
    rc = sw_gguf_put(w, name->gguf,
                     (uint64_t)(name->first * sw_block_bytes(type, name->file_elems)), j.out,
                     (size_t)n_bytes, err);
    if (rc == SW_OK && type == SW_BLOCK_NVFP4)
        rc = sw_gguf_put_factor(w, name, j.is_carried ? j.q.global_scale : 1.0f, err);
done:
    sw_mem_put(j.out);
    sw_mem_put(j.copy);
    sw_mem_put(j.floats);
    sw_st_drop(&j.bytes);
    sw_qtensor_free(&j.q);
    sw_st_forget(source->st);
    return rc;
}

/* --- the file ----------------------------------------------------------------------------- */

/* Blocks of another GGUF that are floats here would be rounded into other blocks. */
static sw_code check_blocks(const sw_checkpoint *source, const sw_gguf_name *name,
                            sw_block_type type, sw_err *err)
{
    const sw_st_tensor *t = sw_st_find(source->st, name->hf);
    sw_block_type from;

    if (sw_block_sizes[type].elems == 1 || !t || !sw_gguf_decoded_type(&from, t)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %s is in blocks of %s already, and would be rounded "
                   "again to %s; allow that (--allow-requantize)", source->dir, name->hf,
                   sw_block_sizes[from].name, sw_block_sizes[type].name);
}

sw_code sw_gguf_export_check(const sw_checkpoint *source, const sw_gguf_name *name,
                             sw_block_type type, sw_block_type asked, sw_err *err)
{
    bool is_conditional = false;
    sw_err why = {0};
    char path[256];
    sw_qspec spec, to;
    sw_qtensor q = {0};
    sw_code rc;

    if (!is_quantized(source, name) || !module_of(path, name->hf))
        return check_blocks(source, name, type, err);
    if (name->slot == SW_SLOT_KV_B) return SW_OK; /* always as floats, which hold any codes */
    rc = sw_checkpoint_stored_spec(&spec, source, path, name->shape[0], name->shape[1], err);
    if (rc != SW_OK) return rc;
    rc = carrier(&to, &is_conditional, type, &spec, name->shape[0], name->shape[1], &why);
    if (rc == SW_OK && !sw_gguf_moves_blocks(name, type))
        rc = SW_FAIL(&why, SW_E_UNSUPPORTED, "its columns are in another order in the file");
    if (rc == SW_OK && is_conditional) {
        rc = sw_checkpoint_qtensor(&q, source, path, name->shape[0], name->shape[1], err);
        if (rc != SW_OK) return rc;
        rc = sw_conversion_check(&q, &sw_dialect_gguf, &to, &why);
        sw_qtensor_free(&q);
    }
    if (rc == SW_OK) return SW_OK;
    if (name->file_elems % sw_block_sizes[asked].elems) { /* so another type was taken */
        why = (sw_err){0};
        rc = SW_FAIL(&why, SW_E_UNSUPPORTED, "%lld inputs are no whole blocks of %s",
                     (long long)name->file_elems, sw_block_sizes[asked].name);
    }
    return SW_FAIL(err, rc, "%s: %s is quantized already, as %s in groups of %lld, which %s does "
                   "not hold as it is (%s); allow it to be rounded again (--allow-requantize)",
                   source->dir, name->hf, spec.num->name, (long long)spec.group_elems,
                   sw_block_sizes[type].name, why.text);
}

static sw_code declare(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                       const sw_gguf_names *names, const sw_gguf_options *o, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < names->n && rc == SW_OK; i++) {
        const sw_gguf_name *name = &names->names[i];
        const sw_block_type type = sw_gguf_export_type(name, o);

        if (name->is_linear && type != o->type) report->n_fallback++;
        if (!o->may_requantize)
            rc = sw_gguf_export_check(source, name, type, name->is_linear ? o->type : type, err);
        if (rc != SW_OK) return rc;
        if (name->first > 0) continue; /* the first piece declares all */
        rc = sw_gguf_declare(w, name->gguf, type, name->file_dims, name->file_shape, err);
        if (rc == SW_OK && type == SW_BLOCK_NVFP4) rc = sw_gguf_declare_factor(w, name, err);
    }
    return rc;
}

static sw_code put_keys(sw_gguf_writer *w, const sw_model *m, const sw_gguf_arch *arch,
                        const sw_gguf_options *o, sw_err *err)
{
    sw_code rc = sw_gguf_config_write(w, m, arch, o->name, err);

    if (rc == SW_OK)
        rc = sw_gguf_put_int(w, "general.file_type", SW_GGUF_U32,
                             sw_block_sizes[o->type].file_type, err);
    if (rc == SW_OK)
        rc = sw_gguf_put_int(w, "general.quantization_version", SW_GGUF_U32, 2, err);
    if (rc == SW_OK && o->vocab) rc = sw_gguf_vocab_write(w, o->vocab, err);
    return rc;
}

/* The divisors of scaled frequencies are tensors of the file and none of the model. */
static sw_code put_divisors(sw_gguf_writer *w, const sw_model *m, bool is_declared, sw_err *err)
{
    sw_gguf_rope_tensor tensors[SW_GGUF_ROPE_TENSORS_MAX];
    int64_t n;
    const int n_tensors = sw_gguf_rope_tensors(tensors, &n, m);
    sw_code rc = SW_OK;

    for (int i = 0; i < n_tensors && rc == SW_OK; i++)
        rc = is_declared ? sw_gguf_put(w, tensors[i].name, 0, tensors[i].values,
                                       (size_t)n * sizeof tensors[i].values[0], err)
                         : sw_gguf_declare(w, tensors[i].name, SW_BLOCK_F32, 1, &n, err);
    return rc;
}

/* Towers and further heads have no names here. */
static void note_left(const sw_checkpoint *source, const sw_gguf_options *o)
{
    const char *first = NULL;
    int64_t n = 0;

    for (int64_t i = 0; i < sw_st_count(source->st) && !source->is_file; i++) {
        const char *name = sw_st_at(source->st, i)->name;

        if (sw_model_owns(&source->model, name)) continue;
        if (!n++) first = name;
    }
    if (n)
        sw_progress_note(o->progress, "%lld tensors outside the decoder are left out, the first is "
                         "%s", (long long)n, first);
}

static sw_code write_all(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                         const sw_gguf_options *o, sw_arena *arena, sw_err *err)
{
    const sw_model *m = &source->model;
    const sw_gguf_arch *arch = NULL;
    sw_gguf_names names = {0};
    sw_code rc;

    report->types[0] = o->type;
    report->types[1] = o->embed_type;
    if ((rc = sw_gguf_arch_of_model(&arch, m, err)) != SW_OK ||
        (rc = sw_gguf_names_new(&names, m, arch, arena, err)) != SW_OK)
        return rc;
    if (source->is_file) return sw_gguf_write_again(w, report, source, &names, o, err);
    note_left(source, o);
    if ((rc = put_keys(w, m, arch, o, err)) != SW_OK ||
        (rc = put_divisors(w, m, false, err)) != SW_OK ||
        (rc = declare(w, report, source, &names, o, err)) != SW_OK ||
        (rc = sw_gguf_begin(w, err)) != SW_OK || (rc = put_divisors(w, m, true, err)) != SW_OK)
        return rc;
    report->data_bytes = sw_gguf_writer_data_bytes(w);
    for (int64_t i = 0; i < names.n && rc == SW_OK; i++) {
        sw_progress_step(o->progress, "write", i, names.n);
        sw_progress_item(o->progress, names.names[i].gguf);
        if ((rc = sw_progress_check(o->progress, err)) != SW_OK) break;
        rc = sw_gguf_export_put(w, report, source, &names.names[i],
                                sw_gguf_export_type(&names.names[i], o), o, err);
    }
    return rc == SW_OK ? sw_gguf_commit(w, err) : rc;
}

sw_code sw_gguf_export(sw_gguf_report *report, const sw_checkpoint *source, const char *path,
                       const sw_gguf_options *options, sw_err *err)
{
    sw_gguf_report done = {0};
    sw_gguf_writer *w = NULL;
    sw_arena arena = {0};
    sw_code rc = sw_gguf_writer_open(&w, path, options->may_replace, err);

    if (rc == SW_OK) rc = write_all(w, &done, source, options, &arena, err);
    if (rc == SW_OK) *report = done;
    sw_gguf_writer_free(w);
    sw_arena_free(&arena);
    return rc;
}
