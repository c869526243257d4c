/* st_open.c - a checkpoint as its user sees it: one file, or a directory of shards; containers of
 * safetensors, such containers compressed, or archives of torch.save. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/file/pt_read.h"
#include "formats/file/st_internal.h"
#include "formats/file/st_zstd.h"
#include "formats/pickle/zip_read.h"

struct sw_st {
    sw_arena arena; /* names, tables, paths */
    sw_map *maps;   /* n_files; all zero when the bytes are borrowed */
    sw_spill *spills; /* n_files; what was unpacked or copied, else zero */
    const char **paths;
    int32_t n_files;
    sw_st_tensor *tensors; /* by name */
    int64_t n_tensors;
    sw_st_meta *meta; /* of the first file */
    int64_t n_meta;
    sw_st_backing backing; /* zero: the maps are */
    bool is_headers; /* as sw_st_open_headers has it */
};

/* A tensor of a compressed container of which only the header is unpacked. */
typedef struct packed_maker {
    sw_st_maker base;
    const sw_map *map;
    const char *path;
    uint64_t offset; /* in what the container unpacks to */
    size_t size_bytes;
} packed_maker;

static sw_code st_new(sw_st **out, int32_t n_files, bool is_headers, sw_err *err)
{
    sw_st *st = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&st, 1, "checkpoint", err)) != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&st->maps, &st->arena, n_files, err)) != SW_OK) goto fail;
    if ((rc = SW_ARENA_TAKE(&st->spills, &st->arena, n_files, err)) != SW_OK) goto fail;
    if ((rc = SW_ARENA_TAKE(&st->paths, &st->arena, n_files, err)) != SW_OK) goto fail;
    st->n_files = n_files;
    st->is_headers = is_headers;
    *out = st;
    return SW_OK;
fail:
    sw_st_close(st);
    return rc;
}

void sw_st_close(sw_st *st)
{
    if (!st) return;
    for (int32_t i = 0; i < st->n_files; i++) {
        sw_map_close(&st->maps[i]);
        sw_spill_close(&st->spills[i]);
    }
    if (st->backing.close) st->backing.close(st->backing.self);
    sw_arena_free(&st->arena);
    sw_mem_put(st);
}

void sw_st_forget(const sw_st *st)
{
    for (int32_t i = 0; i < st->n_files; i++)
        if (st->maps[i].is_mapped) sw_map_forget(st->maps[i].data, st->maps[i].size_bytes);
    if (st->backing.forget) st->backing.forget(st->backing.self);
}

static bool is_in_map(const sw_st *st, const sw_st_tensor *t)
{
    const sw_map *map = &st->maps[t->shard];
    const unsigned char *data = t->view.data;

    return map->is_mapped && data >= map->data && data < map->data + map->size_bytes;
}

void sw_st_forget_tensor(const sw_st *st, const sw_st_tensor *tensor)
{
    if (is_in_map(st, tensor)) sw_map_forget(tensor->view.data, tensor->view.size_bytes);
}

void sw_st_forget_range(const sw_st *st, const sw_st_tensor *tensor, uint64_t offset,
                        size_t n_bytes)
{
    const unsigned char *data = tensor->view.data;

    if (is_in_map(st, tensor)) sw_map_forget(data + offset, n_bytes);
}

void sw_st_want_tensor(const sw_st *st, const sw_st_tensor *tensor)
{
    if (is_in_map(st, tensor)) sw_map_want(tensor->view.data, tensor->view.size_bytes);
}

void sw_st_want_range(const sw_st *st, const sw_st_tensor *tensor, uint64_t offset,
                      uint64_t n_bytes)
{
    const unsigned char *data = tensor->view.data;

    if (!is_in_map(st, tensor) || offset >= tensor->view.size_bytes) return;
    sw_map_want(data + offset, (size_t)sw_min_u64(n_bytes, tensor->view.size_bytes - offset));
}

