/* made_text.h - text that the program makes of its tables: scripts and pages.
 *
 * The first failure stays, and what follows it is ignored, so that a generator reads as the text
 * that it writes. A caller looks at `rc` once, at the end.
 */
#ifndef SW_TOOLS_SHELL_MADE_TEXT_H
#define SW_TOOLS_SHELL_MADE_TEXT_H

#include "formats/base/print_buf.h"
#include "tools/cli/cmd.h"

/* Zero-initialise but for err; freed by sw_mem_put(text.buf.at). */
typedef struct sw_made_text {
    sw_print_buf buf;
    sw_err *err;
    sw_code rc;
} sw_made_text;

/* Pieces of at most 511 bytes. */
void sw_made_fmt(sw_made_text *t, const char *fmt, ...) SW_PRINTF(2, 3);
void sw_made_add(sw_made_text *t, const char *text); /* of any length */
/* 'text' as one word of bash, zsh or sh. */
void sw_made_word(sw_made_text *t, const char *text);
/* "a b c" */
void sw_made_names(sw_made_text *t, sw_opt_choice_fn names);

/* Print it on stdout, or with --json as {"<key>": text} in the result `name`; frees it. */
sw_code sw_made_show(sw_run *run, sw_made_text *t, const char *name, const char *key) SW_MUST_USE;

/* --- what completion and pages want to know of a row --- */

/* The names that its value may have, or NULL. */
sw_opt_choice_fn sw_row_names(const sw_opt *row);
/* May it be several of them, with commas between? Its argument then ends in ",...". */
bool sw_row_takes_many(const sw_opt *row);
/* Is its value, or one of them, a path? */
bool sw_row_takes_path(const sw_opt *row);

#endif
