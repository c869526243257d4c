/* kept_states.h - what the original made of a text, kept from one judgement of a process to the
 * next.
 *
 * Whoever judges several checkpoints of one model on one text spares the original for all but the
 * first, as with hidden_file.h, but without a file that anybody sees: hidden states after the last
 * block lie in a nameless one (spill.h), which is gone with the process, however that ends. Of
 * several ranks each keeps those of its own windows. That model, text and cut are the same every
 * time is the owner's word.
 */
#ifndef SW_VERIFY_METRICS_KEPT_STATES_H
#define SW_VERIFY_METRICS_KEPT_STATES_H

#include "formats/io/spill.h"
#include "verify/metrics/windows.h"

/* Set dir; zero the rest. */
typedef struct sw_kept_states {
    const char *dir;    /* where the nameless file lies; borrowed */
    sw_spill file;      /* float32 [n_windows, length, hidden] */
    int64_t first;      /* window */
    int64_t n_windows, length, hidden;
    int64_t n_put;      /* from the first on, that are there */
} sw_kept_states;

/* Before windows [first, end) of w are judged: room for their states, unless they are there.
 * SW_E_IO: there is no room for them. */
sw_code sw_kept_states_begin(sw_kept_states *kept, const sw_windows *w, int64_t first, int64_t end,
                             int64_t hidden, sw_err *err) SW_MUST_USE;
/* Windows [at, at + n), which have been put, into x [n * length, hidden]. */
bool sw_kept_states_get(float *x, const sw_kept_states *kept, int64_t at, int64_t n);
/* The same from x, in the order of windows. */
void sw_kept_states_put(sw_kept_states *kept, const float *x, int64_t at, int64_t n);
void sw_kept_states_close(sw_kept_states *kept); /* accepts a zeroed one */

#endif
