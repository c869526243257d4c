/* st_index.c - model.safetensors.index.json: which shard holds which tensor.
 *
 *   {"metadata": {"total_size": N, ...}, "weight_map": {"tensor": "file name", ...}}
 *
 * A file name comes from a stranger, so it must be plain: no separator, no "..", nothing
 * that could reach outside the directory. metadata is for humans; nothing relies on it.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/file/st_internal.h"

static const sw_json_caps index_caps = {
    .max_bytes = SW_ST_HEADER_MAX_BYTES,
    .max_depth = 8,
    .max_values = 2 * SW_ST_TENSORS_MAX,
};

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const sw_st_index_entry *)a)->name, ((const sw_st_index_entry *)b)->name);
}

static sw_code check_entry(const cJSON *entry, const char *what, sw_err *err)
{
    if (!cJSON_IsString(entry))
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%.200s\": its file is not a string", what,
                       entry->string);
    if (!sw_path_is_plain_name(entry->valuestring))
        return SW_FAIL(err, SW_E_FORMAT,
                       "%s: tensor \"%.200s\": \"%.200s\" is not a plain file name", what,
                       entry->string, entry->valuestring);
    return SW_OK;
}

/* The distinct values of the map, sorted, into out->files. */
static sw_code gather_files(sw_st_index *out, sw_arena *arena, const cJSON *map, const char *what,
                            sw_err *err)
{
    const char **values = NULL;
    int64_t n_values = 0, n_files = 0;
    const cJSON *entry;
    sw_code rc;

    rc = SW_MEM_GET(&values, out->n_entries, "index file names", err);
    if (rc != SW_OK) return rc;
    cJSON_ArrayForEach(entry, map) values[n_values++] = entry->valuestring;
    qsort(values, (size_t)n_values, sizeof *values, compare_texts);
    for (int64_t i = 0; i < n_values; i++)
        if (i == 0 || strcmp(values[i], values[n_files - 1]) != 0) values[n_files++] = values[i];
    if (n_files > SW_ST_FILES_MAX) {
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: %lld shards, at most %d are allowed", what,
                     (long long)n_files, SW_ST_FILES_MAX);
        goto done;
    }
    if ((rc = SW_ARENA_TAKE(&out->files, arena, n_files, err)) != SW_OK) goto done;
    for (int64_t i = 0; i < n_files; i++) {
        char *copy = NULL;
        if ((rc = sw_arena_text(&copy, arena, values[i], strlen(values[i]), err)) != SW_OK)
            goto done;
        out->files[i] = copy;
    }
    out->n_files = (int32_t)n_files;
done:
    sw_mem_put(values);
    return rc;
}

static sw_code fill_index(sw_st_index *out, sw_arena *arena, const cJSON *map, const char *what,
                          sw_err *err)
{
    const cJSON *entry;
    int64_t i = 0;
    sw_code rc;

    out->n_entries = cJSON_GetArraySize(map);
    cJSON_ArrayForEach(entry, map)
    {
        if ((rc = check_entry(entry, what, err)) != SW_OK) return rc;
    }
    if ((rc = gather_files(out, arena, map, what, err)) != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&out->entries, arena, out->n_entries, err)) != SW_OK) return rc;
    cJSON_ArrayForEach(entry, map)
    {
        const char *file = entry->valuestring;
        const char **at = bsearch(&file, out->files, (size_t)out->n_files, sizeof *out->files,
                                  compare_texts);
        char *name = NULL;
        rc = sw_arena_text(&name, arena, entry->string, strlen(entry->string), err);
        if (rc != SW_OK) return rc;
        out->entries[i].name = name;
        out->entries[i++].file = (int32_t)(at - out->files);
    }
    qsort(out->entries, (size_t)out->n_entries, sizeof *out->entries, compare_entries);
    return SW_OK;
}

sw_code sw_st_index_parse(sw_st_index *out, sw_arena *arena, const char *text, size_t n_bytes,
                          const char *what, sw_err *err)
{
    sw_st_index index = {0};
    const cJSON *map;
    cJSON *root = NULL;
    sw_code rc;

    if ((rc = sw_json_parse(&root, text, n_bytes, &index_caps, what, err)) != SW_OK) return rc;
    map = sw_json_member(root, "weight_map");
    if (!cJSON_IsObject(map) || !map->child)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: weight_map missing, empty or not an object", what);
    else
        rc = fill_index(&index, arena, map, what, err);
    cJSON_Delete(root);
    if (rc == SW_OK) *out = index;
    return rc;
}
