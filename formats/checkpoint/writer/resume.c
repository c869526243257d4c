/* resume.c - see resume.h. */
#include "formats/checkpoint/writer/resume.h"

#include <string.h>

#include "formats/base/mem.h"
#include "formats/io/watch.h"

sw_code sw_resume_begin(sw_resume *out, const sw_out_dir *dir, const cJSON *key, sw_err *err)
{
    sw_resume k = {.is_on = true, .journal = {.fd = -1}};
    char path[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = sw_path_join(path, dir->hold_path, SW_HOLD_JOURNAL, err)) != SW_OK) return rc;
    if (!(k.pending = cJSON_CreateArray()))
        return SW_FAIL(err, SW_E_NOMEM, "tensors of a block for the journal");
    if (dir->is_resumed) {
        if ((rc = sw_journal_open(&k.journal, path, err)) == SW_OK)
            rc = sw_journal_check_key(&k.journal, key, dir->hold_path, err);
    } else {
        rc = sw_journal_create(&k.journal, path, key, err);
    }
    if (rc == SW_OK)
        *out = k;
    else
        sw_resume_free(&k);
    return rc;
}

void sw_resume_free(sw_resume *resume)
{
    if (!resume->is_on) return;
    sw_journal_close(&resume->journal);
    cJSON_Delete(resume->pending);
    memset(resume, 0, sizeof *resume);
}

int64_t sw_resume_n_blocks(const sw_resume *resume)
{
    return resume->is_on ? sw_journal_n_blocks(&resume->journal) : 0;
}

const cJSON *sw_resume_block(const sw_resume *resume, int64_t block)
{
    return cJSON_GetArrayItem(resume->journal.blocks, (int)block);
}

sw_code sw_resume_note(sw_resume *resume, const char *name, const void *data, uint64_t n_bytes,
                       sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES];
    cJSON *item;
    sw_code rc;

    if (!resume->is_on) return SW_OK;
    if ((rc = sw_sha256_hex(digest, data, (size_t)n_bytes, err)) != SW_OK) return rc;
    item = cJSON_CreateObject();
    if (item && cJSON_AddStringToObject(item, "name", name) &&
        cJSON_AddNumberToObject(item, "bytes", (double)n_bytes) &&
        cJSON_AddStringToObject(item, "sha256", digest) &&
        cJSON_AddItemToArray(resume->pending, item))
        return SW_OK;
    cJSON_Delete(item);
    return SW_FAIL(err, SW_E_NOMEM, "tensor of a block for the journal");
}

sw_code sw_resume_end_block(sw_resume *resume, const sw_st_writer *st, cJSON *figures, sw_err *err)
{
    cJSON *next = NULL;
    sw_code rc;

    if (!resume->is_on) {
        cJSON_Delete(figures);
        return SW_OK;
    }
    /* a block that was made from other bytes than the journal names must not get into it */
    if ((rc = sw_watch_check(err)) != SW_OK || (rc = sw_st_writer_sync(st, err)) != SW_OK)
        goto fail;
    if (!(next = cJSON_CreateArray()) ||
        !cJSON_AddItemToObject(figures, "tensors", resume->pending)) {
        cJSON_Delete(next);
        rc = SW_FAIL(err, SW_E_NOMEM, "line of the journal");
        goto fail;
    }
    resume->pending = next;
    return sw_journal_add_block(&resume->journal, figures, err);
fail:
    cJSON_Delete(figures);
    return rc;
}

static sw_code check_tensor(const cJSON *item, sw_st_writer *st, const char **name,
                            int64_t *n_bytes, sw_err *err)
{
    char have[SW_SHA256_HEX_BYTES];
    const char *want = NULL;
    void *data = NULL;
    sw_code rc;

    if ((rc = sw_json_text(name, item, "name", err)) != SW_OK ||
        (rc = sw_json_text(&want, item, "sha256", err)) != SW_OK ||
        (rc = sw_json_int(n_bytes, item, "bytes", 0, INT64_MAX >> 10, err)) != SW_OK ||
        (rc = sw_mem_get(&data, *n_bytes, 1, "finished tensor", err)) != SW_OK)
        return rc;
    if ((rc = sw_st_writer_take(st, *name, data, (size_t)*n_bytes, err)) == SW_OK &&
        (rc = sw_sha256_hex(have, data, (size_t)*n_bytes, err)) == SW_OK && strcmp(have, want) != 0)
        rc = SW_FAIL(err, SW_E_FORMAT,
                     "tensor \"%s\" is not what an earlier run wrote; --restart starts over",
                     *name);
    sw_mem_put(data);
    return rc;
}

sw_code sw_resume_check(const sw_resume *resume, sw_st_writer *st, const sw_progress *progress,
                        sw_resume_fn each, void *self, sw_err *err)
{
    int64_t n_blocks = sw_resume_n_blocks(resume);
    sw_code rc = SW_OK;

    for (int64_t block = 0; block < n_blocks && rc == SW_OK; block++) {
        const cJSON *list = sw_json_member(sw_resume_block(resume, block), "tensors"), *item;
        sw_progress_step(progress, "check finished blocks", block, n_blocks);
        if ((rc = sw_progress_check(progress, err)) != SW_OK) return rc;
        cJSON_ArrayForEach(item, list) {
            const char *name = NULL;
            int64_t n_bytes = 0;
            if ((rc = check_tensor(item, st, &name, &n_bytes, err)) != SW_OK ||
                (rc = each(self, name, (uint64_t)n_bytes, err)) != SW_OK)
                return rc;
        }
    }
    return rc;
}
