/* st_stream.c - tensors that come from their first byte to their last: in blocks that go to the
 * disk past the system's cache, and to the digest of their file while they are still in ours.
 *
 * A block begins where a page of its file does, in memory as well. What a block ends with beyond
 * its last whole page, the next one begins with; so only the two ends of a tensor share a page with
 * others, and those alone pass through the system's cache.
 */
#include <string.h>

#include "formats/base/size.h"
#include "formats/file/st_writer_internal.h"

#define FULL_BYTES ((size_t)1 << 20)  /* as much goes to the disk at once: still in the cache */
#define BLOCK_BYTES (2 * FULL_BYTES - 1)
#define STREAM_BYTES ((size_t)64 << 10) /* fewer are put as they are */

/* --- blocks --- */

void sw_st_block_free(sw_st_block *block)
{
    if (block) sw_mem_put(block->memory);
    sw_mem_put(block);
}

void sw_st_block_spare(sw_st_writer *w, sw_st_block *block)
{
    if (block->room_bytes < FULL_BYTES) { /* of a small tensor: of no use to others */
        sw_st_block_free(block);
        return;
    }
#pragma omp critical(st_blocks)
    {
        block->next = w->spare;
        w->spare = block;
    }
}

static sw_st_block *take_spare(sw_st_writer *w)
{
    sw_st_block *block;

#pragma omp critical(st_blocks)
    {
        block = w->spare;
        if (block) w->spare = block->next;
    }
    return block;
}

/* One for room_bytes from the start of a page on; but for small ones most are of one size. */
static sw_code take_block(sw_st_block **out, sw_st_writer *w, size_t room_bytes, sw_err *err)
{
    sw_st_block *block = room_bytes < FULL_BYTES ? NULL : take_spare(w);
    size_t odd_bytes;
    sw_code rc;

    if (block && block->room_bytes >= room_bytes) {
        *out = block;
        return SW_OK;
    }
    sw_st_block_free(block);
    block = NULL;
    if (room_bytes >= FULL_BYTES) room_bytes = (room_bytes / FULL_BYTES + 1) * FULL_BYTES;
    if ((rc = SW_MEM_GET(&block, 1, "block of a file", err)) != SW_OK) return rc;
    rc = SW_MEM_GET(&block->memory, room_bytes + SW_OUT_PAGE_BYTES, "block of a file", err);
    if (rc != SW_OK) {
        sw_st_block_free(block);
        return rc;
    }
    odd_bytes = (uintptr_t)block->memory % SW_OUT_PAGE_BYTES;
    block->bytes = block->memory + (odd_bytes ? SW_OUT_PAGE_BYTES - odd_bytes : 0);
    block->room_bytes = room_bytes;
    *out = block;
    return SW_OK;
}

/* --- streams --- */

sw_code sw_st_stream_open(sw_st_stream *out, sw_st_writer *w, const char *name, sw_err *err)
{
    sw_st_decl *decl = sw_st_writer_find(w, name);

    if (!decl || decl->is_put)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" %s", name,
                       decl ? "put twice" : "is not declared, or not yet begun");
    sw_st_follow_restart(w, decl);
    *out = (sw_st_stream){.w = w, .decl = decl, .end = decl->size_bytes};
    return SW_OK;
}

/* A part may begin or end there. */
static bool is_cut(const sw_st_decl *decl, uint64_t at)
{
    return !at || at == decl->size_bytes || (decl->offset + at) % SW_OUT_PAGE_BYTES == 0;
}

sw_code sw_st_stream_cut(uint64_t *end, const sw_st_writer *w, const char *name, uint64_t begin,
                         uint64_t least_bytes, sw_err *err)
{
    const sw_st_decl *decl = sw_st_writer_find(w, name);
    uint64_t at, past;

    if (!decl || begin > decl->size_bytes)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" has no byte %llu", name,
                       (unsigned long long)begin);
    at = decl->size_bytes - begin > least_bytes ? begin + least_bytes : decl->size_bytes;
    past = (decl->offset + at) % SW_OUT_PAGE_BYTES;
    if (past) at += SW_OUT_PAGE_BYTES - past;
    *end = sw_min_u64(at, decl->size_bytes);
    return SW_OK;
}

sw_code sw_st_stream_open_part(sw_st_stream *out, sw_st_writer *w, const char *name, uint64_t begin,
                               uint64_t end, sw_err *err)
{
    sw_st_decl *decl = sw_st_writer_find(w, name);

    if (!decl || sw_st_is_put(w, decl) || begin > end || end > decl->size_bytes ||
        !is_cut(decl, begin) || !is_cut(decl, end))
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" has no part from %llu to %llu to put",
                       name, (unsigned long long)begin, (unsigned long long)end);
    if (end - begin == decl->size_bytes) return sw_st_stream_open(out, w, name, err);
    sw_st_follow_part(w, decl);
    *out = (sw_st_stream){.w = w, .decl = decl, .begin = begin, .at = begin, .end = end};
    return SW_OK;
}

void sw_st_stream_close(sw_st_stream *s)
{
    if (s->block) sw_st_block_spare(s->w, s->block);
    memset(s, 0, sizeof *s);
}

/* Bytes of a block up to `end`, a place in the file. */
static size_t filled(const sw_st_block *b, uint64_t end) { return (size_t)(end - b->page_at); }

