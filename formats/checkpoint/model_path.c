/* model_path.c - see model_path.h. */
#include "formats/checkpoint/model_path.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/io/file_content.h"

#define CONFIG_NAME "config.json"
#define ADAPTER_NAME "adapter_config.json"
#define SNAPSHOTS "snapshots"
#define NAMED_MAX 3 /* as many of several are named */
#define LIST_BYTES 400

static bool has(const char *dir, const char *name)
{
    char path[SW_PATH_BYTES];

    return sw_path_join(path, dir, name, NULL) == SW_OK && sw_path_exists(path);
}

/* --- adapters --- */

/* The weights of a model itself; those of an adapter are called adapter_model.*. */
static bool has_own_weights(const char *dir)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has(dir, names[i])) return true;
    return false;
}

/* The message names the base where the adapter does. */
static sw_code refuse_adapter(const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES];
    const char *base = NULL;
    cJSON *object = NULL;
    sw_err ignored = {0};

    if (sw_path_join_inside(path, dir, ADAPTER_NAME, &ignored) == SW_OK &&
        sw_json_read(&object, path, &sw_json_caps_config, &ignored) == SW_OK)
        (void)!sw_json_text(&base, object, "base_model_name_or_path", &ignored);
    (void)SW_FAIL(err, SW_E_UNSUPPORTED, "%s: has " ADAPTER_NAME ", so it is an adapter (LoRA) of "
                  "%.200s and no model; merge it into that model first (merge_and_unload of peft), "
                  "and give the merged model", dir, base ? base : "another model");
    cJSON_Delete(object);
    return SW_E_UNSUPPORTED;
}

/* --- what lies in a directory --- */

/* Some names of a directory, and how many there are. */
typedef struct name_list {
    char text[LIST_BYTES]; /* "A, B and more" */
    char first[256];       /* NAME_MAX and its NUL */
    int n;
} name_list;

static void add_name(name_list *list, const char *prefix, const char *name)
{
    size_t at = strlen(list->text), n = strlen(prefix) + strlen(name) + 2;

    if (list->n++ == 0) (void)snprintf(list->first, sizeof list->first, "%s", name);
    if (list->n > NAMED_MAX || at + n >= sizeof list->text) return;
    (void)snprintf(list->text + at, sizeof list->text - at, "%s%s%s", at ? ", " : "", prefix, name);
}

static bool is_gguf_name(const char *dir, const char *name)
{
    const char *end = strrchr(name, '.');

    (void)dir;
    return end && !strcmp(end, ".gguf");
}

static bool is_snapshot(const char *dir, const char *name)
{
    char path[SW_PATH_BYTES];

    return name[0] != '.' && sw_path_join(path, dir, name, NULL) == SW_OK && sw_path_is_dir(path);
}

static void list_names(name_list *out, const char *dir, const char *prefix,
                       bool (*is_wanted)(const char *dir, const char *name))
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;

    memset(out, 0, sizeof *out);
    while (stream && (entry = readdir(stream)))
        if (is_wanted(dir, entry->d_name)) add_name(out, prefix, entry->d_name);
    if (stream) closedir(stream);
}

/* models--ORG--NAME of the hub's cache: the files are below, once for each revision. */
static sw_code refuse_cache(const char *dir, sw_err *err)
{
    char at[SW_PATH_BYTES], prefix[SW_PATH_BYTES];
    name_list list;
    sw_code rc;

    if ((rc = sw_path_join(at, dir, SNAPSHOTS, err)) != SW_OK ||
        (rc = sw_path_join(prefix, at, "", err)) != SW_OK)
        return rc;
    list_names(&list, at, prefix, is_snapshot);
    if (!list.n)
        return SW_FAIL(err, SW_E_USAGE, "%s: a folder of the Hugging Face cache without a snapshot "
                       "in " SNAPSHOTS "/; download the model again", dir);
    return SW_FAIL(err, SW_E_USAGE, "%s: a folder of the Hugging Face cache; give %s instead: %s%s",
                   dir, list.n > 1 ? "one of its snapshots" : "its snapshot", list.text,
                   list.n > NAMED_MAX ? " or another" : "");
}

/* No config.json, and no single GGUF that could be meant. */
static sw_code refuse_bare(const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_map map = {0};
    name_list list;
    sw_code rc;

    list_names(&list, dir, "", is_gguf_name);
    if (list.n > 1)
        return SW_FAIL(err, SW_E_USAGE, "%s: has no " CONFIG_NAME ", and %d GGUF files; give the "
                       "path of one of them: %s%s", dir, list.n, list.text,
                       list.n > NAMED_MAX ? " or another" : "");
    if (list.n == 1) { /* it was looked at and is none */
        if ((rc = sw_path_join_inside(path, dir, list.first, err)) != SW_OK ||
            (rc = sw_map_open(&map, path, err)) != SW_OK)
            return rc;
        sw_map_close(&map);
        return SW_FAIL(err, SW_E_FORMAT, "%s: does not begin as a GGUF does", path);
    }
    return SW_FAIL(err, SW_E_IO, "%s: has no " CONFIG_NAME "; give the folder of a model, or a "
                   "GGUF", dir);
}

/* --- files --- */

/* A pointer is told by opening it. */
static sw_code refuse_file(const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc = sw_map_open(&map, path, err);

    if (rc != SW_OK) return rc;
    sw_map_close(&map);
    return SW_FAIL(err, SW_E_USAGE, "%s: a file that is no GGUF; give the folder of the model that "
                   "it belongs to", path);
}

sw_code sw_model_path_check(const char *path, sw_err *err)
{
    if (!sw_path_exists(path))
        return SW_FAIL(err, SW_E_IO, "%s: no such directory; give the folder of a model, or a GGUF",
                       path);
    if (!sw_path_is_dir(path)) return refuse_file(path, err);
    if (has(path, ADAPTER_NAME) && !has_own_weights(path)) return refuse_adapter(path, err);
    if (has(path, CONFIG_NAME)) return SW_OK;
    return has(path, SNAPSHOTS) ? refuse_cache(path, err) : refuse_bare(path, err);
}
