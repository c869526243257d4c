/* gguf_locate.c - which GGUF a path means; see model_path.h. */
#include <string.h>

#include "formats/checkpoint/model_path.h"
#include "formats/checkpoint/side_files.h"
#include "formats/file/gguf.h"

/* The only name in the listing that is a GGUF, or the first of the only set of splits. */
static const char *only_gguf(const sw_dir_list *list)
{
    const char *found = NULL;

    for (int64_t i = 0; i < list->n_entries; i++) {
        const char *name = list->entries[i].name, *end = strrchr(name, '.');
        const char *of = strstr(name, "-of-");

        if (list->entries[i].role != SW_DIR_WEIGHTS || !end || strcmp(end, ".gguf")) continue;
        if (of && of - name > 6 && strncmp(of - 6, "-00001", 6) && found) continue;
        if (found) return NULL;
        found = name;
    }
    return found;
}

bool sw_gguf_locate(char out[SW_PATH_BYTES], const char *path)
{
    char at[SW_PATH_BYTES];
    sw_dir_list list = {0};
    sw_arena arena = {0};
    sw_err ignored = {0};
    const char *name = NULL;

    if (sw_gguf_is(path)) {
        if (strlen(path) >= SW_PATH_BYTES) return false;
        memcpy(out, path, strlen(path) + 1);
        return true;
    }
    if (!sw_path_is_dir(path) || sw_path_join(at, path, "config.json", &ignored) != SW_OK ||
        sw_path_exists(at))
        return false;
    if (sw_dir_read(&list, path, &arena, &ignored) == SW_OK) name = only_gguf(&list);
    if (name && (sw_path_join_inside(at, path, name, &ignored) != SW_OK || !sw_gguf_is(at)))
        name = NULL;
    if (name) memcpy(out, at, sizeof at);
    sw_arena_free(&arena);
    return name != NULL;
}
