/* st_writer.c - writing safetensors: declare all, lay out once, then data in any order.
 *
 * Inside a file tensors lie as they were announced, so that who announces them in the order in
 * which they will be made lets the digest of the file follow (st_follow.c). Those whose size is no
 * multiple of 8 bytes, which would leave others unaligned, come last, widest element first. Every
 * tensor is then aligned to its element, and the bytes do not depend on the order of arrival. The
 * header is padded with spaces so that the data begins on 8 bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/file/st_writer_internal.h"
#include "formats/io/profile.h"

#define ALIGN_BYTES 8       /* of the widest element */
#define DIRECT_FILES_MAX 64 /* of more the second descriptors would be missing elsewhere */

sw_code sw_st_writer_new(sw_st_writer **out, const char *dir, uint64_t shard_bytes, sw_err *err)
{
    sw_st_writer *w = NULL;
    size_t n = strlen(dir);
    sw_code rc;

    if (n >= sizeof w->dir) return SW_FAIL(err, SW_E_IO, "%.200s...: path too long", dir);
    if ((rc = SW_MEM_GET(&w, 1, "writer", err)) != SW_OK) return rc;
    memcpy(w->dir, dir, n + 1);
    w->shard_bytes = shard_bytes;
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_cond_init(&w->moved, NULL);
    *out = w;
    return SW_OK;
}

void sw_st_writer_free(sw_st_writer *w)
{
    if (!w) return;
    for (int32_t i = 0; i < w->n_files; i++) sw_out_abandon(&w->files[i]);
    sw_st_follow_free(w);
    sw_mem_put(w->files);
    sw_mem_put(w->order);
    sw_mem_put(w->decls);
    sw_mem_put(w->meta);
    sw_arena_free(&w->arena);
    (void)pthread_cond_destroy(&w->moved);
    (void)pthread_mutex_destroy(&w->mutex);
    sw_mem_put(w);
}

/* Room for one more element in *items; doubles. */
static sw_code grow(void **items, int64_t *room, int64_t n, size_t elem_bytes, sw_err *err)
{
    int64_t larger = *room ? 2 * *room : 64;
    void *moved = NULL;
    sw_code rc;

    if (n < *room) return SW_OK;
    if ((rc = sw_mem_get(&moved, larger, elem_bytes, "declared tensors", err)) != SW_OK) return rc;
    if (n) memcpy(moved, *items, (size_t)n * elem_bytes);
    sw_mem_put(*items);
    *items = moved;
    *room = larger;
    return SW_OK;
}

/* A copy of text that will stand in a header, which must be UTF-8. */
static sw_code keep_text(const char **out, sw_st_writer *w, const char *text, sw_err *err)
{
    size_t n_bytes = strlen(text), bad_at = 0;
    char *copy = NULL;
    sw_code rc;

    if (!sw_utf8_is_valid(text, n_bytes, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "\"%.100s\": invalid UTF-8 at byte %zu", text, bad_at);
    if ((rc = sw_arena_text(&copy, &w->arena, text, n_bytes, err)) != SW_OK) return rc;
    *out = copy;
    return SW_OK;
}

sw_code sw_st_writer_meta(sw_st_writer *w, const char *key, const char *value, sw_err *err)
{
    const char *key_copy = NULL, *value_copy = NULL;
    sw_code rc;

    if (w->has_begun) return SW_FAIL(err, SW_E_BUG, "metadata \"%s\" after begin", key);
    if (!strcmp(key, "format")) return SW_FAIL(err, SW_E_BUG, "metadata \"format\" is fixed");
    for (int64_t i = 0; i < w->n_meta; i++)
        if (!strcmp(w->meta[i].key, key))
            return SW_FAIL(err, SW_E_BUG, "metadata \"%s\" given twice", key);
    rc = grow((void **)&w->meta, &w->room_meta, w->n_meta, sizeof *w->meta, err);
    if (rc != SW_OK) return rc;
    if ((rc = keep_text(&key_copy, w, key, err)) != SW_OK) return rc;
    if ((rc = keep_text(&value_copy, w, value, err)) != SW_OK) return rc;
    w->meta[w->n_meta].key = key_copy;
    w->meta[w->n_meta++].value = value_copy;
    return SW_OK;
}

sw_code sw_st_writer_declare(sw_st_writer *w, const char *name, sw_dtype dtype, int32_t n_dims,
                             const int64_t *shape, sw_err *err)
{
    sw_st_decl decl = {.dtype = dtype, .n_dims = n_dims, .place = w->n_decls};
    uint64_t total = 0;
    sw_code rc;

    if (w->has_begun) return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" declared after begin", name);
    if (!strcmp(name, SW_ST_METADATA_KEY))
        return SW_FAIL(err, SW_E_FORMAT, "a tensor is called " SW_ST_METADATA_KEY ", which "
                       "safetensors have for something else; give it another name");
    if (w->n_decls == SW_ST_TENSORS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "more than %lld tensors",
                       (long long)SW_ST_TENSORS_MAX);
    if ((rc = sw_shape_bytes(&decl.size_bytes, dtype, n_dims, shape, err)) != SW_OK) {
        sw_err_prefix(err, "tensor \"%.200s\"", name);
        return rc;
    }
    if (!sw_add_u64(&total, w->data_bytes, decl.size_bytes) || total > INT64_MAX / 2)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "tensor \"%.200s\": more data than any disk", name);
    for (int32_t i = 0; i < n_dims; i++) decl.shape[i] = shape[i];
    rc = grow((void **)&w->decls, &w->room_decls, w->n_decls, sizeof *w->decls, err);
    if (rc != SW_OK) return rc;
    if ((rc = keep_text(&decl.name, w, name, err)) != SW_OK) return rc;
    w->decls[w->n_decls++] = decl;
    w->data_bytes = total;
    return SW_OK;
}

