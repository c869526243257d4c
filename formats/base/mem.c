/* mem.c - see mem.h. */
#include "formats/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define HUGE_BYTES ((size_t)8 << 20)
#define PAGE_BYTES ((uintptr_t)4096)
#define ZERO_BYTES ((int64_t)4 << 20) /* of one thread at a time */

/* Zeroing gigabytes page by page costs as much as what is done with them. A wish, no more. */
static void prefer_huge_pages(void *buffer, size_t size_bytes)
{
    uintptr_t from = ((uintptr_t)buffer + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uintptr_t end = ((uintptr_t)buffer + size_bytes) / PAGE_BYTES * PAGE_BYTES;

    if (size_bytes >= HUGE_BYTES && end > from)
        (void)madvise((void *)from, (size_t)(end - from), MADV_HUGEPAGE);
}

static sw_code get_unset(void **out, uint64_t *n_bytes, int64_t n_elems, size_t elem_bytes,
                         const char *what, sw_err *err)
{
    uint64_t size_bytes;
    void *buffer = NULL;

    if (n_elems < 0 || !sw_mul_u64(&size_bytes, (uint64_t)n_elems, elem_bytes) ||
        size_bytes > (uint64_t)PTRDIFF_MAX - SW_MEM_ALIGN_BYTES)
        return SW_FAIL(err, SW_E_NOMEM, "%s: %lld elements of %zu bytes exceed the address space",
                       what, (long long)n_elems, elem_bytes);
    size_bytes += size_bytes == 0;
    /* not aligned_alloc, which wants a multiple of the alignment: the slack would hide overruns */
    if (posix_memalign(&buffer, SW_MEM_ALIGN_BYTES, (size_t)size_bytes) != 0)
        return SW_FAIL(err, SW_E_NOMEM, "%s: no memory for %llu bytes", what,
                       (unsigned long long)size_bytes);
    prefer_huge_pages(buffer, (size_t)size_bytes);
    *out = buffer;
    *n_bytes = size_bytes;
    return SW_OK;
}

sw_code sw_mem_get(void **out, int64_t n_elems, size_t elem_bytes, const char *what, sw_err *err)
{
    uint64_t n_bytes = 0;
    sw_code rc = get_unset(out, &n_bytes, n_elems, elem_bytes, what, err);

    if (rc == SW_OK) memset(*out, 0, (size_t)n_bytes);
    return rc;
}

static void zero_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((char *)ctx + begin, 0, (size_t)(end - begin));
}

sw_code sw_mem_get_wide(void **out, int64_t n_elems, size_t elem_bytes, const char *what,
                        int n_threads, sw_err *err)
{
    uint64_t n_bytes = 0;
    sw_code rc = get_unset(out, &n_bytes, n_elems, elem_bytes, what, err);

    if (rc == SW_OK) sw_parallel_for(n_threads, (int64_t)n_bytes, ZERO_BYTES, zero_some, *out);
    return rc;
}

void sw_mem_put(void *buffer) { free(buffer); }

#define ARENA_CHUNK_BYTES ((size_t)64 * 1024)
#define ARENA_ALIGN_BYTES ((size_t)16)

struct sw_arena_chunk {
    sw_arena_chunk *older;
    size_t size_bytes;
    size_t used_bytes;
    _Alignas(16) unsigned char bytes[];
};

static sw_code arena_grow(sw_arena *arena, size_t need_bytes, sw_err *err)
{
    size_t size_bytes = need_bytes > ARENA_CHUNK_BYTES ? need_bytes : ARENA_CHUNK_BYTES;
    sw_arena_chunk *chunk = calloc(1, sizeof *chunk + size_bytes);

    if (!chunk) return SW_FAIL(err, SW_E_NOMEM, "no memory for %zu bytes", size_bytes);
    chunk->size_bytes = size_bytes;
    chunk->older = arena->head;
    arena->head = chunk;
    return SW_OK;
}

sw_code sw_arena_take(void **out, sw_arena *arena, int64_t n_elems, size_t elem_bytes, sw_err *err)
{
    uint64_t size_bytes;
    sw_code rc;

    if (n_elems < 0 || !sw_mul_u64(&size_bytes, (uint64_t)n_elems, elem_bytes) ||
        size_bytes > (uint64_t)PTRDIFF_MAX / 2)
        return SW_FAIL(err, SW_E_NOMEM, "%lld elements of %zu bytes exceed the address space",
                       (long long)n_elems, elem_bytes);
    size_bytes += size_bytes == 0;
    size_bytes = (size_bytes + ARENA_ALIGN_BYTES - 1) & ~(uint64_t)(ARENA_ALIGN_BYTES - 1);
    if (!arena->head || arena->head->size_bytes - arena->head->used_bytes < size_bytes)
        if ((rc = arena_grow(arena, (size_t)size_bytes, err)) != SW_OK) return rc;
    *out = arena->head->bytes + arena->head->used_bytes;
    arena->head->used_bytes += (size_t)size_bytes;
    arena->taken_bytes += (size_t)size_bytes;
    return SW_OK;
}

sw_code sw_arena_text(char **out, sw_arena *arena, const char *text, size_t n_bytes, sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(out, arena, (int64_t)n_bytes + 1, err);

    if (rc == SW_OK && n_bytes) memcpy(*out, text, n_bytes);
    return rc;
}

sw_code sw_arena_print(char **out, sw_arena *arena, sw_err *err, const char *fmt, ...)
{
    va_list args;
    sw_code rc;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) return SW_FAIL(err, SW_E_BUG, "unprintable format %s", fmt);
    if ((rc = SW_ARENA_TAKE(out, arena, (int64_t)n + 1, err)) != SW_OK) return rc;
    va_start(args, fmt);
    (void)vsnprintf(*out, (size_t)n + 1, fmt, args);
    va_end(args);
    return SW_OK;
}

sw_arena_mark sw_arena_save(const sw_arena *arena)
{
    sw_arena_mark mark = {arena->head, arena->head ? arena->head->used_bytes : 0};
    return mark;
}

void sw_arena_reset(sw_arena *arena, sw_arena_mark mark)
{
    while (arena->head && arena->head != mark.head) {
        sw_arena_chunk *older = arena->head->older;
        arena->taken_bytes -= arena->head->used_bytes;
        free(arena->head);
        arena->head = older;
    }
    if (!arena->head) return;
    /* takes promise zeroed memory, so what is given back is wiped */
    memset(arena->head->bytes + mark.used_bytes, 0, arena->head->used_bytes - mark.used_bytes);
    arena->taken_bytes -= arena->head->used_bytes - mark.used_bytes;
    arena->head->used_bytes = mark.used_bytes;
}

void sw_arena_free(sw_arena *arena)
{
    sw_arena_mark empty = {NULL, 0};

    sw_arena_reset(arena, empty);
}
