/* next_steps.h - what one would run after a command has done its work: whole commands, to copy.
 *
 * Paths are quoted for a shell where they need it. Words in capitals, FILE, stand for what only the
 * reader can know.
 */
#ifndef SW_TOOLS_TERMINAL_NEXT_STEPS_H
#define SW_TOOLS_TERMINAL_NEXT_STEPS_H

#include <stdbool.h>

typedef struct sw_next_steps {
    bool is_silent; /* --json, --quiet */
    int n;
} sw_next_steps;

/* Print one on stdout: its words, up to a NULL, and what for. */
void sw_next_step(sw_next_steps *next, const char *what_for, const char *const *words);
#define SW_NEXT_STEP(next, what_for, ...) \
    sw_next_step(next, what_for, (const char *const[]){__VA_ARGS__, (const char *)0})

#endif
