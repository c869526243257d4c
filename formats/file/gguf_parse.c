/* gguf_parse.c - one GGUF file: every rule of its layout, before any byte is used. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/file/gguf_internal.h"

#define MAGIC 0x46554747u /* "GGUF" */
#define NEST_MAX 4        /* arrays in arrays */
#define SWAPPED(v) __builtin_bswap32(v)

static const struct {
    const char *name;
    int bytes;
} kinds[SW_GGUF_KIND_COUNT] = {
    [SW_GGUF_U8] = {"u8", 1},     [SW_GGUF_I8] = {"i8", 1},      [SW_GGUF_U16] = {"u16", 2},
    [SW_GGUF_I16] = {"i16", 2},   [SW_GGUF_U32] = {"u32", 4},    [SW_GGUF_I32] = {"i32", 4},
    [SW_GGUF_F32] = {"f32", 4},   [SW_GGUF_BOOL] = {"bool", 1},  [SW_GGUF_TEXT] = {"string", 0},
    [SW_GGUF_ARRAY] = {"array", 0}, [SW_GGUF_U64] = {"u64", 8},  [SW_GGUF_I64] = {"i64", 8},
    [SW_GGUF_F64] = {"f64", 8},
};

const char *sw_gguf_kind_name(sw_gguf_kind kind) { return kinds[kind].name; }
int sw_gguf_kind_bytes(sw_gguf_kind kind) { return kinds[kind].bytes; }

/* What is left to read. */
typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static sw_code ended(const char *what, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "the file ends inside %s; it is truncated", what);
}

static sw_code take(const unsigned char **out, cursor *c, uint64_t n, const char *what, sw_err *err)
{
    if (n > (uint64_t)(c->end - c->at)) return ended(what, err);
    *out = c->at;
    c->at += n;
    return SW_OK;
}

static sw_code take_u32(uint32_t *out, cursor *c, const char *what, sw_err *err)
{
    const unsigned char *p = NULL;
    sw_code rc = take(&p, c, 4, what, err);

    if (rc == SW_OK) *out = sw_load_le32(p);
    return rc;
}

static sw_code take_u64(uint64_t *out, cursor *c, const char *what, sw_err *err)
{
    const unsigned char *p = NULL;
    sw_code rc = take(&p, c, 8, what, err);

    if (rc == SW_OK) *out = sw_load_le64(p);
    return rc;
}

