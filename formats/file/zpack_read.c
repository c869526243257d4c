/* zpack_read.c - the reading half of zpack.h. No byte is believed before it is checked. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/file/zpack.h"

typedef struct meta_entry {
    const char *key, *value;
} meta_entry;

struct sw_zpack {
    sw_map map; /* zeroed when the bytes are borrowed */
    const unsigned char *bytes;
    const char *what;
    sw_arena arena;
    meta_entry *meta;
    uint32_t n_meta;
    sw_zpack_tensor *tensors; /* in name order */
    int64_t n_tensors;
    char sha256[SW_SHA256_HEX_BYTES];
};

/* The directory as it is read: everything left of `at` is used up. */
typedef struct cursor {
    const unsigned char *at;
    size_t left;
    sw_zpack *z;
    sw_err *err;
} cursor;

static sw_code take(const unsigned char **out, cursor *c, size_t n)
{
    if (n > c->left)
        return SW_FAIL(c->err, SW_E_FORMAT, "%s: its directory ends too early", c->z->what);
    *out = c->at;
    c->at += n;
    c->left -= n;
    return SW_OK;
}

static sw_code take_number(uint64_t *out, cursor *c, size_t n_bytes)
{
    unsigned char raw[8] = {0};
    const unsigned char *from = NULL;
    sw_code rc = take(&from, c, n_bytes);

    if (rc != SW_OK) return rc;
    memcpy(raw, from, n_bytes);
    *out = sw_load_le64(raw);
    return SW_OK;
}

static sw_code take_text(const char **out, cursor *c, size_t length_bytes)
{
    const unsigned char *from = NULL;
    size_t bad_at;
    uint64_t n = 0;
    char *copy;
    sw_code rc;

    if ((rc = take_number(&n, c, length_bytes)) != SW_OK) return rc;
    if ((rc = take(&from, c, (size_t)n)) != SW_OK) return rc;
    if (memchr(from, 0, (size_t)n) || !sw_utf8_is_valid((const char *)from, (size_t)n, &bad_at))
        return SW_FAIL(c->err, SW_E_FORMAT, "%s: its directory holds text that is not UTF-8",
                       c->z->what);
    rc = sw_arena_text(&copy, &c->z->arena, (const char *)from, (size_t)n, c->err);
    if (rc == SW_OK) *out = copy;
    return rc;
}

static bool is_hex(const unsigned char *p)
{
    for (int i = 0; i < SW_SHA256_HEX_BYTES - 1; i++)
        if (!(p[i] >= '0' && p[i] <= '9') && !(p[i] >= 'a' && p[i] <= 'f')) return false;
    return true;
}

static sw_code take_shape(sw_zpack_tensor *t, cursor *c)
{
    const char *dtype = NULL;
    uint64_t n = 0;
    sw_code rc;

    if ((rc = take_text(&dtype, c, 1)) != SW_OK) return rc;
    if (!sw_dtype_find(&t->dtype, dtype, strlen(dtype)) || sw_dtype_bits(t->dtype) % 8)
        return SW_FAIL(c->err, SW_E_FORMAT, "%s: tensor \"%.200s\": unknown type \"%.40s\"",
                       c->z->what, t->name, dtype);
    if ((rc = take_number(&n, c, 1)) != SW_OK) return rc;
    if (n > SW_DIMS_MAX)
        return SW_FAIL(c->err, SW_E_FORMAT, "%s: tensor \"%.200s\": %llu dimensions", c->z->what,
                       t->name, (unsigned long long)n);
    t->n_dims = (int32_t)n;
    for (int32_t i = 0; i < t->n_dims; i++) {
        if ((rc = take_number(&n, c, 8)) != SW_OK) return rc;
        t->shape[i] = n > INT64_MAX ? -1 : (int64_t)n;
    }
    rc = sw_shape_bytes(&t->raw_bytes, t->dtype, t->n_dims, t->shape, c->err);
    if (rc != SW_OK) sw_err_prefix(c->err, "%s: tensor \"%.200s\"", c->z->what, t->name);
    return rc;
}

