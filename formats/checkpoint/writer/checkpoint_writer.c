/* checkpoint_writer.c - the writing half of checkpoint.h.
 *
 * Every source tensor is either claimed (it becomes the dialect's tensors of one linear) or
 * copied, or written with the values that a transform gave it; the tally at the end holds bytes
 * copied, changed and claimed against the source, and bytes copied, changed and encoded against
 * what the new containers declare.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/dialect/dialect_common.h"
#include "formats/io/profile.h"

#define SLACK_BYTES ((uint64_t)4 << 20) /* headers, index, config and manifest */

static int compare_claims(const void *a, const void *b)
{
    return strcmp(((const sw_claim *)a)->module_path, ((const sw_claim *)b)->module_path);
}

sw_claim *sw_claim_find(const sw_ckpt_writer *w, const char *module_path)
{
    sw_claim key = {.module_path = module_path};

    if (!w->n_claims) return NULL;
    return bsearch(&key, w->claims, (size_t)w->n_claims, sizeof *w->claims, compare_claims);
}

static sw_code copy_claims(sw_ckpt_writer *w, const sw_ckpt_linear *linears, int64_t n,
                           sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(&w->claims, &w->arena, n, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        char *path;
        const char *from = linears[i].module_path;
        if ((rc = sw_arena_text(&path, &w->arena, from, strlen(from), err)) != SW_OK) return rc;
        sw_claim one = {.module_path = path, .n_out = linears[i].n_out, .k_in = linears[i].k_in,
                        .spec = linears[i].spec ? *linears[i].spec : w->qconfig.spec};
        w->claims[i] = one;
        rc = w->dialect->can_hold(&one.spec, one.n_out, one.k_in, err);
        if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    }
    if (rc != SW_OK) return rc;
    w->n_claims = n;
    if (n) qsort(w->claims, (size_t)n, sizeof *w->claims, compare_claims);
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(w->claims[i - 1].module_path, w->claims[i].module_path))
            return SW_FAIL(err, SW_E_BUG, "%s is claimed twice", w->claims[i].module_path);
    return SW_OK;
}

/* A checkpoint of several schemes names each of its linears. */
static sw_code gather_rules(sw_ckpt_writer *w, sw_err *err)
{
    sw_qrule *rules = NULL;
    bool is_mixed = false;
    sw_code rc;

    for (int64_t i = 0; i < w->n_claims; i++)
        is_mixed = is_mixed || !sw_config_is_one(&w->claims[i].spec, &w->qconfig.spec);
    if (!is_mixed) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&rules, &w->arena, w->n_claims, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < w->n_claims; i++)
        rules[i] = (sw_qrule){w->claims[i].module_path, true, w->claims[i].spec};
    w->qconfig.rules = rules;
    w->qconfig.n_rules = w->n_claims;
    return SW_OK;
}

static int64_t tensor_at(const sw_ckpt_writer *w, const char *name)
{
    const sw_st_tensor *t = sw_st_find(w->source->st, name);

    return t ? t - sw_st_at(w->source->st, 0) : -1;
}

static sw_code take_tensor(sw_ckpt_writer *w, int64_t at, int64_t claim_at, sw_err *err)
{
    uint64_t size_bytes = sw_st_at(w->source->st, at)->view.size_bytes;

    if (w->claim_of[at] != SW_COPIED)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" is claimed twice",
                       sw_st_at(w->source->st, at)->name);
    w->claim_of[at] = (int32_t)claim_at;
    w->claimed_bytes += size_bytes;
    return SW_OK;
}

static bool is_head(const sw_ckpt_writer *w, const sw_claim *c)
{
    return !strcmp(c->module_path, sw_model_end(&w->source->model, SW_END_HEAD));
}

