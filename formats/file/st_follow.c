/* st_follow.c - the digests of safetensors that are being written, as far as they are complete.
 *
 * A SHA-256 takes the bytes of a file in their order, and tensors come in any, several at a time.
 * Each file has a mark up to which it is digested. A block of a tensor that comes soon behind it is
 * held until the mark is there; what is too far ahead is read back from the file later, once all
 * tensors up to there are complete. Whoever has put something moves the mark as far as it goes,
 * one thread a file.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/file/st_writer_internal.h"

#define STEP_BYTES ((size_t)64 << 10)
#define PIECE_BYTES ((uint64_t)16 << 20) /* read back before others hear of it */
#define WORTH_BYTES ((uint64_t)8 << 20) /* less is left for the next to come */
#define HOLD_BYTES ((uint64_t)128 << 20) /* of blocks, and how far ahead of the mark they lie */
#define PACE_BYTES (HOLD_BYTES / 2) /* who can wait does not go farther ahead of the mark */
#define SMALL_BYTES ((uint64_t)64 << 10) /* of a block that is not worth its memory */

static void lock(sw_st_writer *w) { (void)pthread_mutex_lock(&w->mutex); }
static void unlock(sw_st_writer *w) { (void)pthread_mutex_unlock(&w->mutex); }

bool sw_st_is_put(sw_st_writer *w, const sw_st_decl *decl)
{
    bool is_put;

    lock(w);
    is_put = decl->is_put;
    unlock(w);
    return is_put;
}

void sw_st_mark_put(sw_st_writer *w, sw_st_decl *decl, uint64_t n_bytes)
{
    lock(w);
    if (!decl->is_put) { /* else it was read back, once more */
        decl->put_bytes += n_bytes;
        decl->is_put = decl->put_bytes == decl->size_bytes;
    }
    unlock(w);
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
        rc = sw_digest_steps_begin(&f->steps, err);
    }
    return rc;
}

static void free_blocks(sw_st_block **list)
{
    while (*list) {
        sw_st_block *block = *list;
        *list = block->next;
        sw_st_block_free(block);
    }
}

void sw_st_follow_free(sw_st_writer *w)
{
    for (int32_t i = 0; w->follows && i < w->n_files; i++) {
        free_blocks(&w->follows[i].held);
        sw_digest_steps_free(&w->follows[i].steps);
    }
    free_blocks(&w->spare);
    sw_mem_put(w->follows);
}

void sw_st_follow_restart(sw_st_writer *w, sw_st_decl *decl)
{
    lock(w);
    if (w->is_followed) w->follows[decl->file].is_spoilt |= decl->is_begun;
    decl->is_begun = true;
    decl->put_bytes = 0;
    unlock(w);
}

void sw_st_follow_part(sw_st_writer *w, sw_st_decl *decl)
{
    lock(w);
    decl->is_begun = true;
    unlock(w);
}

/* --- moving the mark --- */

/* What comes next for a digest: a block, or the bytes of the file up to `end`. */
typedef struct next_piece {
    sw_st_block *block;
    uint64_t end;
} next_piece;

static void move_ready(const sw_st_writer *w, int32_t file)
{
    sw_st_follow *f = &w->follows[file];

    while (f->next < w->n_decls && w->order[f->next]->file == file && w->order[f->next]->is_put) {
        f->ready_bytes = w->order[f->next]->offset + w->order[f->next]->size_bytes;
        f->next++;
    }
}

/* false: nothing to do yet, or less than is worth it; the first held block is worth the little that
 * lies before it. */
static bool find_next(next_piece *out, const sw_st_follow *f, uint64_t worth_bytes)
{
    const sw_st_block *held = f->held;

    *out = (next_piece){.end = sw_min_u64(f->ready_bytes, f->done_bytes + PIECE_BYTES)};
    if (held && held->begin == f->done_bytes) {
        out->block = f->held;
        out->end = held->end;
        return true;
    }
    if (held && held->begin <= f->ready_bytes) {
        out->end = sw_min_u64(held->begin, f->done_bytes + PIECE_BYTES);
        return true;
    }
    return f->ready_bytes > f->done_bytes && f->ready_bytes - f->done_bytes >= worth_bytes;
}

/* Whoever moves the mark keeps doing so until there is nothing more to take. */
static bool take(next_piece *out, sw_st_writer *w, int32_t file, uint64_t worth_bytes,
                 bool *is_mine)
{
    sw_st_follow *f = &w->follows[file];
    bool is_taken;

    lock(w);
    move_ready(w, file);
    is_taken = (*is_mine || !f->is_busy) && !f->is_spoilt && find_next(out, f, worth_bytes);
    if (is_taken && out->block) {
        f->held = out->block->next;
        w->held_bytes -= out->block->room_bytes;
    }
    if (is_taken || *is_mine) f->is_busy = is_taken;
    if (*is_mine && !is_taken) (void)pthread_cond_broadcast(&w->moved);
    unlock(w);
    return *is_mine = is_taken;
}

static void move_mark(sw_st_writer *w, int32_t file, uint64_t done_bytes, bool is_busy)
{
    sw_st_follow *f = &w->follows[file];

    lock(w);
    f->done_bytes = done_bytes;
    f->is_busy = is_busy;
    (void)pthread_cond_broadcast(&w->moved);
    unlock(w);
}

/* The next bytes of a file; whoever reads behind hears of each step that they complete. */
static sw_code add(const sw_st_writer *w, int32_t file, const void *bytes, size_t n_bytes,
                   sw_err *err)
{
    sw_digest_steps *steps = &w->follows[file].steps;
    const int64_t n_before = steps->n_tags;
    sw_code rc = sw_digest_steps_add(steps, bytes, n_bytes, err);

    if (rc != SW_OK || steps->n_tags == n_before) return rc;
    return sw_digest_back_ready(w->back, steps, w->files[file].temp_path, err);
}

