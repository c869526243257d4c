/* manifest.c - see manifest.h. */
#include "formats/checkpoint/manifest.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint/hub_cache.h"
#include "formats/file/config_text.h"
#include "formats/io/file_content.h"

static sw_code no_memory(sw_err *err)
{
    return SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
}

static bool is_opened_file(const sw_checkpoint *source, const char *name)
{
    for (int32_t i = 0; i < sw_st_n_files(source->st); i++) {
        const char *path = sw_st_file_path(source->st, i), *slash = strrchr(path, '/');
        if (!strcmp(slash ? slash + 1 : path, name)) return true;
    }
    return !strcmp(name, "model.safetensors.index.json") && sw_st_n_files(source->st) > 1;
}

static cJSON *array_member(cJSON *root, const char *key)
{
    cJSON *array = cJSON_GetObjectItemCaseSensitive(root, key);

    if (array && !cJSON_IsArray(array)) {
        cJSON_DeleteItemFromObjectCaseSensitive(root, key);
        array = NULL;
    }
    return array ? array : cJSON_AddArrayToObject(root, key);
}

static bool is_taken(const sw_checkpoint *source, const sw_dir_entry *entry)
{
    return entry->role == SW_DIR_SIDE || entry->role == SW_DIR_OWNED ||
           (entry->role == SW_DIR_WEIGHTS && is_opened_file(source, entry->name));
}

static sw_code add_name(cJSON *array, const char *text, sw_err *err)
{
    cJSON *name = cJSON_CreateString(text);

    if (name && cJSON_AddItemToArray(array, name)) return SW_OK;
    cJSON_Delete(name);
    return SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
}

/* Digests of the entries that are taken, in their order; in the arena. */
static sw_code digest_source(char (**out)[SW_SHA256_HEX_BYTES], sw_arena *arena,
                             const sw_checkpoint *source, const sw_dir_list *list,
                             const sw_progress *progress, sw_err *err)
{
    const char **paths = NULL;
    int64_t n = 0;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(out, arena, list->n_entries, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&paths, arena, list->n_entries, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < list->n_entries && rc == SW_OK; i++) {
        char path[SW_PATH_BYTES], *kept = NULL;

        if (!is_taken(source, &list->entries[i])) continue;
        rc = sw_path_join(path, source->dir, list->entries[i].name, err);
        if (rc == SW_OK) rc = sw_arena_text(&kept, arena, path, strlen(path), err);
        paths[n++] = kept;
    }
    return rc == SW_OK ? sw_sha256_files(*out, paths, n, progress, err) : rc;
}

static sw_code add_source(cJSON *inputs, cJSON *left, const sw_checkpoint *source,
                          const sw_dir_list *list, const sw_progress *progress, sw_err *err)
{
    char (*digests)[SW_SHA256_HEX_BYTES] = NULL;
    sw_arena arena = {0};
    int64_t n = 0;
    sw_code rc;

    rc = digest_source(&digests, &arena, source, list, progress, err);
    if (rc == SW_OK) rc = sw_progress_check(progress, err);
    for (int64_t i = 0; i < list->n_entries && rc == SW_OK; i++) {
        const sw_dir_entry *entry = &list->entries[i];

        rc = is_taken(source, entry) ? sw_dir_put_digest(inputs, entry, digests[n++], err)
                                     : add_name(left, entry->name, err);
    }
    sw_arena_free(&arena);
    return rc;
}

/* Conversions that are remembered, one before the other. */
#define ORIGINS_MAX 8

/* Figures per tensor make manifests of large models long. */
static const sw_json_caps source_caps = {
    .max_bytes = (size_t)64 << 20, .max_depth = 32, .max_values = 4000000};

/* What a judge needs of a manifest or an origin to go on from it, with the origin before it; NULL
 * where it has no inputs. */