static sw_code claim_dense(sw_ckpt_writer *w, int64_t claim_at, sw_err *err)
{
    const sw_claim *c = &w->claims[claim_at];
    const bool is_turned = w->source->model.arch->has_transposed_linears && !is_head(w, c);
    const int64_t rows = is_turned ? c->k_in : c->n_out, cols = is_turned ? c->n_out : c->k_in;
    char name[SW_PART_NAME_BYTES];
    const sw_cview *view;
    sw_code rc;
    int64_t at;

    if ((rc = sw_part_name(name, c->module_path, "weight", err)) != SW_OK) return rc;
    if ((at = tensor_at(w, name)) < 0)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is missing", w->source->dir, name);
    view = &sw_st_at(w->source->st, at)->view;
    if (view->n_dims != 2 || view->shape[0] != rows || view->shape[1] != cols) {
        char text[160];
        sw_view_describe(text, sizeof text, view);
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is %s, config.json makes it [%" PRId64
                       ", %" PRId64 "]", w->source->dir, name, text, rows, cols);
    }
    return take_tensor(w, at, claim_at, err);
}

/* One of several in a tensor: the first to come takes it for all. */
static sw_code claim_fused(sw_ckpt_writer *w, int64_t claim_at, sw_err *err)
{
    const sw_st_tensor *first = sw_st_at(w->source->st, 0);
    const sw_claim *c = &w->claims[claim_at];
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_st_count(w->source->st) && rc == SW_OK; i++)
        if (sw_claim_lies_in(c, first + i) && w->claim_of[i] == SW_COPIED)
            rc = take_tensor(w, i, claim_at, err);
    return rc;
}

/* A source that is quantized already: all its tensors of the linear go. */
static sw_code claim_quantized(sw_ckpt_writer *w, int64_t claim_at, sw_err *err)
{
    const sw_claim *c = &w->claims[claim_at];
    const sw_checkpoint *source = w->source;
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_qspec spec;
    sw_code rc = sw_checkpoint_spec(&spec, source, c->module_path, err);
    int n = rc == SW_OK ? source->dialect->declare(parts, &spec, c->n_out, c->k_in) : 0;

    if (rc == SW_OK) rc = sw_checkpoint_refuse_floats(source, c->module_path, err);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        char name[SW_PART_NAME_BYTES];
        int64_t at;
        if ((rc = sw_part_name(name, c->module_path, parts[i].suffix, err)) != SW_OK) return rc;
        if ((at = tensor_at(w, name)) >= 0) rc = take_tensor(w, at, claim_at, err);
    }
    return rc;
}

static sw_code claim_one(sw_ckpt_writer *w, int64_t claim_at, sw_err *err)
{
    const sw_claim *c = &w->claims[claim_at];
    const sw_st_tensor *bias = sw_writer_own_bias(w, c);
    sw_code rc = SW_OK;

    if (bias) rc = take_tensor(w, bias - sw_st_at(w->source->st, 0), claim_at, err);
    if (rc != SW_OK) return rc;
    if (sw_claim_is_shared(c)) return claim_fused(w, claim_at, err);
    return sw_checkpoint_is_quantized(w->source, c->module_path) ? claim_quantized(w, claim_at, err)
                                                                 : claim_dense(w, claim_at, err);
}

static sw_code claim_tensors(sw_ckpt_writer *w, sw_err *err)
{
    int64_t n = sw_st_count(w->source->st);
    sw_code rc = SW_ARENA_TAKE(&w->claim_of, &w->arena, n, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) {
        w->claim_of[i] = SW_COPIED;
        w->source_bytes += sw_st_at(w->source->st, i)->view.size_bytes;
    }
    sw_writer_drop_kv(w);
    for (int64_t i = 0; i < w->n_claims && rc == SW_OK; i++) rc = claim_one(w, i, err);
    if (rc == SW_OK) rc = sw_writer_find_rests(w, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(w->source->st, i);
        if (w->claim_of[i] == SW_COPIED && sw_writer_dtype(w, t) != t->view.dtype)
            w->claim_of[i] = SW_CAST;
    }
    return rc;
}

bool sw_claim_is_turned(const sw_ckpt_writer *w, const sw_claim *c)
{
    return w->dialect->is_dense && w->source->model.arch->has_transposed_linears && !is_head(w, c);
}

