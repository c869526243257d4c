/* mem.h - the only way Swage takes memory from the system.
 *
 * Payload buffers: sw_mem_get / sw_mem_put, 64-byte aligned, size checked.
 * Many small things of one lifetime (names, indexes, tables): sw_arena.
 * Tests fail the N-th allocation by wrapping the C allocator below this file.
 */
#ifndef SW_FORMATS_BASE_MEM_H
#define SW_FORMATS_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_MEM_ALIGN_BYTES 64

/* A zeroed buffer of n_elems * elem_bytes (at least one byte), owned by the caller.
 * SW_E_NOMEM names `what` and the size, also when the product does not fit. */
sw_code sw_mem_get(void **out, int64_t n_elems, size_t elem_bytes, const char *what,
                   sw_err *err) SW_MUST_USE;

/* The same, zeroed by up to n_threads threads: one alone is slower than those who fill it. */
sw_code sw_mem_get_wide(void **out, int64_t n_elems, size_t elem_bytes, const char *what,
                        int n_threads, sw_err *err) SW_MUST_USE;

/* Accepts NULL. */
void sw_mem_put(void *buffer);

/* sw_mem_get into a typed pointer: SW_MEM_GET(&codes, n, "codes", err). */
#define SW_MEM_GET(out_ptr, n_elems, what, err) \
    sw_mem_get((void **)(out_ptr), (int64_t)(n_elems), sizeof **(out_ptr), (what), (err))

#define SW_MEM_GET_WIDE(out_ptr, n_elems, what, n_threads, err)                             \
    sw_mem_get_wide((void **)(out_ptr), (int64_t)(n_elems), sizeof **(out_ptr), (what), \
                    (n_threads), (err))

typedef struct sw_arena_chunk sw_arena_chunk;

/* Bump allocator: zero-initialise, take, free all at once. Not for sharing between threads. */
typedef struct sw_arena {
    sw_arena_chunk *head;
    size_t taken_bytes; /* handed out and not reset, each take rounded up to 16 */
} sw_arena;

typedef struct sw_arena_mark {
    sw_arena_chunk *head;
    size_t used_bytes;
} sw_arena_mark;

/* Zeroed, 16-byte aligned, valid until the arena is freed or reset below it. */
sw_code sw_arena_take(void **out, sw_arena *arena, int64_t n_elems, size_t elem_bytes,
                      sw_err *err) SW_MUST_USE;
#define SW_ARENA_TAKE(out_ptr, arena, n_elems, err) \
    sw_arena_take((void **)(out_ptr), (arena), (int64_t)(n_elems), sizeof **(out_ptr), (err))

/* Copy of n_bytes of `text` plus a terminating zero. */
sw_code sw_arena_text(char **out, sw_arena *arena, const char *text, size_t n_bytes,
                      sw_err *err) SW_MUST_USE;
/* printf into the arena. */
sw_code sw_arena_print(char **out, sw_arena *arena, sw_err *err, const char *fmt, ...)
    SW_PRINTF(4, 5) SW_MUST_USE;

sw_arena_mark sw_arena_save(const sw_arena *arena);
void sw_arena_reset(sw_arena *arena, sw_arena_mark mark); /* drop all taken since the mark */
void sw_arena_free(sw_arena *arena);                      /* leaves an empty, usable arena */

#ifdef __cplusplus
}
#endif
#endif
