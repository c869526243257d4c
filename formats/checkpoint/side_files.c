/* side_files.c - see side_files.h. */
#include "formats/checkpoint/side_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"

#define DIR_ENTRIES_MAX 100000

static const char *const owned_names[] = {"config.json", "quantize_config.json",
                                          "quant_config.json", "hf_quant_config.json",
                                          "manifest.json"};

static const char *const weight_endings[] = {
    ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".ckpt",
    ".gguf", ".ggml", ".tiles", ".onnx", ".onnx_data", ".msgpack", ".msgpack.index.json", ".h5",
    ".h5.index.json", ".npz", ".mlmodel", ".tflite"};

#define CARD_BYTES ((size_t)8 << 10) /* the mark is in the first of them */

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n >= m && !strcmp(name + n - m, ending);
}

/* Where in a file's name a text of the table stands. */
typedef enum side_place { WHOLE, BEGIN, END } side_place;

static const struct {
    side_place place;
    const char *text;
} side_names[] = {
#define SW_SIDE(place, text) {place, text},
#include "formats/checkpoint/side_names.def"
#undef SW_SIDE
};

static bool is_side(const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof side_names / sizeof *side_names; i++) {
        const size_t m = strlen(side_names[i].text);

        if (m > n || (side_names[i].place == WHOLE && m != n)) continue;
        if (!strncasecmp(name + (side_names[i].place == END ? n - m : 0), side_names[i].text, m))
            return true;
    }
    return false;
}

static sw_dir_role role_of(const char *name)
{
    for (size_t i = 0; i < sizeof owned_names / sizeof *owned_names; i++)
        if (!strcmp(name, owned_names[i])) return SW_DIR_OWNED;
    for (size_t i = 0; i < sizeof weight_endings / sizeof *weight_endings; i++)
        if (ends_with(name, weight_endings[i])) return SW_DIR_WEIGHTS;
    return is_side(name) ? SW_DIR_SIDE : SW_DIR_FOREIGN;
}

/* A model card that we wrote. */
static sw_code find_own_card(bool *is_ours, const char *path, const char *name, sw_err *err)
{
    sw_map map = {0};
    size_t n;
    sw_code rc;

    *is_ours = false;
    if (strcmp(name, "README.md") != 0 && strcmp(name, "SWAGE.md") != 0) return SW_OK;
    if ((rc = sw_map_open_own(&map, path, err)) != SW_OK) return rc;
    n = map.size_bytes < CARD_BYTES ? map.size_bytes : CARD_BYTES;
    if (n) *is_ours = memmem(map.data, n, SW_CARD_MARK, strlen(SW_CARD_MARK)) != NULL;
    sw_map_close(&map);
    return SW_OK;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const sw_dir_entry *)a)->name, ((const sw_dir_entry *)b)->name);
}

static sw_code read_entry(sw_dir_entry *out, const char *dir, const char *name, sw_arena *arena,
                          sw_err *err)
{
    char path[SW_PATH_BYTES], *kept;
    struct stat info;
    bool is_ours;
    sw_code rc;

    if ((rc = sw_path_join(path, dir, name, err)) != SW_OK) return rc;
    if (stat(path, &info) != 0) {
        if (errno != ENOENT && errno != ELOOP)
            return SW_FAIL(err, SW_E_IO, "%s: cannot stat: %s", path, strerror(errno));
        memset(&info, 0, sizeof info); /* a link to nothing */
    }
    if ((rc = sw_arena_text(&kept, arena, name, strlen(name), err)) != SW_OK) return rc;
    out->name = kept;
    out->role = S_ISREG(info.st_mode) ? role_of(name) : SW_DIR_OTHER;
    out->is_dir = S_ISDIR(info.st_mode);
    out->size_bytes = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    if (out->role == SW_DIR_OTHER ||
        (rc = sw_path_join_inside(path, dir, name, err)) != SW_OK)
        return rc;
    rc = find_own_card(&is_ours, path, name, err);
    if (is_ours) out->role = SW_DIR_OWNED;
    return rc;
}

/* The next entry but "." and ".."; NULL at the end. */
static const char *next_name(DIR *stream)
{
    struct dirent *entry;

    while ((entry = readdir(stream)) != NULL)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) return entry->d_name;
    return NULL;
}

