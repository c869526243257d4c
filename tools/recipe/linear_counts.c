/* linear_counts.c - see linear_counts.h. */
#include "tools/recipe/linear_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cmd.h"

/* Of a family without a row: anything of two dimensions and more that is no bias. */
static bool matrix_found(char path[256], const sw_model *m, const sw_st_tensor *t)
{
    static const char suffix[] = ".weight", bias[] = "bias";
    const size_t n = strlen(t->name);
    int64_t layer;
    size_t at, n_path = n;

    if (t->view.n_dims < 2 || n >= 256 || !sw_found_in_layer(&layer, &at, t->name) ||
        layer >= m->n_layers || !strcmp(t->name + n - strlen(bias), bias))
        return false;
    for (int64_t i = 0; t->view.n_dims == 3 && i < m->found->n; i++) /* taken apart */
        if (!strcmp(m->found->linears[i].tensor, t->name))
            return false;
    if (!strcmp(t->name + n - strlen(suffix), suffix)) n_path -= strlen(suffix);
    (void)snprintf(path, 256, "%.*s", (int)n_path, t->name);
    return true;
}

/* The module of a matrix within the decoder's layers, and its layer; false: the tensor is none. */
static bool matrix_of(char path[256], int64_t *layer, const sw_model *m, const sw_st_tensor *t)
{
    static const char suffix[] = ".weight";
    const char *layers = sw_model_end(m, SW_END_LAYERS);
    const size_t n = strlen(t->name), n_layers = strlen(layers), n_path = n - strlen(suffix);

    if (m->found) return matrix_found(path, m, t);
    if (t->view.n_dims != 2 || n <= strlen(suffix) || n_path >= 256 ||
        strcmp(t->name + n_path, suffix) || strncmp(t->name, layers, n_layers) ||
        t->name[n_layers] != '.' || !sw_model_owns(m, t->name))
        return false;
    (void)snprintf(path, 256, "%.*s", (int)n_path, t->name);
    *layer = strtol(t->name + n_layers + 1, NULL, 10);
    return true;
}

static bool is_in(const char *const *paths, int64_t n, const char *path)
{
    for (int64_t low = 0, high = n; low < high;) {
        const int64_t middle = (low + high) / 2;
        const int order = strcmp(paths[middle], path);

        if (!order) return true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

static bool has_slot(const sw_model *m, int64_t layer, const char *path)
{
    char named[256];

    for (int s = 0; s < SW_SLOT_COUNT; s++)
        if (sw_model_slot_path(named, m, layer, (sw_slot)s, -1) && !strcmp(named, path))
            return true;
    return false;
}

void sw_linear_counts_find(sw_linear_counts *out, const sw_checkpoint *source,
                           const sw_selection *selection)
{
    const sw_selection *s = selection;

    *out = (sw_linear_counts){.n_quantized = s->n_linears, .n_by_pattern = s->n_by_pattern,
                              .n_by_rule = s->n_ignored - s->n_by_pattern};
    for (int64_t i = 0; i < sw_st_count(source->st); i++) {
        char path[256];
        int64_t layer = 0;

        if (!matrix_of(path, &layer, &source->model, sw_st_at(source->st, i)) ||
            sw_selection_has(s, path) || is_in(s->ignored, s->n_ignored, path))
            continue;
        if (has_slot(&source->model, layer, path)) {
            out->n_by_rule++;
            continue;
        }
        if (!out->n_unknown++)
            (void)snprintf(out->first_unknown, sizeof out->first_unknown, "%s", path);
    }
}

void sw_linear_counts_print(const sw_linear_counts *c)
{
    (void)printf("left        %lld linears by rule, %lld by pattern, %lld unknown\n",
                 (long long)c->n_by_rule, (long long)c->n_by_pattern, (long long)c->n_unknown);
    if (c->n_unknown)
        (void)printf("unknown     %s is the first matrix that the family does not name; copied\n",
                     c->first_unknown);
}

sw_code sw_linear_counts_add_json(cJSON *root, const sw_linear_counts *c, sw_err *err)
{
    cJSON *o = cJSON_AddObjectToObject(root, "linear_counts");
    const bool ok = o && cJSON_AddNumberToObject(o, "quantized", (double)c->n_quantized) &&
                    cJSON_AddNumberToObject(o, "left_by_rule", (double)c->n_by_rule) &&
                    cJSON_AddNumberToObject(o, "left_by_pattern", (double)c->n_by_pattern) &&
                    cJSON_AddNumberToObject(o, "unknown", (double)c->n_unknown);

    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}
