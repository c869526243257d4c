/* parallel.h - a parallel for whose result cannot depend on the thread count.
 *
 * Items are cut into chunks of a size that the caller fixes; which thread runs a
 * chunk, and when, is free. A caller that writes only to its own chunk's output
 * and reduces per-chunk results in chunk order gets the same bytes always.
 */
#ifndef SW_FORMATS_BASE_PARALLEL_H
#define SW_FORMATS_BASE_PARALLEL_H

#include <stdint.h>

#include "formats/base/status.h"

/* Work on items [begin, end); chunk = begin / chunk_items. `thread` is below n_threads and is
 * for picking scratch space only, never for anything that reaches a result. */
typedef void (*sw_parallel_fn)(void *ctx, int64_t begin, int64_t end, int thread);

/* Run fn over [0, n_items) in chunks of chunk_items on up to n_threads threads.
 * Nested calls run on the calling thread, as does all where no more threads can be started. */
void sw_parallel_for(int n_threads, int64_t n_items, int64_t chunk_items, sw_parallel_fn fn,
                     void *ctx);

/* Whether n_threads can run at once, found out while it can still be reported: OpenMP ends the
 * process where it cannot start one. SW_E_NOMEM names the remedy. */
sw_code sw_parallel_reserve(int n_threads, sw_err *err) SW_MUST_USE;

/* Processors this process may run on, at least 1. */
int sw_cpu_count(void);

#endif
