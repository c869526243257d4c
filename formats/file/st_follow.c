/* st_follow.c - the digests of safetensors that are being written, as far as they are complete.
 *
 * A SHA-256 takes the bytes of a file in their order, and tensors come in any. So each file has a
 * mark up to which all tensors are there; whoever has put one looks whether the mark has moved, and
 * digests the new bytes while the system still has them in memory.
 */
#include <stdio.h>
#include <string.h>

#include "formats/file/st_writer_internal.h"

#define STEP_BYTES ((size_t)64 << 10)
#define WORTH_BYTES ((uint64_t)8 << 20) /* less is left for the next to come */

void sw_st_mark_put(sw_st_decl *decl)
{
#pragma omp critical(st_follow)
    decl->is_put = true;
}

sw_code sw_st_follow_begin(sw_st_writer *w, sw_err *err)
{
    int64_t at = 0;
    sw_code rc = SW_MEM_GET(&w->follows, w->n_files, "digests", err);

    for (int32_t file = 0; file < w->n_files && rc == SW_OK; file++) {
        sw_st_follow *f = &w->follows[file];
        f->next = at;
        while (at < w->n_decls && w->order[at]->file == file) at++;
        if (f->next < at) f->ready_bytes = w->order[f->next]->offset; /* the header */
        rc = sw_sha256_new(&f->sum, err);
    }
    return rc;
}

void sw_st_follow_free(sw_st_writer *w)
{
    for (int32_t i = 0; w->follows && i < w->n_files; i++) sw_sha256_free(w->follows[i].sum);
    sw_mem_put(w->follows);
}

/* Move the mark, and take the file when there is enough to do. */
static bool take(sw_st_writer *w, int32_t file, uint64_t worth_bytes)
{
    sw_st_follow *f = &w->follows[file];
    bool is_taken;

#pragma omp critical(st_follow)
    {
        while (!f->is_busy && f->next < w->n_decls && w->order[f->next]->file == file &&
               w->order[f->next]->is_put) {
            f->ready_bytes = w->order[f->next]->offset + w->order[f->next]->size_bytes;
            f->next++;
        }
        is_taken = !f->is_busy && f->ready_bytes - f->done_bytes >= worth_bytes;
        if (is_taken) f->is_busy = true;
    }
    return is_taken;
}

static void give_back(sw_st_follow *f)
{
#pragma omp critical(st_follow)
    f->is_busy = false;
}

static sw_code digest_ready(sw_st_follow *f, const sw_out_file *out, sw_err *err)
{
    unsigned char step[STEP_BYTES];
    sw_code rc = SW_OK;

    while (f->done_bytes < f->ready_bytes && rc == SW_OK) {
        uint64_t left = f->ready_bytes - f->done_bytes;
        size_t n = left < STEP_BYTES ? (size_t)left : STEP_BYTES;
        rc = sw_out_read_at(out, f->done_bytes, step, n, err);
        if (rc == SW_OK) rc = sw_sha256_add(f->sum, step, n, err);
        f->done_bytes += n;
    }
    return rc;
}

sw_code sw_st_writer_catch_up(sw_st_writer *w, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int32_t file = 0; w->is_ready && w->is_followed && file < w->n_files; file++)
        while (rc == SW_OK && take(w, file, WORTH_BYTES)) {
            rc = digest_ready(&w->follows[file], &w->files[file], err);
            give_back(&w->follows[file]);
        }
    return rc;
}

sw_code sw_st_follow_finish(sw_st_writer *w, int32_t file, sw_err *err)
{
    sw_st_follow *f = &w->follows[file];
    sw_code rc = SW_OK;

    if (!f->ready_bytes) return SW_OK; /* no tensors: nothing that anybody waits for */
    if (take(w, file, 1)) rc = digest_ready(f, &w->files[file], err);
    if (rc == SW_OK) rc = sw_sha256_finish(f->digest, f->sum, err);
    return rc;
}

const char *sw_st_writer_digest(const sw_st_writer *w, const char *name)
{
    for (int32_t i = 0; w->follows && i < w->n_published; i++) {
        const char *path = w->files[i].path, *slash = strrchr(path, '/');
        if (!strcmp(slash ? slash + 1 : path, name))
            return w->follows[i].digest[0] ? w->follows[i].digest : NULL;
    }
    return NULL;
}
