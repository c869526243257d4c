/* pt_read.c - see pt_read.h. */
#include "formats/file/pt_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/zip_read.h"

#define PICKLE "/data.pkl"
#define NAME_BYTES 1024
#define COPY_ALIGN 64

/* A tensor of the pickle with the bytes that it is a view of. */
typedef struct placed {
    const sw_pickle_tensor *t;
    const unsigned char *data; /* of its first element */
    uint64_t size_bytes;       /* dense */
    uint64_t copy_at;          /* where in the copies; ~0: it needs none */
} placed;

#define NO_COPY (~(uint64_t)0)

/* The folder that everything in the archive lies in: before the only data.pkl. */
static sw_code find_folder(char folder[NAME_BYTES], const sw_zip *zip, const char *what,
                           sw_err *err)
{
    int n_found = 0;

    for (int64_t i = 0; i < zip->n_entries; i++) {
        const char *name = zip->entries[i].name, *slash = strchr(name, '/');
        size_t n = slash ? (size_t)(slash - name) : 0;
        if (!slash || strcmp(slash, PICKLE) != 0) continue;
        if (n + 300 > NAME_BYTES)
            return SW_FAIL(err, SW_E_FORMAT, "%s: its folder has a name of %zu bytes", what, n);
        memcpy(folder, name, n);
        folder[n] = '\0';
        n_found++;
    }
    if (n_found == 1) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: an archive with %d data.pkl; torch.save writes one", what,
                   n_found);
}

static const sw_zip_entry *entry_of(const sw_zip *zip, const char *folder, const char *name)
{
    char path[NAME_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);

    return n > 0 && (size_t)n < sizeof path ? sw_zip_find(zip, path) : NULL;
}

static sw_code check_kind(const sw_zip *zip, const char *folder, const char *what, sw_err *err)
{
    const sw_zip_entry *order = entry_of(zip, folder, "byteorder");

    if (order && (order->size_bytes != 6 || memcmp(order->data, "little", 6) != 0))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: its byte order is not little", what);
    if (entry_of(zip, folder, "constants.pkl"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: a TorchScript program and no checkpoint; save "
                       "its state_dict", what);
    return SW_OK;
}

static bool is_dense(const sw_pickle_tensor *t)
{
    int64_t step = 1;

    for (int32_t i = t->n_dims; i-- > 0;) {
        if (t->shape[i] == 0) return true;
        if (t->shape[i] != 1 && t->strides[i] != step) return false;
        step *= t->shape[i];
    }
    return true;
}

static sw_code place_one(placed *out, uint64_t *copy_bytes, const sw_pickle_tensor *t,
                         const sw_zip *zip, const char *folder, sw_err *err)
{
    const uint64_t elem_bytes = (uint64_t)sw_dtype_bits(t->dtype) / 8;
    char name[300];
    const sw_zip_entry *e;
    uint64_t need = 0;
    int n = snprintf(name, sizeof name, "data/%s", t->storage_key);
    sw_code rc;

    e = n > 0 && (size_t)n < sizeof name ? entry_of(zip, folder, name) : NULL;
    if (!e) return SW_FAIL(err, SW_E_FORMAT, "its storage \"%.100s\" is missing", t->storage_key);
    if (!sw_mul_u64(&need, (uint64_t)t->storage_elems, elem_bytes) || need > e->size_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "its storage \"%.100s\" has %llu bytes, and %lld elements "
                       "of %s need more", t->storage_key, (unsigned long long)e->size_bytes,
                       (long long)t->storage_elems, sw_dtype_name(t->dtype));
    if ((rc = sw_shape_bytes(&out->size_bytes, t->dtype, t->n_dims, t->shape, err)) != SW_OK)
        return rc;
    out->t = t;
    out->data = e->data + (uint64_t)t->first * elem_bytes;
    out->copy_at = NO_COPY;
    if (is_dense(t) && (uintptr_t)out->data % elem_bytes == 0) return SW_OK;
    out->copy_at = *copy_bytes;
    if (!sw_add_u64(copy_bytes, *copy_bytes, out->size_bytes + COPY_ALIGN))
        return SW_FAIL(err, SW_E_FORMAT, "its copy is too large");
    *copy_bytes = *copy_bytes / COPY_ALIGN * COPY_ALIGN;
    return SW_OK;
}

/* Element by element, the last dimension fastest. */
static void copy_strided(unsigned char *dst, const placed *p)
{
    const sw_pickle_tensor *t = p->t;
    const size_t elem_bytes = (size_t)sw_dtype_bits(t->dtype) / 8;
    int64_t at[SW_DIMS_MAX] = {0};
    int64_t from = 0; /* elements after the first */

    for (uint64_t n = p->size_bytes / elem_bytes; n > 0; n--) {
        memcpy(dst, p->data + (size_t)from * elem_bytes, elem_bytes);
        dst += elem_bytes;
        for (int32_t d = t->n_dims; d-- > 0;) {
            if (++at[d] < t->shape[d]) {
                from += t->strides[d];
                break;
            }
            from -= (t->shape[d] - 1) * t->strides[d];
            at[d] = 0;
        }
    }
}

static void fill_tensor(sw_st_tensor *out, const placed *p, const sw_spill *copies, int32_t shard)
{
    sw_cview *view = &out->view;

    out->name = p->t->name;
    out->shard = shard;
    view->dtype = p->t->dtype;
    view->n_dims = p->t->n_dims;
    memcpy(view->shape, p->t->shape, sizeof view->shape);
    view->size_bytes = (size_t)p->size_bytes;
    view->data = p->data;
    if (p->copy_at == NO_COPY) return;
    view->data = (const unsigned char *)copies->data + p->copy_at;
    copy_strided((unsigned char *)copies->data + p->copy_at, p);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const sw_st_tensor *)a)->name, ((const sw_st_tensor *)b)->name);
}