/* A tensor whose frame begins at *offset and must end by `end`. */
static sw_code take_tensor(sw_zpack_tensor *t, cursor *c, uint64_t *offset, uint64_t end)
{
    const unsigned char *digest = NULL;
    sw_code rc;

    if ((rc = take_text(&t->name, c, 2)) != SW_OK) return rc;
    if ((rc = take_shape(t, c)) != SW_OK) return rc;
    if ((rc = take_number(&t->frame_bytes, c, 8)) != SW_OK) return rc;
    if ((rc = take(&digest, c, SW_SHA256_HEX_BYTES - 1)) != SW_OK) return rc;
    if (t->frame_bytes > end - *offset || !is_hex(digest))
        return SW_FAIL(c->err, SW_E_FORMAT, "%s: tensor \"%.200s\" lies outside the file",
                       c->z->what, t->name);
    memcpy(t->sha256, digest, SW_SHA256_HEX_BYTES - 1);
    t->frame_offset = *offset;
    *offset += t->frame_bytes;
    return SW_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const sw_zpack_tensor *)a)->name, ((const sw_zpack_tensor *)b)->name);
}

static sw_code sort_tensors(sw_zpack *z, sw_err *err)
{
    if (z->n_tensors)
        qsort(z->tensors, (size_t)z->n_tensors, sizeof *z->tensors, compare_names);
    for (int64_t i = 1; i < z->n_tensors; i++)
        if (!strcmp(z->tensors[i - 1].name, z->tensors[i].name))
            return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%.200s\" is there twice", z->what,
                           z->tensors[i].name);
    return SW_OK;
}

static sw_code parse_directory(sw_zpack *z, const unsigned char *raw, size_t n_bytes,
                               uint64_t end, sw_err *err)
{
    cursor c = {raw, n_bytes, z, err};
    uint64_t n_meta = 0, n_tensors = 0, offset = SW_ZPACK_MAGIC_BYTES;
    sw_code rc;

    if ((rc = take_number(&n_meta, &c, 4)) != SW_OK) return rc;
    if ((rc = take_number(&n_tensors, &c, 4)) != SW_OK) return rc;
    /* an entry takes at least its fixed part, so the counts cannot ask for more than is there */
    if (n_meta > c.left / 6 || n_tensors > c.left / 76)
        return SW_FAIL(err, SW_E_FORMAT, "%s: its directory ends too early", z->what);
    if ((rc = SW_ARENA_TAKE(&z->meta, &z->arena, (int64_t)n_meta, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&z->tensors, &z->arena, (int64_t)n_tensors, err)) != SW_OK)
        return rc;
    for (; z->n_meta < n_meta; z->n_meta++)
        if ((rc = take_text(&z->meta[z->n_meta].key, &c, 2)) != SW_OK ||
            (rc = take_text(&z->meta[z->n_meta].value, &c, 4)) != SW_OK)
            return rc;
    for (; z->n_tensors < (int64_t)n_tensors; z->n_tensors++)
        if ((rc = take_tensor(&z->tensors[z->n_tensors], &c, &offset, end)) != SW_OK) return rc;
    if (c.left || offset != end)
        return SW_FAIL(err, SW_E_FORMAT, "%s: holds bytes that belong to no tensor", z->what);
    return sort_tensors(z, err);
}

/* A whole zstd frame that must give exactly n_out bytes. */
static bool inflate(void *out, size_t n_out, const unsigned char *frame, uint64_t n_frame)
{
    if (ZSTD_getFrameContentSize(frame, (size_t)n_frame) != n_out) return false;
    if (ZSTD_findFrameCompressedSize(frame, (size_t)n_frame) != n_frame) return false;
    return ZSTD_decompress(out, n_out, frame, (size_t)n_frame) == n_out;
}

