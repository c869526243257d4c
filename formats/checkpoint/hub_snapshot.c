/* hub_snapshot.c - see hub_snapshot.h.
 *
 * A download that was stopped leaves a snapshot that looks like a model: links are made as files
 * arrive, so the config is there and a shard is not. Of a blob that is not finished nobody knows
 * which file it is, so any such blob counts.
 */
#include "formats/checkpoint/hub_snapshot.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/file/safetensors.h"
#include "formats/io/file_content.h"

#define NAME_BYTES 256 /* NAME_MAX and its NUL */

static const sw_json_caps index_caps = {
    .max_bytes = SW_ST_HEADER_MAX_BYTES, .max_depth = 8, .max_values = 2 * SW_ST_TENSORS_MAX};

/* Links are followed. */
static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* The first in name order, and how many. */
typedef struct missing {
    char first[NAME_BYTES];
    int n;
} missing;

static void note(missing *m, const char *name)
{
    if (!m->n || strcmp(name, m->first) < 0)
        (void)snprintf(m->first, sizeof m->first, "%.*s", NAME_BYTES - 1, name);
    m->n++;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcmp(name + n - m, ending);
}

static bool holds_weights(const char *name)
{
    return (strstr(name, ".safetensors") && !ends_with(name, ".json")) ||
           ends_with(name, ".bin") || ends_with(name, ".gguf") || ends_with(name, ".pth");
}

/* Entries of the snapshot: *n_weights of them may be weights, `broken` lead to nothing. */
static void look_around(missing *broken, int *n_weights, const char *snapshot)
{
    char path[SW_PATH_BYTES];
    DIR *stream = opendir(snapshot);
    const struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (sw_path_join(path, snapshot, entry->d_name, NULL) != SW_OK) continue;
        *n_weights += holds_weights(entry->d_name);
        if (!is_there(path)) note(broken, entry->d_name);
    }
    if (stream) closedir(stream);
}

static void look_for_unfinished(missing *unfinished, const char *repo_dir)
{
    char blobs[SW_PATH_BYTES];
    const struct dirent *entry;
    DIR *stream;

    if (sw_path_join(blobs, repo_dir, "blobs", NULL) != SW_OK || !(stream = opendir(blobs))) return;
    while ((entry = readdir(stream)))
        if (ends_with(entry->d_name, ".incomplete")) note(unfinished, entry->d_name);
    closedir(stream);
}

static bool is_same_text(const char *a, const cJSON *b)
{
    return cJSON_IsString(b) && !strcmp(a, b->valuestring);
}

/* Shards that an index names and the snapshot lacks. An index that says nonsense is for the reader
 * of the weights to refuse. */
static void look_into_index(missing *gone, const char *snapshot, const char *name)
{
    char path[SW_PATH_BYTES];
    const cJSON *entry, *last = NULL;
    cJSON *index = NULL;
    sw_err ignored = {0};

    if (sw_path_join_inside(path, snapshot, name, &ignored) != SW_OK || !is_there(path) ||
        sw_json_read(&index, path, &index_caps, &ignored) != SW_OK)
        return;
    cJSON_ArrayForEach(entry, sw_json_member(index, "weight_map")) {
        const char *file = cJSON_IsString(entry) ? entry->valuestring : NULL;
        if (!file || !sw_path_is_plain_name(file) || is_same_text(file, last)) continue;
        last = entry;
        if (sw_path_join(path, snapshot, file, NULL) == SW_OK && !is_there(path)) note(gone, file);
    }
    cJSON_Delete(index);
}

sw_code sw_hub_snapshot_check(const char *snapshot, const char *repo_dir, const char *repo,
                              const char *commit, sw_err *err)
{
    static const char *const indexes[] = {"model.safetensors.index.json",
                                          "pytorch_model.bin.index.json"};
    missing broken = {.n = 0}, gone = {.n = 0}, unfinished = {.n = 0};
    char what[NAME_BYTES + 80];
    int n_weights = 0;

    look_around(&broken, &n_weights, snapshot);
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++)
        look_into_index(&gone, snapshot, indexes[i]);
    look_for_unfinished(&unfinished, repo_dir);
    if (broken.n)
        (void)snprintf(what, sizeof what, "%s is a link to nothing", broken.first);
    else if (gone.n)
        (void)snprintf(what, sizeof what, "%s is missing, which the index names", gone.first);
    else if (!n_weights)
        (void)snprintf(what, sizeof what, "it has no weights");
    else if (unfinished.n)
        (void)snprintf(what, sizeof what, "blobs/%s is a download that was not finished",
                       unfinished.first);
    else
        return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: the snapshot %.300s is not complete: %s; finish it: hf "
                   "download %s --revision %s", repo, snapshot, what, repo, commit);
}
