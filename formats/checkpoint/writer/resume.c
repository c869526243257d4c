/* resume.c - see resume.h. */
#include "formats/checkpoint/writer/resume.h"

#include <pthread.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/io/watch.h"

/* Lines in the order of their blocks, and the thread that brings them in. */
struct sw_resume_lines {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool has_thread, is_busy, is_ending;
    sw_journal *journal;
    const sw_st_writer *st;
    const sw_out_dir *dir;
    sw_resume_key_fn key_of; /* NULL: the journal is open */
    void *self;
    cJSON *waiting; /* array */
    sw_err failed;
};

static sw_code open_journal(sw_journal *out, const sw_out_dir *dir, const cJSON *key, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = sw_path_join(path, dir->hold_path, SW_HOLD_JOURNAL, err)) != SW_OK) return rc;
    if (!dir->is_resumed) return sw_journal_create(out, path, key, err);
    if ((rc = sw_journal_open(out, path, err)) != SW_OK) return rc;
    return sw_journal_check_key(out, key, dir->hold_path, err);
}

static sw_code new_resume(sw_resume *out, const sw_out_dir *dir, sw_err *err)
{
    sw_resume k = {.is_on = true, .journal = {.fd = -1}};
    sw_code rc;

    if (!(k.pending = cJSON_CreateArray()))
        return SW_FAIL(err, SW_E_NOMEM, "tensors of a block for the journal");
    if ((rc = SW_MEM_GET(&k.lines, 1, "lines of the journal", err)) != SW_OK) {
        cJSON_Delete(k.pending);
        return rc;
    }
    (void)pthread_mutex_init(&k.lines->mutex, NULL);
    (void)pthread_cond_init(&k.lines->changed, NULL);
    k.lines->dir = dir;
    *out = k;
    if (!(k.lines->waiting = cJSON_CreateArray())) {
        sw_resume_free(out);
        return SW_FAIL(err, SW_E_NOMEM, "lines of the journal");
    }
    return SW_OK;
}

sw_code sw_resume_begin(sw_resume *out, const sw_out_dir *dir, const cJSON *key, sw_err *err)
{
    sw_code rc = new_resume(out, dir, err);

    if (rc != SW_OK) return rc;
    if ((rc = open_journal(&out->journal, dir, key, err)) != SW_OK) {
        sw_resume_free(out);
        return rc;
    }
    out->n_blocks = sw_journal_n_blocks(&out->journal);
    return SW_OK;
}

sw_code sw_resume_begin_later(sw_resume *out, const sw_out_dir *dir, sw_resume_key_fn key_of,
                              void *self, sw_err *err)
{
    sw_code rc = new_resume(out, dir, err);

    if (rc != SW_OK) return rc;
    out->lines->key_of = key_of;
    out->lines->self = self;
    return SW_OK;
}

static void free_lines(sw_resume_lines *l)
{
    if (!l) return;
    (void)pthread_mutex_lock(&l->mutex);
    l->is_ending = true;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->mutex);
    if (l->has_thread) (void)pthread_join(l->thread, NULL);
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->mutex);
    cJSON_Delete(l->waiting);
    sw_mem_put(l);
}

void sw_resume_free(sw_resume *resume)
{
    if (!resume->is_on) return;
    free_lines(resume->lines);
    sw_journal_close(&resume->journal);
    cJSON_Delete(resume->pending);
    memset(resume, 0, sizeof *resume);
}

int64_t sw_resume_n_blocks(const sw_resume *resume) { return resume->n_blocks; }

const cJSON *sw_resume_block(const sw_resume *resume, int64_t block)
{
    return cJSON_GetArrayItem(resume->journal.blocks, (int)block);
}

sw_code sw_resume_note(sw_resume *resume, const char *name, const void *data, uint64_t n_bytes,
                       sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES];
    cJSON *item;
    bool ok;
    sw_code rc;

    if (!resume->is_on) return SW_OK;
    if ((rc = sw_sha256_hex(digest, data, (size_t)n_bytes, err)) != SW_OK) return rc;
    item = cJSON_CreateObject();
    ok = item && cJSON_AddStringToObject(item, "name", name) &&
         cJSON_AddNumberToObject(item, "bytes", (double)n_bytes) &&
         cJSON_AddStringToObject(item, "sha256", digest);
