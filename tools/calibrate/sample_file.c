/* sample_file.c - see sample_file.h. */
#include "tools/calibrate/sample_file.h"

#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/io/file.h"

int sw_sample_file_id_bytes(const char *path)
{
    size_t n = strlen(path);

    if (n >= 4 && !strcmp(path + n - 4, ".u16")) return 2;
    return n >= 4 && !strcmp(path + n - 4, ".u32") ? 4 : 0;
}

static sw_code add_text(sw_sample_file *file, const char *text, size_t n, sw_err *err)
{
    if (file->text_bytes + n > file->text_room) {
        size_t room = 2 * (file->text_bytes + n) + 256;
        char *grown = NULL;
        sw_code rc = SW_MEM_GET(&grown, room, "sampled text", err);
        if (rc != SW_OK) return rc;
        if (file->text_bytes) memcpy(grown, file->text, file->text_bytes);
        sw_mem_put(file->text);
        file->text = grown;
        file->text_room = room;
    }
    memcpy(file->text + file->text_bytes, text, n);
    file->text_bytes += n;
    return SW_OK;
}

static sw_code add_ids(sw_sample_file *file, const sw_ids *ids, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < ids->n && rc == SW_OK; i++)
        rc = sw_ids_push(&file->ids, ids->ids[i], err);
    return rc;
}

sw_code sw_sample_file_add(sw_sample_file *file, const sw_tokenizer *tok, const sw_ids *prompt,
                           const sw_ids *sample, sw_err *err)
{
    int64_t from = file->ids.n;
    char *text = NULL;
    size_t n = 0;
    sw_code rc;

    if ((rc = add_ids(file, prompt, err)) != SW_OK) return rc;
    if ((rc = add_ids(file, sample, err)) != SW_OK) return rc;
    rc = sw_tokenizer_decode(tok, &text, &n, file->ids.ids + from, file->ids.n - from, true, err);
    if (rc == SW_OK && file->text_bytes) rc = add_text(file, "\n", 1, err);
    if (rc == SW_OK) rc = add_text(file, text, n, err);
    if (rc == SW_OK) rc = add_text(file, "\n", 1, err);
    sw_mem_put(text);
    return rc;
}

static sw_code write_ids(const sw_ids *ids, int id_bytes, const char *path, bool may_replace,
                         sw_err *err)
{
    unsigned char *bytes = NULL;
    sw_code rc = SW_MEM_GET(&bytes, ids->n * id_bytes, "token file", err);

    for (int64_t i = 0; i < ids->n && rc == SW_OK; i++) {
        if (id_bytes == 2 && ids->ids[i] > UINT16_MAX)
            rc = SW_FAIL(err, SW_E_UNSUPPORTED, "%s: id %u does not fit 16 bits; write .u32", path,
                         ids->ids[i]);
        else if (id_bytes == 2)
            sw_store_le16(bytes + 2 * i, (uint16_t)ids->ids[i]);
        else
            sw_store_le32(bytes + 4 * i, ids->ids[i]);
    }
    if (rc == SW_OK)
        rc = sw_file_put_new(path, bytes, (size_t)(ids->n * id_bytes), may_replace, err);
    sw_mem_put(bytes);
    return rc;
}

sw_code sw_sample_file_write(const sw_sample_file *file, const char *path, bool may_replace,
                             sw_err *err)
{
    int id_bytes = sw_sample_file_id_bytes(path);

    return id_bytes ? write_ids(&file->ids, id_bytes, path, may_replace, err)
                    : sw_file_put_new(path, file->text, file->text_bytes, may_replace, err);
}

void sw_sample_file_free(sw_sample_file *file)
{
    sw_ids_free(&file->ids);
    sw_mem_put(file->text);
    memset(file, 0, sizeof *file);
}