static sw_code origin_of(cJSON **out, const cJSON *from, int n_left, sw_err *err)
{
    static const char *const kept[] = {"command", "hub", "inputs", "made_by", "transforms"};
    cJSON *origin = NULL, *before = NULL;
    sw_code rc = SW_OK;

    *out = NULL;
    if (!cJSON_IsArray(sw_json_member(from, "inputs")) || n_left == 0) return SW_OK;
    if (!(origin = cJSON_CreateObject())) rc = SW_FAIL(err, SW_E_NOMEM, "no memory for an origin");
    for (size_t i = 0; i < sizeof kept / sizeof *kept && rc == SW_OK; i++) {
        const cJSON *member = sw_json_member(from, kept[i]);
        cJSON *copy = member ? cJSON_Duplicate(member, true) : NULL;

        if (!member || (copy && cJSON_AddItemToObject(origin, kept[i], copy))) continue;
        cJSON_Delete(copy);
        rc = SW_FAIL(err, SW_E_NOMEM, "no memory for an origin");
    }
    if (rc == SW_OK) rc = origin_of(&before, sw_json_member(from, "origin"), n_left - 1, err);
    if (rc == SW_OK && before && !cJSON_AddItemToObject(origin, "origin", before)) {
        cJSON_Delete(before);
        rc = SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
    }
    if (rc == SW_OK)
        *out = origin;
    else
        cJSON_Delete(origin);
    return rc;
}

/* What the source was made of, as its own manifest says. One that cannot be read says nothing. */
static sw_code add_origin(cJSON *root, const sw_checkpoint *source, sw_err *err)
{
    char path[SW_PATH_BYTES];
    cJSON *manifest = NULL, *origin = NULL;
    sw_err why = {0};
    sw_code rc = sw_path_join(path, source->dir, "manifest.json", err);

    if (rc != SW_OK || source->is_file || !sw_path_exists(path)) return rc;
    rc = sw_json_read(&manifest, path, &source_caps, &why);
    if (rc == SW_E_FORMAT) return SW_OK;
    if (rc != SW_OK) {
        *err = why;
        return rc;
    }
    rc = origin_of(&origin, manifest, ORIGINS_MAX, err);
    if (rc == SW_OK && origin && !cJSON_AddItemToObject(root, "origin", origin)) {
        cJSON_Delete(origin);
        rc = SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
    }
    cJSON_Delete(manifest);
    return rc;
}

/* A source that is a file: by its name alone, as entries of a directory are. */
static sw_code add_file(cJSON *inputs, const char *path, sw_err *err)
{
    const char *slash = strrchr(path, '/');
    sw_dir_entry entry = {.name = slash ? slash + 1 : path};
    char dir[SW_PATH_BYTES];
    sw_map map = {0};
    sw_code rc = sw_map_open_any(&map, path, err);

    if (rc != SW_OK) return rc;
    entry.size_bytes = map.size_bytes;
    sw_map_close(&map);
    (void)snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
                   slash ? path : ".");
    return sw_dir_add_digest(inputs, dir, &entry, err);
}

/* Where a source lies in the cache of the Hub, the id and the commit that it is. */
static sw_code add_hub(cJSON *root, const sw_checkpoint *source, sw_err *err)
{
    cJSON *hub;
    sw_hub_id id;

    if (!sw_hub_origin(&id, source->dir, source->is_file)) return SW_OK;
    hub = cJSON_AddObjectToObject(root, "hub");
    if (hub && cJSON_AddStringToObject(hub, "id", id.repo) &&
        cJSON_AddStringToObject(hub, "revision", id.revision))
        return SW_OK;
    return no_memory(err);
}

static sw_code add_outputs(cJSON *outputs, const char *work_dir, const sw_st_writer *written,
                           sw_err *err)
{
    sw_arena arena = {0};
    sw_dir_list list = {0};
    sw_code rc = sw_dir_read(&list, work_dir, &arena, err);

    for (int64_t i = 0; i < list.n_entries && rc == SW_OK; i++) {
        const sw_digest_steps *known = sw_st_writer_digest(written, list.entries[i].name);
        rc = known ? sw_dir_put_digest(outputs, &list.entries[i], known->digest, err)
                   : sw_dir_add_digest(outputs, work_dir, &list.entries[i], err);
    }
    sw_arena_free(&arena);
    return rc;
}

sw_code sw_manifest_sources(cJSON **out, const sw_checkpoint *source,
                            const sw_dir_list *source_list, const sw_progress *progress,
                            sw_err *err)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *inputs = root ? array_member(root, "inputs") : NULL;
    cJSON *left = inputs ? array_member(root, "left_behind") : NULL;
    sw_code rc = left ? SW_OK : no_memory(err);

    for (int32_t i = 0; rc == SW_OK && source->is_file && i < sw_st_n_files(source->st); i++)
        rc = add_file(inputs, sw_st_file_path(source->st, i), err);
    if (rc == SW_OK) rc = add_source(inputs, left, source, source_list, progress, err);
    if (rc == SW_OK) rc = add_hub(root, source, err);
    if (rc == SW_OK) rc = add_origin(root, source, err);
    if (rc == SW_OK)
        *out = root;
    else
        cJSON_Delete(root);
    return rc;
}

