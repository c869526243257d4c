/* writer_config.c - config.json of the output, and the file that some dialects repeat it in. */
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/file/config_text.h"
#include "formats/gguf/gguf_model.h"
#include "formats/text/files/tokenizer_files.h"

static sw_code put_text_file(const sw_ckpt_writer *w, const char *name, const char *text,
                             sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc = sw_path_join(path, w->dir.work_path, name, err);

    return rc == SW_OK ? sw_file_put(path, text, strlen(text), err) : rc;
}

static sw_code make_side(char **out, const sw_ckpt_writer *w, const cJSON *config, sw_err *err)
{
    cJSON *own = NULL;
    sw_code rc = SW_OK;

    if (!w->dialect->side_config) return SW_OK;
    if (w->dialect->write_side) rc = w->dialect->write_side(&own, &w->qconfig, err);
    if (rc == SW_OK) rc = sw_json_pretty(out, own ? own : config, 0, err);
    cJSON_Delete(own);
    return rc;
}

sw_code sw_writer_make_configs(char **config, char **side, const sw_ckpt_writer *w, sw_err *err)
{
    char path[SW_PATH_BYTES], *printed = NULL;
    cJSON *object = NULL;
    sw_map map = {0};
    sw_code rc;

    *config = *side = NULL;
    if ((rc = w->dialect->write_config(&object, &w->qconfig, err)) != SW_OK) return rc;
    if (w->source->is_file) {
        rc = sw_json_pretty(&printed, w->source->config, 0, err);
    } else if ((rc = sw_path_join(path, w->source->dir, "config.json", err)) == SW_OK) {
        rc = sw_map_open(&map, path, err);
    }
    if (rc == SW_OK)
        rc = sw_config_splice(config, printed ? printed : (const char *)map.data,
                              printed ? strlen(printed) : map.size_bytes, object,
                              sw_writer_dtype_text(w), err);
    if (rc == SW_OK) rc = make_side(side, w, object, err);
    sw_map_close(&map);
    sw_mem_put(printed);
    cJSON_Delete(object);
    return rc;
}

sw_code sw_writer_put_configs(const sw_ckpt_writer *w, sw_err *err)
{
    char *config = NULL, *side = NULL;
    sw_code rc = sw_writer_make_configs(&config, &side, w, err);

    if (rc == SW_OK) rc = put_text_file(w, "config.json", config, err);
    if (rc == SW_OK && side) rc = put_text_file(w, w->dialect->side_config, side, err);
    sw_mem_put(config);
    sw_mem_put(side);
    return rc;
}

/* Engines want tokenizer.json. A checkpoint without one is still whole: text is not its matter. */
sw_code sw_writer_make_tokenizer(char **out, size_t *n_bytes, const sw_ckpt_writer *w, sw_err *note,
                                 sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc = sw_path_join(path, w->source->dir, "tokenizer.json", err);

    *out = NULL;
    *n_bytes = 0;
    if (rc != SW_OK || sw_path_exists(path) || !sw_tokenizer_files_find(path, w->source->dir))
        return rc;
    rc = sw_tokenizer_files_make(out, n_bytes, w->source->dir, note);
    if (rc == SW_OK) return rc;
    if (rc != SW_E_FORMAT && rc != SW_E_UNSUPPORTED) return SW_FAIL(err, rc, "%s", note->text);
    sw_err_prefix(note, "no tokenizer.json is written");
    *out = NULL;
    *n_bytes = 0;
    return SW_OK;
}

static sw_code put_made_tokenizer(sw_ckpt_writer *w, sw_err *err)
{
    char *json = NULL;
    size_t n_bytes = 0;
    sw_code rc = sw_writer_make_tokenizer(&json, &n_bytes, w, &w->note, err);

    if (rc == SW_OK && json) rc = put_text_file(w, "tokenizer.json", json, err);
    sw_mem_put(json);
    return rc;
}

sw_code sw_writer_put_made_files(sw_ckpt_writer *w, sw_err *err)
{
    char *tokenizer = NULL, *config = NULL, *special = NULL;
    size_t n_bytes = 0;
    sw_gguf *g = NULL;
    sw_code rc;

    if (!w->source->is_file) return put_made_tokenizer(w, err);
    if ((rc = sw_gguf_open(&g, w->source->dir, err)) != SW_OK) return rc;
    if (sw_gguf_key(g, "tokenizer.ggml.tokens") &&
        (rc = sw_gguf_tokenizer(&tokenizer, &n_bytes, g, err)) == SW_OK &&
        (rc = sw_gguf_tokenizer_config(&config, g, err)) == SW_OK &&
        (rc = sw_gguf_special_tokens(&special, g, err)) == SW_OK &&
        (rc = put_text_file(w, "tokenizer.json", tokenizer, err)) == SW_OK &&
        (rc = put_text_file(w, "tokenizer_config.json", config, err)) == SW_OK)
        rc = put_text_file(w, "special_tokens_map.json", special, err);
    sw_mem_put(special);
    sw_mem_put(tokenizer);
    sw_mem_put(config);
    sw_gguf_close(g);
    return rc;
}