static sw_code check_disk(const sw_ckpt_writer *w, sw_err *err)
{
    uint64_t need = sw_st_writer_data_bytes(w->st) + SLACK_BYTES, have = 0;
    sw_code rc = sw_disk_free_bytes(&have, w->dir.work_path, err);

    if (rc != SW_OK) return rc;
    if (w->dir.hold_path[0]) have += sw_dir_used_bytes(w->dir.work_path);
    for (int64_t i = 0; i < w->listing.n_entries; i++)
        if (w->listing.entries[i].role == SW_DIR_SIDE) need += w->listing.entries[i].size_bytes;
    if (need > have)
        return SW_FAIL(err, SW_E_IO, "%s: %.1f MB needed on its file system, %.1f MB free",
                       w->dir.path, (double)need / 1e6, (double)have / 1e6);
    return SW_OK;
}

/* Names that cannot be written are the source's. */
static sw_code begin_tensors(sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc = sw_st_writer_begin(w->st, err);

    if (rc == SW_E_FORMAT) sw_err_prefix(err, "%s", w->source->dir);
    return rc;
}

sw_code sw_writer_declare(sw_ckpt_writer *w, const char *dir, sw_err *err)
{
    const char *const *meta = w->dialect->metadata;
    sw_code rc = sw_st_writer_new(&w->st, dir, w->shard_bytes, err);

    for (int i = 0; rc == SW_OK && meta && meta[i]; i += 2)
        rc = sw_st_writer_meta(w->st, meta[i], meta[i + 1], err);
    if (rc == SW_OK) rc = sw_writer_declare_tensors(w, err);
    return rc == SW_OK ? sw_writer_declare_kv(w, err) : rc;
}

static sw_code start_output(sw_ckpt_writer *w, const char *out_dir, bool may_replace,
                            const sw_ckpt_keep *keep, sw_err *err)
{
    sw_code rc;

    rc = keep ? sw_out_dir_open_kept(&w->dir, out_dir, may_replace, keep->is_restart, err)
              : sw_out_dir_open(&w->dir, out_dir, may_replace, err);
    if (rc != SW_OK) return rc;
    w->is_left = w->dir.is_resumed; /* nobody's work is lost to an error at its resumption */
    if ((rc = sw_writer_declare(w, w->dir.work_path, err)) != SW_OK ||
        (rc = check_disk(w, err)) != SW_OK)
        return rc;
    sw_st_writer_follow(w->st);
    if (keep) {
        sw_st_writer_keep(w->st);
        if ((rc = sw_writer_begin_keeping(w, keep, err)) != SW_OK) return rc;
    }
    if ((rc = begin_tensors(w, err)) != SW_OK || (rc = sw_writer_cut_copies(w, err)) != SW_OK ||
        (rc = sw_writer_put_shapes(w, err)) != SW_OK)
        return rc;
    return keep ? sw_writer_check_kept(w, keep, err) : SW_OK;
}

sw_code sw_ckpt_writer_new(sw_ckpt_writer **out, const sw_checkpoint *source, const char *out_dir,
                           bool may_replace, const sw_dialect *dialect, const sw_qconfig *qconfig,
                           const sw_ckpt_linear *linears, int64_t n_linears, uint64_t shard_bytes,
                           sw_err *err)
{
    return sw_ckpt_writer_new_kept(out, source, out_dir, may_replace, dialect, qconfig, linears,
                                   n_linears, shard_bytes, NULL, err);
}