/* A key or a name: short UTF-8 without zero bytes, as a copy that ends in one. */
static sw_code take_name(const char **out, cursor *c, uint64_t max_bytes, const char *what,
                         sw_arena *arena, sw_err *err)
{
    const unsigned char *p = NULL;
    uint64_t n = 0;
    size_t bad_at = 0;
    char *copy = NULL;
    sw_code rc;

    if ((rc = take_u64(&n, c, what, err)) != SW_OK) return rc;
    if (n < 1 || n > max_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "%s of %" PRIu64 " bytes; 1 to %" PRIu64 " are allowed",
                       what, n, max_bytes);
    if ((rc = take(&p, c, n, what, err)) != SW_OK) return rc;
    if (memchr(p, 0, (size_t)n) || !sw_utf8_is_valid((const char *)p, (size_t)n, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "%s is not UTF-8 text", what);
    if ((rc = sw_arena_text(&copy, arena, (const char *)p, (size_t)n, err)) == SW_OK) *out = copy;
    return rc;
}

static sw_code take_kind(sw_gguf_kind *out, cursor *c, sw_err *err)
{
    uint32_t kind = 0;
    sw_code rc = take_u32(&kind, c, "a value", err);

    if (rc != SW_OK) return rc;
    if (kind >= SW_GGUF_KIND_COUNT)
        return SW_FAIL(err, SW_E_FORMAT, "value of type %u, which does not exist", kind);
    *out = (sw_gguf_kind)kind;
    return SW_OK;
}

static sw_code check_bools(const unsigned char *p, uint64_t n, sw_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return SW_FAIL(err, SW_E_FORMAT, "a boolean is %u; only 0 and 1 are", (unsigned)p[i]);
    return SW_OK;
}

/* Text is passed over; whether it is UTF-8 matters to who uses it. */
static sw_code skip_texts(cursor *c, uint64_t n, sw_err *err)
{
    const unsigned char *p;
    uint64_t n_bytes = 0;
    sw_code rc = SW_OK;

    if (n > (uint64_t)(c->end - c->at) / 8) return ended("an array", err);
    for (uint64_t i = 0; i < n && rc == SW_OK; i++)
        if ((rc = take_u64(&n_bytes, c, "an array", err)) == SW_OK)
            rc = take(&p, c, n_bytes, "an array", err);
    return rc;
}

static sw_code take_array(sw_gguf_value *out, cursor *c, int depth, sw_err *err)
{
    const unsigned char *p = NULL;
    uint64_t n_bytes = 0;
    sw_code rc;

    if (depth > NEST_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "arrays nested more than %d deep", NEST_MAX);
    if ((rc = take_kind(&out->elem_kind, c, err)) != SW_OK) return rc;
    if ((rc = take_u64(&out->n, c, "an array", err)) != SW_OK) return rc;
    out->data = c->at;
    if (out->elem_kind == SW_GGUF_TEXT) return skip_texts(c, out->n, err);
    if (out->elem_kind == SW_GGUF_ARRAY) {
        if (out->n > (uint64_t)(c->end - c->at) / 12) return ended("an array", err);
        for (uint64_t i = 0; i < out->n && rc == SW_OK; i++) {
            sw_gguf_value inner;
            rc = take_array(&inner, c, depth + 1, err);
        }
        return rc;
    }
    if (!sw_mul_u64(&n_bytes, out->n, (uint64_t)kinds[out->elem_kind].bytes))
        return SW_FAIL(err, SW_E_FORMAT, "array of %" PRIu64 " elements", out->n);
    if ((rc = take(&p, c, n_bytes, "an array", err)) != SW_OK) return rc;
    return out->elem_kind == SW_GGUF_BOOL ? check_bools(p, out->n, err) : SW_OK;
}

static sw_code take_value(sw_gguf_value *out, cursor *c, sw_err *err)
{
    sw_code rc = take_kind(&out->kind, c, err);

    if (rc != SW_OK) return rc;
    out->n = 1;
    if (out->kind == SW_GGUF_ARRAY) {
        rc = take_array(out, c, 1, err);
        out->n_bytes = rc == SW_OK ? (uint64_t)(c->at - out->data) : 0;
        return rc;
    }
    if (out->kind == SW_GGUF_TEXT) {
        if ((rc = take_u64(&out->n, c, "a text", err)) != SW_OK) return rc;
        out->n_bytes = out->n;
        return take(&out->data, c, out->n, "a text", err);
    }
    out->n_bytes = (uint64_t)kinds[out->kind].bytes;
    rc = take(&out->data, c, out->n_bytes, "a number", err);
    return rc == SW_OK && out->kind == SW_GGUF_BOOL ? check_bools(out->data, 1, err) : rc;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const sw_gguf_value *)a)->key, ((const sw_gguf_value *)b)->key);
}

static sw_code take_keys(sw_gguf_part *out, cursor *c, uint64_t n, sw_arena *arena, sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(&out->keys, arena, n, err);

    for (uint64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_gguf_value *v = &out->keys[i];

        if ((rc = take_name(&v->key, c, SW_GGUF_KEY_BYTES_MAX, "a key", arena, err)) != SW_OK ||
            (rc = take_value(v, c, err)) != SW_OK)
            sw_err_prefix(err, "key %" PRIu64 "%s%.200s", i + 1, v->key ? ", " : "",
                          v->key ? v->key : "");
    }
    if (rc != SW_OK) return rc;
    out->n_keys = (int64_t)n;
    if (n) qsort(out->keys, (size_t)n, sizeof *out->keys, compare_keys);
    for (uint64_t i = 1; i < n; i++)
        if (!strcmp(out->keys[i - 1].key, out->keys[i].key))
            return SW_FAIL(err, SW_E_FORMAT, "key \"%.200s\" is there twice", out->keys[i].key);
    return SW_OK;
}

/* dims come innermost first; the shape is outermost first. */
static sw_code take_shape(sw_gguf_tensor *t, cursor *c, sw_err *err)
{
    uint32_t n_dims = 0;
    sw_code rc = take_u32(&n_dims, c, "a tensor", err);

    if (rc != SW_OK) return rc;
    if (n_dims < 1 || n_dims > SW_GGUF_DIMS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%u dimensions; 1 to %d are allowed", n_dims,
                       SW_GGUF_DIMS_MAX);
    t->n_dims = (int32_t)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim = 0;

        if ((rc = take_u64(&dim, c, "a tensor", err)) != SW_OK) return rc;
        if (dim < 1 || dim > (uint64_t)INT64_MAX)
            return SW_FAIL(err, SW_E_FORMAT, "a dimension of %" PRIu64, dim);
        t->shape[n_dims - 1 - i] = (int64_t)dim;
    }
    return SW_OK;
}