sw_code sw_st_stream_room(void **out, sw_st_stream *s, size_t n_bytes, sw_err *err)
{
    const uint64_t at = s->decl->offset + s->at;
    sw_st_block *old = s->block, *b = NULL;
    const uint64_t left_bytes = s->end - s->at;
    size_t used_bytes = old ? filled(old, at) : (size_t)(at % SW_OUT_PAGE_BYTES), want_bytes;
    sw_code rc;

    if (n_bytes > left_bytes)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\": more than declared", s->decl->name);
    if (!old || old->room_bytes < used_bytes + n_bytes) {
        want_bytes = left_bytes < BLOCK_BYTES ? (size_t)left_bytes : BLOCK_BYTES;
        if (want_bytes < n_bytes) want_bytes = n_bytes;
        if ((rc = take_block(&b, s->w, used_bytes + want_bytes, err)) != SW_OK) return rc;
        b->page_at = at - used_bytes;
        b->begin = old ? old->begin : at;
        b->write_from = old ? old->write_from : at;
        if (old) {
            memcpy(b->bytes, old->bytes, used_bytes);
            sw_st_block_spare(s->w, old);
        }
        s->block = b;
    }
    *out = s->block->bytes + used_bytes;
    return SW_OK;
}

/* What a block has beyond its last whole page, in a block of its own. */
static sw_code carry_on(sw_st_block **out, sw_st_writer *w, const sw_st_block *b, uint64_t cut,
                        sw_err *err)
{
    sw_st_block *next = NULL;
    sw_code rc = take_block(&next, w, BLOCK_BYTES, err);

    if (rc != SW_OK) return rc;
    next->page_at = next->write_from = cut;
    next->begin = b->end;
    memcpy(next->bytes, b->bytes + filled(b, cut), (size_t)(b->end - cut));
    *out = next;
    return SW_OK;
}

/* What the digest has to read back later had better be in the system's cache then. */
static sw_code write_block(sw_st_writer *w, int32_t file, const sw_st_block *b, uint64_t cut,
                           sw_err *err)
{
    const uint8_t *from = b->bytes + filled(b, b->write_from);
    const size_t n_bytes = (size_t)(cut - b->write_from);

    return b->is_wanted ? sw_out_write_past(&w->files[file], b->write_from, from, n_bytes, err)
                        : sw_out_write_at(&w->files[file], b->write_from, from, n_bytes, err);
}

/* To the disk and to the digest; at the end of the tensor all of it. */
static sw_code hand_over(sw_st_stream *s, bool is_last, sw_err *err)
{
    sw_st_block *b = s->block, *next = NULL;
    uint64_t cut = is_last ? b->end : b->end - b->end % SW_OUT_PAGE_BYTES;
    sw_code rc;

    sw_st_follow_ask(s->w, s->decl->file, b);
    rc = write_block(s->w, s->decl->file, b, cut, err);
    if (rc == SW_OK && !is_last) rc = carry_on(&next, s->w, b, cut, err);
    if (rc != SW_OK) return rc; /* the block stays the stream's */
    s->block = next;
    return sw_st_follow_block(s->w, s->decl->file, b, err);
}

sw_code sw_st_stream_put(sw_st_stream *s, size_t n_bytes, sw_err *err)
{
    bool is_last;

    s->at += n_bytes;
    s->block->end = s->decl->offset + s->at;
    is_last = s->at == s->end;
    if (!is_last && s->block->end - s->block->begin < FULL_BYTES) return SW_OK;
    return hand_over(s, is_last, err);
}

sw_code sw_st_stream_add(sw_st_stream *s, const void *bytes, size_t n_bytes, sw_err *err)
{
    const uint8_t *from = bytes;
    sw_code rc = SW_OK;

    while (n_bytes && rc == SW_OK) {
        size_t n = n_bytes < FULL_BYTES ? n_bytes : FULL_BYTES;
        void *to = NULL;
        if ((rc = sw_st_stream_room(&to, s, n, err)) != SW_OK) return rc;
        memcpy(to, from, n);
        rc = sw_st_stream_put(s, n, err);
        from += n;
        n_bytes -= n;
    }
    return rc;
}

sw_code sw_st_stream_end(uint64_t *n_bytes, sw_st_stream *s, sw_err *err)
{
    const uint64_t size_bytes = s->end - s->begin;

    if (s->at != s->end)
        return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\": %llu bytes put, %llu declared",
                       s->decl->name, (unsigned long long)(s->at - s->begin),
                       (unsigned long long)size_bytes);
    sw_st_mark_put(s->w, s->decl, size_bytes);
    *n_bytes = size_bytes;
    return SW_OK;
}

/* --- a tensor at once --- */

static sw_code put_stream(sw_st_writer *w, const char *name, const void *data, size_t n_bytes,
                          sw_err *err)
{
    sw_st_stream s = {0};
    uint64_t n_put = 0;
    sw_code rc = sw_st_stream_open(&s, w, name, err);

    if (rc != SW_OK) return rc;
    rc = sw_st_stream_add(&s, data, n_bytes, err);
    if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &s, err);
    sw_st_stream_close(&s);
    return rc;
}

sw_code sw_st_writer_put(sw_st_writer *w, const char *name, const void *data, size_t n_bytes,
                         sw_err *err)
{
    sw_st_decl *decl = NULL;
    sw_code rc;

    if ((rc = sw_st_writer_find_sized(&decl, w, name, n_bytes, err)) != SW_OK) return rc;
    if (decl->is_put) return SW_FAIL(err, SW_E_BUG, "tensor \"%.200s\" put twice", name);
    if (w->is_followed && n_bytes >= STREAM_BYTES) return put_stream(w, name, data, n_bytes, err);
    sw_st_follow_restart(w, decl);
    rc = sw_out_write_at(&w->files[decl->file], decl->offset, data, n_bytes, err);
    if (rc == SW_OK) sw_st_mark_put(w, decl, n_bytes);
    return rc;
}
