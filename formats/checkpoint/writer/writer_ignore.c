/* writer_ignore.c - the modules that loaders of the output must leave as floats.
 *
 * Loaders quantize every linear that they are not told to leave: they are told of each that is in
 * the model and not claimed, of the towers beside the decoder, and of heads that predict further
 * tokens, besides what the caller names.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/writer_internal.h"

typedef struct ignore_list {
    const char **paths;
    int64_t n;
    const char **given; /* the caller's, sorted */
    int64_t n_given;
} ignore_list;

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_given(const ignore_list *list, const char *path)
{
    return list->n_given && bsearch(&path, list->given, (size_t)list->n_given,
                                    sizeof *list->given, compare_texts);
}

static sw_code add(ignore_list *list, sw_ckpt_writer *w, const char *path, sw_err *err)
{
    char *kept;
    sw_code rc;

    if (is_given(list, path)) return SW_OK;
    rc = sw_arena_text(&kept, &w->arena, path, strlen(path), err);
    if (rc == SW_OK) list->paths[list->n++] = kept;
    return rc;
}

static sw_code add_layer(ignore_list *list, sw_ckpt_writer *w, int64_t layer, sw_err *err)
{
    const sw_model *m = &w->source->model;
    int64_t n = sw_model_linears(m, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    char path[256];
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a layer", err);

    if (rc != SW_OK) return rc;
    n = sw_model_linears(m, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert) &&
            !sw_claim_find(w, path))
            rc = add(list, w, path, err);
    if (rc == SW_OK && sw_model_is_sparse(m, layer) &&
        sw_model_slot_path(path, m, layer, SW_SLOT_ROUTER, -1))
        rc = add(list, w, path, err);
    sw_mem_put(refs);
    return rc;
}

/* From now on also what was added counts as given. */
static sw_code sort_given(ignore_list *list, sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(&list->given, &w->arena, list->n, err);

    if (rc != SW_OK) return rc;
    list->n_given = list->n;
    if (list->n) {
        memcpy(list->given, list->paths, (size_t)list->n * sizeof *list->given);
        qsort(list->given, (size_t)list->n, sizeof *list->given, compare_texts);
    }
    return SW_OK;
}

/* Linears that no slot of the model names: towers, projectors, small gates. */
static sw_code add_left(ignore_list *list, sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc = sort_given(list, w, err);

    for (int64_t i = 0; i < sw_st_count(w->source->st) && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(w->source->st, i);
        char path[256];

        if (w->claim_of[i] == SW_DECODED)
            rc = add(list, w, sw_writer_rest_at(w, i)->path, err);
        else if (w->claim_of[i] < 0 &&
                 sw_model_matrix_path(path, &w->source->model, t->name, t->view.n_dims))
            rc = add(list, w, path, err);
    }
    return rc;
}

/* Engines call the parts of these heads by names of their own, so the whole is named. */
static sw_code gather_extra_heads(sw_ckpt_writer *w, sw_err *err)
{
    const sw_model *m = &w->source->model;
    const char **heads = NULL;
    int64_t n = 0;
    sw_code rc = SW_ARENA_TAKE(&heads, &w->arena, SW_EXTRA_HEADS_MAX, err);

    for (int64_t i = 0; i < sw_st_count(w->source->st) && rc == SW_OK; i++) {
        const char *name = sw_st_at(w->source->st, i)->name;
        char part[256], *kept;
        bool is_new = n < SW_EXTRA_HEADS_MAX && !sw_model_owns(m, name);

        sw_model_part_of(part, m, name);
        is_new = is_new && sw_model_is_extra_head(m, part);
        for (int64_t k = 0; k < n && is_new; k++) is_new = strcmp(heads[k], part) != 0;
        if (!is_new) continue;
        rc = sw_arena_text(&kept, &w->arena, part, strlen(part), err);
        if (rc == SW_OK) heads[n++] = kept;
    }
    w->qconfig.extra_heads = heads;
    w->qconfig.n_extra_heads = n;
    return rc;
}

