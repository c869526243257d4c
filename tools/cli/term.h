/* term.h - how the program talks while it works: stderr, the end of a run.
 *
 * Results go to stdout, everything here goes to stderr. On a terminal a bar with an ETA is
 * redrawn at most six times a second; elsewhere a plain line says now and then how far it is;
 * --quiet leaves errors only. Signals are tools/cli/signals.h.
 */
#ifndef SW_TOOLS_CLI_TERM_H
#define SW_TOOLS_CLI_TERM_H

#include <stdbool.h>

#include "formats/base/progress.h"

typedef struct sw_term {
    bool is_quiet, is_tty, has_bar;
    char stage_text[64];
    double stage_start_s, last_print_s;
    sw_progress progress; /* what the library is handed; self points back here */
} sw_term;

void sw_term_init(sw_term *term, bool is_quiet);
/* Wipe an unfinished bar, so that the next line starts clean. */
void sw_term_clear(sw_term *term);
/* "swage <command>: <text>" on one line; control bytes become '?'. */
void sw_term_error(sw_term *term, const char *command, const sw_err *err);

/* "1.5 GB", powers of 1000, for people; always terminated. */
void sw_term_bytes(char out[16], double n_bytes);

#endif
