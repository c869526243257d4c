/* left_parts.c - see left_parts.h. */
#include "tools/recipe/left_parts.h"

#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/side_files.h"
#include "tools/cli/cmd.h"
#include "tools/cli/term.h"

#define NAMED_MAX 6

static sw_left_part *part_named(sw_left_parts *parts, const char *name)
{
    for (int i = 0; i < parts->n; i++)
        if (!strcmp(parts->part[i].name, name)) return &parts->part[i];
    if (parts->n < SW_LEFT_PARTS_MAX) {
        (void)snprintf(parts->part[parts->n].name, sizeof parts->part[0].name, "%s", name);
        parts->n++;
    }
    return &parts->part[parts->n - 1];
}

void sw_left_parts_find(sw_left_parts *out, const sw_checkpoint *ckpt)
{
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < sw_st_count(ckpt->st); i++) {
        const sw_st_tensor *t = sw_st_at(ckpt->st, i);
        sw_left_part *part;
        char name[256];

        if (sw_model_owns(&ckpt->model, t->name)) continue;
        sw_model_part_of(name, &ckpt->model, t->name);
        part = part_named(out, name);
        part->n_tensors++;
        part->n_bytes += (double)t->view.size_bytes;
        part->is_extra_head = sw_model_is_extra_head(&ckpt->model, part->name);
    }
}

void sw_left_parts_print(const sw_left_parts *parts)
{
    for (int i = 0; i < parts->n; i++) {
        const sw_left_part *part = &parts->part[i];
        char bytes[16];

        sw_term_bytes(bytes, part->n_bytes);
        (void)printf("left        %s: %lld tensors, %s, %s\n", part->name,
                     (long long)part->n_tensors, bytes,
                     part->is_extra_head ? "a head for further tokens" : "outside the decoder");
    }
}

sw_code sw_left_parts_add_json(cJSON *root, const sw_left_parts *parts, sw_err *err)
{
    cJSON *list = parts->n ? cJSON_AddArrayToObject(root, "left") : root;
    bool ok = list != NULL;

    for (int i = 0; i < parts->n && ok; i++) {
        cJSON *row = cJSON_CreateObject();

        ok = cJSON_AddItemToArray(list, row) &&
             cJSON_AddStringToObject(row, "part", parts->part[i].name) &&
             cJSON_AddNumberToObject(row, "tensors", (double)parts->part[i].n_tensors) &&
             cJSON_AddNumberToObject(row, "bytes", parts->part[i].n_bytes);
    }
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}

/* What names the directories of an embedding model, and is of no use without them. */
static bool is_list_of_dirs(const sw_dir_entry *entry)
{
    return entry->role == SW_DIR_FOREIGN && !strcmp(entry->name, "modules.json");
}

/* With directories what belongs to them. Caches of downloads and of version control begin with a
 * point. */
static bool is_left(const sw_dir_entry *entry, bool is_dir)
{
    if (is_dir) return is_list_of_dirs(entry) || (entry->is_dir && *entry->name != '.');
    return entry->role == SW_DIR_FOREIGN && !is_list_of_dirs(entry);
}

/* The line's beginning: names of files, or of directories. Returns how many there are. */
static int64_t print_left(const sw_dir_list *list, bool is_dir)
{
    int64_t n = 0;

    for (int64_t i = 0; i < list->n_entries; i++) {
        const sw_dir_entry *entry = &list->entries[i];

        if (!is_left(entry, is_dir)) continue;
        if (n < NAMED_MAX)
            (void)printf("%s%.80s%s", n ? ", " : "left        ", entry->name,
                         entry->is_dir ? "/" : "");
        n++;
    }
    if (n > NAMED_MAX) (void)printf(" and %lld more", (long long)n - NAMED_MAX);
    return n;
}

static bool has_list(const sw_dir_list *list)
{
    for (int64_t i = 0; i < list->n_entries; i++)
        if (is_list_of_dirs(&list->entries[i])) return true;
    return false;
}

void sw_left_files_print(const sw_checkpoint *source)
{
    sw_dir_list list = {0};
    sw_arena arena = {0};
    sw_err ignored = {0};
    int64_t n;

    if (source->is_file || sw_dir_read(&list, source->dir, &arena, &ignored) != SW_OK)
        list.n_entries = 0;
    n = print_left(&list, false);
    if (n) (void)printf(": not copied, %s no part of a checkpoint\n", n > 1 ? "they are" : "it is");
    n = print_left(&list, true);
    if (n)
        (void)printf(": not copied; copy %s yourself if your engine reads %s%s\n",
                     n > 1 ? "these" : "it", n > 1 ? "them" : "it",
                     has_list(&list) ? ": without modules.json it pools embeddings by its default"
                                     : "");
    sw_arena_free(&arena);
}