/* From the file, where the system has it or the disk. */
static sw_code digest_file(const sw_st_writer *w, int32_t file, uint64_t at, uint64_t end,
                           sw_err *err)
{
    unsigned char step[STEP_BYTES];
    sw_code rc = SW_OK;

    while (at < end && rc == SW_OK) {
        size_t n = end - at < STEP_BYTES ? (size_t)(end - at) : STEP_BYTES;
        rc = sw_out_read_at(&w->files[file], at, step, n, err);
        if (rc == SW_OK) rc = add(w, file, step, n, err);
        at += n;
    }
    return rc;
}

static sw_code digest_piece(sw_st_writer *w, int32_t file, const next_piece *piece, sw_err *err)
{
    sw_st_block *b = piece->block;
    sw_code rc;

    if (!b) return digest_file(w, file, w->follows[file].done_bytes, piece->end, err);
    rc = add(w, file, b->bytes + (b->begin - b->page_at), (size_t)(b->end - b->begin), err);
    sw_st_block_spare(w, b);
    return rc;
}

static sw_code advance(sw_st_writer *w, int32_t file, uint64_t worth_bytes, sw_err *err)
{
    bool is_mine = false;
    next_piece piece;
    sw_code rc = SW_OK;

    while (rc == SW_OK && take(&piece, w, file, worth_bytes, &is_mine)) {
        rc = digest_piece(w, file, &piece, err);
        move_mark(w, file, piece.end, rc == SW_OK);
    }
    return rc;
}

sw_code sw_st_writer_catch_up(sw_st_writer *w, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!w->is_ready || !w->is_followed) return SW_OK;
    for (int32_t file = 0; file < w->n_files && rc == SW_OK; file++)
        rc = advance(w, file, WORTH_BYTES, err);
    return rc;
}

/* --- blocks --- */

void sw_st_follow_ask(sw_st_writer *w, int32_t file, sw_st_block *b)
{
    const sw_st_follow *f = w->is_followed ? &w->follows[file] : NULL;

    b->is_wanted = false;
    if (!f || b->end - b->begin < SMALL_BYTES) return;
    lock(w);
    b->is_wanted = !f->is_spoilt && b->begin >= f->done_bytes &&
                   b->end - f->done_bytes <= HOLD_BYTES &&
                   w->held_bytes + b->room_bytes <= HOLD_BYTES;
    if (b->is_wanted) w->held_bytes += b->room_bytes;
    unlock(w);
}

/* How far the mark is behind `end`, and whether somebody moves it: only then is it waited for. */
static bool is_far(const sw_st_writer *w, const sw_st_follow *f, uint64_t end)
{
    return f->is_busy && end > f->done_bytes &&
           (end - f->done_bytes > PACE_BYTES || w->held_bytes > PACE_BYTES);
}

void sw_st_writer_keep_pace(sw_st_writer *w, const char *name, uint64_t end)
{
    const sw_st_decl *decl = w->is_followed ? sw_st_writer_find(w, name) : NULL;

    if (!decl) return;
    lock(w);
    while (is_far(w, &w->follows[decl->file], decl->offset + end))
        (void)pthread_cond_wait(&w->moved, &w->mutex);
    unlock(w);
}

/* Into the list, where they are by place. */
static void hold(sw_st_follow *f, sw_st_block *b)
{
    sw_st_block **at = &f->held;

    while (*at && (*at)->begin < b->begin) at = &(*at)->next;
    b->next = *at;
    *at = b;
}

sw_code sw_st_follow_block(sw_st_writer *w, int32_t file, sw_st_block *block, sw_err *err)
{
    if (!block->is_wanted) {
        sw_st_block_spare(w, block);
        return SW_OK;
    }
    lock(w);
    hold(&w->follows[file], block);
    unlock(w);
    return advance(w, file, WORTH_BYTES, err);
}

/* --- the end --- */

/* A tensor was put anew after some of it was digested: all from the start. */
static sw_code start_over(sw_st_writer *w, sw_st_follow *f, sw_err *err)
{
    const bool has_tags = f->steps.has_tags;
    sw_code rc;

    sw_digest_steps_free(&f->steps);
    f->steps.has_tags = has_tags;
    if ((rc = sw_digest_steps_begin(&f->steps, err)) != SW_OK) return rc;
    lock(w);
    for (const sw_st_block *b = f->held; b; b = b->next) w->held_bytes -= b->room_bytes;
    unlock(w);
    free_blocks(&f->held);
    f->done_bytes = 0;
    f->is_spoilt = false;
    return SW_OK;
}

sw_code sw_st_follow_finish(sw_st_writer *w, int32_t file, sw_err *err)
{
    sw_st_follow *f = &w->follows[file];
    sw_code rc = SW_OK;

    if (!f->ready_bytes) return SW_OK; /* no tensors: nothing that anybody waits for */
    if (f->is_spoilt) rc = start_over(w, f, err);
    if (rc == SW_OK) rc = advance(w, file, 1, err);
    if (rc == SW_OK) rc = sw_digest_steps_finish(&f->steps, err);
    return rc;
}

const sw_digest_steps *sw_st_writer_digest(const sw_st_writer *w, const char *name)
{
    for (int32_t i = 0; w->follows && i < w->n_published; i++) {
        const char *path = w->files[i].path, *slash = strrchr(path, '/');
        if (!strcmp(slash ? slash + 1 : path, name))
            return w->follows[i].steps.digest[0] ? &w->follows[i].steps : NULL;
    }
    return NULL;
}
