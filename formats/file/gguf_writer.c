/* gguf_writer.c - writing GGUF: keys and tensors announced, laid out once, then data in any order.
 *
 * The header grows in memory as keys come; tensors lie in the file in the order announced. What
 * separates them is zeros.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/print_buf.h"
#include "formats/base/size.h"
#include "formats/file/gguf_internal.h"

#define WRITTEN_NAME_BYTES_MAX 63

typedef struct gguf_decl {
    const char *name;
    sw_block_type type;
    int32_t n_dims;
    int64_t shape[SW_GGUF_DIMS_MAX];
    uint64_t size_bytes, offset, put_bytes;
} gguf_decl;

struct sw_gguf_writer {
    sw_out_file file;
    sw_arena arena; /* names */
    sw_print_buf keys;
    uint64_t n_keys;
    sw_gguf_kind elem_kind; /* of the array that is being put */
    uint64_t n_elems_left;
    gguf_decl *decls; /* as announced */
    int64_t n_decls, room_decls;
    gguf_decl **by_name; /* after begin */
    uint64_t data_at, data_bytes;
    bool has_begun;
};

static sw_code add_u32(sw_print_buf *buf, uint32_t v, sw_err *err)
{
    unsigned char bytes[4];

    sw_store_le32(bytes, v);
    return sw_print_add(buf, (const char *)bytes, sizeof bytes, err);
}

static sw_code add_u64(sw_print_buf *buf, uint64_t v, sw_err *err)
{
    unsigned char bytes[8];

    sw_store_le64(bytes, v);
    return sw_print_add(buf, (const char *)bytes, sizeof bytes, err);
}

static sw_code add_text(sw_print_buf *buf, const char *text, size_t n, sw_err *err)
{
    sw_code rc = add_u64(buf, n, err);

    return rc ? rc : sw_print_add(buf, text, n, err);
}

sw_code sw_gguf_writer_new(sw_gguf_writer **out, const char *path, sw_err *err)
{
    return sw_gguf_writer_open(out, path, true, err);
}

sw_code sw_gguf_writer_open(sw_gguf_writer **out, const char *path, bool may_replace, sw_err *err)
{
    size_t n = strlen(path);
    sw_gguf_writer *w = NULL;
    sw_code rc;

    if (n < 6 || strcmp(path + n - 5, ".gguf"))
        return SW_FAIL(err, SW_E_USAGE, "%.200s: a GGUF file is called NAME.gguf", path);
    if ((rc = SW_MEM_GET(&w, 1, "GGUF writer", err)) != SW_OK) return rc;
    if ((rc = sw_out_open_new(&w->file, path, may_replace, err)) != SW_OK) {
        sw_mem_put(w);
        return rc;
    }
    *out = w;
    return SW_OK;
}

void sw_gguf_writer_free(sw_gguf_writer *w)
{
    if (!w) return;
    sw_out_abandon(&w->file);
    sw_mem_put(w->keys.at);
    sw_mem_put(w->decls);
    sw_mem_put(w->by_name);
    sw_arena_free(&w->arena);
    sw_mem_put(w);
}

/* --- keys ------------------------------------------------------------------------------------- */

static sw_code begin_key(sw_gguf_writer *w, const char *key, sw_gguf_kind kind, sw_err *err)
{
    sw_code rc;

    if (w->has_begun || w->n_elems_left)
        return SW_FAIL(err, SW_E_BUG, "key \"%s\" after begin or inside an array", key);
    if ((rc = add_text(&w->keys, key, strlen(key), err)) != SW_OK ||
        (rc = add_u32(&w->keys, (uint32_t)kind, err)) != SW_OK)
        return rc;
    w->n_keys++;
    return SW_OK;
}

/* The low bytes of a two's complement number are those of any narrower one. */
static sw_code add_int(sw_gguf_writer *w, sw_gguf_kind kind, int64_t v, sw_err *err)
{
    unsigned char bytes[8];

    sw_store_le64(bytes, (uint64_t)v);
    return sw_print_add(&w->keys, (const char *)bytes, (size_t)sw_gguf_kind_bytes(kind), err);
}

