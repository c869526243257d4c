/* checkpoint_keep.c - how the checkpoint writer continues what an earlier run began. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/io/profile.h"

/* Everything that decides the bytes: the caller's part, the shards' size, the source's digests. */
static sw_code build_key(cJSON **out, const sw_ckpt_writer *w, const cJSON *given, sw_err *err)
{
    cJSON *key = cJSON_Duplicate(given, true);
    const cJSON *item;
    bool ok = key && cJSON_AddNumberToObject(key, "shard_bytes", (double)w->shard_bytes);

    cJSON_ArrayForEach(item, w->sources) {
        cJSON *copy = ok ? cJSON_Duplicate(item, true) : NULL;
        ok = copy && cJSON_AddItemToObject(key, item->string, copy);
        if (ok) continue;
        cJSON_Delete(copy); /* nobody's: the object had no memory for its name */
        break;
    }
    if (ok) {
        *out = key;
        return SW_OK;
    }
    cJSON_Delete(key);
    return SW_FAIL(err, SW_E_NOMEM, "key of the journal");
}

/* On the journal's thread, while the source may still be digested. */
static sw_code late_key(void *self, cJSON **key, sw_err *err)
{
    sw_ckpt_writer *w = self;
    sw_code rc = sw_ckpt_writer_digest(w, err);

    return rc == SW_OK ? build_key(key, w, w->key, err) : rc;
}

static sw_code begin_late(sw_ckpt_writer *w, const sw_ckpt_keep *keep, sw_err *err)
{
    if (!(w->key = cJSON_Duplicate(keep->key, true)))
        return SW_FAIL(err, SW_E_NOMEM, "key of the journal");
    sw_writer_digest_ahead(w);
    return sw_resume_begin_later(&w->resume, &w->dir, late_key, w, err);
}

sw_code sw_writer_begin_keeping(sw_ckpt_writer *w, const sw_ckpt_keep *keep, sw_err *err)
{
    cJSON *key = NULL;
    sw_span span;
    sw_code rc = SW_OK;

    w->progress = keep->progress;
    if (!w->dir.is_resumed && !keep->sources) return begin_late(w, keep, err);
    span = sw_span_open("digest inputs");
    if (!keep->sources)
        rc = sw_manifest_sources(&w->sources, w->source, &w->listing, keep->progress, err);
    else if (!(w->sources = cJSON_Duplicate(keep->sources, true)))
        rc = SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
    sw_span_close(span, NULL);
    if (rc != SW_OK || (rc = build_key(&key, w, keep->key, err)) != SW_OK) return rc;
    rc = sw_resume_begin(&w->resume, &w->dir, key, err);
    cJSON_Delete(key);
    return rc;
}

static sw_code count_kept(void *self, const char *name, uint64_t n_bytes, sw_err *err)
{
    sw_ckpt_writer *w = self;
    const char *dot = strrchr(name, '.');
    char path[SW_PART_NAME_BYTES];
    const sw_st_tensor *t = sw_st_find(w->source->st, name);
    int64_t at = t ? t - sw_st_at(w->source->st, 0) : -1;
    const sw_rest *rest = sw_writer_rest_named(w, name);
    sw_claim *claim;

    (void)err;
    if (rest) {
        w->encoded_bytes += n_bytes;
        w->claim_of[rest->at] = SW_CHANGED;
        return SW_OK;
    }
    if (at >= 0 && (w->claim_of[at] == SW_COPIED || w->claim_of[at] == SW_CAST)) {
        sw_writer_count_changed(w, at, n_bytes);
        return SW_OK;
    }
    w->encoded_bytes += n_bytes;
    if (sw_writer_count_stack(w, name)) return SW_OK;
    if (!dot || (size_t)(dot - name) >= sizeof path) return SW_OK;
    (void)snprintf(path, sizeof path, "%.*s", (int)(dot - name), name);
    if ((claim = sw_claim_find(w, path))) claim->is_put = true;
    return SW_OK;
}

/* A run that was killed at its end leaves a manifest, configs and copies: all but the shards goes,
 * since it is made anew and what lies here is listed as an output. */
static sw_code drop_the_rest(const sw_ckpt_writer *w, sw_err *err)
{
    sw_arena arena = {0};
    sw_dir_list list = {0};
    char path[SW_PATH_BYTES];
    sw_code rc = sw_dir_read(&list, w->dir.work_path, &arena, err);

    for (int64_t i = 0; i < list.n_entries && rc == SW_OK; i++) {
        const char *name = list.entries[i].name, *dot = strrchr(name, '.');
        if (dot && !strcmp(dot, ".part")) continue;
        if (!sw_out_dir_owns(&w->dir, name)) {
            rc = SW_FAIL(err, SW_E_USAGE, "%s: holds %s, which swage did not put there; move it "
                         "away", w->dir.work_path, name);
            continue;
        }
        if ((rc = sw_path_join(path, w->dir.work_path, name, err)) == SW_OK && unlink(path) != 0)
            rc = SW_FAIL(err, SW_E_IO, "%s: cannot remove: %s", path, strerror(errno));
    }
    sw_arena_free(&arena);
    return rc;
}

