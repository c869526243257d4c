/* writer_config.c - config.json of the output, and the file that some dialects repeat it in. */
#include <string.h>

#include "formats/base/mem.h"
#include "formats/dialect/config_text.h"
#include "formats/dialect/writer_internal.h"

static sw_code put_text_file(const sw_ckpt_writer *w, const char *name, const char *text,
                             sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc = sw_path_join(path, w->dir.work_path, name, err);

    return rc == SW_OK ? sw_file_put(path, text, strlen(text), err) : rc;
}

sw_code sw_writer_put_configs(const sw_ckpt_writer *w, sw_err *err)
{
    char path[SW_PATH_BYTES], *spliced = NULL, *side = NULL;
    cJSON *object = NULL;
    sw_map map = {0};
    sw_code rc;

    if ((rc = w->dialect->write_config(&object, &w->qconfig, err)) != SW_OK) return rc;
    if ((rc = sw_path_join(path, w->source->dir, "config.json", err)) != SW_OK ||
        (rc = sw_map_open(&map, path, err)) != SW_OK ||
        (rc = sw_config_splice(&spliced, (const char *)map.data, map.size_bytes, object,
                               sw_writer_dtype_text(w), err)) != SW_OK ||
        (rc = put_text_file(w, "config.json", spliced, err)) != SW_OK)
        goto done;
    if (!w->dialect->side_config) goto done;
    if (w->dialect->write_side) {
        cJSON_Delete(object);
        object = NULL;
        if ((rc = w->dialect->write_side(&object, &w->qconfig, err)) != SW_OK) goto done;
    }
    if ((rc = sw_json_pretty(&side, object, 0, err)) == SW_OK)
        rc = put_text_file(w, w->dialect->side_config, side, err);
done:
    sw_map_close(&map);
    sw_mem_put(spliced);
    sw_mem_put(side);
    cJSON_Delete(object);
    return rc;
}
