/* gguf_open.c - a GGUF as its user sees it: one file or a set of splits, and typed keys. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/file/gguf_internal.h"

struct sw_gguf {
    sw_arena arena;
    sw_map *maps; /* n_files; all zero when the bytes are borrowed */
    const char **paths;
    int32_t n_files;
    sw_gguf_part all; /* keys of the first file, tensors of all */
};

static sw_code gguf_new(sw_gguf **out, int32_t n_files, sw_err *err)
{
    sw_gguf *g = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&g, 1, "GGUF", err)) != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&g->maps, &g->arena, n_files, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&g->paths, &g->arena, n_files, err)) != SW_OK) {
        sw_gguf_close(g);
        return rc;
    }
    g->n_files = n_files;
    *out = g;
    return SW_OK;
}

void sw_gguf_close(sw_gguf *g)
{
    if (!g) return;
    for (int32_t i = 0; i < g->n_files; i++) sw_map_close(&g->maps[i]);
    sw_arena_free(&g->arena);
    sw_mem_put(g);
}

void sw_gguf_forget(const sw_gguf *g)
{
    for (int32_t i = 0; i < g->n_files; i++)
        if (g->maps[i].is_mapped) sw_map_forget(g->maps[i].data, g->maps[i].size_bytes);
}

bool sw_gguf_is(const char *path)
{
    sw_map map = {0};
    sw_err ignored = {0};
    bool is_gguf = false;

    if (sw_path_is_dir(path) || sw_map_open(&map, path, &ignored) != SW_OK) return false;
    is_gguf = map.size_bytes >= 4 && !memcmp(map.data, "GGUF", 4);
    sw_map_close(&map);
    return is_gguf;
}

sw_code sw_gguf_open_bytes(sw_gguf **out, const void *bytes, size_t n_bytes, const char *what,
                           sw_err *err)
{
    sw_gguf *g = NULL;
    char *path = NULL;
    sw_code rc;

    if ((rc = gguf_new(&g, 1, err)) != SW_OK) return rc;
    if ((rc = sw_arena_text(&path, &g->arena, what, strlen(what), err)) == SW_OK) {
        g->paths[0] = path;
        rc = sw_gguf_part_parse(&g->all, &g->arena, bytes, n_bytes, 0, what, err);
    }
    if (rc == SW_OK) {
        *out = g;
        return SW_OK;
    }
    sw_gguf_close(g);
    return rc;
}

static sw_code map_part(sw_gguf *g, sw_gguf_part *part, int32_t split, const char *path,
                        sw_err *err)
{
    sw_map *map = &g->maps[split];
    char *copy = NULL;
    sw_code rc;

    if ((rc = sw_arena_text(&copy, &g->arena, path, strlen(path), err)) != SW_OK) return rc;
    g->paths[split] = copy;
    if ((rc = sw_map_open(map, path, err)) != SW_OK) return rc;
    return sw_gguf_part_parse(part, &g->arena, map->data, map->size_bytes, split, path, err);
}

/* --- splits ----------------------------------------------------------------------------------- */

#define SPLIT_TAIL_BYTES 20 /* "-00001-of-00003.gguf" */

/* The number of files when the name is one of a set, and where the number begins; else 0. */
static int32_t split_of(const char *path, size_t *at)
{
    size_t n = strlen(path);
    int no = 0, count = 0, end = 0;

    if (n <= SPLIT_TAIL_BYTES) return 0;
    *at = n - SPLIT_TAIL_BYTES;
    if (sscanf(path + *at, "-%5d-of-%5d.gguf%n", &no, &count, &end) != 2 ||
        end != SPLIT_TAIL_BYTES || no < 1 || count < 1 || no > count || count > SW_GGUF_SPLITS_MAX)
        return 0;
    return count;
}

static const sw_gguf_value *key_in(const sw_gguf_part *part, const char *key)
{
    for (int64_t i = 0; i < part->n_keys; i++)
        if (!strcmp(part->keys[i].key, key)) return &part->keys[i];
    return NULL;
}

static sw_code check_split(const sw_gguf_part *part, int32_t split, int32_t count, const char *path,
                           sw_err *err)
{
    const sw_gguf_value *no = key_in(part, "split.no"), *of = key_in(part, "split.count");
    const bool is_known = no && of && no->kind == SW_GGUF_U16 && of->kind == SW_GGUF_U16;

    if (is_known && sw_gguf_elem_int(no, 0) == split && sw_gguf_elem_int(of, 0) == count)
        return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: by its name split %d of %d, but split.no and split.count "
                   "say otherwise", path, (int)split + 1, (int)count);
}

