/* progress.h - how the library talks while it works: through a table of callbacks.
 *
 * The library never prints. The program decides what a step or a note looks like
 * (a bar with an ETA on a terminal, a plain line now and then elsewhere, nothing
 * under --quiet), and whether the user has asked to stop.
 */
#ifndef SW_FORMATS_BASE_PROGRESS_H
#define SW_FORMATS_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

typedef struct sw_progress {
    void *self;
    /* `done` of `total` units of `stage` are finished; called from one thread at a time */
    void (*step)(void *self, const char *stage, int64_t done, int64_t total);
    /* one line that the user should see: a fallback, a choice made for them */
    void (*note)(void *self, const char *text);
    bool (*is_cancelled)(void *self);
    /* the tensor or linear that is worked on now; from any thread */
    void (*item)(void *self, const char *name);
} sw_progress;

/* All accept NULL and tables with missing entries. */
void sw_progress_step(const sw_progress *progress, const char *stage, int64_t done, int64_t total);
void sw_progress_item(const sw_progress *progress, const char *name);
void sw_progress_note(const sw_progress *progress, const char *fmt, ...) SW_PRINTF(2, 3);
/* The same without a way to stop the work: for what follows once the output is published. */
sw_progress sw_progress_kept(const sw_progress *progress);
/* SW_E_CANCELLED once the user has asked to stop. */
sw_code sw_progress_check(const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