sw_code sw_st_fetch(sw_st_bytes *out, const sw_st_tensor *tensor, sw_err *err)
{
    void *made = NULL;
    sw_code rc;

    if (!tensor->maker) {
        *out = (sw_st_bytes){.data = tensor->view.data};
        return SW_OK;
    }
    rc = sw_mem_get(&made, (int64_t)tensor->view.size_bytes, 1, tensor->name, err);
    if (rc != SW_OK) return rc;
    if ((rc = tensor->maker->make(tensor->maker, made, err)) != SW_OK) {
        sw_mem_put(made);
        return rc;
    }
    *out = (sw_st_bytes){made, made};
    return SW_OK;
}

void sw_st_drop(sw_st_bytes *bytes)
{
    sw_mem_put(bytes->made);
    memset(bytes, 0, sizeof *bytes);
}

static void adopt(sw_st *st, const sw_st_part *part)
{
    st->tensors = part->tensors;
    st->n_tensors = part->n_tensors;
    st->meta = part->meta;
    st->n_meta = part->n_meta;
}

sw_code sw_st_open_bytes(sw_st **out, const void *bytes, size_t n_bytes, const char *what,
                         sw_err *err)
{
    sw_st_part part = {0};
    char *path = NULL;
    sw_st *st = NULL;
    sw_code rc;

    if ((rc = st_new(&st, 1, false, err)) != SW_OK) return rc;
    if ((rc = sw_arena_text(&path, &st->arena, what, strlen(what), err)) != SW_OK) goto fail;
    st->paths[0] = path;
    if ((rc = sw_st_part_parse(&part, &st->arena, bytes, n_bytes, 0, what, err)) != SW_OK)
        goto fail;
    adopt(st, &part);
    *out = st;
    return SW_OK;
fail:
    sw_st_close(st);
    return rc;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcmp(name + n - m, ending);
}

static sw_code make_packed(const sw_st_maker *self, void *dst, sw_err *err)
{
    const packed_maker *k = (const packed_maker *)self;

    return sw_st_unpack_range(dst, k->offset, k->size_bytes, k->map->data, k->map->size_bytes,
                              k->path, err);
}

/* Bytes of the header and of its length. The length is checked by who parses the header. */
static sw_code header_bytes(size_t *out, const sw_map *map, const char *path, sw_err *err)
{
    uint8_t prefix[SW_ST_PREFIX_BYTES];
    uint64_t n;
    sw_code rc = sw_st_unpack_prefix(prefix, sizeof prefix, map->data, map->size_bytes, path, err);

    if (rc != SW_OK) return rc;
    n = sw_load_le64(prefix);
    *out = sizeof prefix + (size_t)(n < SW_ST_HEADER_MAX_BYTES ? n : SW_ST_HEADER_MAX_BYTES);
    return SW_OK;
}