uint64_t sw_st_writer_data_bytes(const sw_st_writer *w) { return w->data_bytes; }

/* Cut the tensors, as announced, into files of at most shard_bytes of data. */
sw_code sw_st_writer_name(sw_st_writer *w, const char *name, sw_err *err)
{
    char *kept;
    sw_code rc = sw_arena_text(&kept, &w->arena, name, strlen(name), err);

    if (rc != SW_OK) return rc;
    w->single_name = kept;
    w->shard_bytes = 0;
    return SW_OK;
}

static int32_t assign_files(sw_st_writer *w)
{
    uint64_t used = 0;
    int32_t file = 0;

    for (int64_t i = 0; i < w->n_decls; i++) {
        uint64_t size = w->decls[i].size_bytes;
        if (w->shard_bytes && used && (size > w->shard_bytes || used > w->shard_bytes - size)) {
            file++;
            used = 0;
        }
        w->decls[i].file = file;
        used += size;
    }
    return file + 1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const sw_st_decl *)a)->name, ((const sw_st_decl *)b)->name);
}

/* What lies behind it would not be aligned. */
static bool is_odd(const sw_st_decl *decl) { return decl->size_bytes % ALIGN_BYTES != 0; }

static int compare_places(const void *a, const void *b)
{
    const sw_st_decl *x = *(const sw_st_decl *const *)a, *y = *(const sw_st_decl *const *)b;

    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    if (is_odd(x) != is_odd(y)) return is_odd(x) ? 1 : -1;
    if (is_odd(x) && x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* `file` of the writer as a name inside the directory. */
static sw_code file_name(char *out, size_t out_bytes, const sw_st_writer *w, int32_t file,
                         sw_err *err)
{
    const char *single = w->single_name ? w->single_name : SW_ST_SINGLE_NAME;
    int n = w->n_files == 1 ? snprintf(out, out_bytes, "%s", single)
                            : snprintf(out, out_bytes, "model-%05d-of-%05d" SW_ST_SUFFIX, file + 1,
                                       w->n_files);

    return n > 0 && (size_t)n < out_bytes ? SW_OK : SW_FAIL(err, SW_E_BUG, "shard name");
}

static sw_code add_meta(sw_print_buf *text, const sw_st_writer *w, sw_err *err)
{
    sw_code rc = sw_print_fmt(text, err, "{\"" SW_ST_METADATA_KEY "\":{\"format\":\"pt\"");

    for (int64_t i = 0; i < w->n_meta && rc == SW_OK; i++) {
        if ((rc = sw_print_add(text, ",", 1, err)) != SW_OK) return rc;
        if ((rc = sw_print_quote(text, w->meta[i].key, err)) != SW_OK) return rc;
        if ((rc = sw_print_add(text, ":", 1, err)) != SW_OK) return rc;
        rc = sw_print_quote(text, w->meta[i].value, err);
    }
    return rc == SW_OK ? sw_print_add(text, "}", 1, err) : rc;
}

static sw_code add_tensor(sw_print_buf *text, const sw_st_decl *decl, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_print_add(text, ",", 1, err)) != SW_OK) return rc;
    if ((rc = sw_print_quote(text, decl->name, err)) != SW_OK) return rc;
    rc = sw_print_fmt(text, err, ":{\"dtype\":\"%s\",\"shape\":[", sw_dtype_name(decl->dtype));
    for (int32_t i = 0; i < decl->n_dims && rc == SW_OK; i++)
        rc = sw_print_fmt(text, err, i ? ",%lld" : "%lld", (long long)decl->shape[i]);
    if (rc != SW_OK) return rc;
    return sw_print_fmt(text, err, "],\"data_offsets\":[%llu,%llu]}",
                            (unsigned long long)decl->offset,
                            (unsigned long long)(decl->offset + decl->size_bytes));
}