sw_code sw_writer_describe(sw_ckpt_writer **out, const sw_checkpoint *source,
                           const sw_dialect *dialect, const sw_qconfig *qconfig,
                           const sw_ckpt_linear *linears, int64_t n_linears, uint64_t shard_bytes,
                           sw_err *err)
{
    sw_ckpt_writer *w = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&w, 1, "checkpoint writer", err)) != SW_OK) return rc;
    (void)pthread_mutex_init(&w->ahead.mutex, NULL);
    w->source = source;
    w->dialect = dialect;
    w->qconfig = *qconfig;
    w->qconfig.rules = NULL;
    w->qconfig.n_rules = 0;
    w->shard_bytes = shard_bytes;
    if ((rc = copy_claims(w, linears, n_linears, err)) != SW_OK ||
        (rc = gather_rules(w, err)) != SW_OK ||
        (rc = sw_writer_find_fused(w, err)) != SW_OK ||
        (rc = claim_tensors(w, err)) != SW_OK ||
        (rc = sw_writer_gather_ignore(w, qconfig, err)) != SW_OK ||
        (!source->is_file && /* what lies beside a file is none of its */
         ((rc = sw_dir_read(&w->listing, source->dir, &w->arena, err)) != SW_OK ||
          (rc = sw_dir_check_side(&w->listing, source->dir, err)) != SW_OK))) {
        sw_ckpt_writer_free(w);
        return rc;
    }
    *out = w;
    return SW_OK;
}

sw_code sw_ckpt_writer_new_kept(sw_ckpt_writer **out, const sw_checkpoint *source,
                                const char *out_dir, bool may_replace, const sw_dialect *dialect,
                                const sw_qconfig *qconfig, const sw_ckpt_linear *linears,
                                int64_t n_linears, uint64_t shard_bytes, const sw_ckpt_keep *keep,
                                sw_err *err)
{
    sw_ckpt_writer *w = NULL;
    sw_code rc;

    if ((rc = sw_paths_keep_apart(source->dir, out_dir, err)) != SW_OK ||
        (rc = sw_writer_describe(&w, source, dialect, qconfig, linears, n_linears, shard_bytes,
                                 err)) != SW_OK)
        return rc;
    if ((rc = start_output(w, out_dir, may_replace, keep, err)) != SW_OK) {
        sw_ckpt_writer_free(w);
        return rc;
    }
    *out = w;
    return SW_OK;
}

static sw_code check_put(const sw_ckpt_writer *w, const sw_claim *c, const sw_qtensor *q,
                         sw_err *err)
{
    if (c->is_put) return SW_FAIL(err, SW_E_BUG, "put twice");
    if (q->n_out != c->n_out || q->k_in != c->k_in || !sw_qspec_same(&q->spec, &c->spec))
        return SW_FAIL(err, SW_E_BUG, "put with another shape or scheme than declared");
    if (q->g_idx && !w->qconfig.desc_act)
        return SW_FAIL(err, SW_E_BUG, "has a g_idx, and the checkpoint does not say desc_act");
    return sw_qtensor_check(q, err);
}

typedef struct encoded {
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    void *data[SW_DIALECT_TENSORS_MAX];
    uint64_t bytes[SW_DIALECT_TENSORS_MAX];
    int n;
} encoded;

static sw_code encode(encoded *out, const sw_ckpt_writer *w, const sw_claim *c, const sw_qtensor *q,
                      sw_err *err)
{
    sw_code rc = SW_OK;

    out->n = w->dialect->declare(out->parts, &q->spec, q->n_out, q->k_in);
    for (int i = 0; i < out->n && rc == SW_OK; i++) {
        const sw_part *part = &out->parts[i];
        rc = sw_shape_bytes(&out->bytes[i], part->dtype, part->n_dims, part->shape, err);
        if (rc == SW_OK)
            rc = sw_mem_get(&out->data[i], (int64_t)out->bytes[i], 1, part->suffix, err);
    }
    if (rc == SW_OK) rc = w->dialect->encode(out->data, q, err);
    if (rc != SW_OK || !sw_claim_is_turned(w, c)) return rc;
    return sw_writer_turn(&out->data[0], q->n_out, q->k_in, out->parts[0].dtype, err);
}

static sw_code write_encoded(sw_ckpt_writer *w, const char *module_path, const encoded *e,
                             sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < e->n && rc == SW_OK; i++) {
        char name[SW_PART_NAME_BYTES];
        if (w->dialect->is_stacked) {
            rc = sw_writer_put_stacked(w, module_path, &e->parts[i], e->data[i], err);
            continue;
        }
        if (e->parts[i].is_shape && w->has_shapes) continue;
        if ((rc = sw_part_name(name, module_path, e->parts[i].suffix, err)) != SW_OK) return rc;
        rc = sw_st_writer_put(w->st, name, e->data[i], (size_t)e->bytes[i], err);
        if (rc == SW_OK) rc = sw_resume_note(&w->resume, name, e->data[i], e->bytes[i], err);
        if (rc != SW_OK) return rc;
#pragma omp atomic
        w->encoded_bytes += e->bytes[i];
    }
    return rc;
}

