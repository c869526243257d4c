/* profile.h - where the time of a run goes: spans of named steps, of every thread.
 *
 * Off unless a run asks for it; then each span costs less than a microsecond, so spans are for
 * steps of a millisecond and more. The file is in the trace event format of Chrome ("X" events),
 * which chrome://tracing and ui.perfetto.dev open.
 */
#ifndef SW_FORMATS_IO_PROFILE_H
#define SW_FORMATS_IO_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

/* Seconds of a clock that never goes back; only differences mean something. */
double sw_clock_s(void);

typedef struct sw_span {
    const char *step;  /* NULL: nothing is recorded */
    int64_t start_ns;
} sw_span;

/* Begin to record, from an empty list. One list for the process, like that of watch.h. */
void sw_profile_begin(void);
bool sw_profile_is_on(void);
/* Stop, and forget what was recorded. */
void sw_profile_end(void);

/* `step` must outlive the recording: a literal. Threads may open and close at once. */
sw_span sw_span_open(const char *step);
/* `what` names what the step was about (a tensor, a block) and is copied, cut at 95 bytes; or
 * NULL. A span that finds no memory is counted as lost. */
void sw_span_close(sw_span span, const char *what);

/* Seconds of all spans of a step, those of threads side by side added up; 0: none. */
double sw_profile_seconds(const char *step);
int64_t sw_profile_lost(void);

/* Write the spans; what is at `path` is replaced. SW_E_IO, SW_E_NOMEM. */
sw_code sw_profile_write(const char *path, sw_err *err) SW_MUST_USE;

#endif
