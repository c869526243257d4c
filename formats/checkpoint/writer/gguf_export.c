/* gguf_export.c - see gguf_export.h. */
#include "formats/checkpoint/writer/gguf_export_internal.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_config.h"
#include "formats/gguf/gguf_model.h"
#include "formats/dialect/conversions.h"

#define ROWS_PER_TASK 16

/* One tensor on its way; what a task needs to encode its rows. */
typedef struct job {
    const sw_checkpoint *source;
    const sw_gguf_options *options;
    const sw_gguf_name *name;
    sw_block_type type;
    int64_t n_rows, row_elems;
    bool is_quantized;    /* in the source */
    bool is_carried;      /* then: its codes go over as they are */
    sw_qtensor q;         /* then */
    const sw_st_tensor *t;
    sw_st_bytes bytes;    /* else */
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

    if (name->n_dims == 1 || (!name->is_linear && !name->is_table)) return SW_BLOCK_F32;
    while (name->shape[1] % sw_block_sizes[type].elems) type = fallback_of(type);
    return type;
}

/* What carries a weight of this scheme under the words of GGUF; why not. */
static sw_code carrier(sw_qspec *out, bool *is_conditional, sw_block_type type,
                       const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_code rc = sw_conversion_exact(out, is_conditional, spec, &sw_dialect_gguf, n_out, k_in, err);

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

static sw_code encode_row(unsigned char *to, float *floats, const job *j, int64_t row, sw_err *err)
{
    const int64_t n = j->row_elems;
    sw_code rc = SW_OK;

    if (j->is_carried) {
        sw_gguf_encode_row(to, &j->q, row);
        return SW_OK;
    }
    if (j->is_quantized) {
        sw_qtensor_decode_rows(floats, &j->q, row, 1);
    } else {
        const int64_t row_bytes = n * sw_dtype_bits(j->t->view.dtype) / 8;
        rc = sw_float_decode_n(floats, (const char *)j->bytes.data + row * row_bytes,
                               j->t->view.dtype, n, err);
    }
    for (int64_t i = 0; i < n && j->name->offset != 0.0; i++) floats[i] += (float)j->name->offset;
    if (rc == SW_OK) rc = sw_block_encode(to, j->type, floats, NULL, n, j->options->how, err);
    if (rc != SW_OK) sw_err_prefix(err, "tensor \"%s\", row %lld", j->name->hf, (long long)row);
    return rc;
}

static void encode_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    sw_err *err = &j->errs[begin / ROWS_PER_TASK];
    float *floats = NULL;
    sw_code rc = SW_MEM_GET(&floats, j->row_elems, "row of a tensor", err);

    (void)thread;
    for (int64_t row = begin; row < end && rc == SW_OK; row++) {
        const int64_t pair = j->name->paired_rows, at = pair ? row % pair : 0;
        const int64_t in_file = pair ? row - at + 2 * (at % (pair / 2)) + at / (pair / 2) : row;

        rc = encode_row(j->out + in_file * sw_block_bytes(j->type, j->row_elems), floats, j, row,
                        err);
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

    return (name->is_linear || name->is_table) && module_of(path, name->hf) &&
           sw_checkpoint_is_quantized(source, path);
}

static sw_code load(job *j, sw_err *err)
{
    char path[256];
    sw_code rc;

    if (j->is_quantized && module_of(path, j->name->hf)) {
        rc = sw_checkpoint_qtensor(&j->q, j->source, path, j->n_rows, j->row_elems, err);
        j->is_carried = rc == SW_OK && take_as_it_is(&j->q, j->type);
        return rc;
    }
    if (!(j->t = sw_st_find(j->source->st, j->name->hf)))
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is missing", j->source->dir,
                       j->name->hf);
    if (sw_view_elems(&j->t->view) != j->n_rows * j->row_elems)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" has another size than config.json says",
                       j->source->dir, j->name->hf);
    return sw_st_fetch(&j->bytes, j->t, err);
}