/* Views into space that holds no data become makers. */
static sw_code parse_packed_header(sw_st *st, sw_st_part *part, int32_t shard, const char *path,
                                   sw_err *err)
{
    const sw_map *map = &st->maps[shard];
    sw_spill *space = &st->spills[shard];
    packed_maker *makers = NULL;
    size_t n = 0;
    sw_code rc = header_bytes(&n, map, path, err);

    if (rc != SW_OK ||
        (rc = sw_st_unpack_begin(space, n, map->data, map->size_bytes, path, err)) != SW_OK ||
        (rc = sw_st_part_parse(part, &st->arena, space->data, space->size_bytes, shard, path,
                               err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&makers, &st->arena, part->n_tensors, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < part->n_tensors; i++) {
        sw_st_tensor *t = &part->tensors[i];
        const unsigned char *at = t->view.data;
        makers[i] = (packed_maker){{make_packed}, map, st->paths[shard],
                                   (uint64_t)(at - (const unsigned char *)space->data),
                                   t->view.size_bytes};
        t->maker = &makers[i].base;
        t->view.data = NULL;
    }
    return SW_OK;
}

/* A length that the file has room for, and then an object: no archive and no pickle begins so. */
static bool begins_as_container(const sw_map *map)
{
    return map->size_bytes > SW_ST_PREFIX_BYTES && map->data[SW_ST_PREFIX_BYTES] == '{' &&
           sw_load_le64(map->data) <= map->size_bytes - SW_ST_PREFIX_BYTES;
}

/* By how it begins, where that tells: anybody may give a container any name. Else by the name. */
static sw_code parse_part(sw_st *st, sw_st_part *part, int32_t shard, const char *path, sw_err *err)
{
    const sw_map *map = &st->maps[shard];
    sw_spill *spill = &st->spills[shard];
    bool is_plain = begins_as_container(map);
    bool is_other = ends_with(path, ".bin") || ends_with(path, ".pt") || ends_with(path, ".pth") ||
                    (!ends_with(path, SW_ST_SUFFIX) && sw_zip_is_one(map->data, map->size_bytes));
    sw_code rc;

    if (is_other && !is_plain)
        return sw_pt_part_parse(part, spill, &st->arena, map->data, map->size_bytes, shard, path,
                                err);
    if (is_plain || !ends_with(path, SW_ST_ZSTD_SUFFIX))
        return sw_st_part_parse(part, &st->arena, map->data, map->size_bytes, shard, path, err);
    if (st->is_headers) return parse_packed_header(st, part, shard, path, err);
    if ((rc = sw_st_unpack(spill, map->data, map->size_bytes, path, err)) != SW_OK) return rc;
    return sw_st_part_parse(part, &st->arena, spill->data, spill->size_bytes, shard, path, err);
}

static sw_code map_part(sw_st *st, sw_st_part *part, int32_t shard, const char *path, sw_err *err)
{
    sw_map *map = &st->maps[shard];
    char *copy = NULL;
    sw_code rc;

    if ((rc = sw_arena_text(&copy, &st->arena, path, strlen(path), err)) != SW_OK) return rc;
    st->paths[shard] = copy;
    if ((rc = sw_map_open(map, path, err)) != SW_OK) return rc;
    return parse_part(st, part, shard, path, err);
}

static sw_code open_single(sw_st **out, const char *path, bool is_headers, sw_err *err)
{
    sw_st_part part = {0};
    sw_st *st = NULL;
    sw_code rc;

    if ((rc = st_new(&st, 1, is_headers, err)) != SW_OK) return rc;
    if ((rc = map_part(st, &part, 0, path, err)) != SW_OK) {
        sw_st_close(st);
        return rc;
    }
    adopt(st, &part);
    *out = st;
    return SW_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const sw_st_tensor *)a)->name, ((const sw_st_tensor *)b)->name);
}

/* All shards in one table. Two tensors of one name would make the answer depend on the reader. */
static sw_code merge_parts(sw_st *st, const sw_st_part *parts, const char *index_path, sw_err *err)
{
    int64_t n_tensors = 0, at = 0;
    sw_code rc;

    for (int32_t s = 0; s < st->n_files; s++) n_tensors += parts[s].n_tensors;
    if ((rc = SW_ARENA_TAKE(&st->tensors, &st->arena, n_tensors, err)) != SW_OK) return rc;
    for (int32_t s = 0; s < st->n_files; s++)
        for (int64_t i = 0; i < parts[s].n_tensors; i++) st->tensors[at++] = parts[s].tensors[i];
    st->n_tensors = n_tensors;
    qsort(st->tensors, (size_t)n_tensors, sizeof *st->tensors, compare_names);
    for (int64_t i = 1; i < n_tensors; i++) {
        const sw_st_tensor *a = &st->tensors[i - 1], *b = &st->tensors[i];
        if (!strcmp(a->name, b->name))
            return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%.200s\" is in two shards, %s and %s",
                           index_path, a->name, st->paths[a->shard], st->paths[b->shard]);
    }
    return SW_OK;
}