sw_code sw_ckpt_writer_put(sw_ckpt_writer *w, const char *module_path, const sw_qtensor *q,
                           sw_err *err)
{
    sw_claim *c = sw_claim_find(w, module_path);
    sw_span span = sw_span_open("pack");
    encoded e = {.n = 0};
    sw_code rc;

    if (!c) return SW_FAIL(err, SW_E_BUG, "%s was not declared", module_path);
    if ((rc = check_put(w, c, q, err)) == SW_OK) rc = encode(&e, w, c, q, err);
    sw_span_close(span, module_path);
    span = sw_span_open("write");
    if (rc == SW_OK) rc = write_encoded(w, module_path, &e, err);
    sw_span_close(span, module_path);
    if (rc == SW_OK) c->is_put = true;
    if (rc != SW_OK) sw_err_prefix(err, "%s", module_path);
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) sw_mem_put(e.data[i]);
    return rc;
}

/* values [n] as the tensor that a linear of the rest becomes. */
static sw_code change_rest(sw_ckpt_writer *w, const sw_rest *rest, const float *values, int64_t n,
                           sw_err *err)
{
    const size_t n_bytes = (size_t)(n * sw_dtype_bits(sw_writer_rest_dtype(w)) / 8);
    void *stored = NULL;
    sw_code rc;

    if (w->claim_of[rest->at] != SW_DECODED || n != rest->n_out * rest->k_in)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" changed twice, or with %" PRId64 " values",
                       rest->weight, n);
    rc = sw_mem_get(&stored, (int64_t)n_bytes, 1, "changed tensor", err);
    if (rc == SW_OK) rc = sw_float_encode_n(stored, sw_writer_rest_dtype(w), values, n, err);
    if (rc == SW_OK) rc = sw_st_writer_put(w->st, rest->weight, stored, n_bytes, err);
    if (rc == SW_OK) rc = sw_resume_note(&w->resume, rest->weight, stored, n_bytes, err);
    if (rc == SW_OK) {
        w->encoded_bytes += n_bytes;
        w->claim_of[rest->at] = SW_CHANGED;
    }
    sw_mem_put(stored);
    return rc;
}

sw_code sw_ckpt_writer_change(sw_ckpt_writer *w, const char *tensor_name, const float *values,
                              int64_t n, sw_err *err)
{
    int64_t at = tensor_at(w, tensor_name);
    const sw_rest *rest = sw_writer_rest_named(w, tensor_name);
    const sw_cview *view;
    size_t n_bytes;
    void *stored = NULL;
    sw_dtype dtype;
    sw_code rc;

    if (rest) return change_rest(w, rest, values, n, err);
    if (at < 0 || (w->claim_of[at] != SW_COPIED && w->claim_of[at] != SW_CAST))
        return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" cannot be changed: %s", tensor_name,
                       at < 0 ? "the source has none"
                              : w->claim_of[at] == SW_CHANGED ? "changed twice" : "claimed");
    view = &sw_st_at(w->source->st, at)->view;
    if (sw_dtype_bits(view->dtype) * n != 8 * (int64_t)view->size_bytes)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" changed with %" PRId64 " values",
                       tensor_name, n);
    dtype = sw_writer_dtype(w, sw_st_at(w->source->st, at));
    n_bytes = (size_t)(n * sw_dtype_bits(dtype) / 8);
    rc = sw_mem_get(&stored, (int64_t)n_bytes, 1, "changed tensor", err);
    if (rc == SW_OK) rc = sw_float_encode_n(stored, dtype, values, n, err);
    if (rc == SW_OK) rc = sw_st_writer_put(w->st, tensor_name, stored, n_bytes, err);
    if (rc == SW_OK) rc = sw_resume_note(&w->resume, tensor_name, stored, n_bytes, err);
    if (rc == SW_OK) sw_writer_count_changed(w, at, n_bytes);
    sw_mem_put(stored);
    return rc;
}