static sw_code encode(job *j, sw_err *err)
{
    const int64_t n_tasks = (j->n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    sw_code rc = SW_MEM_GET(&j->errs, n_tasks, "encode errors", err);

    if (rc != SW_OK) return rc;
    sw_parallel_for(j->options->n_threads, j->n_rows, ROWS_PER_TASK, encode_rows, j);
    for (int64_t i = 0; i < n_tasks && rc == SW_OK; i++)
        if (j->errs[i].code != SW_OK) rc = SW_FAIL(err, j->errs[i].code, "%s", j->errs[i].text);
    sw_mem_put(j->errs);
    return rc;
}

static bool is_lossless(const job *j)
{
    const sw_dtype from = j->is_quantized ? SW_DTYPE_F32 : j->t->view.dtype;

    if (j->is_quantized) return j->is_carried;
    return j->type == SW_BLOCK_F32 || (j->type == SW_BLOCK_BF16 && from == SW_DTYPE_BF16) ||
           (j->type == SW_BLOCK_F16 && from == SW_DTYPE_F16);
}

static void count_fate(sw_gguf_report *report, const job *j)
{
    if (is_lossless(j)) report->n_exact++;
    else if (j->is_quantized) report->n_requantized++;
    else report->n_rounded++;
}

sw_code sw_gguf_export_put(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                           const sw_gguf_name *name, sw_block_type type, const sw_gguf_options *o,
                           sw_err *err)
{
    job j = {.source = source, .options = o, .name = name, .type = type, .n_rows = 1,
             .row_elems = name->shape[name->n_dims - 1],
             .is_quantized = is_quantized(source, name)};
    int64_t n_bytes;
    sw_code rc;

    if (name->n_dims == 2 || name->paired_rows) j.n_rows = name->shape[0];
    if (name->n_dims == 1 && name->paired_rows) j.row_elems = 1;
    n_bytes = j.n_rows * sw_block_bytes(j.type, j.row_elems);
    if ((rc = load(&j, err)) != SW_OK ||
        (rc = SW_MEM_GET(&j.out, n_bytes, name->gguf, err)) != SW_OK ||
        (rc = encode(&j, err)) != SW_OK)
        goto done;
    count_fate(report, &j);
    rc = sw_gguf_put(w, name->gguf, name->expert > 0 ? (uint64_t)(name->expert * n_bytes) : 0,
                     j.out, (size_t)n_bytes, err);
done:
    sw_mem_put(j.out);
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

/* Before anything is written: what would be rounded twice, and may not be. */
sw_code sw_gguf_export_check(const sw_checkpoint *source, const sw_gguf_name *name,
                             sw_block_type type, sw_err *err)
{
    bool is_conditional = false;
    sw_err why = {0};
    char path[256];
    sw_qspec spec, to;
    sw_qtensor q = {0};
    sw_code rc;

    if (!is_quantized(source, name) || !module_of(path, name->hf))
        return check_blocks(source, name, type, err);
    rc = sw_checkpoint_stored_spec(&spec, source, path, name->shape[0], name->shape[1], err);
    if (rc != SW_OK) return rc;
    rc = carrier(&to, &is_conditional, type, &spec, name->shape[0], name->shape[1], &why);
    if (rc == SW_OK && is_conditional) {
        rc = sw_checkpoint_qtensor(&q, source, path, name->shape[0], name->shape[1], err);
        if (rc != SW_OK) return rc;
        rc = sw_conversion_check(&q, &sw_dialect_gguf, &to, &why);
        sw_qtensor_free(&q);
    }
    if (rc == SW_OK) return SW_OK;
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
        const int64_t shape[] = {name->n_experts, name->shape[0], name->shape[1]};
        const sw_block_type type = sw_gguf_export_type(name, o);

        if (name->is_linear && type != o->type) report->n_fallback++;
        if (!o->may_requantize) rc = sw_gguf_export_check(source, name, type, err);
        if (rc != SW_OK) return rc;
        if (name->expert > 0) continue; /* the first declares all */
        rc = sw_gguf_declare(w, name->gguf, type, name->n_dims + (name->expert == 0),
                             shape + (name->expert != 0), err);
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

/* The divisors of scaled frequencies are a tensor of the file and none of the model. */
static sw_code put_divisors(sw_gguf_writer *w, const sw_model *m, bool is_declared, sw_err *err)
{
    float divisors[SW_ROPE_PAIRS_MAX];
    int64_t n;

    sw_gguf_rope_divisors(divisors, &n, m);
    if (!n) return SW_OK;
    if (!is_declared) return sw_gguf_declare(w, SW_GGUF_ROPE_TENSOR, SW_BLOCK_F32, 1, &n, err);
    return sw_gguf_put(w, SW_GGUF_ROPE_TENSOR, 0, divisors, (size_t)n * sizeof *divisors, err);
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
    if ((rc = sw_gguf_arch_of_model(&arch, m->arch->name, err)) != SW_OK ||
        (rc = sw_gguf_names_new(&names, m, arch, arena, err)) != SW_OK)
        return rc;
    if (source->is_file) return sw_gguf_write_again(w, report, source, &names, o, err);
    if ((rc = put_keys(w, m, arch, o, err)) != SW_OK ||
        (rc = put_divisors(w, m, false, err)) != SW_OK ||
        (rc = declare(w, report, source, &names, o, err)) != SW_OK ||
        (rc = sw_gguf_begin(w, err)) != SW_OK || (rc = put_divisors(w, m, true, err)) != SW_OK)
        return rc;
    report->data_bytes = sw_gguf_writer_data_bytes(w);
    for (int64_t i = 0; i < names.n && rc == SW_OK; i++) {
        sw_progress_step(o->progress, "write", i, names.n);
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