#pragma omp critical(resume_pending)
    ok = ok && cJSON_AddItemToArray(resume->pending, item);
    if (ok) return SW_OK;
    cJSON_Delete(item);
    return SW_FAIL(err, SW_E_NOMEM, "tensor of a block for the journal");
}

/* --- lines on their way --- */

/* With a key that was found while inputs were read already: they must not have changed since. */
static sw_code open_late(sw_resume_lines *l, sw_err *err)
{
    cJSON *key = NULL;
    sw_code rc = l->key_of ? l->key_of(l->self, &key, err) : SW_OK;

    if (!l->key_of || rc != SW_OK) return rc;
    if ((rc = sw_watch_check(err)) == SW_OK) rc = open_journal(l->journal, l->dir, key, err);
    cJSON_Delete(key);
    if (rc == SW_OK) l->key_of = NULL;
    return rc;
}

/* All lines of an array, which it empties. */
static sw_code bring_in(sw_resume_lines *l, cJSON *lines, sw_err *err)
{
    sw_code rc = open_late(l, err);

    if (rc == SW_OK) rc = sw_st_writer_sync(l->st, err);
    while (rc == SW_OK && lines->child)
        rc = sw_journal_add_block(l->journal, cJSON_DetachItemFromArray(lines, 0), err);
    return rc;
}

static void *work(void *self)
{
    sw_resume_lines *l = self;

    (void)pthread_mutex_lock(&l->mutex);
    for (;;) {
        cJSON *next = NULL, *lines = l->waiting;
        sw_err err = {0};
        while (!l->is_ending && !lines->child) (void)pthread_cond_wait(&l->changed, &l->mutex);
        if (l->is_ending) break;
        if (l->failed.code != SW_OK || !(next = cJSON_CreateArray())) {
            if (l->failed.code == SW_OK)
                (void)!SW_FAIL(&l->failed, SW_E_NOMEM, "lines of the journal");
            cJSON_Delete(lines->child); /* nobody continues from what comes after a gap */
            lines->child = NULL;
            (void)pthread_cond_broadcast(&l->changed);
            continue;
        }
        l->waiting = next;
        l->is_busy = true;
        (void)pthread_mutex_unlock(&l->mutex);
        if (bring_in(l, lines, &err) == SW_OK) err.code = SW_OK;
        cJSON_Delete(lines);
        (void)pthread_mutex_lock(&l->mutex);
        l->failed = err;
        l->is_busy = false;
        (void)pthread_cond_broadcast(&l->changed);
    }
    (void)pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* Takes `line` over. */
static sw_code send(sw_resume *resume, const sw_st_writer *st, cJSON *line, sw_err *err)
{
    sw_resume_lines *l = resume->lines;
    sw_code rc;

    (void)pthread_mutex_lock(&l->mutex);
    if (!l->has_thread) { /* which reads these without the mutex: they are the same for all lines */
        l->journal = &resume->journal;
        l->st = st;
        l->has_thread = pthread_create(&l->thread, NULL, work, l) == 0;
    }
    rc = l->failed.code;
    if (rc != SW_OK) *err = l->failed;
    else if (!l->has_thread) rc = SW_FAIL(err, SW_E_NOMEM, "no thread for the journal");
    else if (!cJSON_AddItemToArray(l->waiting, line))
        rc = SW_FAIL(err, SW_E_NOMEM, "line of the journal");
    if (rc != SW_OK) cJSON_Delete(line);
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->mutex);
    return rc;
}

sw_code sw_resume_settle(sw_resume *resume, sw_err *err)
{
    sw_resume_lines *l = resume->lines;
    sw_code rc;

    if (!resume->is_on) return SW_OK;
    (void)pthread_mutex_lock(&l->mutex);
    while (l->has_thread && (l->is_busy || l->waiting->child))
        (void)pthread_cond_wait(&l->changed, &l->mutex);
    rc = l->failed.code;
    if (rc != SW_OK) *err = l->failed;
    (void)pthread_mutex_unlock(&l->mutex);
    return rc;
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
    if ((rc = sw_watch_check(err)) != SW_OK) goto fail;
    if (!(next = cJSON_CreateArray()) ||
        !cJSON_AddItemToObject(figures, "tensors", resume->pending)) {
        cJSON_Delete(next);
        rc = SW_FAIL(err, SW_E_NOMEM, "line of the journal");
        goto fail;
    }
    resume->pending = next;
    rc = send(resume, st, figures, err);
    if (rc == SW_OK) resume->n_blocks++;
    return rc;
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
