/* terminal.h - what the other end of a stream is: a terminal or not, how wide, with colours or not.
 */
#ifndef SW_TOOLS_TERMINAL_TERMINAL_H
#define SW_TOOLS_TERMINAL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* The words of --color, for option tables: auto, always, never; NULL beyond the end. */
const char *sw_color_choice(int i);
/* Whether text for `fd` is coloured. "always" and "never" decide; "auto" or NULL: not with NO_COLOR
 * in the environment, then with CLICOLOR_FORCE, then on a terminal that is not "dumb". A variable
 * that is empty, or a CLICOLOR_FORCE of 0, counts as absent (no-color.org, bixense.com/clicolors).
 */
bool sw_terminal_has_colors(const char *choice, int fd);
/* A terminal on which a line can be drawn again: not TERM=dumb. */
bool sw_terminal_can_redraw(int fd);
/* Columns of what `fd` writes to: COLUMNS of the environment, else what the terminal says; 0 when
 * it is no terminal, so that nothing need be cut. */
int sw_terminal_columns(int fd);

/* A name in at most `columns` characters: "..." stands for its middle, since tensors differ at both
 * ends. UTF-8 characters stay whole. columns 0: as it is. `out` is always terminated. */
char *sw_name_fit(char *out, size_t out_bytes, const char *name, int columns);
/* Characters of a UTF-8 text; one column each. */
int sw_text_columns(const char *text);

/* Escape sequences, or "" without colours. */
typedef enum sw_color { SW_PLAIN, SW_BOLD, SW_GREEN, SW_YELLOW, SW_RED, SW_COLOR_COUNT } sw_color;
const char *sw_color_on(sw_color color, bool has_colors);
const char *sw_color_off(bool has_colors);

#endif