static sw_code add_f32(sw_gguf_writer *w, double v, sw_err *err)
{
    const float single = (float)v;
    uint32_t bits;

    memcpy(&bits, &single, sizeof bits);
    return add_u32(&w->keys, bits, err);
}

sw_code sw_gguf_put_int(sw_gguf_writer *w, const char *key, sw_gguf_kind kind, int64_t v,
                        sw_err *err)
{
    sw_code rc = begin_key(w, key, kind, err);

    return rc ? rc : add_int(w, kind, v, err);
}

sw_code sw_gguf_put_real(sw_gguf_writer *w, const char *key, double v, sw_err *err)
{
    sw_code rc = begin_key(w, key, SW_GGUF_F32, err);

    return rc ? rc : add_f32(w, v, err);
}

sw_code sw_gguf_put_text(sw_gguf_writer *w, const char *key, const char *text, sw_err *err)
{
    sw_code rc = begin_key(w, key, SW_GGUF_TEXT, err);

    return rc ? rc : add_text(&w->keys, text, strlen(text), err);
}

sw_code sw_gguf_put_value(sw_gguf_writer *w, const sw_gguf_value *value, sw_err *err)
{
    sw_code rc = begin_key(w, value->key, value->kind, err);

    if (rc == SW_OK && value->kind == SW_GGUF_ARRAY)
        rc = add_u32(&w->keys, (uint32_t)value->elem_kind, err);
    if (rc == SW_OK && (value->kind == SW_GGUF_ARRAY || value->kind == SW_GGUF_TEXT))
        rc = add_u64(&w->keys, value->n, err);
    if (rc != SW_OK || !value->n_bytes) return rc;
    return sw_print_add(&w->keys, (const char *)value->data, (size_t)value->n_bytes, err);
}

sw_code sw_gguf_put_array(sw_gguf_writer *w, const char *key, sw_gguf_kind elem_kind, uint64_t n,
                          sw_err *err)
{
    sw_code rc = begin_key(w, key, SW_GGUF_ARRAY, err);

    if (rc == SW_OK) rc = add_u32(&w->keys, (uint32_t)elem_kind, err);
    if (rc == SW_OK) rc = add_u64(&w->keys, n, err);
    w->elem_kind = elem_kind;
    w->n_elems_left = n;
    return rc;
}

static sw_code begin_elem(sw_gguf_writer *w, bool is_right, sw_err *err)
{
    if (!w->n_elems_left || !is_right)
        return SW_FAIL(err, SW_E_BUG, "an element of no array, or of one of %s",
                       sw_gguf_kind_name(w->elem_kind));
    w->n_elems_left--;
    return SW_OK;
}

sw_code sw_gguf_put_elem_text(sw_gguf_writer *w, const char *text, size_t n_bytes, sw_err *err)
{
    sw_code rc = begin_elem(w, w->elem_kind == SW_GGUF_TEXT, err);

    return rc ? rc : add_text(&w->keys, text, n_bytes, err);
}

sw_code sw_gguf_put_elem_int(sw_gguf_writer *w, int64_t v, sw_err *err)
{
    sw_code rc = begin_elem(w, w->elem_kind != SW_GGUF_TEXT && w->elem_kind != SW_GGUF_F32, err);

    return rc ? rc : add_int(w, w->elem_kind, v, err);
}

sw_code sw_gguf_put_elem_real(sw_gguf_writer *w, double v, sw_err *err)
{
    sw_code rc = begin_elem(w, w->elem_kind == SW_GGUF_F32, err);

    return rc ? rc : add_f32(w, v, err);
}

/* --- tensors ---------------------------------------------------------------------------------- */