static sw_code check_names(sw_st_part *part, const char *what, sw_err *err)
{
    if (part->n_tensors)
        qsort(part->tensors, (size_t)part->n_tensors, sizeof *part->tensors, compare_names);
    for (int64_t i = 1; i < part->n_tensors; i++)
        if (!strcmp(part->tensors[i - 1].name, part->tensors[i].name))
            return SW_FAIL(err, SW_E_FORMAT, "%s: two tensors are named \"%.200s\"", what,
                           part->tensors[i].name);
    return SW_OK;
}

/* What the tensors of one file are read from. */
typedef struct pt_source {
    const char *what, *folder;
    sw_zip zip;
    size_t n_bytes;
    int32_t shard;
} pt_source;

static sw_code place_all(placed *places, uint64_t *copy_bytes, const pt_source *from,
                         const sw_pickle_tensor *tensors, int64_t n, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        rc = place_one(&places[i], copy_bytes, &tensors[i], &from->zip, from->folder, err);
        if (rc != SW_OK) sw_err_prefix(err, "%s: tensor \"%.200s\"", from->what, tensors[i].name);
    }
    /* many views of one storage must not grow a file without bound */
    if (rc == SW_OK && *copy_bytes > from->n_bytes + (uint64_t)n * 2 * COPY_ALIGN)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: tensors that lie turned or cut in shared storages "
                     "would take %llu bytes, more than the file; save them contiguous", from->what,
                     (unsigned long long)*copy_bytes);
    return rc;
}

static sw_code fill_part(sw_st_part *out, sw_spill *copies, sw_arena *arena, const pt_source *from,
                         const sw_pickle_tensor *tensors, int64_t n, sw_err *err)
{
    uint64_t copy_bytes = 0;
    placed *places = NULL;
    sw_spill spill = {0};
    sw_code rc = SW_MEM_GET(&places, n, "places of tensors", err);

    if (rc == SW_OK) rc = place_all(places, &copy_bytes, from, tensors, n, err);
    if (rc == SW_OK) rc = SW_ARENA_TAKE(&out->tensors, arena, n, err);
    if (rc == SW_OK && copy_bytes)
        rc = sw_spill_open(&spill, sw_spill_temp_dir(), (size_t)copy_bytes, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        fill_tensor(&out->tensors[out->n_tensors++], &places[i], &spill, from->shard);
    if (rc == SW_OK) rc = check_names(out, from->what, err);
    if (rc == SW_OK)
        *copies = spill;
    else
        sw_spill_close(&spill);
    sw_mem_put(places);
    return rc;
}

sw_code sw_pt_part_parse(sw_st_part *out, sw_spill *copies, sw_arena *arena, const void *bytes,
                         size_t n_bytes, int32_t shard, const char *what, sw_err *err)
{
    char folder[NAME_BYTES] = "";
    pt_source from = {.what = what, .folder = folder, .n_bytes = n_bytes, .shard = shard};
    sw_pickle_tensor *tensors = NULL;
    const sw_zip_entry *pickle;
    sw_arena scratch = {0};
    sw_st_part part = {0};
    int64_t n = 0;
    sw_code rc;

    if (!sw_zip_is_one(bytes, n_bytes))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: no archive of torch.save; files of PyTorch "
                       "before 1.6 must be saved again, best as safetensors", what);
    if ((rc = sw_zip_parse(&from.zip, &scratch, bytes, n_bytes, what, err)) != SW_OK ||
        (rc = find_folder(folder, &from.zip, what, err)) != SW_OK ||
        (rc = check_kind(&from.zip, folder, what, err)) != SW_OK)
        goto done;
    pickle = entry_of(&from.zip, folder, "data.pkl");
    rc = sw_pickle_read(&tensors, &n, arena, pickle->data, (size_t)pickle->size_bytes, what, err);
    if (rc == SW_OK) rc = fill_part(&part, copies, arena, &from, tensors, n, err);
    if (rc == SW_OK) *out = part;
done:
    sw_arena_free(&scratch);
    return rc;
}