static sw_code read_directory(sw_zpack *z, size_t n_bytes, sw_err *err)
{
    const unsigned char *trailer = z->bytes + n_bytes - SW_ZPACK_TRAILER_BYTES;
    uint64_t begin = sw_load_le64(trailer), n_frame = sw_load_le64(trailer + 8);
    uint64_t n_raw = sw_load_le64(trailer + 16);
    unsigned char *raw = NULL;
    sw_code rc;

    if (begin < SW_ZPACK_MAGIC_BYTES || begin > n_bytes - SW_ZPACK_TRAILER_BYTES ||
        n_frame != n_bytes - SW_ZPACK_TRAILER_BYTES - begin ||
        n_raw > SW_ZPACK_DIRECTORY_MAX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: cut short, or damaged at its end", z->what);
    if (ZSTD_getFrameContentSize(z->bytes + begin, (size_t)n_frame) != n_raw)
        return SW_FAIL(err, SW_E_FORMAT, "%s: its directory is damaged", z->what);
    if ((rc = SW_MEM_GET(&raw, n_raw, "directory", err)) != SW_OK) return rc;
    if (!inflate(raw, (size_t)n_raw, z->bytes + begin, n_frame)) {
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: its directory is damaged", z->what);
        goto done;
    }
    if ((rc = sw_sha256_hex(z->sha256, raw, (size_t)n_raw, err)) != SW_OK) goto done;
    if (memcmp(z->sha256, trailer + 24, SW_SHA256_HEX_BYTES - 1) != 0) {
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: its directory is damaged", z->what);
        goto done;
    }
    rc = parse_directory(z, raw, (size_t)n_raw, begin, err);
done:
    sw_mem_put(raw);
    return rc;
}

static sw_code open_mapped(sw_zpack *z, size_t n_bytes, const char *what, sw_err *err)
{
    char *copy;
    sw_code rc = sw_arena_text(&copy, &z->arena, what, strlen(what), err);

    if (rc != SW_OK) return rc;
    z->what = copy;
    if (n_bytes < SW_ZPACK_MAGIC_BYTES ||
        memcmp(z->bytes, SW_ZPACK_MAGIC, SW_ZPACK_MAGIC_BYTES) != 0)
        return SW_FAIL(err, SW_E_FORMAT, "%s: not a file of this kind (it does not begin with "
                       SW_ZPACK_MAGIC ")", what);
    if (n_bytes < SW_ZPACK_MAGIC_BYTES + SW_ZPACK_TRAILER_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: cut short, or damaged at its end", what);
    return read_directory(z, n_bytes, err);
}

sw_code sw_zpack_open_bytes(sw_zpack **out, const void *bytes, size_t n_bytes, const char *what,
                            sw_err *err)
{
    sw_zpack *z = NULL;
    sw_code rc = SW_MEM_GET(&z, 1, "file", err);

    if (rc != SW_OK) return rc;
    z->bytes = bytes;
    if ((rc = open_mapped(z, n_bytes, what, err)) != SW_OK)
        sw_zpack_close(z);
    else
        *out = z;
    return rc;
}

sw_code sw_zpack_open(sw_zpack **out, const char *path, sw_err *err)
{
    sw_zpack *z = NULL;
    sw_map map = {0};
    sw_code rc = sw_map_open(&map, path, err);

    if (rc == SW_OK) rc = sw_zpack_open_bytes(&z, map.data, map.size_bytes, path, err);
    if (rc != SW_OK) {
        sw_map_close(&map);
        return rc;
    }
    z->map = map;
    *out = z;
    return SW_OK;
}

void sw_zpack_close(sw_zpack *z)
{
    if (!z) return;
    sw_map_close(&z->map);
    sw_arena_free(&z->arena);
    sw_mem_put(z);
}

int64_t sw_zpack_count(const sw_zpack *z) { return z->n_tensors; }

const sw_zpack_tensor *sw_zpack_at(const sw_zpack *z, int64_t i) { return &z->tensors[i]; }

const sw_zpack_tensor *sw_zpack_find(const sw_zpack *z, const char *name)
{
    sw_zpack_tensor key = {.name = name};

    if (!z->n_tensors) return NULL;
    return bsearch(&key, z->tensors, (size_t)z->n_tensors, sizeof *z->tensors, compare_names);
}

const char *sw_zpack_meta(const sw_zpack *z, const char *key)
{
    for (uint32_t i = 0; i < z->n_meta; i++)
        if (!strcmp(z->meta[i].key, key)) return z->meta[i].value;
    return NULL;
}

const char *sw_zpack_sha256(const sw_zpack *z) { return z->sha256; }

sw_code sw_zpack_load(void *out, const sw_zpack *z, const sw_zpack_tensor *t, sw_err *err)
{
    size_t elem_bytes = (size_t)sw_dtype_bits(t->dtype) / 8, n = (size_t)t->raw_bytes;
    char sha256[SW_SHA256_HEX_BYTES] = "";
    unsigned char *planes = NULL;
    sw_code rc = SW_MEM_GET(&planes, n, "compressed tensor", err);

    if (rc != SW_OK) return rc;
    if (inflate(planes, n, z->bytes + t->frame_offset, t->frame_bytes)) {
        sw_from_planes(out, planes, n / elem_bytes, elem_bytes);
        rc = sw_sha256_hex(sha256, out, n, err);
    }
    sw_mem_put(planes);
    if (z->map.is_mapped) sw_map_forget(z->bytes + t->frame_offset, (size_t)t->frame_bytes);
    if (rc == SW_OK && memcmp(sha256, t->sha256, SW_SHA256_HEX_BYTES) != 0)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%.200s\" is damaged", z->what, t->name);
    return rc;
}
