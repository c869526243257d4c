/* left.c - tensors of a checkpoint that are no part of its decoder. See model.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/model.h"

/* Is `name` the module `path`, or something below it? */
static bool is_at(const char *name, const char *path)
{
    const size_t n = path ? strlen(path) : 0;

    return n && !strncmp(name, path, n) && (!name[n] || name[n] == '.');
}

bool sw_model_owns(const sw_model *m, const char *tensor)
{
    const char *layers = sw_model_end(m, SW_END_LAYERS);
    int64_t found;
    size_t at;
    char *rest;
    long layer;

    if (m->found && sw_found_in_layer(&found, &at, tensor)) return found < m->n_layers;
    for (int end = SW_END_EMBED; end < SW_END_COUNT; end++)
        if (is_at(tensor, sw_model_end(m, (sw_end)end))) return true;
    if (!is_at(tensor, layers) || !tensor[strlen(layers)]) return false;
    layer = strtol(tensor + strlen(layers) + 1, &rest, 10);
    return *rest == '.' && layer >= 0 && layer < m->n_layers;
}

bool sw_model_matrix_path(char path[256], const sw_model *m, const char *tensor, int n_dims)
{
    static const sw_end others[] = {SW_END_EMBED, SW_END_POSITIONS, SW_END_SIDE_TABLE, SW_END_HEAD};
    static const char suffix[] = ".weight";
    const size_t n = strlen(tensor), tail = strlen(suffix);

    if (n_dims != 2 || n <= tail || n >= 256 || strcmp(tensor + n - tail, suffix) != 0)
        return false;
    (void)snprintf(path, 256, "%.*s", (int)(n - tail), tensor);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *name = sw_model_end(m, others[i]);

        if (name && !strcmp(path, name)) return false;
    }
    return true;
}

/* The length of the name of the part that a tensor belongs to: the components that it shares with
 * the path to the layers, and one more. */
static size_t part_bytes(const sw_model *m, const char *tensor)
{
    const char *layers = sw_model_end(m, SW_END_LAYERS);
    size_t common = 0, n;

    for (size_t i = 0; tensor[i] && tensor[i] == layers[i]; i++)
        if (layers[i] == '.' || (!layers[i + 1] && tensor[i + 1] == '.'))
            common = layers[i] == '.' ? i + 1 : i + 2;
    n = common + strcspn(tensor + common, ".");
    return n;
}

void sw_model_part_of(char out[256], const sw_model *m, const char *tensor)
{
    (void)snprintf(out, 256, "%.*s", (int)part_bytes(m, tensor), tensor);
}

bool sw_model_is_extra_head(const sw_model *m, const char *part)
{
    const char *layers = sw_model_end(m, SW_END_LAYERS), *last = strrchr(part, '.');

    if (is_at(part, layers)) return part[strlen(layers)] != '\0';
    last = last ? last + 1 : part;
    return !strncmp(last, "mtp", 3);
}