static sw_code size_of(sw_gguf_tensor *t, sw_err *err)
{
    const sw_block_size *size = &sw_block_sizes[t->type];
    uint64_t n = 1;

    if (t->shape[t->n_dims - 1] % size->elems)
        return SW_FAIL(err, SW_E_FORMAT, "rows of %" PRId64 " elements are no whole blocks of %s, "
                       "which have %d", t->shape[t->n_dims - 1], size->name, (int)size->elems);
    for (int32_t i = 0; i < t->n_dims; i++)
        if (!sw_mul_u64(&n, n, (uint64_t)t->shape[i])) n = UINT64_MAX;
    if (n >= UINT64_MAX / 4 || !sw_mul_u64(&t->size_bytes, n / (uint64_t)size->elems,
                                           (uint64_t)size->bytes) ||
        t->size_bytes > (uint64_t)INT64_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "its dimensions multiply to more than any file holds");
    return SW_OK;
}

/* Until the data section is known, `data` holds nothing and the offset is kept beside. */
static sw_code take_tensor(sw_gguf_tensor *t, uint64_t *offset, cursor *c, uint64_t align,
                           sw_arena *arena, sw_err *err)
{
    uint32_t type = 0;
    sw_code rc = take_name(&t->name, c, SW_GGUF_NAME_BYTES_MAX, "a tensor's name", arena, err);

    if (rc != SW_OK) return rc;
    if ((rc = take_shape(t, c, err)) != SW_OK ||
        (rc = take_u32(&type, c, "a tensor", err)) != SW_OK ||
        (rc = take_u64(offset, c, "a tensor", err)) != SW_OK ||
        (rc = sw_block_type_by_id(&t->type, type, err)) != SW_OK)
        return rc;
    if (*offset % align)
        return SW_FAIL(err, SW_E_FORMAT, "offset %" PRIu64 " is no multiple of the alignment %"
                       PRIu64, *offset, align);
    return size_of(t, err);
}

static sw_code read_align(uint64_t *out, const sw_gguf_part *part, sw_err *err)
{
    sw_gguf_value name = {.key = SW_GGUF_ALIGN_KEY};
    const sw_gguf_value *v = part->n_keys ? bsearch(&name, part->keys, (size_t)part->n_keys,
                                                    sizeof name, compare_keys) : NULL;
    uint64_t align = SW_GGUF_ALIGN_DEFAULT;

    if (v && v->kind != SW_GGUF_U32)
        return SW_FAIL(err, SW_E_FORMAT, SW_GGUF_ALIGN_KEY " is of type %s, must be u32",
                       kinds[v->kind].name);
    if (v) align = sw_load_le32(v->data);
    if (align < SW_GGUF_ALIGN_MIN || (align & (align - 1)) || align > SW_GGUF_ALIGN_MAX)
        return SW_FAIL(err, SW_E_FORMAT, SW_GGUF_ALIGN_KEY " is %" PRIu64 ", must be a power of "
                       "two from %d to %" PRIu64, align, SW_GGUF_ALIGN_MIN, SW_GGUF_ALIGN_MAX);
    *out = align;
    return SW_OK;
}