static sw_code grow_decls(sw_gguf_writer *w, sw_err *err)
{
    int64_t room = w->room_decls ? 2 * w->room_decls : 256;
    gguf_decl *moved = NULL;
    sw_code rc;

    if (w->n_decls < w->room_decls) return SW_OK;
    if ((rc = SW_MEM_GET(&moved, room, "announced tensors", err)) != SW_OK) return rc;
    if (w->n_decls) memcpy(moved, w->decls, (size_t)w->n_decls * sizeof *moved);
    sw_mem_put(w->decls);
    w->decls = moved;
    w->room_decls = room;
    return SW_OK;
}

static uint64_t aligned(uint64_t n)
{
    return (n + SW_GGUF_ALIGN_DEFAULT - 1) & ~(uint64_t)(SW_GGUF_ALIGN_DEFAULT - 1);
}

sw_code sw_gguf_declare(sw_gguf_writer *w, const char *name, sw_block_type type, int32_t n_dims,
                        const int64_t *shape, sw_err *err)
{
    const sw_block_size *size = &sw_block_sizes[type];
    gguf_decl decl = {.type = type, .n_dims = n_dims, .offset = aligned(w->data_bytes)};
    uint64_t n = 1;
    char *copy = NULL;
    sw_code rc;

    if (w->has_begun) return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" after begin", name);
    if (strlen(name) > WRITTEN_NAME_BYTES_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "\"%.200s\": loaders have room for names of %d bytes",
                       name, WRITTEN_NAME_BYTES_MAX);
    if (n_dims < 1 || n_dims > SW_GGUF_DIMS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "\"%s\" has %d dimensions; 1 to %d can be written",
                       name, (int)n_dims, SW_GGUF_DIMS_MAX);
    if (shape[n_dims - 1] % size->elems)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "\"%s\" has rows of %" PRId64 " elements, which are "
                       "no whole blocks of %s (%d)", name, shape[n_dims - 1], size->name,
                       (int)size->elems);
    for (int32_t i = 0; i < n_dims; i++) {
        decl.shape[i] = shape[i];
        if (shape[i] < 1 || !sw_mul_u64(&n, n, (uint64_t)shape[i]) || n > (uint64_t)INT64_MAX / 8)
            return SW_FAIL(err, SW_E_FORMAT, "\"%s\": senseless dimensions", name);
    }
    decl.size_bytes = n / (uint64_t)size->elems * (uint64_t)size->bytes;
    if ((rc = grow_decls(w, err)) != SW_OK ||
        (rc = sw_arena_text(&copy, &w->arena, name, strlen(name), err)) != SW_OK)
        return rc;
    decl.name = copy;
    w->decls[w->n_decls++] = decl;
    w->data_bytes = decl.offset + decl.size_bytes;
    return SW_OK;
}

uint64_t sw_gguf_writer_data_bytes(const sw_gguf_writer *w) { return w->data_bytes; }

static int compare_decls(const void *a, const void *b)
{
    return strcmp((*(gguf_decl *const *)a)->name, (*(gguf_decl *const *)b)->name);
}

static sw_code sort_decls(sw_gguf_writer *w, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&w->by_name, w->n_decls, "announced tensors", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < w->n_decls; i++) w->by_name[i] = &w->decls[i];
    if (w->n_decls)
        qsort(w->by_name, (size_t)w->n_decls, sizeof *w->by_name, compare_decls);
    for (int64_t i = 1; i < w->n_decls; i++)
        if (!strcmp(w->by_name[i - 1]->name, w->by_name[i]->name))
            return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" announced twice", w->by_name[i]->name);
    return SW_OK;
}

static sw_code add_infos(sw_print_buf *buf, const sw_gguf_writer *w, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < w->n_decls && rc == SW_OK; i++) {
        const gguf_decl *d = &w->decls[i];

        if ((rc = add_text(buf, d->name, strlen(d->name), err)) != SW_OK ||
            (rc = add_u32(buf, (uint32_t)d->n_dims, err)) != SW_OK)
            return rc;
        for (int32_t k = d->n_dims - 1; k >= 0 && rc == SW_OK; k--)
            rc = add_u64(buf, (uint64_t)d->shape[k], err);
        if (rc == SW_OK) rc = add_u32(buf, sw_block_sizes[d->type].id, err);
        if (rc == SW_OK) rc = add_u64(buf, d->offset, err);
    }
    return rc;
}

