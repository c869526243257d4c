/* conversion_table.h - the lattice as a table: what becomes of the schemes of one format in
 * another. */
#ifndef SW_TOOLS_CONVERT_CONVERSION_TABLE_H
#define SW_TOOLS_CONVERT_CONVERSION_TABLE_H

#include <stdbool.h>

#include "tools/terminal/table.h"

typedef enum sw_conversion {
    SW_CONVERSION_EXACT,      /* every scheme that the source can hold */
    SW_CONVERSION_SOME,       /* some of them, or depending on the values */
    SW_CONVERSION_REQUANTIZE, /* none; with --allow-requantize */
    SW_CONVERSION_NONE,
    SW_CONVERSION_COUNT
} sw_conversion;

/* From sw_conversion_dialects[from] to [to], for the schemes of scheme.h, those of integers in
 * groups of 32 as well, and a large linear. */
sw_conversion sw_conversion_of(int from, int to);
/* For each kind the names of the targets of that kind, joined by ", "; "-" when there are none. */
void sw_conversion_lists(char texts[SW_CONVERSION_COUNT][SW_CELL_BYTES], int from);

#endif
