/* table.h - tables of text that fit the terminal that they are printed on.
 *
 * Where the width is known (sw_terminal_columns of stdout) and too small, texts continue on the
 * next line of their column and names are cut in the middle; numbers stay whole, whatever the
 * width, for a digit that is missing is a wrong number. In a file or a pipe nothing is cut.
 */
#ifndef SW_TOOLS_TERMINAL_TABLE_H
#define SW_TOOLS_TERMINAL_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/base/status.h"

#define SW_TABLE_COLUMNS_MAX 10
#define SW_CELL_BYTES 512

typedef char sw_cells[SW_TABLE_COLUMNS_MAX][SW_CELL_BYTES];

typedef enum sw_cell_kind {
    SW_CELL_TEXT,   /* left; continues below */
    SW_CELL_NAME,   /* left; cut in the middle */
    SW_CELL_FIXED,  /* left; stays whole */
    SW_CELL_NUMBER, /* right; stays whole */
} sw_cell_kind;

typedef struct sw_table {
    const char *headings[SW_TABLE_COLUMNS_MAX];
    sw_cell_kind kinds[SW_TABLE_COLUMNS_MAX];
    int n_columns;
    bool has_no_heading;
    const void *self;
    /* Fills row i, all of its columns; false beyond the end. Called twice for each. */
    bool (*row)(const void *self, int64_t i, sw_cells out);
} sw_table;

/* `columns` characters at most in a line, if the whole cells allow it; 0: as many as it takes. */
void sw_table_print(FILE *out, const sw_table *table, int columns);

/* One line of text, behind a label of up to SW_LABEL_COLUMNS - 1 characters unless that is NULL,
 * that continues below the text's beginning. It is parted at blanks alone: a path or a command's
 * word stays whole, if wider than the terminal. */
#define SW_LABEL_COLUMNS 12
void sw_line_print(FILE *out, const char *label, int columns, const char *fmt, ...)
    SW_PRINTF(4, 5);

#endif