sw_code sw_writer_check_kept(sw_ckpt_writer *w, const sw_ckpt_keep *keep, sw_err *err)
{
    sw_code rc = drop_the_rest(w, err);

    if (rc != SW_OK) return rc;
    rc = sw_resume_check(&w->resume, w->st, keep->progress, count_kept, w, err);

    sw_err_prefix(err, "%s", w->dir.hold_path);
    return rc;
}

int64_t sw_ckpt_writer_n_done(const sw_ckpt_writer *w) { return sw_resume_n_blocks(&w->resume); }

const cJSON *sw_ckpt_writer_figures(const sw_ckpt_writer *w, int64_t block)
{
    return sw_resume_block(&w->resume, block);
}

sw_code sw_ckpt_writer_end_block(sw_ckpt_writer *w, cJSON *figures, sw_err *err)
{
    sw_code rc = sw_writer_check_copies(w, err);

    if (rc == SW_OK) return sw_resume_end_block(&w->resume, w->st, figures, err);
    cJSON_Delete(figures);
    return rc;
}

const char *sw_ckpt_writer_leave(sw_ckpt_writer *w)
{
    sw_err ignored = {0};

    if (!w->resume.is_on) return NULL;
    /* Finished blocks are kept once their inputs are digested: who failed waits for that, who wants
     * to stop does not. */
    sw_writer_stop_copies(w);
    if (sw_progress_check(w->progress, &ignored) != SW_OK) sw_writer_stop_digest(w);
    if (sw_resume_settle(&w->resume, &ignored) != SW_OK) {
        w->resume.n_blocks = sw_journal_n_blocks(&w->resume.journal);
        if (!w->resume.n_blocks) return NULL;
    }
    w->is_left = true;
    return w->dir.hold_path;
}

sw_code sw_ckpt_writer_get_changed(bool *is_changed, float *values, int64_t n,
                                   const sw_ckpt_writer *w, const char *tensor_name, sw_err *err)
{
    const sw_st_tensor *t = sw_st_find(w->source->st, tensor_name);
    const sw_rest *rest = sw_writer_rest_named(w, tensor_name);
    const int64_t at = rest ? rest->at : t ? t - sw_st_at(w->source->st, 0) : -1;
    void *stored = NULL;
    size_t n_bytes;
    sw_dtype dtype;
    sw_code rc;

    *is_changed = at >= 0 && w->claim_of[at] == SW_CHANGED;
    if (!*is_changed) return SW_OK;
    dtype = rest ? sw_writer_rest_dtype(w) : sw_writer_dtype(w, t);
    n_bytes = (size_t)((rest ? rest->n_out * rest->k_in : sw_view_elems(&t->view)) *
                       sw_dtype_bits(dtype) / 8);
    if ((rc = sw_mem_get(&stored, (int64_t)n_bytes, 1, "changed tensor", err)) != SW_OK) return rc;
    rc = sw_st_writer_take(w->st, tensor_name, stored, n_bytes, err);
    if (rc == SW_OK) rc = sw_float_decode_n(values, stored, dtype, n, err);
    sw_mem_put(stored);
    return rc;
}

/* The tensors of one linear, read back. */
typedef struct stored {
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    void *data[SW_DIALECT_TENSORS_MAX];
    int n;
} stored;

static sw_code read_part(stored *s, int i, const sw_ckpt_writer *w, const char *module_path,
                         sw_err *err)
{
    const sw_part *part = &s->parts[i];
    char name[SW_PART_NAME_BYTES];
    uint64_t n_bytes = 0;
    sw_code rc;

    if ((rc = sw_part_name(name, module_path, part->suffix, err)) != SW_OK ||
        (rc = sw_shape_bytes(&n_bytes, part->dtype, part->n_dims, part->shape, err)) != SW_OK ||
        (rc = sw_mem_get(&s->data[i], (int64_t)n_bytes, 1, part->suffix, err)) != SW_OK)
        return rc;
    if (w->dialect->is_stacked)
        return sw_writer_take_stacked(s->data[i], w, module_path, part, err);
    return sw_st_writer_take(w->st, name, s->data[i], (size_t)n_bytes, err);
}

sw_code sw_ckpt_writer_get(sw_qtensor *q, const sw_ckpt_writer *w, const char *module_path,
                           sw_err *err)
{
    const sw_claim *c = sw_claim_find(w, module_path);
    const void *parts[SW_DIALECT_TENSORS_MAX] = {0};
    sw_qtensor read = {0};
    stored s = {.n = 0};
    sw_code rc = SW_OK;

    if (!c || !c->is_put) return SW_FAIL(err, SW_E_BUG, "%s is not written yet", module_path);
    s.n = w->dialect->declare(s.parts, &c->spec, c->n_out, c->k_in);
    for (int i = 0; i < s.n && rc == SW_OK; i++) {
        rc = read_part(&s, i, w, module_path, err);
        parts[i] = s.data[i];
    }
    if (rc == SW_OK) rc = sw_qtensor_alloc(&read, &c->spec, c->n_out, c->k_in, err);
    if (rc == SW_OK) rc = w->dialect->decode(&read, parts, err);
    if (rc == SW_OK)
        *q = read;
    else
        sw_qtensor_free(&read);
    for (int i = 0; i < s.n; i++) sw_mem_put(s.data[i]);
    sw_err_prefix(err, "%s", module_path);
    return rc;
}