/* The length and the header of a file; its n tensors get their offsets in the file. */
static sw_code build_header(sw_print_buf *text, const sw_st_writer *w, sw_st_decl *const *tensors,
                            int64_t n, uint64_t *file_bytes, sw_err *err)
{
    unsigned char prefix[SW_ST_PREFIX_BYTES] = {0};
    uint64_t at = 0, header_bytes;
    sw_code rc;

    rc = sw_print_add(text, (const char *)prefix, sizeof prefix, err);
    if (rc != SW_OK || (rc = add_meta(text, w, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) {
        tensors[i]->offset = at;
        if ((rc = add_tensor(text, tensors[i], err)) != SW_OK) return rc;
        at += tensors[i]->size_bytes;
    }
    if ((rc = sw_print_add(text, "}", 1, err)) != SW_OK) return rc;
    while (text->n_bytes % ALIGN_BYTES)
        if ((rc = sw_print_add(text, " ", 1, err)) != SW_OK) return rc;
    header_bytes = text->n_bytes - SW_ST_PREFIX_BYTES;
    if (header_bytes > SW_ST_HEADER_MAX_BYTES)
        return SW_FAIL(err, SW_E_UNSUPPORTED,
                       "a header of %llu bytes exceeds the format's %llu; use smaller shards",
                       (unsigned long long)header_bytes,
                       (unsigned long long)SW_ST_HEADER_MAX_BYTES);
    sw_store_le64(text->at, header_bytes);
    for (int64_t i = 0; i < n; i++) tensors[i]->offset += text->n_bytes;
    *file_bytes = text->n_bytes + at;
    return SW_OK;
}

static sw_code begin_file(sw_st_writer *w, int32_t file, sw_st_decl *const *tensors, int64_t n,
                          sw_err *err)
{
    char name[64], path[SW_PATH_BYTES];
    uint64_t file_bytes = 0;
    sw_print_buf text = {0};
    sw_code rc;

    if ((rc = file_name(name, sizeof name, w, file, err)) != SW_OK) return rc;
    if ((rc = sw_path_join(path, w->dir, name, err)) != SW_OK) return rc;
    if ((rc = build_header(&text, w, tensors, n, &file_bytes, err)) != SW_OK) goto done;
    rc = w->is_kept    ? sw_out_open_kept(&w->files[file], path, err)
         : w->is_alone ? sw_out_open_new(&w->files[file], path, false, err)
                       : sw_out_open(&w->files[file], path, err);
    if (rc != SW_OK) goto done;
    if ((rc = sw_out_reserve(&w->files[file], file_bytes, err)) != SW_OK) goto done;
    rc = sw_out_write_at(&w->files[file], 0, text.at, text.n_bytes, err);
    if (rc == SW_OK && w->is_followed && w->n_files <= DIRECT_FILES_MAX)
        sw_out_go_direct(&w->files[file]);
done:
    sw_mem_put(text.at);
    return rc;
}

static sw_code check_disk(const sw_st_writer *w, sw_err *err)
{
    uint64_t free_bytes = 0;
    sw_code rc;

    if ((rc = sw_disk_free_bytes(&free_bytes, w->dir, err)) != SW_OK) return rc;
    if (w->is_kept) free_bytes += sw_dir_used_bytes(w->dir);
    if (w->data_bytes <= free_bytes) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: %llu bytes to write, %llu bytes free on that disk", w->dir,
                   (unsigned long long)w->data_bytes, (unsigned long long)free_bytes);
}

/* Sort the declarations by name, so that put can find them. Names come from the user's files, so a
 * name twice is a mistake in those. */
static sw_code order_names(sw_st_writer *w, sw_err *err)
{
    if (w->n_decls) qsort(w->decls, (size_t)w->n_decls, sizeof *w->decls, compare_names);
    for (int64_t i = 1; i < w->n_decls; i++)
        if (!strcmp(w->decls[i - 1].name, w->decls[i].name))
            return SW_FAIL(err, SW_E_FORMAT, "tensor \"%.200s\" would be written twice: what it is "
                           "made of and a tensor of that name are both there; take one out",
                           w->decls[i].name);
    return SW_OK;
}

/* Which tensor goes into which file, and in which order. */
static sw_code lay_out(int32_t *n_files, sw_st_writer *w, sw_err *err)
{
    sw_code rc;

    if (w->has_begun) return SW_FAIL(err, SW_E_BUG, "begin called twice");
    w->has_begun = true;
    *n_files = assign_files(w);
    if (*n_files > SW_ST_FILES_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d shards, at most %d; use larger shards", *n_files,
                       SW_ST_FILES_MAX);
    if ((rc = order_names(w, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&w->order, w->n_decls, "tensor order", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < w->n_decls; i++) w->order[i] = &w->decls[i];
    qsort(w->order, (size_t)w->n_decls, sizeof(sw_st_decl *), compare_places);
    return SW_OK;
}

sw_code sw_st_writer_begin(sw_st_writer *w, sw_err *err)
{
    int64_t begin = 0;
    int32_t n_files = 0;
    sw_code rc;

    if ((rc = lay_out(&n_files, w, err)) != SW_OK || (rc = check_disk(w, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&w->files, n_files, "output files", err)) != SW_OK) return rc;
    w->n_files = n_files;
    for (int32_t file = 0; file < n_files; file++) {
        int64_t end = begin;
        while (end < w->n_decls && w->order[end]->file == file) end++;
        if ((rc = begin_file(w, file, w->order + begin, end - begin, err)) != SW_OK) return rc;
        begin = end;
    }
    w->is_ready = true;
    return w->is_followed ? sw_st_follow_begin(w, err) : SW_OK;
}

sw_st_decl *sw_st_writer_find(const sw_st_writer *w, const char *name)
{
    sw_st_decl key = {.name = name};

    if (!w->is_ready || !w->n_decls) return NULL;
    return bsearch(&key, w->decls, (size_t)w->n_decls, sizeof *w->decls, compare_names);
}

uint64_t sw_st_writer_bytes(const sw_st_writer *w, const char *name)
{
    const sw_st_decl *decl = sw_st_writer_find(w, name);

    return decl ? decl->size_bytes : 0;
}

sw_code sw_st_writer_find_sized(sw_st_decl **out, const sw_st_writer *w, const char *name,
                                size_t n_bytes, sw_err *err)
{
    sw_st_decl *decl = sw_st_writer_find(w, name);

    if (!decl)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" is not declared, or not yet begun", name);
    if (decl->size_bytes != n_bytes)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\": %zu bytes put, %llu declared", name,
                       n_bytes, (unsigned long long)decl->size_bytes);
    *out = decl;
    return SW_OK;
}

void sw_st_writer_keep(sw_st_writer *w) { w->is_kept = true; }

void sw_st_writer_alone(sw_st_writer *w) { w->is_alone = true; }

void sw_st_writer_follow(sw_st_writer *w) { w->is_followed = true; }

void sw_st_writer_read_back(sw_st_writer *w, sw_digest_back *back)
{
    w->back = back;
    for (int32_t i = 0; i < w->n_files && w->follows; i++)
        w->files[i].is_read_back = w->follows[i].steps.has_tags = true;
}

sw_code sw_st_writer_take(sw_st_writer *w, const char *name, void *data, size_t n_bytes,
                          sw_err *err)
{
    sw_st_decl *decl = NULL;
    sw_code rc;

    if ((rc = sw_st_writer_find_sized(&decl, w, name, n_bytes, err)) != SW_OK) return rc;
    rc = sw_out_read_at(&w->files[decl->file], decl->offset, data, n_bytes, err);
    if (rc == SW_OK) sw_st_mark_put(w, decl, n_bytes);
    return rc;
}

sw_code sw_st_writer_sync(const sw_st_writer *w, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int32_t i = 0; i < w->n_files && rc == SW_OK; i++) rc = sw_out_sync(&w->files[i], err);
    return rc;
}

