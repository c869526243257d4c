/* writer_gguf.c - what a directory made of a GGUF gets besides tensors, config and tokenizer:
 * generation_config.json, and in the manifest the list of weights that were cast.
 */
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/gguf/gguf_generation.h"
#include "formats/gguf/gguf_model.h"

static bool add_cast(cJSON *array, const sw_st_tensor *t, sw_dtype written)
{
    sw_block_type blocks = SW_BLOCK_F32;
    cJSON *row = cJSON_CreateObject();

    (void)sw_gguf_decoded_type(&blocks, t);
    if (row && cJSON_AddStringToObject(row, "tensor", t->name) &&
        cJSON_AddStringToObject(row, "stored", sw_block_sizes[blocks].name) &&
        cJSON_AddStringToObject(row, "written", sw_dtype_name(written)) &&
        cJSON_AddItemToArray(array, row))
        return true;
    cJSON_Delete(row);
    return false;
}

static sw_code note_casts(sw_ckpt_writer *w, sw_err *err)
{
    cJSON *array;
    bool ok;

    if (w->dialect->is_dense) return SW_OK;
    array = cJSON_AddArrayToObject(w->sources, "cast");
    ok = array != NULL;
    for (int64_t i = 0; i < sw_st_count(w->source->st) && ok; i++) {
        const sw_st_tensor *t = sw_st_at(w->source->st, i);

        if (w->claim_of[i] < 0 && sw_gguf_is_widened(t))
            ok = add_cast(array, t, sw_writer_dtype(w, t));
    }
    return ok ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
}

static sw_code put_generation(const sw_ckpt_writer *w, sw_err *err)
{
    char path[SW_PATH_BYTES], *text = NULL;
    sw_gguf *g = NULL;
    sw_code rc = sw_gguf_open(&g, w->source->dir, err);

    if (rc == SW_OK) rc = sw_gguf_generation_config(&text, g, err);
    if (rc == SW_OK && text &&
        (rc = sw_path_join(path, w->dir.work_path, "generation_config.json", err)) == SW_OK)
        rc = sw_file_put(path, text, strlen(text), err);
    sw_mem_put(text);
    sw_gguf_close(g);
    return rc;
}

sw_code sw_writer_put_gguf(sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc;

    if (!w->source->is_file) return SW_OK;
    rc = put_generation(w, err);
    return rc == SW_OK ? note_casts(w, err) : rc;
}