static sw_code merge_splits(sw_gguf *g, const sw_gguf_part *parts, sw_err *err)
{
    int64_t n = 0, at = 0, want = -1;
    sw_code rc;

    for (int32_t s = 0; s < g->n_files; s++) n += parts[s].n_tensors;
    g->all = parts[0];
    if ((rc = SW_ARENA_TAKE(&g->all.tensors, &g->arena, n, err)) != SW_OK) return rc;
    for (int32_t s = 0; s < g->n_files; s++)
        for (int64_t i = 0; i < parts[s].n_tensors; i++) g->all.tensors[at++] = parts[s].tensors[i];
    g->all.n_tensors = n;
    if (n) qsort(g->all.tensors, (size_t)n, sizeof *g->all.tensors, sw_gguf_compare_tensors);
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(g->all.tensors[i - 1].name, g->all.tensors[i].name))
            return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%.200s\" is in two splits", g->paths[0],
                           g->all.tensors[i].name);
    rc = sw_gguf_int(&want, g, "split.tensors.count", 0, INT64_MAX, err);
    if (rc == SW_OK && want >= 0 && want != n)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: split.tensors.count is %" PRId64 ", the files have %"
                     PRId64, g->paths[0], want, n);
    return rc;
}

static sw_code open_splits(sw_gguf **out, const char *path, size_t at, int32_t count, sw_err *err)
{
    sw_gguf_part *parts = NULL;
    char name[SW_PATH_BYTES];
    sw_gguf *g = NULL;
    sw_code rc;

    if ((rc = gguf_new(&g, count, err)) != SW_OK) return rc;
    rc = SW_ARENA_TAKE(&parts, &g->arena, count, err);
    for (int32_t s = 0; s < count && rc == SW_OK; s++) {
        int n = snprintf(name, sizeof name, "%.*s-%05d-of-%05d.gguf", (int)at, path, (int)s + 1,
                         (int)count);
        if (n < 0 || (size_t)n >= sizeof name)
            rc = SW_FAIL(err, SW_E_IO, "%.200s...: path too long", path);
        if (rc == SW_OK) rc = map_part(g, &parts[s], s, name, err);
        if (rc == SW_OK) rc = check_split(&parts[s], s, count, name, err);
    }
    if (rc == SW_OK) rc = merge_splits(g, parts, err);
    if (rc == SW_OK)
        *out = g;
    else
        sw_gguf_close(g);
    return rc;
}

sw_code sw_gguf_open(sw_gguf **out, const char *path, sw_err *err)
{
    size_t at = 0;
    int32_t count = split_of(path, &at);
    int64_t n_splits = 1;
    sw_gguf *g = NULL;
    sw_code rc;

    if (count > 1) return open_splits(out, path, at, count, err);
    if ((rc = gguf_new(&g, 1, err)) != SW_OK) return rc;
    rc = map_part(g, &g->all, 0, path, err);
    if (rc == SW_OK) rc = sw_gguf_int(&n_splits, g, "split.count", 0, INT64_MAX, err);
    if (rc == SW_OK && n_splits > 1)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: one of a set of splits, without its name "
                     "NAME-00001-of-0000N.gguf", path);
    if (rc == SW_OK)
        *out = g;
    else
        sw_gguf_close(g);
    return rc;
}

/* --- what is in it ---------------------------------------------------------------------------- */

int64_t sw_gguf_count(const sw_gguf *g) { return g->all.n_tensors; }
const sw_gguf_tensor *sw_gguf_at(const sw_gguf *g, int64_t i) { return &g->all.tensors[i]; }

const sw_gguf_tensor *sw_gguf_find(const sw_gguf *g, const char *name)
{
    sw_gguf_tensor key = {.name = name};

    if (!g->all.n_tensors) return NULL;
    return bsearch(&key, g->all.tensors, (size_t)g->all.n_tensors, sizeof key,
                   sw_gguf_compare_tensors);
}

int32_t sw_gguf_n_files(const sw_gguf *g) { return g->n_files; }
const char *sw_gguf_file_path(const sw_gguf *g, int32_t split) { return g->paths[split]; }
int64_t sw_gguf_n_keys(const sw_gguf *g) { return g->all.n_keys; }
const sw_gguf_value *sw_gguf_key_at(const sw_gguf *g, int64_t i) { return &g->all.keys[i]; }
const sw_gguf_value *sw_gguf_key(const sw_gguf *g, const char *key) { return key_in(&g->all, key); }

static int64_t int_at(const unsigned char *p, sw_gguf_kind kind)
{
    switch (kind) {
    case SW_GGUF_U8: case SW_GGUF_BOOL: return *p;
    case SW_GGUF_I8: return (int8_t)*p;
    case SW_GGUF_U16: return sw_load_le16(p);
    case SW_GGUF_I16: return (int16_t)sw_load_le16(p);
    case SW_GGUF_U32: return sw_load_le32(p);
    case SW_GGUF_I32: return (int32_t)sw_load_le32(p);
    default: return (int64_t)sw_load_le64(p);
    }
}

