/* selection.c - see selection.h. */
#include "tools/selection.h"

#include <stdlib.h>
#include <string.h>

#include "tools/pattern_set.h"

typedef struct builder {
    sw_selection *out;
    const sw_model *model;
    const sw_qspec *spec;
    const sw_dialect *dialect;
    sw_pattern_set patterns;
    sw_err *err;
} builder;

static int compare_linears(const void *a, const void *b)
{
    return strcmp(((const sw_ckpt_linear *)a)->module_path,
                  ((const sw_ckpt_linear *)b)->module_path);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sw_code check_fit(const builder *b, const sw_linear_ref *ref, const char *path)
{
    int64_t group = b->spec->group_elems;
    sw_code rc;

    if (group && ref->k_in % group != 0)
        return SW_FAIL(b->err, SW_E_UNSUPPORTED,
                       "%s: groups of %lld do not divide its %lld inputs; use another "
                       "--group-size or leave it out with --ignore",
                       path, (long long)group, (long long)ref->k_in);
    rc = b->dialect->can_hold(b->spec, ref->n_out, ref->k_in, b->err);
    if (rc != SW_OK) sw_err_prefix(b->err, "%s", path);
    return rc;
}

/* One linear: into the list of those to quantize, or of those left alone. */
static sw_code add_linear(builder *b, const sw_linear_ref *ref, bool *is_kept)
{
    sw_selection *out = b->out;
    char path[256];
    char *copy;
    sw_code rc;

    if (!sw_model_slot_path(path, b->model, ref->layer, ref->slot, ref->expert))
        return SW_FAIL(b->err, SW_E_BUG, "a linear without a path");
    if ((rc = sw_arena_text(&copy, &out->arena, path, strlen(path), b->err)) != SW_OK) return rc;
    if (sw_pattern_set_match(&b->patterns, path)) {
        out->ignored[out->n_ignored++] = copy;
        *is_kept = false;
        return SW_OK;
    }
    if ((rc = check_fit(b, ref, path)) != SW_OK) return rc;
    out->linears[out->n_linears].module_path = copy;
    out->linears[out->n_linears].n_out = ref->n_out;
    out->linears[out->n_linears++].k_in = ref->k_in;
    out->n_weights += ref->n_out * ref->k_in;
    *is_kept = true;
    return SW_OK;
}

/* Engines load q, k, v (and gate, up) as one matrix, so they share one scheme or none. */
static sw_code check_fused(const builder *b, const sw_linear_ref *refs, const bool *kept,
                           int64_t i)
{
    char path[256], other[256];

    for (int64_t j = i - 1; j >= 0 && refs[j].site == refs[i].site &&
                            refs[j].expert == refs[i].expert; j--) {
        if (kept[j] == kept[i]) continue;
        (void)sw_model_slot_path(path, b->model, refs[i].layer, refs[i].slot, refs[i].expert);
        (void)sw_model_slot_path(other, b->model, refs[j].layer, refs[j].slot, refs[j].expert);
        return SW_FAIL(b->err, SW_E_USAGE,
                       "--ignore takes %s but not %s; engines load the two as one, so ignore both "
                       "or neither",
                       kept[i] ? other : path, kept[i] ? path : other);
    }
    return SW_OK;
}

static sw_code add_router(builder *b, int64_t layer)
{
    char path[256];
    char *copy;
    sw_code rc;

    if (!sw_model_is_sparse(b->model, layer) ||
        !sw_model_slot_path(path, b->model, layer, SW_SLOT_ROUTER, -1))
        return SW_OK;
    if ((rc = sw_arena_text(&copy, &b->out->arena, path, strlen(path), b->err)) != SW_OK)
        return rc;
    b->out->ignored[b->out->n_ignored++] = copy;
    return SW_OK;
}

static sw_code add_layer(builder *b, int64_t layer)
{
    int64_t n = sw_model_linears(b->model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    bool *kept = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&refs, n, "linears of a block", b->err)) != SW_OK ||
        (rc = SW_MEM_GET(&kept, n, "linears of a block", b->err)) != SW_OK)
        goto done;
    (void)sw_model_linears(b->model, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if ((rc = add_linear(b, &refs[i], &kept[i])) == SW_OK) rc = check_fused(b, refs, kept, i);
    if (rc == SW_OK) rc = add_router(b, layer);
done:
    sw_mem_put(refs);
    sw_mem_put(kept);
    return rc;
}

static sw_code build(builder *b)
{
    sw_selection *out = b->out;
    int64_t n_max = 1; /* lm_head */
    sw_code rc;

    for (int64_t layer = 0; layer < b->model->n_layers; layer++)
        n_max += sw_model_linears(b->model, layer, NULL, 0) + 1;
    if ((rc = SW_ARENA_TAKE(&out->linears, &out->arena, n_max, b->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&out->ignored, &out->arena, n_max, b->err)) != SW_OK)
        return rc;
    for (int64_t layer = 0; layer < b->model->n_layers; layer++)
        if ((rc = add_layer(b, layer)) != SW_OK) return rc;
    if ((rc = sw_pattern_set_check(&b->patterns, b->err)) != SW_OK) return rc;
    if (!out->n_linears)
        return SW_FAIL(b->err, SW_E_USAGE, "--ignore leaves nothing to quantize");
    if (!b->model->is_tied) out->ignored[out->n_ignored++] = "lm_head";
    qsort(out->linears, (size_t)out->n_linears, sizeof *out->linears, compare_linears);
    qsort(out->ignored, (size_t)out->n_ignored, sizeof *out->ignored, compare_paths);
    return SW_OK;
}

sw_code sw_selection_new(sw_selection *out, const sw_model *model, const sw_qspec *spec,
                         const sw_dialect *dialect, const sw_opt_list *patterns, sw_err *err)
{
    builder b = {.out = out, .model = model, .spec = spec, .dialect = dialect, .err = err};
    sw_code rc;

    memset(out, 0, sizeof *out);
    if ((rc = sw_pattern_set_new(&b.patterns, patterns->items, patterns->n, "--ignore", err)) ==
        SW_OK)
        rc = build(&b);
    sw_pattern_set_free(&b.patterns);
    if (rc != SW_OK) sw_selection_free(out);
    return rc;
}

void sw_selection_free(sw_selection *selection)
{
    sw_arena_free(&selection->arena);
    memset(selection, 0, sizeof *selection);
}

bool sw_selection_has(const sw_selection *selection, const char *module_path)
{
    sw_ckpt_linear key = {.module_path = module_path};

    return selection->n_linears &&
           bsearch(&key, selection->linears, (size_t)selection->n_linears,
                   sizeof *selection->linears, compare_linears) != NULL;
}