static sw_code build_header(sw_print_buf *buf, const sw_gguf_writer *w, sw_err *err)
{
    static const char zeros[SW_GGUF_ALIGN_DEFAULT];
    sw_code rc = sw_print_add(buf, "GGUF", 4, err);

    if (rc == SW_OK) rc = add_u32(buf, SW_GGUF_VERSION, err);
    if (rc == SW_OK) rc = add_u64(buf, (uint64_t)w->n_decls, err);
    if (rc == SW_OK) rc = add_u64(buf, w->n_keys, err);
    if (rc == SW_OK) rc = sw_print_add(buf, w->keys.at, w->keys.n_bytes, err);
    if (rc == SW_OK) rc = add_infos(buf, w, err);
    if (rc == SW_OK) rc = sw_print_add(buf, zeros, aligned(buf->n_bytes) - buf->n_bytes, err);
    return rc;
}

/* Loaders want the last tensor padded too. Reserved space reads as zeros. */
static sw_code lay_out(sw_gguf_writer *w, const sw_print_buf *header, sw_err *err)
{
    const uint64_t file_bytes = header->n_bytes + aligned(w->data_bytes);
    const unsigned char zero = 0;
    sw_code rc = sw_out_reserve(&w->file, file_bytes, err);

    if (rc == SW_OK) rc = sw_out_write_at(&w->file, 0, header->at, header->n_bytes, err);
    if (rc == SW_OK && w->data_bytes)
        rc = sw_out_write_at(&w->file, file_bytes - 1, &zero, 1, err);
    w->data_at = header->n_bytes;
    return rc;
}

sw_code sw_gguf_begin(sw_gguf_writer *w, sw_err *err)
{
    sw_print_buf header = {0};
    sw_code rc;

    if (w->has_begun || w->n_elems_left)
        return SW_FAIL(err, SW_E_BUG, "begin twice, or inside an array");
    if ((rc = sort_decls(w, err)) == SW_OK && (rc = build_header(&header, w, err)) == SW_OK)
        rc = lay_out(w, &header, err);
    w->has_begun = rc == SW_OK;
    sw_mem_put(header.at);
    return rc;
}

static gguf_decl *find_decl(const sw_gguf_writer *w, const char *name)
{
    gguf_decl key = {.name = name};
    const gguf_decl *at = &key;
    gguf_decl **found = NULL;

    if (w->n_decls)
        found = bsearch(&at, w->by_name, (size_t)w->n_decls, sizeof *w->by_name, compare_decls);
    return found ? *found : NULL;
}

sw_code sw_gguf_put(sw_gguf_writer *w, const char *name, uint64_t offset, const void *data,
                    size_t n_bytes, sw_err *err)
{
    gguf_decl *d = w->has_begun ? find_decl(w, name) : NULL;
    sw_code rc;

    if (!d) return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" was not announced", name);
    if (offset > d->size_bytes || n_bytes > d->size_bytes - d->put_bytes ||
        n_bytes > d->size_bytes - offset)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" has %" PRIu64 " bytes, more were put", name,
                       d->size_bytes);
    rc = sw_out_write_at(&w->file, w->data_at + d->offset + offset, data, n_bytes, err);
    if (rc == SW_OK) d->put_bytes += n_bytes;
    return rc;
}

sw_code sw_gguf_commit(sw_gguf_writer *w, sw_err *err)
{
    for (int64_t i = 0; i < w->n_decls; i++)
        if (!w->has_begun || w->decls[i].put_bytes != w->decls[i].size_bytes)
            return SW_FAIL(err, SW_E_BUG, "tensor \"%s\" is not complete", w->decls[i].name);
    return sw_out_commit(&w->file, err);
}
