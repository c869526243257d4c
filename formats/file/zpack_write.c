/* zpack_write.c - the writing half of zpack.h. */
#include <string.h>
#include <zstd.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/file/zpack.h"

#define LEVEL 3 /* mantissas do not compress: a higher level costs time and saves nothing */

/* Growing bytes of the directory. */
typedef struct bytes {
    unsigned char *at;
    size_t n, room;
} bytes;

struct sw_zpack_writer {
    sw_out_file file;
    ZSTD_CCtx *zstd;
    uint64_t at;      /* where the next frame goes */
    bytes meta, tensors;
    uint32_t n_meta, n_tensors;
};

static sw_code add(bytes *b, const void *data, size_t n, sw_err *err)
{
    unsigned char *moved = NULL;
    size_t room = b->room ? b->room : 1024;
    sw_code rc;

    while (room - b->n < n) room *= 2;
    if (room > SW_ZPACK_DIRECTORY_MAX_BYTES)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a directory of more than %llu bytes",
                       (unsigned long long)SW_ZPACK_DIRECTORY_MAX_BYTES);
    if (room != b->room) {
        if ((rc = SW_MEM_GET(&moved, room, "directory", err)) != SW_OK) return rc;
        if (b->n) memcpy(moved, b->at, b->n);
        sw_mem_put(b->at);
        b->at = moved;
        b->room = room;
    }
    memcpy(b->at + b->n, data, n);
    b->n += n;
    return SW_OK;
}

/* A number of n_bytes, little-endian. */
static sw_code add_number(bytes *b, uint64_t v, size_t n_bytes, sw_err *err)
{
    unsigned char raw[8];

    sw_store_le64(raw, v);
    return add(b, raw, n_bytes, err);
}

/* Text behind its length, which is a number of length_bytes. */
static sw_code add_text(bytes *b, const char *text, size_t length_bytes, sw_err *err)
{
    size_t n = strlen(text), bad_at = 0;
    sw_code rc;

    if (!sw_utf8_is_valid(text, n, &bad_at) || (n >> (8 * length_bytes)) != 0)
        return SW_FAIL(err, SW_E_BUG, "\"%.100s\": %zu bytes, or no UTF-8", text, n);
    if ((rc = add_number(b, n, length_bytes, err)) != SW_OK) return rc;
    return add(b, text, n, err);
}

sw_code sw_zpack_writer_new(sw_zpack_writer **out, const char *path, bool may_replace, sw_err *err)
{
    sw_zpack_writer *w = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&w, 1, "writer", err)) != SW_OK) return rc;
    if ((rc = sw_out_open_new(&w->file, path, may_replace, err)) != SW_OK) goto done;
    if (!(w->zstd = ZSTD_createCCtx())) {
        rc = SW_FAIL(err, SW_E_NOMEM, "no memory for compression");
        goto done;
    }
    rc = sw_out_write_at(&w->file, 0, SW_ZPACK_MAGIC, SW_ZPACK_MAGIC_BYTES, err);
    w->at = SW_ZPACK_MAGIC_BYTES;
done:
    if (rc != SW_OK)
        sw_zpack_writer_free(w);
    else
        *out = w;
    return rc;
}

void sw_zpack_writer_free(sw_zpack_writer *w)
{
    if (!w) return;
    sw_out_abandon(&w->file);
    (void)ZSTD_freeCCtx(w->zstd);
    sw_mem_put(w->meta.at);
    sw_mem_put(w->tensors.at);
    sw_mem_put(w);
}

sw_code sw_zpack_writer_meta(sw_zpack_writer *w, const char *key, const char *value, sw_err *err)
{
    sw_code rc;

    if ((rc = add_text(&w->meta, key, 2, err)) != SW_OK) return rc;
    if ((rc = add_text(&w->meta, value, 4, err)) != SW_OK) return rc;
    w->n_meta++;
    return SW_OK;
}

/* One frame at the end of the file; *n_out is its size. */
static sw_code append(sw_zpack_writer *w, const void *data, size_t n_bytes, uint64_t *n_out,
                      sw_err *err)
{
    size_t room = ZSTD_compressBound(n_bytes), n;
    unsigned char *frame = NULL;
    sw_code rc = SW_MEM_GET(&frame, room, "compressed tensor", err);

    if (rc != SW_OK) return rc;
    n = ZSTD_compressCCtx(w->zstd, frame, room, data, n_bytes, LEVEL);
    if (ZSTD_isError(n))
        rc = SW_FAIL(err, SW_E_NOMEM, "cannot compress %zu bytes: %s", n_bytes,
                     ZSTD_getErrorName(n));
    else
        rc = sw_out_write_at(&w->file, w->at, frame, n, err);
    sw_mem_put(frame);
    if (rc != SW_OK) return rc;
    w->at += n;
    *n_out = n;
    return SW_OK;
}