/* "...mlp.experts" of the path of an expert's linear; false: it is none. */
static bool experts_module(char out[256], const char *path)
{
    static const char word[] = ".experts.";
    const char *at = strstr(path, word);

    if (!at || !strspn(at + strlen(word), "0123456789")) return false;
    (void)snprintf(out, 256, "%.*s", (int)(at - path + (ptrdiff_t)strlen(word) - 1), path);
    return true;
}

/* Is a linear below this module claimed? The first that may be stands where the module's own path
 * with a dot would. */
static bool has_claims_below(const sw_ckpt_writer *w, const char *module)
{
    const size_t n = strlen(module);
    int64_t low = 0, high = w->n_claims;

    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        const char *path = w->claims[mid].module_path;
        const int order = strncmp(path, module, n);

        if (order < 0 || (order == 0 && path[n] < '.'))
            low = mid + 1;
        else
            high = mid;
    }
    return low < w->n_claims && !strncmp(w->claims[low].module_path, module, n) &&
           w->claims[low].module_path[n] == '.';
}

/* The experts of a layer are listed together, so the last module found is the one to compare. */
static sw_code gather_whole_experts(sw_ckpt_writer *w, const ignore_list *list, sw_err *err)
{
    const char **modules = NULL;
    char module[256], last[256] = "";
    int64_t n = 0;
    sw_code rc = SW_ARENA_TAKE(&modules, &w->arena, list->n, err);

    for (int64_t i = 0; i < list->n && rc == SW_OK; i++) {
        char *kept;

        if (!experts_module(module, list->paths[i]) || !strcmp(module, last)) continue;
        (void)snprintf(last, sizeof last, "%s", module);
        if (has_claims_below(w, module)) continue;
        rc = sw_arena_text(&kept, &w->arena, module, strlen(module), err);
        if (rc == SW_OK) modules[n++] = kept;
    }
    w->qconfig.whole_experts = modules;
    w->qconfig.n_whole_experts = n;
    return rc;
}

/* Several passes may have named experts of a layer: each of its modules once. */
static void drop_repeats(sw_qconfig *config)
{
    const char **modules = (const char **)(uintptr_t)config->whole_experts;
    int64_t n = 0;

    for (int64_t i = 0; i < config->n_whole_experts; i++) {
        bool is_new = true;

        for (int64_t k = 0; k < n && is_new; k++) is_new = strcmp(modules[k], modules[i]) != 0;
        if (is_new) modules[n++] = modules[i];
    }
    config->n_whole_experts = n;
}

sw_code sw_writer_gather_ignore(sw_ckpt_writer *w, const sw_qconfig *given, sw_err *err)
{
    const sw_model *m = &w->source->model;
    /* one router a layer at most, and what is left over of the source */
    int64_t room = given->n_ignore + m->n_layers + sw_st_count(w->source->st);
    ignore_list list = {0};
    sw_code rc = SW_OK;

    for (int64_t layer = 0; layer <= m->n_layers; layer++)
        room += sw_model_linears(m, layer, NULL, 0);
    if ((rc = SW_ARENA_TAKE(&list.paths, &w->arena, room, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < given->n_ignore && rc == SW_OK; i++)
        rc = add(&list, w, given->ignore[i], err);
    if (rc == SW_OK) rc = sort_given(&list, w, err);
    for (int64_t layer = 0; layer <= m->n_layers && rc == SW_OK; layer++)
        rc = add_layer(&list, w, layer, err);
    if (rc == SW_OK) rc = add_left(&list, w, err);
    if (rc == SW_OK) rc = gather_extra_heads(w, err);
    if (rc == SW_OK) rc = gather_whole_experts(w, &list, err);
    drop_repeats(&w->qconfig);
    w->qconfig.has_head = sw_claim_find(w, sw_model_end(m, SW_END_HEAD)) != NULL;
    w->qconfig.ignore = list.paths;
    w->qconfig.n_ignore = list.n;
    return rc;
}