sw_code sw_st_open_made(sw_st **out, const sw_st_tensor *tensors, int64_t n_tensors,
                        const sw_st_backing *backing, sw_err *err)
{
    sw_st_part part = {.n_tensors = n_tensors};
    sw_st *st = NULL;
    sw_code rc;

    if ((rc = st_new(&st, backing->n_files, false, err)) != SW_OK) return rc;
    for (int32_t i = 0; i < backing->n_files; i++) st->paths[i] = backing->paths[i];
    st->n_files = 1; /* merge_parts reads one part per file */
    if ((rc = SW_ARENA_TAKE(&part.tensors, &st->arena, n_tensors, err)) == SW_OK) {
        memcpy(part.tensors, tensors, (size_t)n_tensors * sizeof *tensors);
        rc = merge_parts(st, &part, backing->paths[0], err);
    }
    st->n_files = backing->n_files;
    if (rc != SW_OK) {
        sw_st_close(st);
        return rc;
    }
    st->backing = *backing;
    *out = st;
    return SW_OK;
}

static sw_code check_map(const sw_st *st, const sw_st_index *index, const char *index_path,
                         sw_err *err)
{
    for (int64_t i = 0; i < index->n_entries; i++) {
        const sw_st_index_entry *entry = &index->entries[i];
        const sw_st_tensor *tensor = sw_st_find(st, entry->name);
        if (!tensor || tensor->shard != entry->file)
            return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%.200s\" is not in its shard %s",
                           index_path, entry->name, index->files[entry->file]);
    }
    return SW_OK;
}

