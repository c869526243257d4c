/* term.h - how the program talks while it works: stderr, from the first step to the end of a run.
 *
 * Results go to stdout, everything here goes to stderr. On a terminal a bar with an ETA is redrawn
 * at most six times a second; elsewhere a plain line says now and then how far it is. --progress
 * decides otherwise: plain lines, one JSON object a line, or nothing; --quiet leaves errors only.
 * Work may be reported from several threads. Signals are tools/cli/signals.h.
 */
#ifndef SW_TOOLS_CLI_TERM_H
#define SW_TOOLS_CLI_TERM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "formats/base/progress.h"
#include "quant/team/team.h"
#include "tools/terminal/step_text.h"
#include "tools/terminal/units.h"

typedef enum sw_progress_form {
    SW_PROGRESS_BAR,   /* one line, drawn again */
    SW_PROGRESS_LINES, /* a line every 10 s, after ten minutes every 60 s */
    SW_PROGRESS_JSON,  /* one object a line, at most six a second */
    SW_PROGRESS_NONE
} sw_progress_form;

typedef struct sw_term {
    FILE *out; /* stderr */
    bool is_quiet, has_bar, has_colors;
    sw_progress_form form;
    double (*now_s)(void);
    sw_step step; /* the one that goes on; name "" before the first */
    bool has_said; /* of this step */
    double step_start_s, last_print_s, start_s;
    pthread_mutex_t lock;
    const sw_team *team; /* its failure stops the work as well; or NULL */
    sw_progress progress; /* what the library is handed; self points back here */
} sw_term;

/* The words of --progress, for option tables. */
const char *sw_progress_choice(int i);

/* As --progress auto --color auto would have it. */
void sw_term_init(sw_term *term, bool is_quiet);
/* What the options say (NULL: auto), and with JSON the first event, which names the command. */
void sw_term_begin(sw_term *term, const char *progress, const char *color, const char *command);
/* Wipe an unfinished bar, so that the next line starts clean. */
void sw_term_clear(sw_term *term);
/* "swage <command>: <text>" on one line, or an event; control bytes become '?'. */
void sw_term_error(sw_term *term, const char *command, const sw_err *err);
/* With JSON the last event: exit code and seconds. */
void sw_term_end(sw_term *term, int exit_code);

#endif