/* The text of the index; freed by the caller, also after a failure. */
static sw_code build_index(sw_print_buf *text, const sw_st_writer *w, sw_err *err)
{
    char name[64];
    sw_code rc;

    rc = sw_print_fmt(text, err, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
                          "  \"weight_map\": {",
                          (unsigned long long)w->data_bytes);
    for (int64_t i = 0; i < w->n_decls && rc == SW_OK; i++) {
        const sw_st_decl *decl = &w->decls[i];
        if ((rc = file_name(name, sizeof name, w, decl->file, err)) != SW_OK) return rc;
        if ((rc = sw_print_fmt(text, err, i ? ",\n    " : "\n    ")) != SW_OK) return rc;
        if ((rc = sw_print_quote(text, decl->name, err)) != SW_OK) return rc;
        rc = sw_print_fmt(text, err, ": \"%s\"", name);
    }
    return rc == SW_OK ? sw_print_fmt(text, err, "\n  }\n}\n") : rc;
}

static sw_code write_index(const sw_st_writer *w, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_print_buf text = {0};
    sw_code rc = sw_path_join(path, w->dir, SW_ST_INDEX_NAME, err);

    if (rc == SW_OK) rc = build_index(&text, w, err);
    if (rc == SW_OK) rc = sw_file_put(path, text.at, text.n_bytes, err);
    sw_mem_put(text.at);
    return rc;
}

