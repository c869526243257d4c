/* pt_build.c - see pt_build.h. */
#include "tests/support/toys/pt_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"

void pt_put(pt_bytes *b, const void *bytes, size_t n)
{
    if (b->n + n > b->room) {
        b->room = 2 * b->room + n + 256;
        b->at = realloc(b->at, b->room);
        assert_non_null(b->at);
    }
    if (n) memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

void pt_text(pt_bytes *b, const char *text) { pt_put(b, text, strlen(text)); }

void pt_free(pt_bytes *b)
{
    free(b->at);
    memset(b, 0, sizeof *b);
}

static void put_le(pt_bytes *b, uint64_t v, size_t n)
{
    unsigned char wide[8];

    sw_store_le64(wide, v);
    pt_put(b, wide, n);
}

void pt_string(pt_bytes *p, const char *text)
{
    pt_text(p, "X");
    put_le(p, strlen(text), 4);
    pt_text(p, text);
}

void pt_int(pt_bytes *p, int64_t v)
{
    if (v >= 0 && v < 256) {
        pt_text(p, "K");
        put_le(p, (uint64_t)v, 1);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        pt_text(p, "J");
        put_le(p, (uint64_t)v, 4);
    } else {
        pt_text(p, "\x8a\x08");
        put_le(p, (uint64_t)v, 8);
    }
}

void pt_global(pt_bytes *p, const char *module, const char *name)
{
    pt_text(p, "c");
    pt_text(p, module);
    pt_text(p, "\n");
    pt_text(p, name);
    pt_text(p, "\n");
}

static void put_numbers(pt_bytes *p, int32_t n, const int64_t *values)
{
    pt_text(p, "(");
    for (int32_t i = 0; i < n; i++) pt_int(p, values[i]);
    pt_text(p, "t");
}

void pt_tensor(pt_bytes *p, const char *type, const char *key, int64_t n_elems, int64_t first,
               int32_t n_dims, const int64_t *shape, const int64_t *strides)
{
    char storage[64];

    (void)snprintf(storage, sizeof storage, "%sStorage", type);
    pt_global(p, "torch._utils", "_rebuild_tensor_v2");
    pt_text(p, "((");
    pt_string(p, "storage");
    pt_global(p, "torch", storage);
    pt_string(p, key);
    pt_string(p, "cpu");
    pt_int(p, n_elems);
    pt_text(p, "tQ");
    pt_int(p, first);
    put_numbers(p, n_dims, shape);
    put_numbers(p, n_dims, strides);
    pt_text(p, "\x89"); /* requires_grad */
    pt_global(p, "collections", "OrderedDict");
    pt_text(p, ")RtR");
}

const char *pt_storage_type(sw_dtype dtype)
{
    static const struct { sw_dtype dtype; const char *type; } rows[] = {
        {SW_DTYPE_F64, "Double"}, {SW_DTYPE_F32, "Float"}, {SW_DTYPE_F16, "Half"},
        {SW_DTYPE_BF16, "BFloat16"}, {SW_DTYPE_I64, "Long"}, {SW_DTYPE_I32, "Int"},
        {SW_DTYPE_I16, "Short"}, {SW_DTYPE_I8, "Char"}, {SW_DTYPE_U8, "Byte"},
        {SW_DTYPE_BOOL, "Bool"}, {SW_DTYPE_C64, "ComplexFloat"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype) return rows[i].type;
    return NULL;
}

/* What local header and directory entry share: version, flags, method, time, crc and sizes. */
static void put_common(pt_bytes *b, const pt_zip *z, int method, size_t n, int is_local)
{
    int is_late = is_local && (z->flags & PT_DESCRIPTOR);

    put_le(b, 0, 2);
    put_le(b, z->flags & PT_DESCRIPTOR ? 0x0808 : 0, 2);
    put_le(b, (uint64_t)method, 2);
    put_le(b, 0, 8);
    put_le(b, is_late ? 0 : !is_local && z->flags & PT_ZIP64 ? 0xffffffff : n, 4);
    put_le(b, is_late ? 0 : !is_local && z->flags & PT_ZIP64 ? 0xffffffff : n, 4);
    /* the caller adds the length of the name */
}

void pt_zip_add(pt_zip *z, const char *name, const void *data, size_t n, int method)
{
    size_t local = z->bytes.n, n_name = strlen(name);
    size_t pad = (64 - (local + 30 + n_name + 4) % 64) % 64;
    static const unsigned char zeros[64];

    pt_text(&z->bytes, "PK\3\4");
    put_common(&z->bytes, z, method, n, 1);
    put_le(&z->bytes, n_name, 2);
    put_le(&z->bytes, 4 + pad, 2);
    pt_text(&z->bytes, name);
    pt_text(&z->bytes, "FB");
    put_le(&z->bytes, pad, 2);
    pt_put(&z->bytes, zeros, pad);
    pt_put(&z->bytes, data, n);
    pt_text(&z->directory, "PK\1\2");
    put_le(&z->directory, 0, 2);
    put_common(&z->directory, z, method, n, 0);
    put_le(&z->directory, n_name, 2);
    put_le(&z->directory, z->flags & PT_ZIP64 ? 28 : 0, 2);
    pt_put(&z->directory, zeros, 10); /* comment, disk, attributes */
    put_le(&z->directory, z->flags & PT_ZIP64 ? 0xffffffff : local, 4);
    pt_text(&z->directory, name);
    if (z->flags & PT_ZIP64) {
        put_le(&z->directory, 1, 2);
        put_le(&z->directory, 24, 2);
        put_le(&z->directory, n, 8);
        put_le(&z->directory, n, 8);
        put_le(&z->directory, local, 8);
    }
    z->n_entries++;
}

void pt_zip_end(pt_zip *z)
{
    size_t at = z->bytes.n, n = z->directory.n, end64;
    int is_wide = z->flags & PT_ZIP64;

    pt_put(&z->bytes, z->directory.at, n);
    end64 = z->bytes.n;
    if (is_wide) {
        pt_text(&z->bytes, "PK\6\6");
        put_le(&z->bytes, 44, 8);
        put_le(&z->bytes, 0, 8);
        put_le(&z->bytes, 0, 4);
        put_le(&z->bytes, (uint64_t)z->n_entries, 8);
        put_le(&z->bytes, (uint64_t)z->n_entries, 8);
        put_le(&z->bytes, n, 8);
        put_le(&z->bytes, at, 8);
        pt_text(&z->bytes, "PK\6\7");
        put_le(&z->bytes, 0, 4);
        put_le(&z->bytes, end64, 8);
        put_le(&z->bytes, 1, 4);
    }
    pt_text(&z->bytes, "PK\5\6");
    put_le(&z->bytes, 0, 4);
    put_le(&z->bytes, is_wide ? 0xffff : (uint64_t)z->n_entries, 2);
    put_le(&z->bytes, is_wide ? 0xffff : (uint64_t)z->n_entries, 2);
    put_le(&z->bytes, is_wide ? 0xffffffff : n, 4);
    put_le(&z->bytes, is_wide ? 0xffffffff : at, 4);
    put_le(&z->bytes, 0, 2);
}

void pt_zip_free(pt_zip *z)
{
    pt_free(&z->bytes);
    pt_free(&z->directory);
    memset(z, 0, sizeof *z);
}

void pt_zip_pickle(pt_zip *z, const pt_bytes *items)
{
    pt_bytes pickle = {.n = 0};

    pt_text(&pickle, "\x80\x02}q");
    put_le(&pickle, 0, 1);
    pt_text(&pickle, "(");
    pt_put(&pickle, items->at, items->n);
    pt_text(&pickle, "u.");
    pt_zip_add(z, "archive/data.pkl", pickle.at, pickle.n, 0);
    pt_zip_add(z, "archive/byteorder", "little", 6, 0);
    pt_zip_add(z, "archive/version", "3\n", 2, 0);
    pt_free(&pickle);
}