static sw_code reconcile(const sw_ckpt_writer *w, sw_err *err)
{
    uint64_t declared = sw_st_writer_data_bytes(w->st);
    uint64_t kept = w->copied_bytes + w->changed_bytes;

    if (kept + w->claimed_bytes != w->source_bytes || kept + w->encoded_bytes != declared)
        return SW_FAIL(err, SW_E_BUG, "bytes do not add up: source %" PRIu64 " = claimed %" PRIu64
                       " + copied %" PRIu64 " + changed %" PRIu64 "; output %" PRIu64
                       " = encoded %" PRIu64 " + copied + changed",
                       w->source_bytes, w->claimed_bytes, w->copied_bytes, w->changed_bytes,
                       declared, w->encoded_bytes);
    return SW_OK;
}

const char *sw_ckpt_writer_work_dir(const sw_ckpt_writer *w) { return w->dir.work_path; }

const char *sw_ckpt_writer_note(const sw_ckpt_writer *w) { return w->note.text; }

const sw_st_writer *sw_ckpt_writer_tensors(const sw_ckpt_writer *w) { return w->st; }

void sw_ckpt_writer_read_back(sw_ckpt_writer *w, sw_digest_back *back)
{
    sw_st_writer_read_back(w->st, back);
}

void sw_ckpt_writer_at_end(sw_ckpt_writer *w, sw_ckpt_writer_end_fn fn, void *self)
{
    w->at_end = fn;
    w->end_self = self;
}

sw_code sw_ckpt_writer_commit(sw_ckpt_writer *w, const cJSON *manifest, sw_err *err)
{
    sw_code rc;

    for (int64_t i = 0; i < w->n_claims; i++)
        if (!w->claims[i].is_put)
            return SW_FAIL(err, SW_E_BUG, "%s was declared but never put",
                           w->claims[i].module_path);
    if ((rc = sw_writer_wait_copies(w, err)) != SW_OK ||
        (rc = sw_writer_copy_all(w, err)) != SW_OK ||
        (rc = sw_ckpt_writer_digest(w, err)) != SW_OK ||
        (rc = sw_resume_settle(&w->resume, err)) != SW_OK ||
        (rc = sw_writer_put_biases(w, err)) != SW_OK ||
        (rc = reconcile(w, err)) != SW_OK ||
        (rc = sw_st_writer_commit(w->st, err)) != SW_OK ||
        (rc = sw_dir_copy_side(&w->listing, w->source->dir, w->dir.work_path, err)) != SW_OK ||
        (rc = sw_writer_put_configs(w, err)) != SW_OK ||
        (rc = sw_writer_put_made_files(w, err)) != SW_OK ||
        (rc = sw_writer_put_gguf(w, err)) != SW_OK ||
        (w->at_end && (rc = w->at_end(w->end_self, w->dir.work_path, w->sources, err)) != SW_OK) ||
        (rc = sw_manifest_write(manifest, w->sources, w->dir.work_path, w->st, err)) != SW_OK)
        return rc;
    return sw_out_dir_commit(&w->dir, err);
}

void sw_ckpt_writer_free(sw_ckpt_writer *w)
{
    if (!w) return;
    sw_writer_stop_copies(w);
    sw_writer_stop_digest(w);
    sw_resume_free(&w->resume); /* before the shards that it syncs */
    sw_writer_free_stacks(w);
    sw_mem_put(w->copies);
    sw_st_writer_free(w->st);
    (void)pthread_mutex_destroy(&w->ahead.mutex);
    cJSON_Delete(w->sources);
    cJSON_Delete(w->key);
    if (w->is_left)
        sw_out_dir_leave(&w->dir);
    else
        sw_out_dir_abandon(&w->dir);
    sw_arena_free(&w->arena);
    sw_mem_put(w);
}