static sw_code foresee_file(uint64_t *sum, const sw_st_writer *w, sw_st_decl *const *tensors,
                            int64_t n, sw_err *err)
{
    sw_print_buf text = {0};
    uint64_t file_bytes = 0;
    sw_code rc = build_header(&text, w, tensors, n, &file_bytes, err);

    *sum += file_bytes;
    sw_mem_put(text.at);
    return rc;
}

sw_code sw_st_writer_foresee(uint64_t *out, sw_st_writer *w, sw_err *err)
{
    sw_print_buf index = {0};
    int64_t begin = 0;
    int32_t n_files = 0;
    uint64_t sum = 0;
    sw_code rc = lay_out(&n_files, w, err);

    for (int32_t file = 0; file < n_files && rc == SW_OK; file++) {
        int64_t end = begin;
        while (end < w->n_decls && w->order[end]->file == file) end++;
        rc = foresee_file(&sum, w, w->order + begin, end - begin, err);
        begin = end;
    }
    w->n_files = n_files; /* names of shards tell it */
    if (rc == SW_OK && n_files > 1) rc = build_index(&index, w, err);
    w->n_files = 0;
    sum += index.n_bytes;
    sw_mem_put(index.at);
    if (rc == SW_OK) *out = sum;
    return rc;
}

/* Take back the files that this commit has put in place: shards without their index mislead. */
static void withdraw(sw_st_writer *w)
{
    for (int32_t i = 0; i < w->n_published; i++) (void)remove(w->files[i].path);
    w->n_published = 0;
}

typedef struct finish_job {
    sw_st_writer *w;
    sw_err *errs; /* [n_files] code SW_OK: none */
} finish_job;

static void finish_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const finish_job *job = ctx;
    const sw_st_writer *w = job->w;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        sw_err *err = &job->errs[i];
        sw_code rc = SW_OK;
        sw_out_start_writing(&w->files[i], 0, 0); /* to its end, while the digest is made */
        if (w->is_followed) rc = sw_st_follow_finish(job->w, (int32_t)i, err);
        err->code = rc == SW_OK ? sw_out_sync(&w->files[i], err) : rc;
    }
}

/* What is left of the digests, and all of it on the disk, of all files side by side. */
static sw_code finish_files(sw_st_writer *w, sw_err *err)
{
    finish_job job = {.w = w};
    sw_code rc = SW_MEM_GET(&job.errs, w->n_files, "failures", err);

    if (rc == SW_OK) sw_parallel_for(sw_cpu_count(), w->n_files, 1, finish_some, &job);
    for (int32_t i = 0; i < w->n_files && rc == SW_OK; i++)
        if ((rc = job.errs[i].code) != SW_OK) *err = job.errs[i];
    sw_mem_put(job.errs);
    return rc;
}

sw_code sw_st_writer_commit(sw_st_writer *w, sw_err *err)
{
    sw_span span = sw_span_open("publish");
    sw_code rc = SW_OK;

    if (!w->is_ready)
        return SW_FAIL(err, SW_E_BUG, "commit without begin, or a second one");
    for (int64_t i = 0; i < w->n_decls; i++)
        if (!w->order[i]->is_put)
            return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" was declared but never written",
                           w->order[i]->name);
    w->is_ready = false;
    rc = finish_files(w, err);
    for (int32_t i = 0; i < w->n_files && rc == SW_OK; i++) {
        rc = sw_out_commit(&w->files[i], err);
        if (rc == SW_OK) w->n_published = i + 1;
    }
    if (rc == SW_OK && w->n_files > 1) rc = write_index(w, err);
    if (rc != SW_OK && !w->is_kept) withdraw(w);
    sw_span_close(span, NULL);
    return rc;
}