static sw_code add_entry(bytes *b, const char *name, sw_dtype dtype, int32_t n_dims,
                         const int64_t *shape, uint64_t frame_bytes, const char *sha256,
                         sw_err *err)
{
    sw_code rc;

    if ((rc = add_text(b, name, 2, err)) != SW_OK ||
        (rc = add_text(b, sw_dtype_name(dtype), 1, err)) != SW_OK ||
        (rc = add_number(b, (uint64_t)n_dims, 1, err)) != SW_OK)
        return rc;
    for (int32_t i = 0; i < n_dims; i++)
        if ((rc = add_number(b, (uint64_t)shape[i], 8, err)) != SW_OK) return rc;
    if ((rc = add_number(b, frame_bytes, 8, err)) != SW_OK) return rc;
    return add(b, sha256, SW_SHA256_HEX_BYTES - 1, err);
}

sw_code sw_zpack_writer_put(sw_zpack_writer *w, const char *name, sw_dtype dtype, int32_t n_dims,
                            const int64_t *shape, const void *data, size_t n_bytes, sw_err *err)
{
    size_t elem_bytes = (size_t)sw_dtype_bits(dtype) / 8;
    unsigned char *planes = NULL;
    char sha256[SW_SHA256_HEX_BYTES];
    uint64_t want = 0, frame_bytes = 0;
    sw_code rc;

    if ((rc = sw_shape_bytes(&want, dtype, n_dims, shape, err)) != SW_OK) return rc;
    if (want != n_bytes || elem_bytes == 0)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\": %zu bytes for %llu", name, n_bytes,
                       (unsigned long long)want);
    if ((rc = sw_sha256_hex(sha256, data, n_bytes, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&planes, n_bytes, "tensor to compress", err)) != SW_OK) return rc;
    sw_to_planes(planes, data, n_bytes / elem_bytes, elem_bytes);
    rc = append(w, planes, n_bytes, &frame_bytes, err);
    sw_mem_put(planes);
    if (rc != SW_OK) return rc;
    rc = add_entry(&w->tensors, name, dtype, n_dims, shape, frame_bytes, sha256, err);
    if (rc == SW_OK) w->n_tensors++;
    return rc;
}

static sw_code join_directory(bytes *out, const sw_zpack_writer *w, sw_err *err)
{
    sw_code rc;

    if ((rc = add_number(out, w->n_meta, 4, err)) != SW_OK ||
        (rc = add_number(out, w->n_tensors, 4, err)) != SW_OK)
        return rc;
    if (w->n_meta && (rc = add(out, w->meta.at, w->meta.n, err)) != SW_OK) return rc;
    return w->n_tensors ? add(out, w->tensors.at, w->tensors.n, err) : SW_OK;
}

sw_code sw_zpack_writer_commit(sw_zpack_writer *w, sw_err *err)
{
    unsigned char trailer[SW_ZPACK_TRAILER_BYTES];
    char sha256[SW_SHA256_HEX_BYTES];
    uint64_t begin = w->at, frame_bytes = 0;
    bytes all = {0};
    sw_code rc;

    if ((rc = join_directory(&all, w, err)) != SW_OK) goto done;
    if ((rc = sw_sha256_hex(sha256, all.at, all.n, err)) != SW_OK) goto done;
    if ((rc = append(w, all.at, all.n, &frame_bytes, err)) != SW_OK) goto done;
    sw_store_le64(trailer, begin);
    sw_store_le64(trailer + 8, frame_bytes);
    sw_store_le64(trailer + 16, all.n);
    memcpy(trailer + 24, sha256, SW_SHA256_HEX_BYTES - 1);
    rc = sw_out_write_at(&w->file, w->at, trailer, sizeof trailer, err);
    if (rc == SW_OK) rc = sw_out_commit(&w->file, err);
done:
    sw_mem_put(all.at);
    return rc;
}

uint64_t sw_zpack_writer_bytes(const sw_zpack_writer *w) { return w->at; }