static sw_code read_stream(sw_dir_list *out, DIR *stream, const char *dir, sw_arena *arena,
                           sw_err *err)
{
    sw_dir_list list = {0};
    int64_t room = 0;
    const char *name;
    sw_code rc;

    while (next_name(stream)) room++;
    if (room > DIR_ENTRIES_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%s: more than %d entries", dir, DIR_ENTRIES_MAX);
    if ((rc = SW_ARENA_TAKE(&list.entries, arena, room, err)) != SW_OK) return rc;
    rewinddir(stream);
    while (list.n_entries < room && (name = next_name(stream)) != NULL) {
        rc = read_entry(&list.entries[list.n_entries], dir, name, arena, err);
        if (rc != SW_OK) return rc;
        list.n_entries++;
    }
    if (list.n_entries)
        qsort(list.entries, (size_t)list.n_entries, sizeof *list.entries, compare_entries);
    *out = list;
    return SW_OK;
}

sw_code sw_dir_read(sw_dir_list *out, const char *dir, sw_arena *arena, sw_err *err)
{
    DIR *stream = opendir(dir);
    sw_code rc;

    if (!stream) {
        if (errno == ENOMEM) return SW_FAIL(err, SW_E_NOMEM, "%s: no memory to list it", dir);
        return SW_FAIL(err, SW_E_IO, "%s: cannot list: %s", dir, strerror(errno));
    }
    rc = read_stream(out, stream, dir, arena, err);
    closedir(stream);
    return rc;
}

static bool is_text(const char *name)
{
    return ends_with(name, ".json") || ends_with(name, ".model") || ends_with(name, ".txt");
}

sw_code sw_dir_check_side(const sw_dir_list *list, const char *dir, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < list->n_entries && rc == SW_OK; i++) {
        const sw_dir_entry *entry = &list->entries[i];
        char path[SW_PATH_BYTES];
        sw_map map = {0};
        size_t bad_at;
        if (entry->role != SW_DIR_SIDE && entry->role != SW_DIR_FOREIGN) continue;
        if ((rc = sw_path_join(path, dir, entry->name, err)) != SW_OK) break;
        if (!sw_utf8_is_valid(entry->name, strlen(entry->name), &bad_at))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: the name of this file is no UTF-8, so no "
                           "manifest can hold it; rename it, or take it out of the directory",
                           path);
        if (entry->role == SW_DIR_SIDE && is_text(entry->name) &&
            (rc = sw_map_open(&map, path, err)) == SW_OK)
            sw_map_close(&map);
    }
    return rc;
}

static sw_code copy_file(const char *from, const char *to, const char *name, sw_err *err)
{
    char source[SW_PATH_BYTES], target[SW_PATH_BYTES];
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_path_join(source, from, name, err)) != SW_OK ||
        (rc = sw_path_join(target, to, name, err)) != SW_OK ||
        (rc = sw_map_open_any(&map, source, err)) != SW_OK)
        return rc;
    rc = sw_file_put(target, map.data, map.size_bytes, err);
    sw_map_close(&map);
    return rc;
}

sw_code sw_dir_copy_side(const sw_dir_list *list, const char *from, const char *to, sw_err *err)
{
    for (int64_t i = 0; i < list->n_entries; i++) {
        sw_code rc = SW_OK;
        if (list->entries[i].role == SW_DIR_SIDE)
            rc = copy_file(from, to, list->entries[i].name, err);
        if (rc != SW_OK) return rc;
    }
    return SW_OK;
}

sw_code sw_dir_put_digest(cJSON *array, const sw_dir_entry *entry, const char *digest, sw_err *err)
{
    cJSON *item = cJSON_CreateObject();

    if (item && cJSON_AddStringToObject(item, "name", entry->name) &&
        cJSON_AddNumberToObject(item, "bytes", (double)entry->size_bytes) &&
        cJSON_AddStringToObject(item, "sha256", digest) && cJSON_AddItemToArray(array, item))
        return SW_OK;
    cJSON_Delete(item);
    return SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
}

sw_code sw_dir_add_digest(cJSON *array, const char *dir, const sw_dir_entry *entry, sw_err *err)
{
    char path[SW_PATH_BYTES], digest[SW_SHA256_HEX_BYTES];
    sw_code rc;

    if ((rc = sw_path_join(path, dir, entry->name, err)) != SW_OK ||
        (rc = sw_sha256_file(digest, path, err)) != SW_OK)
        return rc;
    return sw_dir_put_digest(array, entry, digest, err);
}