int sw_gguf_compare_tensors(const void *a, const void *b)
{
    return strcmp(((const sw_gguf_tensor *)a)->name, ((const sw_gguf_tensor *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
    const unsigned char *x = ((const sw_gguf_tensor *)a)->data;
    const unsigned char *y = ((const sw_gguf_tensor *)b)->data;

    return x < y ? -1 : x > y;
}

static sw_code refuse_overlaps(sw_gguf_part *part, sw_err *err)
{
    if (!part->n_tensors) return SW_OK;
    qsort(part->tensors, (size_t)part->n_tensors, sizeof *part->tensors, compare_places);
    for (int64_t i = 1; i < part->n_tensors; i++) {
        const sw_gguf_tensor *a = &part->tensors[i - 1], *b = &part->tensors[i];

        if ((const unsigned char *)a->data + a->size_bytes > (const unsigned char *)b->data)
            return SW_FAIL(err, SW_E_FORMAT, "tensors \"%.200s\" and \"%.200s\" overlap", a->name,
                           b->name);
    }
    qsort(part->tensors, (size_t)part->n_tensors, sizeof *part->tensors, sw_gguf_compare_tensors);
    for (int64_t i = 1; i < part->n_tensors; i++)
        if (!strcmp(part->tensors[i - 1].name, part->tensors[i].name))
            return SW_FAIL(err, SW_E_FORMAT, "tensor \"%.200s\" is there twice",
                           part->tensors[i].name);
    return SW_OK;
}

static sw_code place(sw_gguf_part *part, const uint64_t *offsets, const unsigned char *begin,
                     const cursor *c, uint64_t align, sw_err *err)
{
    const uint64_t n_header = (uint64_t)(c->at - begin), n_file = (uint64_t)(c->end - begin);
    const uint64_t data_at = (n_header + align - 1) / align * align;

    for (int64_t i = 0; i < part->n_tensors; i++) {
        sw_gguf_tensor *t = &part->tensors[i];
        uint64_t end = 0;

        if (data_at > n_file || !sw_add_u64(&end, offsets[i], t->size_bytes) ||
            end > n_file - data_at)
            return SW_FAIL(err, SW_E_FORMAT, "tensor \"%.200s\" of %" PRIu64 " bytes at %" PRIu64
                           " ends beyond the file, which has %" PRIu64 " bytes of data; it is "
                           "truncated", t->name, t->size_bytes, offsets[i],
                           data_at > n_file ? 0 : n_file - data_at);
        t->data = begin + data_at + offsets[i];
        t->offset = offsets[i];
    }
    return refuse_overlaps(part, err);
}

static sw_code take_tensors(sw_gguf_part *out, cursor *c, uint64_t n, int32_t split,
                            const unsigned char *begin, sw_arena *arena, sw_err *err)
{
    uint64_t *offsets = NULL, align = 0;
    sw_code rc = read_align(&align, out, err);

    if (rc != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&out->tensors, arena, n, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&offsets, n, "tensor offsets", err)) != SW_OK) return rc;
    for (uint64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_gguf_tensor *t = &out->tensors[i];

        t->split = split;
        t->place = (int64_t)i;
        if ((rc = take_tensor(t, &offsets[i], c, align, arena, err)) != SW_OK)
            sw_err_prefix(err, "tensor %" PRIu64 "%s%.200s", i + 1, t->name ? ", " : "",
                          t->name ? t->name : "");
    }
    out->n_tensors = (int64_t)n;
    if (rc == SW_OK) rc = place(out, offsets, begin, c, align, err);
    sw_mem_put(offsets);
    return rc;
}

static sw_code take_header(uint64_t *n_tensors, uint64_t *n_keys, cursor *c, sw_err *err)
{
    uint32_t magic = 0, version = 0;
    sw_code rc = take_u32(&magic, c, "the header", err);

    if (rc != SW_OK) return rc;
    if (magic != MAGIC) return SW_FAIL(err, SW_E_FORMAT, "does not begin with \"GGUF\"");
    if ((rc = take_u32(&version, c, "the header", err)) != SW_OK) return rc;
    if (version != SW_GGUF_VERSION && version != 2)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "GGUF version %u%s; versions 2 and 3 are read",
                       SWAPPED(version) < 16 ? SWAPPED(version) : version,
                       SWAPPED(version) < 16 ? ", big-endian" : "");
    if ((rc = take_u64(n_tensors, c, "the header", err)) != SW_OK ||
        (rc = take_u64(n_keys, c, "the header", err)) != SW_OK)
        return rc;
    if (*n_keys > SW_GGUF_KEYS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%" PRIu64 " metadata keys; at most %d are allowed",
                       *n_keys, SW_GGUF_KEYS_MAX);
    if (*n_tensors > SW_GGUF_TENSORS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%" PRIu64 " tensors; at most %d are allowed", *n_tensors,
                       SW_GGUF_TENSORS_MAX);
    /* the shortest key takes 13 bytes, the shortest tensor 33 */
    if (*n_keys > (uint64_t)(c->end - c->at) / 13 || *n_tensors > (uint64_t)(c->end - c->at) / 33)
        return ended("the header", err);
    return SW_OK;
}

sw_code sw_gguf_part_parse(sw_gguf_part *out, sw_arena *arena, const void *bytes, size_t n_bytes,
                           int32_t split, const char *what, sw_err *err)
{
    const unsigned char *begin = bytes;
    cursor c = {begin, begin + n_bytes};
    uint64_t n_tensors = 0, n_keys = 0;
    sw_gguf_part part = {0};
    sw_code rc = take_header(&n_tensors, &n_keys, &c, err);

    if (rc == SW_OK) rc = take_keys(&part, &c, n_keys, arena, err);
    if (rc == SW_OK) rc = take_tensors(&part, &c, n_tensors, split, begin, arena, err);
    if (rc == SW_OK)
        *out = part;
    else
        sw_err_prefix(err, "%s", what);
    return rc;
}