static double real_at(const unsigned char *p, sw_gguf_kind kind)
{
    uint64_t bits = kind == SW_GGUF_F64 ? sw_load_le64(p) : sw_load_le32(p);
    uint32_t single_bits = (uint32_t)bits;
    double wide;
    float single;

    if (kind == SW_GGUF_F64) {
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
    memcpy(&single, &single_bits, sizeof single);
    return (double)single;
}

static bool is_int(sw_gguf_kind kind)
{
    return sw_gguf_kind_bytes(kind) && kind != SW_GGUF_F32 && kind != SW_GGUF_F64 &&
           kind != SW_GGUF_BOOL;
}

static sw_code wrong_kind(const sw_gguf *g, const sw_gguf_value *v, const char *want, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "%s: key %.200s is of type %s, must be %s", g->paths[0],
                   v->key, sw_gguf_kind_name(v->kind), want);
}

sw_code sw_gguf_int(int64_t *out, const sw_gguf *g, const char *key, int64_t min, int64_t max,
                    sw_err *err)
{
    const sw_gguf_value *v = sw_gguf_key(g, key);
    int64_t value;

    if (!v) return SW_OK;
    if (!is_int(v->kind)) return wrong_kind(g, v, "an integer", err);
    value = int_at(v->data, v->kind);
    if ((v->kind == SW_GGUF_U64 && value < 0) || value < min || value > max)
        return SW_FAIL(err, SW_E_FORMAT, "%s: key %.200s is out of range: must be %" PRId64 "..%"
                       PRId64, g->paths[0], key, min, max);
    *out = value;
    return SW_OK;
}

sw_code sw_gguf_real(double *out, const sw_gguf *g, const char *key, sw_err *err)
{
    const sw_gguf_value *v = sw_gguf_key(g, key);

    if (!v) return SW_OK;
    if (v->kind != SW_GGUF_F32 && v->kind != SW_GGUF_F64)
        return wrong_kind(g, v, "a float", err);
    *out = real_at(v->data, v->kind);
    return SW_OK;
}

sw_code sw_gguf_bool(bool *out, const sw_gguf *g, const char *key, sw_err *err)
{
    const sw_gguf_value *v = sw_gguf_key(g, key);

    if (!v) return SW_OK;
    if (v->kind != SW_GGUF_BOOL) return wrong_kind(g, v, "a boolean", err);
    *out = *v->data == 1;
    return SW_OK;
}

sw_code sw_gguf_text(const char **out, const sw_gguf *g, const char *key, sw_arena *arena,
                     sw_err *err)
{
    const sw_gguf_value *v = sw_gguf_key(g, key);
    char *copy = NULL;
    size_t bad_at = 0;
    sw_code rc;

    if (!v) return SW_OK;
    if (v->kind != SW_GGUF_TEXT) return wrong_kind(g, v, "a string", err);
    if (memchr(v->data, 0, (size_t)v->n) ||
        !sw_utf8_is_valid((const char *)v->data, (size_t)v->n, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "%s: key %.200s is not UTF-8 text", g->paths[0], key);
    rc = sw_arena_text(&copy, arena, (const char *)v->data, (size_t)v->n, err);
    if (rc == SW_OK) *out = copy;
    return rc;
}

sw_code sw_gguf_array(const sw_gguf_value **out, const sw_gguf *g, const char *key,
                      sw_gguf_kind elem_kind, sw_err *err)
{
    const sw_gguf_value *v = sw_gguf_key(g, key);

    *out = NULL;
    if (!v) return SW_OK;
    if (v->kind != SW_GGUF_ARRAY) return wrong_kind(g, v, "an array", err);
    if (v->elem_kind != elem_kind)
        return SW_FAIL(err, SW_E_FORMAT, "%s: key %.200s is an array of %s, must be of %s",
                       g->paths[0], key, sw_gguf_kind_name(v->elem_kind),
                       sw_gguf_kind_name(elem_kind));
    *out = v;
    return SW_OK;
}

static sw_gguf_kind number_kind(const sw_gguf_value *v)
{
    return v->kind == SW_GGUF_ARRAY ? v->elem_kind : v->kind;
}

int64_t sw_gguf_elem_int(const sw_gguf_value *v, uint64_t i)
{
    const sw_gguf_kind kind = number_kind(v);

    return int_at(v->data + i * (uint64_t)sw_gguf_kind_bytes(kind), kind);
}

double sw_gguf_elem_real(const sw_gguf_value *v, uint64_t i)
{
    const sw_gguf_kind kind = number_kind(v);

    return real_at(v->data + i * (uint64_t)sw_gguf_kind_bytes(kind), kind);
}

const char *sw_gguf_next_text(const unsigned char **at, uint64_t *n_bytes)
{
    const unsigned char *text = *at + 8;

    *n_bytes = sw_load_le64(*at);
    *at = text + *n_bytes;
    return (const char *)text;
}
