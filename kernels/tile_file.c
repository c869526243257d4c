/* tile_file.c - weights in Swage tiles by the name of their module. See tile_file.h. */
#include <string.h>

#include "formats/checkpoint/checkpoint.h"
#include "kernels/tile_file.h"

struct sw_tile_file {
    sw_checkpoint ckpt;
};

sw_code sw_tile_file_open(sw_tile_file **out, const char *dir, sw_err *err)
{
    sw_tile_file *file = NULL;
    sw_code rc = SW_MEM_GET(&file, 1, "checkpoint", err);

    if (rc != SW_OK) return rc;
    if ((rc = sw_checkpoint_open(&file->ckpt, dir, err)) == SW_OK &&
        !sw_checkpoint_has_tiles(&file->ckpt))
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "%s: not in Swage tiles; make them with swage convert "
                     "%s --to swage -o OUT", dir, dir);
    if (rc == SW_OK)
        *out = file;
    else
        sw_tile_file_close(file);
    return rc;
}

void sw_tile_file_close(sw_tile_file *file)
{
    if (!file) return;
    sw_checkpoint_close(&file->ckpt);
    sw_mem_put(file);
}

/* The linear that has this path, among those of a layer. */
static sw_code find_in_layer(bool *is_found, sw_linear_ref *out, const sw_model *m, int64_t layer,
                             const char *path, sw_err *err)
{
    const int64_t n = sw_model_linears(m, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    char name[256];
    sw_code rc = SW_MEM_GET(&refs, n, "linears", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(m, layer, refs, n);
    for (int64_t i = 0; i < n && !*is_found; i++) {
        if (!sw_model_slot_path(name, m, layer, refs[i].slot, refs[i].expert) ||
            strcmp(name, path) != 0)
            continue;
        *is_found = true;
        *out = refs[i];
    }
    sw_mem_put(refs);
    return SW_OK;
}

sw_code sw_tile_file_get(sw_tiles *out, const sw_tile_file *file, const char *path, sw_err *err)
{
    const sw_model *m = &file->ckpt.model;
    sw_linear_ref ref = {0};
    bool is_found = false;
    sw_code rc = SW_OK;

    for (int64_t l = 0; l < m->n_layers && rc == SW_OK && !is_found; l++)
        rc = find_in_layer(&is_found, &ref, m, l, path, err);
    if (rc != SW_OK) return rc;
    if (!is_found || !sw_checkpoint_is_quantized(&file->ckpt, path))
        return SW_FAIL(err, SW_E_USAGE, "%s: no quantized linear \"%.200s\"", file->ckpt.dir, path);
    return sw_checkpoint_tiles(out, &file->ckpt, path, ref.n_out, ref.k_in, err);
}