/* A shard that an index names may lie compressed beside it. */
static sw_code find_packed(char path[SW_PATH_BYTES], const char *dir, const char *file, sw_err *err)
{
    char name[SW_PATH_BYTES];
    int n = snprintf(name, sizeof name, "%s" SW_ST_ZSTD_SUFFIX, file);

    if (n < 0 || n >= SW_PATH_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: a shard's name is too long", dir);
    return sw_path_join_inside(path, dir, name, err);
}

static sw_code open_shards(sw_st *st, sw_st_part *parts, const sw_st_index *index, const char *dir,
                           const char *index_path, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc;

    for (int32_t s = 0; s < index->n_files; s++) {
        if ((rc = sw_path_join_inside(path, dir, index->files[s], err)) != SW_OK) return rc;
        if (!sw_path_exists(path) && (rc = find_packed(path, dir, index->files[s], err)) != SW_OK)
            return rc;
        if (!sw_path_exists(path))
            return SW_FAIL(err, SW_E_IO, "%s: names the shard %s, which is missing", index_path,
                           index->files[s]);
        if ((rc = map_part(st, &parts[s], s, path, err)) != SW_OK) return rc;
    }
    if ((rc = merge_parts(st, parts, index_path, err)) != SW_OK) return rc;
    st->meta = parts[0].meta;
    st->n_meta = parts[0].n_meta;
    return check_map(st, index, index_path, err);
}

static sw_code open_index(sw_st **out, const char *dir, const char *index_path, bool is_headers,
                          sw_err *err)
{
    sw_st_index index = {0};
    sw_st_part *parts = NULL;
    sw_arena arena = {0};
    sw_map map = {0};
    sw_st *st = NULL;
    sw_code rc;

    if ((rc = sw_map_open(&map, index_path, err)) != SW_OK) return rc;
    rc = sw_st_index_parse(&index, &arena, (const char *)map.data, map.size_bytes, index_path, err);
    if (rc != SW_OK) goto done;
    if ((rc = st_new(&st, index.n_files, is_headers, err)) != SW_OK) goto done;
    if ((rc = SW_ARENA_TAKE(&parts, &arena, index.n_files, err)) != SW_OK) goto done;
    if ((rc = open_shards(st, parts, &index, dir, index_path, err)) != SW_OK) goto done;
    *out = st;
    st = NULL;
done:
    sw_st_close(st);
    sw_arena_free(&arena);
    sw_map_close(&map);
    return rc;
}

static bool is_container_name(const char *name)
{
    return ends_with(name, SW_ST_SUFFIX) || ends_with(name, SW_ST_SUFFIX SW_ST_ZSTD_SUFFIX);
}

/* How many a directory has, and the name of one. */
static sw_code count_containers(int *n_out, char name[SW_PATH_BYTES], const char *dir, sw_err *err)
{
    const struct dirent *entry;
    int n_found = 0;
    DIR *list = opendir(dir);

    if (!list) return SW_FAIL(err, SW_E_IO, "%s: cannot list: %s", dir, strerror(errno));
    while ((entry = readdir(list))) {
        if (!is_container_name(entry->d_name)) continue;
        n_found++;
        memcpy(name, entry->d_name, strlen(entry->d_name) + 1);
    }
    closedir(list);
    *n_out = n_found;
    return SW_OK;
}

/* Without an index: the only container, or else what PyTorch itself writes. */
static sw_code open_loose(sw_st **out, const char *dir, bool is_headers, sw_err *err)
{
    char at[SW_PATH_BYTES], name[SW_PATH_BYTES] = "";
    int n_found = 0;
    sw_code rc;

    if ((rc = count_containers(&n_found, name, dir, err)) != SW_OK) return rc;
    if (n_found > 1)
        return SW_FAIL(err, SW_E_IO,
                       "%s: %d *.safetensors and no " SW_ST_INDEX_NAME ", which says what each of "
                       "them is for; get it from where the model is from", dir, n_found);
    if (n_found == 1) {
        rc = sw_path_join_inside(at, dir, name, err);
        return rc == SW_OK ? open_single(out, at, is_headers, err) : rc;
    }
    if ((rc = sw_path_join_inside(at, dir, SW_PT_INDEX_NAME, err)) != SW_OK) return rc;
    if (sw_path_exists(at)) return open_index(out, dir, at, is_headers, err);
    if ((rc = sw_path_join_inside(at, dir, SW_PT_SINGLE_NAME, err)) != SW_OK) return rc;
    if (sw_path_exists(at)) return open_single(out, at, is_headers, err);
    return SW_FAIL(err, SW_E_IO, "%s: no " SW_ST_INDEX_NAME ", no *.safetensors and no "
                   SW_PT_SINGLE_NAME " in it", dir);
}

static sw_code open_any(sw_st **out, const char *path, bool is_headers, sw_err *err)
{
    char at[SW_PATH_BYTES];
    sw_code rc;

    if (!sw_path_is_dir(path)) return open_single(out, path, is_headers, err);
    if ((rc = sw_path_join_inside(at, path, SW_ST_INDEX_NAME, err)) != SW_OK) return rc;
    if (sw_path_exists(at)) return open_index(out, path, at, is_headers, err);
    if ((rc = sw_path_join_inside(at, path, SW_ST_SINGLE_NAME, err)) != SW_OK) return rc;
    return sw_path_exists(at) ? open_single(out, at, is_headers, err)
                              : open_loose(out, path, is_headers, err);
}

sw_code sw_st_open(sw_st **out, const char *path, sw_err *err)
{
    return open_any(out, path, false, err);
}

sw_code sw_st_open_headers(sw_st **out, const char *path, sw_err *err)
{
    return open_any(out, path, true, err);
}

int64_t sw_st_count(const sw_st *st) { return st->n_tensors; }

const sw_st_tensor *sw_st_at(const sw_st *st, int64_t i) { return &st->tensors[i]; }

const sw_st_tensor *sw_st_find(const sw_st *st, const char *name)
{
    sw_st_tensor key = {.name = name};

    return bsearch(&key, st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, compare_names);
}

int32_t sw_st_n_files(const sw_st *st) { return st->n_files; }

const char *sw_st_file_path(const sw_st *st, int32_t shard) { return st->paths[shard]; }

const char *sw_st_metadata(const sw_st *st, const char *key)
{
    for (int64_t i = 0; i < st->n_meta; i++)
        if (!strcmp(st->meta[i].key, key)) return st->meta[i].value;
    return NULL;
}