/* The items of sources[key] behind those of root[key]. */
static sw_code append_items(cJSON *root, const cJSON *sources, const char *key, sw_err *err)
{
    cJSON *to = array_member(root, key), *copy;
    const cJSON *item;

    if (!to) return no_memory(err);
    cJSON_ArrayForEach(item, sw_json_member(sources, key)) {
        if (!(copy = cJSON_Duplicate(item, true)) || !cJSON_AddItemToArray(to, copy)) {
            cJSON_Delete(copy);
            return no_memory(err);
        }
    }
    return SW_OK;
}

/* sources[key], where it is, in place of root[key]. */
static sw_code put_member(cJSON *root, const cJSON *sources, const char *key, sw_err *err)
{
    const cJSON *member = sw_json_member(sources, key);
    cJSON *copy;

    if (!member) return SW_OK;
    cJSON_DeleteItemFromObjectCaseSensitive(root, key);
    copy = cJSON_Duplicate(member, true);
    if (copy && cJSON_AddItemToObject(root, key, copy)) return SW_OK;
    cJSON_Delete(copy);
    return no_memory(err);
}

sw_code sw_manifest_write(const cJSON *given, const cJSON *sources, const char *work_dir,
                          const sw_st_writer *written, sw_err *err)
{
    cJSON *root = given ? cJSON_Duplicate(given, true) : cJSON_CreateObject();
    cJSON *outputs = NULL;
    char path[SW_PATH_BYTES], *text = NULL;
    sw_code rc;

    if (!root) return no_memory(err);
    if ((rc = append_items(root, sources, "inputs", err)) != SW_OK ||
        (rc = append_items(root, sources, "left_behind", err)) != SW_OK ||
        (sw_json_member(sources, "cast") &&
         (rc = append_items(root, sources, "cast", err)) != SW_OK) ||
        (rc = put_member(root, sources, "hub", err)) != SW_OK ||
        (rc = put_member(root, sources, "origin", err)) != SW_OK)
        goto done;
    if (!(outputs = array_member(root, "outputs"))) {
        rc = no_memory(err);
        goto done;
    }
    if ((rc = add_outputs(outputs, work_dir, written, err)) != SW_OK ||
        (rc = sw_json_pretty(&text, root, 0, err)) != SW_OK ||
        (rc = sw_path_join(path, work_dir, "manifest.json", err)) != SW_OK)
        goto done;
    rc = sw_file_put(path, text, strlen(text), err);
done:
    sw_mem_put(text);
    cJSON_Delete(root);
    return rc;
}

/* realpath of the deepest part that exists, with the rest behind it as it is written. */
static sw_code resolve(char out[SW_PATH_BYTES], const char *path, sw_err *err)
{
    char head[SW_PATH_BYTES], real[PATH_MAX];
    size_t n = strlen(path), cut;

    if (n >= sizeof head) return SW_FAIL(err, SW_E_USAGE, "path of %zu bytes is too long", n);
    memcpy(head, path, n + 1);
    while (n > 1 && head[n - 1] == '/') head[--n] = '\0';
    for (cut = n; !realpath(cut ? head : ".", real);) {
        if (errno != ENOENT || cut == 0)
            return SW_FAIL(err, SW_E_IO, "%s: cannot resolve: %s", path, strerror(errno));
        while (cut > 0 && head[cut - 1] != '/') cut--;
        while (cut > 1 && head[cut - 1] == '/') cut--;
        head[cut] = '\0';
    }
    while (path[cut] == '/') cut++;
    return sw_path_join(out, real, path + cut, err);
}

static bool holds(const char *outer, const char *inner)
{
    size_t n = strlen(outer);

    while (n > 1 && outer[n - 1] == '/') n--;
    return !strncmp(outer, inner, n) && (inner[n] == '\0' || inner[n] == '/' || n == 1);
}

sw_code sw_paths_keep_apart(const char *source_dir, const char *out_dir, sw_err *err)
{
    char source[SW_PATH_BYTES], target[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = resolve(source, source_dir, err)) != SW_OK ||
        (rc = resolve(target, out_dir, err)) != SW_OK)
        return rc;
    if (holds(source, target) || holds(target, source))
        return SW_FAIL(err, SW_E_USAGE, "%s: the output may not be the model's directory %s, nor "
                       "lie inside it or around it", out_dir, source_dir);
    return SW_OK;
}
