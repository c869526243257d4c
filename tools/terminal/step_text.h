/* step_text.h - how far a step is, as one line: for a terminal, for a log, for a program.
 *
 * Pure functions of what is known of the step; who prints them, and when, is term.h.
 */
#ifndef SW_TOOLS_TERMINAL_STEP_TEXT_H
#define SW_TOOLS_TERMINAL_STEP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SW_STEP_NAME_BYTES 64
#define SW_STEP_ITEM_BYTES 256
#define SW_STEP_LINE_BYTES 1024

typedef struct sw_step {
    char name[SW_STEP_NAME_BYTES];
    int64_t first_done; /* where the step began: a run that continues has not done these */
    int64_t done, total; /* total <= 0: nobody knows */
    double elapsed_s;
    double done_s; /* elapsed_s when `done` was reached */
    char item[SW_STEP_ITEM_BYTES]; /* the tensor or linear that is worked on, or "" */
} sw_step;

/* The unit of a step's count (steps.def), and what a person reads for its name. */
const char *sw_step_unit(const char *name);
const char *sw_step_plain_name(const char *name);

/* Seconds until the step ends at the rate it has had so far. While one unit is worked on they count
 * down to what its end will say, and wait there if it takes longer than the others. Negative while
 * that is not known: nothing done yet, no total, or less than half a second of experience. */
double sw_step_eta_s(const sw_step *step);

/* "quantize [#####...] 3/12 blocks, 2 min left  layers.3.mlp.down_proj" in less than `columns`
 * characters (0: 80): the bar shrinks, then the item is cut in the middle, then both are left out;
 * digits never are. Escape sequences for colours are not counted. */
void sw_step_bar(char out[SW_STEP_LINE_BYTES], const sw_step *step, int columns, bool has_colors);
/* "quantize: 3 of 12 blocks, 2 min left" */
void sw_step_line(char out[SW_STEP_LINE_BYTES], const sw_step *step);
/* {"event":"step","step":...,"done":...,...} without a newline, as tools/README.md documents. */
void sw_step_json(char out[SW_STEP_LINE_BYTES], const sw_step *step);

/* `text` between quotes with what JSON wants escaped; control bytes and bytes that are no UTF-8
 * become '?'. Cut at a character where `out` is full, and always closed. */
void sw_step_quote(char *out, size_t out_bytes, const char *text);

#endif
